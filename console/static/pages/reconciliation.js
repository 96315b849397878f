// Reconciliation: what each run found out, and when the books were proven. Both are of the whole service.

import { html } from '../vendor/preact-htm.js';
import { usePages } from '../hooks.js';
import { Chart } from '../charts.js';
import { span } from '../format.js';
import { Pager, Read, Table, Title, When } from '../parts.js';

const results = { success: 'done', failed: 'could not do all', unfinished: 'not finished' };
const counts = [['claimed', 'Looked at'], ['succeeded', 'Paid'], ['failed', 'Not paid'], ['pending', 'Accepted'], ['resent', 'Sent again'],
  ['needs_attention', 'To a person'], ['still_unknown', 'Still unknown'], ['errors', 'Errors']];

export default function Reconciliation() {
  const runs = usePages('/v1/reconciliation-runs?limit=20', 10_000);
  const audits = usePages('/v1/audits?limit=20', 30_000);
  return html`<${Title}>Reconciliation<//>
    <p>A run finds out what became of refunds whose provider never told. It counts those of the whole service, all tenants together.</p>
    <section aria-labelledby="runs"><h2 id="runs">Runs</h2>
      <${Read} of=${runs} empty="Reconciliation never ran here: refundd reconcile runs it once, --every 1m as a loop.">${(page) => {
        const done = page.data.filter((r) => r.finished_at).reverse();
        return html`${done.length > 1 && html`<${Chart} label="What each run found" times=${done.map((r) => Date.parse(r.finished_at))} series=${[
            { name: 'succeeded', title: 'paid', values: done.map((r) => r.succeeded) }, { name: 'failed', title: 'not paid', values: done.map((r) => r.failed) },
            { name: 'reserved', title: 'still unknown', values: done.map((r) => r.still_unknown) }, { name: 'needs_attention', title: 'to a person', values: done.map((r) => r.needs_attention) }]} />`}
          <${Table} caption=${{ text: 'Runs, newest first', hidden: true }} id=${(r) => r.run_id} rows=${page.data} columns=${[
            ['Started', (r) => html`<${When} at=${r.started_at} />`],
            ['Result', (r) => html`<span class=${r.result === 'success' ? '' : 'late'}>${results[r.result]}</span>${r.dry_run && ' (dry run)'}`],
            ['Took', (r) => (r.duration_ms === null ? '–' : r.duration_ms < 1000 ? `${r.duration_ms} ms` : span(r.duration_ms)), 'number'],
            ...counts.map(([member, name]) => [name, (r) => r[member], 'number']),
            ['Oldest unknown', (r) => span(r.oldest_unknown_seconds * 1000), 'number'],
          ]} /><${Pager} pages=${runs} label="runs" />`;
      }}<//></section>
    <section aria-labelledby="audits"><h2 id="audits">Audits of the books</h2>
      <${Read} of=${audits} empty="The books were never audited: refundd audit proves them.">${(page) => html`
        <${Table} caption=${{ text: 'Audits, newest first', hidden: true }} id=${(a) => a.audit_id} rows=${page.data} columns=${[
          ['Finished', (a) => html`<${When} at=${a.finished_at} />`],
          ['Contradictions', (a) => html`<span class=${a.lies ? 'late' : ''}>${a.lies}</span>`, 'number'],
          ['Operations', (a) => a.operations.toLocaleString(), 'number'], ['Transfers', (a) => a.transfers.toLocaleString(), 'number'], ['Orders', (a) => a.orders.toLocaleString(), 'number'],
          ['Took', (a) => span(Date.parse(a.finished_at) - Date.parse(a.started_at)), 'number'],
        ]} /><${Pager} pages=${audits} label="audits" />`}<//></section>`;
}
