package main

// ofWebhooks are those of webhooks, and of the events in the API.
var ofWebhooks = []mutant{
	{
		name: "webhooks: events are numbered as they were drawn, by one statement's snapshot",
		room: "webhooks", tests: "TestLog_", file: "migrations/0004_webhooks.up.sql",
		old: "WHERE s.tenant_id = tenant FOR NO KEY UPDATE SKIP LOCKED;", new: "WHERE s.tenant_id = tenant;",
	},
	{
		name: "webhooks: an operation's events have no order",
		room: "webhooks", tests: "TestLog_KeepsTheOrder|TestDelivery_Tells", file: "migrations/0004_webhooks.up.sql",
		old: "row_number() OVER (ORDER BY o.seq) AS place", new: "row_number() OVER (ORDER BY o.seq DESC) AS place",
	},
	{
		name: "webhooks: an event is sent beside an earlier one of its operation",
		room: "webhooks", tests: "TestDelivery_", file: "webhooks/plan.go",
		old: "case ours[p.operationID], len(r.messages) >= t.room:", new: "case len(r.messages) >= t.room:",
	},
	{
		name: "webhooks: an event does not wait for an earlier one that was refused",
		room: "webhooks", tests: "TestDelivery_Keeps", file: "webhooks/plan.go",
		old: "case f.waits:", new: "case false:",
	},
	{
		name: "webhooks: types that nobody asked for are sent",
		room: "webhooks", tests: "TestEndpoints_GetTheTypes", file: "webhooks/plan.go",
		old: "case t.types != nil && !slices", new: "case false && !slices",
	},
	{
		name: "webhooks: a lease that was lost goes on",
		room: "webhooks", tests: "TestEndpoints_|TestDelivery_|TestPace_", file: "webhooks/round.go",
		old: "AND e.lease = $3 FOR NO KEY UPDATE NOWAIT", new: "AND $3::bigint > 0 FOR NO KEY UPDATE NOWAIT",
		survives: "a courier loses its lease only where it is stopped for longer than that: it sends once more what another one sent",
	},
	{
		name: "webhooks: what was interrupted counts as taken",
		room: "webhooks", tests: "TestEndpoints_ThatFail|TestDelivery_", file: "webhooks/round.go",
		old: "v.position = min(v.position, m.position-1)", new: "_ = m.position",
	},
	{
		name: "webhooks: an endpoint that fails is sent a whole round",
		room: "webhooks", tests: "TestEndpoints_ThatFail", file: "webhooks/courier.go",
		old: "over.Store(true)", new: "_ = m",
	},
	{
		name: "webhooks: an endpoint is never given up",
		room: "webhooks", tests: "TestEndpoints_AreDisabled", file: "webhooks/round.go",
		old: `if t.overdue && v.disable == "" {`, new: "if false {",
	},
	{
		name: "webhooks: an endpoint that is gone is tried again",
		room: "webhooks", tests: "TestEndpoints_ThatAreGone", file: "webhooks/round.go",
		old: "case ResultGone:\n\t\t\tv.disable = Gone", new: "case ResultGone:\n\t\t\trefused = true",
	},
	{
		name: "webhooks: an address inside the network is sent to", few: true,
		room: "webhooks", tests: "TestAddresses_", file: "webhooks/dial.go",
		old: "dialer.ControlContext = publicOnly", new: "_ = publicOnly",
	},
	{
		name: "webhooks: an IPv4 address in an IPv6 one is public",
		room: "api", tests: "TestWebhookEndpoints_Refuse", file: "webhooks/dial.go",
		old: ` || ip.Is4In6() {`, new: " {",
	},
	{
		name: "webhooks: redirects are followed",
		room: "webhooks", tests: "TestAnswers_AreTaken", file: "webhooks/dial.go",
		old: "return http.ErrUseLastResponse", new: "return nil",
	},
	{
		name: "webhooks: an answer has no end",
		room: "webhooks", tests: "TestAnswers_", file: "webhooks/send.go",
		old: "io.CopyN(io.Discard, answer.Body, answerLimit)", new: "io.Copy(io.Discard, answer.Body)",
	},
	{
		name: "webhooks: an answer may take for ever",
		room: "webhooks", tests: "TestAnswers_ThatTake|TestEndpoints_ThatHang", file: "webhooks/send.go",
		old: "context.WithTimeout(ctx, callLimit)", new: "context.WithCancel(ctx)",
	},
	{
		name: "webhooks: only the new secret signs while it is rotated",
		room: "webhooks", tests: "TestEndpoints_Change", file: "webhooks/round.go",
		old: "t.keys = append(t.keys, oldSecret)", new: "_ = oldSecret",
	},
	{
		name: "webhooks: the pace is not kept",
		room: "webhooks", tests: "TestPace_", file: "webhooks/pace.go",
		old: "p.limit.ReserveN(time.Now(), n)", new: "_ = n",
	},
	{
		name: "webhooks: a lease waits for the pace",
		room: "webhooks", tests: "TestPace_", file: "webhooks/pace.go",
		old: "min(p.owed(), most)", new: "p.owed()",
	},
	{
		name: "webhooks: a refund without a provider is told nobody",
		room: "api", tests: "TestEvents_Tell", file: "migrations/0004_webhooks.up.sql",
		old: "WHERE e.tenant_id = ANY (tenants) AND e.deleted_at IS NULL) THEN", new: "WHERE false) THEN",
	},
	{
		name: "webhooks: another tenant's event is sent again",
		room: "api", tests: "TestWebhooks_OfAnother", file: "webhooks/events.go",
		old: "`ev.tenant_id = $1 AND ev.event_id = $2::text::uuid",
		new: "`$1::text IS NOT NULL AND ev.event_id = $2::text::uuid",
	},
	{
		name: "events: a body of any length is read",
		room: "api", tests: "TestProviderEvents", file: "api/events.go",
		old: "const maxEvent = 256 << 10", new: "const maxEvent = 256 << 20",
	},
	{
		name: "events: an event that is not signed counts as a fault of ours",
		room: "api", tests: "TestProviderEvents", file: "api/events.go",
		old: "errors.Is(err, operations.ErrEventUnsigned), ", new: "",
	},
	{
		name: "events: where nobody reads them they are taken",
		room: "api", tests: "TestProviderEvents", file: "api/events.go",
		old: "return \"\", operations.ErrProviderUnavailable //", new: "return operations.HeededNotOurs, nil //",
	},
}
