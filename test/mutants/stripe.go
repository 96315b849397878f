package main

// atStripe are those of provider/stripe, and of what the engine makes of events.
var atStripe = []mutant{
	{
		name: "stripe: a signature of yesterday is taken", few: true,
		room: "provider/stripe", tests: "TestEvents_Take", file: "provider/stripe/events.go",
		old: "at.IsZero() || now.Sub(at).Abs() > Tolerance", new: "at.IsZero()",
	},
	{
		name: "stripe: a signature of tomorrow is taken",
		room: "provider/stripe", tests: "TestEvents_Take", file: "provider/stripe/events.go",
		old: "now.Sub(at).Abs() > Tolerance", new: "now.Sub(at) > Tolerance",
	},
	{
		name: "stripe: an event of the other mode is heeded",
		room: "provider/stripe", tests: "TestEvents_Are", file: "provider/stripe/events.go",
		old: "case v.Livemode != e.live, ", new: "case ",
	},
	{
		name: "stripe: only the first page is read",
		room: "provider/stripe", tests: "TestLookup_", file: "provider/stripe/lookup.go",
		old: "if !page.HasMore {", new: "if true {",
	},
	{
		name: "stripe: an unreadable code declines",
		room: "provider/stripe", tests: "TestRefund_Only", file: "provider/stripe/declines.go",
		old: "!ok || !statuses[e.status] || ", new: "!ok || ",
	},
	{
		name: "stripe: 429 without Stripe's word is not sent",
		room: "provider/stripe", tests: "TestRefund_Only", file: "provider/stripe/stripe.go",
		old: "case e.status == http.StatusTooManyRequests && isError(err):", new: "case e.status == http.StatusTooManyRequests:",
	},
	{
		name: "stripe: half a shilling is dropped",
		room: "provider/stripe", tests: "TestAmounts_", file: "provider/stripe/currencies.go",
		old: "case hundredths[currency] && amount%100 != 0, ", new: "case ",
	},
	{
		name: "stripe: a payment of the other mode is taken",
		room: "provider/stripe", tests: "TestPayment_", file: "provider/stripe/payments.go",
		old: "case p.live != c.live:", new: "case false:",
		survives: "Stripe, and the fake of it, do not show a payment of the other mode at all: this is the second lock",
	},
	{
		name: "engine: what was seen before a failure is proof against it",
		room: "operations", tests: "TestDecide_WhatWasSeen", file: "operations/decide.go",
		old: "case f.is(OutcomeSucceeded) && r.failedMeanwhile(f):", new: "case false:",
	},
	{
		name: "engine: an event's look is recorded over what moved meanwhile",
		room: "operations", tests: "TestDecide_WhatWasSeen", file: "operations/decide.go",
		old: "case f.hinted && f.lease.State != r.State:", new: "case false:",
	},
	{
		name: "engine: a doubtful decline is believed",
		room: "operations", tests: "TestDecide_ADoubtful", file: "operations/decide.go",
		old: "|| result.Doubtful ", new: "",
	},
	{
		name: "stripe: a payment that Stripe does not know says no reason",
		room: "provider/stripe", tests: "TestRefund_Only", file: "provider/stripe/declines.go",
		old: "return operations.ReasonUnknownPayment", new: `return ""`,
	},
	{
		name: "stripe: whatever is missing is the payment",
		room: "provider/stripe", tests: "TestRefund_Only", file: "provider/stripe/declines.go",
		old: "&& (said.Param == paramIntent || said.Param == paramCharge || said.Param == paramID)", new: "",
	},
	{
		name: "stripe: an error about idempotency declines",
		room: "provider/stripe", tests: "TestRefund_Only", file: "provider/stripe/declines.go",
		old: "said.Type == stripe.ErrorTypeIdempotency || ", new: "",
	},
	{
		name: "stripe: an amount that has a code of its own is too large",
		room: "provider/stripe", tests: "TestRefund_Only", file: "provider/stripe/declines.go",
		old: `said.Code == "" && said.Type`, new: "said.Type",
	},
	{
		name: "stripe: an account that is not ours breaks the key",
		room: "provider/stripe", tests: "TestRefund_Only|TestAccount", file: "provider/stripe/stripe.go",
		old: "case codeOf(err) == stripe.ErrorCodeAccountInvalid:", new: "case false:",
	},
	{
		name: "stripe: what was not written counts as sent",
		room: "provider/stripe", tests: "TestRefund_Nothing", file: "provider/stripe/stripe.go",
		old: "failure.Unwritten = true", new: "failure.Unwritten = false",
	},
	{
		name: "stripe: another refund's answer is ours",
		room: "provider/stripe", tests: "TestRefund_|TestAnswers|TestLookup_", file: "provider/stripe/stripe.go",
		old: "if e.status == http.StatusOK && isOf(made, r) {", new: "if e.status == http.StatusOK {",
	},
	{
		name: "stripe: a failed refund is paid",
		room: "provider/stripe", tests: "TestLookup_Tells", file: "provider/stripe/stripe.go",
		old: "return operations.OutcomeDeclined, failure(string(x.FailureReason))", new: `return operations.OutcomeSucceeded, ""`,
	},
	{
		name: "stripe: a canceled refund is pending",
		room: "provider/stripe", tests: "TestLookup_Tells", file: "provider/stripe/stripe.go",
		old: "return operations.OutcomeDeclined, operations.DeclineRefundFailed", new: `return operations.OutcomePending, ""`,
	},
	{
		name: "stripe: the account is not named",
		room: "provider/stripe", tests: "TestAccount", file: "provider/stripe/stripe.go",
		old: "p.StripeAccount = &account", new: "_ = account",
	},
	{
		name: "stripe: no refund is read by its name",
		room: "provider/stripe", tests: "TestLookup_Where", file: "provider/stripe/lookup.go",
		old: `r.ProviderRefundID != "" && !named {`, new: `r.ProviderRefundID == "no" && !named {`,
	},
	{
		name: "stripe: a page without an end is the last one",
		room: "provider/stripe", tests: "TestLookup_One", file: "provider/stripe/lookup.go",
		old: "page.HasMore && len(page.Data) == 0:", new: "false:",
	},
	{
		name: "stripe: a listing that is too long is complete",
		room: "provider/stripe", tests: "TestLookup_", file: "provider/stripe/lookup.go",
		old: "return named, e.error(operations.ErrorUnknown, errTooLong)", new: "return named, nil",
	},
	{
		name: "stripe: a payment without a name is read as another one's",
		room: "provider/stripe", tests: "TestPayment_", file: "provider/stripe/payments.go",
		old: "case e.status != http.StatusOK, p.id != ref:", new: "case e.status != http.StatusOK:",
	},
	{
		name: "stripe: what was asked for counts as captured",
		room: "provider/stripe", tests: "TestPayment_", file: "provider/stripe/payments.go",
		old: "x.Currency, x.AmountReceived}", new: "x.Currency, x.Amount}",
	},
	{
		name: "stripe: a second time in a signature counts",
		room: "provider/stripe", tests: "TestEvents_Take", file: "provider/stripe/events.go",
		old: "if err != nil || !at.IsZero() {", new: "if err != nil {",
	},
	{
		name: "stripe: only the first secret signs",
		room: "provider/stripe", tests: "TestEvents_Take", file: "provider/stripe/events.go",
		old: "range e.secrets {", new: "range e.secrets[:1] {",
	},
	{
		name: "stripe: an old event's account is our own",
		room: "provider/stripe", tests: "TestEvents_Are", file: "provider/stripe/events.go",
		old: "hint := operations.Hint{Account: v.Account}", new: "hint := operations.Hint{}",
	},
	{
		name: "hint: another account's event is heeded",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "if l.account != h.Account {", new: "if false {",
	},
	{
		name: "hint: a provider that can not be asked was heeded",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "case f.unreachable():", new: "case false:",
	},
	{
		name: "hint: books that contradict are left alone",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "case f.contradictory():\n\t\t\treturn false, e.hasten(ctx, l.key())", new: "case f.contradictory():\n\t\t\treturn false, nil",
	},
	{
		name: "hint: what failed and is pending is left alone",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "case f.is(OutcomePending) && r.operation.State == StateFailed:", new: "case false:",
	},
	{
		name: "hint: a name of any form is looked for",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "if !isName(r.ProviderRefundID) || !isName(r.TenantID) || !isName(r.OperationID) {", new: "if false {",
	},
	{
		name: "hint: marks of another tenant are ours",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "ON q.tenant_id = k.tenant_id AND q.operation_id = k.operation_id AND",
		new: "ON q.operation_id = k.operation_id AND",
	},
	{
		name: "hint: no refund is found by its name",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "AND q.provider_refund_id = n.name AND n.name <> ''", new: "AND false",
	},
	{
		name: "hint: a payment's refunds that have an end are meant",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "AND q.state IN ('reserved', 'pending', 'needs_attention'))", new: ")",
	},
	{
		name: "hint: a payment's refunds are all looked up at once",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "const hintedMost = 20", new: "const hintedMost = 2000",
	},
	{
		name: "hint: it looks once where the operation moves meanwhile",
		room: "operations", tests: "TestHeed", file: "operations/hint.go",
		old: "const hintTries = 3", new: "const hintTries = 1",
		survives: "what is not settled by the first look is made due at once: reconciliation settles it",
	},
	{
		name: "engine: a failed refund that is pending there is never looked at again",
		room: "operations", tests: "TestDecide", file: "operations/decide.go",
		old: "if f.is(OutcomePending) && r.settled() {", new: "if false {",
	},
}
