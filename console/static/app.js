// The frame: the key, the menu, and the page that the address names.

import { html, render, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { announce, setVoice, useSession } from './hooks.js';
import { may, signIn, signOut } from './session.js';
import { Age, Field, Told } from './parts.js';
import { Now } from './pages/now.js';

// The other pages are loaded when they are asked for.
const pages = {
  '': { name: 'Now', view: Now },
  search: { name: 'Search', load: () => import('./pages/search.js') },
  escalations: { name: 'Escalations', load: () => import('./pages/escalations.js') },
  authorizations: { name: 'Authorizations', load: () => import('./pages/authorizations.js') },
  reconciliation: { name: 'Reconciliation', load: () => import('./pages/reconciliation.js') },
  operation: { load: () => import('./pages/operation.js') },
  order: { load: () => import('./pages/order.js') },
};

// place reads the address: a page and what it is about.
function place() {
  const [page = '', ...rest] = location.hash.replace(/^#\/?/, '').split('/');
  try { return { page, about: rest.map(decodeURIComponent) }; } catch { return { page: 'nowhere', about: [] }; }
}

function Page({ at }) {
  const [, loaded] = useState(null);
  const [broken, setBroken] = useState(false);
  const page = Object.hasOwn(pages, at.page) ? pages[at.page] : null;
  useEffect(() => {
    setBroken(false);
    if (!page || page.view) return;
    page.load().then((module) => {
      page.view = module.default;
      loaded(page);
    }, () => setBroken(true));
  }, [page]);
  if (!page) return html`<h1 tabindex="-1">There is no such page</h1><p><a href="#/">Now</a> is where to begin.</p>`;
  if (broken) return html`<p role="status">This page cannot be loaded while refundd does not answer. <button type="button" onClick=${() => location.reload()}>Load again</button></p>`;
  return page.view ? html`<${page.view} about=${at.about} />` : html`<p class="busy" role="status">Loading…</p>`;
}

// KeyForm asks for a key and tries it.
function KeyForm({ again }) {
  const [key, setKey] = useState('');
  const [told, setTold] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setTold(null);
    try { await signIn(key.trim()); } catch (failure) { setTold(failure); }
    setBusy(false);
  };
  return html`<form onSubmit=${submit} class="key">
    ${told?.problem.code === 'unauthenticated' ? html`<p class="told" role="alert"><strong>refundd does not know this key.</strong> It is mistyped, expired or revoked.</p>`
      : html`<${Told} failure=${told}>${told?.problem.code === 'forbidden' && ' The console needs a key with the scope read.'}<//>`}
    <${Field} label="API key" name="key" type="password" value=${key} onInput=${setKey} required placeholder="rfd_…" autofocus
      hint="It stays in this tab and is sent to this service alone. What it may do, you may do here." />
    <button type="submit" class="main" disabled=${busy || !key.trim()}>${again ? 'Go on with this key' : 'Sign in'}</button>
  </form>`;
}

// Expired lies over the page, which keeps what was typed.
function Expired() {
  const box = useRef();
  useEffect(() => {
    box.current.showModal();
    announce('The key is not valid any more. Type a valid one.');
  }, []);
  return html`<dialog ref=${box} aria-labelledby="expired" onCancel=${(e) => e.preventDefault()}>
    <h2 id="expired">The key is not valid any more</h2>
    <p>It has expired or was revoked. Type a valid key: what you have written on this page is still there.</p>
    <${KeyForm} again />
    <p><button type="button" onClick=${signOut}>Sign out and drop what I wrote</button></p>
  </dialog>`;
}

function Down({ since }) {
  return html`<p class="down" role="alert">refundd does not answer as it should, for <${Age} since=${new Date(since).toISOString()} />.
    What is shown below says when it was read; nothing can be decided on it now. It is asked again by itself.</p>`;
}

function Welcome() {
  return html`<main id="main" class="welcome">
    <h1>refundd console</h1>
    <p>Which refunds wait for a person, what the provider shows, and the one decision to take. It has no power of its own: it
      does what your key may.</p>
    <${KeyForm} />
  </main>`;
}

function Menu({ at, session }) {
  const me = session.me;
  return html`<header>
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector('h1')?.focus(); }}>Skip to the page</a>
    <nav aria-label="Pages"><ul>
      ${Object.entries(pages).filter(([, p]) => p.name).map(([path, p]) => html`<li key=${path}>
        <a href=${`#/${path}`} aria-current=${at.page === path ? 'page' : undefined}>${p.name}</a></li>`)}
    </ul></nav>
    <p class="who"><span title=${`key ${me.key_id}: ${me.scopes.join(', ')}`}>${me.tenant_id}${!may('refunds:resolve') && !may('authorizations:write') && ' · read only'}</span>
      <button type="button" onClick=${signOut}>Sign out</button></p>
  </header>`;
}

function App() {
  const session = useSession();
  const [at, setAt] = useState(place());
  const voice = useRef();
  useEffect(() => {
    setVoice(voice.current);
    const moved = () => setAt(place());
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  const about = at.about.join('/');
  return html`<div class="unseen" role="status" aria-live="polite" ref=${voice}></div>
    ${!session.key ? html`<${Welcome} />` : !session.me ? html`<${Known} />` : html`
      <${Menu} at=${at} session=${session} />
      <main id="main" key=${`${session.me.tenant_id} ${at.page} ${about}`}>
        ${session.down && html`<${Down} since=${session.down} />`}
        <${Page} at=${at} />
      </main>`}
    ${session.key && session.expired && html`<${Expired} />`}`;
}

// Known reads what the kept key is, after a reload.
function Known() {
  const session = useSession();
  const [told, setTold] = useState(null);
  useEffect(() => {
    let timer;
    const ask = () => signIn(session.key).catch((failure) => {
      setTold(failure);
      if (failure.passing) timer = setTimeout(ask, 3000);
      else if (failure.problem.code !== 'unauthenticated') signOut();
    });
    ask();
    return () => clearTimeout(timer);
  }, []);
  return html`<main id="main" class="welcome"><h1>refundd console</h1>
    ${told ? html`<${Told} failure=${told} />` : html`<p role="status">Reading what this key may do…</p>`}
    <button type="button" onClick=${signOut}>Sign out</button></main>`;
}

render(html`<${App} />`, document.getElementById('app'));
