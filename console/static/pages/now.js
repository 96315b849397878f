// Now: what waits, for how long, and how much of it.

import { html, useEffect, useRef } from '../vendor/preact-htm.js';
import { announce, usePages, useRead } from '../hooks.js';
import { Chart } from '../charts.js';
import { count } from '../format.js';
import { now } from '../session.js';
import { Age, Id, Money, Pager, Read, State, Table, Title, When, to } from '../parts.js';
import { why } from '../words.js';

const POLL = 700; // what is new is shown within a second
const SLOW = 15_000;
const HOUR = 3_600_000;

const waiting = ['needs_attention', 'reserved', 'pending'];

// marks tells whether totals say something new.
const marks = (totals, state) => JSON.stringify((totals?.data ?? []).filter((t) => t.state === state).map(
  (t) => [t.currency, t.count, String(t.amount_cents), t.oldest_created_at]));

export function Now() {
  const open = useRead('/v1/refund-totals/open', POLL);
  const heard = useRef(null);
  useEffect(() => {
    const n = (open.data?.data ?? []).filter((t) => t.state === 'needs_attention').reduce((sum, t) => sum + t.count, 0);
    if (open.data && heard.current !== null && n !== heard.current) announce(`${count(n, 'refund waits', 'refunds wait')} for a person.`);
    if (open.data) heard.current = n;
  }, [open.data]);
  return html`<${Title}>Now<//>
    <section aria-labelledby="totals"><h2 id="totals">Not finished</h2>
      <${Read} of=${open} empty="No refund waits: every one is paid back or ended otherwise.">${(t) => html`<${Totals} totals=${t} />`}<//>
    </section>
    <${Waiting} state="needs_attention" title="Waits for a person" totals=${open.data} empty="Nothing waits for a person." />
    <${Waiting} state="reserved" title="Outcome unknown" totals=${open.data} empty="No outcome is unknown."
      note="refundd looks these up by itself. One that stays here for hours is worth a look." />
    <${Waiting} state="pending" title="Accepted by the provider, not final" totals=${open.data} quiet />
    <div class="pair"><${Queues} /><${Jobs} /></div>
    <${Charts} />`;
}

function Totals({ totals }) {
  const rows = waiting.flatMap((state) => totals.data.filter((t) => t.state === state));
  return html`<ul class="tiles">${rows.map((t) => html`<li key=${t.state + t.currency} class=${t.state} data-total=${`${t.state} ${t.currency} ${t.count}`}>
      <${State} state=${t.state} /><strong>${count(t.count, 'refund')}</strong>
      <span><${Money} cents=${t.amount_cents} currency=${t.currency} /></span>
      <span class="fine">oldest <${Age} since=${t.oldest_created_at} /></span></li>`)}</ul>
    ${!totals.complete && html`<p class="fine">There are more than are counted here.</p>`}`;
}

// Waiting is the list of one state, read anew when its total changed.
function Waiting({ state, title, totals, empty, note, quiet }) {
  const pages = usePages(`/v1/refunds?state=${state}&limit=25`, SLOW);
  const mark = marks(totals, state);
  useEffect(() => { if (totals) pages.again(); }, [mark]);
  if (quiet && !pages.data?.data.length) return null;
  return html`<section aria-labelledby=${state}><h2 id=${state}>${title}</h2>
    ${note && pages.data?.data.length > 0 && html`<p class="fine">${note}</p>`}
    <${Read} of=${pages} empty=${empty}>${(page) => html`
      <${Table} caption=${{ text: `${title}, newest first`, hidden: true }} id=${(r) => r.operation_id} rows=${page.data} columns=${[
        ['Operation', (r) => html`<${Id} page="operation" id=${r.operation_id} />`],
        ['Amount', (r) => html`<${Money} cents=${r.amount_cents} currency=${r.currency} />`, 'number'],
        ['Order', (r) => html`<${Id} page="order" id=${r.order_id} />`],
        ...(state === 'needs_attention' ? [['Why', (r) => why(r.failure_code), 'words']] : [['Provider', (r) => r.provider]]),
        ['Since', (r) => html`<${When} at=${r.created_at} />`],
      ]} />
      <${Pager} pages=${pages} label=${title} />`}<//></section>`;
}

// Queues are the open escalations, by queue.
function Queues() {
  const open = useRead('/v1/escalations?state=open&sort=due_at&limit=100', SLOW / 3);
  return html`<section aria-labelledby="queues"><h2 id="queues">Open escalations</h2>
    <${Read} of=${open} empty="No case is open.">${(page) => html`
      <${Table} caption=${{ text: 'Open cases by queue', hidden: true }} id=${(q) => q.queue} rows=${byQueue(page.data)} columns=${[
        ['Queue', (q) => html`<a href=${to('escalations', q.queue)}>${q.queue}</a>`],
        ['Open', (q) => q.cases, 'number'],
        ['Overdue', (q) => (q.overdue ? html`<span class="late">${q.overdue}</span>` : '0'), 'number'],
        ['Next due', (q) => html`<${Due} at=${q.due} />`],
      ]} />
      ${page.next_cursor && html`<p class="fine">Counted among the 100 that are due first; there are more.</p>`}`}<//></section>`;
}

export function Due({ at, within }) {
  const late = Date.parse(at) < now();
  return html`${late && html`<span class="late">overdue by <${Age} since=${at} /></span>, `}<${When} at=${at} age=${false} within=${within} />`;
}

function byQueue(cases) {
  const queues = new Map();
  for (const c of cases) {
    const q = queues.get(c.queue) ?? { queue: c.queue, cases: 0, overdue: 0, due: c.due_at };
    q.cases += 1;
    q.overdue += c.overdue ? 1 : 0;
    if (c.due_at < q.due) q.due = c.due_at;
    queues.set(c.queue, q);
  }
  return [...queues.values()].sort((a, b) => (a.due < b.due ? -1 : 1));
}

function Jobs() {
  const runs = useRead('/v1/reconciliation-runs?limit=20', SLOW);
  const audits = useRead('/v1/audits?limit=1', SLOW);
  return html`<section aria-labelledby="jobs"><h2 id="jobs">The books</h2>
    <${Read} of=${runs}>${(page) => html`<${LastRun} runs=${page.data.filter((r) => !r.dry_run)} />`}<//>
    <${Read} of=${audits}>${({ data: [last] }) => (last
      ? html`<p>Audited <${When} at=${last.finished_at} within />: ${last.lies === 0 ? 'they balance.'
        : html`<strong class="late">${count(last.lies, 'contradiction')}.</strong> <code>refundd audit</code> names them.`}</p>`
      : html`<p>Never audited. <code>refundd audit</code> proves them.</p>`)}<//>
    <p><a href="#/reconciliation">All runs and audits</a></p></section>`;
}

function LastRun({ runs }) {
  const good = runs.find((r) => r.result === 'success');
  const last = runs.find((r) => r.result !== 'unfinished');
  if (!last) return html`<p>Reconciliation never ran here. Unknown outcomes stay unknown until it does: <code>refundd reconcile</code>.</p>`;
  return html`<p>Last good reconciliation: ${good ? html`<${When} at=${good.finished_at} within />` : html`<span class="late">none of the last ${runs.length}</span>`}.</p>
    ${last.result === 'failed' && html`<p class="late">The last run at <${When} at=${last.finished_at} within /> could not do all that was due.</p>`}`;
}

// Charts are the last day by state, and how many outcomes each run left unknown.
function Charts() {
  const until = useRef(new Date(Math.floor(now() / HOUR + 1) * HOUR));
  const from = new Date(until.current - 24 * HOUR);
  const day = useRead(`/v1/refund-totals?unit=hour&created_after=${from.toISOString()}&created_before=${until.current.toISOString()}`, 4 * SLOW);
  const runs = useRead('/v1/reconciliation-runs?limit=100', 4 * SLOW);
  const states = ['succeeded', 'failed', 'pending', 'reserved', 'needs_attention'];
  return html`<div class="pair">
    <section aria-labelledby="day"><h2 id="day">Refunds of the last 24 hours, by state now</h2>
      <${Read} of=${day} empty="No refund was created in the last 24 hours.">${(t) => {
        const hours = Array.from({ length: 24 }, (_, i) => from.getTime() + i * HOUR);
        const series = states.map((state) => ({
          name: state, values: hours.map((h) => t.data.filter((b) => b.state === state && Date.parse(b.bucket) === h).reduce((n, b) => n + b.count, 0)),
        })).filter((s) => s.values.some(Boolean));
        return html`<${Chart} label="Refunds by hour and state" times=${hours} series=${series} bars=${HOUR / 1000} />
          ${!t.complete && html`<p class="fine">Counted since <${When} at=${t.counted_since} within />: there are more than one answer may read.</p>`}`;
      }}<//></section>
    <section aria-labelledby="unknowns"><h2 id="unknowns">Unknown outcomes that each run left</h2>
      <${Read} of=${runs} empty="No run yet.">${(page) => {
        const done = page.data.filter((r) => r.finished_at && !r.dry_run).reverse();
        return done.length ? html`<${Chart} label="Unknown outcomes after each run, of the whole service" times=${done.map((r) => Date.parse(r.finished_at))}
          series=${[{ name: 'reserved', title: 'unknown', values: done.map((r) => r.still_unknown) }, { name: 'needs_attention', title: 'put in front of a person', values: done.map((r) => r.needs_attention) }]} />`
          : html`<p class="none">No run yet.</p>`;
      }}<//></section></div>`;
}
