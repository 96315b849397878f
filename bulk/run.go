package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"refundd/client"
)

// ErrStopped reports a run that ended before the file did, because the service could not be asked any further.
var ErrStopped = errors.New("the service cannot be asked any further")

// Config is what a run needs.
type Config struct {
	Client      *client.Client
	Concurrency int           // lines that are asked for at once
	Patience    time.Duration // for how long a line is tried while the service answers that it may be later
	DryRun      bool          // explain each line, and change nothing
	Skip        func(Line) bool
	Result      func(Result) error // told of each line but those that are skipped, by one goroutine at a time
}

// Summary counts lines by what became of them.
type Summary struct {
	mu     sync.Mutex
	counts map[string]int
	human  int
}

// The lines that were skipped, in a Summary.
const skipped = "skipped"

// Count is how many lines came to that.
func (s *Summary) Count(status string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[status]
}

// Skipped is how many lines an earlier run had done.
func (s *Summary) Skipped() int { return s.Count(skipped) }

// NeedHuman is how many lines wait for a person.
func (s *Summary) NeedHuman() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.human
}

// Unfinished is how many lines another run is to ask for again.
func (s *Summary) Unfinished() int { return s.Count(StatusPending) + s.Count(StatusNotDone) }

func (s *Summary) String() string {
	text := ""
	for _, status := range []string{
		StatusWouldProcess, StatusProcessed, StatusAlreadyProcessed, skipped, StatusPending, StatusRefused, StatusNotDone,
	} {
		if n := s.Count(status); n > 0 {
			text += fmt.Sprintf(", %d %s", n, status)
		}
	}
	if text == "" {
		return "no lines"
	}
	return text[2:]
}

func (s *Summary) add(status string, human bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[status]++
	if human {
		s.human++
	}
}

// NewSummary returns one without lines.
func NewSummary() *Summary { return &Summary{counts: map[string]int{}} }

// Run asks for the refund of each line and counts in s, which may be read meanwhile. Lines that need a person are
// results, not errors. An error tells that the run ended before the file.
func Run(ctx context.Context, c Config, lines *Lines, s *Summary) error {
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan Line)
	group.Go(func() error {
		defer close(work)
		return feed(ctx, c, lines, s, work)
	})
	var telling sync.Mutex
	for range c.Concurrency {
		group.Go(func() error {
			for l := range work {
				r, ended := c.result(ctx, l)
				telling.Lock()
				err := c.Result(r)
				telling.Unlock()
				s.add(r.Status, r.Status == StatusRefused)
				if err := errors.Join(err, ended); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// feed reads the file as fast as lines are worked off.
func feed(ctx context.Context, c Config, lines *Lines, s *Summary, work chan<- Line) error {
	for {
		l, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case l.Fault == "" && c.Skip(l):
			s.add(skipped, false)
			continue
		}
		select {
		case work <- l:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// result is what becomes of a line, and the error that ends the run.
func (c Config) result(ctx context.Context, l Line) (Result, error) {
	if l.Fault != "" {
		return Result{Line: l, Status: StatusRefused, Code: "malformed_line", MoneyMoved: client.MoneyMovedUnknown,
			NextAction: client.ActionFixRequest, Detail: fmt.Sprintf("line %d: %s", l.Number, l.Fault)}, nil
	}
	ask := c.refund
	if c.DryRun {
		ask = c.explain
	}
	for wait, began := time.Second, time.Now(); ; wait = min(2*wait, 10*time.Second) {
		r, err := ask(ctx, l)
		failure, failed := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			return r, nil
		case !failed:
			return notDone(l, nil), err
		case failure.Code == client.CodeUnauthenticated || failure.Code == "forbidden":
			return notDone(l, failure), fmt.Errorf("%w: %s", ErrStopped, failure.Detail)
		case !failure.Retryable && failure.Code != client.CodeCanceled:
			return refused(l, failure), nil
		case ctx.Err() != nil:
			return notDone(l, failure), ctx.Err()
		case time.Since(began) > c.Patience:
			return notDone(l, failure), fmt.Errorf("%w: %s", ErrStopped, failure.Detail)
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(wait, failure.RetryAfter)):
		}
	}
}

// refund asks for the line's refund, where the line names no other case than its approval.
func (c Config) refund(ctx context.Context, l Line) (Result, error) {
	q := l.Request
	if l.CaseID != "" {
		// for who finds the refund of a tenant that requires no approvals
		q.Metadata = map[string]string{"case_id": l.CaseID}
		approval, err := c.approval(ctx, l)
		if err != nil {
			return Result{}, err
		}
		if approval != nil && otherCase(l, *approval) {
			return ofOtherCase(l, *approval), nil
		}
	}
	receipt, err := c.Client.Refund(ctx, q)
	if err != nil {
		return Result{}, err
	}
	return Result{Line: l, Status: string(receipt.Status), MoneyMoved: receipt.MoneyMoved, RefundID: receipt.RefundID,
		NextAction: receipt.NextAction}, nil
}

func refused(l Line, e *client.Error) Result {
	r := notDone(l, e)
	r.Status = StatusRefused
	if e.FailureCode != "" {
		r.Detail = e.FailureCode + ": " + r.Detail
	}
	return r
}

func notDone(l Line, e *client.Error) Result {
	r := Result{Line: l, Status: StatusNotDone, MoneyMoved: client.MoneyMovedUnknown,
		NextAction: client.ActionRetrySameOperation}
	if e != nil {
		r.Code, r.MoneyMoved, r.NextAction, r.Ref, r.Detail = e.Code, e.MoneyMoved, e.NextAction, e.DiagnosticRef,
			e.Detail
	}
	return r
}
