// Settings in force: value and origin of each; check of the file, reload.
import { html, useState } from "../preact.js";
import { change, useData } from "../api.js";
import { Act, Badge, Block, Foreign, Load, Section, Table, line, number } from "../parts.js";

const isLong = (value) => line(value, 1000).length > 90;
const COLUMNS = [
  { head: "Setting", cell: (row) => html`<code>${row.key.split(".").map((word, index) => html`${index
    ? html`.<wbr />` : ""}${word}`)}</code>` },
  { head: "Value", cell: (row) => (isLong(row.value) ? html`<details><summary><code><${Foreign} text=${line(row.value, 80)} />
      </code></summary><${Block} text=${row.value} label=${row.key} /></details>`
    : html`<code><${Foreign} text=${line(row.value)} /></code>`) },
  { head: "From", cell: (row) => (row.origin === "default" ? html`<span class="quiet">default</span>`
    : html`<${Foreign} text=${row.origin} />`) },
  { head: "A change applies", cell: (row) => html`<span class="quiet">${row.applies === "reload" ? "at a reload"
    : "after a restart"}</span>` },
];

export default function Settings({ query }) {
  const [words, search] = useState(query.q || "");
  const [isSet, only] = useState(false);
  const settings = useData("/v1/config");
  const chosen = (settings.data || []).filter((row) => (!isSet || row.origin !== "default")
    && words.toLowerCase().split(/\s+/).every((word) => `${row.key} ${line(row.value, 2000)}`.toLowerCase().includes(word)));
  return html`<${Changes} again=${settings.again} />
    <div class="bar" role="search"><label>Search <input type="search" value=${words} size="28"
        onInput=${(event) => search(event.target.value)} autocomplete="off" /></label>
      <label class="check"><input type="checkbox" checked=${isSet} onChange=${(event) => only(event.target.checked)} />
        only those that are set</label>
      <span class="quiet" role="status">${settings.data && `${number(chosen.length)} of ${number(settings.data.length)}`}</span></div>
    <${Section} title="In force"><${Load} of=${settings}>${() => html`<${Table} label="Settings" columns=${COLUMNS}
      rows=${chosen} keyOf=${(row) => row.key} empty="No setting has these words." />`}<//><//>`;
}

/** The check of the file and the reload, with what they say. */
function Changes({ again }) {
  const [said, say] = useState();
  const check = async () => say({ ...(await change("POST", "/v1/config:check")), is: "check" });
  const reload = async () => {
    say({ problems: [], ...(await change("POST", "/v1/agent:reload")), is: "reload" });
    again();
  };
  const keys = (names) => names.map((name, index) => html`${index ? ", " : ""}<code>${name}</code>`);
  return html`<${Section} title="The file as it is now" aside=${html`<${Act} scope="operate" onClick=${check}>Check<//>
      <${Act} scope="operate" onClick=${reload}>Reload<//>`}>
    <p class="quiet">A check says what a reload would change, and applies nothing. A reload takes effect between two cycles.</p>
    <div role="status">${said && (said.problems.length ? html`<div class="note bad">${said.problems.map((problem) =>
        html`<p><${Foreign} text=${problem} /></p>`)}</div>` : html`<div class="note ${said.is === "reload" ? "good" : ""}">
      <p>${said.changed.length ? html`${said.is === "reload" ? "Changed" : "A reload changes"}: ${keys(said.changed)}.`
        : html`<${Badge} text="valid" tone="good" /> Nothing ${said.is === "reload" ? "has changed" : "differs"} that a reload
          applies.`}</p>
      ${said.needs_restart.length > 0 && html`<p>Only after a restart: ${keys(said.needs_restart)}.</p>`}</div>`)}</div><//>`;
}
