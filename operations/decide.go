package operations

import (
	"time"

	"refundd/ledger"
)

// Failure codes of an operation that waits for a human: why it does.
const (
	attentionContradictory = "provider_contradictory"
	attentionKeyExpired    = "provider_key_expired"
	attentionTooOld        = "outcome_overdue"
	attentionPaidAfterAll  = "paid_after_failure"
)

// source tells how a fact was come by.
type source string

const (
	sourceRefund source = "refund" // the provider's answer to our request
	sourceLookup source = "lookup" // what its books show
	sourceHuman  source = "human"  // a person's decision, with evidence
)

// fact is what one attempt learned of an operation: an outcome, or the kind of its absence.
type fact struct {
	lease   Lease
	source  source
	result  ProviderResult
	kind    ErrorKind // empty with an outcome
	reason  Reason    // ErrorUnknown: why, where that is known
	shown   string    // ErrorContradictory: what the provider's books show
	hinted  bool      // looked for because of an event, without a lease
	noted   bool      // seen on the way to a refusal: it goes into the history and changes nothing
	silent  bool      // not even that
	barred  bool      // nothing may be sent now: the breaker is open
	unasked bool      // the provider was not asked, which says nothing of it, nor counts as an answer
	detail  map[string]string

	disowned   bool          // it named a refund that is another operation's
	unwritten  bool          // no byte of a request for the refund left us
	retryAfter time.Duration // for how long the provider asks to be left alone

	override  bool // of a human's decision: it stands although the books may say otherwise
	unchecked bool // and they could not be read, or may not be complete
}

func (f fact) is(o Outcome) bool { return f.kind == "" && f.result.Outcome == o }

// reservation is an operation's row under lock, with what the database's clock says of it.
type reservation struct {
	Operation
	attempts    int
	doubted     *string
	leased      bool // the lease that was taken last has not run out
	keyAlive    bool // a request sent now would end before the provider forgets the key
	lagOver     bool // the lease was taken later than the listing lag after the last send
	tooOld      bool // the age at which a human is told
	recheckOver bool // settled longer ago than late failures are looked for
	lastSeq     int
}

// change is what a fact makes of a row.
type change struct {
	state            State
	failureCode      *string
	providerRefundID *string
	doubted          *string
	postings         []ledger.Posting
	next             schedule
	resend           bool // keep the lease and send again with the same key
	notSent          bool // this attempt sent nothing
	books            books
	stale            bool // the fact came too late to say anything
}

// books is what a fact says of the provider's books beside a settled operation.
type books int

const (
	booksUnread     books = iota // nothing
	booksAgree                   // they show one refund of ours, whatever its outcome
	booksContradict              // they do not
)

// schedule says when reconciliation looks again.
type schedule int

const (
	nextBackoff schedule = iota // doubles with each attempt
	nextNow
	nextLag // once the provider's listing shows all
	nextSlowest
	nextRest // once the breaker lets requests through
	nextDaily
	nextNever
)

// decide is the state machine: what becomes of an operation by one fact, where remainder is what its order's capture
// leaves (minor units), negative where a provider paid more. Proof of success, and a failure that the provider's books
// show, count whatever the lease; all else only if nobody took the lease since and the state is the one that it was
// taken in.
func (r reservation) decide(f fact, remainder int64) change {
	c := change{
		state: r.State, failureCode: r.FailureCode, providerRefundID: r.ProviderRefundID, doubted: r.doubted,
		next: r.resting(f.answered()), notSent: f.source == sourceLookup || f.unwritten,
	}
	// What was seen, or decided on what was seen, is as old as its lease: a holder that slept through the end of that
	// says nothing any more. The answer to a request stays true until somebody takes the lease.
	ours := f.lease.attempts == r.attempts && f.lease.State == r.State && (r.leased || f.source == sourceRefund)
	switch {
	case f.noted || f.silent:
		if f.kind == "" {
			c.next = nextNow
		}
		return c
	case f.unasked:
		c.next = nextRest
		return c
	case f.source == sourceHuman && (!ours || r.State != StateNeedsAttention):
		c.stale = true
	case f.hinted && f.lease.State != r.State:
		c.stale = true // what was recorded meanwhile may be the later word: it is looked up anew
	case f.is(OutcomeSucceeded) && r.failedMeanwhile(f):
		c.stale, c.next = true, nextNow
	case f.is(OutcomeSucceeded):
		r.paid(&c, f.source, remainder)
	case f.is(OutcomeDeclined) && f.source != sourceRefund:
		r.unpaid(&c, f.result.DeclineCode)
	case f.is(OutcomePending):
		r.pending(&c)
	case !ours:
		c.stale = true
	case f.is(OutcomeDeclined) && r.State == StateReserved:
		r.declined(&c, f.result)
	case f.contradictory() && r.open():
		r.attention(&c, attentionContradictory)
	case f.contradictory() && r.settled():
		c.books = booksContradict
	case f.kind == ErrorNotFound && r.State == StateReserved:
		r.notFound(&c, f.barred)
	case r.tooOld && r.open():
		r.attention(&c, attentionTooOld)
	}
	if c.next == nextDaily && f.source == sourceRefund && r.attempts > 1 {
		c.next = nextLag // whether an earlier request was executed as well, the books show once they are complete
	}
	if f.is(OutcomePending) && r.settled() {
		c.next = nextDaily // however long ago it was settled: what the provider says of it is not its last word
	}
	if f.kind == "" && f.result.ProviderRefundID != "" && !c.stale {
		c.providerRefundID = &f.result.ProviderRefundID
	}
	if f.kind == "" && f.source != sourceHuman && !c.stale {
		c.books = booksAgree
	}
	if f.unchecked && !c.stale {
		c.next = nextLag
	}
	return c
}

// failedMeanwhile tells whether the provider's books showed this very refund as failed after the call that calls it
// paid had begun: refunds fail late, and never succeed late. A new look decides.
func (r reservation) failedMeanwhile(f fact) bool {
	return r.State == StateFailed && f.lease.State != StateFailed && f.source != sourceHuman && !r.failedByPerson() &&
		r.ProviderRefundID != nil && *r.ProviderRefundID == f.result.ProviderRefundID
}

func (f fact) contradictory() bool { return f.kind == ErrorContradictory || f.kind == errorNotOurs }

// open tells whether neither an outcome nor a human has the operation yet.
func (r reservation) open() bool { return r.State == StateReserved || r.State == StatePending }

func (r reservation) settled() bool { return r.State == StateSucceeded || r.State == StateFailed }

// resting is when to look again at a row that stays as it is. A last look is one that was answered.
func (r reservation) resting(answered bool) schedule {
	switch {
	case r.State == StateNeedsAttention:
		return nextSlowest
	case !r.settled():
		return nextBackoff
	case r.recheckOver, answered && r.State == StateFailed && !r.failedByPerson():
		return nextNever
	default:
		return nextDaily
	}
}

func (r reservation) failedByPerson() bool {
	return r.FailureCode != nil && *r.FailureCode == FailureResolvedByOperator
}

// held tells whether the order's balance counts the operation's money as in transit.
func (r reservation) held() bool { return r.open() || r.State == StateNeedsAttention }

// overRefunded tells whether the operation waits for a human because the provider paid it beyond its order's capture.
func (r reservation) overRefunded() bool {
	return r.State == StateNeedsAttention && deref(r.FailureCode) == FailureOverRefund
}

// paid: the provider shows it as executed, or a person says so. Proof of it is never dropped, whatever we believed: one
// that had failed is held again, whether the remainder covers it or not. What is beyond the capture is settled by a
// human alone, as long as it is beyond it.
func (r reservation) paid(c *change, by source, remainder int64) {
	switch {
	case r.State == StateSucceeded:
		return
	case r.State == StateFailed && remainder < r.AmountCents:
		r.attention(c, FailureOverRefund)
		c.postings = r.post(ledger.Hold)
		return
	case r.State == StateFailed:
		r.attention(c, attentionPaidAfterAll)
		c.postings = r.post(ledger.Hold)
		return
	case r.overRefunded() && remainder < 0 && by != sourceHuman:
		return
	}
	c.postings = r.post(ledger.Settle)
	c.state, c.failureCode, c.doubted, c.next = StateSucceeded, nil, nil, nextDaily
}

// unpaid: the provider's books show our refund as failed, or a person says so.
func (r reservation) unpaid(c *change, code string) {
	switch {
	case r.State == StateFailed:
		return
	case r.State == StateSucceeded:
		code = FailureLate
		c.postings = r.post(ledger.Reverse)
	case r.held():
		c.postings = r.post(ledger.Release)
	}
	c.state, c.failureCode, c.doubted, c.next = StateFailed, &code, nil, nextNever
	if code == FailureResolvedByOperator {
		c.next = nextDaily
	}
}

// pending: the provider accepted it. Only a reservation moves by that.
func (r reservation) pending(c *change) {
	if r.State == StateReserved {
		c.state, c.doubted = StatePending, nil
		return
	}
	if r.State == StatePending && r.tooOld {
		r.attention(c, attentionTooOld)
	}
}

// declined: the answer to our request was no. It is believed at once only where nothing of ours can have been executed.
func (r reservation) declined(c *change, result ProviderResult) {
	code := result.DeclineCode
	if r.attempts > 1 || r.doubted != nil || result.Doubtful ||
		code == DeclineAlreadyRefunded || code == DeclineExceedsUnrefunded {
		c.doubted, c.next = &code, nextLag
		return
	}
	c.state, c.failureCode, c.next = StateFailed, &code, nextNever
	c.postings = r.post(ledger.Release)
}

// notFound: the provider's books show none of ours, for a reservation.
func (r reservation) notFound(c *change, barred bool) {
	switch {
	case r.doubted != nil && r.lagOver:
		c.state, c.failureCode, c.doubted, c.next = StateFailed, r.doubted, nil, nextDaily
		c.postings = r.post(ledger.Release)
	case r.tooOld:
		r.attention(c, attentionTooOld)
	case r.doubted != nil:
		c.next = nextLag
	case r.keyAlive && barred:
		c.next = nextRest
	case r.keyAlive:
		c.resend, c.notSent = true, false
	case r.lagOver:
		r.attention(c, attentionKeyExpired)
	default:
		c.next = nextLag
	}
}

func (r reservation) attention(c *change, why string) {
	c.state, c.failureCode, c.next = StateNeedsAttention, &why, nextSlowest
}

// post makes the operation's next transfers.
func (r reservation) post(kinds ...func(ledger.Entry, int) ledger.Posting) []ledger.Posting {
	postings := make([]ledger.Posting, len(kinds))
	for i, kind := range kinds {
		postings[i] = kind(r.ledgerEntry(), r.lastSeq+1+i)
	}
	return postings
}

func ptrTo[T any](v T) *T { return &v }

// apply is the operation after the change, at the time at.
func (c change) apply(o Operation, at time.Time) Operation {
	moved := o.State != c.state
	if !c.resend {
		o.LeaseLeft = 0
	}
	o.State, o.FailureCode, o.ProviderRefundID = c.state, c.failureCode, c.providerRefundID
	switch {
	case !moved:
	case c.state == StateSucceeded || c.state == StateFailed:
		o.SettledAt = &at
	default:
		o.SettledAt = nil
	}
	return o
}
