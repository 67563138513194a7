// A button for what cannot be taken back: it asks first.
import { html, useState } from "./preact.js";
import { Act, Dialog } from "./parts.js";

/** A button that opens a question, whose button does it. `onDo` returns a promise; `children` is the question. */
export function Confirm({ label, title, scope, why = "", kind = "", onDo, children }) {
  const [isOpen, open] = useState(false);
  const act = async () => { await onDo(); open(false); };
  return html`<${Act} scope=${scope} why=${why} kind=${kind} onClick=${async () => open(true)}>${label} …<//>
    ${isOpen && html`<${Dialog} title=${title} onClose=${() => open(false)}>${children}
      <${Act} scope=${scope} kind=${kind || "primary"} onClick=${act}>${label}<//><//>`}`;
}
