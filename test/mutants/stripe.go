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
}
