// What views are made of. Everything is rendered as text; text from outside stands in <bdi dir="auto">.
import { html, useEffect, useRef, useState } from "./preact.js";
import { change, clock, may } from "./api.js";

/** Text from outside: of any length, script and direction. */
export const Foreign = ({ text, ...more }) => html`<bdi dir="auto" ...${more}>${asText(text)}</bdi>`;

/** Text from outside with its line ends, or a JSON value. */
export const Block = ({ text, label }) =>
  html`<pre class="block" dir="auto" tabindex="0" role="region" aria-label=${label || "text"}>${asText(text)}</pre>`;

export function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, typeof value === "object" ? 1 : 0);
}

/** Turn a value into one line of at most `most` characters. */
export function line(value, most = 200) {
  const text = (typeof value === "string" ? value : JSON.stringify(value) || "").replace(/\s+/g, " ").trim();
  return text.length > most ? `${[...text].slice(0, most).join("")}…` : text;
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];
/** Write a duration: 3 ms, 1.2 s, 4 min 10 s, 2 h 5 min. */
export function took(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(Number(seconds))) return "";
  if (seconds < 0.9995) return `${seconds ? Math.max(seconds * 1000, 0.1).toFixed(seconds < 0.00995 ? 1 : 0) : 0} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  const unit = UNITS.findIndex(([size]) => seconds >= size);
  const [size, name] = UNITS[unit], [smaller, word] = UNITS[unit + 1] || [1, "s"];
  const rest = Math.floor((seconds % size) / smaller);
  return `${Math.floor(seconds / size)} ${name}${rest ? ` ${rest} ${word}` : ""}`;
}

export const number = (value) => (value === null || value === undefined ? "" : Number(value).toLocaleString("en"));

/** The present time of the service in milliseconds, also if the clock of this browser is off. */
export const now = () => Date.now() + clock.skew;

/** Render again every `seconds` while the page is visible. */
export function useTick(seconds, isOn = true) {
  const [, set] = useState(0);
  useEffect(() => {
    if (!isOn) return undefined;
    const timer = setInterval(() => document.visibilityState !== "hidden" && set((count) => count + 1), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds, isOn]);
}

/** A point in time: today its time, else its date too; the exact one as a title. */
export function Clock({ at }) {
  if (!at) return null;
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return html`<${Foreign} text=${at} />`;
  const isToday = time.toDateString() === new Date(now()).toDateString();
  const text = `${isToday ? "" : `${pad(time.getFullYear())}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} `}`
    + [time.getHours(), time.getMinutes(), time.getSeconds()].map(pad).join(":");
  return html`<time datetime=${time.toISOString()} title=${time.toString()}>${text}</time>`;
}
const pad = (value) => String(value).padStart(2, "0");

/** How long ago something was (or how long it is until then), by the clock of the service. */
export function Ago({ at }) {
  useTick(5);
  if (!at) return null;
  const seconds = (now() - Date.parse(at)) / 1000, text = took(Math.round(Math.abs(seconds)));
  return html`<time datetime=${at} title=${new Date(at).toString()}>
    ${Math.abs(seconds) < 1 ? "now" : seconds > 0 ? `${text} ago` : `in ${text}`}</time>`;
}

const TONES = {
  good: "ok acted done running approved closed good delivered",
  bad: "failed error denied critical dead bad quarantined blocked",
  warn: "degraded interrupted pending waiting timeout in_doubt skipped expired paused open half_open warning stale",
};
/** The tone of a word: good, bad, warn or quiet. */
export const toneOf = (word) => Object.keys(TONES).find((tone) => TONES[tone].split(" ").includes(word)) || "quiet";

export const Badge = ({ text, tone }) => html`<span class="badge ${tone || toneOf(text)}">${asText(text)}</span>`;

/** A button that says why it is disabled. `onClick` may return a promise, whose error is shown beside the button. */
export function Act({ scope = "read", why = "", onClick, children, kind = "", ...more }) {
  const [state, set] = useState({});
  const reason = may(scope) ? why : `Your token lacks the scope “${scope}”.`;
  const isAlive = useRef(true);
  useEffect(() => () => { isAlive.current = false; }, []);
  const press = async () => {
    if (reason || state.isBusy) return;
    set({ isBusy: true });
    let error;
    try { await onClick(); } catch (problem) { error = problem; }
    if (isAlive.current) set({ error });
  };
  return html`<span class="act"><button type="button" class=${kind} onClick=${press} title=${reason || undefined}
    aria-disabled=${reason || state.isBusy ? "true" : undefined} ...${more}>${children}${
      reason && html`<span class="unseen"> (${reason})</span>`}</button>
    ${state.error && html`<span role="alert" class="bad">${sentence(state.error)}</span>`}</span>`;
}

/** The button that pauses the agent, or lets it go on, by its state. `again` reads the state once more. */
export function Pause({ state, again }) {
  const verb = ["created", "paused", "stopped"].includes(state) ? "resume" : "pause";
  return html`<${Act} scope="operate" onClick=${() => change("POST", `/v1/agent:${verb}`).then(again)}>${verb === "pause" ? "Pause" : "Resume"}<//>`;
}

/** An error as a sentence with a way on. */
export function sentence(error) {
  if (error.status === undefined) return "The service cannot be reached. Is it running?";
  const wait = error.retryAfter ? ` Try again in ${took(error.retryAfter)}.` : "";
  return `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}${/[.!?]$/.test(error.message) ? "" : "."}${wait}`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** Waiting, an error, or the children: a function of the data of `useData`. */
export function Load({ of, empty, children }) {
  const { data, error, isLoading, again } = of;
  const note = error && html`<p role="alert" class="note bad">${sentence(error)}
    <button type="button" onClick=${again}>Try again</button></p>`;
  if (data === undefined) return note || (isLoading ? html`<p class="empty" role="status">Loading …</p>` : null);
  return html`${note}${empty && (Array.isArray(data) ? !data.length : !data)
    ? html`<${Empty}>${empty}<//>` : children(data)}`;
}

/** Rows as a table; on a phone each row is a card.
 * columns: [{head, cell: (row) => …, isNumber}]; rows of `usePages` or an array; `href(row)` makes the first cell a link
 * within the console. */
export function Table({ label, columns, rows, keyOf, href, empty = "Nothing yet.", pages }) {
  if (pages?.error) return html`<p role="alert" class="note bad">${sentence(pages.error)}
    <button type="button" onClick=${pages.again}>Try again</button></p>`;
  if (pages?.isLoading) return html`<p class="empty" role="status">Loading …</p>`;
  const all = rows || pages.rows;
  if (!all.length) return html`<${Empty}>${empty}<//>`;
  return html`<table role="table" aria-label=${label}>
    <thead role="rowgroup"><tr role="row">${columns.map((column) => html`<th role="columnheader" scope="col"
      class=${column.isNumber ? "number" : ""}>${column.head}</th>`)}</tr></thead>
    <tbody role="rowgroup">${all.map((row) => html`<tr role="row" key=${keyOf(row)}>${columns.map((column, index) =>
      html`<td role="cell" data-head=${column.head} class=${column.isNumber ? "number" : ""}>${
        href && !index ? html`<a href=${href(row)}>${column.cell(row)}</a>` : column.cell(row)}</td>`)}</tr>`)}</tbody>
  </table>
  ${pages?.more && html`<p class="more"><${Act} onClick=${pages.more}>Show more<//></p>`}`;
}

/** Labelled values; empty ones are left out. values: [[label, value], …]. */
export const Values = ({ values }) => html`<dl class="values">${values
  .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
  .map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;

/** A section with a heading; `aside` stands at the end of its line. */
export const Section = ({ title, aside, children, ...more }) => html`<section ...${more}>
  <header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>${children}</section>`;

/** A question before something that cannot be taken back. Escape and "Cancel" call `onClose`. */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef();
  useEffect(() => { dialog.current.showModal(); }, []);
  return html`<dialog ref=${dialog} aria-label=${title} onClose=${onClose}><h2>${title}</h2>${children}
    <form method="dialog"><button>Cancel</button></form></dialog>`;
}

/** Values of the recent past as a line. */
export function Sparkline({ values, label, width = 160, height = 28 }) {
  const most = Math.max(...values, 1e-9), step = width / Math.max(values.length - 1, 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`);
  return html`<svg class="spark" role="img" aria-label=${label} viewBox="0 0 ${width} ${height}" width=${width}
    height=${height}><polyline points=${points.join(" ")} /></svg>`;
}

/** Fields of a query as controls that change the address. */
export function go(name, words = [], query = {}) {
  const values = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== false);
  const text = new URLSearchParams(values).toString();
  return `#/${[name, ...words.map(encodeURIComponent)].join("/")}${text && `?${text}`}`;
}

/** Build the path of a request: words are encoded, empty values of the query are left out. */
export function path(strings, ...words) {
  return strings.reduce((text, part, index) => text + encodeURIComponent(words[index - 1]) + part);
}
export function withQuery(base, query) {
  const text = go("", [], query).split("?")[1];
  return text ? `${base}?${text}` : base;
}

/** Fields that filter a list; what is chosen stands in the address, so that it can be kept and sent.
 * fields: [{name, label, options (a choice), type (of an input)}]. */
export function Filters({ name, words = [], query, fields }) {
  const set = (field, value) => { location.hash = go(name, words, { ...query, [field]: value }).slice(1); };
  return html`<form class="bar" role="search" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>${fields.map(
    ({ name: field, label, options, type = "search" }) => {
      const value = query[field] || "", common = { name: field, "aria-label": label };
      if (options) return html`<label>${label} <select ...${common} value=${value}
        onChange=${(event) => set(field, event.target.value)}>
        <option value="">any</option>${options.map((option) => html`<option value=${option}>${option}</option>`)}</select></label>`;
      if (type === "checkbox") return html`<label class="check"><input type="checkbox" ...${common} checked=${value === "true"}
        onChange=${(event) => set(field, event.target.checked ? "true" : "")} /> ${label}</label>`;
      if (type === "datetime-local") return html`<label>${label} <input type=${type} ...${common} value=${local(value)}
        onChange=${(event) => set(field, event.target.value ? new Date(event.target.value).toISOString() : "")} /></label>`;
      return html`<label>${label} <input type=${type} ...${common} value=${value} onChange=${(event) => set(field, event.target.value)} /></label>`;
    })}</form>`;
}
const local = (value) => {
  const time = new Date(value);
  return Number.isNaN(time.getTime()) ? "" : new Date(time - time.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
};

/** The lines of two texts that differ: [{mark: " " | "-" | "+", text}]. Equal beginnings and ends are found first; of
 * what is left more than `most` lines are not compared one by one. */
export function difference(before, after, most = 600) {
  const old = before.split("\n"), fresh = after.split("\n");
  let head = 0, tail = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  while (tail < old.length - head && tail < fresh.length - head
    && old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]) tail += 1;
  const gone = old.slice(head, old.length - tail), come = fresh.slice(head, fresh.length - tail);
  const mark = (sign, lines) => lines.map((text) => ({ mark: sign, text }));
  const middle = gone.length > most || come.length > most ? [...mark("-", gone), ...mark("+", come)] : compared(gone, come);
  return [...mark(" ", old.slice(0, head)), ...middle, ...mark(" ", old.slice(old.length - tail))];
}
function compared(gone, come) { // the longest common subsequence
  const table = Array.from({ length: gone.length + 1 }, () => new Uint16Array(come.length + 1));
  for (let i = gone.length - 1; i >= 0; i -= 1) {
    for (let j = come.length - 1; j >= 0; j -= 1) {
      table[i][j] = gone[i] === come[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0, j = 0;
  while (i < gone.length || j < come.length) {
    if (i < gone.length && j < come.length && gone[i] === come[j]) { lines.push({ mark: " ", text: gone[i] }); i += 1; j += 1; }
    else if (j >= come.length || (i < gone.length && table[i + 1][j] >= table[i][j + 1])) { lines.push({ mark: "-", text: gone[i] }); i += 1; }
    else { lines.push({ mark: "+", text: come[j] }); j += 1; }
  }
  return lines;
}

/** Two texts line by line, with what was taken out and what was added; long equal parts are left out. */
export function Diff({ before, after, label }) {
  const lines = difference(before, after);
  const isNear = lines.map((_, index) => lines.slice(Math.max(index - 3, 0), index + 4).some(({ mark }) => mark !== " "));
  const parts = [];
  lines.forEach((row, index) => {
    if (isNear[index]) parts.push(row);
    else if (parts[parts.length - 1]?.mark === "…") parts[parts.length - 1].count += 1;
    else parts.push({ mark: "…", count: 1 });
  });
  const words = { "-": "removed: ", "+": "added: " };
  return html`<div class="block diff" role="region" tabindex="0" aria-label=${label}>${parts.map((row) => row.mark === "…"
    ? html`<div class="quiet">… ${row.count} equal ${row.count === 1 ? "line" : "lines"}</div>`
    : html`<div class=${{ "-": "gone", "+": "come" }[row.mark]} dir="auto"><span class="unseen">${words[row.mark]}</span>${row.text || " "}</div>`)}</div>`;
}
