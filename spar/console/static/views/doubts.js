// Calls in doubt and dead letters: what became of a call, and what becomes of work that failed too often.
import { html, useState } from "../preact.js";
import { change, useData } from "../api.js";
import { Act, Ago, Badge, Block, Clock, Foreign, Load, Section, Table, Values, go, line, path } from "../parts.js";
import { useGrowing } from "../growing.js";
import { Confirm } from "../confirm.js";

export default function Doubts({ path: [kind, ...words] }) {
  const id = words.join("/");
  if (kind === "call" && id) return html`<${Call} key=${id} id=${id} />`;
  if (kind === "letter" && id) return html`<${Letter} key=${id} id=${id} />`;
  return html`<${Calls} /><${Letters} />`;
}

const CALLS = [
  { head: "Call", cell: (row) => html`<${Foreign} text=${row.call.tool} />` },
  { head: "With", cell: (row) => html`<code><${Foreign} text=${line(row.call.params, 160)} /></code>` },
  { head: "Since", cell: (row) => html`<${Ago} at=${row.at} />` },
  { head: "Session", cell: (row) => html`<${Foreign} text=${row.session} />` },
  { head: "Why", cell: (row) => html`<${Foreign} text=${line(row.why, 240)} />` },
  { head: "Answer", cell: (row) => row.answer && html`<div><${Badge} text=${row.answer} /> <${Foreign} text=${row.answered_by} /></div>` },
];

function Calls() {
  const [status, choose] = useState("open");
  const calls = useGrowing("/v1/calls/in-doubt", { status }, { seconds: 5 });
  return html`<${Section} title="Calls in doubt" aside=${html`<label class="check"><input type="checkbox"
      checked=${status === "all"} onChange=${(event) => choose(event.target.checked ? "all" : "open")} /> answered ones too
    </label>`}><p class="quiet">They may have had an effect that must not be repeated. Their work waits for your answer.</p>
    <${Table} label="Calls in doubt" columns=${CALLS} pages=${calls} keyOf=${(row) => row.id}
      href=${(row) => go("doubts", ["call", row.id])} empty=${status === "open" ? "No call is in doubt." : "No call is or was in doubt."} /><//>`;
}

const LETTERS = [
  { head: "Work", cell: (row) => html`<${Foreign} text=${line(row.item.perception.content, 200)} />` },
  { head: "Put aside", cell: (row) => html`<${Ago} at=${row.at} />` },
  { head: "Session", cell: (row) => html`<${Foreign} text=${row.item.session} />` },
  { head: "Why", cell: (row) => html`<${Foreign} text=${line(row.reason, 240)} />` },
];

function Letters() {
  const letters = useGrowing("/v1/dead-letters", {}, { seconds: 5 });
  return html`<${Section} title="Dead letters"><p class="quiet">Work that failed too often. It is not tried again unless you
    say so.</p><${Table} label="Dead letters" columns=${LETTERS} pages=${letters}
      keyOf=${(row) => row.id} href=${(row) => go("doubts", ["letter", row.id])} empty="There are no dead letters." /><//>`;
}

/** The answers to a call in doubt, in the words of the command line. */
const ANSWERS = {
  done: "It had its effect. The work goes on with the value that the call returned.",
  failed: "It had no effect. The work goes on as after a failure.",
  again: "It had no effect, and is made again.",
};

function Call({ id }) {
  const call = useData(path`/v1/calls/in-doubt/${id}`, 10);
  return html`<p><a href=${go("doubts")}>All calls in doubt and dead letters</a></p><${Load} of=${call}>${(one) => html`
    <${Section} title="Call in doubt"><p class="lead"><${Foreign} text=${one.call.tool} /></p>
      <${Values} values=${[["Since", html`<${Clock} at=${one.at} />`], ["Session", html`<${Foreign} text=${one.session} />`],
        ["Cycle", html`<a href=${go("cycle", [one.cycle_id])}>${one.cycle_id.slice(0, 16)}</a>`],
        ["Run", one.run_id && html`<code>${one.run_id}</code>`], ["Id", html`<code><${Foreign} text=${one.id} /></code>`]]} />
      <${Block} text=${one.text} label="The call, and why it is in doubt" /><//>
    ${one.answer ? html`<${Section} title="Answered"><${Values} values=${[["Answer", html`<${Badge} text=${one.answer} />`],
        ["By", html`<${Foreign} text=${one.answered_by} />`], ["At", html`<${Clock} at=${one.answered_at} />`],
        ["Because", one.reason && html`<${Foreign} text=${one.reason} />`]]} /><//>`
      : html`<${Answer} one=${one} again=${call.again} />`}`}<//>`;
}

function Answer({ one, again }) {
  const [{ answer, output, by, reason }, set] = useState({ answer: "", output: "", by: "", reason: "" });
  const put = (name) => (event) => set((old) => ({ ...old, [name]: event.target.value }));
  let value, wrong = "";
  try { value = output.trim() ? JSON.parse(output) : undefined; } catch { wrong = "The value is no JSON."; }
  const send = () => change("POST", `${path`/v1/calls/in-doubt/${one.id}`}/resolve`, { answer, by: by.trim(), reason,
    ...(answer === "done" && value !== undefined ? { output: value } : {}) }).then(again);
  return html`<${Section} title="What became of it?"><fieldset class="choices"><legend class="unseen">Answer</legend>${
    Object.entries(ANSWERS).map(([name, meaning]) => html`<label><input type="radio" name="answer" value=${name}
      checked=${answer === name} onChange=${put("answer")} /> <strong>${name}</strong> <span class="quiet">${meaning}</span>
    </label>`)}</fieldset>
    ${answer === "done" && html`<label class="field">Value that the call returned, as JSON <textarea value=${output}
      onInput=${put("output")} spellcheck=${false} placeholder='{"receipt": 4711}'></textarea></label>`}
    <div class="bar"><label>How do you know? <input value=${reason} onInput=${put("reason")} maxlength="2000" size="40" />
      </label><label>On whose word, if not yours <input value=${by} onInput=${put("by")} maxlength="200" /></label></div>
    <${Confirm} label="Answer" title="${answer}?" scope="approve" kind="primary" onDo=${send}
      why=${!answer ? "Choose what became of it." : answer === "done" ? wrong : ""}>
      <p><strong>${answer}</strong>: ${ANSWERS[answer]} The first answer counts.</p>
      ${answer === "done" && value !== undefined && html`<${Block} text=${value} label="The value" />`}
      <${Block} text=${one.text} label="The call" /><//><//>`;
}

function Letter({ id }) {
  const [did, tell] = useState("");
  const letter = useData(did ? "" : path`/v1/dead-letters/${id}`, 10);
  const decide = (verb, done) => async () => { await change("POST", `${path`/v1/dead-letters/${id}`}/${verb}`); tell(done); };
  const back = html`<p><a href=${go("doubts")}>All calls in doubt and dead letters</a></p>`;
  if (did) return html`${back}<p role="status" class="note good">${did}</p>`;
  return html`${back}<${Load} of=${letter}>${(one) => html`<${Section} title="Dead letter" aside=${html`
      <${Act} scope="operate" kind="primary" onClick=${decide("retry", "It is tried again, as if it were new.")}>Try again<//>
      <${Confirm} label="Drop" title="Drop this work for good?" scope="operate" kind="danger"
        onDo=${decide("drop", "It is dropped, and not tried again.")}>
        <${Block} text=${one.text} label="The work" /><p>It is never tried again.</p><//>`}>
      <${Values} values=${[["Put aside", html`<${Clock} at=${one.at} />`], ["Attempts", one.item.attempts],
        ["Session", html`<${Foreign} text=${one.item.session} />`], ["Id", html`<code><${Foreign} text=${one.id} /></code>`]]} />
      <${Block} text=${one.text} label="The work, and why it failed" /><//>`}<//>`;
}
