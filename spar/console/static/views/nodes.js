// Nodes: the services of this machine and user, each with its own console and its own sign-in.
import { html } from "../preact.js";
import { useData } from "../api.js";
import { Ago, Badge, Foreign, Load, Section, Table, number } from "../parts.js";

const COLUMNS = [
  { head: "Agent", cell: (row) => html`<div><${Foreign} text=${row.name || "?"} />${row.is_this
    ? html` <${Badge} text="this one" tone="quiet" />` : ""}</div>` },
  { head: "State", cell: (row) => (row.trouble ? html`<span class="bad"><${Foreign} text=${row.trouble} /></span>`
    : html`<${Badge} text=${row.state} />`) },
  { head: "Alerts", cell: (row) => (row.alerts ? html`<span class="warn">${number(row.alerts)}</span>` : row.trouble ? "" : "0"),
    isNumber: true },
  { head: "To approve", cell: (row) => (row.trouble ? "" : number(row.approvals)), isNumber: true },
  { head: "Running since", cell: (row) => html`<${Ago} at=${row.started_at} />` },
  { head: "Version", cell: (row) => row.version },
  { head: "Process", cell: (row) => row.pid || "", isNumber: true },
  { head: "Folder", cell: (row) => html`<code><${Foreign} text=${row.folder} /></code>` },
  { head: "Console", cell: Console },
];

/** A link to the console of another service, on the machine of the services. */
function Console(row) {
  if (row.is_this || !row.console) return row.is_this ? "" : html`<span class="quiet">no port</span>`;
  return html`<a href=${row.console} rel="noopener noreferrer" target="_blank">${row.console}</a>`;
}

export default function Nodes() {
  const services = useData("/v1/services", 10);
  return html`<${Section} title="Services of this machine"><${Load} of=${services}>${(rows) => html`<${Table} label="Services"
      columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.folder} />`}<//>
    <p class="quiet">Those that run as the same user. Each console asks for a token of its own service.${" "}${
      services.data?.some((row) => row.is_this && new URL(row.console || location).host === location.host) ? ""
        : "Its address is that on the machine of the services."}</p><//>`;
}
