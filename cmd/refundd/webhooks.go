package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/api"
	"refundd/operations"
	"refundd/webhooks"
)

// webhookFlags say what becomes of webhooks here.
type webhookFlags struct {
	Webhooks            bool `default:"true" negatable:"" help:"Deliver webhooks; every replica takes its share."`
	WebhookRate         int  `default:"300" help:"Webhooks that this process delivers per second; 0 sets no limit."`
	WebhookAllowPrivate bool `help:"Deliver webhooks over plain HTTP too, and to addresses inside the network. dev always does."`
}

// newOutbox makes what keeps events and the endpoints that they go to.
func (f webhookFlags) newOutbox(log *slog.Logger, pool *pgxpool.Pool) (*webhooks.Outbox, error) {
	outbox, err := webhooks.New(webhooks.Config{Pool: pool, Logger: log, AllowPrivate: f.WebhookAllowPrivate})
	if err != nil {
		return nil, fmt.Errorf("make webhooks: %w", err)
	}
	return outbox, nil
}

// newCourier makes what delivers, or nil where others do.
func (f webhookFlags) newCourier(outbox *webhooks.Outbox, r prometheus.Registerer) (*webhooks.Courier, error) {
	courier, err := webhooks.NewCourier(webhooks.CourierConfig{Outbox: outbox, Body: api.WebhookBody,
		Rate: f.WebhookRate, Registerer: r})
	if err != nil {
		return nil, fmt.Errorf("make webhooks: %w", err)
	}
	if !f.Webhooks {
		return nil, nil
	}
	return courier, nil
}

// each calls several hooks in turn.
func each(hooks ...operations.OnEvents) operations.OnEvents {
	return func(b *pgx.Batch, events []operations.Event) error {
		for _, hook := range hooks {
			if err := hook(b, events); err != nil {
				return err
			}
		}
		return nil
	}
}

// deliver runs the courier until ctx ends, if there is one here.
func (s *service) deliver(ctx context.Context) {
	if s.courier != nil {
		_ = s.courier.Run(ctx) // it ends because ctx did
	}
}
