// Now: the phase of each session with its clock, the run in hand with its text, health, budgets, the load.
import { html, useEffect, useRef, useState } from "../preact.js";
import { change, useData } from "../api.js";
import { Act, Ago, Badge, Empty, Foreign, go, line, Load, now, number, path, Section, Sparkline, Table, took, useTick }
  from "../parts.js";
import { useRun } from "../run.js";

const MOST_POINTS = 90;
const loads = []; // {at, cycles}: the newest polls, also while another view is shown

export default function Now() {
  const status = useData("/v1/status?lanes=true", 3);
  const runs = useData("/v1/runs?open=true&limit=50", 3);
  const read = useRef(0);
  if (status.data) {
    const total = status.data.agent.stats.total_cycles, last = loads[loads.length - 1];
    if (!last || last.total !== total || now() - last.at > 2900) loads.push({ at: now(), total });
    if (loads.length > MOST_POINTS) loads.shift();
    if (read.of !== status.data) Object.assign(read, { of: status.data, at: now() });
  }
  return html`<${Load} of=${status}>${(all) => html`
    <${Figures} all=${all} />
    <div class="columns">
      <${Sessions} lanes=${all.agent.lanes} at=${read.at} />
      <${Health} agent=${all.agent} />
    </div>
    <${Load} of=${runs}>${(rows) => html`<${Runs} rows=${rows} />`}<//>
    <${Calls} running=${all.agent.modules.act?.running || []} />
    <${Budgets} rows=${all.agent.budgets} />`}<//>`;
}

function rates() {
  return loads.slice(1).map((load, index) => {
    const before = loads[index], seconds = (load.at - before.at) / 1000;
    return seconds > 0 ? Math.max(load.total - before.total, 0) / seconds : 0;
  });
}

function Figures({ all: { agent, started_at, version } }) {
  const values = rates(), last = values[values.length - 1] || 0, { stats } = agent;
  const word = `${last.toFixed(1)} cycles a second`;
  const Tile = ({ label, children }) => html`<div><dt>${label}</dt><dd>${children}</dd></div>`;
  return html`<dl class="tiles">
    <${Tile} label="Agent"><${Badge} text=${agent.state} /> <span class="quiet">v${version}</span><//>
    <${Tile} label="Started"><${Ago} at=${started_at} /><//>
    <${Tile} label="Load"><div class="with-spark"><${Sparkline} values=${values} label="Load: ${word}" width="90" />
      <span>${last.toFixed(1)}/s</span></div><//>
    <${Tile} label="Cycles">${number(stats.total_cycles)} <span class="quiet">· ${took(stats.cycle_mean_seconds)}</span><//>
    <${Tile} label="Failed">${html`<span class=${stats.failed_cycles ? "bad" : ""}>${number(stats.failed_cycles)}</span>`}<//>
    <${Tile} label="Open runs">${agent.open_runs}<//>
    <${Tile} label="To approve">${agent.approvals.pending
      ? html`<a href="#/approvals" class="warn">${agent.approvals.pending}</a>` : "0"}<//>
  </dl>`;
}

function Sessions({ lanes, at }) {
  useTick(1, lanes.some((lane) => lane.phase));
  const since = Math.max(now() - at, 0) / 1000;
  const columns = [
    { head: "Session", cell: (lane) => html`<${Foreign} text=${lane.session} />` },
    { head: "Phase", cell: (lane) => lane.phase ? html`<${Badge} text=${lane.phase} tone="good" />${
      lane.waits_for_model ? " waits for a model" : ""}` : html`<span class="quiet">waits</span>` },
    { head: "For", isNumber: true, cell: (lane) => lane.phase
      ? html`<a href=${go("cycle", [lane.cycle])}>${took(lane.phase_seconds + since)}</a>` : "" },
    { head: "Next look", isNumber: true, cell: (lane) => lane.next_cycle_in === null ? ""
      : lane.next_cycle_in - since > 1 ? took(lane.next_cycle_in - since) : "soon" },
    { head: "Waiting", isNumber: true, cell: (lane) => lane.waiting || "" },
  ];
  return html`<${Section} title="Sessions"><${Table} label="Sessions" columns=${columns} rows=${lanes.slice(0, 100)}
    keyOf=${(lane) => lane.session} href=${(lane) => go("chat", [lane.session])} empty="No session is open." />
    ${lanes.length > 100 && html`<p class="quiet">and ${lanes.length - 100} more</p>`}<//>`;
}

function Health({ agent }) {
  const rows = [
    ...agent.alerts.map((alert) => [alert.kind, alert.message || alert.kind, "bad"]),
    ...(agent.failure ? [["failure", agent.failure, "bad"]] : []),
    ...(agent.blocked_by ? [["blocked", agent.blocked_by, "bad"]] : []),
    ...(agent.health.degraded ? [["degraded", "the planner makes do with less", "warn"]] : []),
    ...agent.models.filter((model) => model.state !== "closed").map((model) => [model.state, `${model.model}: ${model.reason}`, "warn"]),
    ...agent.warnings.map((text) => ["warning", text, "warn"]),
    ...(agent.recovery.in_doubt ? [["in doubt", `${agent.recovery.in_doubt} calls`, "warn"]] : []),
    ...(agent.recovery.dead_letters ? [["dead letters", agent.recovery.dead_letters, "warn"]] : []),
  ];
  return html`<${Section} title="Health">${rows.length ? html`<ul class="plain">${rows.map(([word, text, tone]) =>
    html`<li><${Badge} text=${word} tone=${tone} /> <${Foreign} text=${line(text, 300)} /></li>`)}</ul>`
    : html`<p class="good"><strong>All is well.</strong> <span class="quiet">No alert is open.</span></p>`}<//>`;
}

function Runs({ rows }) {
  const [chosen, choose] = useState("");
  const running = rows.filter((row) => row.status === "running");
  const row = rows.find(({ run_id }) => run_id === chosen) || running[0] || rows[0];
  return html`<${Section} title="Runs in hand" aside=${rows.length > 1 && html`<label>Run <select value=${row.run_id}
      onChange=${(event) => choose(event.target.value)}>${rows.map(({ run_id, session, status }) =>
    html`<option value=${run_id}>${line(session, 30)} · ${status}</option>`)}</select></label>`}>
    ${row ? html`<${Run} key=${row.run_id} row=${row} />` : html`<${Empty}>No run is open.<//>`}<//>`;
}

function Run({ row }) {
  const run = useRun(row.run_id);
  const latest = run.calls.slice(-8);
  const text = useRef();
  useEffect(() => { if (text.current) text.current.scrollTop = text.current.scrollHeight; }, [run.text]);
  return html`<div class="bar"><span><${Badge} text=${row.status} /> in <a href=${go("chat", [row.session])}><${Foreign}
      text=${row.session} /></a>, accepted <${Ago} at=${row.accepted_at} /></span>
    <${Act} scope="operate" kind="danger" onClick=${() => change("POST", path`/v1/runs/${row.run_id}:abort`)}>Abort<//></div>
    ${run.hasGap && html`<p class="note warn">Some events of this run were missed.</p>`}
    <div class="live-text" ref=${text} dir="auto" tabindex="0" role="region" aria-label="Answer so far">${run.text
      || html`<span class="quiet">No text yet.</span>`}${!run.end && html`<span class="live caret" aria-hidden="true"></span>`}</div>
    ${latest.length > 0 && html`<ul class="plain">${latest.map((call) => html`<li key=${call.call}>
      <${Badge} text=${call.status || call.phase} /> <code>${call.tool}</code> <${Foreign} text=${line(call.params || call.error || "", 160)} /></li>`)}</ul>`}`;
}

function Calls({ running }) {
  if (!running.length) return null;
  const columns = [
    { head: "Tool", cell: (call) => html`<code>${call.tool}</code>` },
    { head: "Call", cell: (call) => html`<code>${call.id}</code>` },
    { head: "For", isNumber: true, cell: (call) => took(call.seconds) },
  ];
  return html`<${Section} title="Calls running"><${Table} label="Calls running" columns=${columns}
    rows=${running.slice(0, 50)} keyOf=${(call) => call.id} /><//>`;
}

function Budgets({ rows }) {
  const used = rows.filter((row) => row.used > 0 || row.refused > 0);
  const columns = [
    { head: "Budget", cell: (row) => html`<code>${row.budget}</code>` },
    { head: "Used", isNumber: true, cell: (row) => `${number(row.used)} of ${number(row.limit)}` },
    { head: "Share", cell: (row) => html`<meter min="0" max="1" high="0.8" value=${row.ratio}
      aria-label="${row.budget} used">${Math.round(row.ratio * 100)} %</meter>` },
    { head: "Refused", isNumber: true, cell: (row) => row.refused || "" },
    { head: "Free again", cell: (row) => html`<${Ago} at=${row.ends_at} />` },
  ];
  return html`<${Section} title="Budgets"><${Table} label="Budgets" columns=${columns} rows=${used}
    keyOf=${(row) => row.budget} empty="Nothing of a budget is used." /><//>`;
}
