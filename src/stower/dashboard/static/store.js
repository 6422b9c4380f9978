// What is known of the scheduler, and how it comes: a stream of changes, and answers to questions.
import { useEffect, useState } from "./preact.js";

export const store = {
  rows: new Map(), waiting: [], more: 0, queue: {}, decisions: [], counts: {}, standing: {},
  history: [], state: "connecting", version: 0,
};
const DECISIONS = 500, HISTORY = 300, AGAIN_MS = 3000, STALE_MS = 15000;
const listeners = new Set();
let planned = false;
let unlocked = () => {};

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  store.version += 1;
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => { planned = false; for (const listener of listeners) listener(); });
}

// Who we are

export function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + "#/cluster");
  }
  return sessionStorage.getItem("token") || "";
}

export function unlock(text) {
  sessionStorage.setItem("token", text);
  store.state = "connecting";
  unlocked();
  changed();
}

const shown = () => token() ? { headers: { Authorization: `Bearer ${token()}` } } : {};

// What comes by itself

function take(message) {
  if (message.begin) {
    store.rows.clear();
    Object.assign(store, { decisions: [], history: [], waiting: [], more: 0, queue: {}, counts: {} });
  }
  for (const [row, node] of Object.entries(message.rows || {})) {
    if (node === null) store.rows.delete(row);
    else store.rows.set(row, node);
  }
  for (const name of ["waiting", "more", "queue", "standing", "counts"]) {
    if (name in message) store[name] = message[name];
  }
  if (message.decisions) store.decisions = [...store.decisions, ...message.decisions].slice(-DECISIONS);
  if (message.history) store.history = [...store.history, ...message.history].slice(-HISTORY);
  changed();
}

function stand(state) {
  store.state = state;
  changed();
}

export async function follow() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      const answer = await fetch("stream", shown());
      if (answer.status === 401 || answer.status === 403) {
        stand("locked");
        await new Promise((resolve) => { unlocked = resolve; });
        continue;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      stand("live");
      pause = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) take(JSON.parse(part.slice(6)));
      }
    } catch (error) {
      console.warn(String(error));
    }
    stand("lost");
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// What is asked

async function ask(name, query) {
  const answer = await fetch(`view/${name}?${new URLSearchParams(query)}`, shown());
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
}

// An answer, asked for again when the stream tells that something has happened, and for what time
// alone changes, unless `once`. `busy` while it is worked out.
export function useView(name, query = {}, once = false) {
  const [found, tell] = useState({ data: null, error: "", busy: true });
  const wanted = JSON.stringify([name, query]);
  useEffect(() => {
    let is_current = true, is_asking = false, at = 0, events = null, once_more = false;
    const look = async () => {
      once_more = store.counts.events !== events;  // an answer may be some moments old
      [is_asking, at, events] = [true, performance.now(), store.counts.events];
      try {
        const data = await ask(name, query);
        if (is_current) tell({ data, error: "", busy: false, wanted });
      } catch (error) {
        const text = String(error.message || error);  // what was known stays
        if (is_current) tell((last) => ({ data: last.wanted === wanted ? last.data : null, error: text, busy: false, wanted }));
      }
      is_asking = false;
    };
    const told = () => {
      const pause = once_more || store.counts.events !== events ? AGAIN_MS : STALE_MS;
      if (!is_asking && performance.now() - at >= pause) look();
    };
    tell((last) => ({ ...last, busy: true }));
    look();
    const forget = once ? () => {} : onChange(told);
    return () => { is_current = false; forget(); };
  }, [wanted]);
  return found.wanted === wanted ? found : { data: null, error: "", busy: true };
}

// To another moment of a recording; of many at once, the last.
let moving = false, next = null;
export async function goTo(seconds) {
  next = seconds;
  if (moving) return;
  moving = true;
  while (next !== null) {
    const to = next;
    next = null;
    await fetch(`moment?seconds=${to}`, { method: "POST", ...shown() }).catch(() => {});
  }
  moving = false;
}

// Where what

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function place() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { page: page || "cluster", name: rest.map(decoded).join("/") };
}

export const link = (page, name) => `#/${page}/${name.split("/").map(encodeURIComponent).join("/")}`;
