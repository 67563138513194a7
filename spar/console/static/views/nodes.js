// Nodes: those that run this agent together, and the services of this machine and user, each with a sign-in of its own.
import { html } from "../preact.js";
import { change, useData } from "../api.js";
import { Act, Ago, Badge, Foreign, Load, path, Section, Table, number } from "../parts.js";

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

const TONES = { working: "good", draining: "quiet", outdated: "warn", gone: "quiet" };

const NODES = [
  { head: "Node", cell: (row) => html`<${Foreign} text=${row.name} />` },
  { head: "State", cell: (row) => html`<${Badge} text=${row.state} tone=${TONES[row.state]} />` },
  { head: "Partitions", cell: (row) => number(row.partitions), isNumber: true },
  { head: "Running since", cell: (row) => html`<${Ago} at=${row.since} />` },
  { head: "Version", cell: (row) => row.version },
];

/** The nodes of this agent; nothing for an agent of one process. */
function Together() {
  const nodes = useData("/v1/nodes", 5);
  const drain = (row, undo) => change("POST", path`/v1/nodes/${row.token}:drain`, { undo }).then(nodes.again);
  const columns = [...NODES, { head: "Sessions", cell: (row) => (row.state === "gone" || row.state === "outdated" ? "" : row.state === "draining"
    ? html`<${Act} scope="operate" onClick=${() => drain(row, true)}>Take again<//>`
    : html`<${Act} scope="operate" onClick=${() => drain(row, false)}>Hand over<//>`) }];
  return Boolean(nodes.data?.length) && html`<${Section} title="Nodes of this agent"><${Table} label="Nodes" columns=${columns}
    rows=${nodes.data} keyOf=${(row) => row.token} />
    <p class="quiet">A node owns some of the 256 partitions of sessions; one that hands over takes nothing more.</p><//>`;
}

/** A link to the console of another service, on the machine of the services. */
function Console(row) {
  if (row.is_this || !row.console) return row.is_this ? "" : html`<span class="quiet">no port</span>`;
  return html`<a href=${row.console} rel="noopener noreferrer" target="_blank">${row.console}</a>`;
}

export default function Nodes() {
  const services = useData("/v1/services", 10);
  return html`<${Together} /><${Section} title="Services of this machine"><${Load} of=${services}>${(rows) => html`<${Table} label="Services"
      columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.folder} />`}<//>
    <p class="quiet">Those that run as the same user. Each console asks for a token of its own service.${" "}${
      services.data?.some((row) => row.is_this && new URL(row.console || location).host === location.host) ? ""
        : "Its address is that on the machine of the services."}</p><//>`;
}
