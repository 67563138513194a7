// Chat: the sessions, a conversation with the text of its run as it is written, search, and history page by page.
import { html, useEffect, useRef, useState } from "../preact.js";
import { change, get, useData, usePages, useStream } from "../api.js";
import { Act, Ago, asText, Badge, Clock, Empty, Foreign, go, line, Load, path, Section, sentence, withQuery } from "../parts.js";
import { useRun } from "../run.js";

const PAGE = 40, MOST_SHOWN = 2000;
const MODES = [["", "as configured"], ["followup", "after this run"], ["steer", "steer this run"], ["collect", "collect"], ["interrupt", "interrupt"]];

export default function Chat({ path: [key = "main"], query }) {
  return html`<div class="split chat"><${Sessions} current=${key} query=${query} /><${Conversation} key=${`${key} ${query.at}`}
    session=${key} at=${Number(query.at) || 0} /></div>`;
}

function Sessions({ current, query }) {
  const words = query.q || "";
  const list = usePages("/v1/sessions?limit=30", (page) => (page.next ? withQuery("/v1/sessions", { limit: 30, after: page.next }) : ""),
    { rowsOf: (page) => page.sessions, seconds: 5 });
  const entries = useData(words && withQuery("/v1/memory/transcripts", { q: words, limit: 30 }));
  const search = (event) => { event.preventDefault(); location.hash = go("chat", [current], { q: event.target.elements.q.value }).slice(1); };
  const begin = (event) => { event.preventDefault(); location.hash = go("chat", [event.target.elements.name.value.trim() || "main"]).slice(1); };
  return html`<${Section} title="Sessions">
    <form class="bar" role="search" onSubmit=${search}><label>Search all transcripts <input type="search" name="q" value=${words} /></label><button>Search</button></form>
    ${words ? html`<${Load} of=${entries} empty="No entry has these words.">${(rows) => html`<ul class="pick">${rows.map(({ session, entry }) => html`<li
        key=${session + entry.seq}><a href=${go("chat", [session], { q: words, at: entry.seq })}><span class="bar"><${Foreign} text=${line(session, 40)} /><span class="quiet">
        <${Clock} at=${entry.at} /></span></span><${Foreign} class="one-line" text=${line(textOf(entry), 160)} /></a></li>`)}</ul>`}<//>
      <p><a href=${go("chat", [current])}>All sessions</a></p>`
    : html`<ul class="pick">${list.rows.map((row) => html`<li key=${row.key}><a href=${go("chat", [row.key])} aria-current=${row.key === current ? "page" : undefined}>
        <span class="bar"><${Foreign} text=${line(row.title || row.key, 60)} /> ${row.state !== "resting" && html`<${Badge} text=${row.state} tone="good" />`}
        <span class="quiet"><${Ago} at=${row.used_at} /></span></span></a></li>`)}</ul>
      ${list.error && html`<p role="alert" class="note bad">${sentence(list.error)}</p>`}
      ${list.more && html`<p class="more"><${Act} onClick=${list.more}>Show more<//></p>`}
      <form class="bar" onSubmit=${begin}><label>Another session <input name="name" maxlength="256" dir="auto" required /></label><button>Open</button></form>`}<//>`;
}

const textOf = ({ kind, body }) => asText({ user: body.text, turn: body.output ?? body.reason, end: body.error || body.reply, compaction: body.summary,
  reset: body.reason }[kind]);

const LAST = Number.MAX_SAFE_INTEGER; // a place behind all entries: there a session without any is no error
const places = (session, before) => withQuery(path`/v1/sessions/${session}:transcript`, { limit: PAGE, before });

/** A conversation: its newest entries, or those around the entry `at`. */
function Conversation({ session, at }) {
  const [entries, set] = useState([]);
  const [isAll, end] = useState(false);
  const tail = useData(places(session, at ? at + PAGE / 2 : LAST), at ? 0 : 4);
  const open = useData("/v1/runs?open=true&limit=1000", 3);
  const runs = (open.data || []).filter((row) => row.session === session);
  const last = useRef(""); // the run that is followed, until the transcript has its end
  const current = (runs.findLast((row) => row.status === "running") || runs.at(-1))?.run_id; // one that joined another has no text
  const hasEnd = entries.some((entry) => entry.kind === "end" && entry.run_id === last.current);
  last.current = current || (hasEnd ? "" : last.current);
  const running = last.current;
  const run = useRun(running);
  useStream(withQuery("/v1/events", { type: "RunAccepted,RunStarted,RunEnded", session }), () => { open.again(); tail.again(); },
    { isOptional: true });
  const waiting = runs.filter((row) => !entries.some((entry) => entry.run_id === row.run_id || entry.body.id === row.message_id)).reverse();
  const bottom = useRef(), marked = useRef(), isAtEnd = useRef(true);
  const earlier = async () => {
    const rows = await get(places(session, entries[0].seq));
    if (rows.length < PAGE) end(true);
    isAtEnd.current = false;
    set((old) => merged(rows, old));
  };
  useEffect(() => {
    if (!tail.data) return;
    set((old) => merged(old, tail.data));
    if (tail.data.length < PAGE) end(true);
  }, [tail.data]);
  useEffect(() => { if (run.end) { tail.again(); open.again(); } }, [Boolean(run.end)]);
  useEffect(() => { if (at) isAtEnd.current = false; marked.current?.scrollIntoView({ block: "center" }); }, [entries.length > 0]);
  useEffect(() => { if (isAtEnd.current) bottom.current?.scrollIntoView({ block: "nearest" }); }, [entries, run.text, run.calls, waiting.length]);
  const isOpen = running && !run.end;
  return html`<${Section} title=${html`<${Foreign} text=${session} />`} aside=${isOpen && html`<${Badge} text="running" tone="good" />
      <${Act} scope="operate" kind="danger" onClick=${() => change("POST", path`/v1/runs/${running}:abort`)}>Abort<//>`}>
    <div class="messages" tabindex="0" role="log" aria-label="Conversation" onScroll=${({ target }) => {
        isAtEnd.current = target.scrollHeight - target.scrollTop - target.clientHeight < 40; }}>
      ${entries.length > 0 && !isAll && html`<p class="more"><${Act} onClick=${earlier}>Earlier<//></p>`}
      ${tail.error && html`<p role="alert" class="note bad">${sentence(tail.error)}</p>`}
      ${tail.data && !entries.length && !isOpen && html`<${Empty}>No message yet. Write the first one.<//>`}
      ${entries.map((entry) => html`<div key=${entry.seq} class=${entry.seq === at ? "marked" : ""} ref=${entry.seq === at ? marked : null}>
        <${Message} entry=${entry} /></div>`)}
      ${at > 0 && html`<p class="more"><a href=${go("chat", [session])}>Show the newest</a></p>`}
      ${waiting.map((row) => html`<div key=${row.run_id} class="message person"><${Foreign} class="text" text=${row.message} /><span class="when"><${Clock}
        at=${row.accepted_at} />${row.status === "queued" && isOpen && row.run_id !== running && " · waits"}</span></div>`)}
      ${running && (isOpen || run.text) && html`<div class="message agent">${run.calls.slice(-6).map((call) => html`<div class="quiet"><${Badge} text=${call.status || call.phase} />
          ${" "}<code>${call.tool}</code></div>`)}<${Foreign} class="text" text=${run.text || ""} />${isOpen && html`<span class="live caret" aria-hidden="true"></span>`}</div>`}
      <div ref=${bottom}></div></div>
    <${Composer} session=${session} isBusy=${Boolean(isOpen)} onSent=${() => { isAtEnd.current = true; open.again(); tail.again(); }} /><//>`;
}

/** Two pieces of a transcript in order, without repetition; of more than can be shown the oldest are left out. */
function merged(one, other) {
  const rows = new Map([...one, ...other].map((entry) => [entry.seq, entry]));
  return [...rows.values()].sort((a, b) => a.seq - b.seq).slice(-MOST_SHOWN);
}

function Message({ entry: { kind, body, at, run_id } }) {
  if (kind === "user") return html`<div class="message person"><${Foreign} class="text" text=${body.text} /><span class="when"><${Clock} at=${at} /></span></div>`;
  if (kind === "turn") return html`${(body.calls || []).map((row) => html`<details class="message call"><summary><${Badge} text=${row.status} /> <code>${row.call._tool}</code>
      ${" "}<${Foreign} text=${line(row.error || row.output || row.reason || "", 120)} /></summary><pre class="block" dir="auto" tabindex="0">${asText(row)}</pre></details>`)}`;
  if (kind === "end") return html`<div class="message agent">${body.error ? html`<span class="bad"><${Foreign} class="text" text=${body.error} /></span>`
    : html`<${Foreign} class="text" text=${body.silent ? "(no answer)" : body.reply ?? "(done)"} />`}<span class="when"><${Clock} at=${at} />${
      run_id && body.usage?.calls ? ` · ${body.usage.calls} ${body.usage.calls === 1 ? "call" : "calls"}` : ""}</span></div>`;
  return html`<p class="quiet mark">${kind === "reset" ? "A new conversation begins" : "The conversation was summarized"}: <${Foreign} text=${line(textOf({ kind, body }), 400)} /></p>`;
}

function Composer({ session, isBusy, onSent }) {
  const [text, write] = useState("");
  const [mode, choose] = useState("");
  const [news, tell] = useState("");
  const send = async () => {
    await change("POST", "/v1/runs", { message: text, session, mode: mode || null });
    write("");
    tell("Sent.");
    onSent();
  };
  const form = useRef();
  return html`<form class="composer" ref=${form} onSubmit=${(event) => event.preventDefault()}>
    <textarea aria-label="Message" rows="2" dir="auto" value=${text} placeholder="Message" onInput=${(event) => { write(event.target.value); tell(""); }}
      onKeyDown=${(event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.current.querySelector(".primary").click(); } }} />
    <div class="bar"><label>${isBusy ? "While a run is open" : "If a run is open"} <select value=${mode} onChange=${(event) => choose(event.target.value)}>${MODES.map(
      ([value, label]) => html`<option value=${value}>${label}</option>`)}</select></label>
    <${Act} scope="operate" kind="primary" why=${text.trim() ? "" : "There is no message yet."} onClick=${send}>Send<//>
    <span class="quiet" role="status">${news}</span></div></form>`;
}
