// The key, and the one way to the API. The key stays in this tab's sessionStorage and leaves it as a bearer token alone.

const KEY = 'refundd.key';
const NAME = 'refundd.name';

// session is what every part of the page shares; who changes it tells the listeners.
export const session = { key: stored(KEY), me: null, expired: false, down: null, clock: 0 };

const listeners = new Set();

export function listen(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}

function changed(members) {
  const differ = Object.keys(members).some((m) => session[m] !== members[m]);
  Object.assign(session, members);
  if (differ) for (const f of [...listeners]) f();
}

function stored(name) {
  try { return sessionStorage.getItem(name) ?? ''; } catch { return ''; }
}

function keep(name, value) {
  try {
    if (value) sessionStorage.setItem(name, value);
    else sessionStorage.removeItem(name);
  } catch { /* a browser that stores nothing asks again after a reload */ }
}

// yourName is what a decision is signed with beside the key; typed once a tab.
export const yourName = { get: () => stored(NAME), set: (name) => keep(NAME, name) };

// Failure is an answer that is none: the API's problem, or that nothing answered.
export class Failure extends Error {
  constructor(problem) {
    super(problem.code);
    this.problem = problem;
  }

  // passing reports whether the same may be asked again later.
  get passing() { return [0, 409, 429, 500, 502, 503, 504].includes(this.problem.status); }

  // down reports whether the service itself is not there, not just this answer.
  get down() { return ['unreachable', 'no_problem', 'database_unavailable', 'overloaded'].includes(this.problem.code) && ![401, 403, 404].includes(this.problem.status); }
}

// exact keeps integers that a number of JavaScript's would round.
function exact(_, value, context) {
  if (typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? '')) return BigInt(context.source);
  return value;
}

function failed(status, text, retryAfter) {
  let problem = { status, code: status ? 'no_problem' : 'unreachable', title: '', detail: '' };
  try { problem = { ...problem, ...JSON.parse(text) }; } catch { /* a proxy's page */ }
  return new Failure({ ...problem, status, wait: problem.retry_after_seconds ?? (Number(retryAfter) || 0) });
}

// call asks the API. Every read goes to the service: nothing is taken from a cache.
export async function call(method, path, body, key = session.key) {
  const headers = { accept: 'application/json', authorization: `Bearer ${key}` };
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response;
  let text;
  try {
    response = await fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store', credentials: 'omit', redirect: 'error', signal: AbortSignal.timeout(40_000),
    });
    text = await response.text();
  } catch {
    changed({ down: session.down ?? Date.now() });
    throw failed(0, '');
  }
  const told = Date.parse(response.headers.get('date'));
  if (!Number.isNaN(told)) session.clock = told - Date.now();
  const failure = response.ok ? null : failed(response.status, text, response.headers.get('retry-after'));
  changed({ down: failure?.down ? session.down ?? Date.now() : null });
  if (failure?.problem.status === 401 && key === session.key) changed({ expired: true });
  if (failure) throw failure;
  return JSON.parse(text, exact);
}

// signIn takes a key once the API knows it. What is open stays as it is, unless the key is another tenant's.
export async function signIn(key) {
  const me = await call('GET', '/v1/me', undefined, key);
  keep(KEY, key);
  changed({ key, me, expired: false });
}

export function signOut() {
  keep(KEY, '');
  changed({ key: '', me: null, expired: false });
}

// may reports whether the key has a scope. What it may not do is not offered; the API decides all the same.
export const may = (scope) => session.me?.scopes.includes(scope) ?? false;

// now is the service's time, as its last answer told it.
export const now = () => Date.now() + session.clock;
