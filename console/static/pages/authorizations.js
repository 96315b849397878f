// Authorizations: what was approved in a case, withdrawing it, and approving anew, for keys that may.

import { html, useRef, useState } from '../vendor/preact-htm.js';
import { announce, useAction, useRead } from '../hooks.js';
import { minorUnits } from '../format.js';
import { call, may, yourName } from '../session.js';
import { Field, Id, Money, Read, State, Title, Told, When, to, useOld } from '../parts.js';

const WRITE = 'authorizations:write';

export default function Authorizations({ about: [caseId = ''] }) {
  const [typed, setTyped] = useState(caseId);
  const found = useRead(caseId && `/v1/authorizations?case_id=${encodeURIComponent(caseId)}`);
  const submit = (event) => {
    event.preventDefault();
    if (typed.trim()) location.hash = to('authorizations', typed.trim());
  };
  return html`<${Title} id=${caseId}>Authorizations<//>
    <form role="search" class="search" onSubmit=${submit}>
      <${Field} label="Case" name="case" value=${typed} onInput=${setTyped} maxlength="255" type="search" />
      <button type="submit" class="main">Show the case</button>
    </form>
    ${caseId && html`<section aria-labelledby="approved"><h2 id="approved">Approved in case <span class="id">${caseId}</span></h2>
      <${Read} of=${found} empty="Nothing was approved in this case.">${(list) => html`<ul class="cards">
        ${list.data.map((a) => html`<${Approval} key=${a.operation_id} approval=${a} done=${found.again} />`)}</ul>`}<//></section>`}
    ${may(WRITE) ? html`<${Approve} caseId=${caseId} done=${found.again} />`
      : html`<p class="none">Your key may not approve: that takes the scope <code>authorizations:write</code>.</p>`}`;
}

function Approval({ approval: a, done }) {
  const [asking, ask] = useState(false);
  const [reason, setReason] = useState('');
  const old = useOld();
  const revoke = useAction(async () => {
    try {
      await call('POST', `/v1/authorizations/${encodeURIComponent(a.operation_id)}/revoke`, { ...(reason.trim() && { reason: reason.trim() }), ...(yourName.get() && { revoked_by: yourName.get() }) });
      announce('The approval is withdrawn.');
      ask(false);
    } finally { done(); }
  });
  return html`<li class="card">
    <p><${Money} cents=${a.amount_cents} currency=${a.currency} /> of order <${Id} page="order" id=${a.order_id} />
      ${' '}${a.refund ? html`<${State} state=${a.refund.state} />` : html`<span class=${`state ${a.state}`}>${a.state}</span>`}</p>
    <p>Approved by ${a.approved_by}, <${When} at=${a.created_at} within />.${a.expires_at && html` Expires <${When} at=${a.expires_at} age=${false} within />.`}</p>
    ${a.reason && html`<blockquote>${a.reason}</blockquote>`}<p class="fine">Operation <${Id} page="operation" id=${a.operation_id} /></p>
    <${Told} failure=${revoke.failure} />
    ${a.state === 'open' && may(WRITE) && (asking ? html`<form onSubmit=${(e) => { e.preventDefault(); revoke.run(); }}>
        <${Field} label="Why is it withdrawn?" name=${`why-${a.operation_id}`} value=${reason} onInput=${setReason} maxlength="1000" hint="Its refund can then never be executed. It cannot be taken back." />
        <button type="submit" class="danger" disabled=${revoke.busy || old}>Withdraw the approval for good</button>
        <button type="button" onClick=${() => ask(false)}>Keep it</button></form>`
      : html`<button type="button" onClick=${() => ask(true)}>Withdraw…</button>`)}
  </li>`;
}

// Approve keeps one operation id until it is done: the same form sent twice is one approval.
function Approve({ caseId, done }) {
  const id = useRef(crypto.randomUUID());
  const empty = { order: '', amount: '', case: caseId, reason: '' };
  const [form, set] = useState({ ...empty, name: yourName.get() });
  const [made, setMade] = useState(null);
  const fill = (member) => (value) => set((f) => ({ ...f, [member]: value }));
  const order = useRead(/^[!-~]{1,255}$/.test(form.order) && `/v1/orders/${encodeURIComponent(form.order)}`);
  const currency = order.data?.currency;
  const cents = currency ? minorUnits(form.amount, currency) : null;
  const tooMuch = cents !== null && cents > order.data.refundable_cents;
  const approve = useAction(async () => {
    yourName.set(form.name.trim());
    const approval = await call('PUT', `/v1/authorizations/${id.current}`, {
      case_id: form.case.trim(), order_id: form.order, amount_cents: cents, currency, approved_by: form.name.trim(), ...(form.reason.trim() && { reason: form.reason.trim() }),
    });
    id.current = crypto.randomUUID();
    setMade(approval);
    announce('The refund is approved.');
    set((f) => ({ ...f, ...empty, case: f.case }));
    done();
  });
  return html`<section aria-labelledby="approve"><h2 id="approve">Approve a refund</h2>
    <p>An approval moves no money: whoever executes it does, once. It can be withdrawn until then.</p>
    <form onSubmit=${(e) => { e.preventDefault(); setMade(null); approve.run(); }}>
      <div class="row">
        <${Field} label="Order" name="order" required value=${form.order} onInput=${(v) => fill('order')(v.trim())} maxlength="255" />
        <${Field} label=${currency ? `Amount in ${currency}` : 'Amount'} name="amount" required inputmode="decimal" value=${form.amount} onInput=${fill('amount')}
          hint=${form.amount && currency && cents === null ? `Not an amount of ${currency}: digits and one point, as 12.34 where it has two decimals.` : 'As 12.34, without separators.'} />
        <${Field} label="Case" name="approve-case" required value=${form.case} onInput=${fill('case')} maxlength="255" />
        <${Field} label="Your name" name="approved-by" required value=${form.name} onInput=${fill('name')} maxlength="255" />
      </div>
      <${Field} label="Reason" name="reason" value=${form.reason} onInput=${fill('reason')} maxlength="1000" />
      <div role="status">${form.order && (order.data ? html`<${Read} of=${order}><p>The order can still give back <${Money} cents=${order.data.refundable_cents} currency=${currency} />.
        ${tooMuch && html`<strong class="late"> That is less than you approve: it would be refused when it is executed.</strong>`}</p><//>`
        : order.failure && html`<${Told} failure=${order.failure} />`)}</div>
      <${Told} failure=${approve.failure} />
      ${made && html`<p class="done">Approved: <${Money} cents=${made.amount_cents} currency=${made.currency} />, operation <${Id} page="operation" id=${made.operation_id} />.</p>`}
      <button type="submit" class="main" disabled=${approve.busy || cents === null || tooMuch || !form.case.trim() || !form.name.trim()}>
        ${approve.busy ? 'Approving…' : cents === null ? 'Approve' : html`Approve <${Money} cents=${cents} currency=${currency} />`}</button>
    </form></section>`;
}
