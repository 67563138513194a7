// JSON that people write: a field that says what is wrong with its text, and the change from one value to another.
import { html } from "./preact.js";

export const pretty = (value) => JSON.stringify(value, null, 2);
export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Read what was typed: [value, what is wrong]. */
export function parsed(text, { mustBeObject = true } = {}) {
  try {
    const value = JSON.parse(text);
    return mustBeObject && !isObject(value) ? [null, "This must be a JSON object."] : [value, ""];
  } catch (error) {
    return [null, `This is no JSON: ${error.message}`];
  }
}

/** A field for JSON. `wrong` is what is wrong with its text, "" for nothing. */
export const JsonField = ({ label, text, wrong = "", onText, rows = 7 }) => html`<label class="field">${label} <textarea rows=${rows}
    spellcheck=${false} class="mono" dir="auto" value=${text} aria-invalid=${wrong ? "true" : undefined}
    onInput=${(event) => onText(event.target.value)} /></label>
  ${wrong && html`<p class="bad" role="status">${wrong}</p>`}`;

/** The merge patch (RFC 7396) that makes `after` of `before`. */
export function patchOf(before, after) {
  if (!isObject(before) || !isObject(after)) return after;
  const gone = Object.keys(before).filter((name) => !(name in after)).map((name) => [name, null]);
  const changed = Object.entries(after).filter(([name, value]) => pretty(value) !== pretty(before[name]))
    .map(([name, value]) => [name, patchOf(before[name], value)]);
  return Object.fromEntries([...gone, ...changed]);
}
