// Debug: single steps of a paused agent, breakpoints of a running one, and the sessions that stand at them.
import { html, useState } from "../preact.js";
import { change, useData } from "../api.js";
import { Act, Badge, Block, Clock, Diff, Empty, Foreign, Load, Pause, Section, Table, Values, line, path, took } from "../parts.js";
import { JsonField, parsed, patchOf, pretty } from "../json.js";

export default function Debug() {
  const stops = useData("/v1/stops", 2), breakpoints = useData("/v1/breakpoints", 3);
  const again = () => { stops.again(); breakpoints.again(); };
  return html`<${Load} of=${stops}>${(rows) => rows.map((stop) => html`<${Standing} key=${stop.id} stop=${stop} again=${again} />`)}<//>
    <${Breakpoints} of=${breakpoints} again=${again} /><${Steps} />`;
}

const POINTS = { sense: "after sense", plan: "after plan", call: "before a call", result: "after a result", reflect: "before reflect" };

function Breakpoints({ of, again }) {
  const columns = [
    { head: "Breakpoint", cell: (row) => html`<${Foreign} text=${row.name} />` },
    { head: "Stops", cell: (row) => POINTS[row.point] },
    { head: "Session", cell: (row) => html`<${Foreign} text=${row.session || "each"} />` },
    { head: "If", cell: (row) => row.when && html`<code><${Foreign} text=${row.when} /></code>` },
    { head: "Hits", cell: (row) => row.hits, isNumber: true },
    { head: "State", cell: (row) => html`<div>${row.state === "set"
      ? html`<${Badge} text="set" tone="good" /> ${took(Math.ceil(row.left))} left` : html`<${Badge} text=${row.state} /> <${Foreign} text=${row.why} />`}</div>` },
    { head: "By", cell: (row) => html`<${Foreign} text=${row.by} />` },
    { head: "", cell: (row) => row.state === "set" && html`<${Act} scope="operate" kind="danger" onClick=${() =>
      change("DELETE", path`/v1/breakpoints/${row.name}`).then(again)}>Remove<//>` },
  ];
  return html`<${Section} title="Breakpoints"><${Load} of=${of}>${(rows) => html`<${Table} label="Breakpoints" columns=${columns}
      rows=${rows} keyOf=${(row) => row.name} empty="No breakpoint is set." />`}<//><${NewBreakpoint} again=${again} /><//>`;
}

function NewBreakpoint({ again }) {
  const [fields, set] = useState({ point: "call", session: "", when: "" });
  const put = (name) => (event) => set((old) => ({ ...old, [name]: event.target.value }));
  const add = () => change("POST", "/v1/breakpoints", fields).then(again);
  return html`<form class="bar" onSubmit=${(event) => event.preventDefault()}>
    <label>Stop <select value=${fields.point} onChange=${put("point")}>${Object.entries(POINTS).map(([value, label]) =>
      html`<option value=${value}>${label}</option>`)}</select></label>
    <label>Only in session <input value=${fields.session} onInput=${put("session")} maxlength="256" dir="auto" autocomplete="off" /></label>
    <label>Only if <input value=${fields.when} onInput=${put("when")} size="28" placeholder='tool == "shell"' spellcheck=${false}
      autocomplete="off" /></label><${Act} scope="operate" kind="primary" onClick=${add}>Set<//></form>`;
}

const UNTIL = { end: "to the next breakpoint", phase: "to its next point", cycle: "to its next cycle" };

/** A session that stands: what it has, what may be changed, how far it goes on. */
function Standing({ stop, again }) {
  const [until, choose] = useState("end");
  const go = () => change("POST", path`/v1/stops/${stop.id}:go`, { until }).then(again);
  const hold = () => change("POST", "/v1/stops:attach", { session: stop.session }).then(again);
  return html`<${Section} title=${html`<${Foreign} text=${stop.session} /> stands ${stop.where}`} aside=${html`
      <${Act} scope="operate" onClick=${hold}>Hold longer<//>
      <label>Go on <select value=${until} onChange=${(event) => choose(event.target.value)}>${Object.entries(UNTIL).map(([value, label]) =>
        html`<option value=${value}>${label}</option>`)}</select></label><${Act} scope="operate" kind="primary" onClick=${go}>Go on<//>`}>
    <${Values} values=${[["Breakpoint", html`<${Foreign} text=${stop.breakpoint || "a step"} />`], ["Stands since", html`<${Clock} at=${stop.since} />`],
      ["Goes on by itself in", took(Math.ceil(stop.left))], ["Cycle", html`<code>${stop.cycle_id.slice(0, 12)}</code>`]]} />
    ${stop.changes.map((row) => html`<p class="note"><${Foreign} text=${row.by} /> changed the ${row.part}: <code><${Foreign}
      text=${line(row.patch, 300)} /></code>${row.reason && html` <${Foreign} text=${row.reason} />`}</p>`)}
    <h3>Noticed</h3>${stop.perceptions.length ? stop.perceptions.map((row) => html`<${Block} text=${row.content} label="What was noticed" />`)
      : html`<${Empty}>Nothing new.<//>`}
    ${stop.plan && html`<h3>Plan</h3><${Values} values=${[["Goal", stop.plan.goal && html`<${Foreign} text=${stop.plan.goal} />`],
        ["Reason", stop.plan.reason && html`<${Foreign} text=${stop.plan.reason} />`]]} />
      <ul class="plain">${stop.plan.calls.map((call) => html`<li><code>${call.tool}</code> <${Foreign} text=${line(call.params, 300)} /></li>`)}</ul>
      ${stop.plan.output !== null && html`<${Block} text=${stop.plan.output} label="Answer" />`}`}
    ${stop.results.map((row) => html`<h3>Result of <code>${row.call.tool}</code> <${Badge} text=${row.status} /></h3><${Block}
      text=${row.fault || row.output} label="Result" />`)}
    ${changeable(stop).length > 0 && html`<${Change} key=${stop.changes.length} stop=${stop} again=${again} />`}<//>`;
}

const chosen = (value, ...names) => Object.fromEntries(names.map((name) => [name, value[name]]));

/** The parts that can be changed where a session stands: [{id, label, value}]. */
function changeable({ point, perceptions, plan, call, results }) {
  if (point === "sense") return perceptions.map((row) => ({ id: row.id, label: `Perception: ${line(row.content, 60)}`,
    value: chosen(row, "content", "kind", "subject", "intent", "priority", "attributes") }));
  if (point === "plan" && plan) return [...plan.calls.map((row) => ({ id: row.id, label: `Call of ${row.tool}`, value: chosen(row, "tool", "params") })),
    { id: "", label: "The plan", value: chosen(plan, "goal", "output", "reason") }];
  if (point === "call") return [{ id: "", label: "The call", value: chosen(call, "tool", "params") }];
  return point === "result" ? results.map((row) => ({ id: "", label: "The result", value: chosen(row, "status", "output") })) : [];
}

function Change({ stop, again }) {
  const parts = changeable(stop);
  const [index, choose] = useState(0);
  const [texts, write] = useState(() => parts.map(({ value }) => pretty(value)));
  const [reason, because] = useState("");
  const { id, label, value } = parts[index], [wanted, wrong] = parsed(texts[index]);
  const isSame = !wrong && pretty(wanted) === pretty(value);
  const send = () => change("POST", path`/v1/stops/${stop.id}:change`, { id, reason, patch: patchOf(value, wanted) }).then(again);
  return html`<fieldset class="decide"><legend>Change it by hand</legend>
    ${parts.length > 1 && html`<label>Part <select value=${index} onChange=${(event) => choose(Number(event.target.value))}>${parts.map((part, place) =>
      html`<option value=${place}>${part.label}</option>`)}</select></label>`}
    <${JsonField} label="${label}, as JSON" text=${texts[index]} wrong=${wrong} onText=${(text) => write(texts.with(index, text))} />
    ${!wrong && !isSame && html`<${Diff} before=${pretty(value)} after=${pretty(wanted)} label="Change by hand" />`}
    <label>Reason (stored) <input value=${reason} maxlength="2000" dir="auto" onInput=${(event) => because(event.target.value)} /></label>
    <p><${Act} scope="operate" why=${wrong || (isSame ? "Nothing is changed." : "")} onClick=${send}>Change<//></p></fieldset>`;
}

/** The phases: what each takes, and the product of which phase that is. */
const PHASES = { sense: ["", ""], plan: ["Perceptions", "sense"], act: ["Action", "plan"], reflect: ["Results", "act"] };

function Steps() {
  const status = useData("/v1/status?lanes=0", 3);
  const [texts, write] = useState({}); // what each phase takes, as JSON; "" for the product of the phase before
  const [last, show] = useState();
  const put = (phase, text) => write((old) => ({ ...old, [phase]: text }));
  const state = status.data?.agent.state, isStill = ["created", "paused", "stopped"].includes(state);
  const run = (phase) => async () => {
    const text = texts[phase];
    const product = await change("POST", `/v1/agent:step_${phase}`, text ? JSON.parse(text) : undefined);
    const next = Object.keys(PHASES).find((name) => PHASES[name][1] === phase);
    if (next) put(next, product === null ? "" : pretty(product));
    show({ phase, product });
  };
  return html`<${Section} title="Single steps" aside=${state && html`<${Badge} text=${state} /> <${Pause} state=${state} again=${status.again} />`}>
    <p class="quiet">A paused agent makes one phase at a time. What a phase takes may be changed first; calls are made for real.</p>
    ${Object.entries(PHASES).map(([phase, [takes]]) => {
      const wrong = texts[phase] ? parsed(texts[phase], { mustBeObject: false })[1] : "";
      return html`<div class="item">${takes && html`<${JsonField} label="${takes}, as JSON; empty: of the step before" text=${texts[phase] || ""}
          wrong=${wrong} onText=${(text) => put(phase, text)} rows=${texts[phase] ? 9 : 2} />`}
        <${Act} scope="step" why=${!isStill ? "The agent must be paused." : wrong} onClick=${run(phase)}>Step ${phase}<//>
        ${phase === "act" && texts.act && !wrong && html`<${Stub} key=${texts.act} action=${JSON.parse(texts.act)}
          onResults=${(results) => put("reflect", pretty(results))} />`}</div>`;
    })}
    ${last && html`<h3>${last.phase} returned</h3><${Block} label="Product of the step" text=${last.product === null ? "nothing: there is nothing to do"
      : last.product} />`}<//>`;
}

/** Results by hand in place of the calls of an action. */
function Stub({ action, onResults }) {
  const calls = action.calls || [];
  const [outputs, write] = useState(calls.map(() => "null"));
  const read = outputs.map((text) => parsed(text, { mustBeObject: false }));
  const take = async () => onResults({ action, status: "ok", results: calls.map((call, index) => ({ call, status: "ok", output: read[index][0] })) });
  return calls.length > 0 && html`<details><summary>Stub the calls: results by hand, nothing is called</summary>${calls.map((call, index) => html`<${JsonField}
      rows=${2} label="Result of ${call.tool || call._tool}" text=${outputs[index]} wrong=${read[index][1]} onText=${(text) => write(outputs.with(index, text))} />`)}
    <${Act} why=${read.map(([, wrong]) => wrong).find(Boolean) || ""} onClick=${take}>Take these results<//></details>`;
}
