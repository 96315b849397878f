package pgtx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// setting is a parameter of Postgres and the value it has in our transactions.
type setting struct{ name, value string }

// Settings go with BEGIN: PgBouncer refuses start-up parameters, and a session's settings would be another client's in
// transaction mode. Those that the login has for itself already (OfLogin) are compared rather than set: a search_path
// that is set anew, and taken back, has Postgres doubt every plan that it keeps.
var (
	// meaning is what statements, arguments and results depend on. Our tables are in public, wherever search_path leads
	// others.
	meaning = []setting{
		{"search_path", "public, pg_temp"},
		{"client_encoding", "UTF8"},
		{"standard_conforming_strings", "on"},
		{"DateStyle", "ISO, MDY"},
		{"IntervalStyle", "postgres"},
		{"TimeZone", "UTC"},
		{"bytea_output", "hex"},
		{"extra_float_digits", "1"},
		{"array_nulls", "on"},
		{"row_security", "on"},
		{"exit_on_error", "off"},
		{"client_min_messages", "warning"}, // what a COMMIT that waited in vain says is one
	}
	// limits end what waits for too long.
	limits = []setting{
		{"statement_timeout", "5s"},
		{"lock_timeout", "3s"},
		{"idle_in_transaction_session_timeout", "5s"},
	}
	// plans: set-based statements keep one generic plan, since planning each anew costs more than running it; and
	// because a plan that is kept was made when the tables were as small as they ever are, it may not read any of them
	// from end to end.
	plans = []setting{
		{"plan_cache_mode", "force_generic_plan"},
		{"enable_seqscan", "off"},
		{"enable_hashjoin", "off"},
		{"enable_mergejoin", "off"},
		{"enable_bitmapscan", "off"}, // it reads all that a page was cut from
		{"enable_indexscan", "on"},
		{"enable_nestloop", "on"},
		{"jit", "off"},
	}
	// anew is for statements that are not of each refund's road: planning them costs less than a plan from when a table
	// had one page, of which one index is as good as another.
	anew = []setting{{"plan_cache_mode", "force_custom_plan"}}
	// patience is for a long look at everything.
	patience = []setting{
		{"statement_timeout", "0"},
		{"lock_timeout", "3s"},
		{"idle_in_transaction_session_timeout", "0"},
		{"plan_cache_mode", "auto"},
		{"enable_seqscan", "on"},
		{"enable_hashjoin", "on"},
		{"enable_mergejoin", "on"},
		{"enable_bitmapscan", "on"},
		{"jit", "off"},
		{"work_mem", "64MB"},
	}
)

const (
	// Postgres has it since 17.
	noTransactionTimeout = `CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
		THEN set_config('transaction_timeout', '0', true) END`
	// A server that has it not is refused later, and told why.
	noSessionTimeout = `CASE WHEN current_setting('idle_session_timeout', true) IS NOT NULL
		THEN set_config('idle_session_timeout', '0', false) END`
	// A commit is on disk, and on the standbys where there are synchronous ones, before it is answered.
	durableCommit = `CASE WHEN current_setting('synchronous_commit') <> 'remote_apply'
		THEN set_config('synchronous_commit', 'on', true) END`
	// fenced tells a whole server that was made read-only, whatever the database's or the role's own default is.
	fenced = `current_setting('default_transaction_read_only') = 'on' AND EXISTS (
			SELECT FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only'
			AND source IN ('configuration file', 'command line', 'environment variable'))`
	// BEGIN READ WRITE would override a fence. To set the isolation after a snapshot is an error, 25001, which tells of
	// it.
	refuseFenced = `CASE WHEN ` + fenced + ` THEN set_config('transaction_isolation', 'serializable', true) END`
	// What was read is answered once it is on the synchronous standbys too: a commit waits for them if it wrote
	// something.
	waitForStandbys = `CASE WHEN current_setting('synchronous_standby_names') <> ''
		THEN pg_catalog.pg_logical_emit_message(true, 'refundd', '')::text END`
)

var (
	// kept are the settings of a transaction whose answer is to be true for ever, and whose plans are kept.
	kept = selecting(unlessSet(ofLogin), local(limits), noTransactionTimeout, durableCommit, refuseFenced,
		waitForStandbys)
	// settled are those of one whose statements are planned for the tables as they are.
	settled = selecting(unlessSet(ofLogin), local(limits, anew), noTransactionTimeout, durableCommit, refuseFenced,
		waitForStandbys)
	// glimpsed are those of a look whose answer is true now.
	glimpsed = selecting(unlessSet(ofLogin), local(limits), noTransactionTimeout, refuseFenced)
	// loose are those of what may be lost.
	loose = selecting(unlessSet(ofLogin), local(limits, []setting{{"synchronous_commit", "off"}}), noTransactionTimeout,
		refuseFenced)
	// snapshot are those of a long look at everything.
	snapshot = selecting(local(meaning, patience), noTransactionTimeout)
	// ofOwner are those of a session that changes the schema.
	ofOwner = selecting(calls("false", meaning, []setting{
		{"search_path", "public"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"},
		{"statement_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
	}), noSessionTimeout, strings.ReplaceAll(durableCommit, "true)", "false)"),
		`CASE WHEN NOT (`+fenced+`) THEN set_config('default_transaction_read_only', 'off', false) END`)
)

// ofLogin are the settings that a login of the service's is to have for itself.
var ofLogin = slices.Concat(meaning, plans)

// OfLogin is what follows ALTER ROLE … SET for a login whose sessions have our settings from their start.
func OfLogin() []string {
	var all []string
	for _, s := range ofLogin {
		value := "'" + s.value + "'"
		if s.name == "search_path" { // a list of names
			value = s.value
		}
		all = append(all, s.name+" = "+value)
	}
	return all
}

// selecting is a statement with one short answer: nobody reads it.
func selecting(expressions ...string) string {
	return "SELECT concat(" + strings.Join(expressions, ", ") + ")"
}

// unlessSet is local where one of the settings has another value.
func unlessSet(settings []setting) string {
	var same []string
	for _, s := range settings {
		same = append(same, "current_setting('"+s.name+"') = '"+s.value+"'")
	}
	return "CASE WHEN NOT (" + strings.Join(same, " AND ") + ") THEN concat(" + local(settings) + ") END"
}

// local is a transaction's own value of each setting.
func local(groups ...[]setting) string { return calls("true", groups...) }

func calls(local string, groups ...[]setting) string {
	var all []string
	for _, s := range slices.Concat(groups...) {
		all = append(all, "set_config('"+s.name+"', '"+s.value+"', "+local+")")
	}
	return strings.Join(all, ", ")
}

// Session gives a session of the schema's owner, on a direct connection, the settings that ours have: an owner's
// transactions take as long as they take.
func Session(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.PgConn().Exec(ctx, ofOwner).ReadAll(); err != nil {
		return fmt.Errorf("settle the session: %w", err)
	}
	return nil
}
