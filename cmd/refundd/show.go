package main

import (
	"context"
	"errors"
	"strings"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/cmd/refundd/internal/show"
)

type showCmd struct {
	postgres.Database
	providerAccess
	OperationID string `arg:"" help:"The operation, as approved."`
	Tenant      string `placeholder:"T" help:"Whose it is; needed where several tenants have one of that name."`
	JSON        bool   `name:"json" help:"Print one JSON object."`
}

// Run prints an operation's record for the person who was paged.
func (s showCmd) Run(ctx context.Context, c console) error {
	providers, err := s.providers()
	if err != nil {
		return fault.Usage("%s", err)
	}
	pool, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	record, err := show.Read(ctx, pool, providers, s.Tenant, s.OperationID)
	if ambiguous, ok := errors.AsType[*show.AmbiguousError](err); ok {
		return fault.Usage("operation %q exists in several tenants (%s): add --tenant", s.OperationID,
			strings.Join(ambiguous.Tenants, ", "))
	}
	if errors.Is(err, show.ErrNotFound) {
		return fault.New(err, "operation %q is neither approved nor refunded", s.OperationID)
	}
	if err != nil {
		return err
	}
	if s.JSON {
		return c.printJSON(record)
	}
	return show.Print(c.stdout, record)
}
