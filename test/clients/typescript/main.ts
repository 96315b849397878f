// Calls a running refundd through what openapi-typescript makes of api/openapi.yaml, as an integrator would: every answer has
// the generated types, and none is asserted by hand.
//
//   URL, KEY, SIMULATOR   where refundd is, an API key with every scope, and the simulated provider
import createClient from "openapi-fetch";
import type { components, paths } from "./refundd.js";

type Receipt = components["schemas"]["RefundReceipt"];

const { URL: baseUrl = "", KEY, SIMULATOR } = process.env;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${KEY}` } });
const name = `ts-${Date.now()}`; // fresh each time

function must(condition: boolean, what: string, got: unknown): asserts condition {
  if (!condition) throw new Error(`${what}: ${JSON.stringify(got)}`);
}

async function approve(id: string, provider: "ledger" | "simulator"): Promise<void> {
  const order = await client.PUT("/v1/orders/{order_id}", {
    params: { path: { order_id: id } },
    body: { currency: "EUR", captured_cents: 10000, provider, provider_payment_ref: provider === "simulator" ? id : null },
  });
  must(order.response.status === 201 && order.data?.refundable_cents === 10000, "register", order);
  const approval = await client.PUT("/v1/authorizations/{operation_id}", {
    params: { path: { operation_id: `${id}-1` } },
    body: { case_id: "case-7", order_id: id, amount_cents: 4999, approved_by: "ada" },
  });
  must(approval.response.status === 201 && approval.data?.state === "open", "approve", approval);
}

function refund(id: string) {
  return client.POST("/v1/refunds", { body: { operation_id: `${id}-1`, order_id: id, amount_cents: 4999 } });
}

// 200, 201 and 202 are one type: no case of its own for any of them.
async function expect(id: string, status: number, did: Receipt["status"], moved: Receipt["money_moved"]): Promise<void> {
  const { data, response, error } = await refund(id);
  const receipt: Receipt | undefined = data;
  must(response.status === status && receipt?.status === did && receipt.money_moved === moved, `refund ${id}`, data ?? error);
}

async function fault(body: object): Promise<void> {
  const answer = await fetch(`${SIMULATOR}/_faults`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  must(answer.ok, "the simulator", answer.status);
}

const ledger = `${name}-ledger`;
await approve(ledger, "ledger");
await expect(ledger, 201, "processed", "yes");
await expect(ledger, 200, "already_processed", "yes");
const approval = await client.GET("/v1/authorizations/{operation_id}", { params: { path: { operation_id: `${ledger}-1` } } });
must(approval.data?.refund?.state === "succeeded", "read the approval", approval.data);

const pending = `${name}-pending`;
await approve(pending, "simulator");
await fault({ mode: "pending", count: 1, delay_ms: 600000 });
await expect(pending, 202, "pending", "unknown");
const read = await client.GET("/v1/refunds/{operation_id}", { params: { path: { operation_id: `${pending}-1` } } });
must(read.data?.next_action === "wait_then_get" && read.data.retry_after_seconds !== null, "read the refund", read.data);

const declined = `${name}-declined`;
await approve(declined, "simulator");
await fault({ mode: "decline", count: 1 });
const decline = await refund(declined);
const problem: components["schemas"]["Problem"] | undefined = decline.error;
must(problem?.code === "refund_declined" && problem.money_moved === "no" && !problem.isRetryable, "decline", problem);

const nobody = await refund(`${name}-nobody`);
must(nobody.error?.code === "order_not_found" && nobody.error.next_action === "fix_request", "no order", nobody.error);

console.log("clients/typescript: register, approve, refund, replay, pending and decline decode");
