// Health: alerts, steps of recovery, models, budgets, sensors, channels, attachments, what comes next.
import { html } from "../preact.js";
import { change, useData } from "../api.js";
import { Act, Ago, Badge, Clock, Foreign, Load, Pause, Section, Table, Values, line, number, path, took } from "../parts.js";
import { Meter } from "../charts.js";

const ALERTS = [
  { head: "Alert", cell: (row) => html`<${Badge} text=${row.kind} tone=${row.severity === "critical" ? "bad" : "warn"} />` },
  { head: "Says", cell: (row) => html`<${Foreign} text=${row.message} />` },
  { head: "Since", cell: (row) => html`<${Ago} at=${time(row.since)} />` },
  { head: "Session", cell: (row) => html`<${Foreign} text=${row.session} />` },
];
const STEPS = [
  { head: "At", cell: (row) => html`<${Clock} at=${time(row.at)} />` },
  { head: "Step", cell: (row) => row.step },
  { head: "Part", cell: (row) => html`<${Foreign} text=${row.part} />` },
  { head: "Why", cell: (row) => html`<${Foreign} text=${line(row.reason, 300)} />` },
];
const MODELS = [
  { head: "Model", cell: (row) => html`<${Foreign} text=${row.model} />` },
  { head: "State", cell: (row) => html`<${Badge} text=${row.state === "closed" ? "answers" : row.state}
    tone=${row.state === "closed" ? "good" : "warn"} />` },
  { head: "Why", cell: (row) => html`<${Foreign} text=${row.reason} />` },
  { head: "Tried again in", cell: (row) => (row.wait ? took(row.wait) : ""), isNumber: true },
];
const BUDGETS = [
  { head: "Budget", cell: (row) => row.budget.replace(".", " · ").replace("_", " ") },
  { head: "Used", cell: (row) => html`<${Meter} label="Used" value=${row.ratio} warn=${0.8}
    text="${amount(row, row.used)} of ${amount(row, row.limit)}" />` },
  { head: "Refused", cell: (row) => number(row.refused), isNumber: true },
  { head: "Free again", cell: (row) => html`<${Ago} at=${row.ends_at} />` },
];
const amount = ({ budget }, value) => (budget.endsWith("money") ? (value / 1e6).toFixed(2) : number(value));
const megabytes = (bytes) => number(Math.ceil(bytes / 1e5) / 10);
/** A time that is seconds since 1970 or a text. */
const time = (at) => (typeof at === "number" ? new Date(at * 1000).toISOString() : at);
const SENSORS = (again) => [
  { head: "Sensor", cell: ([name]) => html`<${Foreign} text=${name} />` },
  { head: "State", cell: ([, row]) => html`<${Badge} text=${row.state} />` },
  { head: "Last error", cell: ([, row]) => html`<${Foreign} text=${line(row.last_error || "", 300)} />` },
  { head: "", cell: ([name, row]) => row.state === "quarantined" && html`<${Act} scope="operate" onClick=${() =>
    change("POST", `${path`/v1/sensors/${name}`}:restore`).then(again)}>Try again now<//>` },
];
const CHANNELS = [
  { head: "Channel", cell: ([name]) => html`<${Foreign} text=${name} />` },
  { head: "State", cell: ([, row]) => html`<${Badge} text=${row.state} />` },
  { head: "Undelivered", cell: ([, row]) => number(row.failed), isNumber: true },
];
const PARTS = [
  { head: "Attachment", cell: (row) => html`<${Foreign} text=${row.name} />` },
  { head: "State", cell: (row) => html`<${Badge} text=${row.state} tone=${{ open: "good", "not attached": "quiet" }[row.state]} />` },
  { head: "Failures", cell: (row) => number(row.failures), isNumber: true },
  { head: "Why", cell: (row) => html`<${Foreign} text=${row.why} />` },
];
const NEXT = [
  { head: "When", cell: (row) => html`<${Ago} at=${row.at} />` },
  { head: "What", cell: (row) => html`<${Foreign} text=${line(row.what, 200)} />` },
  { head: "Of", cell: (row) => html`<div><${Badge} text=${row.kind} tone="quiet" /> <${Foreign} text=${row.of} /></div>` },
];

export default function Health() {
  const status = useData("/v1/status?lanes=0", 3), next = useData("/v1/next?limit=20", 5);
  const sensors = useData("/v1/sensors", 5), parts = useData("/v1/parts", 15);
  return html`<${Load} of=${status}>${({ agent, ...service }) => html`
    <${Section} title="Now" aside=${html`<${Badge} text=${agent.state} />
        ${agent.health.degraded && html`<${Badge} text="makes do with less" tone="warn" />`}
        <${Pause} state=${agent.state} again=${status.again} />`}>
      ${agent.failure && html`<p class="note bad"><${Foreign} text=${agent.failure} /></p>`}
      ${agent.blocked_by && html`<p class="note bad">The event loop is blocked.</p>`}
      ${agent.warnings.map((text) => html`<p class="note warn"><${Foreign} text=${text} /></p>`)}
      <${Values} values=${[["Running since", html`<${Ago} at=${service.started_at} />`], ["Version", service.version],
        ["Process", service.pid], ["Cycles", number(agent.stats.total_cycles)], ["Open runs", number(agent.open_runs)],
        ["Calls in doubt", number(agent.recovery.in_doubt)], ["Dead letters", number(agent.recovery.dead_letters)],
        ["To be retried", number(agent.recovery.to_be_retried)], ["Records written", number(agent.kept.stored)],
        ["Waiting to be written", number(agent.kept.waiting)], ["Records lost", number(agent.kept.lost)],
        ["Senders who wait", number(agent.senders_waiting)], ["Left behind", agent.left_behind || ""],
        ["Database", agent.memory?.bytes > 0 && html`<${Meter} label="Database" warn=${0.95}
          value=${agent.memory.max_bytes ? agent.memory.bytes / agent.memory.max_bytes : 0} text="${megabytes(agent.memory.bytes)}${
          agent.memory.max_bytes ? ` of ${megabytes(agent.memory.max_bytes)}` : ""} MB" />`]]} /><//>
    <${Section} title="Alerts"><${Table} label="Alerts" columns=${ALERTS} rows=${agent.alerts}
      keyOf=${(row) => `${row.kind} ${row.session}`} empty="No alert is open." /><//>
    ${agent.health.steps.length > 0 && html`<${Section} title="Steps of recovery"><${Table} label="Steps of recovery"
      columns=${STEPS} rows=${[...agent.health.steps].reverse()} keyOf=${(row) => `${row.at} ${row.step} ${row.part}`} /><//>`}
    <div class="columns">
      <${Section} title="Budgets"><${Table} label="Budgets" columns=${BUDGETS} rows=${agent.budgets}
        keyOf=${(row) => row.budget} empty="No budget is set." /><//>
      <${Section} title="What comes next"><${Load} of=${next} empty="Nothing is planned: it waits for what it notices.">${(rows) =>
        html`<${Table} label="What comes next" columns=${NEXT} rows=${rows}
          keyOf=${(row) => `${row.at} ${row.kind} ${row.of}`} />`}<//><//></div>
    ${agent.models.length > 0 && html`<${Section} title="Models"><${Table} label="Models" columns=${MODELS} rows=${agent.models}
      keyOf=${(row) => row.model} /><//>`}
    <div class="columns">
      <${Section} title="Sensors"><${Load} of=${sensors}>${(of) => html`<${Table} label="Sensors" columns=${SENSORS(sensors.again)}
        rows=${Object.entries(of)} keyOf=${([name]) => name} empty="No sensor is configured." />`}<//><//>
      ${Object.keys(agent.channels).length > 0 && html`<${Section} title="Channels"><${Table} label="Channels"
        columns=${CHANNELS} rows=${Object.entries(agent.channels)} keyOf=${([name]) => name} /><//>`}
      <${Section} title="Attachments"><${Load} of=${parts}>${(rows) => html`<${Table} label="Attachments" columns=${PARTS}
        rows=${rows} keyOf=${(row) => row.name} empty="Nothing is attached." />`}<//><//></div>`}<//>`;
}
