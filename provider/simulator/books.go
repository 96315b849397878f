package simulator

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// status is where a refund stands.
type status string

const (
	statusPending   status = "pending"
	statusSucceeded status = "succeeded"
	statusFailed    status = "failed" // the money came back
)

// params are what a key stands for: the same key with others is refused.
type params struct {
	PaymentRef  string            `json:"payment_ref"`
	AmountCents int64             `json:"amount_cents"` // minor units
	Currency    string            `json:"currency"`     // ISO 4217
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func (p params) equal(q params) bool {
	return p.PaymentRef == q.PaymentRef && p.AmountCents == q.AmountCents && p.Currency == q.Currency &&
		maps.Equal(p.Metadata, q.Metadata)
}

// step is a change of status that is due at a time. It happens by the time alone, so that nothing cancels it.
type step struct {
	Status      status    `json:"status"`
	FailureCode string    `json:"failure_code,omitempty"`
	At          time.Time `json:"at"`
}

// refund is one that was executed. It never changes: its status is read off the clock.
type refund struct {
	ID        string    `json:"refund_id"`
	Params    params    `json:",embed"`
	CreatedAt time.Time `json:"created_at"`
	Status    status    `json:"status"` // at created_at
	Steps     []step    `json:"steps,omitempty"`
}

// at tells the refund's status at now, and why it failed.
func (r *refund) at(now time.Time) (is status, failureCode string) {
	is = r.Status
	for _, s := range r.Steps {
		if !now.Before(s.At) {
			is, failureCode = s.Status, s.FailureCode
		}
	}
	return is, failureCode
}

// decline is a refund that was refused. There is none.
type decline struct {
	Params    params    `json:",embed"`
	Code      string    `json:"code"`
	Message   string    `json:"message,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// entry is one line of the books: what happened to a key. Without a key, what happened to all of them.
type entry struct {
	Event   event    `json:"event"`
	Key     string   `json:"idempotency_key,omitempty"`
	Refund  *refund  `json:"refund,omitempty"`  // for eventRefund
	Decline *decline `json:"decline,omitempty"` // for eventDecline
}

type event string

const (
	eventRequest event = "request" // a POST carried the key
	eventRefund  event = "refund"  // it executed
	eventDecline event = "decline" // it was refused for good
	eventExpire  event = "expire"  // the key was forgotten
)

// key is what the provider knows of an idempotency key. Its outcome is forgotten in time, its requests never.
type key struct {
	requests int
	busy     bool // a request of it runs
	refund   *refund
	decline  *decline
}

// executed is a refund with the key it came under.
type executed struct {
	*refund
	key string
}

// books are everything the provider knows, in memory and in the journal.
type books struct {
	journal   *journal
	retention time.Duration

	mu      sync.Mutex
	keys    map[string]*key
	seen    []string   // the keys in the order of their first request
	refunds []executed // in the order of their execution
	byRef   map[string][]executed
	byKey   map[string][]executed
}

// openBooks recovers the books of dir, or begins them.
func openBooks(dir string, retention time.Duration) (*books, error) {
	b := &books{
		retention: retention,
		keys:      make(map[string]*key),
		byRef:     make(map[string][]executed),
		byKey:     make(map[string][]executed),
	}
	j, err := openJournal(dir, func(line []byte) error {
		var e entry
		if err := json.Unmarshal(line, &e, strict); err != nil {
			return err
		}
		return b.apply(e)
	})
	b.journal = j
	return b, err
}

// close ends the journal.
func (b *books) close() error { return b.journal.close() }

// durable returns once everything that was read or written under b.mu is on the disk.
func (b *books) durable() error { return b.journal.flush() }

// record writes e and applies it, under b.mu.
func (b *books) record(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode an entry: %w", err)
	}
	b.journal.append(line)
	return b.apply(e)
}

// apply makes e's change to the memory, under b.mu.
func (b *books) apply(e entry) error {
	switch {
	case e.Event == eventRequest && e.Key != "":
		b.key(e.Key).requests++
	case e.Event == eventRefund && e.Key != "" && e.Refund != nil:
		x := executed{refund: e.Refund, key: e.Key}
		b.key(e.Key).refund = e.Refund
		b.refunds = append(b.refunds, x)
		b.byRef[e.Refund.Params.PaymentRef] = append(b.byRef[e.Refund.Params.PaymentRef], x)
		b.byKey[e.Key] = append(b.byKey[e.Key], x)
	case e.Event == eventDecline && e.Key != "" && e.Decline != nil:
		b.key(e.Key).decline = e.Decline
	case e.Event == eventExpire:
		b.forget(e.Key)
	default:
		return fmt.Errorf("an event %q that this version does not know", e.Event)
	}
	return nil
}

// request counts a request of a key.
func (b *books) request(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record(entry{Event: eventRequest, Key: name})
}

// hold keeps the other requests of a key away until it is freed.
func (b *books) hold(name string) (*key, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.key(name)
	if k.busy {
		return nil, errBusy
	}
	k.busy = true
	return k, nil
}

func (b *books) free(k *key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.busy = false
}

// key finds the key of a name, or begins it.
func (b *books) key(name string) *key {
	k := b.keys[name]
	if k == nil {
		k = &key{}
		b.keys[name] = k
		b.seen = append(b.seen, name)
	}
	return k
}

// forget drops the outcome of one key, or of all. A request that runs keeps its key from the others all the same.
func (b *books) forget(name string) {
	for _, k := range b.keys {
		if name == "" || k == b.keys[name] {
			k.refund, k.decline = nil, nil
		}
	}
}

// stored tells the outcome that k still remembers at now; both are nil where there is none.
func (b *books) stored(k *key, now time.Time) (*refund, *decline) {
	switch {
	case k.refund != nil && now.Sub(k.refund.CreatedAt) < b.retention:
		return k.refund, nil
	case k.decline != nil && now.Sub(k.decline.CreatedAt) < b.retention:
		return nil, k.decline
	}
	return nil, nil
}

// newID is unique, and sorts by time.
func newID(prefix string) string { return prefix + uuid.Must(uuid.NewV7()).String() }
