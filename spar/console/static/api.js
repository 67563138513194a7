// The client of /v1: reads with ETags, changes with idempotency keys, event streams that go on after a break.
import { useCallback, useEffect, useRef, useState } from "./preact.js";

export class Refused extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    Object.assign(this, { status, scope: problem.scope || "", retryAfter });
  }
}

/** A value that components follow with `useShared`. */
function shared(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) { if (next !== value) { value = next; listeners.forEach((listener) => listener(next)); } },
    listen(listener) { listeners.add(listener); return () => listeners.delete(listener); },
  };
}
export const session = shared(undefined); // undefined: not known yet, null: signed out, else {agent, token, scopes}
export const connection = shared(""); // "" while all is well, else a sentence
export const clock = { skew: 0 }; // milliseconds that the service is ahead of this browser

export function useShared(source) {
  const [value, set] = useState(source.get());
  useEffect(() => { set(source.get()); return source.listen(set); }, [source]);
  return value;
}

export function may(scope) {
  const scopes = session.get()?.scopes || [];
  return scopes.includes(scope) || scopes.includes("admin");
}

async function request(method, path, { body, headers = {}, signal } = {}) {
  if (body !== undefined) headers["content-type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, { method, headers, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (error.name !== "AbortError") connection.set("The connection to the service is lost. Trying again …");
    throw error;
  }
  connection.set("");
  const date = Date.parse(response.headers.get("date"));
  if (date) clock.skew = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now();
  if (response.ok || response.status === 304) return response;
  if (response.status === 401 && session.get()) session.set(null);
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem, Number(response.headers.get("retry-after")) || 0);
}

const known = new Map(); // the newest answers, with their tags

export async function get(path, signal) {
  const old = known.get(path);
  const response = await request("GET", path, { signal, headers: old ? { "if-none-match": old.tag } : {} });
  if (response.status === 304) { await response.text(); return old.data; }
  const data = await response.json();
  known.delete(path);
  known.set(path, { tag: response.headers.get("etag"), data });
  if (known.size > 50) known.delete(known.keys().next().value);
  return data;
}

/** Change something; a request whose answer was lost is sent once more, and carried out only once. */
export async function change(method, path, body) {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const send = () => request(method, path, { body, headers: { "idempotency-key": key } });
  const response = await send().catch((error) => {
    if (error instanceof Refused) throw error;
    return new Promise((resolve) => setTimeout(resolve, 1000)).then(send);
  });
  return response.status === 204 ? null : response.json();
}

export async function findSession() {
  try {
    session.set(await (await request("GET", "/console/session")).json());
  } catch {
    setTimeout(findSession, 2000);
  }
}
export async function signIn(token) {
  session.set(await (await request("POST", "/console/session", { body: { token } })).json());
}
export async function signOut() {
  session.set(undefined); // ends all that is read, before the session ends
  try { await request("DELETE", "/console/session"); } catch { return findSession(); }
  known.clear();
  session.set(null);
}

const isVisible = () => document.visibilityState !== "hidden";

/** A page that nobody has touched for a minute asks a third as often; a touch makes it ask at once. */
const ALONE = 60000, SLOWER = 3;
let touched = Date.now();
const isAlone = () => Date.now() - touched > ALONE;
for (const kind of ["pointermove", "pointerdown", "keydown", "wheel", "focus"]) {
  addEventListener(kind, () => {
    const wasAlone = isAlone();
    touched = Date.now();
    if (wasAlone) document.dispatchEvent(new Event("visibilitychange"));
  }, { passive: true });
}

/** Read a path: {data, error, isLoading, again}. Polls every `seconds` (0: never) while the page is visible. */
export function useData(path, seconds = 0) {
  const [state, set] = useState({ path: null });
  const again = useRef(() => {});
  useEffect(() => {
    const controller = new AbortController();
    let timer, failures = 0, isBusy = false, isAsked = false, last = 0;
    const read = async () => {
      clearTimeout(timer);
      isAsked = isBusy; // the answer that is awaited may be older than the question
      if (isBusy) return;
      isBusy = true;
      last = Date.now();
      try {
        const data = await get(path, controller.signal);
        failures = 0;
        set((old) => (old.path === path && old.data === data && !old.error ? old : { path, data }));
      } catch (error) {
        if (controller.signal.aborted) return;
        failures += error instanceof Refused ? 0 : 1;
        set((old) => ({ path, data: old.path === path ? old.data : undefined, error }));
      }
      isBusy = false;
      if (isAsked) read();
      else if (failures) timer = setTimeout(read, pause(failures));
      else if (seconds && isVisible()) timer = setTimeout(read, seconds * 1000 * (isAlone() ? SLOWER : 1));
    };
    const seen = () => { if (seconds && isVisible() && Date.now() - last >= seconds * 1000) read(); };
    again.current = read;
    if (path) read();
    document.addEventListener("visibilitychange", seen);
    return () => {
      controller.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, seconds]);
  const isOf = state.path === path;
  return { data: isOf ? state.data : undefined, error: isOf ? state.error : undefined,
    isLoading: Boolean(path) && !isOf, again: useCallback(() => again.current(), []) };
}

/** Read a list page by page: {rows, error, isLoading, more, again}; `more` is null on the last page.
 * `next(answer)` returns the path of the page after an answer, "" for none; `rowsOf(answer)` its rows. The first page
 * is polled every `seconds` while no other one is shown. */
export function usePages(path, next, { rowsOf = (answer) => answer, most = 1000, seconds = 0 } = {}) {
  const [rest, set] = useState({ of: null, pages: [] });
  const first = useData(path, rest.path === path && rest.pages.length ? 0 : seconds);
  const pages = first.data ? [first.data, ...(rest.of === first.data ? rest.pages : [])] : [];
  const place = pages.length ? next(pages[pages.length - 1]) : "";
  const rows = pages.flatMap(rowsOf);
  const more = place && rows.length < most
    ? () => get(place).then((page) => set({ path, of: first.data, pages: [...pages.slice(1), page], error: null }),
      (error) => set((old) => ({ ...old, of: first.data, error })))
    : null;
  return { rows, error: first.error || (rest.of === first.data && rest.error), isLoading: first.isLoading, more,
    again: first.again };
}

/** Milliseconds before another attempt: from 1 s, doubled up to 30 s, at random between half and all of it. */
function pause(failures) {
  return Math.min(30000, 1000 * 2 ** Math.min(failures - 1, 5)) * (0.5 + Math.random() / 2);
}

/** Follow a stream of events while the page is visible, over breaks; `handler` gets {id, event, data}.
 * `begin` is the position after which it begins; without an optional one the page works, too, so that nothing is said
 * if it breaks or is refused. Returns {state: "opening"|"open"|"broken"|"refused", error}. */
export function useStream(path, handler, { begin = "", isOptional = false } = {}) {
  const [state, set] = useState({ state: "opening" });
  const latest = useRef(handler);
  latest.current = handler;
  useEffect(() => {
    if (!path) return undefined;
    let controller, timer, failures = 0, isOver = false, last = begin;
    const stop = () => { clearTimeout(timer); controller?.abort(); controller = undefined; };
    const read = async () => {
      const mine = (controller = new AbortController());
      try {
        const headers = last === "" ? {} : { "last-event-id": String(last) };
        const response = await request("GET", path, { headers, signal: mine.signal });
        set({ state: "open" });
        for await (const event of events(response.body)) {
          failures = 0;
          if (event.id !== undefined) last = event.id;
          if (event.data !== undefined && latest.current({ ...event, data: JSON.parse(event.data) }) === "end") {
            isOver = true;
            return;
          }
        }
      } catch (error) {
        if (mine.signal.aborted) return;
        if (error instanceof Refused && (isOptional || (error.status < 500 && error.status !== 429))) {
          set({ state: "refused", error });
          return;
        }
      }
      if (mine !== controller) return;
      failures += 1;
      set({ state: "broken" });
      if (!isOptional) connection.set("The live stream was interrupted. Trying again …");
      timer = setTimeout(read, pause(failures));
    };
    const seen = () => {
      clearTimeout(timer);
      if (isOver) return;
      if (!isVisible()) timer = setTimeout(stop, 10000);
      else if (!controller || controller.signal.aborted) read();
    };
    if (isVisible()) read();
    document.addEventListener("visibilitychange", seen);
    return () => { isOver = true; stop(); document.removeEventListener("visibilitychange", seen); };
  }, [path]);
  return state;
}

/** Yield the events of a body, as the HTML standard has them; one without data only tells its id. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const event = {};
        for (const line of block.split("\n")) {
          const [, name, rest] = /^(\w*):? ?(.*)$/.exec(line) || [];
          if (name === "data") event.data = (event.data === undefined ? "" : event.data + "\n") + rest;
          else if (name === "id" || name === "event") event[name] = rest;
        }
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
