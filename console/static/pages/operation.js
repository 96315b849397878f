// Operation: one refund, its money as one sentence, what happened in which order, and the decision where one is due.

import { html, useEffect, useRef } from '../vendor/preact-htm.js';
import { announce, useAction, usePages, useRead } from '../hooks.js';
import { call, may } from '../session.js';
import { Id, Money, Pager, Read, State, Title, Told, When, to, useOld } from '../parts.js';
import { Decision } from '../decision.js';
import { Track, lastLook } from '../track.js';
import { advice, stateName, why } from '../words.js';

const POLL = 2000;

export default function Operation({ about: [id = ''] }) {
  const path = `/v1/refunds/${encodeURIComponent(id)}`;
  const refund = useRead(path, POLL);
  const approval = useRead(`/v1/authorizations/${encodeURIComponent(id)}`);
  const events = usePages(`${path}/events?limit=100`);
  const state = refund.data?.state;
  const heard = useRef(null);
  const changed = () => { refund.again(); events.again(); };
  useEffect(() => {
    if (state && heard.current && heard.current !== state) announce(`The refund is now: ${stateName(state)}.`);
    if (state) heard.current = state;
    events.again();
  }, [state, refund.data?.settled_at]);
  const absent = refund.failure?.problem.code === 'refund_not_found';
  return html`<${Title} id=${id}>Operation <span class="id">${id}</span><//>
    ${absent && approval.data ? html`<${Unexecuted} approval=${approval.data} />` : html`<${Read} of=${refund}>${(r) => html`
      <${Sentence} refund=${r} />
      <div class="acts"><${Look} refund=${r} path=${path} done=${changed} /></div>
      <${Decision} refund=${r} path=${path} look=${lastLook(events.data?.data ?? [])} done=${changed} />
      <${Facts} refund=${r} approval=${approval} />`}<//>`}
    ${!absent && html`<section aria-labelledby="track"><h2 id="track">What happened, oldest first</h2>
      <${Read} of=${events}>${(page) => html`<${Track} entries=${page.data} approval=${events.number === 1 ? approval.data : null} />
        <${Later} pages=${events} />`}<//></section>`}`;
}

// Later turns the pages of a list that begins with what is oldest.
const Later = ({ pages }) => html`<${Pager} pages=${{ ...pages, names: ['Earlier', 'Later'] }} label="the timeline" />`;

function Unexecuted({ approval: a }) {
  return html`<p class="sentence">${a.state === 'revoked' ? html`The approval of <${Money} cents=${a.amount_cents} currency=${a.currency} /> was withdrawn: it will never be paid under this id.`
    : html`<${Money} cents=${a.amount_cents} currency=${a.currency} /> of order <${Id} page="order" id=${a.order_id} /> are approved and were not asked for yet. No money moved.`}</p>
    <p><a href=${to('authorizations', a.case_id)}>Its case, ${a.case_id}</a></p>`;
}

// Sentence is the operation's money in one sentence, and why.
function Sentence({ refund: r }) {
  const amount = html`<${Money} cents=${r.amount_cents} currency=${r.currency} />`;
  const order = html`order <${Id} page="order" id=${r.order_id} />`;
  const said = {
    succeeded: html`${amount} of ${order} went back to the customer.`,
    reserved: html`${amount} of ${order} are held; whether the provider paid them is not known yet.`,
    pending: html`${amount} of ${order} are held: the provider accepted the refund, and its last word is to come.`,
    needs_attention: r.failure_code === 'over_refund'
      ? html`The provider paid ${amount} of ${order} beyond what was captured, and a person has to close it.`
      : html`${amount} of ${order} are held; whether they were paid is not known, and a person has to find out.`,
    failed: html`${amount} of ${order} did not go to the customer. ${r.failure_code === 'late_failure' ? 'They had, and came back.' : ''}`,
  }[r.state];
  return html`<div class=${`sentence ${r.state}`} data-state=${r.state}>
    <p><${State} state=${r.state} /> ${said}</p>
    ${r.failure_code && html`<p>${why(r.failure_code)}</p>`}
    ${r.state === 'needs_attention' && advice(r.failure_code) && html`<p><strong>What to do:</strong> ${advice(r.failure_code)}</p>`}
    ${['reserved', 'pending'].includes(r.state) && html`<p><strong>Nothing has to be decided.</strong> Reconciliation finds out by itself each time it runs, or look now. Whatever happens, it is never paid twice.</p>`}
  </div>`;
}

// Look has the provider's books read now. The API does that; whatever they show, only proof changes anything.
function Look({ refund, path, done }) {
  const old = useOld();
  const look = useAction(async () => {
    const r = await call('POST', `${path}/reconcile`, {});
    announce(`The provider was asked. The refund is now: ${stateName(r.state)}.`);
    done();
  });
  if (refund.provider === 'ledger' || !may('refunds:write')) return null;
  return html`<button type="button" id="look" disabled=${look.busy || old} onClick=${() => look.run()}>${look.busy ? 'Asking the provider…' : 'Look at the provider now'}</button>
    <${Told} failure=${look.failure} />`;
}

function Facts({ refund: r, approval }) {
  const a = approval.data;
  const rows = [
    ['Refund', html`<span class="id">${r.refund_id}</span>`],
    ['Created', html`<${When} at=${r.created_at} />`],
    ['Ended', html`<${When} at=${r.settled_at} />`],
    ['Provider', r.provider === 'ledger' ? 'none: refundd’s own books are all there is' : r.provider],
    ['Refund at the provider', r.provider_refund_id ? html`<span class="id">${r.provider_refund_id}</span>` : '–'],
    ['Reason', r.reason ?? a?.reason ?? '–'],
    ['Approved', a ? html`by ${a.approved_by}, case <a class="id" href=${to('authorizations', a.case_id)}>${a.case_id}</a>` : approval.failure?.problem.status === 404 ? 'no approval was needed' : '–'],
    ...Object.entries(r.metadata).map(([name, value]) => [name, value]),
  ];
  return html`<section aria-labelledby="facts"><h2 id="facts">Facts</h2>
    <dl>${rows.map(([name, value], i) => html`<div key=${i}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl></section>`;
}
