package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a request asks for, and so what its answer has to be.
type Kind string

// The kinds of request.
const (
	KindNew Kind = "new" // an approved refund, each on another order: 201
	KindHot Kind = "hot" // an approved refund, all on one order: 201
	// an approved refund of an order at the simulated provider: 201, or 202 while it is unknown
	KindSimulator Kind = "simulator"
	KindReplay    Kind = "replays"   // an executed refund once more: 200
	KindConflict  Kind = "conflicts" // another refund under an executed one's id: 422
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{KindNew, KindHot, KindSimulator, KindReplay, KindConflict} }

// moves tells whether such a request is to move money.
func (k Kind) moves() bool { return k == KindNew || k == KindHot || k == KindSimulator }

// expects tells whether status is what a request of this kind is to be answered with.
func (k Kind) expects(status int) bool {
	switch k {
	case KindReplay:
		return status == 200
	case KindConflict:
		return status == 422
	case KindSimulator:
		return status == 201 || status == 202
	default:
		return status == 201
	}
}

// Mix is kinds of request with their weights.
type Mix struct {
	name  string
	parts []part
	total int
}

type part struct {
	kind   Kind
	weight int
}

// Has tells whether the mix has requests of the kind.
func (m Mix) Has(kind Kind) bool {
	return slices.ContainsFunc(m.parts, func(p part) bool { return p.kind == kind })
}

func (m Mix) String() string { return m.name }

// ParseMix reads one kind, or several with their weights: new, or new=80+replays=15+conflicts=5.
func ParseMix(text string) (Mix, error) {
	m := Mix{name: text}
	for item := range strings.SplitSeq(text, "+") {
		name, digits, weighted := strings.Cut(item, "=")
		p := part{kind: Kind(name), weight: 1}
		var err error
		if weighted {
			p.weight, err = strconv.Atoi(digits)
		}
		if err != nil || p.weight < 1 || p.weight > 1000 || !slices.Contains(Kinds(), p.kind) {
			return Mix{}, fmt.Errorf("%q is no mix: a kind (%s), or several with weights such as new=80+replays=20",
				text,
				kindNames())
		}
		m.parts = append(m.parts, p)
		m.total += p.weight
	}
	return m, nil
}

func kindNames() string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// stride spreads kinds and orders: a prime, larger than what it is taken modulo of.
const stride = 2_654_435_761

// pick answers the place of the i-th request's part.
func (m Mix) pick(i int64) int {
	if len(m.parts) == 1 {
		return 0
	}
	at := int(i * stride % int64(m.total))
	for place, p := range m.parts {
		if at -= p.weight; at < 0 {
			return place
		}
	}
	return 0 // not reached: the weights add up to the total
}
