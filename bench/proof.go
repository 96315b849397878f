package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrUntrue reports answers and rows that contradict each other.
var ErrUntrue = errors.New("answers and rows differ")

// Proof is what a comparison of answers with rows found.
type Proof struct {
	Acknowledged int64 // refunds that were answered with a 2xx
	Rows         int64 // operations that were found
	Missing      int64 // acknowledged without a row: always 0
	Unexplained  int64 // rows whose request was refused, or never sent: always 0
	Unheard      int64 // rows whose request got no answer, or one that leaves it open
}

// Add sums two proofs up.
func (p Proof) Add(o Proof) Proof {
	return Proof{p.Acknowledged + o.Acknowledged, p.Rows + o.Rows, p.Missing + o.Missing, p.Unexplained + o.Unexplained,
		p.Unheard + o.Unheard}
}

// Reserve sets approved refunds aside for somebody else than Run: those numbered from … from+count-1.
func (b *Bench) Reserve(ctx context.Context, kind Kind, count int64) (from int64, err error) {
	if err := b.books.approve(ctx, kind, count); err != nil {
		return 0, fmt.Errorf("bench: approve refunds: %w", err)
	}
	k := b.books.keys[kind.pool()]
	from = k.next.Add(count) - count
	for n := from; n < from+count; n++ {
		k.sent.add(n)
	}
	return from, nil
}

// OperationSQL and OrderSQL are the ids of the refund with number n, in SQL.
func (b *Bench) OperationSQL(kind Kind) string { return b.books.keys[kind.pool()].idSQL() }

// OrderSQL is the id of the order that the refund with number n is of, in SQL.
func (b *Bench) OrderSQL(kind Kind) string {
	k := b.books.keys[kind.pool()]
	return k.orderSQL(b.books.orders(k.pool))
}

// check compares what was answered since the last check with the rows.
func (b *books) check(ctx context.Context) (Proof, error) {
	var p Proof
	for _, pool := range []pool{poolNew, poolHot, poolSimulator} {
		k := b.keys[pool]
		for end := min(k.next.Load(), k.ready); k.proven < end; k.proven = min(k.proven+chunk, end) {
			if err := b.compare(ctx, k, k.proven, min(k.proven+chunk, end), &p); err != nil {
				return p, err
			}
		}
	}
	if p.Missing > 0 || p.Unexplained > 0 {
		return p, fmt.Errorf("%w: %d acknowledged refunds have no row, %d rows were refused or never asked for",
			ErrUntrue, p.Missing, p.Unexplained)
	}
	return p, nil
}

func (b *books) compare(ctx context.Context, k *keys, from, to int64, p *Proof) error {
	found := make([]bool, to-from)
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, fmt.Sprintf(`
			SELECT n FROM (SELECT n, %s AS id FROM generate_series($2::bigint, $3::bigint) AS n) AS sent
			JOIN refund_operations o ON o.tenant_id = $1 AND o.operation_id = sent.id COLLATE "C"
				AND o.state <> 'revoked'`,
			k.idSQL()), b.tenant, from, to-1)
		if err != nil {
			return err
		}
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&n}, func() error {
			found[n-from] = true
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	for i, row := range found {
		n := from + int64(i)
		p.judge(row, k.acknowledged.has(n), k.sent.has(n) && !k.refused.has(n))
	}
	return nil
}

func (p *Proof) judge(row, acknowledged, open bool) {
	if row {
		p.Rows++
	}
	if acknowledged {
		p.Acknowledged++
	}
	switch {
	case acknowledged && !row:
		p.Missing++
	case row && !acknowledged && open:
		p.Unheard++
	case row && !acknowledged:
		p.Unexplained++
	}
}
