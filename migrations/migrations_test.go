package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/embedpg"
	"refundd/migrations"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func up(t *testing.T, url string) {
	t.Helper()
	if err := migrations.Up(t.Context(), url); err != nil {
		t.Fatalf("up: %v", err)
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// schema describes everything that migrations made, one line per object.
func schema(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		WITH ours AS (SELECT c.oid, c.relname, c.relkind, c.relacl, c.reloptions FROM pg_class c
		              WHERE c.relnamespace = 'public'::regnamespace)
		SELECT line FROM (
			SELECT concat_ws(' ', 'relation', relname, relkind, reloptions::text, relacl::text) FROM ours
			UNION ALL
			SELECT concat_ws(' ', 'column', relname, attname, attnum, format_type(atttypid, atttypmod), attnotnull,
			                 attidentity, attcollation::regcollation, pg_get_expr(adbin, adrelid), attacl::text)
			FROM ours JOIN pg_attribute ON attrelid = ours.oid AND attnum > 0 AND NOT attisdropped
			LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE relkind IN ('r', 'p')
			UNION ALL
			SELECT concat_ws(' ', 'constraint', relname, conname, convalidated, pg_get_constraintdef(pg_constraint.oid))
			FROM ours JOIN pg_constraint ON conrelid = ours.oid
			UNION ALL
			SELECT concat_ws(' ', 'index', pg_get_indexdef(indexrelid)) FROM ours JOIN pg_index ON indrelid = ours.oid
			UNION ALL
			SELECT concat_ws(' ', 'trigger', tgenabled, pg_get_triggerdef(pg_trigger.oid))
			FROM ours JOIN pg_trigger ON tgrelid = ours.oid WHERE NOT tgisinternal
			UNION ALL
			SELECT concat_ws(' ', 'domain', typname, format_type(typbasetype, typtypmod), typcollation::regcollation,
			                 pg_get_constraintdef(d.oid))
			FROM pg_type LEFT JOIN pg_constraint d ON contypid = pg_type.oid
			WHERE typtype = 'd' AND typnamespace = 'public'::regnamespace
			UNION ALL
			SELECT concat_ws(' ', 'function', proacl::text, pg_get_functiondef(oid)) FROM pg_proc
			WHERE pronamespace = 'public'::regnamespace
		) t (line)
		WHERE line NOT LIKE '%schema_migrations%' ORDER BY line`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestUpDownUp_MakesTheSameSchema(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	up(t, db.URL)
	first := schema(t, db.Owner)
	if len(first) < 100 {
		t.Fatalf("the schema has only %d objects", len(first))
	}
	if err := migrations.Down(t.Context(), db.URL); err != nil {
		t.Fatalf("down: %v", err)
	}
	if diff := cmp.Diff([]string{}, schema(t, db.Owner)); diff != "" {
		t.Errorf("down left (-nothing +left):\n%s", diff)
	}
	up(t, db.URL)
	if diff := cmp.Diff(first, schema(t, db.Owner)); diff != "" {
		t.Errorf("the second up made another schema (-first +second):\n%s", diff)
	}
	if err := migrations.Down(t.Context(), db.URL); err != nil {
		t.Fatalf("down: %v", err)
	}
	if err := migrations.Down(t.Context(), db.URL); err != nil {
		t.Errorf("down of nothing: %v", err)
	}
}

// A44.
func TestUp_FiveReplicasAtOnce_ApplyEachVersionOnce(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	// An event trigger counts in how many transactions each table was made.
	exec(t, db.Owner, `CREATE SCHEMA watch;
		CREATE TABLE watch.seen (object text, xid bigint);
		CREATE FUNCTION watch.note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO watch.seen SELECT object_identity, txid_current() FROM pg_event_trigger_ddl_commands();
		END $$;
		CREATE EVENT TRIGGER note ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION watch.note();`)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := migrations.Up(t.Context(), db.URL); err != nil {
				t.Errorf("up: %v", err)
			}
			if err := migrations.Check(t.Context(), db.Owner); err != nil {
				t.Errorf("check after up: %v", err)
			}
		})
	}
	wg.Wait()
	var tables, most int
	if err := db.Owner.QueryRow(t.Context(), `
		SELECT count(*), max(times) FROM (
			SELECT count(DISTINCT xid) AS times FROM watch.seen
				WHERE object LIKE 'public.%' GROUP BY object) t`).Scan(&tables, &most); err != nil {
		t.Fatal(err)
	}
	if tables == 0 || most != 1 {
		t.Errorf("%d tables were made, one of them %d times", tables, most)
	}
}

// The service's role belongs to the cluster: here it does not exist yet, and five databases need it at the same moment.
func TestUp_FiveDatabasesOfOneClusterAtOnce(t *testing.T) {
	t.Parallel()
	cluster := testdb.Start(t, embedpg.Options{})
	admin := testdb.Pool(t, cluster.URL())
	database := func(name string) string {
		config, err := pgx.ParseConfig(cluster.URL())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s sslmode=disable",
			config.Host, config.Port, config.User, config.Password, name)
	}
	for i := range 5 {
		exec(t, admin, fmt.Sprintf("CREATE DATABASE d%d", i))
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := migrations.Up(t.Context(), database(fmt.Sprintf("d%d", i%5))); err != nil {
				t.Errorf("database %d: %v", i%5, err)
			}
		})
	}
	wg.Wait()
	for i := range 5 {
		if err := migrations.Check(t.Context(), testdb.Pool(t, database(fmt.Sprintf("d%d", i)))); err != nil {
			t.Errorf("database %d: %v", i, err)
		}
	}

	t.Run("AnOwnerWithoutCreateRole_UsesTheRoleThatExists", func(t *testing.T) {
		exec(t, admin, `CREATE ROLE plain LOGIN PASSWORD 'plain'`)
		exec(t, admin, `CREATE DATABASE plain OWNER plain`)
		if err := migrations.Up(t.Context(),
			strings.Replace(replaceUser(t, cluster.URL(), "plain", "plain"), "/postgres", "/plain", 1)); err != nil {
			t.Fatal(err)
		}
	})
}

func replaceUser(t *testing.T, url, user, password string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s:%s@%s:%d/postgres", user, password, config.Host, config.Port)
}

func TestUp_TakesEveryFormOfURL(t *testing.T) {
	t.Parallel()
	for _, parameter := range []string{
		"default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol", "default_query_exec_mode=cache_describe",
		"application_name=a%20b&sslmode=disable", "search_path=public",
	} {
		t.Run(parameter, func(t *testing.T) {
			t.Parallel()
			db := testdb.Empty(t)
			separator := "?"
			if strings.Contains(db.URL, "?") {
				separator = "&"
			}
			url := db.URL + separator + parameter
			up(t, url)
			pool := testdb.Pool(t, url)
			if err := migrations.Check(t.Context(), pool); err != nil {
				t.Errorf("check: %v", err)
			}
			if err := migrations.Down(t.Context(), url); err != nil {
				t.Errorf("down: %v", err)
			}
		})
	}
}

func TestErrors_TellNoSecret(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	for _, url := range []string{
		"postgres://u:canary@127.0.0.1:1/d",
		"postgres://u:canary@127.0.0.1:port/d",
		"postgres://u:can/canary@127.0.0.1/d",
		"postgres://u:canary%zz@127.0.0.1/d",
		"host=127.0.0.1 port=1 password=canary dbname=d",
		"host=127.0.0.1 port=1 password=it is canary",
		"canary",
		replaceUser(t, db.URL, "nobody-of-that-name", "canary"),
	} {
		err := migrations.Up(t.Context(), url)
		if err == nil {
			t.Errorf("%s: no error", url)
			continue
		}
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error of %s tells a secret: %v", url, err)
		}
	}
	if err := migrations.Up(t.Context(), "host=x port=y"); !errors.Is(err, migrations.ErrDatabaseURL) {
		t.Errorf("malformed: %v", err)
	}
}

func TestUp_WaitsForAnotherProcess_AsLongAsItsContextAllows(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	holder, err := db.Owner.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Release()
	// Whatever key Up locks, it is the only advisory lock of this database: hold that one.
	up(t, db.URL)
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(8243107347520840705)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := migrations.Down(ctx, db.URL); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another process migrates: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("gave up after %v", took)
	}
	var released sync.WaitGroup
	released.Go(func() {
		time.Sleep(200 * time.Millisecond)
		_, _ = holder.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock_all()`)
	})
	defer released.Wait()
	if err := migrations.Down(t.Context(), db.URL); err != nil {
		t.Errorf("after the other process ended: %v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()

	t.Run("RefusesWhatIsOlder_AndSaysWhatToRun", func(t *testing.T) {
		t.Parallel()
		db := testdb.Empty(t)
		err := migrations.Check(t.Context(), db.Owner)
		if !errors.Is(err, migrations.ErrSchemaOlder) || !strings.Contains(err.Error(), "refundd migrate up") {
			t.Errorf("empty: %v", err)
		}
		up(t, db.URL)
		exec(t, db.Owner, `DELETE FROM schema_migrations`)
		if err := migrations.Check(t.Context(), db.Pool); !errors.Is(err, migrations.ErrSchemaOlder) {
			t.Errorf("no version: %v", err)
		}
	})

	t.Run("AcceptsItsOwnAndANewerOne_AsTheServiceRole", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		for _, version := range []uint{migrations.Latest(), migrations.Latest() + 7} {
			exec(t, db.Owner, `UPDATE schema_migrations SET version = $1`, version)
			if err := migrations.Check(t.Context(), db.Pool); err != nil {
				t.Errorf("version %d: %v", version, err)
			}
			got, dirty, err := migrations.Version(t.Context(), db.Pool)
			if got != version || dirty || err != nil {
				t.Errorf("version = %d, %t, %v; want %d", got, dirty, err, version)
			}
		}
		if err := migrations.Up(t.Context(), db.URL); err != nil {
			t.Errorf("up of a newer schema: %v", err)
		}
	})

	t.Run("NamesTheFailedMigration_AndTheWayOut", func(t *testing.T) {
		t.Parallel()
		db := testdb.Empty(t)
		exec(t, db.Owner, `CREATE FUNCTION refuse_rewrite() RETURNS int LANGUAGE sql AS 'SELECT 1'`) // in the way of the first migration
		for range 2 {
			err := migrations.Up(t.Context(), db.URL)
			if err == nil || !strings.Contains(err.Error(), `to 1, which was rolled back: ERROR: `) {
				t.Fatalf("up: %v", err)
			}
		}
		if err := migrations.Check(t.Context(), db.Owner); !errors.Is(err, migrations.ErrSchemaOlder) {
			t.Fatalf("check: %v", err)
		}
		exec(t, db.Owner, `DROP FUNCTION refuse_rewrite`)
		up(t, db.URL)
	})

	// A85: whoever marked it, what is printed helps when it is typed, whether the version is in place or not.
	t.Run("NamesWhatAnotherToolMarkedDirty_AndBothWaysOut", func(t *testing.T) {
		t.Parallel()
		for wayOut, db := range []*testdb.DB{testdb.New(t), testdb.Empty(t)} {
			version := []uint{migrations.Latest(), 1}[wayOut]
			exec(t, db.Owner, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS schema_migrations (version bigint PRIMARY KEY,
				dirty boolean NOT NULL);
				DELETE FROM schema_migrations; INSERT INTO schema_migrations VALUES (%d, true)`, version))
			err := migrations.Check(t.Context(), db.Owner)
			if again := migrations.Up(t.Context(), db.URL); !errors.Is(err, migrations.ErrSchemaDirty) ||
				!errors.Is(again, migrations.ErrSchemaDirty) {
				t.Fatalf("check: %v; up: %v", err, again)
			}
			exec(t, db.Owner, strings.Split(err.Error(), `"`)[1+2*wayOut])
			up(t, db.URL)
			if err := migrations.Check(t.Context(), db.Owner); err != nil {
				t.Errorf("way out %d: %v", wayOut, err)
			}
		}
	})

	t.Run("AcceptsWhatANewerProgramIsAboutToChange_AndTellsOfOneThatMigrates", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		exec(t, db.Owner, `UPDATE schema_migrations SET version = $1, dirty = true`, migrations.Latest()+1)
		if err := migrations.Check(t.Context(), db.Pool); err != nil {
			t.Errorf("newer and dirty: %v", err)
		}
		if err := migrations.Up(t.Context(), db.URL); !errors.Is(err, migrations.ErrSchemaDirty) ||
			!strings.Contains(err.Error(), "newer than this program") {
			t.Errorf("up of newer and dirty: %v", err)
		}
		exec(t, db.Owner, `DELETE FROM schema_migrations`)
		holder, err := db.Owner.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Release()
		if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(8243107347520840705)`); err != nil {
			t.Fatal(err)
		}
		err = migrations.Check(t.Context(), db.Pool)
		if !errors.Is(err, migrations.ErrSchemaOlder) ||
			!strings.Contains(err.Error(), "another process is migrating it now") {
			t.Errorf("while a process migrates: %v", err)
		}
		if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("RefusesAnotherEncoding", func(t *testing.T) {
		t.Parallel()
		db := testdb.Empty(t)
		name := db.Name + "_latin1"
		exec(t, db.Owner, `CREATE DATABASE `+name+` ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
		t.Cleanup(func() { _, _ = db.Owner.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`) })
		url := strings.Replace(db.URL, db.Name, name, 1)
		for act, err := range map[string]error{"up": migrations.Up(t.Context(), url),
			"check": migrations.Check(t.Context(), testdb.Pool(t, url))} {
			if !errors.Is(err, migrations.ErrEncoding) || !strings.Contains(err.Error(), "it is LATIN1") {
				t.Errorf("%s: %v", act, err)
			}
		}
	})
}
