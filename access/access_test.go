package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/test/testdb"
)

// effective is how soon a change must be felt on every replica.
const effective = 5 * time.Second

func TestMain(m *testing.M) { testdb.Main(m) }

// replica opens Keys on the database with a pool of its own, as the restricted role.
func replica(t *testing.T, db *testdb.DB) (*Keys, *statements) {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	counted := &statements{}
	config.ConnConfig.Tracer = counted
	config.ConnConfig.DialFunc = counted.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	keys, err := New(Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	return keys, counted
}

// statements counts the readings of one replica, and can take its network away.
type statements struct {
	reads atomic.Int64
	lost  atomic.Bool // connections break, and none is made
	mute  atomic.Bool // connections stay, and nothing that is written arrives
}

func (s *statements) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.lost.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &link{Conn: conn, of: s}, err
}

type link struct {
	net.Conn
	of *statements
}

func (l *link) Write(p []byte) (int, error) {
	switch {
	case l.of.lost.Load():
		_ = l.Close()
		return 0, syscall.ECONNRESET
	case l.of.mute.Load():
		time.AfterFunc(effective, func() { _ = l.Close() }) // a lost packet breaks the connection in the end
		return len(p), nil
	}
	return l.Conn.Write(p)
}

// TraceBatchStart counts the readings of keys, which travel in a batch with BEGIN and COMMIT.
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "life_us") {
			s.reads.Add(1)
		}
	}
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// newKey makes tenant "acme" where it is missing, and a key of it.
func newKey(t *testing.T, keys *Keys, n NewKey) (string, Key) {
	t.Helper()
	n.TenantID = "acme"
	if err := keys.CreateTenant(t.Context(), n.TenantID, true); err != nil && !errors.Is(err, ErrTenantExists) {
		t.Fatal(err)
	}
	if n.Scopes == nil {
		n.Scopes = []Scope{Read}
	}
	secret, key, err := keys.CreateKey(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return secret, key
}

func mustAdmit(t *testing.T, keys *Keys, secret string) Principal {
	t.Helper()
	principal, err := keys.Authenticate(t.Context(), secret)
	if err != nil {
		t.Fatalf("authenticate: %v", err)
	}
	return principal
}

// endsWithin calls until the key meets want, as a caller that never pauses for long would, and fails after the limit.
func endsWithin(t *testing.T, limit time.Duration, keys *Keys, secret string, want error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err := keys.Authenticate(t.Context(), secret)
		switch {
		case errors.Is(err, want):
			return
		case err != nil:
			t.Fatalf("got %v, want %v", err, want)
		case time.Since(began) > limit:
			t.Fatalf("still admitted after %v, want %v", limit, want)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	keys, counted := replica(t, db)

	t.Run("TellsWhoseSecretItIs", func(t *testing.T) {
		secret, key := newKey(t, keys, NewKey{Scopes: []Scope{RefundsWrite, Read, Read}})
		got := mustAdmit(t, keys, secret)
		want := Principal{TenantID: "acme", KeyID: key.KeyID, Scopes: []Scope{Read, RefundsWrite}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("principal (-want +got):\n%s", diff)
		}
		if !got.Allows(RefundsWrite) || got.Allows(RefundsResolve) {
			t.Errorf("allows refunds:write %t and refunds:resolve %t", got.Allows(RefundsWrite),
				got.Allows(RefundsResolve))
		}
	})

	t.Run("RefusesWhatIsNoSecret_WithoutAsking", func(t *testing.T) {
		secret, _ := newKey(t, keys, NewKey{})
		before := counted.reads.Load()
		for _, wrong := range []string{"", "rfd_", secret[:46], secret + "A", strings.Repeat("x", secretLength), "\x00",
			strings.Repeat("rfd_", 1<<18)} {
			if _, err := keys.Authenticate(t.Context(), wrong); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%.50q: %v", wrong, err)
			}
		}
		if asked := counted.reads.Load() - before; asked != 0 {
			t.Errorf("asked the database %d times", asked)
		}
	})

	t.Run("RefusesAnUnknownSecret_AndRemembersNothing", func(t *testing.T) {
		_, secret, err := mint()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Authenticate(t.Context(), secret); !errors.Is(err, ErrUnauthenticated) {
			t.Fatalf("unknown: %v", err)
		}
		h := sha256.Sum256([]byte(secret))
		exec(t, db.Owner, `INSERT INTO api_keys (key_id, tenant_id, secret_hash, scopes)
			VALUES ('later', 'acme', $1, '{read}')`, h[:])
		if got := mustAdmit(t, keys, secret); got.KeyID != "later" {
			t.Errorf("admitted as %q", got.KeyID)
		}
	})

	t.Run("HonoursItsCallersContext", func(t *testing.T) {
		_, secret, _ := mint()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := keys.Authenticate(ctx, secret); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("cancelled caller: %v", err)
		}
	})
}

func TestAuthenticate_ManyCallers_CauseFewReadings(t *testing.T) {
	t.Parallel()
	keys, counted := replica(t, testdb.New(t))
	secret, _ := newKey(t, keys, NewKey{})

	const callers, span = 256, 3 * readingLife
	var calls atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(began) < span {
				if _, err := keys.Authenticate(t.Context(), secret); err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	// About one at the start per turn, then one per half life.
	if reads, limit := counted.reads.Load(), int64(4+2*span/readingLife+1); reads > limit {
		t.Errorf("%d callers caused %d readings in %v, want at most %d", callers, reads, span, limit)
	}
	if n := calls.Load(); n < 4*callers {
		t.Errorf("%d calls of %d callers: too few for their readings to be told apart", n, callers)
	}
}

func TestAuthenticate_FloodOfUnknownSecrets_LeavesThePoolToOthers(t *testing.T) {
	t.Parallel()
	keys, counted := replica(t, testdb.New(t))
	newKey(t, keys, NewKey{})
	const flood = 2000
	var wg sync.WaitGroup
	for range flood {
		wg.Go(func() {
			_, secret, err := mint()
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := keys.Authenticate(t.Context(), secret); !errors.Is(err, ErrUnauthenticated) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if open := keys.pool.Stat().TotalConns(); open > maxConcurrentReadings+1 {
		t.Errorf("took %d connections", open)
	}
	if n := len(keys.readings.entries); n != 0 {
		t.Errorf("remembers %d unknown secrets", n)
	}
	if n := counted.reads.Load(); n == 0 || n > flood {
		t.Errorf("%d unknown secrets cost %d readings", flood, n)
	}
}

func TestAuthenticate_WithoutTheDatabase_IsUnavailable(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*statements) *atomic.Bool{
		"Gone":  func(s *statements) *atomic.Bool { return &s.lost },
		"Hangs": func(s *statements) *atomic.Bool { return &s.mute },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			keys, network := replica(t, db)
			secret, key := newKey(t, keys, NewKey{})
			mustAdmit(t, keys, secret)

			cut(network).Store(true)
			exec(t, db.Owner, `UPDATE api_keys SET revoked_at = clock_timestamp() WHERE key_id = $1`, key.KeyID)
			endsWithin(t, effective, keys, secret, ErrUnavailable)

			_, unknown, _ := mint()
			if _, err := keys.Authenticate(t.Context(), unknown); !errors.Is(err, ErrUnavailable) {
				t.Errorf("unknown secret: %v, want not known", err)
			}
			if _, err := keys.Authenticate(t.Context(), "rfd_short"); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("malformed secret: %v", err)
			}
			cut(network).Store(false)
			endsWithin(t, 2*effective, keys, secret, ErrUnauthenticated)
		})
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	k, err := New(Config{Pool: new(pgxpool.Pool)})
	if err != nil {
		b.Fatal(err)
	}
	_, secret, _ := mint()
	k.readings.entries[sha256.Sum256([]byte(secret))] = &cachedKey{began: time.Now(), life: time.Hour}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := k.Authenticate(b.Context(), secret); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
