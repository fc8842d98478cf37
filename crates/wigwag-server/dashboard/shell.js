// What every screen has around it: navigation, title, connection, theme, keys, sign-in.
import { session } from "./api.js";
import { dialog, el, fill, icon, kbd, svg } from "./dom.js";
import { live } from "./live.js";
import { count, safe, short } from "./words.js";

const OFF = "wigwag.keys-off";
/** @type {Record<string, (event: KeyboardEvent) => void>} */
let screen = {};
/** @type {Record<string, (event: KeyboardEvent) => void>} */
const everywhere = {};
let before = "";

export const areOff = () => { try { return localStorage.getItem(OFF) === "1"; } catch { return false; } };
/** @param {boolean} off */
function turn(off) { try { if (off) localStorage.setItem(OFF, "1"); else localStorage.removeItem(OFF); } catch { /* storage is off */ } }

/** Sets the keys of the screen that is open. @param {typeof screen} keys */
export function screenKeys(keys) { screen = keys; }
/** @param {typeof screen} keys */
export function globalKeys(keys) { Object.assign(everywhere, keys); }

/** @param {EventTarget | null} target */
const isTyping = (target) => target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)) && /** @type {any} */ (target).type !== "checkbox";

document.addEventListener("keydown", (event) => {
  const isSend = event.key === "Enter" && (event.metaKey || event.ctrlKey);
  const inDialog = Boolean(document.querySelector("dialog[open]"));
  if (isSend) { if (!inDialog) screen.send?.(event); else /** @type {HTMLElement | null} */ (document.querySelector("dialog[open] footer .prime:not([disabled])"))?.click(); return; }
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") { event.preventDefault(); everywhere["/"]?.(event); return; }
  if (event.metaKey || event.ctrlKey || event.altKey || inDialog || event.defaultPrevented) return;
  if (event.key === "Escape") { if (isTyping(event.target)) /** @type {HTMLElement} */ (event.target).blur(); else screen.Escape?.(event); return; }
  if (isTyping(event.target) || areOff()) return;
  const name = event.shiftKey && event.key.length === 1 && /[a-z]/i.test(event.key) ? "⇧" + event.key.toLowerCase() : event.key;
  const after = before === "g" ? "g" + name : "";
  before = name;
  const found = (after && everywhere[after]) || (!after && (screen[name] ?? everywhere[name]));
  if (after) before = "";
  if (!found) return;
  if (name === "Enter" && event.target instanceof HTMLElement && event.target.closest("a, button, summary")) return;
  event.preventDefault();
  found(event);
});

/** @type {[string, string[]][]} */
const LIST = [["Go to a run, workflow or screen", ["/"]], ["Move in a list", ["j", "k"]], ["Waiting now, runs, tasks, workflows", ["g", "w r t y"]], ["Actors, store, system", ["g", "a o s"]], ["Open", ["↵"]], ["Back, close", ["esc"]],
  ["Select, select up to here", ["x", "⇧x"]], ["Send the form, and go to the next", ["⌘↵"]], ["Form or JSON", ["f"]], ["Show newer", ["."]], ["Copy the id", ["c"]], ["UTC or local time", ["u"]], ["Light or dark", ["d"]], ["Graph: along edges", ["←", "→"]], ["Graph: within a layer", ["↑", "↓"]], ["These keys", ["?"]]];

export function showKeys() {
  const box = el("input.check", { type: "checkbox", id: "keys-on", checked: !areOff(), onchange: () => turn(!box.checked) });
  dialog("Keys", [el("div.keys", LIST.map(([what, keys]) => el("div", el("span.dim", what), el("span", kbd(...keys))))), el("label.row", { for: "keys-on" }, box, "Single keys do something; ⌘↵ and ⌘K always do")], [], { wide: true });
}

/** @type {([string, string, string, string] | null)[]} */
const NAV = [["waiting", "Waiting now", "inbox", "/"], ["runs", "Runs", "list", "/runs"], ["tasks", "Tasks", "box", "/tasks"], ["workflows", "Workflows", "shapes", "/workflows"], null, ["actors", "Actors & topics", "hub", "/actors"], ["store", "Store", "disk", "/store"], ["system", "System", "pulse", "/system"]];

export const mark = () => svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", fill: "none", stroke: "currentColor" },
  svg("path", { d: "M4 3.5h16", "stroke-width": 2, "stroke-linecap": "round" }), svg("path", { d: "M12 4l4.2 8.8", "stroke-width": 1.75 }),
  svg("circle", { cx: 17.4, cy: 15.6, r: 4.6, "stroke-width": 2 }), svg("circle", { cx: 17.4, cy: 15.6, r: 1.5, fill: "currentColor", stroke: "none" }),
  svg("path", { d: "M4.2 14.8a8.6 8.6 0 0 0 4 5.6", "stroke-width": 1.5, "stroke-linecap": "round", opacity: ".38" }));

const THEME = "wigwag.theme";
export function restoreTheme() { try { const theme = localStorage.getItem(THEME); if (theme) document.documentElement.dataset.theme = theme; } catch { /* the system decides */ } }
export function switchTheme() {
  const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"), next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem(THEME, next); } catch { /* not remembered */ }
}

export class Shell {
  /** @param {{find: () => void, keys: () => void, signOut: () => void}} doing */
  constructor(doing) {
    this.badges = [el("span.badge.wait.num", { hidden: true }), el("span.badge.wait", { hidden: true })];
    this.status = el("span.live.off", { role: "status" }, el("i"), el("span.t", "Connecting"));
    this.foot = el("div.foot");
    this.title = el("div.row.grow");
    this.right = el("div.row");
    this.banner = el("div");
    this.content = el("div.content");
    this.links = NAV.map((item) => item && el("a.nav", { href: item[3], title: item[1], "data-screen": item[0] }, icon(item[2]), el("span.t", item[1]), item[0] === "waiting" && this.badges[0]));
    this.tabs = [["waiting", "Waiting", "inbox", "/"], ["runs", "Runs", "list", "/runs"], ["tasks", "Tasks", "box", "/tasks"], ["workflows", "Workflows", "shapes", "/workflows"], ].map(([id, name, ic, href]) => el("a", { href, "data-screen": id }, icon(ic), el("span", name), id === "waiting" && this.badges[1]));
    this.more = el("button", { "data-screen": "more", "aria-haspopup": "dialog", onclick: () => this.openMore() }, icon("more"), el("span", "More"));
    const side = el("nav.side", { "aria-label": "Screens" }, el("a.brand", { href: "/", "aria-label": "wigwag" }, mark(), el("span.t", "wigwag")), this.links.map((link) => link ?? el("div.rule")), this.foot);
    const find = el("button.find", { "aria-label": "Go to run, workflow…", onclick: doing.find }, icon("find"), el("span.t.grow", { "aria-hidden": "true" }, "Go to run, workflow…"), el("kbd", { "aria-hidden": "true" }, "/"));
    this.main = el("main", { id: "main", tabindex: "-1" }, this.banner, el("header.top", this.title, this.right, find), this.content);
    this.doing = doing;
    document.body.append(el("a.sr.skip", { href: "#main", onclick: (/** @type {Event} */ event) => { event.preventDefault(); this.main.focus(); } }, "Skip to content"), el("div.shell", side, this.main), el("nav.tabs-bottom", { "aria-label": "Main screens" }, this.tabs, this.more));
    live.watchers.add((is) => this.setLive(is));
    this.drawFoot();
  }

  drawFoot() {
    const { me } = session;
    fill(this.foot, el("div.row", this.status), me?.store.url && el("div.row", { title: me.store.url }, icon("disk"), el("span.t.mono.clip", me.store.url)),
      el("div.row", { title: me?.scopes ? `${me.name}: ${me.scopes.join(" ")}` : "No tokens: everything is allowed" }, icon("key"), el("span.t.clip", me?.name ?? "no tokens"), el("span.t.dimmer", me?.version ?? "")),
      el("div.row.tools", el("button.btn.icon.small.quiet", { "aria-label": "Light or dark", title: "Light or dark (d)", onclick: switchTheme }, icon("sun")), el("button.btn.icon.small.quiet", { "aria-label": "Keys", title: "Keys (?)", onclick: () => this.doing.keys() }, icon("flag")), session.token && el("button.btn.small.quiet.t", { onclick: () => this.doing.signOut() }, "Sign out")));
  }

  /** On a phone: the other screens, and what stands at the foot of the sidebar. */
  openMore() {
    const close = () => opened.close();
    const opened = dialog("More", [el("div.menu", NAV.slice(5).map((item) => item && el("a.btn.quiet", { href: item[3], onclick: close }, icon(item[2]), item[1])), el("button.btn.quiet", { onclick: () => { switchTheme(); close(); } }, icon("sun"), "Light or dark"), session.token && el("button.btn.quiet", { onclick: () => this.doing.signOut() }, icon("key"), "Sign out")),
      el("p.small.dim", session.me?.name ?? "no tokens", " · wigwag ", session.me?.version ?? "")], []);
  }

  /** @param {boolean} is */
  setLive(is) { this.status.classList.toggle("off", !is); fill(this.status, el("i"), el("span.t", is ? "Live" : session.me?.store.notifies ? "Not live, every 15 s" : "Not live, every 60 s")); }

  /** @param {string} here @param {any[]} title @param {string} name @param {any[]} [right] */
  setTop(here, title, name, right = []) {
    for (const link of [...this.links, ...this.tabs]) if (link) { if (link.dataset.screen === here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current"); }
    if (["actors", "store", "system"].includes(here)) this.more.setAttribute("aria-current", "page"); else this.more.removeAttribute("aria-current");
    fill(this.title, title);
    fill(this.right, right);
    document.title = `${safe(name)} · wigwag`;
  }

  /** @param {number} waiting */
  setBadge(waiting) { this.badges.forEach((badge, i) => { badge.hidden = !waiting; fill(badge, i ? short(waiting) : count(waiting), el("span.sr", " waiting")); }); }

  /** @param {Node | null} node */
  setBanner(node) { fill(this.banner, node); }
}

/** @param {(token: string) => Promise<void>} onenter @param {() => void} onclose */
export function signInBox(onenter, onclose) {
  const said = el("div", { "aria-live": "polite" });
  const box = el("input.input", { id: "token", type: "password", autocomplete: "off", placeholder: "API token or JWT" });
  const shown = el("dialog.modal", { "aria-label": "Sign in" }, el("form.blank", { onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!box.value.trim()) return;
    fill(said, el("p.small.dim", "Checking…"));
    try { await onenter(box.value.trim()); isDone = true; shown.close(); } catch { fill(said, el("div.wrong", { role: "alert" }, icon("warn"), "The server does not accept this token.")); box.select(); }
  } }, mark(), el("h2", "This server requires a token"), el("p", "It is kept for this tab only and sent to this server alone."), el("div.field.signin", el("label", { for: "token" }, "Token"), box, said, el("button.btn.prime", { type: "submit" }, icon("key"), "Sign in"))));
  let isDone = false;
  shown.addEventListener("cancel", (event) => event.preventDefault());
  shown.addEventListener("close", () => { shown.remove(); if (!isDone) onclose(); });
  document.body.append(shown);
  shown.showModal();
  box.focus();
}
