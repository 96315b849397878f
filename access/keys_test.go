package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"refundd/test/testdb"
)

func TestRevokeKey_TakesEffectOnEveryReplica(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	here, _ := replica(t, db)
	there, _ := replica(t, db)
	secret, key := newKey(t, here, NewKey{})
	mustAdmit(t, here, secret)
	mustAdmit(t, there, secret)

	if err := here.RevokeKey(t.Context(), key.KeyID); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	endsWithin(t, effective, there, secret, ErrUnauthenticated)
	endsWithin(t, effective-time.Since(began), here, secret, ErrUnauthenticated)

	listed := listOne(t, here)
	if listed.State != KeyRevoked || listed.RevokedAt == nil {
		t.Fatalf("listed as %+v", listed)
	}
	if err := there.RevokeKey(t.Context(), key.KeyID); err != nil {
		t.Errorf("revoke again: %v", err)
	}
	if again := listOne(t, here); !again.RevokedAt.Equal(*listed.RevokedAt) {
		t.Errorf("revoking again moved revoked_at from %v to %v", listed.RevokedAt, again.RevokedAt)
	}
	if err := here.RevokeKey(t.Context(), "key_none"); !errors.Is(err, ErrKeyNotFound) {
		t.Errorf("unknown key: %v", err)
	}
}

func listOne(t *testing.T, keys *Keys) Key {
	t.Helper()
	listed, err := keys.ListKeys(t.Context(), "acme")
	if err != nil || len(listed) != 1 {
		t.Fatalf("listed %v, %v", listed, err)
	}
	return listed[0]
}

func TestExpiry(t *testing.T) {
	t.Parallel()

	t.Run("EndsAKeyAtItsTime", func(t *testing.T) {
		t.Parallel()
		keys, _ := replica(t, testdb.New(t))
		ttl := 1500 * time.Millisecond
		secret, key := newKey(t, keys, NewKey{TTL: &ttl})
		if got := key.ExpiresAt.Sub(key.CreatedAt); got != ttl {
			t.Errorf("expires %v after its creation, want %v", got, ttl)
		}
		mustAdmit(t, keys, secret)
		// The reading's life ends with the key's: no stale yes, not even for readingLife.
		endsWithin(t, ttl+200*time.Millisecond, keys, secret, ErrUnauthenticated)
		if state := listOne(t, keys).State; state != KeyExpired {
			t.Errorf("listed as %s", state)
		}
	})

	t.Run("MovedByTheOwner_IsFelt", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		keys, _ := replica(t, db)
		secret, _ := newKey(t, keys, NewKey{})
		mustAdmit(t, keys, secret)
		exec(t, db.Owner, `UPDATE api_keys SET expires_at = clock_timestamp() - interval '1 hour'`)
		endsWithin(t, effective, keys, secret, ErrUnauthenticated)
		for _, never := range []string{"'infinity'", "NULL"} {
			exec(t, db.Owner, `UPDATE api_keys SET expires_at = `+never)
			mustAdmit(t, keys, secret)
			if listed := listOne(t, keys); listed.ExpiresAt != nil || listed.State != KeyActive {
				t.Errorf("expiry %s is listed as %v, %s", never, listed.ExpiresAt, listed.State)
			}
		}
		exec(t, db.Owner, `UPDATE api_keys SET expires_at = '-infinity'`)
		endsWithin(t, effective, keys, secret, ErrUnauthenticated)
	})
}

func TestRotateKey(t *testing.T) {
	t.Parallel()
	keys, _ := replica(t, testdb.New(t))
	ttl := time.Hour
	oldSecret, old := newKey(t, keys, NewKey{Scopes: []Scope{OrdersWrite, Read}, TTL: &ttl})
	mustAdmit(t, keys, oldSecret)

	graceSecret, graced, err := keys.RotateKey(t.Context(), old.KeyID, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(old, graced, cmpopts.IgnoreFields(Key{}, "KeyID", "CreatedAt", "ExpiresAt")); diff != "" {
		t.Errorf("the new key differs (-old +new):\n%s", diff)
	}
	if got := graced.ExpiresAt.Sub(graced.CreatedAt); got != ttl {
		t.Errorf("the new key lives %v, the old one lived %v", got, ttl)
	}
	mustAdmit(t, keys, oldSecret)
	mustAdmit(t, keys, graceSecret)
	endsWithin(t, time.Second+effective, keys, oldSecret, ErrUnauthenticated)

	atOnceSecret, _, err := keys.RotateKey(t.Context(), graced.KeyID, 0)
	if err != nil {
		t.Fatal(err)
	}
	mustAdmit(t, keys, atOnceSecret)
	endsWithin(t, effective, keys, graceSecret, ErrUnauthenticated)

	for _, ended := range []string{old.KeyID, graced.KeyID} {
		if _, _, err := keys.RotateKey(t.Context(), ended, 0); !errors.Is(err, ErrKeyEnded) {
			t.Errorf("rotate an ended key: %v", err)
		}
	}
	if _, _, err := keys.RotateKey(t.Context(), "key_none", 0); !errors.Is(err, ErrKeyNotFound) {
		t.Errorf("rotate an unknown key: %v", err)
	}
	if _, _, err := keys.RotateKey(t.Context(), old.KeyID, -1); !errors.Is(err, ErrInvalidLifetime) {
		t.Errorf("negative grace: %v", err)
	}
}

func TestRotateKey_TwiceAtOnce_OneSucceeds(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	keys, _ := replica(t, db)
	_, old := newKey(t, keys, NewKey{})
	holder, err := db.Owner.Begin(t.Context()) // of the key, until all of them are under way
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Rollback(context.Background()) })
	if _, err := holder.Exec(t.Context(), `SELECT FROM api_keys FOR NO KEY UPDATE`); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, _, errs[i] = keys.RotateKey(t.Context(), old.KeyID, 0) })
	}
	for began, waits := time.Now(), 0; waits < 2 &&
		time.Since(began) < 2*time.Second; time.Sleep(5 * time.Millisecond) {
		err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrKeyEnded):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d rotations won", won)
	}
}

func TestRotateKey_GraceEndsNoLaterThanTheKey(t *testing.T) {
	t.Parallel()
	keys, _ := replica(t, testdb.New(t))
	ttl := time.Hour
	_, old := newKey(t, keys, NewKey{TTL: &ttl})
	if _, _, err := keys.RotateKey(t.Context(), old.KeyID, 2*ttl); err != nil {
		t.Fatal(err)
	}
	listed, err := keys.ListKeys(t.Context(), "acme")
	if err != nil || len(listed) != 2 || listed[0].KeyID != old.KeyID || !listed[0].ExpiresAt.Equal(*old.ExpiresAt) {
		t.Errorf("%+v, %v", listed, err)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	keys, _ := replica(t, testdb.New(t))
	ctx := t.Context()
	secret, key := newKey(t, keys, NewKey{})

	if len(secret) != secretLength || !strings.HasPrefix(secret, "rfd_") || !strings.HasPrefix(key.KeyID, "key_") {
		t.Errorf("secret of %d characters, key id %s", len(secret), key.KeyID)
	}
	if strings.Contains(fmt.Sprintf("%+v", listOne(t, keys)), secret[4:]) {
		t.Error("the secret can be read again")
	}
	if err := keys.CreateTenant(ctx, "acme", false); !errors.Is(err, ErrTenantExists) {
		t.Errorf("tenant again: %v", err)
	}
	for _, id := range []string{"", "Acme", "a b", "a\n", "a\x00", "\xff", strings.Repeat("a", 64)} {
		if err := keys.CreateTenant(ctx, id, true); !errors.Is(err, ErrInvalidTenantID) {
			t.Errorf("tenant %q: %v", id, err)
		}
	}
	zero := time.Duration(0)
	for _, c := range []struct {
		n    NewKey
		want error
	}{
		{NewKey{TenantID: "nobody", Scopes: []Scope{Read}}, ErrTenantNotFound},
		{NewKey{TenantID: "a\x00", Scopes: []Scope{Read}}, ErrTenantNotFound},
		{NewKey{TenantID: "acme"}, ErrInvalidScope},
		{NewKey{TenantID: "acme", Scopes: []Scope{"admin"}}, ErrInvalidScope},
		{NewKey{TenantID: "acme", Scopes: []Scope{Read}, TTL: &zero}, ErrInvalidLifetime},
	} {
		if _, _, err := keys.CreateKey(ctx, c.n); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.n, err, c.want)
		}
	}
	if _, err := keys.ListKeys(ctx, "nobody"); !errors.Is(err, ErrTenantNotFound) {
		t.Errorf("keys of an unknown tenant: %v", err)
	}
	for _, s := range AllScopes() {
		if _, _, err := keys.CreateKey(ctx, NewKey{TenantID: "acme", Scopes: []Scope{s}}); err != nil {
			t.Errorf("the schema refuses scope %s: %v", s, err)
		}
	}
	if err := keys.CreateTenant(ctx, "open", false); err != nil {
		t.Fatal(err)
	}
	if listed, err := keys.ListKeys(ctx, "open"); err != nil || len(listed) != 0 {
		t.Errorf("another tenant's keys are listed: %+v, %v", listed, err)
	}
	tenants, err := keys.ListTenants(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := []Tenant{{TenantID: "acme", RequireAuthorization: true}, {TenantID: "open"}}
	if diff := cmp.Diff(want, tenants, cmpopts.IgnoreFields(Tenant{}, "CreatedAt")); diff != "" {
		t.Errorf("tenants (-want +got):\n%s", diff)
	}
}
