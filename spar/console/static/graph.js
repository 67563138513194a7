// The calls of a cycle as a picture with real times: a bar for each call, a line from each call to those that wait for it.
import { html } from "./preact.js";
import { line, took, toneOf } from "./parts.js";

const WIDTH = 900, LABEL = 120;
const MOST_LINES = 200; // calls; lines between more of them hide the bars

export function CallGraph({ results, links }) {
  const timed = results.filter((row) => row.started_at);
  if (!timed.length) return null;
  const start = (row) => Date.parse(row.started_at) / 1000, end = (row) => start(row) + (row.duration || 0);
  const began = timed.reduce((least, row) => Math.min(least, start(row)), Infinity);
  const whole = Math.max(timed.reduce((most, row) => Math.max(most, end(row)), 0) - began, 0.001);
  const isLabelled = timed.length <= 60, height = isLabelled ? 20 : Math.max(4, Math.min(12, 1600 / timed.length));
  const gap = Math.min(4, height / 4);
  const left = isLabelled ? LABEL : 4, scale = (WIDTH - left - 60) / whole;
  const x = (seconds) => left + (seconds - began) * scale, y = (index) => 24 + index * height;
  const rows = [...timed].sort((one, other) => start(one) - start(other));
  const place = new Map(rows.map((row, index) => [row.call.id, index]));
  const bars = rows.map((row, index) => {
    const width = Math.max((row.duration || 0) * scale, 2), text = `${row.call.tool} ${row.call.id}: ${row.status}, ${took(row.duration || 0)}`;
    return html`<g>${isLabelled && html`<text x=${left - 8} y=${y(index) + height - 6} class="label">${line(row.call.tool, 20)}</text>`}
      <rect class="bar-${toneOf(row.status)}" x=${x(start(row)).toFixed(1)} y=${y(index) + gap / 2} width=${width.toFixed(1)} height=${height - gap} rx=${gap / 2}>
        <title>${text}</title></rect>
      ${isLabelled && html`<text x=${x(end(row)) + 6} y=${y(index) + height - 6} class="time">${took(row.duration || 0)}</text>`}</g>`;
  });
  const lines = links.filter(([from, to]) => place.has(from) && place.has(to)).map(([from, to]) => {
    const a = place.get(from), b = place.get(to);
    const one = x(end(rows[a])), other = x(start(rows[b])), middle = Math.max(one, other - 6) + 3;
    return `M${one.toFixed(1)} ${y(a) + height / 2}H${middle.toFixed(1)}V${y(b) + height / 2}H${other.toFixed(1)}`;
  });
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => html`<g><line class="grid" x1=${left + part * whole * scale} x2=${left + part * whole * scale}
    y1="20" y2=${y(rows.length)} /><text class="time" x=${left + part * whole * scale} y="12" text-anchor="middle">${took(part * whole)}</text></g>`);
  const failed = rows.filter((row) => row.status !== "ok").length;
  const slowest = rows.reduce((most, row) => ((row.duration || 0) > (most.duration || 0) ? row : most), rows[0]);
  return html`<div class="picture" tabindex="0" role="region" aria-label="Calls over time"><svg class="graph" role="img" viewBox="0 0 ${WIDTH} ${y(rows.length) + 6}"
    aria-label=${`${rows.length} calls within ${took(whole)}, ${lines.length} waits between them, ${failed} not ok; the longest: ${
      slowest.call.tool}, ${took(slowest.duration || 0)}. The table below has each.`}>${ticks}${rows.length <= MOST_LINES && html`<path class="waits" d=${lines.join("")} />`}${bars}</svg></div>`;
}

/** The pairs of ids of calls of which the second waits for the first: by `after`, or through the path that it reads. */
export function waitsOf(calls) {
  const writers = new Map(calls.filter((call) => call.output_path).map((call) => [call.output_path, call.id]));
  return calls.flatMap((call) => {
    const read = [...JSON.stringify(call.params || {}).matchAll(/†([^"\\|\s]+)/g)].flatMap(([, text]) =>
      [...writers].filter(([place]) => text.includes(place.replace(/^†/, ""))).map(([, id]) => id));
    return [...new Set([...(call.after || []), ...read])].filter((id) => id !== call.id).map((id) => [id, call.id]);
  });
}
