// The decision: a person's word on a refund that waits, with evidence. The API looks at the provider first and refuses what
// that contradicts; the page only says beforehand what each choice does.

import { html, useState } from './vendor/preact-htm.js';
import { announce, useAction } from './hooks.js';
import { call, may, yourName } from './session.js';
import { Field, Money, Told, When, useOld } from './parts.js';
import { lookWords } from './track.js';
import { stateName } from './words.js';

// An override helps where the books cannot be read, may lag, or contradict themselves; never against what they show.
const overridable = (failure, refund) => failure && (['provider_unavailable', 'operation_in_progress'].includes(failure.problem.code)
  || (failure.problem.code === 'provider_disagrees' && refund.failure_code === 'provider_contradictory'));

function Choice({ outcome, chosen, choose, title, children }) {
  return html`<div class=${`choice ${outcome}`}>
    <input type="radio" id=${`choose-${outcome}`} name="outcome" value=${outcome} checked=${chosen === outcome} onChange=${() => choose(outcome)} aria-describedby=${`does-${outcome}`} />
    <label for=${`choose-${outcome}`}>${title}</label>
    <p id=${`does-${outcome}`}>${children}</p>
  </div>`;
}

export function Decision({ refund: r, path, look, done }) {
  const [form, set] = useState({ outcome: '', evidence: '', claim: '', name: yourName.get(), override: false });
  const fill = (member) => (value) => set((f) => ({ ...f, [member]: value }));
  const old = useOld();
  const decide = useAction(async () => {
    const body = { outcome: form.outcome, evidence: form.evidence };
    if (form.claim.trim()) body.provider_refund_id = form.claim.trim();
    if (form.name.trim()) body.resolved_by = form.name.trim();
    if (form.override) body.override = true;
    yourName.set(form.name.trim());
    try {
      const now = await call('POST', `${path}/resolve`, body);
      announce(`Decided. The refund is now: ${stateName(now.state)}.`);
    } finally {
      done();
    }
  });
  const told = html`<${Told} failure=${decide.failure} />`;
  if (r.state !== 'needs_attention') return decide.failure ? told : null;
  if (!may('refunds:resolve')) return html`<p class="none">Your key may read this and not decide it: that takes the scope <code>refunds:resolve</code>.</p>`;
  const amount = html`<${Money} cents=${r.amount_cents} currency=${r.currency} />`;
  const offer = form.override || overridable(decide.failure, r);
  return html`<section aria-labelledby="decide" class="decision"><h2 id="decide">Decide</h2>
    <p>${look ? html`When the provider was last asked, <${When} at=${look.at} within />: <strong>${lookWords(look)}</strong>. It is asked once more before your decision counts, and what its books contradict is refused.`
      : 'The provider is asked once more before your decision counts, and what its books contradict is refused.'}</p>
    <form onSubmit=${(e) => { e.preventDefault(); decide.run(); }}>
      <fieldset><legend>What became of the money?</legend>
        <${Choice} outcome="succeeded" chosen=${form.outcome} choose=${fill('outcome')} title="Paid">
          ${r.failure_code === 'over_refund' ? html`The books count ${amount} as gone to the customer, beyond what was captured. Nothing is sent. The excess
          stays on the order, and no further refund of it is executed.`
    : html`The books say that ${amount} went to the customer, and the hold ends. Nothing is sent. Had it not been paid, the customer would
          go without: refundd never sends this refund again.`}<//>
        <${Choice} outcome="failed" chosen=${form.outcome} choose=${fill('outcome')} title="Not paid">
          ${look?.event.detail.outcome === 'succeeded' && html`<strong>The provider showed it as paid: refused unless its books say otherwise by now.</strong> `}
          The hold ends${r.failure_code !== 'over_refund' && html` and ${amount} can be refunded again, by a new approval`}. Nothing is sent. Had it been paid after all, the next
          refund would pay the customer twice.<//>
      </fieldset>
      <${Field} label="How do you know?" name="evidence" area rows="3" required maxlength="4000" value=${form.evidence} onInput=${fill('evidence')}
        hint="The ticket, who confirmed it, what you saw. It stays in the timeline for good." />
      <div class="row">
        <${Field} label="Your name" name="name" value=${form.name} onInput=${fill('name')} maxlength="255" hint="Stands beside the key." />
        <${Field} label="The provider’s id of the refund, if you know it" name="claim" value=${form.claim} onInput=${fill('claim')} maxlength="255" hint="Kept as what you say; it proves nothing." />
      </div>
      ${told}
      ${offer && html`<div class="override"><input type="checkbox" id="override" checked=${form.override} onChange=${(e) => fill('override')(e.target.checked)} aria-describedby="override-hint" />
        <label for="override">Override: decide although the provider’s books cannot confirm it</label>
        <p class="fine" id="override-hint">Only if you know the outcome from the provider itself. It is looked at once more later, and it never overrules what the books do show.</p></div>`}
      <button type="submit" class="main" id="decide-now" disabled=${decide.busy || old || !form.outcome || !form.evidence.trim()}>
        ${decide.busy ? 'Recording…' : form.outcome === 'succeeded' ? html`Record: ${amount} were paid` : form.outcome === 'failed' ? html`Record: ${amount} were not paid` : 'Choose what became of it'}</button>
    </form></section>`;
}
