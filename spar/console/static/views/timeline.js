// Timeline: the recorded cycles, newest first, by filters that stand in the address.
import { html } from "../preact.js";
import { usePages } from "../api.js";
import { Badge, Clock, Filters, Foreign, go, line, number, Section, Table, took, withQuery } from "../parts.js";

const PAGE = 50;
const OUTCOMES = ["acted", "skipped", "degraded", "failed", "interrupted"];
const COLUMNS = [
  { head: "Started", cell: (row) => html`<${Clock} at=${row.started_at} />` },
  { head: "Outcome", cell: (row) => html`<${Badge} text=${row.outcome} />` },
  { head: "Took", isNumber: true, cell: (row) => took(row.duration) },
  { head: "Calls", cell: (row) => html`<${Calls} row=${row} />` },
  { head: "About", cell: (row) => html`<${Foreign} text=${line(row.about || row.goal || "", 240)} />` },
  { head: "Session", cell: (row) => html`<a href=${go("chat", [row.session])}><${Foreign} text=${line(row.session, 40)} /></a>` },
];

function Calls({ row: { calls, deferred } }) {
  const { ok = 0, failed = 0, skipped = 0 } = calls || {};
  if (!ok && !failed && !skipped) return deferred ? html`<span class="warn">put off</span>` : null;
  return html`${ok ? html`<span class="good">✓ ${number(ok)} </span>` : null}${
    failed ? html`<span class="bad">✗ ${number(failed)} </span>` : null}${
    skipped ? html`<span class="quiet">${number(skipped)} not done</span>` : null}`;
}

export default function Timeline({ query }) {
  const first = withQuery("/v1/cycles", { limit: PAGE, ...query });
  const pages = usePages(first, (rows) => rows.length < PAGE ? ""
    : withQuery("/v1/cycles", { limit: PAGE, ...query, before: rows[rows.length - 1].cycle_id }), { seconds: 5 });
  return html`<${Filters} name="timeline" query=${query} fields=${[
    { name: "session", label: "Session" },
    { name: "outcome", label: "Outcome", options: OUTCOMES },
    { name: "since", label: "Since", type: "datetime-local" },
    { name: "failed", label: "Only with failures", type: "checkbox" },
  ]} />
  <${Section} title="Cycles" aside=${html`<span class="quiet">idle ones leave no trace</span>`}>
    <${Table} label="Cycles" columns=${COLUMNS} pages=${pages} keyOf=${(row) => row.cycle_id}
      href=${(row) => go("cycle", [row.cycle_id])} empty="No such cycles." /><//>`;
}
