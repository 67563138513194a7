// Rules: which fired, why one did not in a past cycle, what another configuration would have decided.
import { html, useState } from "../preact.js";
import { useData } from "../api.js";
import { Ago, Badge, Block, Clock, Empty, Foreign, Load, Section, Table, Values, go, line, number, path,
  withQuery } from "../parts.js";
import { Bars, Meter } from "../charts.js";
import { useGrowing } from "../growing.js";

export default function Rules({ path: [rule], query }) {
  return html`${rule ? html`<${One} key=${rule} rule=${rule} />` : html`<${All} />`}
    ${(rule || query.cycle) && html`<${Answers} key=${`${rule} ${query.cycle}`} rule=${rule || ""} cycle=${query.cycle} />`}`;
}

function All() {
  const [sort, by] = useState("written");
  const rules = useGrowing("/v1/rules", { sort }, { seconds: 5 });
  const most = Math.max(...rules.rows.map((row) => row.fired || 0), 1);
  const columns = [
    { head: "Rule", cell: (row) => html`<${Foreign} text=${row.name} />` },
    { head: "Fired", cell: (row) => html`<${Meter} label="Fired" value=${(row.fired || 0) / most}
      text=${row.fired === null ? "not counted" : number(row.fired)} />` },
    { head: "Last", cell: (row) => (row.last_at ? html`<${Ago} at=${row.last_at} />` : html`<span class="quiet">never</span>`) },
    { head: "Matched", cell: (row) => number(row.matched), isNumber: true },
    { head: "In cooldown", cell: (row) => number(row.cooled_down), isNumber: true },
    { head: "Failed", cell: (row) => html`<span class=${row.failed ? "bad" : ""}>${number(row.failed)}</span>`, isNumber: true },
    { head: "Counted since", cell: (row) => html`<${Clock} at=${row.since} />` },
  ];
  return html`<div class="bar"><label>Order <select value=${sort} onChange=${(event) => by(event.target.value)}>
      <option value="written">As they are written</option><option value="fired">Those that fire most first</option>
    </select></label></div>
    <${Section} title="Rules"><${Table} label="Rules" columns=${columns} pages=${rules}
      keyOf=${(row) => row.name} href=${(row) => go("rules", [row.name])} empty="No rules are configured ([[rules]])." /><//>
    <${Backtest} /><${Shadow} />`;
}

const ANSWERS = [
  { head: "Rule", cell: (row) => html`<${Foreign} text=${row.rule} />` },
  { head: "", cell: (row) => html`<div><${Badge} text=${row.matches ? "matches" : "does not match"}
    tone=${row.matches ? "good" : "quiet"} /> ${row.has_fired && html`<${Badge} text="fired" tone="good" />`}</div>` },
  { head: "Why", cell: (row) => html`<${Foreign} text=${row.why} />` },
  { head: "Of", cell: (row) => html`<${Foreign} text=${line(row.about, 200)} />` },
];

function One({ rule }) {
  const rules = useData("/v1/rules", 5), config = useData("/v1/config");
  const row = rules.data?.find(({ name }) => name === rule);
  const written = config.data?.find(({ key }) => key === "rules")?.value?.find(({ name }) => name === rule);
  return html`<p><a href=${go("rules")}>All rules</a></p>
    <${Section} title="Rule"><p class="lead"><${Foreign} text=${rule} /></p>${rules.data && !row
      ? html`<${Empty}>There is no such rule now.<//>` : row && html`<${Values} values=${[["Fired", number(row.fired)],
      ["Last", row.last_at ? html`<${Ago} at=${row.last_at} />` : "never"], ["Matched", number(row.matched)],
      ["In cooldown", number(row.cooled_down)], ["Failed", number(row.failed)], ["Calls left out", number(row.left_out)],
      ["Counted since", row.since && html`<${Clock} at=${row.since} />`]]} />`}
      ${written && html`<h3>As it is configured</h3><${Block} text=${written} label="The rule" />`}<//>`;
}

/** What the present rules say of what a cycle noticed. Args: rule: the one that is asked; "" for all. */
function Answers({ rule, cycle = "last" }) {
  const [asked, ask] = useState({ cycle, isAll: !rule });
  const answers = useData(withQuery(path`/v1/cycles/${asked.cycle}/rules`, { rule: asked.isAll ? "" : rule }));
  const submit = (event) => {
    event.preventDefault();
    const { cycle: id, all } = event.target.elements;
    ask({ cycle: id.value.trim() || "last", isAll: all.checked });
  };
  return html`<${Section} title=${rule ? "Why it fired, or did not" : "Would they decide the same today?"}><form class="bar" onSubmit=${submit}>
      <label>Cycle <input name="cycle" defaultValue=${asked.cycle} autocomplete="off" spellcheck=${false} /></label>
      <label class="check"><input type="checkbox" name="all" defaultChecked=${!rule} /> all rules</label><button>Ask</button></form>
      <p class="quiet">An id, a unique beginning of one, or “last”. The present rules are asked about what the cycle noticed.</p>
      <${Load} of=${answers}>${(of) => html`<p><a href=${go("cycle", [of.cycle_id])}>Cycle ${of.cycle_id.slice(0, 16)}</a>${" "}
        decided: ${of.decided ? html`<${Foreign} text=${of.decided} />` : "nothing"}</p>
        <${Table} label="Answers of the rules" columns=${ANSWERS} rows=${of.answers}
          keyOf=${(row) => `${row.rule} ${row.perception}`} empty="It noticed nothing, so no rule was asked." />`}<//><//>`;
}

const BY_RULE = [
  { head: "Rule", cell: ([name]) => html`<${Foreign} text=${name} />` },
  ...["same", "added", "saved", "changed"].map((name) => ({ head: `Calls ${name}`, isNumber: true,
    cell: ([, numbers]) => number(numbers[name]) })),
];
const DISAGREEMENTS = [
  { head: "Disagreement", cell: (row) => html`<${Foreign} text=${line(row.what, 300)} />` },
  { head: "Times", cell: (row) => number(row.count), isNumber: true },
  { head: "First in", cell: (row) => html`<a href=${go("cycle", [row.first.cycle_id])}>${row.first.cycle_id.slice(0, 12)}</a>` },
  { head: "At", cell: (row) => html`<${Clock} at=${row.first.at} />` },
];
const firsts = (rows) => html`<${Table} label="Disagreements" columns=${DISAGREEMENTS} rows=${rows.slice(0, 20)}
  keyOf=${(row) => `${row.part} ${row.what}`} empty="There is no disagreement." />`;

/** The last backtest that was stored; without one, how to make one. */
function Backtest() {
  const report = useData("/v1/rules/backtest", 5);
  return html`<${Section} title="Backtest">${report.data === null ? html`<${Empty}>None is stored. In a terminal${" "}
    <code>spar backtest --since 7d --config other.toml --keep</code> stores one.<//>` : html`<${Load} of=${report}>${(of) => {
    const bars = Object.entries(of.days).map(([label, [same, differs, unknown]]) => ({ label, part: differs,
      value: same + differs + unknown }));
    return html`<p><code><${Foreign} text=${of.configuration} /></code> <${Foreign} text=${of.about} />
        ${!of.whole && html` <${Badge} text="interrupted" />`} <span class="quiet"><${Ago} at=${of.at} /></span></p>
      <${Values} values=${[["Cycles", number(of.cycles)], ["The same", number(of.same)], ["Differ", number(of.differs)],
        ["Calls saved", number(of.calls.saved)], ["Calls added", number(of.calls.added)],
        ["Calls changed", number(of.calls.changed)], ["Questions to people", twice(of.asked)],
        ["Calls denied", twice(of.denied)], ["Met a budget", twice(of.refused)]]} />
      ${bars.length > 1 && html`<${Bars} title="Cycles by day, and those that differ" bars=${bars} write=${number} />`}
      <${Table} label="Calls by rule" columns=${BY_RULE} rows=${Object.entries(of.rules)} keyOf=${([name]) => name}
        empty="No rule decided." /><h3>Where it differs</h3>${firsts(of.disagreements)}`;
  }}<//>`}<//>`;
}
const twice = ({ recorded, now }) => `${number(recorded)} → ${number(now)}`;

/** A second configuration that decides beside the service; nothing without one. */
function Shadow() {
  const status = useData("/v1/status?lanes=0");
  const shadow = useData(status.data?.shadow ? "/v1/shadow" : "", 10);
  if (!status.data?.shadow) return null;
  return html`<${Section} title="Shadow"><${Load} of=${shadow}>${(of) => html`<p><code><${Foreign}
    text=${of.configuration} /></code> agreed ${number(of.agree.yes || 0)} times, disagreed ${number(of.agree.no || 0)} times.
    ${of.trouble && html` <span class="warn"><${Foreign} text=${of.trouble} /></span>`}</p>${firsts(of.disagreements)}`}<//><//>`;
}
