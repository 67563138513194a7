// Abilities of tools with their curves, and the lessons that were learnt.
import { html, useState } from "../preact.js";
import { useData } from "../api.js";
import { Ago, Badge, Clock, Empty, Foreign, Load, Section, Sparkline, Table, Values, go, line, number, took,
  withQuery } from "../parts.js";
import { Bars, Curve, Meter } from "../charts.js";
import { useGrowing } from "../growing.js";

const percent = (share) => `${Math.round(100 * share)} %`;
const day = (at) => at.slice(0, 10);
const moment = (at) => `${day(at)} ${at.slice(11, 16)}`;

export default function Learning({ path: [tool, task] }) {
  return tool !== undefined && task !== undefined ? html`<${One} key=${`${tool}|${task}`}
    tool=${tool} task=${task} />` : html`<${All} />`;
}

function All() {
  const abilities = useGrowing("/v1/abilities", {}, { seconds: 10 });
  const history = useData("/v1/abilities/history");
  const trend = new Map();
  for (const trial of history.data?.trials || []) {
    const key = `${trial.tool}|${trial.task}`;
    trend.set(key, [...(trend.get(key) || []), trial.estimate]);
  }
  const columns = [
    { head: "Tool", cell: (row) => html`<${Foreign} text=${line(row.tool, 80)} />` },
    { head: "Kind of task", cell: (row) => html`<${Foreign} text=${line(row.task, 120)} />` },
    { head: "Goes well", cell: (row) => html`<${Meter} label="Goes well" value=${row.estimate}
      text=${percent(row.estimate)} />` },
    { head: "±", cell: (row) => percent(row.uncertainty), isNumber: true },
    { head: "Trials", cell: (row) => number(row.trials), isNumber: true },
    { head: "Takes", cell: (row) => took(row.latency), isNumber: true },
    { head: "Last", cell: (row) => html`<${Ago} at=${row.at} />` },
    { head: "Lately", cell: (row) => {
      const values = trend.get(`${row.tool}|${row.task}`) || [];
      return values.length > 1 && html`<${Sparkline} values=${values} width=${90} height=${20}
        label="from ${percent(values[0])} to ${percent(values.at(-1))}" />`;
    } },
  ];
  return html`<${Section} title="Abilities"><${Table} label="Abilities" columns=${columns} pages=${abilities}
      keyOf=${(row) => `${row.tool}|${row.task}`} href=${(row) => go("learning", [row.tool, row.task])}
      empty="No tool was tried yet." />
      ${history.error && html`<p class="quiet">What they were like before cannot be read.</p>`}<//>
    <${Skills} /><${Lessons} />`;
}

const SKILLS = [
  { head: "Skill", cell: (row) => html`<${Foreign} text=${row.name} />` },
  { head: "What it is for", cell: (row) => (row.unavailable ? html`<div><${Badge} text="not available" tone="warn" />${" "}
    <${Foreign} text=${row.unavailable} /></div>` : html`<${Foreign} text=${row.description} />`) },
];

/** The skills of the planner that asks a model; nothing without a folder of skills. */
function Skills() {
  const plan = useData("/v1/status?lanes=0", 15).data?.agent.modules.plan;
  const prompt = Object.values(plan?.planners || {}).map((planner) => planner.prompt).find((one) => one?.skills);
  return prompt && html`<${Section} title="Skills"><${Table} label="Skills" columns=${SKILLS} rows=${prompt.skills}
    keyOf=${(row) => row.name} empty="The folder has no skill." /><//>`;
}

const LESSONS = [
  { head: "Lesson", cell: (row) => html`<${Foreign} text=${line(row.lesson, 400)} />` },
  { head: "In", cell: (row) => html`<${Foreign} text=${line(row.situation, 120)} />` },
  { head: "Learnt", cell: (row) => html`<${Clock} at=${row.first_at || row.at} />` },
  { head: "Made", cell: (row) => number(row.count), isNumber: true },
  { head: "Helped", cell: (row) => number(row.helped), isNumber: true },
  { head: "Harmed", cell: (row) => number(row.harmed), isNumber: true },
  { head: "", cell: (row) => row.harmed - row.helped >= 3 && html`<${Badge} text="retired" tone="warn" />` },
];

function Lessons() {
  const lessons = useGrowing("/v1/memory/search", { lesson: 1 }, { by: "k", seconds: 30 });
  const bars = lessons.rows.length ? byDay(lessons.rows) : [];
  return html`<${Section} title="Lessons">${bars.length > 1 && html`<${Bars} title="Lessons by day${lessons.more
      ? ", of those below" : ""}" bars=${bars} write=${String} />`}
    <${Table} label="Lessons" columns=${LESSONS} pages=${lessons} keyOf=${(row) => row.id}
      href=${(row) => go("memory", [row.id])} empty="No lesson was learnt yet." /><//>`;
}

/** The number of lessons of each day from the first one to the last one, at most of 90 days. */
function byDay(rows) {
  const counts = new Map();
  for (const row of rows) counts.set(day(row.first_at || row.at), (counts.get(day(row.first_at || row.at)) || 0) + 1);
  const days = [...counts.keys()].sort(), last = Date.parse(days.at(-1));
  const number = Math.min(Math.round((last - Date.parse(days[0])) / 864e5) + 1, 90);
  return Array.from({ length: number }, (_, index) => {
    const label = new Date(last - 864e5 * (number - 1 - index)).toISOString().slice(0, 10);
    return { label, value: counts.get(label) || 0 };
  });
}

const TRIALS = [
  { head: "Cycle", cell: (trial) => html`<code>${trial.cycle_id.slice(0, 16)}</code>` },
  { head: "At", cell: (trial) => html`<${Clock} at=${trial.at} />` },
  { head: "Goes well", cell: (trial) => percent(trial.estimate), isNumber: true },
  { head: "±", cell: (trial) => percent(trial.uncertainty), isNumber: true },
  { head: "Trials", cell: (trial) => number(trial.trials), isNumber: true },
];

function One({ tool, task }) {
  const [before, go_back] = useState([""]); // the places at which pages begin
  const now = useData(withQuery("/v1/abilities", { tool, task }), 10);
  const page = useData(withQuery("/v1/abilities/history", { tool, task, limit: 500, before: before.at(-1) }));
  return html`<p><a href=${go("learning")}>All abilities</a></p>
    <${Section} title="Ability"><p class="lead"><${Foreign} text=${tool} /> at <${Foreign} text=${task} /></p>
    <${Load} of=${now} empty="It was never tried, or is forgotten.">${([row]) => html`<${Values} values=${[
      ["Goes well now", `${percent(row.estimate)} ± ${percent(row.uncertainty)}`], ["Trials", number(row.trials)],
      ["Takes", took(row.latency)], ["Last", html`<${Ago} at=${row.at} />`]]} />`}<//><//>
    <${Section} title="Over time" aside=${html`${before.length > 1 && html`<button type="button"
        onClick=${() => go_back(before.slice(0, -1))}>Later</button>`}
      ${page.data?.before && html`<button type="button" onClick=${() => go_back([...before, page.data.before])}>Earlier
        </button>`}`}>
      <${Load} of=${page}>${({ trials }) => (trials.length ? html`<${Curve} title="How often it goes well" write=${percent}
          time=${moment} points=${trials.map(({ at, estimate, uncertainty }) => ({ at, value: estimate,
            spread: uncertainty }))} />
        <${Table} label="Trials" columns=${TRIALS} rows=${[...trials].reverse().slice(0, 100)}
          keyOf=${(trial) => trial.cycle_id} href=${(trial) => go("cycle", [trial.cycle_id])} />`
      : html`<${Empty}>It was not tried in these cycles.<//>`)}<//><//>`;
}
