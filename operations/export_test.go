package operations

// Waiting is how many refunds wait for their transaction.
func (e *Engine) Waiting() int { return e.claims.depth() }
