package operations

import (
	"context"
	"sync"
)

// inFlight counts what is under way, so that a shutdown can refuse more and wait for the rest.
type inFlight struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// enter counts one more until leave is called, or reports false once the engine is stopping.
func (f *inFlight) enter() (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false
	}
	f.group.Add(1)
	return f.group.Done, true
}

// drain refuses more and waits for what is under way.
func (f *inFlight) drain() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.group.Wait()
}

// detached does what belongs to an operation rather than to the request that began it: it goes on after its caller has
// left, who is then told ErrDeadlineExceeded. Once the engine is stopping it is ErrOverloaded.
func detached[T any](ctx context.Context, e *Engine, act func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	leave, ok := e.acts.enter()
	if !ok {
		return none, ErrOverloaded
	}
	done := make(chan result, 1)
	go func() {
		defer leave()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.config.Lease)
		defer cancel()
		value, err := act(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ErrDeadlineExceeded
	}
}
