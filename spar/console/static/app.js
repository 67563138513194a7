// The page: sign-in, the router by the part of the address after #, navigation, the view.
import { Component, html, render, useEffect, useMemo, useRef, useState } from "./preact.js";
import { clock, connection, findSession, session, signIn, signOut, useData, useShared } from "./api.js";
import { Foreign, sentence, took } from "./parts.js";
import { VIEWS } from "./views.js";

/** Read an address: {name, path: words, query}. A word that is no valid encoding stands as it is. */
function address(hash) {
  const [place, query] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...path] = place.split("/").map((word) => {
    try { return decodeURIComponent(word); } catch { return word; }
  });
  return { name: name || VIEWS[0].name, path, query: Object.fromEntries(new URLSearchParams(query)) };
}

const views = new Map(); // the views that were loaded

function Page() {
  const [hash, set] = useState(location.hash);
  const at = useMemo(() => address(hash), [hash]);
  const [, loaded] = useState(0);
  const main = useRef();
  const isFirst = useRef(true);
  const view = VIEWS.find(({ name }) => name === at.name);
  useEffect(() => {
    const change = () => set(location.hash);
    addEventListener("hashchange", change);
    change(); // it may have changed since the first drawing
    return () => removeEventListener("hashchange", change);
  }, []);
  useEffect(() => {
    document.title = `${view ? view.label : "Not found"} · spar`;
    if (!isFirst.current) { main.current.focus({ preventScroll: true }); scrollTo(0, 0); }
    isFirst.current = false;
    if (!view || typeof views.get(view.name) === "function") return;
    import(`./views/${view.name}.js`).then((module) => views.set(view.name, module.default),
      () => views.set(view.name, null)).then(() => loaded((count) => count + 1));
  }, [at.name]);
  const View = view && views.get(view.name);
  return html`<${Frame} current=${at.name}><main id="main" tabindex="-1" ref=${main} aria-label=${view?.label}>
    ${!view ? html`<h1>Not found</h1><p>There is no view “<${Foreign} text=${at.name} />”.
        <a href="#/${VIEWS[0].name}">Go to ${VIEWS[0].label}</a></p>`
      : View ? html`<h1>${view.label}</h1><${Guard} key=${at.name} at=${at}><${View} ...${at} /><//>`
      : View === null ? html`<p role="alert" class="note bad">This view cannot be loaded.
          <button type="button" onClick=${() => location.reload()}>Load the page again</button></p>`
      : html`<p class="empty" role="status">Loading …</p>`}
  </main><//>`;
}

/** A view that fails is an error of that view, not of the page. */
class Guard extends Component {
  componentDidCatch(error) { console.error(error); this.setState({ error }); }
  componentDidUpdate({ at }) { if (this.state.error && at !== this.props.at) this.setState({ error: null }); }
  render() {
    return this.state.error
      ? html`<p role="alert" class="note bad">This view failed: ${String(this.state.error.message || this.state.error)}</p>`
      : this.props.children;
  }
}

function Frame({ current, children }) {
  const [isOpen, open] = useState(false);
  const who = useShared(session), trouble = useShared(connection);
  const status = useData("/v1/status?lanes=0", 5);
  const agent = status.data?.agent, waiting = agent?.approvals?.pending || 0;
  useEffect(() => open(false), [current]);
  const groups = [...new Set(VIEWS.map(({ group }) => group))];
  return html`<a class="skip" href="#main" onClick=${(event) => {
    event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
  <header class="top">
    <button type="button" class="menu" aria-expanded=${String(isOpen)} aria-controls="nav"
      onClick=${() => open(!isOpen)}>Menu</button>
    <strong class="name"><${Foreign} text=${who.agent} /></strong>
    ${agent && html`<span class="badge ${agent.state === "running" ? "good" : "warn"}">${agent.state}</span>`}
    <span class="room"></span>
    ${waiting > 0 && html`<a class="badge warn" href="#/approvals">${waiting} to approve</a>`}
  </header>
  <nav id="nav" class=${isOpen ? "open" : ""} aria-label="Views">${groups.map((group) => html`<h2>${group}</h2><ul>${
    VIEWS.filter((view) => view.group === group && !view.isHidden).map((view) => html`<li><a href="#/${view.name}"
      aria-current=${view.name === current ? "page" : undefined}>${view.label}</a></li>`)}</ul>`)}
    <div class="foot"><${Theme} /><button type="button" onClick=${signOut}>Sign out</button>
      <span class="quiet" title="Scopes: ${who.scopes.join(", ")}">token ${who.token}</span></div></nav>
  <div class="content">
    <div role="status" aria-live="polite">${trouble && html`<p class="note warn">${trouble}</p>`}
      ${clock.skew ? html`<p class="note">The clocks of this browser and of the service differ by
        ${" "}${took(Math.abs(clock.skew) / 1000)}; ages are by the service's.</p>` : null}</div>
    ${children}
  </div>`;
}

const THEMES = { "": "Auto", light: "Light", dark: "Dark" };
function Theme() {
  const [theme, set] = useState(document.documentElement.dataset.theme || "");
  const choose = (event) => {
    const value = event.target.value;
    document.documentElement.dataset.theme = value;
    try { localStorage.setItem("spar-theme", value); } catch { /* it holds until the page is closed */ }
    set(value);
  };
  return html`<select aria-label="Colours" value=${theme} onChange=${choose}>${Object.entries(THEMES).map(
    ([value, label]) => html`<option value=${value}>${label}</option>`)}</select>`;
}

function SignIn({ hasEnded }) {
  const [error, set] = useState();
  const submit = async (event) => {
    event.preventDefault();
    const field = event.target.elements.token;
    try { await signIn(field.value.trim()); } catch (problem) { field.value = ""; field.focus(); set(problem); }
  };
  useEffect(() => { document.title = "Sign in · spar"; }, []);
  return html`<main class="sign-in"><h1>spar</h1>
    ${hasEnded && html`<p role="alert" class="note warn">Your session has ended: the token was revoked or expired, you
      signed out, or the service was started again. Sign in again.</p>`}
    <form onSubmit=${submit}><label>Token <input name="token" type="password" autocomplete="off" required autofocus
      spellcheck=${false} placeholder="spar_…" /></label><button class="primary">Sign in</button></form>
    ${error && html`<p role="alert" class="note bad">${sentence(error)}</p>`}
    <p class="quiet">In a terminal <code>spar tokens create console --scopes read,operate,approve</code> makes a token.
      The page does not keep it.</p></main>`;
}

function App() {
  const who = useShared(session), trouble = useShared(connection);
  const wasIn = useRef(false);
  if (who) wasIn.current = true;
  if (who === undefined) return html`<main class="sign-in"><p role="status">${trouble || "Loading …"}</p></main>`;
  return who ? html`<${Page} />` : html`<${SignIn} hasEnded=${wasIn.current} />`;
}

findSession();
render(html`<${App} />`, document.getElementById("app"));
