// What pages do over and over: read and read again, act once, know the time.

import { useCallback, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { call, Failure, listen, now, session } from './session.js';

const HIDDEN = 30_000; // a tab that nobody sees asks seldom
const AGAIN = 3_000; // after a failure that passes

// useSession renders anew when the session changes.
export function useSession() {
  const [, set] = useState(0);
  useEffect(() => listen(() => set((n) => n + 1)), []);
  return session;
}

// useNow is the service's time, each second.
export function useNow() {
  const [at, set] = useState(now());
  useEffect(() => {
    const timer = setInterval(() => set(now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return at;
}

// useRead reads path, again every so many milliseconds, and after a failure until it has an answer. What was read last stays,
// with its time, beside the failure: whoever shows it says how old it is.
export function useRead(path, every = 0) {
  const [state, set] = useState({});
  const again = useRef(() => {});
  useEffect(() => {
    if (!path) return undefined;
    let over = false;
    let timer;
    let asked = 0;
    const read = async () => {
      clearTimeout(timer);
      const turn = ++asked;
      let wait = every;
      try {
        const data = await call('GET', path);
        if (over || turn !== asked) return;
        set({ path, data, at: now(), failure: null });
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (over || turn !== asked) return;
        set((s) => ({ ...(s.path === path ? s : { path }), failure: error }));
        if (!error.passing) return;
        wait = Math.max(every, AGAIN, error.problem.wait * 1000);
      }
      if (wait) timer = setTimeout(read, document.hidden ? Math.max(wait, HIDDEN) : wait);
    };
    again.current = read;
    let key = session.key;
    const unlisten = listen(() => {
      if (session.key && session.key !== key) read();
      key = session.key;
    });
    const seen = () => { if (!document.hidden && every) read(); };
    document.addEventListener('visibilitychange', seen);
    read();
    return () => {
      over = true;
      clearTimeout(timer);
      unlisten();
      document.removeEventListener('visibilitychange', seen);
    };
  }, [path, every]);
  const mine = state.path === path && path ? state : {};
  return { data: mine.data, at: mine.at, failure: mine.failure ?? null, again: useCallback(() => again.current(), []) };
}

// useAction runs one act at a time: a second click finds it busy. Its failure stays until the next try.
export function useAction(act) {
  const [state, set] = useState({ busy: false, failure: null });
  const busy = useRef(false);
  const run = async (...args) => {
    if (busy.current) return false;
    busy.current = true;
    set({ busy: true, failure: null });
    try {
      await act(...args);
      set({ busy: false, failure: null });
      return true;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      set({ busy: false, failure: error });
      return false;
    } finally {
      busy.current = false;
    }
  };
  return { ...state, run, clear: () => set({ busy: false, failure: null }) };
}

// usePages walks through a list, a page at a time, so that ten thousand rows cost no more than one page.
export function usePages(path, every = 0) {
  const [trail, set] = useState({ path, cursors: [''] });
  const cursors = trail.path === path ? trail.cursors : [''];
  const cursor = cursors[cursors.length - 1];
  const query = cursor ? `${path.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(cursor)}` : '';
  const read = useRead(path && path + query, every);
  const shown = useRef({});
  const turning = !read.data && !read.failure && shown.current.path === path; // the page before stays until the next one is there
  if (!turning) shown.current = { path, read, number: cursors.length };
  const page = { ...shown.current.read, again: read.again };
  const next = turning ? null : page.data?.next_cursor;
  return {
    ...page,
    number: shown.current.number,
    turning,
    older: next || turning ? () => next && set({ path, cursors: [...cursors, next] }) : null,
    newer: cursors.length > 1 ? () => set({ path, cursors: cursors.slice(0, -1) }) : null,
  };
}

let voice;

// announce tells a screen reader what changed.
export function announce(text) {
  if (!voice) return;
  voice.textContent = '';
  setTimeout(() => { voice.textContent = text; }, 50); // the same again is heard again
}

export const setVoice = (element) => { voice = element; };
