// Cost: tokens, money and the share that a cache served, by day, model, session and rule.
import { html, useState } from "../preact.js";
import { useData } from "../api.js";
import { Foreign, Load, Section, Table, Values, line, number, withQuery } from "../parts.js";
import { Bars, Meter } from "../charts.js";

const RANGES = { 1: "Today and yesterday", 7: "7 days", 30: "30 days", 90: "90 days", 400: "All that is kept" };
/** Money of a row: "?" if it is not known, with a sign if it is only a part. */
export function money(row) {
  if (row.money === null) return row.requests ? "?" : "";
  const amount = (row.money / 1e6).toLocaleString("en", { maximumFractionDigits: row.money < 1e6 ? 4 : 2 });
  return row.unpriced || row.unmeasured ? `≥ ${amount}` : amount;
}
const short = (value) => Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);

const columns = (head) => [
  { head, cell: (row) => (row.what ? html`<${Foreign} text=${line(row.what, 200)} />` : html`<span class="quiet">none</span>`) },
  { head: "Requests", cell: (row) => number(row.requests), isNumber: true },
  { head: "Tokens read", cell: (row) => number(row.input_tokens), isNumber: true },
  { head: "From a cache", cell: (row) => row.cached !== null && html`<${Meter} label="From a cache" value=${row.cached}
    text="${Math.round(100 * row.cached)} %" />` },
  { head: "Tokens written", cell: (row) => number(row.output_tokens), isNumber: true },
  { head: "Cost", cell: money, isNumber: true },
];

function By({ by, head, since, limit }) {
  const costs = useData(withQuery("/v1/costs", { by, since, limit }), 60);
  return html`<${Section} title="By ${by}"><${Load} of=${costs}>${({ rows }) => html`<${Table} label="Cost by ${by}"
    columns=${columns(head)} rows=${rows} keyOf=${(row) => row.what} empty="No model was asked." />
    ${limit && rows.length >= limit && html`<p class="quiet">The ${limit} dearest.</p>`}`}<//><//>`;
}

export default function Cost() {
  const [range, choose] = useState("7");
  // The beginning of a day, so that the address of the request stays the same while the page is open.
  const since = new Date(Math.floor(Date.now() / 864e5 - Number(range) + 1) * 864e5).toISOString();
  const days = useData(withQuery("/v1/costs", { by: "day", since }), 30);
  return html`<div><div class="bar"><label>Time <select value=${range} onChange=${(event) => choose(event.target.value)}>${
      Object.entries(RANGES).map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select></label></div>
    <${Load} of=${days}>${({ rows, total, unknown }) => {
      const isPriced = rows.some((row) => row.money);
      const bars = everyDay(rows).map((row) => ({ label: row.what, value: isPriced ? row.money || 0
        : row.input_tokens + row.output_tokens, part: isPriced ? 0 : row.cached_tokens }));
      return html`<${Section} title="In all"><${Values} values=${[["Cost", money(total)], ["Requests", number(total.requests)],
          ["Tokens read", number(total.input_tokens)], ["From a cache", total.cached !== null
            && `${Math.round(100 * total.cached)} %`], ["Tokens written", number(total.output_tokens)]]} />
        ${bars.length > 1 && html`<${Bars} bars=${bars} title=${isPriced ? "Cost by day" : "Tokens by day; darker: from a cache"}
          write=${(value) => (isPriced ? money({ money: value }) : short(value))} />`}
        ${!total.requests && html`<p class="empty">No model was asked.</p>`}
        ${unknown.map((text) => html`<p class="quiet"><${Foreign} text=${text.charAt(0).toUpperCase() + text.slice(1)} />.</p>`)}<//>`;
    }}<//>
    <${By} by="model" head="Model" since=${since} /><${By} by="session" head="Session" since=${since} limit=${50} />
    <${By} by="rule" head="Rule" since=${since} limit=${50} /><${By} by="day" head="Day (UTC)" since=${since} /></div>`;
}

/** The rows of all days from the first to the last, the oldest first; a day without a row has zeros. */
function everyDay(rows) {
  if (!rows.length) return [];
  const of = new Map(rows.map((row) => [row.what, row])), days = [...of.keys()].sort(), result = [];
  for (let at = Date.parse(days[0]); at <= Date.parse(days.at(-1)); at += 864e5) {
    const what = new Date(at).toISOString().slice(0, 10);
    result.push(of.get(what) || { what, money: 0, input_tokens: 0, output_tokens: 0, cached_tokens: 0 });
  }
  return result;
}
