package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	maxOrders   = 100_000_000
	maxExecuted = 1_000_000_000
	amountCents = 100
	otherCents  = 101               // of a conflicting refund
	captured    = 1_000_000_000_000 // cents of an order: more than any run refunds
	chunk       = 200_000           // rows made by one transaction
)

// books are the tenant's rows.
type books struct {
	pool     *pgxpool.Pool
	tenant   string
	scale    Scale
	progress func(string)
	keys     map[pool]*keys
	spare    bool // the foreign keys' checks: a superuser may
	provider bool // there are orders at the simulated provider
}

func newBooks(c Config) *books {
	b := &books{pool: c.Pool, tenant: c.TenantID, scale: c.Scale, progress: c.Progress, keys: make(map[pool]*keys)}
	for _, p := range []pool{poolNew, poolHot, poolSimulator, poolExecuted} {
		b.keys[p] = &keys{pool: p, random: c.Scale.Random}
	}
	return b
}

// orders is how many orders the refunds of a pool are spread over.
func (b *books) orders(p pool) int64 {
	if p == poolHot {
		return 1
	}
	return b.scale.Orders
}

// fill makes the orders and the executed refunds.
func (b *books) fill(ctx context.Context) error {
	if err := b.pool.QueryRow(ctx,
		`SELECT rolsuper FROM pg_roles WHERE rolname = current_user`).Scan(&b.spare); err != nil {
		return err
	}
	done := b.keys[poolExecuted]
	// n*stride modulo the orders is a permutation of 0 … orders-1, so that each order has its share of the executed
	// refunds and the first ones have one more.
	number, letter := fmt.Sprintf(`n * %d %% %d`, stride, b.scale.Orders), `o`
	orders := fmt.Sprintf(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents)
		SELECT $1, '%s-' || lpad((%s)::text, %d, '0'), 'EUR', %d, %d * (%d + CASE WHEN n < %d THEN 1 ELSE 0 END)
		FROM generate_series($2::bigint, $3::bigint) AS n`, letter, number, orderDigits, captured,
		amountCents, b.scale.Executed/b.scale.Orders, b.scale.Executed%b.scale.Orders)
	if err := b.insert(ctx, "orders", 0, b.scale.Orders, orders); err != nil {
		return err
	}
	if err := b.insert(ctx, "", 0, 1, fmt.Sprintf(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents)
		SELECT $1, %s, 'EUR', %d FROM generate_series($2::bigint, $3::bigint) AS n`,
		b.keys[poolHot].orderSQL(1), captured)); err != nil {
		return err
	}
	operations := fmt.Sprintf(`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id,
			amount_cents, currency, state, settled_at)
		SELECT $1, operation_id, encode(sha256(convert_to('{"amount_cents": %d, "order_id": "' || order_id || '"}',
			'UTF8')),
			'hex'),
			gen_random_uuid(), order_id, %d, 'EUR', 'succeeded', now()
		FROM (SELECT %s AS operation_id, %s AS order_id FROM generate_series($2::bigint, $3::bigint) AS n) AS made`,
		amountCents, amountCents, done.idSQL(), done.orderSQL(b.scale.Orders))
	transfers := fmt.Sprintf(`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account,
		credit_account,
			amount_cents, currency)
		SELECT $1, %s, 1, 'refund', 'merchant', 'customer', %d, 'EUR'
			FROM generate_series($2::bigint, $3::bigint) AS n`,
		done.idSQL(), amountCents)
	if err := b.insert(ctx, "executed refunds", 0, b.scale.Executed, operations, transfers); err != nil {
		return err
	}
	done.ready = b.scale.Executed
	return b.settle(ctx)
}

// approve makes sure that so many refunds of a kind may be asked for.
func (b *books) approve(ctx context.Context, kind Kind, more int64) error {
	k := b.keys[kind.pool()]
	if !kind.moves() {
		if k.ready == 0 {
			return errors.New("no refund was executed that could be sent again")
		}
		return nil
	}
	if err := b.register(ctx, kind); err != nil {
		return err
	}
	from, to := k.ready, max(k.ready, k.next.Load()+more)
	sql := fmt.Sprintf(`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents,
		currency,
			approved_by)
		SELECT $1, %s, 'case-' || n, %s, %d, 'EUR', 'bench' FROM generate_series($2::bigint, $3::bigint) AS n`,
		k.idSQL(), k.orderSQL(b.orders(k.pool)), amountCents)
	if err := b.insert(ctx, "approvals", from, to, sql); err != nil {
		return err
	}
	k.ready = to
	for _, set := range []*bitset{&k.sent, &k.acknowledged, &k.refused} {
		set.grow(to)
	}
	if to-from < chunk/10 {
		return nil
	}
	return b.settle(ctx)
}

// register makes the orders at the simulated provider, once.
func (b *books) register(ctx context.Context, kind Kind) error {
	if kind != KindSimulator || b.provider {
		return nil
	}
	b.provider = true
	return b.insert(ctx, "orders at the provider", 0, b.scale.Orders, fmt.Sprintf(`
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
		SELECT $1, id, 'EUR', %d, 'simulator', $1 || '-' || id
		FROM (SELECT 's-' || lpad(n::text, %d, '0') AS id FROM generate_series($2::bigint, $3::bigint) AS n) AS made`,
		captured, orderDigits))
}

// insert runs statements for the numbers from … to-1, which they take as $2 and $3; $1 is the tenant.
func (b *books) insert(ctx context.Context, what string, from, to int64, statements ...string) error {
	for at := from; at < to; at += chunk {
		last := min(at+chunk, to) - 1
		if what != "" && to-from > chunk {
			b.progress(fmt.Sprintf("making %s: %d of %d", what, at-from, to-from))
		}
		err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			settings := `SET LOCAL statement_timeout = 0`
			if b.spare {
				settings += `; SET LOCAL session_replication_role = replica`
			}
			if _, err := tx.Exec(ctx, settings); err != nil {
				return err
			}
			for _, sql := range statements {
				tag, err := tx.Exec(ctx, sql, b.tenant, at, last)
				if err != nil {
					return err
				}
				if tag.RowsAffected() != last-at+1 {
					return fmt.Errorf("%d rows, want %d", tag.RowsAffected(), last-at+1)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("insert: %w", err)
		}
	}
	return nil
}

// settle lets Postgres know what it has, and writes it out before anything is measured, as far as the role may.
func (b *books) settle(ctx context.Context) error {
	for _, sql := range []string{`ANALYZE orders, refund_authorizations, refund_operations, ledger_transfers`,
		`CHECKPOINT`} {
		_, err := b.pool.Exec(ctx, sql)
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "42501" {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
