package main

import (
	"context"
	"time"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/operations"
)

type afterRestoreCmd struct {
	postgres.Database
	Reach time.Duration `default:"720h" help:"How long from now on what is approved or registered is still taken for what the lost history may have held."`
}

// Run makes what a lost history may have sent be looked up before its first send, and says what that is.
func (a afterRestoreCmd) Run(ctx context.Context, c console) error {
	if a.Reach < 0 {
		return fault.Usage("--reach must not be negative")
	}
	pool, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := operations.AfterRestore(ctx, pool, a.Reach)
	if err != nil {
		return err
	}
	c.printf("what was approved or registered before %s is looked up at its provider before its first refund\n",
		r.LookUntil.UTC().Format(time.RFC3339))
	c.printf("%d open approvals at providers, %d reservations; %d other refunds are due to be looked up again\n",
		r.Approvals, r.Reserved, r.Due)
	if r.Unverifiable > 0 {
		c.printf("%d open approvals are of orders without a provider: nothing can be looked up there, "+
			"compare them with your own records first\n", r.Unverifiable)
	}
	return nil
}
