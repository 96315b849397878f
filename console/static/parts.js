// The small things that every page is made of.

import { createContext, html, useContext, useEffect, useRef } from './vendor/preact-htm.js';
import { inUTC, inZone, money, span } from './format.js';
import { announce, useNow, useSession } from './hooks.js';
import { faultWords, problemWords, stateName } from './words.js';

// Old is since when what stands below was read, where it cannot be read now.
const Old = createContext(null);

export const useOld = () => useContext(Old);

// Money is an amount. One that could not be read now says so: money is never shown from memory as if it were now.
export function Money({ cents, currency }) {
  const old = useContext(Old);
  const text = money(cents, currency);
  return old
    ? html`<span class="money was"><span class="tag">was</span> ${text}</span>`
    : html`<span class="money">${text}</span>`;
}

export function Age({ since }) {
  const at = useNow();
  return html`${span(at - Date.parse(since))}`;
}

// When is a time in UTC and in the reader's zone, with its age; within is for the middle of a sentence.
export function When({ at, age = true, within = false }) {
  if (!at) return '–';
  const beside = [inZone(at), age && html`<${Age} since=${at} /> ago`].filter(Boolean);
  const told = beside.flatMap((x, i) => (i ? [within ? ', ' : ' · ', x] : [x]));
  return html`<time datetime=${at}>${inUTC(at)}</time>${told.length > 0 && (within ? html` (${told})` : html` <span class="zone">${told}</span>`)}`;
}

export const to = (...path) => `#/${path.map(encodeURIComponent).join('/')}`;

export const Id = ({ page, id }) => (id ? html`<a class="id" href=${to(page, id)}>${id}</a>` : '–');

export const State = ({ state }) => html`<span class=${`state ${state}`}>${stateName(state)}</span>`;

// Told is an answer that refuses, in words.
export function Told({ failure, children }) {
  const box = useRef();
  useEffect(() => { if (failure) announce(problemWords(failure.problem).join('. ')); }, [failure]);
  if (!failure) return null;
  const p = failure.problem;
  const [what, then] = problemWords(p);
  return html`<div class="told" ref=${box} data-code=${p.code}>
    <strong>${what}.</strong> ${then}
    ${p.errors && html`<ul>${p.errors.map((e) => html`<li>${faultWords(e)}</li>`)}</ul>`}
    ${p.wait > 0 && html` <span>Wait ${p.wait} s.</span>`}
    ${children}
    <p class="fine">${[p.status || null, p.code].filter(Boolean).join(' ')}${p.diagnostic_ref && html` · reference <code>${p.diagnostic_ref}</code>`}</p>
  </div>`;
}

// Read shows what was read, or why it was not; what is old is labelled, and its amounts say so too. Its shape stays the same
// whatever happens, so that a form below it keeps what was typed.
export function Read({ of, children, empty }) {
  const { down } = useSession();
  if (!of.data) return of.failure ? html`<${Told} failure=${of.failure} />` : html`<p class="busy" role="status">Reading…</p>`;
  const old = of.failure || down ? of.at : null;
  const none = empty && of.data.data?.length === 0;
  return html`<div class=${old ? 'old' : ''}>
    ${old && html`<p class="oldness"><strong>Not current.</strong> Read at ${inUTC(old)}, <${Age} since=${new Date(old).toISOString()} /> ago;
      ${' '}it cannot be read now${of.failure && ` (${problemWords(of.failure.problem)[0].toLowerCase()})`}. Amounts may have changed.</p>`}
    <${Old.Provider} value=${old}>${none ? html`<p class="none">${empty}</p>` : typeof children === 'function' ? children(of.data) : children}<//>
  </div>`;
}

// Pager turns pages; it is not there where there is one page.
export function Pager({ pages, label }) {
  if (!pages.older && !pages.newer) return null;
  const [newer, older] = pages.names ?? ['Newer', 'Older'];
  return html`<nav class="pager" aria-label=${`Pages of ${label}`}>
    <button type="button" disabled=${!pages.newer} onClick=${pages.newer}>${newer}</button>
    <span role="status">${pages.turning ? 'Turning…' : `Page ${pages.number}`}</span>
    <button type="button" disabled=${!pages.older} onClick=${pages.older}>${older}</button>
  </nav>`;
}

// Table has headers that a reader hears with each cell, and that small screens show beside it.
export function Table({ caption, columns, rows, id }) {
  return html`<div class="scroll"><table>
    <caption class=${caption.hidden ? 'unseen' : ''}>${caption.text ?? caption}</caption>
    <thead><tr>${columns.map(([name, , kind]) => html`<th scope="col" class=${kind}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${id?.(row)}>
      ${columns.map(([name, cell, kind]) => {
        const shown = cell(row);
        return html`<td data-label=${name} class=${[kind, shown === 0 && 'zero'].filter(Boolean).join(' ')}>${shown}</td>`;
      })}
    </tr>`)}</tbody>
  </table></div>`;
}

// Field is a labelled input, with what helps to fill it in.
export function Field({ label, hint, name, value, onInput, area, ...rest }) {
  const tag = area ? 'textarea' : 'input';
  const hinted = hint ? `${name}-hint` : undefined;
  return html`<div class="field">
    <label for=${name}>${label}</label>
    <${tag} id=${name} name=${name} value=${value} aria-describedby=${hinted} onInput=${(e) => onInput(e.target.value)}
      autocomplete="off" spellcheck=${Boolean(area)} ...${rest} />
    ${hint && html`<p class="fine" id=${hinted}>${hint}</p>`}
  </div>`;
}

// Title names the page, and takes the focus where somebody came to it by a link.
export function Title({ children, id }) {
  const heading = useRef();
  useEffect(() => {
    document.title = `${heading.current.textContent} – refundd console`;
    heading.current.focus({ preventScroll: true });
  }, [id]);
  return html`<h1 tabindex="-1" ref=${heading}>${children}</h1>`;
}
