// Incidents: perceptions that belong to one problem; what joined one and why, and what was done about it.
import { html, useState } from "../preact.js";
import { change, useData } from "../api.js";
import { Ago, Badge, Block, Clock, Empty, Foreign, Load, Section, Table, Values, go, line, number, path,
  took } from "../parts.js";
import { useGrowing } from "../growing.js";
import { Confirm } from "../confirm.js";

const TONES = { critical: "bad", error: "bad", warning: "warn", info: "quiet", open: "warn", closed: "good",
  firing: "bad", over: "good", event: "quiet" };
const Word = ({ text }) => html`<${Badge} text=${text} tone=${TONES[text]} />`;

const COLUMNS = [
  { head: "Incident", cell: (row) => row.id },
  { head: "Now", cell: (row) => html`<${Foreign} text=${line(row.title, 300)} />` },
  { head: "State", cell: (row) => html`<${Word} text=${row.state} />` },
  { head: "Severity", cell: (row) => html`<${Word} text=${row.severity} />` },
  { head: "Count", cell: (row) => number(row.count), isNumber: true },
  { head: "Opened", cell: (row) => html`<${Clock} at=${row.opened_at} />` },
  { head: "Last", cell: (row) => html`<${Ago} at=${row.last_at} />` },
  { head: "About", cell: (row) => html`<${Foreign} text=${about(row)} />` },
];
const about = (row) => Object.values(row.entities).map(([first]) => first).filter(Boolean).slice(0, 3).join(", ")
  || row.subject || "";

export default function Incidents({ path: [id], query }) {
  return id ? html`<${One} key=${id} id=${id} />` : html`<${List} key=${query.state} query=${query} />`;
}

function List({ query }) {
  const [state, setState] = useState(query.state || "open");
  const incidents = useGrowing("/v1/incidents", { state }, { seconds: 5, most: 1000 });
  const choose = (event) => {
    setState(event.target.value);
    history.replaceState(null, "", go("incidents", [], { state: event.target.value }));
  };
  return html`<div class="bar"><label>State <select value=${state} onChange=${choose}>
      <option value="open">Open</option><option value="closed">Closed</option><option value="all">All</option>
    </select></label></div>
    <${Section} title="Incidents"><${Table} label="Incidents" columns=${COLUMNS} pages=${incidents}
      keyOf=${(row) => row.id} href=${(row) => go("incidents", [row.id])}
      empty=${state === "open" ? "No incident is open." : "No such incidents."} /><//>`;
}

const THINGS = [
  { head: "Thing", cell: ([, thing]) => html`<${Foreign} text=${line(thing.text, 300)} />` },
  { head: "State", cell: ([, thing]) => html`<${Word} text=${thing.state} />` },
  { head: "Severity", cell: ([, thing]) => html`<${Word} text=${thing.severity} />` },
  { head: "From", cell: ([, thing]) => html`<${Foreign} text=${thing.source} />` },
  { head: "Count", cell: ([, thing]) => number(thing.count), isNumber: true },
  { head: "Last", cell: ([, thing]) => html`<${Clock} at=${thing.last_at} />` },
];
const STEPS = [
  { head: "At", cell: (step) => html`<${Clock} at=${step.at} />` },
  { head: "What", cell: (step) => html`<${Word} text=${step.did} />` },
  { head: "Why", cell: (step) => html`<div><${Foreign} text=${step.why} />${step.is_strange
    ? html` <${Badge} text="of a stranger" tone="warn" />` : ""}</div>` },
];
const CYCLES = [
  { head: "Started", cell: (cycle) => html`<${Clock} at=${cycle.started_at} />` },
  { head: "Outcome", cell: (cycle) => html`<${Badge} text=${cycle.outcome} />` },
  { head: "Took", cell: (cycle) => took(cycle.duration), isNumber: true },
  { head: "Did", cell: (cycle) => html`<${Foreign} text=${line(cycle.action?.goal || cycle.action?.reason || "", 200)} />` },
];

function One({ id }) {
  const incident = useData(path`/v1/incidents/${id}`, 5);
  const close = () => change("POST", `${path`/v1/incidents/${id}`}:close`).then(incident.again);
  return html`<p><a href=${go("incidents")}>All incidents</a></p><${Load} of=${incident}>${(one) => html`
    <${Section} title=${one.id} aside=${html`<${Confirm} label="Close" title="Close ${one.id}?" scope="operate"
      why=${one.state === "closed" ? "It is closed already." : one.asked_by ? "It is being closed." : ""} onDo=${close}>
      <p>It is closed in the next cycle. The same problem opens it again, or opens a new one.</p><//>`}>
      <p class="lead"><${Foreign} text=${one.title} /></p>
      <${Values} values=${[["State", html`<${Word} text=${one.state} />`],
        ["Severity", html`<${Word} text=${one.severity} />`], ["Count", number(one.count)],
        ["Of strangers", one.strange > 0 && number(one.strange)], ["Opened", html`<${Clock} at=${one.opened_at} />`],
        ["Last", html`<${Ago} at=${one.last_at} />`], ["Closed", one.closed_at && html`<${Clock} at=${one.closed_at} />`],
        ["Asked to close", one.asked_by && html`<${Foreign} text=${one.asked_by} />`],
        ["Session", html`<${Foreign} text=${one.session} />`], ["Trust", one.trust],
        ["Opened because", one.reason && html`<${Foreign} text=${one.reason} />`],
        ...Object.entries(one.entities).map(([kind, names]) => [kind, html`<${Foreign} text=${names.join(", ")} />`])]} />
    <//>
    <${Section} title="What belongs to it"><${Table} label="Things" columns=${THINGS} rows=${Object.entries(one.things)}
      keyOf=${([key]) => key} empty="Nothing." />${left(one, "things")}<//>
    <div class="columns"><${Section} title="How it went"><${Table} label="Steps" columns=${STEPS} rows=${one.steps}
        keyOf=${(step) => `${step.at} ${step.did} ${step.perception}`} />${left(one, "steps")}<//>
      <${Section} title="What was done about it"><${Table} label="Cycles" columns=${CYCLES} rows=${one.dealt}
        keyOf=${(cycle) => cycle.cycle_id} href=${(cycle) => go("cycle", [cycle.cycle_id])}
        empty="No cycle has dealt with it yet." /><//></div>
    <${Section} title="Evidence">${one.examples.length ? one.examples.map((example) => html`<p class="quiet">
        <${Clock} at=${example.at} /> <${Foreign} text=${example.source} /> <${Word} text=${example.severity} />${" "}
        ${example.trust === "untrusted" && html`<${Badge} text="untrusted" tone="warn" />`}</p>
        <${Block} text=${example.text} label="Evidence" />`) : html`<${Empty}>None.<//>`}${left(one, "examples")}<//>`}<//>`;
}

const left = (one, name) => one.left_out[name] > 0
  && html`<p class="quiet">${number(one.left_out[name])} more ${name} are counted and not kept.</p>`;
