// Escalations: the cases that wait for people, by queue; take one, approve or decline it.

import { html, useState } from '../vendor/preact-htm.js';
import { announce, useAction, usePages, useRead } from '../hooks.js';
import { call, may, session, yourName } from '../session.js';
import { Field, Id, Money, Pager, Read, Title, Told, When, to, useOld } from '../parts.js';
import { triggers, why } from '../words.js';
import { Due } from './now.js';

const WRITE = 'authorizations:write';
const subjects = { request: 'A refund was asked for', operation: 'A refund waits for a decision', handoff: 'A conversation was handed over' };

export default function Escalations({ about: [queue = ''] }) {
  const [state, setState] = useState('open');
  const query = new URLSearchParams({ limit: '100', ...(state && { state }), ...(state === 'open' && { sort: 'due_at' }), ...(queue && { queue }) });
  const pages = usePages(`/v1/escalations?${query}`, 5000);
  return html`<${Title} id=${queue}>Escalations${queue && html`: <span class="id">${queue}</span>`}<//>
    <div class="row"><div class="field"><label for="state">Show</label>
      <select id="state" value=${state} onChange=${(e) => setState(e.target.value)}>
        ${[['open', 'Open'], ['approved', 'Approved'], ['declined', 'Declined'], ['closed', 'Closed by themselves'], ['', 'All']].map(([v, name]) => html`<option key=${v} value=${v}>${name}</option>`)}
      </select></div>
      ${queue && html`<p><a href="#/escalations">All queues</a></p>`}</div>
    <${Read} of=${pages} empty="No such case.">${(page) => html`
      <ul class="cards">${page.data.map((c) => html`<${Case} key=${c.escalation_id} of=${c} done=${pages.again} />`)}</ul>
      <${Pager} pages=${pages} label="escalations" />`}<//>`;
}

// about says what brought the case here.
const about = (c) => (c.subject === 'operation' && why(c.evidence.cause)) || (triggers[c.trigger] ?? c.trigger);

// subject is what the case speaks of.
const subject = (c) => [
  c.amount_cents !== null && html`<${Money} cents=${c.amount_cents} currency=${c.currency} />`,
  c.order_id && html`order <${Id} page="order" id=${c.order_id} />`,
  c.case_id && html`case <a class="id" href=${to('authorizations', c.case_id)}>${c.case_id}</a>`,
  c.operation_id && html`operation <${Id} page="operation" id=${c.operation_id} />`,
].filter(Boolean);

function Case({ of: c, done }) {
  return html`<li class=${`card ${c.overdue ? 'overdue' : ''}`}>
    <h2>${subjects[c.subject] ?? c.subject}: ${about(c)}</h2>
    <p>${subject(c).map((part, i) => html`${i > 0 && ', '}${part}`)}</p>
    ${c.summary && html`<blockquote>${c.summary}</blockquote>`}
    <p>Queue <a href=${to('escalations', c.queue)}>${c.queue}</a>, opened <${When} at=${c.created_at} within />.
      ${' '}${c.state === 'open' ? html`${c.owner ? html`<strong>${c.owner}</strong> looks at it.` : html`<strong>Nobody has taken it.</strong>`} Due: <${Due} at=${c.due_at} within />.`
        : html`<strong>${c.state}</strong> by ${c.decided_by ?? c.closed_by}, <${When} at=${c.closed_at} within />.${c.note && html` <q>${c.note}</q>`}`}</p>
    <details><summary>Evidence and policy</summary><dl>
      <div><dt>Reason given</dt><dd>${c.reason_code ?? '–'}</dd></div>
      <div><dt>Rule</dt><dd>${c.rule ?? 'none'} of policy ${c.policy_version}</dd></div>
      ${Object.entries(c.evidence).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="id">${typeof value === 'string' ? value : JSON.stringify(value)}</dd></div>`)}
    </dl></details>
    ${c.state === 'open' && html`<${Acts} of=${c} done=${done} />`}
  </li>`;
}

// Acts are what the key may do about an open case. One about an operation ends with its operation.
function Acts({ of: c, done }) {
  const [name, setName] = useState(yourName.get());
  const [asking, ask] = useState('');
  const old = useOld();
  const act = useAction(async (verb, body, says) => {
    yourName.set(name.trim());
    try {
      await call('POST', `/v1/escalations/${c.escalation_id}/${verb}`, body);
      announce(says);
    } finally { done(); }
  });
  if (!may(WRITE)) return html`<p class="none">Your key may read this and not decide it: that takes the scope <code>authorizations:write</code>.</p>`;
  const own = c.opened_by === session.me.key_id;
  const busy = act.busy || old;
  return html`<form onSubmit=${(e) => e.preventDefault()}>
    <${Field} label="Your name" name=${`name-${c.escalation_id}`} value=${name} onInput=${setName} maxlength="255"
      hint="Needed to take it: the others then see who looks at it." />
    <p class="acts">
      <button type="button" disabled=${busy || !name.trim()} onClick=${() => act.run('take', { owner: name.trim() }, 'You have it.')}>${c.owner ? 'Take it over' : 'Take it'}</button>
      ${c.subject === 'request' && !own && html`<button type="button" aria-expanded=${asking === 'approve'} onClick=${() => ask('approve')}>Approve…</button>`}
      ${c.subject !== 'operation' && html`<button type="button" aria-expanded=${asking === 'decline'} onClick=${() => ask('decline')}>${c.subject === 'handoff' ? 'Close…' : 'Decline…'}</button>`}
      ${c.subject === 'operation' && html`<a class="button" href=${to('operation', c.operation_id)}>Decide the operation</a>`}
    </p>
    ${own && c.subject === 'request' && html`<p class="fine">Your own key asked for this: somebody else’s approves it.</p>`}
    ${asking ? html`<${Verdict} of=${c} verb=${asking} act=${act} busy=${busy} name=${name} leave=${() => ask('')} />` : html`<${Told} failure=${act.failure} />`}
  </form>`;
}

// Verdict says what the decision does, and what is left of the order, before it is made.
function Verdict({ of: c, verb, act, busy, name, leave }) {
  const [note, setNote] = useState('');
  const order = useRead(verb === 'approve' && `/v1/orders/${encodeURIComponent(c.order_id)}`, 5000);
  const short = verb === 'approve' && order.data && order.data.refundable_cents < c.amount_cents;
  const verdict = { ...(name.trim() && { decided_by: name.trim() }), ...(note.trim() && { note: note.trim() }) };
  return html`<fieldset class="verdict"><legend>${verb === 'approve' ? 'Approve it?' : c.subject === 'handoff' ? 'Close it without a refund?' : 'Decline it?'}</legend>
    ${verb === 'approve' ? html`<div><p>The refund may then be executed, once, by whoever asked for it. This moves no money yet, and can be withdrawn until then.</p>
      <${Read} of=${order}>${(o) => html`<p>The order can still give back <strong><${Money} cents=${o.refundable_cents} currency=${o.currency} /></strong> of <${Money} cents=${o.captured_cents} currency=${o.currency} />.
        ${short && html` <strong class="late">That is less than this: it cannot be approved.</strong>`}</p>`}<//></div>`
    : html`<p>The case ends for good, and nothing is refunded by it.</p>`}
    <${Field} label="Note" name=${`note-${c.escalation_id}`} value=${note} onInput=${setNote} maxlength="1000" />
    <${Told} failure=${act.failure} />
    <p class="acts">
      ${verb === 'approve' ? html`<button type="button" class="main" disabled=${busy || short || !order.data} onClick=${() => act.run('approve', verdict, 'Approved.')}>Approve <${Money} cents=${c.amount_cents} currency=${c.currency} /></button>`
    : html`<button type="button" class="danger" disabled=${busy} onClick=${() => act.run('decline', verdict, 'Declined.')}>${c.subject === 'handoff' ? 'Close without a refund' : 'Decline'}</button>`}
      <button type="button" onClick=${leave}>Not now</button>
    </p></fieldset>`;
}
