// Cycle: what was noticed, decided, done and learnt, and why.
import { html, useState } from "../preact.js";
import { useData } from "../api.js";
import { CallGraph, waitsOf } from "../graph.js";
import { asText, Badge, Block, Clock, Diff, Empty, Foreign, go, line, Load, path, Section, Table, took, Values, withQuery }
  from "../parts.js";

export default function Cycle({ path: [id = "last"] }) {
  const cycle = useData(path`/v1/cycles/${id}`);
  return html`<${Load} of=${cycle}>${(data) => html`<${Whole} cycle=${data} />`}<//>`;
}

function Whole({ cycle }) {
  const { action, result, reflection, perceptions, faults } = cycle;
  const why = useData(path`/v1/cycles/${cycle.cycle_id}:why`);
  return html`<${Section} title=${html`Cycle <code>${cycle.cycle_id.slice(0, 12)}</code>`} aside=${html`<${Badge} text=${cycle.outcome} />`}>
    <${Values} values=${[["Started", html`<${Clock} at=${cycle.started_at} />`], ["Took", took(cycle.duration)],
      ["Session", html`<a href=${go("chat", [cycle.session])}><${Foreign} text=${cycle.session} /></a>`],
      ["Score", reflection && reflection.score], ["Trace", cycle.trace_id && html`<code>${cycle.trace_id}</code>`],
      ...Object.entries(cycle.phases).map(([phase, seconds]) => [phase, took(seconds)])]} />
    ${faults.map((fault) => html`<p class="note bad"><strong>${fault.phase || fault.kind}</strong>: <${Foreign} text=${fault.message} /></p>`)}<//>
  <div class="columns"><${Section} title=${`Noticed (${perceptions.length})`}>${perceptions.length ? perceptions.slice(0, 50).map((row) =>
      html`<${Noticed} row=${row} key=${row.id} />`) : html`<${Empty}>Nothing was noticed.<//>`}
      ${perceptions.length > 50 && html`<p class="quiet">and ${perceptions.length - 50} more</p>`}<//>
    ${action && html`<${Plan} action=${action} />`}</div>
  ${result && html`<${Calls} results=${result.results} />`}
  ${cycle.doubts.length > 0 && html`<${Section} title="Calls in doubt"><ul class="plain">${cycle.doubts.map((doubt) => html`<li>
    <${Badge} text=${doubt.answer || "open"} /> <code>${doubt.call.tool}</code> <${Foreign} text=${line(doubt.reason || "", 300)} /></li>`)}</ul><//>`}
  <div class="columns"><${Section} title="Why" aside=${html`<a href=${go("rules", [], { cycle: cycle.cycle_id })}>Ask the rules of today</a>`}><${Load} of=${why}>${(reasons) => html`<${Why} reasons=${reasons} />`}<//><//>
    ${reflection && html`<${Learnt} reflection=${reflection} />`}</div>
  <${Memory} cycle=${cycle} />
  <${Requests} cycle=${cycle} />`;
}

const PARTS = { noticed: "Noticed", rules: "Rules, as they are now", memory: "Experiences that weighed", calls: "Calls", outcome: "What it led to" };
const Why = ({ reasons }) => Object.entries(PARTS).filter(([name]) => reasons[name].length).map(([name, title]) =>
  reasons[name].length > 6 ? html`<details><summary>${title} (${reasons[name].length})</summary><${Tree} rows=${reasons[name]} /></details>`
    : html`<h3>${title}</h3><${Tree} rows=${reasons[name]} />`);
const Tree = ({ rows }) => html`<ul class="tree">${rows.slice(0, 100).map((row) => html`<li><${Foreign} text=${row.text} />${
  row.because.length > 0 && html`<${Tree} rows=${row.because} />`}</li>`)}</ul>`;

function Noticed({ row }) {
  const words = [...new Set([row.source, row.kind, row.intent].filter(Boolean))].join(" · ");
  return html`<div class="item"><div class="bar"><strong><${Foreign} text=${words} /></strong>
      <${Badge} text=${row.trust} tone=${row.trust === "untrusted" ? "warn" : "quiet"} />
      ${row.priority !== null && html`<span class="quiet">priority ${row.priority.toFixed(2)}</span>`}</div>
    <${Block} text=${row.content} label="What was noticed" />
    ${row.attributes.why?.length > 0 && html`<p class="quiet"><${Foreign} text=${row.attributes.why.join("; ")} /></p>`}</div>`;
}

const Plan = ({ action }) => html`<${Section} title="Plan"><${Values} values=${[
    ["Goal", action.goal && html`<${Foreign} text=${action.goal} />`], ["Reason", action.reason && html`<${Foreign} text=${action.reason} />`],
    ["Trust", action.trust], ["Put off", action.deferred && html`<${Foreign} text=${action.deferred} />`],
    ["Planner", action.degraded && "a fallback decided"], ["Calls", action.calls.length || ""]]} />
  ${action.said && html`<h3>Said beside the calls</h3><${Block} text=${action.said} label="Said beside the calls" />`}
  ${action.output !== null && html`<h3>Answer</h3><${Block} text=${action.output} label="Answer" />`}<//>`;

const PAGE = 100;
function Calls({ results }) {
  const [most, set] = useState(PAGE);
  if (!results.length) return null;
  const columns = [
    { head: "Call", cell: (row) => html`<code>${row.call.tool}</code>` },
    { head: "Status", cell: (row) => html`<${Badge} text=${row.status} /> ${row.reason && html`<span class="quiet">${row.reason}</span>`}` },
    { head: "Took", isNumber: true, cell: (row) => took(row.duration) },
    { head: "Tries", isNumber: true, cell: (row) => row.attempts },
    { head: "Parameters and result", cell: (row) => html`<details><summary><${Foreign} text=${line(row.call.params, 90)} />${" → "}<${Foreign}
      class=${row.fault ? "bad" : ""} text=${line(row.fault ? row.fault.message : row.output ?? "", 110)} /></summary>
      <${Block} text=${row.call.params} label="Parameters" />${row.call.reason && html`<p class="quiet"><${Foreign} text=${row.call.reason} /></p>`}
      <${Block} text=${row.fault || row.output} label="Result" /></details>` },
  ];
  return html`<${Section} title=${`Calls (${results.length})`}>
    <${CallGraph} results=${results} links=${waitsOf(results.map((row) => row.call))} />
    <${Table} label="Calls" columns=${columns} rows=${results.slice(0, most)} keyOf=${(row) => row.call.id} />
    ${results.length > most && html`<p class="more"><button type="button" onClick=${() => set(most + PAGE)}>Show more</button></p>`}<//>`;
}

const Learnt = ({ reflection }) => html`<${Section} title="Reflection">
  <${Values} values=${[["Score", reflection.score], ["Went well", reflection.successes?.length || ""], ["Failed", reflection.failures?.length || ""]]} />
  ${reflection.failures.length > 0 && html`<h3>Failures</h3><ul class="plain">${reflection.failures.map((row) => html`<li><span class="bad">
    <${Foreign} text=${row.cause} /></span> ${row.remedy && html`<${Foreign} text=${line(row.remedy, 400)} />`}</li>`)}</ul>`}
  ${reflection.experiences.length > 0 && html`<h3>Experiences</h3><ul class="plain">${reflection.experiences.map((row) => html`<li>
    <${Badge} text=${row.success === null ? "unknown" : row.success ? "good" : "failed"} /> <${Foreign} text=${line(row.situation, 300)} /> →
    <${Foreign} text=${line(row.outcome, 300)} />${row.lesson && html`<br /><em><${Foreign} text=${line(row.lesson, 500)} /></em>`}</li>`)}</ul>`}<//>`;

function Memory({ cycle }) {
  const hasLearnt = cycle.action?.learnt?.length > 0;
  const decisions = useData(hasLearnt ? path`/v1/memory/why/${cycle.cycle_id}` : null);
  if (!hasLearnt) return null;
  return html`<${Section} title="What memory changed"><${Load} of=${decisions}>${(rows) => html`<ul class="plain">${rows.map((row) => html`<li>
    <${Badge} text=${row.is_used ? "used" : "only observed"} /> <${Foreign} text=${row.why} />${row.instead_of && html` instead of
      <${Foreign} text=${asText(row.instead_of)} />`}</li>`)}</ul>`}<//><//>`;
}

const requestsOf = (cycle) => (cycle?.notes || []).filter((note) => note.kind === "model.request");
/** A request to a model as lines. */
function written(note) {
  const parts = [note.instructions, ...(note.preface || []), ...note.turns.map((turn) => `[${turn.role}] ${turn.text}${
    (turn.calls || []).map((call) => `\n  ${call.tool} ${asText(call.arguments)} → ${asText(call.result)}`).join("")}`), ...note.texts];
  return parts.map(asText).join("\n\n");
}

function Requests({ cycle }) {
  const requests = requestsOf(cycle);
  const [number, choose] = useState(0);
  const isFirst = number === 0 && requests.length > 0;
  const before = useData(isFirst ? withQuery("/v1/cycles", { session: cycle.session, before: cycle.cycle_id, limit: 1 }) : null);
  const id = before.data?.[0]?.cycle_id;
  const earlier = useData(id ? path`/v1/cycles/${id}` : null);
  if (!requests.length) return null;
  const request = requests[number], other = isFirst ? requestsOf(earlier.data).pop() : requests[number - 1];
  const answer = cycle.action && (cycle.action.said || cycle.action.output !== null || cycle.action.calls.length > 0);
  return html`<${Section} title="Asked of the model" aside=${requests.length > 1 && html`<label>Request <select value=${number}
      onChange=${(event) => choose(Number(event.target.value))}>${requests.map((note, index) => html`<option value=${index}>${index + 1}: ${
        note.purpose}</option>`)}</select></label>`}>
    <div class="columns"><div><h3>The request</h3><${Block} text=${written(request)} label="The request" /></div>
      <div><h3>${other ? "What is new since the one before" : "There is none before it"}</h3>
        ${other && html`<${Diff} before=${written(other)} after=${written(request)} label="Difference to the request before" />`}
        ${answer && number === requests.length - 1 && html`<h3>The answer</h3><${Block} label="The answer" text=${[cycle.action.said, cycle.action.output,
          cycle.action.calls.length ? cycle.action.calls.map((call) => `${call.tool} ${asText(call.params)}`).join("\n") : ""].filter(Boolean).map(asText).join("\n")} />`}
      </div></div><//>`;
}
