// Approvals: the calls that wait for a person, each as exactly it would run, and the grants in force.
import { html, useEffect, useRef, useState } from "../preact.js";
import { change, may, useData } from "../api.js";
import { Act, Ago, Badge, Block, Diff, Empty, Foreign, go, line, Load, path, Section, sentence, Table, took, Values }
  from "../parts.js";
import { JsonField, parsed, pretty } from "../json.js";

const GRANTS = [["", "this call only"], ["900", "and equal calls for 15 min"], ["3600", "and equal calls for 1 h"], ["86400", "and equal calls for 1 d"]];
const STATUSES = ["pending", "approved", "denied", "expired", "all"];

export default function Approvals({ path: [id], query }) {
  const status = STATUSES.includes(query.status) ? query.status : "pending";
  const list = useData(`/v1/approvals?limit=500&status=${status}`, 3);
  const [news, tell] = useState("");
  const rows = list.data || [];
  const shown = id || rows[0]?.id;
  const decided = (text) => {
    tell(text);
    const index = rows.findIndex((row) => row.id === shown), next = rows[index + 1] || rows[index - 1];
    list.again();
    location.hash = go("approvals", next ? [next.id] : [], query.status ? { status } : {}).slice(1);
  };
  return html`<p role="status" aria-live="polite" class=${news ? "note good" : "unseen"}>${news}</p>
  <div class="split">
    <${Section} title="Calls" aside=${html`<label>Show <select value=${status} onChange=${(event) => {
        location.hash = go("approvals", [], { status: event.target.value }).slice(1); }}>${STATUSES.map((word) =>
        html`<option value=${word}>${word}</option>`)}</select></label>`}>
      <${Load} of=${list} empty="Nothing waits for you.">${() => html`<${Rows} rows=${rows} shown=${shown} status=${status} />`}<//><//>
    ${shown ? html`<${Approval} key=${shown} id=${shown} onDecided=${decided} />`
      : html`<${Section} title="Call"><${Empty}>A call that asks for approval is shown here.<//><//>`}
  </div>
  <${Grants} />`;
}

/** The list; the arrow keys go from row to row. */
function Rows({ rows, shown, status }) {
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const links = [...event.currentTarget.querySelectorAll("a")], next = links[links.indexOf(event.target) + step];
    if (step && next) { event.preventDefault(); next.focus(); }
  };
  return html`<ul class="pick" onKeyDown=${move}>${rows.map((row) => html`<li key=${row.id}><a href=${go("approvals", [row.id], { status })}
    aria-current=${row.id === shown ? "true" : undefined}><span class="bar"><code>${row.call.tool}</code> ${row.status === "pending" ? "" : html`<${Badge} text=${row.status} />`}
    <span class="quiet"><${Ago} at=${row.asked_at} /></span></span><${Foreign} class="one-line" text=${line(row.call.params, 120)} /></a></li>`)}</ul>`;
}

/** One call as it was when it was read: it is not polled, so that what is decided is what is seen. */
function Approval({ id, onDecided }) {
  const record = useData(path`/v1/approvals/${id}`);
  const heading = useRef();
  const isNew = useRef(Boolean(location.hash.includes("approvals/")));
  useEffect(() => { if (record.data && isNew.current) { heading.current?.focus(); isNew.current = false; } }, [record.data]);
  return html`<section><header><h2 tabindex="-1" ref=${heading}>${record.data ? html`Run <code>${record.data.call.tool}</code>?` : "Call"}</h2>
      ${record.data && html`<div class="aside"><${Badge} text=${record.data.status} /></div>`}</header>
    <${Load} of=${record}>${(row) => html`<${Values} values=${[["Why it asks", html`<${Foreign} text=${row.why} />`],
        ["Effect", row.effect], ["Trust", row.trust], ["Session", html`<a href=${go("chat", [row.session])}><${Foreign} text=${row.session} /></a>`],
        ["Cycle", html`<a href=${go("cycle", [row.cycle_id])}>${row.cycle_id.slice(0, 12)}</a>`], ["Asked", html`<${Ago} at=${row.asked_at} />`],
        ["Expires", row.status === "pending" && html`<${Ago} at=${row.expires_at} />`],
        ["Decided by", row.decided_by && html`<${Foreign} text=${row.decided_by} />`]]} />
      <h3>Exactly this call</h3><${Block} text=${row.text} label="The call in full" />
      ${row.original && html`<h3>Changed from the planned call</h3><${Diff} before=${pretty(row.original.params)} after=${pretty(row.call.params)} label="Change of the call" />`}
      ${row.status === "pending" && html`<${Decision} row=${row} again=${record.again} onDecided=${onDecided} />`}`}<//></section>`;
}

/** Read a call in the form of models: [call, what is wrong]. */
function parsedCall(text) {
  const [value, wrong] = parsed(text);
  return wrong || typeof value._tool === "string" ? [value, wrong] : [null, 'The call needs "_tool", the name of a tool.'];
}

function Decision({ row, again, onDecided }) {
  const [way, choose] = useState("approve");
  const [reason, because] = useState("");
  const [grant, grantFor] = useState("");
  const [isAnySession, allow] = useState(false);
  const [params, edit] = useState(pretty(row.call.params));
  const [call, replace] = useState(pretty({ _tool: row.call.tool, ...row.call.params }));
  const [error, fail] = useState();
  const [value, wrong] = way === "edit" ? parsed(params) : way === "replace" ? parsedCall(call) : [null, ""];
  const send = async () => {
    const body = { digest: row.digest, decision: way, reason };
    if (way === "edit") body.params = value;
    if (way === "replace") body.call = value;
    if (way === "approve" && grant) Object.assign(body, { grant_for: Number(grant), grant_session: !isAnySession });
    try {
      const now = await change("POST", path`/v1/approvals/${row.id}`, body);
      onDecided(`${row.call.tool}: ${now.status}${now.grant ? `, also equal calls for ${took(Number(grant))}` : ""}.`);
    } catch (problem) { fail(problem); }
  };
  const words = { approve: "Approve", deny: "Deny", edit: "Run with these parameters", replace: "Run this call instead" };
  return html`<fieldset class="decide"><legend>Decision</legend>
    <div class="bar" role="radiogroup" aria-label="Decision">${Object.keys(words).map((word) => html`<label class="check"><input type="radio"
      name="way" value=${word} checked=${way === word} onChange=${() => { choose(word); fail(); }} /> ${word.charAt(0).toUpperCase() + word.slice(1)}</label>`)}</div>
    ${way === "approve" && html`<div class="bar"><label>Holds for <select value=${grant} onChange=${(event) => grantFor(event.target.value)}>${GRANTS.map(
      ([seconds, label]) => html`<option value=${seconds}>${label}</option>`)}</select></label>
      ${grant && html`<label class="check"><input type="checkbox" checked=${isAnySession} onChange=${(event) => allow(event.target.checked)} /> in any session</label>`}</div>`}
    ${way === "edit" && html`<${JsonField} label="Parameters, as JSON" text=${params} wrong=${wrong} onText=${edit} />
      ${!wrong && html`<${Diff} before=${pretty(row.call.params)} after=${pretty(value)} label="Change of the parameters" />`}`}
    ${way === "replace" && html`<${JsonField} label='Call, as JSON: {"_tool": name, …parameters}' text=${call} wrong=${wrong} onText=${replace} />`}
    <label>Reason (stored; the planner sees that of a denial) <input value=${reason} maxlength="2000" dir="auto" onInput=${(event) => because(event.target.value)} /></label>
    <p><${Act} scope="approve" kind=${way === "deny" ? "danger" : "primary"} why=${wrong} onClick=${send}>${words[way]}<//>
      ${!may("approve") && html` <span class="quiet">Your token lacks the scope “approve”.</span>`}</p>
    ${error && html`<p role="alert" class="note bad">${sentence(error)} <button type="button" onClick=${() => { fail(); again(); }}>Show it as it is now</button></p>`}
  </fieldset>`;
}

function Grants() {
  const grants = useData("/v1/grants?limit=500", 10);
  const columns = [
    { head: "Tool", cell: (row) => html`<code>${row.tool}</code>` },
    { head: "Session", cell: (row) => html`<${Foreign} text=${row.session || "any"} />` },
    { head: "By", cell: (row) => html`<${Foreign} text=${row.granted_by} />` },
    { head: "Until", cell: (row) => html`<${Ago} at=${row.expires_at} />` },
    { head: "", cell: (row) => html`<${Act} scope="approve" kind="danger" onClick=${() => change("DELETE", path`/v1/grants/${row.id}`).then(grants.again)}>Revoke<//>` },
  ];
  return html`<${Section} title="Grants in force"><${Load} of=${grants}>${(rows) => html`<${Table} label="Grants" columns=${columns} rows=${rows}
    keyOf=${(row) => row.id} empty="No call runs without a question by a grant." />`}<//><//>`;
}
