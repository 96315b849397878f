// Package webhooks tells callers what becomes of their refunds, so that one that is pending, or that fails days later,
// reaches them without polling.
//
// Its promises:
//
//   - An event is written in the transaction of its transition: what is committed is told, what is not never is.
//   - What an event says was true at that transition, and the events of one operation tell its history in order.
//   - Whoever follows the log by its cursor misses no event, in whatever order transactions commit.
//   - Each endpoint is sent each event at least once, signed (Standard Webhooks), under one webhook-id however often;
//     the next event of an operation waits until the earlier one was taken, or given up.
//   - An endpoint that hangs, fails or answers without end delays no other one. What it does not take is sent again,
//     less and less often, for three days. Where it took nothing in three days it is disabled, where it is gone (410)
//     at once; its events wait until somebody enables it.
//   - Nothing is sent to an address inside the network unless that was allowed, whatever name leads there, and no
//     redirect is followed. No secret is in any answer but the one that makes it.
//
// Choices. A refund without a provider ends in its own answer: its event, refund.succeeded, is written for tenants
// that have an endpoint, and costs the others nothing; the events of refunds at a provider are always written. A
// reservation is no event: its caller has the answer 202. An endpoint that takes some events and refuses one for three
// days goes on without that one. Nothing is deleted: events are history, and only what was not taken at once has a row
// in webhook_deliveries.
//
// An Outbox holds what is to be told and whom; a Courier brings it there. Any number of couriers share the work: each
// endpoint has one at a time, by a lease on the database's clock. A courier that was stopped and wakes after its lease
// may send once more what another one sent; the id tells.
package webhooks
