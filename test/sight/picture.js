// Draws a dashboard as Grafana would: panels in their places, values in their units, legends that have a third of the panel.
// What is empty or does not fit is outlined in magenta.
import uPlot from './uplot.js';
import { dashboard, answers } from './run.js';

const column = 80, line = 38;
const colors = ['#73bf69', '#f2cc0c', '#5794f2', '#ff780a', '#f2495c', '#b877d9', '#8ab8ff', '#ffa6b0', '#96d98d', '#ffee52', '#c0d8ff', '#fade2a'];
const prefixed = (v, base, names) => {
  let at = 0;
  while (Math.abs(v) >= base && at < names.length - 1) { v /= base; at++; }
  return `${+v.toPrecision(3)}${names[at]}`;
};
const units = {
  short: v => prefixed(v, 1000, ['', ' K', ' Mil', ' Bil']),
  reqps: v => `${prefixed(v, 1000, ['', 'K', 'M'])} req/s`,
  cps: v => `${prefixed(v, 1000, ['', 'K', 'M'])} c/s`,
  bytes: v => prefixed(v, 1024, [' B', ' KiB', ' MiB', ' GiB']),
  percentunit: v => `${+(v * 100).toPrecision(3)}%`,
  s: v => v === 0 ? '0 s' : v < 1 ? `${+(v * 1000).toPrecision(3)} ms` : v < 60 ? `${+v.toPrecision(3)} s`
    : v < 3600 ? `${+(v / 60).toPrecision(3)} mins` : v < 86400 ? `${+(v / 3600).toPrecision(3)} hours` : `${+(v / 86400).toPrecision(3)} days`,
};
const element = (parent, tag, className, text) => {
  const e = document.createElement(tag);
  e.className = className;
  if (text !== undefined) e.textContent = text;
  return parent.appendChild(e);
};

function stat(box, panel, lines) {
  const last = lines[0]?.values.findLast(v => !Number.isNaN(v));
  if (last === undefined) return box.classList.add('bad');
  const { unit, thresholds, mappings = [] } = panel.fieldConfig.defaults;
  box.style.background = { green: '#37872d', red: '#c4162a', orange: '#fa6400', yellow: '#e0b400' }[thresholds.steps.findLast(s => s.value === null || last >= s.value).color];
  element(box, 'div', 'value', mappings[0]?.options[last]?.text ?? units[unit](last));
}

function unitOf(panel, name) {
  for (const o of panel.fieldConfig.overrides) {
    const matches = o.matcher.id === 'byRegexp' ? new RegExp(o.matcher.options.slice(1, -1)).test(name) : o.matcher.options === name;
    const unit = o.properties.find(p => p.id === 'unit');
    if (matches && unit) return unit.value;
  }
  return panel.fieldConfig.defaults.unit;
}

function graph(box, panel, lines) {
  if (lines.length === 0) return box.classList.add('bad');
  const legend = element(box, 'div', 'legend');
  lines.forEach((l, i) => {
    const item = element(legend, 'span', '');
    element(item, 'i', '').style.background = colors[i % colors.length];
    item.append(l.name);
  });
  if (legend.scrollHeight > legend.clientHeight) legend.classList.add('bad');
  const stacked = panel.fieldConfig.defaults.custom.stacking?.mode === 'normal';
  const times = lines[0].times, sums = times.map(() => 0);
  const drawn = lines.map(l => l.values.map((v, i) => Number.isNaN(v) ? null : stacked ? sums[i] += v : v));
  const scales = [...new Set(lines.map(l => unitOf(panel, l.name)))];
  new uPlot({
    width: box.clientWidth - 4, height: box.clientHeight - 34 - legend.clientHeight, legend: { show: false }, cursor: { show: false },
    scales: Object.fromEntries(scales.map(unit => [unit, { range: (_, min, max) => [Math.min(0, min), max > 0 ? max * 1.1 : 1] }])),
    axes: [{ stroke: '#ccccdc', grid: { stroke: '#2c3235' } }, ...scales.map((unit, i) => ({
      scale: unit, side: i ? 1 : 3, stroke: '#ccccdc', grid: { stroke: '#2c3235' }, size: 74, values: (_, vs) => vs.map(units[unit]),
    }))],
    series: [{}, ...lines.map((l, i) => ({ // the top of a stack first: what is beneath it is drawn over it
      scale: unitOf(panel, l.name), stroke: colors[i % colors.length], width: 1.5,
      fill: stacked ? `color-mix(in srgb, ${colors[i % colors.length]} 40%, #181b1f)` : undefined, points: { show: false },
    })).reverse()],
  }, [times, ...drawn.reverse()], box);
}

for (const panel of dashboard.panels) {
  const box = element(document.body, 'div', `panel ${panel.type}`);
  const { x, y, w, h } = panel.gridPos;
  Object.assign(box.style, { left: `${x * column}px`, top: `${y * line}px`, width: `${w * column - 6}px`, height: `${h * line - 6}px` });
  element(box, 'h2', '', panel.title);
  const lines = answers.filter(a => a.panel === panel.id).flatMap(a => a.series);
  const times = [...new Set(lines.flatMap(l => l.times))].sort((a, b) => a - b);
  const even = lines.map(l => {
    const at = new Map(l.times.map((t, i) => [t, Number(l.values[i])]));
    return { name: l.name, times, values: times.map(t => at.get(t) ?? NaN) };
  });
  if (panel.type === 'stat') stat(box, panel, even);
  if (panel.type === 'timeseries') graph(box, panel, even);
}
