package main

// books are the ledger's.
var books = []mutant{
	{
		name: "ledger: a transfer that was not written is not missed", few: true,
		room: "ledger", tests: "TestPost", file: "ledger/transfers.go",
		old: "(SELECT count(*) FROM posted), $12)", new: "$12::bigint, $12)",
	},
	{
		name: "ledger: a balance that was not changed is not missed",
		room: "ledger", tests: "TestPost", file: "ledger/transfers.go",
		old: "(SELECT count(*) FROM changed), $13)", new: "$13::bigint, $13)",
	},
	{
		name: "ledger: another tenant's order is changed as well",
		room: "ledger", tests: "TestPost", file: "ledger/transfers.go",
		old: "WHERE o.tenant_id = d.tenant_id AND o.order_id = d.order_id", new: "WHERE o.order_id = d.order_id",
	},
	{
		name: "ledger: an excess is not counted",
		room: "ledger", tests: "TestPost", file: "ledger/transfers.go",
		old: "greatest(o.refunded_cents + d.change - o.captured_cents, 0)", new: "o.over_refunded_cents",
	},
	{
		name: "ledger: an excess is never lowered",
		room: "ledger", tests: "TestPost", file: "ledger/transfers.go",
		old: "greatest(o.refunded_cents + d.change - o.captured_cents, 0)",
		new: "greatest(o.refunded_cents + d.change - o.captured_cents, o.over_refunded_cents)",
	},
	{
		name: "ledger: what is released stays debited",
		room: "ledger", tests: "TestPost", file: "ledger/transfers.go",
		old: `KindRelease:  {"in_transit", "merchant", -1}`, new: `KindRelease:  {"in_transit", "merchant", 0}`,
	},
	{
		name: "ledger: orders are not locked",
		room: "ledger", tests: "TestLock", file: "ledger/transfers.go",
		old: "FOR NO KEY UPDATE OF o", new: "",
	},
	{
		name: "ledger: orders are locked in no order",
		room: "ledger", tests: "TestLock", file: "ledger/transfers.go",
		old: "ORDER BY o.tenant_id, o.order_id\n", new: "\n",
	},
	{
		name: "ledger: an order is found by any tenant",
		room: "ledger", tests: "TestFind_", file: "ledger/orders.go",
		old: "FROM orders o WHERE o.tenant_id = $1 AND o.order_id = $2",
		new: "FROM orders o WHERE $1::text IS NOT NULL AND o.order_id = $2",
	},
	{
		name: "ledger: customers are found by any tenant",
		room: "ledger", tests: "TestFind_", file: "ledger/orders.go",
		old: "where, args := `o.tenant_id = $1`", new: "where, args := `$1::text IS NOT NULL`",
	},
	{
		name: "ledger: what waits for a person is not held",
		room: "ledger", tests: "TestFind_", file: "ledger/orders.go",
		old: "'reserved', 'pending', 'needs_attention'", new: "'reserved', 'pending'",
	},
	{
		name: "ledger: held money of another tenant's order of that name counts",
		room: "ledger", tests: "TestFind_", file: "ledger/orders.go",
		old: "WHERE h.tenant_id = o.tenant_id AND", new: "WHERE",
	},
	{
		name: "ledger: a capture may be lowered",
		room: "ledger", tests: "TestRegister", file: "ledger/register.go",
		old: "*r.CapturedCents >= known.CapturedCents", new: "*r.CapturedCents >= 0",
	},
	{
		name: "ledger: a payment may change",
		room: "ledger", tests: "TestRegister", file: "ledger/register.go",
		old: "same(r.ProviderPaymentRef, known.ProviderPaymentRef) &&", new: "",
	},
	{
		name: "ledger: of two new orders that are equal one is refused",
		room: "ledger", tests: "TestRegister", file: "ledger/register.go",
		old: "ON CONFLICT DO NOTHING", new: "ON CONFLICT (tenant_id, order_id) DO NOTHING",
	},
	{
		name: "ledger: an order's own payment is another's",
		room: "ledger", tests: "TestRegister", file: "ledger/register.go",
		old: "AND (tenant_id, order_id) <> ($1, $2))", new: "AND ($1::text, $2::text) IS NOT NULL)",
	},
	{
		name: "ledger: an order is changed without its lock",
		room: "ledger", tests: "TestRegister", file: "ledger/register.go",
		old: "SELECT FROM orders WHERE tenant_id = $1 AND order_id = $2 FOR NO KEY UPDATE",
		new: "SELECT FROM orders WHERE tenant_id = $1 AND order_id = $2",
	},
}

// keys are access's.
var keys = []mutant{
	{
		name: "keys: a revoked one opens", few: true,
		room: "access", tests: "TestRevokeKey", file: "access/authenticate.go",
		old: "AND revoked_at IS NULL", new: "",
	},
	{
		name: "keys: an expired one opens",
		room: "access", tests: "TestExpiry", file: "access/authenticate.go",
		old: "expires_at > clock_timestamp())", new: "true)",
	},
	{
		name: "keys: a reading outlives its key",
		room: "access", tests: "TestExpiry", file: "access/authenticate.go",
		old: "CASE WHEN isfinite(expires_at) AND", new: "CASE WHEN false AND",
	},
	{
		name: "keys: a reading outlives a suspended machine",
		room: "access", tests: "TestExpiry", file: "access/authenticate.go",
		old: " && now.Round(0).Sub(r.began.Round(0)) < r.life", new: "",
		survives: "Go makes no time whose two clocks disagree, and the machine's are not a test's to set",
	},
	{
		name: "keys: a reading lives for ever while the wall clock stands",
		room: "access", tests: "TestExpiry", file: "access/authenticate.go",
		old: "now.Sub(r.began) < r.life && ", new: "",
		survives: "as above",
	},
	{
		name: "keys: what was not found any more is kept",
		room: "access", tests: "TestRevokeKey", file: "access/authenticate.go",
		old: "delete(c.entries, h)\n\t\t}\n\t}\n", new: "_ = h\n\t\t}\n\t}\n",
		survives: "its life ends within the 5 s that a revocation may take",
	},
	{
		name: "keys: revoking again moves the time of it",
		room: "access", tests: "TestRevokeKey", file: "access/keys.go",
		old: "coalesce(revoked_at, clock_timestamp())", new: "clock_timestamp()",
	},
	{
		name: "keys: two rotations at once both succeed",
		room: "access", tests: "TestRotateKey", file: "access/keys.go",
		old: "FROM api_keys WHERE key_id = $1 FOR NO KEY UPDATE", new: "FROM api_keys WHERE key_id = $1",
	},
	{
		name: "keys: a revoked one is rotated",
		room: "access", tests: "TestRotateKey", file: "access/keys.go",
		old: "SELECT revoked_at IS NULL AND (", new: "SELECT (",
	},
	{
		name: "keys: an expired one is rotated",
		room: "access", tests: "TestRotateKey", file: "access/keys.go",
		old: "SELECT revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())", new: "SELECT revoked_at IS NULL",
	},
	{
		name: "keys: the grace prolongs a life",
		room: "access", tests: "TestRotateKey", file: "access/keys.go",
		old: "least(expires_at, clock_timestamp() +", new: "greatest(null, clock_timestamp() +",
	},
	{
		name: "keys: another tenant's are listed",
		room: "access", tests: "TestRotateKey|TestCreate|TestList", file: "access/keys.go",
		old: "FROM api_keys WHERE tenant_id = $1 ORDER BY", new: "FROM api_keys WHERE $1::text IS NOT NULL ORDER BY",
	},
	{
		name: "keys: a tenant that exists is created",
		room: "access", tests: "TestCreate", file: "access/tenants.go",
		old: "SELECT created_at = $2 FROM", new: "SELECT $2::timestamptz IS NOT NULL FROM",
	},
}

// runs are reconciliation and the audit.
var runs = []mutant{
	{
		name: "audit: transfers of no operation are not seen", few: true,
		room: "reconcile", tests: "TestAudit_NamesEachLie", file: "reconcile/audit.go",
		old: "FULL JOIN (", new: "LEFT JOIN (",
	},
	{
		name: "audit: a failed refund counts",
		room: "reconcile", tests: "TestAudit_", file: "reconcile/audit.go",
		old: "state NOT IN ('failed', 'revoked')", new: "state NOT IN ('revoked')",
	},
	{
		name: "audit: a withdrawn approval counts",
		room: "reconcile", tests: "TestAudit_", file: "reconcile/audit.go",
		old: "state NOT IN ('failed', 'revoked')", new: "state NOT IN ('failed')",
	},
	{
		name: "audit: an order of another tenant will do",
		room: "reconcile", tests: "TestAudit_", file: "reconcile/audit.go",
		old: "(o.tenant_id, o.order_id) = (op.tenant_id, op.order_id)", new: "o.order_id = op.order_id",
	},
	{
		name: "audit: an excess that no provider caused is not named",
		room: "reconcile", tests: "TestAudit_", file: "reconcile/audit.go",
		old: "case refunded < 0, excess > over:", new: "case refunded < 0:",
	},
	{
		name: "audit: an excess that is covered is not named",
		room: "reconcile", tests: "TestAudit_", file: "reconcile/audit.go",
		old: "case excess < over:", new: "case false:",
	},
	{
		name: "audit: an over-refund is not named",
		room: "reconcile", tests: "TestAudit_|TestRun_Rechecks", file: "reconcile/audit.go",
		old: "case over > 0:", new: "case false:",
	},
	{
		name: "audit: gaps in the sequence are not seen",
		room: "reconcile", tests: "TestAudit_NamesEachLie", file: "reconcile/rules.go",
		old: "(e.firstSeq != 1 || int64(e.lastSeq) != e.transfers)", new: "e.firstSeq != 1",
	},
	{
		name: "audit: the smallest transfer alone is compared",
		room: "reconcile", tests: "TestAudit_NamesEachLie", file: "reconcile/rules.go",
		old: "(e.minCents != e.amountCents || e.maxCents != e.amountCents)", new: "e.minCents != e.amountCents",
	},
	{
		name: "audit: paying twice is an illegal chain as any",
		room: "reconcile", tests: "TestAudit_NamesEachLie", file: "reconcile/rules.go",
		old: "case payments(e.chain) > 1:", new: "case payments(e.chain) > 2:",
	},
	{
		name: "audit: the provider of the order is not compared",
		room: "reconcile", tests: "TestAudit_NamesEachLie", file: "reconcile/rules.go",
		old: "if e.provider != e.orderProvider {", new: "if false {",
	},
	{
		name: "reconcile: providers that nobody knows are not named",
		room: "reconcile", tests: "TestRun_OfAProviderThatNobodyKnows", file: "reconcile/due.go",
		old: `faults = append(faults, &ProviderFault{name, "is not configured"})`, new: "_ = name",
	},
	{
		name: "reconcile: what has an end is never looked at",
		room: "reconcile", tests: "TestRun_", file: "reconcile/due.go",
		old: "if len(leases) == n || w.through[kind] {", new: "if len(leases) == n || w.through[kind] || c.Settled {",
	},
	{
		name: "reconcile: silence is not weighed",
		room: "reconcile", tests: "TestRun_OfASilentProvider", file: "reconcile/trust.go",
		old: "return t.silence >= enough", new: "return false",
	},
	{
		name: "reconcile: credentials that are refused are no fault",
		room: "reconcile", tests: "TestRun_OfASilentProvider", file: "reconcile/trust.go",
		old: "case t.refused && (!t.answered || !asked):", new: "case false:",
	},
	{
		name: "reconcile: a run that was interrupted was a success",
		room: "reconcile", tests: "TestRun_ToldToStop|TestTold", file: "reconcile/runs.go",
		old: "for _, fault := range parts(failed) {", new: "for _, fault := range parts(unlessInterrupted(failed)) {",
	},
}

// mechanisms are what the rooms share.
var mechanisms = []mutant{
	{
		name: "wire: a request is written after its moment",
		room: "internal/sendonce", tests: "TestTransport_", file: "internal/sendonce/wire.go",
		old: "if m.Passed() {", new: "if false && m.Passed() {",
	},
	{
		name: "wire: what may have been written counts as not sent", few: true,
		room: "internal/sendonce", tests: "TestTransport_|TestA66_", file: "internal/sendonce/wire.go",
		old: "w.wrote = true", new: "",
	},
	{
		name: "wire: the context's deadline is no limit",
		room: "internal/sendonce", tests: "TestTransport_", file: "internal/sendonce/sendonce.go",
		old: "if deadline, ok := ctx.Deadline(); ok {", new: "if deadline, ok := ctx.Deadline(); ok && false {",
		survives: "the context's end interrupts the write as well; that a machine may be suspended before it, no test here can bring about",
	},
	{
		name: "wire: bodies are not bounded",
		room: "internal/sendonce", tests: "TestA66_", file: "internal/sendonce/response.go",
		old: "limited.left = cmp.Or(t.MaxBody, defaultMaxBody)", new: "limited.left = cmp.Or(t.MaxBody, 8<<20)",
	},
	{
		name: "clocks: the wall clock is not asked",
		room: "internal/clocks", tests: "TestMoment_", file: "internal/clocks/clocks.go",
		old: "!now.Monotonic.Before(m.Monotonic) || !now.Wall.Before(m.Wall)", new: "!now.Monotonic.Before(m.Monotonic)",
	},
	{
		name: "clocks: the monotonic clock is not asked",
		room: "internal/clocks", tests: "TestMoment_", file: "internal/clocks/clocks.go",
		old: "!now.Monotonic.Before(m.Monotonic) || !now.Wall.Before(m.Wall)", new: "!now.Wall.Before(m.Wall)",
	},
	{
		name: "batch: a lane runs twice at once",
		room: "internal/batch", tests: "TestGroup_LanesKeepTheirOrder", file: "internal/batch/queue.go",
		old: "if len(l.calls) == 1 && !l.busy {", new: "if len(l.calls) == 1 {",
	},
	{
		name: "batch: one owner takes every batch",
		room: "internal/batch", tests: "TestGroup_", file: "internal/batch/queue.go",
		old: "g.limits.PerOwner > 0 && o.running >= g.limits.PerOwner", new: "false",
	},
	{
		name: "batch: a full queue takes more",
		room: "internal/batch", tests: "TestGroup_", file: "internal/batch/queue.go",
		old: "o.waiting >= limit/len(g.owners)", new: "false",
	},
	{
		name: "batch: who has less than their share is refused",
		room: "internal/batch", tests: "TestGroup_", file: "internal/batch/queue.go",
		old: "if limit == 0 || g.waiting < limit {\n\t\treturn false\n\t}", new: "if limit == 0 || g.waiting < limit {\n\t\treturn false\n\t}\n\tif true {\n\t\treturn true\n\t}",
	},
	{
		name: "batch: who waits longer than they have is taken",
		room: "internal/batch", tests: "TestGroup_", file: "internal/batch/queue.go",
		old: "c.timeLeft() < c.expectedWait(o, l)", new: "false",
	},
	{
		name: "batch: a busy lane takes more than its turn",
		room: "internal/batch", tests: "TestGroup_", file: "internal/batch/queue.go",
		old: "n = min(n, turn)", new: "",
	},
	{
		name: "batch: one who leaves ends the batch for all",
		room: "internal/batch", tests: "TestGroup_", file: "internal/batch/queue.go",
		old: "b.left == len(b.calls)", new: "b.left > 0",
	},
	{
		name: "batch: what goes wrong apart is tried without a bound",
		room: "internal/batch", tests: "TestApart_", file: "internal/batch/apart.go",
		old: "tries -= 2", new: "",
	},
	{
		name: "pgtx: a deadlock is the caller's",
		room: "operations", tests: "TestSubmitUnderFaults", file: "internal/pgtx/faults.go",
		old: "pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.AdminShutdown",
		new: "pgerrcode.SerializationFailure, pgerrcode.AdminShutdown",
	},
}
