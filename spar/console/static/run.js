// A run that is followed: its text as it is written, its calls, its end.
import { useRef, useState } from "./preact.js";
import { useStream } from "./api.js";
import { path } from "./parts.js";

const NOTHING = { text: "", calls: [], hasGap: false };

/** Follow a run from its beginning, also over a restart of the service: {text, calls, hasGap, end}. Events are drawn
 * together, once in a frame. Without an id nothing is followed. */
export function useRun(id) {
  const [run, set] = useState({ ...NOTHING, of: id });
  const waiting = useRef([]);
  useStream(id && path`/v1/runs/${id}/events`, ({ data: event }) => {
    if (!waiting.current.length) {
      requestAnimationFrame(() => {
        const events = waiting.current.splice(0); // the first ones may be of the run that was followed before
        set((old) => events.reduce((run, event) => next(run.of === event.run_id ? run : { ...NOTHING, of: event.run_id }, event), old));
      });
    }
    waiting.current.push(event);
    return isEnd(event) ? "end" : "";
  }, { begin: 0 });
  return run.of === id ? run : NOTHING;
}

const isEnd = ({ stream, data }) => stream === "lifecycle" && ["end", "error"].includes(data.phase);

function next(run, event) {
  const { stream, data } = event;
  if (stream === "gap") return { ...run, hasGap: true };
  if (stream === "assistant" && data.text !== undefined) return { ...run, text: (data.reset ? "" : run.text) + data.text };
  if (isEnd(event)) return { ...run, end: data };
  if (stream !== "tool") return run;
  const old = run.calls.find(({ call }) => call === data.call), others = run.calls.filter((call) => call !== old);
  return { ...run, calls: [...others.slice(-199), { ...old, ...data }] };
}
