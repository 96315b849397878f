// Order: what was captured, and what of it was given back, is held, or went beyond it.

import { html } from '../vendor/preact-htm.js';
import { usePages, useRead } from '../hooks.js';
import { Id, Money, Pager, Read, State, Table, Title, When, to } from '../parts.js';
import { why } from '../words.js';

export default function Order({ about: [id = ''] }) {
  const order = useRead(`/v1/orders/${encodeURIComponent(id)}`, 5000);
  const refunds = usePages(`/v1/refunds?order_id=${encodeURIComponent(id)}&limit=50`, 5000);
  return html`<${Title} id=${id}>Order <span class="id">${id}</span><//>
    <${Read} of=${order}>${(o) => html`<${Shares} order=${o} /><${Facts} order=${o} />`}<//>
    <section aria-labelledby="operations"><h2 id="operations">Its operations</h2>
      <${Read} of=${refunds} empty="Nothing was refunded of it.">${(page) => html`
        <${Table} caption=${{ text: 'Operations of the order, newest first', hidden: true }} id=${(r) => r.operation_id} rows=${page.data} columns=${[
          ['Operation', (r) => html`<${Id} page="operation" id=${r.operation_id} />`],
          ['Amount', (r) => html`<${Money} cents=${r.amount_cents} currency=${r.currency} />`, 'number'],
          ['State', (r) => html`<${State} state=${r.state} />`],
          ['Why', (r) => why(r.failure_code) || '–', 'words'],
          ['Created', (r) => html`<${When} at=${r.created_at} />`],
        ]} /><${Pager} pages=${refunds} label="operations" />`}<//></section>`;
}

// Shares is the order as a bar of a hundred parts, and the same in words.
function Shares({ order: o }) {
  const held = Number(o.held_cents);
  const over = Number(o.over_refunded_cents);
  const paid = Number(o.refunded_cents) - held;
  const left = Number(o.refundable_cents);
  const whole = Math.max(Number(o.captured_cents) + over, 1);
  const parts = [['paid', 'Given back', paid], ['held', 'Held', held], ['left', 'Refundable', left]];
  let x = 0;
  const capture = (Number(o.captured_cents) / whole) * 100;
  return html`<figure class="shares">
    <svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="The order's money; the list that follows has the amounts">
      ${parts.map(([name, , cents]) => {
        const width = (cents / whole) * 100;
        x += width;
        return html`<rect key=${name} class=${name} x=${x - width} y="0" width=${width} height="8" />`;
      })}
      ${over > 0 && html`<rect class="over" x=${capture} y="5.5" width=${100 - capture} height="2.5" /><rect class="edge" x=${capture - 0.15} y="0" width="0.3" height="8" />`}
    </svg>
    <ul class="key-of">
      <li><strong>Captured</strong> <${Money} cents=${o.captured_cents} currency=${o.currency} /></li>
      ${parts.map(([name, title, cents]) => html`<li key=${name}><span class=${`dot ${name}`}></span><strong>${title}</strong> <${Money} cents=${cents} currency=${o.currency} /></li>`)}
      ${over > 0 && html`<li class="late"><span class="dot over"></span><strong>Over-refunded</strong> <${Money} cents=${over} currency=${o.currency} /></li>`}
    </ul>
    ${over > 0 && html`<p class="told">The provider paid <${Money} cents=${over} currency=${o.currency} /> more than was captured. No further refund of this order is executed. The audit names it until the capture covers it.</p>`}
  </figure>`;
}

function Facts({ order: o }) {
  const c = o.customer;
  const rows = [
    ['Customer', c.name ?? '–'],
    ['E-mail', c.email ? html`<a href=${to('search', c.email)}>${c.email}</a>` : '–'],
    ['Customer id', c.id ? html`<a class="id" href=${to('search', c.id)}>${c.id}</a>` : '–'],
    ['Provider', o.provider === 'ledger' ? 'none' : o.provider],
    ['Payment', o.provider_payment_ref ? html`<span class="id">${o.provider_payment_ref}</span>` : '–'],
    ['Registered', html`<${When} at=${o.created_at} />`],
  ];
  return html`<dl>${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
