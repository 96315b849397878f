package pgtx

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// settings are a transaction's limits and how its statements are planned. They go with BEGIN: PgBouncer refuses start-up
// parameters, and a session's settings would be another client's in transaction mode. Set-based statements keep one generic
// plan, since planning each anew costs more than running it; and because a plan that is kept was made when the tables were
// as small as they ever are, it may not read any of them from end to end.
const settings = `
	SELECT set_config('statement_timeout', '5s', true), set_config('lock_timeout', '3s', true),
		set_config('idle_in_transaction_session_timeout', '5s', true), set_config('plan_cache_mode', 'force_generic_plan', true),
		set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// plansLast is how long a connection keeps its plans. One that was made while a table was empty may take any of its indexes
// for as good as the primary key, and would walk it for ever after.
const plansLast = 10 * time.Second

// queueSettings queues the settings, and where plans have become old the end of them. Behind a pooler they may be the plans
// of any of its connections, which then get new ones as well.
func queueSettings(conn *pgx.Conn, b *pgx.Batch) {
	b.Queue(settings)
	const renewed = "plans renewed"
	kept := conn.PgConn().CustomData()
	if at, ok := kept[renewed].(time.Time); ok && time.Since(at) < plansLast {
		return
	}
	kept[renewed] = time.Now()
	b.Queue("DISCARD PLANS")
}
