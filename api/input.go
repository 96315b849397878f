package api

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The lengths of texts, in characters.
const (
	maxID            = 255
	maxName          = 255
	maxReason        = 1000
	maxMetadataPairs = 20
	maxMetadataKey   = 100
	maxMetadataValue = 1000
)

// Codes of a fault.
const (
	faultRequired   = "required"
	faultInvalid    = "invalid"
	faultOutOfRange = "out_of_range"
	faultTooLong    = "too_long"
	faultMismatch   = "mismatch"
)

// fault is one value that is out of range, by an RFC 6901 pointer into the body or by `path:`, `query:` or `header:`.
type fault struct {
	Pointer string `json:"pointer"`
	Code    string `json:"code"`
}

// input is a request as the read functions see it. They ask for everything and go on after a fault, so that one answer
// names them all; an error that ends the parsing comes before any fault.
type input struct {
	x       *exchange
	err     error
	faults  []fault
	queried bool // the query was read
}

func (in *input) verdict() error {
	if !in.queried && in.x.r.URL.RawQuery != "" {
		in.query() // a route without parameters takes none: one that is ignored may have been meant
	}
	if in.err != nil {
		return in.err
	}
	if in.faults != nil {
		return &rejection{code: codeInvalidRequest, faults: in.faults}
	}
	return nil
}

func (in *input) fail(err error) {
	if in.err == nil {
		in.err = err
	}
}

// maxFaults is how many faults an answer names: a request can have thousands.
const maxFaults = 50

// blame notes a fault; an empty code is none.
func (in *input) blame(pointer, code string) {
	if code != "" && len(in.faults) < maxFaults {
		in.faults = append(in.faults, fault{pointer, code})
	}
}

func (in *input) tenant() string { return in.x.principal.TenantID }

// orderID is the path's order.
func (in *input) orderID() string {
	id, ok := in.x.match.param("order_id")
	if !ok {
		in.blame("path:order_id", faultInvalid)
		return ""
	}
	in.blame("path:order_id", orderIDFault(id))
	return id
}

// operationID is the path's operation.
func (in *input) operationID() string {
	id, ok := in.x.match.param("operation_id")
	if !ok {
		in.blame("path:operation_id", faultInvalid)
		return ""
	}
	in.blame("path:operation_id", operationIDFault(id))
	return id
}

// operationIDFault holds id against [A-Za-z0-9._:-]{1,255}, and neither "." nor "..", which URLs can not carry.
func operationIDFault(id string) string {
	switch {
	case len(id) > maxID:
		return faultTooLong
	case id == "" || id == "." || id == "..":
		return faultInvalid
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return faultInvalid
		}
	}
	return ""
}

// orderIDFault holds id against 1 to 255 printable ASCII characters without space.
func orderIDFault(id string) string {
	switch {
	case len(id) > maxID:
		return faultTooLong
	case id == "":
		return faultInvalid
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return faultInvalid
		}
	}
	return ""
}

// textFault holds s against 1 to most characters.
func textFault(s string, most int) string {
	switch {
	case s == "":
		return faultInvalid
	case len(s) > most && utf8.RuneCountInString(s) > most:
		return faultTooLong
	}
	return ""
}

// text is an optional text; where it is given it is not empty.
func (in *input) text(pointer string, s *string, most int) *string {
	if s != nil {
		in.blame(pointer, textFault(*s, most))
	}
	return s
}

// requiredText is a text that must be given and not be empty.
func (in *input) requiredText(pointer string, s *string, most int) string {
	if s == nil {
		in.blame(pointer, faultRequired)
		return ""
	}
	return *in.text(pointer, s, most)
}

// words is an optional text for people; where it is given there is something to read.
func (in *input) words(pointer string, s *string, most int) *string {
	if s != nil && *s != "" && !strings.ContainsFunc(*s, isVisible) {
		in.blame(pointer, faultInvalid)
		return s
	}
	return in.text(pointer, s, most)
}

// isVisible tells a letter, a digit, a mark of punctuation or a symbol that leaves ink.
func isVisible(r rune) bool {
	const blankBraille = '\u2800'
	return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && r != blankBraille &&
		!unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// requiredWords are words that must be given.
func (in *input) requiredWords(pointer string, s *string, most int) string {
	if s == nil {
		in.blame(pointer, faultRequired)
		return ""
	}
	return *in.words(pointer, s, most)
}

// reason may be empty.
func (in *input) reason(s *string) *string {
	if s != nil && *s != "" {
		in.blame("/reason", textFault(*s, maxReason))
	}
	return s
}

// bodyOrderID is the order that a body names.
func (in *input) bodyOrderID(s *string) string {
	if s == nil {
		in.blame("/order_id", faultRequired)
		return ""
	}
	in.blame("/order_id", orderIDFault(*s))
	return *s
}

// cents is an optional amount in minor units.
func (in *input) cents(pointer string, n *integer) *int64 {
	if n == nil {
		return nil
	}
	if !n.inRange {
		in.blame(pointer, faultOutOfRange)
	}
	return &n.value
}

// amount is an amount that must be given: there is no default.
func (in *input) amount(n *integer) int64 {
	if n == nil {
		in.blame("/amount_cents", faultRequired)
		return 0
	}
	return *in.cents("/amount_cents", n)
}

func (in *input) currency(code *string) *string {
	if code != nil && !knownCurrency(*code) {
		in.blame("/currency", faultInvalid)
	}
	return code
}

// metadata takes pairs of strings; one that is null is not of its type.
func (in *input) metadata(pairs map[string]*string) map[string]string {
	taken := make(map[string]string, len(pairs))
	if len(pairs) == 0 {
		return taken
	}
	if len(pairs) > maxMetadataPairs {
		in.blame("/metadata", faultTooLong)
	}
	for _, k := range slices.Sorted(maps.Keys(pairs)) {
		v := pairs[k]
		if v == nil {
			in.fail(errNotText.at("/metadata/" + escapePointer(k)))
			return nil
		}
		in.blame("/metadata", textFault(k, maxMetadataKey))
		if code := textFault(*v, maxMetadataValue); code != "" && *v != "" {
			in.blame(shown("/metadata/"+escapePointer(k)), code)
		}
		taken[k] = *v
	}
	return taken
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// query is the parameters of a list or search: those named, each at most once.
func (in *input) query(names ...string) map[string]string {
	in.queried = true
	sent, err := parseQuery(in.x.r.URL.RawQuery)
	if err != nil {
		in.fail(err)
		return nil
	}
	once := make(map[string]string, len(sent))
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		values := sent[name]
		if len(values) != 1 || !slices.Contains(names, name) || !isText(values[0]) {
			in.blame(parameter(name), faultInvalid)
			continue
		}
		once[name] = values[0]
	}
	return once
}

// parseQuery is url.ParseQuery that says which parameter can not be read.
func parseQuery(raw string) (url.Values, error) {
	sent := url.Values{}
	for pair := range strings.SplitSeq(raw, "&") {
		one, err := url.ParseQuery(pair)
		if err != nil {
			name, _, _ := strings.Cut(pair, "=")
			return nil, errQuery.at(parameter(name))
		}
		for name, values := range one {
			sent[name] = append(sent[name], values...)
		}
	}
	return sent, nil
}

// parameter points to a parameter of the query, whose name is the caller's.
func parameter(name string) string {
	if name == "" || len(name) > maxPointer || !isPrintable(name) {
		return "query:?"
	}
	return "query:" + name
}

// isText tells what Postgres can store: UTF-8 without NUL.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

// missing notes required parameters that were not given, unless they were given wrongly.
func (in *input) missing(pointers ...string) {
	if in.faults != nil {
		return
	}
	for _, p := range pointers {
		in.blame(p, faultRequired)
	}
}
