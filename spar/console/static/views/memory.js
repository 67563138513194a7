// Memory: search in the experiences, each in full, feedback, forgetting; what memory changed in a cycle.
import { html, useState } from "../preact.js";
import { change, useData } from "../api.js";
import { Act, Badge, Block, Clock, Foreign, Load, Section, Table, Values, go, line, number, path, took } from "../parts.js";
import { useGrowing } from "../growing.js";
import { Confirm } from "../confirm.js";

const WORKED = { true: ["worked", "good"], false: ["failed", "bad"], null: ["not known", "quiet"] };
const Worked = ({ success }) => html`<${Badge} text=${WORKED[success][0]} tone=${WORKED[success][1]} />`;
const Strange = ({ trust }) => trust === "untrusted" && html` <${Badge} text="untrusted" tone="warn" />`;

const COLUMNS = [
  { head: "What", cell: (row) => html`<${Foreign} text=${line(row.situation, 160)} />` },
  { head: "Then", cell: (row) => html`<div><${Foreign} text=${line([row.action, row.lesson || row.outcome].filter(Boolean)
    .join(": "), 240)} /><${Strange} trust=${row.trust} /></div>` },
  { head: "", cell: (row) => html`<${Worked} success=${row.success} />` },
  { head: "Made", cell: (row) => number(row.count), isNumber: true },
  { head: "Last", cell: (row) => html`<${Clock} at=${row.at} />` },
];
const FOUND = [
  { head: "Fit", cell: (row) => (row.fit ? row.fit.toFixed(2) : ""), isNumber: true },
  { head: "Why it is here", cell: (row) => html`<span class="quiet"><${Foreign} text=${(row.reasons || []).join("; ")} /></span>` },
];

export default function Memory({ path: [first, ...rest], query }) {
  if (first === "why" && rest.length) return html`<${Why} cycle=${rest.join("/")} />`;
  return first ? html`<${One} key=${first} id=${first} />` : html`<${Search} key=${JSON.stringify(query)}
    query=${query} />`;
}

function Search({ query }) {
  const [asked, ask] = useState(query);
  const hits = useGrowing("/v1/memory/search", { ...asked, reasons: 1 }, { by: "k", size: 20 });
  const figures = useData("/v1/memory/figures");
  const submit = (event) => {
    event?.preventDefault();
    const next = Object.fromEntries(new FormData(document.getElementById("search")));
    ask(next);
    history.replaceState(null, "", go("memory", [], next));
  };
  return html`<form id="search" class="bar" role="search" onSubmit=${submit}>
      <label>Words <input name="q" type="search" size="32" defaultValue=${asked.q || ""} autocomplete="off" /></label>
      <label>Session <input name="session" size="14" defaultValue=${asked.session || ""} autocomplete="off" /></label>
      <label>Ended <select name="success" defaultValue=${asked.success || ""} onChange=${submit}><option value="">As it may</option>
        <option value="1">Worked</option><option value="0">Failed</option></select></label>
      <label>Trust <select name="trust" defaultValue=${asked.trust || ""} onChange=${submit}><option value="">Any</option>
        <option value="trusted">Trusted</option><option value="untrusted">Untrusted</option></select></label>
      <button class="primary">Search</button></form>
    <${Section} title=${asked.q ? "What fits" : "The latest"}><${Table} label="Experiences" pages=${hits}
      columns=${asked.q ? [...COLUMNS, ...FOUND] : COLUMNS} keyOf=${(row) => row.id}
      href=${(row) => go("memory", [row.id])} empty="Nothing is remembered of that." /><//>
    <${Section} title="All of it"><${Load} of=${figures}>${(of) => html`<${Values} values=${[
      ["Rows", `${number(of.rows)} for ${number(of.made)} experiences`], ["Size", `${(of.bytes / 1e6).toFixed(1)} MB`],
      ["Merged", share(of, "merged")], ["Used", share(of, "used")], ["Failed", share(of, "failed")],
      ["Lessons", `${share(of, "lessons")}, ${number(of.retired)} retired`], ["Untrusted", share(of, "untrusted")],
      ["Idle", share(of, "idle")], ["With vectors", share(of, "vectors")]]} />`}<//><//>`;
}
const share = (of, name) => `${number(of[name])} (${((100 * of[name]) / Math.max(of.rows, 1)).toFixed(0)} %)`;

const CALLS = [
  { head: "Tool", cell: (call) => html`<${Foreign} text=${call.tool} />` },
  { head: "With", cell: (call) => html`<code><${Foreign} text=${line(call.params, 300)} /></code>` },
  { head: "Ended", cell: (call) => html`<${Badge} text=${call.status} />` },
  { head: "Cause", cell: (call) => html`<${Foreign} text=${call.cause} />` },
  { head: "Took", cell: (call) => took(call.latency), isNumber: true },
];

function One({ id }) {
  const detail = useData(path`/v1/memory/experiences/${id}`);
  return html`<p><a href=${go("memory")}>Search</a></p><${Load} of=${detail}>${({ experience: one, sources, ...more }) => html`
    <${Section} title="Experience" aside=${html`<${Confirm} label="Forget" title="Forget this experience?" scope="admin"
      kind="danger" onDo=${async () => { await change("DELETE", path`/v1/memory/experiences/${one.id}`);
        location.hash = go("memory"); }}><p><${Foreign} text=${line(one.situation, 300)} /></p>
        <p>It is deleted for good, with what it taught. Nothing brings it back but a backup.</p><//>`}>
      <p class="lead"><${Foreign} text=${one.situation} /></p>
      <${Values} values=${[["It ended", html`<${Worked} success=${one.success} />`], ["Made", `${number(one.count)} times`],
        ["Helped", number(one.helped)], ["Harmed", number(one.harmed)], ["Score", one.score],
        ["First", one.first_at && html`<${Clock} at=${one.first_at} />`], ["Last", html`<${Clock} at=${one.at} />`],
        ["Trust", html`${one.trust}`], ["Session", html`<${Foreign} text=${one.session} />`],
        ["Kind of task", html`<${Foreign} text=${one.task} />`], ["Cause", one.cause], ["Id", html`<code>${one.id}</code>`]]} />
    <//>
    <div class="columns">${[["Lesson", one.lesson], ["Action", one.action], ["Outcome", one.outcome], ["Said", one.said],
      ["Answer", one.answer]].filter(([, text]) => text).map(([title, text]) => html`<${Section} title=${title}>
      ${title === "Lesson" && more.is_retired && html`<p class="note warn">It harmed more often than it helped: no decision
        uses it any more.</p>`}<${Block} text=${text} label=${title} /><//>`)}</div>
    ${one.calls.length > 0 && html`<${Section} title="Calls"><${Table} label="Calls" columns=${CALLS} rows=${one.calls}
      keyOf=${(call) => JSON.stringify(call)} /><//>`}
    <${Section} title="Where it comes from"><${Table} label="Sources" rows=${sources} keyOf=${(row) => row.id}
      columns=${SOURCES} empty="Its cycles are not known." /><//>`}<//>`;
}

const SOURCES = [
  { head: "Cycle", cell: (row) => (row.cycle_id ? html`<a href=${go("cycle", [row.cycle_id])}><code>${
    row.cycle_id.slice(0, 16)}</code></a>` : html`<span class="quiet">not known</span>`) },
  { head: "At", cell: (row) => html`<${Clock} at=${row.at} />` },
  { head: "Memory", cell: (row) => row.cycle_id && html`<a href=${go("memory", ["why", row.cycle_id])}>what it changed there</a>` },
  { head: "Was it good?", cell: (row) => html`<${Judge} about=${row.run_id || row.cycle_id} />` },
];

/** Feedback on a run or a cycle, with a reason. */
function Judge({ about }) {
  const [judged, set] = useState("");
  const [why, say] = useState("");
  const judge = (good) => async () => {
    await change("POST", `${path`/v1/runs/${about}`}/feedback`, { good, why });
    set(good ? "good" : "bad");
  };
  if (!about) return null;
  return judged ? html`<span role="status"><${Badge} text=${judged} /> It is kept.</span>` : html`<span class="judge">
    <input aria-label="Why" placeholder="Why" value=${why} maxlength="500" onInput=${(event) => say(event.target.value)} />
    <${Act} scope="operate" onClick=${judge(true)}>Good<//><${Act} scope="operate" onClick=${judge(false)}>Bad<//></span>`;
}

function Why({ cycle }) {
  const decisions = useData(path`/v1/memory/why/${cycle}`);
  return html`<p><a href=${go("memory")}>Search</a> · <a href=${go("cycle", [cycle])}>This cycle</a></p>
    <${Section} title="What memory changed in this cycle"><${Load} of=${decisions}
      empty="Memory changed no decision of this cycle.">${(rows) => rows.map((row) => html`<p><${Foreign} text=${row.why} />
      ${row.instead_of && html` <span class="quiet">instead of <${Foreign} text=${row.instead_of} /></span>`}
      ${!row.is_used && html` <${Badge} text="only observed" tone="quiet" />`}</p><ul>${row.cases.map((item) => html`<li>
      ${item.experience ? html`<a href=${go("memory", [item.id])}><${Foreign} text=${line(item.experience.situation)} /></a>`
        : html`<span class="quiet">${item.id} is not kept any more</span>`}</li>`)}</ul>`)}<//><//>`;
}
