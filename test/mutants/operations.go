package main

const (
	gateTests = "TestGate_LetsOnlyALiveLeaseOfALivingKeyThrough"
	renewals  = "TestA65_"
	decisions = "TestDecide_"
	claimSQL  = "migrations/0002_claim_refunds.up.sql"
)

// sending is the gate in front of every request to a provider.
var sending = []mutant{
	{
		name: "gate: a suspended machine's lease is alive", few: true,
		room: "operations", tests: gateTests, file: "operations/gate.go",
		old: `open && !notAfter.Passed(), err`, new: `open && time.Until(notAfter.Monotonic) > 0, err`,
	},
	{
		name: "gate: the lease's end is not asked for",
		room: "operations", tests: gateTests, file: "operations/gate.go",
		old: `open && !notAfter.Passed(), err`, new: `open, err`,
	},
	{
		name: "gate: whoever took the lease since does not matter",
		room: "operations", tests: gateTests, file: "operations/gate.go",
		old: `found && latest == l.attempts`, new: `found && latest > 0`,
	},
	{
		name: "gate: what is not reserved is sent",
		room: "operations", tests: gateTests, file: "operations/gate.go",
		old: `WHERE o.state = 'reserved' AND clock_timestamp()`, new: `WHERE clock_timestamp()`,
	},
	{
		name: "gate: the key may be forgotten while the call runs",
		room: "operations", tests: gateTests, file: "operations/gate.go",
		old: `clock_timestamp() + $3 * interval '1 millisecond' <`, new: `clock_timestamp() + $3 * interval '0 millisecond' <`,
	},
	{
		name: "gate: the request may be written later than its row says",
		room: "operations", tests: "TestA56_|TestResolve_Later", file: "operations/gate.go",
		old: `clocks.Earliest(l.lastSend, l.taken.Add(e.config.Lease))`, new: `l.taken.Add(e.config.Lease)`,
	},
	{
		name: "restore: the lag does not count from it",
		room: "operations", tests: "TestAfterRestore_", file: "operations/restore.go",
		old: `greatest(last_send_ended, clock_timestamp())`, new: `last_send_ended`,
	},
	{
		name: "send: a 429 counts as not sent",
		room: "operations", tests: renewals, file: "operations/resolve.go",
		old: `failure.Kind == ErrorNotSent && failure.Unwritten`, new: `failure.Kind == ErrorNotSent`,
	},
	{
		name: "resolve: an open breaker lets a request through",
		room: "operations", tests: "TestResolve_WhileTheBreakerIsOpen", file: "operations/resolve.go",
		old: `f.barred = p == nil`, new: `f.barred = false`,
	},
	{
		name: "resolve: every holder is a probe",
		room: "operations", tests: "TestResolve_AProbeThatIsRefused", file: "operations/resolve.go",
		old: `l.probe && (f.kind`, new: `(f.kind`,
	},
}

// leases are taken, given back, and begun anew.
var leases = []mutant{
	{
		name: "lease: any attempt that was not sent renews the key's expiry", few: true,
		room: "operations", tests: renewals, file: "operations/lease.go",
		old: "provider_key_expires_at = CASE WHEN o.state = 'reserved' AND o.not_sent = o.attempts",
		new: "provider_key_expires_at = CASE WHEN o.state = 'reserved' AND o.not_sent > 0",
	},
	{
		name: "lease: what was sent once may be sent without a look",
		room: "operations", tests: renewals + "|TestSubmitAtAProvider", file: "operations/lease.go",
		old: `l.notSent == earlier(l.attempts)`, new: `l.notSent >= 0`,
	},
	{
		name: "lease: what is old is sent rather than looked up",
		room: "operations", tests: "TestResolve_NeverSentAndOld", file: "operations/lease.go",
		old: `l.young && !l.lookFirst && l.State`, new: `!l.lookFirst && l.State`,
	},
	{
		name: "lease: a caller takes the lease that somebody has",
		room: "operations", tests: "TestSubmitAtAProvider|TestSettle|TestReconcile", file: "operations/lease.go",
		old: `q.lease_until <= c.at - $10 * interval '1 millisecond'`, new: `$10 * interval '1 millisecond' IS NOT NULL`,
	},
	{
		name: "lease: another tenant's operation is leased as well",
		room: "operations", tests: "TestLease_|TestSubmitAtAProvider", file: "operations/lease.go",
		old: `q.tenant_id = $7 AND q.operation_id = $8`, new: `$7::text IS NOT NULL AND q.operation_id = $8`,
	},
	{
		name: "lease: giving back frees somebody else's",
		room: "operations", tests: "TestResolve_AProbeThatIsRefused", file: "operations/lease.go",
		old: `attempts = $3 AND lease_until = $4`, new: `attempts = $3 AND $4::timestamptz IS NOT NULL`,
	},
	{
		name: "lease: giving back looks at the lease's end alone",
		room: "operations", tests: "TestResolve_AProbeThatIsRefused", file: "operations/lease.go",
		old: `attempts = $3 AND lease_until = $4`, new: `$3::int IS NOT NULL AND lease_until = $4`,
		survives: "no two leases of an operation end at the same time: the number is said to the reader",
	},
	{
		name: "claim due: waits for locked rows", few: true,
		room: "operations", tests: "TestClaimDue", file: "operations/due.go",
		old: `FOR NO KEY UPDATE OF q SKIP LOCKED`, new: `FOR NO KEY UPDATE OF q`,
	},
	{
		name: "claim due: takes what somebody has",
		room: "operations", tests: "TestClaimDue", file: "operations/due.go",
		old: "q.next_check_at < $8 AND q.lease_until <= c.at AND ", new: "q.next_check_at < $8 AND ",
	},
	{
		name: "claim due: takes any provider's",
		room: "operations", tests: "TestClaimDue", file: "operations/due.go",
		old: "q.provider = $7 AND q.next_check_at < $8", new: "$7::text IS NOT NULL AND q.next_check_at < $8",
	},
	{
		name: "claim due: takes what is not due",
		room: "operations", tests: "TestClaimDue", file: "operations/due.go",
		old: "q.provider = $7 AND q.next_check_at < $8", new: "q.provider = $7 AND $8::timestamptz IS NOT NULL",
	},
	{
		name: "claim due: the newest are the oldest",
		room: "operations", tests: "TestClaimDue", file: "operations/due.go",
		old: `order += " DESC"`, new: `order += ""`,
	},
}

// deciding is the state machine.
var deciding = []mutant{
	{
		name: "decide: the state that the lease was taken in does not matter", few: true,
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: `f.lease.State == r.State && (r.leased`, new: `(r.leased`,
	},
	{
		name: "decide: whoever took the lease since does not matter",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: `f.lease.attempts == r.attempts && f.lease.State == r.State`, new: `f.lease.State == r.State`,
	},
	{
		name: "decide: a lease that ran out is as good as one that did not",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: ` && (r.leased || f.source == sourceRefund)`, new: ``,
	},
	{
		name: "decide: a person's decision is not fenced", few: true,
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: `f.source == sourceHuman && (!ours || r.State != StateNeedsAttention)`,
		new: `f.source == sourceHuman && r.State != StateNeedsAttention`,
	},
	{
		name: "decide: a person decides what waits for none",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: `f.source == sourceHuman && (!ours || r.State != StateNeedsAttention)`, new: `f.source == sourceHuman && !ours`,
	},
	{
		name: "decide: a late answer without an outcome counts",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "case !ours:", new: "case false:",
	},
	{
		name: "decide: a decline after a second request is believed at once", few: true,
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: `r.attempts > 1 || r.doubted != nil ||`, new: `r.doubted != nil ||`,
	},
	{
		name: "decide: a decline that may mean our own refund is believed",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: `code == DeclineAlreadyRefunded || code == DeclineExceedsUnrefunded`, new: `false`,
	},
	{
		name: "decide: a doubted decline is believed within the lag",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: `case r.doubted != nil && r.lagOver:`, new: `case r.doubted != nil:`,
	},
	{
		name: "decide: a doubted decline is sent again",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "case r.doubted != nil:\n\t\tc.next = nextLag\n", new: "",
	},
	{
		name: "decide: sent again with a key that may be forgotten",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "case r.keyAlive:", new: "case true:",
	},
	{
		name: "decide: sent again though nothing may be sent",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "case r.keyAlive && barred:", new: "case false:",
	},
	{
		name: "decide: a forgotten key goes to a person within the lag",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "case r.lagOver:", new: "case true:",
	},
	{
		name: "decide: what was not found anywhere but in a reservation is sent again",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "f.kind == ErrorNotFound && r.State == StateReserved", new: "f.kind == ErrorNotFound",
	},
	{
		name: "decide: what is settled goes to a person for its age",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "case r.tooOld && r.open():", new: "case r.tooOld:",
	},
	{
		name: "decide: what exceeds the capture has no name",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "r.State == StateFailed && remainder < r.AmountCents", new: "r.State == StateFailed && remainder < 0",
	},
	{
		name: "decide: an excess is settled without a person",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "case r.overRefunded() && remainder < 0 && by != sourceHuman:", new: "case false:",
	},
	{
		name: "decide: nobody looks whether two requests were executed",
		room: "operations", tests: decisions, file: "operations/decide.go",
		old: "f.source == sourceRefund && r.attempts > 1 {", new: "false {",
	},
	{
		name: "decide: a request that may have been written counts as not sent",
		room: "operations", tests: renewals + "|" + decisions, file: "operations/decide.go",
		old: "notSent: f.source == sourceLookup || f.unwritten", new: `notSent: f.source == sourceLookup || f.kind != ""`,
	},
}

// recording is tx 2.
var recording = []mutant{
	{
		name: "record: another holder's lease is freed", few: true,
		room: "operations", tests: "TestResolve_AfterSomebodyTookTheLease", file: "operations/record.go",
		old: "append(u.freed, ours && !c.resend)", new: "append(u.freed, !c.resend)",
	},
	{
		name: "record: a decision to send again frees the lease",
		room: "operations", tests: "TestResolve_SendsAgain", file: "operations/record.go",
		old: "append(u.freed, ours && !c.resend)", new: "append(u.freed, ours)",
	},
	{
		name: "record: rows that were not changed are not missed",
		room: "operations", tests: "TestRecord_", file: "operations/record.go",
		old: "expect_rows('operations changed', (SELECT count(*) FROM changed), $19)",
		new: "expect_rows('operations changed', least((SELECT count(*) FROM changed), $19::bigint - $19::bigint), 0)",
	},
	{
		name: "record: the lease's end is not read",
		room: "operations", tests: "TestResolve_ALeaseThatRanOut", file: "operations/record.go",
		old: "o.lease_until > clock.at,", new: "true,",
	},
	{
		name: "record: the listing's lag is ignored",
		room: "operations", tests: "TestSubmitAtAProvider|TestSettle|TestLag", file: "operations/record.go",
		old: "o.last_send_ended + $5 * interval '1 millisecond' <", new: "o.last_send_ended + $5 * interval '0 millisecond' <",
	},
	{
		name: "record: a key lives as long as its expiry",
		room: "operations", tests: "TestSubmitAtAProvider", file: "operations/record.go",
		old:      "clock.at + $4 * interval '1 millisecond' < o.provider_key_expires_at",
		new:      "clock.at + $4 * interval '0 millisecond' < o.provider_key_expires_at",
		survives: "the gate asks the same, with the same margin, before anything is sent",
	},
	{
		name: "record: operations are locked in no order",
		room: "operations", tests: "TestSubmitAtAProvider", file: "operations/record.go",
		old: "ORDER BY o.tenant_id, o.operation_id FOR NO KEY UPDATE OF o", new: "FOR NO KEY UPDATE OF o",
		survives: "in company nobody waits, and who waits holds the one order of all operations first",
	},
	{
		name: "record: a name that is none is stored",
		room: "operations", tests: "TestRecord_", file: "operations/resolve.go",
		old: `failure.Kind == "" && !isName(`, new: `false && !isName(`,
	},
}

// claiming is tx 1, and the check that the sequential path and the lost race share.
var claiming = []mutant{
	{
		name: "claim: keys are not read again after the lock", few: true,
		room: "operations", tests: "TestSubmit$", file: claimSQL,
		old: "WHEN EXISTS (SELECT FROM refund_operations op", new: "WHEN false AND EXISTS (SELECT FROM refund_operations op",
	},
	{
		name: "claim: a key may be claimed twice", few: true,
		room: "operations", tests: "TestSubmit$", file: claimSQL,
		old: "operations[k.place] COLLATE \"C\"\n            ON CONFLICT (tenant_id, operation_id) DO NOTHING",
		new: "operations[k.place] COLLATE \"C\"",
	},
	{
		name: "claim: keys are claimed in no order",
		room: "operations", tests: "TestSubmit$", file: claimSQL,
		old: `ORDER BY tenants[k.place] COLLATE "C", operations[k.place] COLLATE "C"`, new: "",
		survives: "in company a wait for a key ends before Postgres looks for deadlocks, and alone there is one key",
	},
	{
		name: "claim: those of one batch do not see what the earlier ones took",
		room: "operations", tests: "TestSubmit$", file: claimSQL,
		old: "remainders[i] := remainders[i] - spent;\n                    ahead", new: "ahead",
	},
	{
		name: "claim: what is held is refundable", few: true,
		room: "operations", tests: "TestSubmitAtAProvider", file: claimSQL,
		old: "= 'passed' GROUP BY", new: "= 'passed' AND at_provider[k.place] IS NULL GROUP BY",
	},
	{
		name: "claim: a request raises what was refunded beyond the capture",
		room: "operations", tests: "TestSubmit", file: claimSQL,
		old: "SET refunded_cents = o.refunded_cents + d.amount_cents",
		new: "SET refunded_cents = o.refunded_cents + d.amount_cents, over_refunded_cents = o.over_refunded_cents + d.amount_cents",
	},
	{
		name: "claim: too much is not refused",
		room: "operations", tests: "TestSubmit$", file: claimSQL,
		old: "WHEN amount > remainder THEN", new: "WHEN false THEN",
	},
	{
		name: "claim: a debit that was not written is not missed",
		room: "operations", tests: "TestSubmitUnderFaults", file: claimSQL,
		old: "expect_rows('refunds debited', coalesce(made, 0), passes)", new: "expect_rows('refunds debited', passes, passes)",
	},
	{
		name: "claim: a transfer that was not written is not missed",
		room: "operations", tests: "TestSubmitUnderFaults", file: claimSQL,
		old: "expect_rows('transfers posted', made, passes)", new: "expect_rows('transfers posted', passes, passes)",
	},
	{
		name: "claim: an approval that expires while the order is awaited is good", few: true,
		room: "operations", tests: "TestSubmit", file: claimSQL,
		old: "WHEN expires_at <= at", new: "WHEN expires_at <= now()",
	},
	{
		name: "claim: an approval never expires",
		room: "operations", tests: "TestSubmit_NeedsItsAuthorization", file: claimSQL,
		old: "WHEN expires_at <= at", new: "WHEN expires_at <= '-infinity'",
	},
	{
		name: "claim: an approval is good for any amount",
		room: "operations", tests: "TestSubmit_NeedsItsAuthorization", file: claimSQL,
		old: " OR approved_amount <> amount", new: "",
	},
	{
		name: "claim: an approval is good for any order",
		room: "operations", tests: "TestSubmit_NeedsItsAuthorization", file: claimSQL,
		old: "WHEN approved_order <> order_id OR a", new: "WHEN a",
	},
	{
		name: "claim: an approval is good for any currency",
		room: "operations", tests: "TestSubmit_NeedsItsAuthorization", file: claimSQL,
		old: " OR approved_currency <> held", new: "",
	},
	{
		name: "claim: a tenant that is not known needs no approvals",
		room: "operations", tests: "TestSubmit_", file: claimSQL,
		old: "t.tenant_id = tenants[k.place]), true)", new: "t.tenant_id = tenants[k.place]), false)",
		survives: "a tenant that is not known has no orders, by the foreign key",
	},
	{
		name: "claim: another tenant's approval is good",
		room: "operations", tests: "TestSubmit_", file: claimSQL,
		old: "a.expires_at FROM refund_authorizations a\n                WHERE a.tenant_id = tenants[k.place] AND",
		new: "a.expires_at FROM refund_authorizations a\n                WHERE",
	},
	{
		name: "claim: another tenant's order is refunded",
		room: "operations", tests: "TestSubmit", file: claimSQL,
		old: "FROM orders o WHERE op.known IS NULL AND o.tenant_id = tenants[k.place] AND",
		new: "FROM orders o WHERE op.known IS NULL AND",
	},
	{
		name: "claim: another tenant's key is taken for ours",
		room: "operations", tests: "TestSubmit", file: claimSQL,
		old: "AS known FROM refund_operations op\n        WHERE op.tenant_id = tenants[k.place] AND",
		new: "AS known FROM refund_operations op\n        WHERE",
	},
	{
		name: "claim: a call whose caller has gone executes",
		room: "operations", tests: "TestSubmitUnderFaults", file: claimSQL,
		old: "WHEN late THEN", new: "WHEN false THEN",
		survives: "alone a batch ends with its caller; of several it refuses who left between the batch's forming and its statement",
	},
	{
		name: "claim: an order that somebody holds is judged",
		room: "operations", tests: "TestA80_|TestSubmitUnderFaults", file: claimSQL,
		old: "WHEN held IS NULL THEN 'locked'", new: "WHEN false THEN 'locked'",
	},
	{
		name: "claim: company waits for an order that somebody holds",
		room: "operations", tests: "TestA80_", file: claimSQL,
		old: "FOR NO KEY UPDATE SKIP LOCKED) AS o", new: "FOR NO KEY UPDATE) AS o",
		survives: "company then waits for 100 ms, and who spoils it is found by halves: slower, and as right",
	},
	{
		name: "claim: those refused for what a loser took are not judged again",
		room: "operations", tests: "TestSubmit$", file: claimSQL,
		old: "'passed', 'claimed'), 'in_turn', NULL)", new: "'passed', 'claimed'), 'in_turn', 'amount_exceeds_refundable')",
	},
	{
		name: "claim alone: a key may be claimed twice", few: true,
		room: "operations", tests: "TestSubmit$", file: claimSQL,
		old: "'succeeded', at, at)\n        ON CONFLICT (tenant_id, operation_id) DO NOTHING", new: "'succeeded', at, at)",
	},
	{
		name: "claim alone: an order at a provider is refunded here", few: true,
		room: "operations", tests: "TestSubmitAtAProvider", file: claimSQL,
		old: "o.order_id = of_order AND o.provider IS NULL", new: "o.order_id = of_order",
	},
	{
		name: "claim alone: another tenant's approval is good",
		room: "operations", tests: "TestSubmit_", file: claimSQL,
		old: "a WHERE a.tenant_id = tenant AND", new: "a WHERE",
	},
	{
		name: "claim alone: another tenant's order is debited",
		room: "operations", tests: "TestSubmit_", file: claimSQL,
		old: "WHERE o.tenant_id = tenant AND o.order_id = of_order;", new: "WHERE o.order_id = of_order;",
	},
	{
		name: "claim alone: a transfer that was not written is not missed",
		room: "operations", tests: "TestSubmitUnderFaults", file: claimSQL,
		old: "expect_rows('transfers posted', 0, 1)", new: "expect_rows('transfers posted', 1, 1)",
	},
	{
		name: "claim alone: a debit that was not written is not missed",
		room: "operations", tests: "TestSubmitUnderFaults", file: claimSQL,
		old: "expect_rows('refunds debited', 0, 1)", new: "expect_rows('refunds debited', 1, 1)",
	},
	{
		name: "claim alone: an order that somebody holds is awaited",
		room: "operations", tests: "TestA80_", file: claimSQL,
		old: "FOR NO KEY UPDATE SKIP LOCKED;", new: "FOR NO KEY UPDATE;",
		survives: "it then waits for 100 ms before its order is found to be somebody else's: slower, and as right",
	},
	{
		name: "submit: after a lost acknowledgement the call's own row is a replay",
		room: "operations", tests: "TestSubmitUnderFaults/LostCommit", file: "operations/submit.go",
		old: "op.RefundID == c.refundID && op.State == StateSucceeded", new: "false",
	},
	{
		name: "submit: every row is the call's own",
		room: "operations", tests: "TestSubmit", file: "operations/submit.go",
		old: "op.RefundID == c.refundID && op.State == StateSucceeded", new: "op.State == StateSucceeded",
	},
	{
		name: "submit: another refund's receipt is replayed", few: true,
		room: "operations", tests: "TestSubmit$", file: "operations/submit.go",
		old: "case op.Fingerprint != c.fingerprint, c.Currency", new: "case c.Currency",
	},
	{
		name: "submit: another currency is replayed",
		room: "operations", tests: "TestSubmit", file: "operations/submit.go",
		old: "case op.Fingerprint != c.fingerprint, c.Currency != nil && *c.Currency != op.Currency:", new: "case op.Fingerprint != c.fingerprint:",
	},
	{
		name: "submit: somebody's work in progress is taken up",
		room: "operations", tests: "TestSubmitAtAProvider", file: "operations/submit.go",
		old: "if op.LeaseLeft > 0 {", new: "if false {",
	},
	{
		name: "revoke: a key may be claimed twice",
		room: "operations", tests: "TestRevoke$", file: "operations/revoke.go",
		old: "ON CONFLICT (tenant_id, operation_id) DO NOTHING", new: "",
	},
	{
		name: "revoke: another tenant's approval is withdrawn",
		room: "operations", tests: "TestSubmit_KnowsNoOtherTenant", file: "operations/revoke.go",
		old: "FROM refund_authorizations WHERE tenant_id = $1 AND",
		new: "FROM refund_authorizations WHERE $1::text IS NOT NULL AND",
	},
}

// people are decisions with evidence.
var people = []mutant{
	{
		name: "settle: a decision against the provider's books stands",
		room: "operations", tests: "TestSettle", file: "operations/settle.go",
		old: "case d.contradicts(f):", new: "case false:",
	},
	{
		name: "settle: books that contradict themselves need no override",
		room: "operations", tests: "TestSettle", file: "operations/settle.go",
		old: "return !d.Override", new: "return false",
	},
	{
		name: "settle: what is pending there may be called failed",
		room: "operations", tests: "TestSettle", file: "operations/settle.go",
		old: "return f.is(OutcomeSucceeded) || f.is(OutcomePending)", new: "return f.is(OutcomeSucceeded)",
	},
	{
		name: "settle: the listing's lag is ignored",
		room: "operations", tests: "TestSettle", file: "operations/settle.go",
		old: "wait > 0 && !d.Override", new: "wait < 0",
	},
	{
		name: "settle: a provider that cannot be asked need not be",
		room: "operations", tests: "TestSettle", file: "operations/settle.go",
		old: "case f.unreachable() && !d.Override:", new: "case false:",
	},
	{
		name: "settle: another word about the same operation is the same",
		room: "operations", tests: "TestSettle", file: "operations/settle.go",
		old: "!alike || op.State != ended", new: "alike && false || op.State != ended",
	},
}
