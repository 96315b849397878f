package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/embedpg"
	"refundd/migrations"
	"refundd/test/testdb"
)

func TestA73_MigrateDown_DestroysNoBooks(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	succeed(t, db.URL, "tenants", "create", "--tenant", "shop")
	env := []string{"DATABASE_URL=" + db.URL}
	oneSentence(t, command(t, env, "migrate", "down"), exitFailed, "--really "+db.Name)
	oneSentence(t, command(t, env, "migrate", "down", "--really", "another"), exitFailed,
		"tenants of "+db.Name+" have rows")
	if list := succeed(t, db.URL, "tenants", "list"); !strings.Contains(list, "shop") {
		t.Errorf("the books are gone: %s", list)
	}
	if left := succeed(t, db.URL, "migrate", "down", "--really", db.Name); left != "0" {
		t.Errorf("named, it is left at version %s", left)
	}
}

func TestA73_DevAndBench_WriteIntoNobodysDatabase(t *testing.T) {
	t.Parallel()
	others, foreign := testdb.New(t), testdb.Empty(t)
	succeed(t, others.URL, "tenants", "create", "--tenant", "shop")
	if _, err := foreign.Owner.Exec(t.Context(), `CREATE TABLE invoices (id int)`); err != nil {
		t.Fatal(err)
	}
	dev := func(db *testdb.DB) ran {
		return command(t, []string{"DATABASE_URL=" + db.URL}, "dev", "--addr", "127.0.0.1:0", "--data", dataFolder(t))
	}
	for db, holds := range map[*testdb.DB]string{others: "tenants of others: shop",
		foreign: "tables of another program: invoices"} {
		r := dev(db)
		if r.code != exitFailed || !strings.Contains(r.stderr, holds) ||
			!strings.Contains(r.stderr, "--really "+db.Name) {
			t.Errorf("dev exits %d: %s", r.code, r.stderr)
		}
	}
	oneSentence(t, command(t, []string{"DATABASE_URL=" + others.URL}, "bench", "--url", "http://127.0.0.1:1"),
		exitFailed,
		"holds tenants of others: shop")
	if list := succeed(t, others.URL, "tenants", "list"); strings.Contains(list, "dev") ||
		strings.Contains(list, "bench") {
		t.Errorf("they wrote: %s", list)
	}
	if version := succeed(t, foreign.URL, "migrate", "version"); version != "0" {
		t.Errorf("dev migrated another program's database to version %s", version)
	}
}

// A tenant that was added to dev's own samples does not keep dev from its next start.
func TestA73_Dev_KnowsTheDatabaseThatItWroteInto(t *testing.T) {
	t.Parallel()
	db, folder := testdb.Empty(t), dataFolder(t)
	for range 2 {
		d := awaitDev(t, startDev(t, folder, "DATABASE_URL="+db.URL), folder)
		_ = command(t, []string{"DATABASE_URL=" + db.URL}, "tenants", "create", "--tenant", "second")
		d.signal(t, syscall.SIGTERM)
		if code := d.wait(t, time.Minute); code != 0 {
			t.Errorf("exits %d", code)
		}
	}
}

func TestA73_Dev_TakesNobodysFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	oneSentence(t, command(t, nil, "dev", "--addr", "127.0.0.1:0", "--data", folder), exitFailed,
		"holds other files (thesis.txt)")
	if left, _ := os.ReadDir(folder); len(left) != 1 {
		t.Errorf("it wrote %v", left)
	}
}

func TestA73_NoCommand_TakesAnothersSchemaForItsOwn(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"TablesOfTheSameName": `CREATE TABLE orders (id int); CREATE TABLE tenants (id int)`,
		"AnotherCounter": `CREATE TABLE schema_migrations (version bigint PRIMARY KEY,
			dirty boolean); INSERT INTO schema_migrations VALUES (37, false)`,
		"AnotherFramework": `CREATE TABLE schema_migrations (version varchar PRIMARY KEY); INSERT INTO schema_migrations VALUES ('20240101')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Empty(t)
			if _, err := db.Owner.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
			env := []string{"DATABASE_URL=" + db.URL}
			oneSentence(t, command(t, env, "migrate", "up"), exitFailed, "give refundd a database of its own")
			for _, args := range [][]string{{"serve", "--addr", "127.0.0.1:0"}, {"tenants", "create", "--tenant", "t"},
				{"audit"}, {"reconcile"}} {
				oneSentence(t, command(t, env, args...), exitFailed, "refundd")
			}
		})
	}
}

// An owner that may create no roles is told what an administrator types; that is all it takes.
func TestMigrateUp_ByAPlainOwner(t *testing.T) {
	t.Parallel()
	server := testdb.Start(t, embedpg.Options{})
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	for _, sql := range []string{`CREATE ROLE plain LOGIN PASSWORD 'x'`, `CREATE DATABASE books OWNER plain`} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	owner := edit(t, server.DatabaseURL("books"), func(u *url.URL) { u.User = url.UserPassword("plain", "x") })
	r := command(t, []string{"DATABASE_URL=" + owner}, "migrate", "up")
	oneSentence(t, r, exitFailed, "nothing was changed")
	_, quoted, _ := strings.Cut(r.stderr, `"`)
	sql, _, _ := strings.Cut(quoted, `"`)
	if _, err := admin.Exec(t.Context(), sql); err != nil {
		t.Fatalf("what it says to type (%s) fails: %v", sql, err)
	}
	if version := succeed(t, owner, "migrate", "up"); version != fmt.Sprint(migrations.Latest()) {
		t.Errorf("then it is at version %s", version)
	}

	// The owner may not make logins either; an administrator may.
	oneSentence(t, command(t, []string{"DATABASE_URL=" + owner}, "login", "create", "--name", "newcomer"), exitFailed,
		"administrator")
	for _, password := range []string{`'`, `%`, `$$`, `a@b/c#d e?&=:`, `\`, `"`, "pä§ß山", `%s'; DROP ROLE plain; --`} {
		env := []string{"DATABASE_URL=" + server.DatabaseURL("books"), loginPassword + "=" + password}
		for range 2 { // again with the same result
			if r := command(t, env, "login", "create", "--name", `re"fu'ndd`); r.code != 0 || r.stdout != "" {
				t.Errorf("%q: exits %d, prints %q: %s", password, r.code, r.stdout, r.stderr)
			}
		}
		conn, err := pgx.Connect(t.Context(),
			edit(t, owner, func(u *url.URL) { u.User = url.UserPassword(`re"fu'ndd`, password) }))
		if err != nil {
			t.Errorf("%q does not log in: %v", password, err)
			continue
		}
		var limits string
		err = conn.QueryRow(t.Context(), `SELECT concat_ws(' ', current_setting('statement_timeout'),
			current_setting('lock_timeout'),
			current_setting('idle_in_transaction_session_timeout'))`).Scan(&limits)
		if err != nil || limits != "20s 10s 30s" {
			t.Errorf("limits %q (%v)", limits, err)
		}
		_ = conn.Close(t.Context())
	}
	env := []string{"DATABASE_URL=" + server.DatabaseURL("books")}
	made := command(t, env, "login", "create", "--name", "tools", "--role", "operator")
	again := command(t, env, "login", "create", "--name", "tools", "--role", "operator")
	if made.code != 0 || again.code != 0 || again.stdout != "" ||
		strings.Contains(made.stderr, strings.TrimSpace(made.stdout)) {
		t.Errorf("a login with a password of its own: %+v, again %+v", made, again)
	}
	tools := edit(t, owner, func(u *url.URL) { u.User = url.UserPassword("tools", strings.TrimSpace(made.stdout)) })
	succeed(t, tools, "tenants", "create", "--tenant", "shop")
	succeed(t, tools, "keys", "create", "--tenant", "shop", "--scopes", "read")
	succeed(t, tools, "audit")
	for _, taken := range []string{"plain", "refundd_service"} {
		if r := command(t, env, "login", "create", "--name", taken); r.code != exitFailed ||
			!strings.Contains(r.stderr, "choose another name") {
			t.Errorf("%s: exits %d: %s", taken, r.code, r.stderr)
		}
	}
	service := edit(t, owner, func(u *url.URL) { u.User = url.UserPassword(`re"fu'ndd`, `%s'; DROP ROLE plain; --`) })
	for _, args := range [][]string{{"tenants", "create", "--tenant", "t"},
		{"keys", "create", "--tenant", "shop", "--scopes", "read"}} {
		oneSentence(t, command(t, []string{"DATABASE_URL=" + service}, args...), exitFailed, "--role operator")
	}
	succeed(t, service, "reconcile")
}
