// Search: whatever somebody was given, everything that matches it, and never one picked.

import { html, useState } from '../vendor/preact-htm.js';
import { useRead } from '../hooks.js';
import { count } from '../format.js';
import { Field, Id, Money, Read, State, Table, Title, Told, When, to } from '../parts.js';

const q = encodeURIComponent;
const isOperation = (text) => /^[A-Za-z0-9._:-]{1,255}$/.test(text) && text !== '.' && text !== '..';
const isOrder = (text) => /^[!-~]{1,255}$/.test(text);

const amount = ['Amount', (r) => html`<${Money} cents=${r.amount_cents} currency=${r.currency} />`, 'number'];
const operation = ['Operation', (r) => html`<${Id} page="operation" id=${r.operation_id} />`];
const ofOrder = ['Order', (r) => html`<${Id} page="order" id=${r.order_id} />`];
const refundColumns = [operation, amount, ['State', (r) => html`<${State} state=${r.state} />`], ofOrder, ['Created', (r) => html`<${When} at=${r.created_at} />`]];
const approvalColumns = [operation, amount, ['State', (a) => (a.refund ? html`<${State} state=${a.refund.state} />` : html`<span class="state">${a.state}</span>`)],
  ofOrder, ['Approved by', (a) => a.approved_by], ['Case', (a) => html`<a class="id" href=${to('authorizations', a.case_id)}>${a.case_id}</a>`]];
const orderColumns = [ofOrder, ['Captured', (o) => html`<${Money} cents=${o.captured_cents} currency=${o.currency} />`, 'number'],
  ['Refundable', (o) => html`<${Money} cents=${o.refundable_cents} currency=${o.currency} />`, 'number'], ['Customer', (o) => o.customer.name ?? o.customer.email ?? o.customer.id ?? '–'], ['Registered', (o) => html`<${When} at=${o.created_at} />`]];

// places are where a text may be found, each with the route that finds it.
const places = [
  { name: 'Orders of the customer with this e-mail', path: (t) => (t.includes('@') ? `/v1/orders?customer_email=${q(t)}` : null), columns: orderColumns },
  { name: 'Orders of the customer with this id', path: (t) => `/v1/orders?customer_id=${q(t)}`, columns: orderColumns },
  { name: 'Approvals of the case', path: (t) => `/v1/authorizations?case_id=${q(t)}`, columns: approvalColumns },
  { name: 'The operation', path: (t) => (isOperation(t) ? `/v1/refunds/${q(t)}` : null), columns: refundColumns },
  { name: 'The approval', path: (t) => (isOperation(t) ? `/v1/authorizations/${q(t)}` : null), columns: approvalColumns },
  { name: 'The order', path: (t) => (isOrder(t) ? `/v1/orders/${q(t)}` : null), columns: orderColumns },
  { name: 'The refund that the provider knows by this id', path: (t) => `/v1/refunds?provider_refund_id=${q(t)}`, columns: refundColumns },
  { name: 'The refund of the call with this reference', path: (t) => (t.length <= 128 ? `/v1/refunds?diagnostic_ref=${q(t)}` : null), columns: refundColumns },
];

export default function Search({ about: [text = ''] }) {
  const [typed, setTyped] = useState(text);
  const submit = (event) => {
    event.preventDefault();
    if (typed.trim()) location.hash = to('search', typed.trim());
  };
  return html`<${Title} id=${text}>Search<//>
    <form role="search" class="search" onSubmit=${submit}>
      <${Field} label="What were you given?" name="q" value=${typed} onInput=${setTyped} maxlength="255" type="search"
        hint="A case, a customer’s e-mail or id, an order, an operation, the provider’s refund id, or the reference of an error." />
      <button type="submit" class="main">Search</button>
    </form>
    ${text && html`<${Matches} key=${text} text=${text} />`}`;
}

function Matches({ text }) {
  const found = places.map((p) => ({ ...p, read: useRead(p.path(text)) }));
  const asked = found.filter((f) => f.path(text));
  const rows = (f) => (f.read.data ? f.read.data.data ?? [f.read.data] : []);
  const nothing = (f) => (f.read.data && rows(f).length === 0) || f.read.failure?.problem.status === 404;
  const total = asked.reduce((n, f) => n + rows(f).length, 0);
  const reading = asked.some((f) => !f.read.data && !f.read.failure);
  return html`<p role="status">${reading ? 'Searching…' : asked.every(nothing) ? html`Nothing matches <span class="id">${text}</span>. Ids are compared letter by letter; a call that was refused, replayed, or made without a provider leaves its reference in the logs alone.`
    : html`${count(total, 'match', 'matches')} for <span class="id">${text}</span>, all of them shown.`}</p>
    ${asked.filter((f) => !nothing(f) && (f.read.data || f.read.failure)).map((f, i) => html`<section key=${f.name} aria-labelledby=${`found-${i}`}>
      <h2 id=${`found-${i}`}>${f.name}${f.read.data?.count > 1 && html` <span class="fine">(${f.read.data.count})</span>`}</h2>
      ${f.read.data ? html`<${Read} of=${f.read}><${Table} caption=${{ text: f.name, hidden: true }} rows=${rows(f)} columns=${f.columns} /><//>` : html`<${Told} failure=${f.read.failure} />`}
    </section>`)}`;
}
