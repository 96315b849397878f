// A tool handler on fetch: it executes the refund that was approved in a case.

declare const process: { env: Record<string, string | undefined>; argv: string[] };

const url = process.env.REFUNDD_URL ?? "", key = process.env.REFUNDD_API_KEY ?? "";
const attempts = 3, deadline = 30_000, patience = 5_000; // requests that may refund; ms in all; ms for one answer

type Json = { [name: string]: any };

// What the model is told.
type Told = { status: string; money_moved: string; next_action: string; amount_cents?: number; currency?: string; code?: string };

// One exchange. status 0: no whole answer came, which says nothing of the refund.
async function ask(method: string, path: string, body?: Json, attempt = 1): Promise<{ status: number; answer: Json }> {
  const patient = new AbortController(), timer = setTimeout(() => patient.abort(), patience);
  try {
    const response = await fetch(url + path, {
      method,
      body: body && JSON.stringify(body),
      redirect: "error",
      signal: patient.signal,
      headers: {
        Authorization: "Bearer " + key, "Content-Type": "application/json",
        "Refund-Attempt-Layer": "tool_transport", "Refund-Attempt": String(attempt),
      },
    });
    return { status: response.status, answer: (await response.json()) as Json };
  } catch {
    return { status: 0, answer: {} };
  } finally {
    clearTimeout(timer);
  }
}

const sleep = (ms: number) => new Promise((done) => setTimeout(done, ms));

function told(a: Json, status: string = a.status): Told {
  const { money_moved, next_action, amount_cents, currency, code } = a;
  return { status, money_moved, next_action, amount_cents, currency, code };
}

const unknown = (code: string, next_action = "escalate_to_human"): Told => ({ status: "refused", money_moved: "unknown", next_action, code });

async function untilAnswered(path: string): Promise<{ status: number; answer: Json }> {
  for (let attempt = 1; attempt <= attempts; attempt++) {
    const said = await ask("GET", path, undefined, attempt);
    if (said.status !== 0 && (said.status < 500 || attempt === attempts)) return said;
    await sleep(500);
  }
  return { status: 0, answer: {} };
}

export async function refundCase(caseId: string): Promise<Told> {
  const found = await untilAnswered("/v1/authorizations?case_id=" + encodeURIComponent(caseId));
  if (found.status !== 200) return found.status ? told(found.answer, "refused") : unknown("service_unavailable");
  // None, or several: a person says which one is meant; never guess.
  if (found.answer.count !== 1) return unknown("ambiguous_case", "ask_for_identifier");
  const { operation_id, order_id, amount_cents } = found.answer.data[0];
  const end = Date.now() + deadline;
  let last: Json = {};
  for (let attempt = 1; attempt <= attempts; attempt++) {
    const { status, answer } = await ask("POST", "/v1/refunds", { operation_id, order_id, amount_cents }, attempt);
    // An earlier call moved the money, this one did, or it is not known yet.
    if (status === 200 || status === 201 || status === 202) return told(answer);
    if (status !== 0 && !answer.isRetryable) return told(answer, "refused");
    last = answer;
    if (status === 0) { // no answer is not "it did not happen": look it up before it is sent again
      const row = await ask("GET", "/v1/refunds/" + encodeURIComponent(operation_id));
      if (row.status === 200 && row.answer.state === "succeeded") return told(row.answer, "already_processed");
      if (row.status === 200 && ["reserved", "pending"].includes(row.answer.state)) return told(row.answer, "pending");
    }
    const backoff = Math.min(500 * 2 ** (attempt - 1), 8000) * (1 - 0.25 * Math.random());
    const wait = answer.retry_after_seconds ? answer.retry_after_seconds * 1000 : backoff;
    if (Date.now() + wait >= end) break;
    await sleep(wait);
  }
  return last.code ? told(last, "refused") : unknown("service_unavailable");
}

if (process.argv[2]) refundCase(process.argv[2]).then((answer) => console.log(JSON.stringify(answer)));
