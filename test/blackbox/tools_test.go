package blackbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/testdb"
)

// A88: tools run beside each other on a database whose transactions are serializable by default. Each gives the right
// answer and exit code: no serialization failure reaches whoever typed it.
func TestA88_ToolsBesideEachOtherUnderSerializable(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	for _, sql := range []string{
		`ALTER DATABASE ` + service.DB.Name + ` SET default_transaction_isolation = 'serializable'`,
		`ALTER DATABASE ` + service.DB.Name + ` SET default_transaction_deferrable = on`,
	} {
		if _, err := service.DB.Owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	tenant := service.Tenant(t)
	tenant.Order("P", 1000)
	tenant.Approve("K", "P", 10)
	want(t, tenant.Client().Refund("K", "P", 10), "processed")
	results := make([]harness.Result, 40)
	commands := make([][]string, len(results))
	for i := range commands {
		commands[i] = [][]string{
			{"tenants", "create", "--tenant", "same"}, // one of them makes it
			{"tenants", "create", "--tenant", fmt.Sprint("own-", i)},
			{"keys", "create", "--tenant", tenant.ID, "--scopes", "read"},
			{"keys", "list", "--tenant", tenant.ID},
			{"tenants", "list"},
			{"audit"},
			{"show", "K", "--tenant", tenant.ID},
			{"reconcile", "--simulator-url", "http://127.0.0.1:1"},
		}[i%8]
	}
	together(len(results), func(i int) { results[i] = harness.Command(t, service.DB.URL, commands[i]...) })
	made := 0
	for i, r := range results {
		wantExit := 0
		if i%8 == 0 {
			made += map[int]int{0: 1}[r.ExitCode]
			wantExit = map[bool]int{true: 0, false: 1}[r.ExitCode == 0]
			if r.ExitCode != 0 && !strings.Contains(r.Stderr, "exists already") {
				t.Errorf("refundd %v: %s", commands[i], r.Stderr)
			}
		}
		if r.ExitCode != wantExit {
			t.Errorf("refundd %v exits %d: %s", commands[i], r.ExitCode, r.Stderr)
		}
	}
	if made != 1 {
		t.Errorf("one tenant was made %d times", made)
	}
}

// A88: a database in another encoding is refused at the start, in one sentence.
func TestA88_AnotherEncoding_IsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	name := db.Name + "_ascii"
	if _, err := db.Owner.Exec(t.Context(),
		`CREATE DATABASE `+name+` ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Owner.Exec(t.Context(), `SELECT`); err == nil {
			_, _ = db.Owner.Exec(t.Context(), `DROP DATABASE `+name+` WITH (FORCE)`)
		}
	})
	url := strings.Replace(db.URL, db.Name, name, 1)
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "version"}, {"serve", "--addr", "127.0.0.1:0"},
		{"audit"},
		{"dev", "--addr", "127.0.0.1:0", "--data", t.TempDir(), "--simulator=false"}} {
		r := harness.Command(t, url, args...)
		sentence := r.Stderr[strings.LastIndex(strings.TrimSpace("\n"+r.Stderr), "\n")+1:]
		if r.ExitCode != 1 || !strings.Contains(sentence, "the database's encoding must be UTF8: it is SQL_ASCII") {
			t.Errorf("refundd %v exits %d: %s", args, r.ExitCode, r.Stderr)
		}
	}
}

// A85: whoever kills a migration leaves a database that the next one finishes.
func TestA85_AMigrationIsKilled_TheNextOneFinishesIt(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	for i, move := range []string{"up", "down", "up", "down", "up", "up"} {
		args := []string{"migrate", move}
		p := harness.Spawn(t, db.URL, nil, args...)
		time.Sleep(time.Duration(30+i*25) * time.Millisecond)
		p.Kill()
		if r := harness.Command(t, db.URL, args...); r.ExitCode != 0 {
			t.Fatalf("migrate %s, after one was killed, exits %d: %s", move, r.ExitCode, r.Stderr)
		}
		r := harness.Command(t, db.URL, "migrate", "version")
		if atZero := strings.TrimSpace(r.Stdout) == "0"; r.ExitCode != 0 || atZero != (move == "down") {
			t.Errorf("migrate version after %s: %d %q %s", move, r.ExitCode, r.Stdout, r.Stderr)
		}
	}
}
