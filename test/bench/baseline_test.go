package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// baseline is the handler that most teams would write: chi and pgx, one request one transaction; get, begin, read the
// approval, update, insert, insert, commit. It keeps the same tables and the same three paths, checks API keys from a
// cache as cheap as refundd's and logs one line per request. It has no metrics and checks less of what it is sent.
type baseline struct {
	pool *pgxpool.Pool
	log  *slog.Logger

	mu   sync.RWMutex
	keys map[[sha256.Size]byte]cachedKey
}

type cachedKey struct {
	tenantID string
	until    time.Time
}

// baselinePool is its number of connections to Postgres, the same as refundd serve's.
const baselinePool = 16

func serveBaseline(ctx context.Context, addr, databaseURL string) error {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = baselinePool
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	b := &baseline{pool: pool, log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		keys: make(map[[sha256.Size]byte]cachedKey)}
	r := chi.NewRouter()
	r.Post("/v1/refunds", b.refund)
	s := &http.Server{Addr: addr, Handler: r, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Shutdown(context.Background()) })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type refundRequest struct {
	OperationID string            `json:"operation_id"`
	OrderID     string            `json:"order_id"`
	AmountCents int64             `json:"amount_cents"`
	Currency    *string           `json:"currency"`
	Reason      *string           `json:"reason"`
	Metadata    map[string]string `json:"metadata"`
}

type refundAnswer struct {
	OperationID string            `json:"operation_id"`
	RefundID    string            `json:"refund_id"`
	OrderID     string            `json:"order_id"`
	AmountCents int64             `json:"amount_cents"`
	Currency    string            `json:"currency"`
	Reason      *string           `json:"reason"`
	Metadata    map[string]string `json:"metadata"`
	State       string            `json:"state"`
	MoneyMoved  string            `json:"money_moved"`
	CreatedAt   time.Time         `json:"created_at"`
	SettledAt   *time.Time        `json:"settled_at"`
	Status      string            `json:"status"`
	Replayed    bool              `json:"replayed"`
}

// refusal is an answer that moved no money.
type refusal struct {
	status int
	code   string
}

func (r *refusal) Error() string { return r.code }

func (b *baseline) refund(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	status, answer := b.handle(r)
	body, err := json.Marshal(answer)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal","money_moved":"unknown"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
	b.log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Int("status", status), slog.Float64("duration_ms", float64(time.Since(started).Microseconds())/1000))
}

func (b *baseline) handle(r *http.Request) (int, any) {
	done, err := b.execute(r)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		moved := map[bool]string{true: "no", false: "unknown"}[refused.status == http.StatusUnprocessableEntity]
		return refused.status, map[string]string{"code": refused.code, "money_moved": moved}
	case err != nil:
		b.log.Error("refund", "error", err.Error())
		return http.StatusInternalServerError, map[string]string{"code": "internal", "money_moved": "unknown"}
	case done.Replayed:
		return http.StatusOK, done
	}
	return http.StatusCreated, done
}

func (b *baseline) execute(r *http.Request) (refundAnswer, error) {
	tenantID, err := b.authenticate(r)
	if err != nil {
		return refundAnswer{}, err
	}
	var q refundRequest
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil || q.OperationID == "" || q.OrderID == "" || q.AmountCents <= 0 {
		return refundAnswer{}, &refusal{http.StatusBadRequest, "malformed_request"}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, `{"amount_cents": %d, "order_id": "%s"}`, q.AmountCents, q.OrderID))
	fingerprint := hex.EncodeToString(sum[:])
	done, err := b.replay(r.Context(), tenantID, q, fingerprint)
	if !errors.Is(err, pgx.ErrNoRows) {
		return done, err
	}
	err = pgx.BeginFunc(r.Context(), b.pool, func(tx pgx.Tx) error {
		done, err = claim(r.Context(), tx, tenantID, q, fingerprint)
		return err
	})
	var taken *pgconn.PgError
	if errors.As(err, &taken) && taken.Code == "23505" {
		return b.replay(r.Context(), tenantID, q, fingerprint)
	}
	return done, err
}

// replay answers from the operation's row, or pgx.ErrNoRows.
func (b *baseline) replay(ctx context.Context, tenantID string, q refundRequest,
	fingerprint string) (refundAnswer, error) {
	a := refundAnswer{MoneyMoved: "yes", Status: "already_processed", Replayed: true}
	var stored string
	err := b.pool.QueryRow(ctx, `SELECT fingerprint, operation_id, refund_id::text, order_id, amount_cents, currency,
		reason, metadata,
			state, created_at, settled_at
		FROM refund_operations WHERE tenant_id = $1 AND operation_id = $2`, tenantID, q.OperationID).
		Scan(&stored, &a.OperationID, &a.RefundID, &a.OrderID, &a.AmountCents, &a.Currency, &a.Reason, &a.Metadata,
			&a.State, &a.CreatedAt, &a.SettledAt)
	if err == nil && stored != fingerprint {
		return a, &refusal{http.StatusUnprocessableEntity, "operation_id_conflict"}
	}
	return a, err
}

// claim is the transaction.
func claim(ctx context.Context, tx pgx.Tx, tenantID string, q refundRequest, fingerprint string) (refundAnswer, error) {
	a := refundAnswer{
		OperationID: q.OperationID, OrderID: q.OrderID, AmountCents: q.AmountCents, Reason: q.Reason, Metadata: q.Metadata,
		State: "succeeded", MoneyMoved: "yes", Status: "processed",
	}
	id, err := uuid.NewV7()
	if err != nil {
		return a, err
	}
	a.RefundID = id.String()
	var orderID string
	var cents int64
	var expired bool
	err = tx.QueryRow(ctx, `SELECT order_id, amount_cents, coalesce(expires_at <= clock_timestamp(), false)
		FROM refund_authorizations WHERE tenant_id = $1 AND operation_id = $2`, tenantID, q.OperationID).Scan(&orderID,
		&cents, &expired)
	if err != nil {
		return a, err
	}
	if expired || orderID != q.OrderID || cents != q.AmountCents {
		return a, &refusal{http.StatusUnprocessableEntity, "authorization_mismatch"}
	}
	err = tx.QueryRow(ctx, `UPDATE orders SET refunded_cents = refunded_cents + $3
		WHERE tenant_id = $1 AND order_id = $2 AND refunded_cents + $3 <= captured_cents RETURNING currency`,
		tenantID, q.OrderID, q.AmountCents).Scan(&a.Currency)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, &refusal{http.StatusUnprocessableEntity, "amount_exceeds_refundable"}
	}
	if err != nil {
		return a, err
	}
	err = tx.QueryRow(ctx, `INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id,
		amount_cents,
			currency, reason, metadata, state, settled_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9::jsonb, '{}'), 'succeeded', now())
			RETURNING created_at, settled_at`,
		tenantID, q.OperationID, fingerprint, a.RefundID, q.OrderID, q.AmountCents, a.Currency, q.Reason, q.Metadata).
		Scan(&a.CreatedAt, &a.SettledAt)
	if err != nil {
		return a, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account,
		credit_account,
			amount_cents, currency)
		VALUES ($1, $2, 1, 'refund', 'merchant', 'customer', $3, $4)`, tenantID, q.OperationID, q.AmountCents,
		a.Currency)
	return a, err
}

// authenticate takes most keys from a cache that forgets after 5 s.
func (b *baseline) authenticate(r *http.Request) (string, error) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", &refusal{http.StatusUnauthorized, "unauthenticated"}
	}
	hash := sha256.Sum256([]byte(secret))
	b.mu.RLock()
	known, ok := b.keys[hash]
	b.mu.RUnlock()
	if ok && time.Now().Before(known.until) {
		return known.tenantID, nil
	}
	err := b.pool.QueryRow(r.Context(), `SELECT tenant_id FROM api_keys WHERE secret_hash = $1 AND revoked_at IS NULL
		AND (expires_at IS NULL OR expires_at > clock_timestamp()) AND 'refunds:write' = ANY (scopes)`,
		hash[:]).Scan(&known.tenantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", &refusal{http.StatusUnauthorized, "unauthenticated"}
	}
	if err != nil {
		return "", err
	}
	known.until = time.Now().Add(5 * time.Second)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys[hash] = known
	return known.tenantID, nil
}
