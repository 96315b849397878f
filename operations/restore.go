package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
)

// Restored is what AfterRestore found and marked.
type Restored struct {
	LookUntil    time.Time // what was approved or registered before is looked up before its first send
	Reserved     int64     // reservations that are looked up before they are sent, whatever their rows say
	Due          int64     // other operations at providers that are looked up again, though they may have an end
	Approvals    int64     // open ones of orders at providers
	Unverifiable int64     // open ones of orders without a provider: nobody can be asked
}

// AfterRestore makes the service distrust what its rows do not know, after the database went back to an earlier point:
// an operation that a provider may have executed in the history that was lost is looked up before it is sent for the
// first time.
//
// One look is enough. A refund of the lost history is either younger than the provider's retention of keys, and sending
// under the same key executes nothing new; or it is so much older than the listing's lag that the look shows it.
//
// Callers that saw the lost history may register and approve again what it held, under the same ids: that is why the
// mark reaches into the future, for the time that they may need. Again it does the same, and reaches further.
func AfterRestore(ctx context.Context, pool *pgxpool.Pool, reach time.Duration) (Restored, error) {
	r, err := pgtx.InTx(ctx, pool, func(tx *pgtx.Tx) (r Restored, err error) {
		if err := tx.Unhurried(ctx); err != nil { // it takes as long as the books are
			return r, err
		}
		if err := r.mark(ctx, tx, reach); err != nil {
			return r, err
		}
		err = r.count(ctx, tx)
		return r, err
	})
	if err != nil {
		return r, fmt.Errorf("mark what may be lost: %w", err)
	}
	return r, nil
}

func (r *Restored) mark(ctx context.Context, tx pgx.Tx, reach time.Duration) error {
	err := tx.QueryRow(ctx, `INSERT INTO restores (look_until) VALUES (clock_timestamp() + $1)
		RETURNING look_until`, reach).
		Scan(&r.LookUntil)
	if err != nil {
		return err
	}
	// What is reserved may have been sent a moment ago: the listing's lag counts from now.
	tag, err := tx.Exec(ctx, `
		UPDATE refund_operations SET look_first = true, next_check_at = '-infinity',
			last_send_ended = greatest(last_send_ended, clock_timestamp())
		WHERE state = 'reserved' AND provider IS NOT NULL`)
	if err != nil {
		return err
	}
	r.Reserved = tag.RowsAffected()
	// What failed may have been found paid in the lost history; what succeeded is looked up daily anyhow.
	tag, err = tx.Exec(ctx, `
		UPDATE refund_operations SET next_check_at = '-infinity'
		WHERE state IN ('pending', 'needs_attention', 'failed') AND provider IS NOT NULL`)
	if err != nil {
		return err
	}
	r.Due = tag.RowsAffected()
	return nil
}

func (r *Restored) count(ctx context.Context, tx pgx.Tx) error {
	return tx.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE p.provider IS NOT NULL), count(*) FILTER (WHERE p.provider IS NULL)
		FROM refund_authorizations a
		JOIN orders p ON p.tenant_id = a.tenant_id AND p.order_id = a.order_id
		WHERE (a.expires_at IS NULL OR a.expires_at > clock_timestamp())
			AND NOT EXISTS (SELECT FROM refund_operations o WHERE o.tenant_id = a.tenant_id
				AND o.operation_id = a.operation_id)`).
		Scan(&r.Approvals, &r.Unverifiable)
}
