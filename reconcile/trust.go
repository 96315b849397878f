package reconcile

import (
	"sync"

	"refundd/operations"
)

// trust is what a run learned of a provider: whether it answers at all. Until it does, few operations are asked about
// at a time, and where it stays silent the run lets it be. One answer is enough to ask with all workers, since what
// fails then is the fault of single payments, which back off by themselves.
type trust struct {
	workers  int
	mu       sync.Mutex
	answered bool // at least once in this run
	silence  int  // what the calls in vain since the last answer weigh
	refused  bool // one of them for our credentials
	untaken  int  // operations that are as they were, since our credentials were refused
}

// The weight of a call in vain, before the first answer: how little it can be a single payment's fault. A provider is
// let be where those in a row weigh enough.
const (
	weightUnknown  = 1  // may well be
	weightNotSent  = 16 // hardly: nobody is there, or it is too busy
	weightRefused  = 32 // hardly: no credentials of ours are good enough
	enough         = 128
	firstWidth     = 4 // operations at a time; four times as many after each round in vain
	widthsMultiply = 4
)

// learn takes in what became of an operation.
func (t *trust) learn(r operations.Pursuit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Untaken {
		t.untaken++
	}
	if r.Answered {
		t.answered, t.silence, t.refused = true, 0, false
		return
	}
	t.refused = t.refused || r.Kind == operations.ErrorMisconfigured
	switch {
	case r.Unasked:
	case t.answered, r.Kind == operations.ErrorUnknown:
		t.silence += weightUnknown
	case r.Kind == operations.ErrorMisconfigured:
		t.silence += weightRefused
	case r.Kind == operations.ErrorNotSent:
		t.silence += weightNotSent
	}
}

// proven tells whether the provider answered in this run.
func (t *trust) proven() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answered
}

// lost tells whether there is no use in asking on. Workers that all ask in vain about the first of many prove nothing
// yet.
func (t *trust) lost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered {
		return t.silence >= max(enough, 2*t.workers)
	}
	return t.silence >= enough
}

// second tells, once, that operations which were let be have another chance: the provider answers others.
func (t *trust) second() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := t.answered && t.untaken > 0
	t.untaken = 0
	return again
}

// fault is what the silence of a provider says of the run; nil where all was asked.
func (t *trust) fault(provider string, asked bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.refused && (!t.answered || !asked):
		return &ProviderFault{provider, "refuses our credentials"}
	case !asked:
		return &ProviderFault{provider, "does not answer"}
	}
	return nil
}
