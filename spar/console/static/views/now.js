// Now: the phase of each session, the run in hand, health, budgets.
import { html } from "../preact.js";
import { useData } from "../api.js";
import { Badge, Foreign, Load, Section, Table, took } from "../parts.js";

const COLUMNS = [
  { head: "Session", cell: (lane) => html`<${Foreign} text=${lane.session} />` },
  { head: "Phase", cell: (lane) => html`<${Badge} text=${lane.phase || "waits"} tone=${lane.phase ? "good" : "quiet"} />` },
  { head: "For", cell: (lane) => took(lane.phase_seconds), isNumber: true },
];

export default function Now() {
  const status = useData("/v1/status?lanes=true", 2);
  return html`<${Load} of=${status}>${({ agent }) => html`<${Section} title="Sessions">
    <${Table} label="Sessions" columns=${COLUMNS} rows=${agent.lanes} keyOf=${(lane) => lane.session} /><//>`}<//>`;
}
