// The track: who did what, in the order in which it happened, in four lanes.

import { html } from './vendor/preact-htm.js';
import { Money, State, When } from './parts.js';
import { errorKinds, layers, outcomes, stateName, why } from './words.js';

const lanes = [['attempt', 'Attempts'], ['provider', 'Provider'], ['money', 'Money'], ['person', 'People']];

const accounts = { merchant: 'the merchant', in_transit: 'the hold', customer: 'the customer' };
const moves = { refund: 'Paid', hold: 'Held', settle: 'Settled', release: 'Released', reversal: 'Came back' };

// who names what worked on it, by the layer that its caller labelled.
function who(e) {
  const by = { caller: 'a caller', reconciliation: 'reconciliation', operator: 'a look that was asked for' }[e.actor] ?? `a person (${e.actor})`;
  return e.layer ? `${by} (${layers[e.layer] ?? e.layer}${e.detail.refund_attempt ? `, its attempt ${e.detail.refund_attempt}` : ''})` : by;
}

const found = (e) => (e.error_kind ? errorKinds[e.error_kind] ?? e.error_kind : outcomes[e.detail.outcome] ?? e.detail.outcome ?? '–');

// shown is what a look brought: of a person's decision, the look before it.
function shown(word) {
  return errorKinds[word] ?? outcomes[word] ?? word;
}

// lastLook is the newest look at the provider's books, or null.
export const lastLook = (entries) => entries.findLast((e) => e.event?.kind === 'lookup') ?? null;

export const lookWords = (entry) => found(entry.event);

function Detail({ e }) {
  const d = e.detail;
  return html`${d.refunds_shown && html`<span class="fine">Shown: ${d.refunds_shown}</span>`}
    ${d.decline_code && html`<span class="fine">${why(d.decline_code)}</span>`}
    ${d.stale && html`<span class="fine">It came too late to say anything.</span>`}
    ${e.provider_request_id && html`<span class="fine">request <code>${e.provider_request_id}</code></span>`}
    ${d.diagnostic_ref && html`<span class="fine">reference <code>${d.diagnostic_ref}</code></span>`}`;
}

// event is where an event stands on the track, and what it says.
function event(e) {
  switch (e.kind) {
    case 'refund': return ['provider', html`<strong>Asked to pay</strong> by ${who(e)}: ${found(e)}.<${Detail} e=${e} />`];
    case 'lookup': return ['provider', html`<strong>Looked up</strong> by ${who(e)}: ${found(e)}.<${Detail} e=${e} />`];
    case 'human': return ['person', html`<strong>Decided: ${outcomes[e.detail.outcome] ?? e.detail.outcome}</strong> by ${e.detail.resolved_by ?? 'a person'} (key ${e.actor})${e.detail.override ? ', overriding' : ''}.
      <blockquote>${e.detail.evidence}</blockquote>
      ${e.detail.claimed_provider_refund_id && html`<span class="fine">claimed refund <code>${e.detail.claimed_provider_refund_id}</code></span>`}
      ${e.detail.provider_shows && html`<span class="fine">The look before it: ${shown(e.detail.provider_shows)}.</span>`}
      ${e.detail.stale && html`<span class="fine">It came too late and changed nothing.</span>`}`];
    case 'transition': return ['attempt', html`${e.from_state ? '' : html`<strong>Asked for</strong> by ${who(e)}: `}<${State} state=${e.to_state} />${e.from_state && html` after ${stateName(e.from_state).toLowerCase()}, by ${who(e)}`}.${e.detail.failure_code && html`<span class="fine">${why(e.detail.failure_code)}</span>`}
      ${e.detail.diagnostic_ref && html`<span class="fine">reference <code>${e.detail.diagnostic_ref}</code></span>`}`];
    default: return ['attempt', html`<strong>${e.kind}</strong> by ${who(e)}.`];
  }
}

function transfer(t) {
  return ['money', html`<strong>${moves[t.kind] ?? t.kind}:</strong> <${Money} cents=${t.amount_cents} currency=${t.currency} />
    ${' '}from ${accounts[t.debit_account] ?? t.debit_account} to ${accounts[t.credit_account] ?? t.credit_account}.`];
}

// rank orders what one transaction did as a person tells it: what was learned, the money, the state that follows.
const rank = ({ transfer: t, event: e }) => (t ? 1 : e.kind === 'transition' && e.from_state ? 2 : 0);

export function Track({ entries, approval }) {
  const told = [...entries].sort((a, b) => (a.at === b.at ? rank(a) - rank(b) : a.at < b.at ? -1 : 1));
  const stations = told.map((x) => [x.at, ...(x.transfer ? transfer(x.transfer) : event(x.event))]);
  if (approval) {
    stations.unshift([approval.created_at, 'person', html`<strong>Approved</strong> by ${approval.approved_by} in case <span class="id">${approval.case_id}</span>${approval.reason ? html`: ${approval.reason}` : '.'}`]);
  }
  return html`<div class="lanes" aria-hidden="true">${lanes.map(([lane, name]) => html`<span key=${lane}>${name}</span>`)}</div>
    <ol class="track">${stations.map(([at, lane, says], i) => html`<li key=${i} class=${lane}>
      <div class="station"><span class="lane">${lanes.find(([l]) => l === lane)[1]}</span><p>${says}</p><p class="fine"><${When} at=${at} /></p></div></li>`)}</ol>`;
}
