package operations

import "sync"

// detached runs what belongs to an operation rather than to the request that began it, and lets it finish at shutdown.
type detached struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// run starts work, or answers ErrOverloaded once the engine is stopping.
func (d *detached) run(work func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrOverloaded
	}
	d.group.Go(work)
	return nil
}

// drain refuses further work and waits for what runs.
func (d *detached) drain() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.group.Wait()
}
