// Charts are drawn by uPlot, which is loaded when there is one to draw. What they show stands beneath them as a table.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { inUTC } from './format.js';
import { Table } from './parts.js';
import { stateName } from './words.js';

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const titleOf = (s) => s.title ?? stateName(s.name);

// stacked adds each series to those before it, the last one on top.
function stacked(series) {
  const sums = series[0]?.values.map(() => 0) ?? [];
  return series.map((s) => s.values.map((v, i) => { sums[i] += v; return sums[i]; }));
}

function options(uPlot, width, series, bars) {
  const ink = style('--ink');
  const axis = { stroke: ink, grid: { stroke: style('--line'), width: 1 }, ticks: { stroke: style('--line') }, font: '12px system-ui' };
  return {
    width, height: 220, legend: { show: false }, cursor: { show: false }, tzDate: (ts) => uPlot.tzDate(new Date(ts * 1000), 'Etc/UTC'),
    scales: { x: { range: (_, min, max) => [min, max + (bars ?? 0)] }, y: { range: (_, __, max) => [0, Math.max(1, Math.ceil(max * 1.1))] } },
    axes: [axis, { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5, 1e6] }],
    series: [{}, ...series.map((s) => ({
      label: titleOf(s), stroke: style(`--${s.name}`), fill: bars ? style(`--${s.name}`) : undefined, width: 2,
      paths: bars ? uPlot.paths.bars({ size: [0.8, 40], align: 1 }) : undefined, points: { show: !bars, size: 4 },
    }))],
  };
}

export function Chart({ label, times, series, bars }) {
  const box = useRef();
  const [failed, setFailed] = useState(false);
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const turned = () => setTheme((n) => n + 1);
    dark.addEventListener('change', turned);
    return () => dark.removeEventListener('change', turned);
  }, []);
  useEffect(() => {
    let plot;
    let over = false;
    let sizes;
    import('./vendor/uplot.js').then(({ default: uPlot }) => {
      if (over) return;
      const order = bars ? [...series].reverse() : series; // what is stacked highest is drawn first
      const values = bars ? stacked(series).reverse() : series.map((s) => s.values);
      plot = new uPlot(options(uPlot, box.current.clientWidth, order, bars), [times.map((t) => t / 1000), ...values], box.current);
      sizes = new ResizeObserver(() => plot.setSize({ width: box.current.clientWidth, height: 220 }));
      sizes.observe(box.current);
    }, () => setFailed(true));
    return () => {
      over = true;
      sizes?.disconnect();
      plot?.destroy();
    };
  }, [JSON.stringify(times), JSON.stringify(series), theme]);
  const rows = times.map((t, i) => ({ t, values: series.map((s) => s.values[i]) })).filter((r) => r.values.some(Boolean)).reverse();
  return html`<figure>
    <ul class="key-of" aria-hidden="true">${series.map((s) => html`<li key=${s.name}><span class=${`dot ${s.name}`}></span>${titleOf(s)}</li>`)}</ul>
    <div class="chart" role="img" aria-label=${`${label}; the same as a table follows`} ref=${box}></div>
    ${failed && html`<p class="fine">The chart cannot be loaded; the table has the same.</p>`}
    <details><summary>As a table</summary><${Table} caption=${label} rows=${rows} id=${(r) => r.t} columns=${[
      ['Time', (r) => inUTC(r.t)], ...series.map((s, i) => [titleOf(s), (r) => r.values[i], 'number']),
    ]} /></details>
  </figure>`;
}
