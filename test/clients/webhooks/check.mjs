// Two receivers, one with the library of npm and one with that of Go, both of other people's making, are told what becomes of
// refunds; one secret is rotated meanwhile.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Webhook } from "standardwebhooks";

const { URL: url, KEY, SIMULATOR, RECEIVE } = process.env;

async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${KEY}`, ...(body && { "Content-Type": "application/json" }) };
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

async function until(what, holds) {
  for (const began = Date.now(); !holds(); ) {
    assert.ok(Date.now() - began < 30_000, `${what} did not happen`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

// The npm library's receiver verifies by the secrets that it has, and notes which ones did.
const secrets = [];
const npm = [];
const server = createServer(async (req, res) => {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  const by = [];
  let event;
  for (const secret of secrets) {
    try {
      event = new Webhook(secret).verify(body, req.headers);
      by.push(secret);
    } catch (fault) {
      console.log("npm: not by this secret:", fault.message);
    }
  }
  assert.equal(event?.event_id, req.headers["webhook-id"]);
  npm.push({ told: `${event.data.operation_id} ${event.type}`, by });
  res.writeHead(204).end();
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));

const golang = [];
const receiver = spawn(RECEIVE, { stdio: ["pipe", "pipe", "inherit"] });
createInterface({ input: receiver.stdout }).on("line", (line) => golang.push(line));
await until("start of the Go receiver", () => golang.length > 0);
const goURL = golang.shift();

const endpoint = await call("POST", "/v1/webhook-endpoints", { url: `http://127.0.0.1:${server.address().port}/hooks` });
secrets.push(endpoint.secret);
receiver.stdin.write((await call("POST", "/v1/webhook-endpoints", { url: goURL })).secret + "\n");

const stamp = Date.now();
async function refund(name, provider) {
  const operation_id = `${name}-${stamp}`;
  const order_id = `order-${operation_id}`;
  await call("PUT", `/v1/orders/${order_id}`, {
    currency: "EUR", captured_cents: 5000, ...(provider && { provider, provider_payment_ref: order_id }),
  });
  await call("PUT", `/v1/authorizations/${operation_id}`, { case_id: operation_id, order_id, amount_cents: 5000, approved_by: "ada" });
  await call("POST", "/v1/refunds", { operation_id, order_id, amount_cents: 5000, metadata: { note: "für Zoë \u202e" } });
  return operation_id;
}

const ledger = await refund("ledger");
await fetch(`${SIMULATOR}/_faults`, { method: "POST", body: JSON.stringify({ mode: "pending", count: 1, delay_ms: 100 }) });
const provider = await refund("provider", "simulator");
await until("pending", () => npm.some((m) => m.told === `${provider} refund.pending`));
secrets.push((await call("POST", `/v1/webhook-endpoints/${endpoint.endpoint_id}/rotate`, { overlap_seconds: 3600 })).secret);
await until("success", () => {
  call("POST", `/v1/refunds/${provider}/reconcile`).catch(() => {});
  return npm.some((m) => m.told === `${provider} refund.succeeded`);
});

const want = [`${ledger} refund.succeeded`, `${provider} refund.pending`, `${provider} refund.succeeded`];
await until("Go receiver's messages", () => golang.length >= want.length);
assert.deepEqual([...new Set(golang)].sort(), want.toSorted());
assert.deepEqual([...new Set(npm.map((m) => m.told))].sort(), want.toSorted());
for (const m of npm) assert.equal(m.by.length, m.told.endsWith(`${provider} refund.succeeded`) ? 2 : 1, JSON.stringify(m));
console.log(`webhooks: ${npm.length} messages verified by standardwebhooks of npm, ${golang.length} by that of Go`);
receiver.kill();
server.close();
