// Pictures of numbers: bars and a curve. Each has a title and a description for people who do not see it.
import { html, useState } from "./preact.js";

let count = 0;

/** A picture of `width` × 100 units, stretched to its place, between the labels of its axes.
 * `about` says in words what it shows; `top` and `bottom` label the vertical axis, `from` and `to` the horizontal one. */
function Picture({ title, about, width, top, bottom, from, to, children }) {
  const [id] = useState(() => `picture-${(count += 1)}`);
  return html`<figure class="chart"><figcaption>${title}</figcaption><div class="axes">
    <div class="vertical" aria-hidden="true"><span>${top}</span><span>${bottom}</span></div>
    <svg role="img" aria-labelledby="${id} ${id}-about" viewBox="0 0 ${width} 100" preserveAspectRatio="none">
      <title id=${id}>${title}</title><desc id="${id}-about">${about}</desc>${children}</svg>
    <div class="horizontal" aria-hidden="true"><span>${from}</span><span>${to}</span></div></div></figure>`;
}

/** Bars side by side. bars: [{label, value, part}], of which `part` is drawn in another tone; `write` writes a value. */
export function Bars({ title, bars, write }) {
  const most = Math.max(...bars.map(({ value }) => value), 0) || 1;
  const peak = bars.find(({ value }) => value === most);
  const about = `${bars.length} bars from ${bars[0].label} to ${bars.at(-1).label}; the highest is ${
    write(peak ? most : 0)}${peak ? ` at ${peak.label}` : ""}.`;
  return html`<${Picture} title=${title} about=${about} width=${bars.length * 10} top=${write(peak ? most : 0)}
    bottom="0" from=${bars[0].label} to=${bars.length > 1 ? bars.at(-1).label : ""}>${bars.map((bar, index) => {
    const height = (100 * bar.value) / most, part = (100 * (bar.part || 0)) / most;
    return html`<g class="bars"><title>${bar.label}: ${write(bar.value)}</title>
      <rect class="back" x=${index * 10} y="0" width="10" height="100" />
      <rect x=${index * 10 + 1} y=${100 - height} width="8" height=${height} />
      <rect class="part" x=${index * 10 + 1} y=${100 - part} width="8" height=${part} /></g>`;
  })}<//>`;
}

/** A curve of shares (0..1) over time with the band of their spread. points: [{at, value, spread}], the oldest first. */
export function Curve({ title, points, write, time }) {
  const [first, last] = [points[0], points.at(-1)];
  const begin = Date.parse(first.at), span = Date.parse(last.at) - begin;
  const x = (point, index) => (span ? (200 * (Date.parse(point.at) - begin)) / span
    : (200 * index) / Math.max(points.length - 1, 1)).toFixed(1);
  const y = (value) => (100 - 100 * Math.min(Math.max(value, 0), 1)).toFixed(1);
  const all = points.length > 1 ? points : [first, first];
  const line = (of) => all.map((point, index) => `${x(point, index)},${y(of(point))}`);
  const band = [...line((point) => point.value + point.spread),
    ...line((point) => point.value - point.spread).reverse()];
  const about = `${points.length} values from ${time(first.at)} to ${time(last.at)}: first ${write(first.value)}, last ${
    write(last.value)}, lowest ${write(Math.min(...points.map(({ value }) => value)))}, highest ${
    write(Math.max(...points.map(({ value }) => value)))}.`;
  return html`<${Picture} title=${title} about=${about} width=${200} top=${write(1)} bottom=${write(0)}
    from=${time(first.at)} to=${points.length > 1 ? time(last.at) : ""}>
    <path class="lines" d="M0 25H200M0 50H200M0 75H200" /><polygon class="band" points=${band.join(" ")} />
    <polyline class="curve" points=${line((point) => point.value).join(" ")} /><//>`;
}

/** A share (0..1) as a bar beside its text; above `warn` it is a warning, from 1 on bad. `label` names it. */
export function Meter({ value, text, label, warn = Infinity }) {
  const tone = value >= warn ? (value >= 1 ? "bad" : "warn") : "";
  return html`<span class="meter"><svg class=${tone} role="img" aria-label="${label}: ${text}" viewBox="0 0 100 8"
    preserveAspectRatio="none"><rect class="back" width="100" height="8" />
    <rect width=${100 * Math.min(Math.max(value, 0), 1)} height="8" /></svg> <span aria-hidden="true">${text}</span></span>`;
}
