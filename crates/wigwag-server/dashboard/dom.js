// Elements, icons, statuses, and parts that several screens share. Text is always set as text: nothing here can make markup of text that others wrote.
import { ago, clock, ms, pieces, safe, span, stringify } from "./words.js";

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Child | Child[] | Child[][]} Children */

/** @typedef {Record<string, any>} Props  `on…` listens, `vars` sets CSS variables, `value` and `checked` are properties, the rest are attributes */

/** Attributes with text for people. */
const SHOWN = new Set(["title", "aria-label", "aria-description", "placeholder", "alt"]);
/** @param {Element} made @param {string[]} classes @param {(Props | Children)[]} rest */
function finish(made, classes, rest) {
  const first = rest[0], hasProps = first && typeof first === "object" && !(first instanceof Node) && !Array.isArray(first);
  for (const [key, value] of Object.entries(hasProps ? first : {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "vars") for (const [k, v] of Object.entries(value)) /** @type {HTMLElement} */ (made).style.setProperty(k, String(v));
    else if (key === "class") classes.push(value);
    else if (key === "value" && "value" in made) made.value = String(value);
    else if (key === "checked") /** @type {any} */ (made).checked = true;
    else made.setAttribute(key, value === true ? "" : SHOWN.has(key) ? safe(String(value)) : String(value));
  }
  if (classes.length) made.setAttribute("class", classes.join(" "));
  add(made, hasProps ? rest.slice(1) : rest);
}

/** @template {string} N @typedef {N extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[N] : N extends `${infer T extends keyof HTMLElementTagNameMap}.${string}` ? HTMLElementTagNameMap[T] : HTMLElement} Made */

/**
 * Makes an element; buttons do not submit.
 * @template {string} N @param {N} name  `div.card.in` is a div with two classes @param {...(Props | Children)} rest @returns {Made<N>}
 */
export function el(name, ...rest) {
  const [tag, ...classes] = name.split("."), made = document.createElement(tag || "div");
  if (tag === "button") made.setAttribute("type", "button");
  finish(made, classes, rest);
  return /** @type {any} */ (made);
}

const NS = "http://www.w3.org/2000/svg";
/** @param {string} name @param {...(Props | Children)} rest */
export function svg(name, ...rest) {
  const [tag, ...classes] = name.split("."), made = document.createElementNS(NS, tag);
  finish(made, classes, rest);
  return made;
}

/** @param {Element} parent @param {any[]} children */
export function add(parent, children) {
  for (const child of children.flat(4)) if (child || child === 0) parent.append(child instanceof Node ? child : safe(String(child)));
}

/** Replaces all children. @param {Element} parent @param {...Children} children */
export function fill(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
  return parent;
}

/**
 * Keeps one element per item, by key: elements that stay keep focus, selection and scroll.
 * @template T
 * @param {Element} parent @param {T[]} items @param {(item: T) => string} key
 * @param {(item: T, old: HTMLElement | undefined) => HTMLElement} draw  returns the old element to keep it
 */
export function keyed(parent, items, key, draw) {
  const old = new Map([...parent.children].map((child) => [/** @type {HTMLElement} */ (child).dataset.key, /** @type {HTMLElement} */ (child)]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item), before = old.get(name), node = draw(item, before);
    node.dataset.key = name;
    old.delete(name);
    if (before && node !== before) { if (place === before) place = node; before.replaceWith(node); }
    if (node === place) place = node.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const rest of old.values()) rest.remove();
}

// Drawn on 16 × 16, stroked.
/** @type {Record<string, string>} */
const PATHS = {
  wait: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8M8 4.6V8l2.2 1.5",
  play: "M4.5 2.9v10.2l8.2-5.1z", check: "M2.8 8.6l3.3 3.2 7.1-7.6", cross: "M4 4l8 8M12 4l-8 8", pause: "M5.4 3.4v9.2M10.6 3.4v9.2",
  undo: "M5.6 3L2.6 6l3 3M2.9 6h6.6a3.6 3.6 0 0 1 0 7.2H6", ring: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2", dash: "M3.5 8h9", moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3a5.4 5.4 0 1 0 6.6 6.6z",
  inbox: "M2.2 9l1.9-5.4h7.8L13.8 9v4H2.2zM2.2 9h3.4c.2 1.4 1.1 2.1 2.4 2.1s2.2-.7 2.4-2.1h3.4", list: "M5.8 4h7.6M5.8 8h7.6M5.8 12h7.6M2.6 4h.2M2.6 8h.2M2.6 12h.2",
  box: "M8 1.8l5.6 3v6.4L8 14.2l-5.6-3V4.8zM2.5 4.9L8 7.8l5.5-2.9M8 7.8v6.2", shapes: "M2.4 2.6h4.4V7H2.4zM9.2 9h4.4v4.4H9.2zM6.8 4.8h2.6a2 2 0 0 1 2 2V9", hub: "M8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6M3.7 3.7a6.1 6.1 0 0 0 0 8.6M12.3 3.7a6.1 6.1 0 0 1 0 8.6",
  disk: "M2.4 4.2C2.4 2.9 4.9 2 8 2s5.6.9 5.6 2.2S11.1 6.4 8 6.4s-5.6-.9-5.6-2.2zM2.4 4.2v7.6C2.4 13.1 4.9 14 8 14s5.6-.9 5.6-2.2V4.2M2.4 8c0 1.3 2.5 2.2 5.6 2.2S13.6 9.3 13.6 8", pulse: "M1.8 8.4h2.7l2-5 3 9.4 2-4.4h2.7",
  find: "M7 2.4a4.6 4.6 0 1 0 0 9.2 4.6 4.6 0 0 0 0-9.2M10.4 10.4l3.2 3.2", down: "M4.2 6.2L8 10l3.8-3.8", right: "M6.2 4.2L10 8l-3.8 3.8", more: "M3.5 8h.2M8 8h.2M12.5 8h.2", copy: "M5.6 5.6h7.6v7.6H5.6zM10.4 5.4V2.8H2.8v7.6h2.6", link: "M6.6 9.4l2.8-2.8M7.4 4.6l1.5-1.5a2.8 2.8 0 0 1 4 4L11.4 8.6M8.6 11.4l-1.5 1.5a2.8 2.8 0 0 1-4-4L4.6 7.4",
  send: "M13.8 2.2L2.2 6.6l4.7 2.5 2.5 4.7zM13.8 2.2L6.9 9.1", warn: "M8 2.4l6.2 11H1.8zM8 6.6v3.2M8 11.6v.1", cloud: "M2 2l12 12M5 5.3A4.3 4.3 0 0 0 4.3 13h7.2M7 4.4a4.3 4.3 0 0 1 5.2 4 2.6 2.6 0 0 1 1.5 3.6", lock: "M4 7.2h8v6.2H4zM5.6 7V5.2a2.4 2.4 0 0 1 4.8 0V7", flag: "M3.6 14.2V2.4h8.8L10.2 5.6l2.2 3.2H3.6", split: "M3 3v3.2C3 8 4 8 6 8h4.6M8.6 5.8L10.8 8l-2.2 2.2M3 8.2V13", key: "M10.2 2.6a3.2 3.2 0 1 0 .1 0M8 8.2l-5.2 5.2M4.6 11.6l1.6 1.6", sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.4v1.4M8 13.2v1.4M1.4 8h1.4M13.2 8h1.4M3.3 3.3l1 1M11.7 11.7l1 1M12.7 3.3l-1 1M4.3 11.7l-1 1", globe: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M2.2 8h11.6M8 2c2 1.8 2.6 4 2.6 6S10 12.2 8 14c-2-1.8-2.6-4-2.6-6S6 3.8 8 2",
};
/** @param {string} name @param {string} [cls] */
export const icon = (name, cls = "") => svg("svg.i" + (cls && "." + cls), { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: path(name) }));
/** @param {string} name */
export const path = (name) => PATHS[name] ?? PATHS.ring;

/** Each status: its word and its icon. Colour is never alone. @type {Record<string, [string, string]>} */
export const STATUS = {
  pending: ["Pending", "ring"], running: ["Running", "play"], waiting_signal: ["Waiting", "wait"], paused: ["Paused", "pause"], compensating: ["Compensating", "undo"],
  completed: ["Completed", "check"], failed: ["Failed", "cross"], cancelled: ["Cancelled", "dash"],
  retrying: ["Retrying", "undo"], skipped: ["Skipped", "dash"], sleeping: ["Sleeping", "moon"], todo: ["Not reached", "ring"], undone: ["Compensated", "undo"], wait: ["Waiting", "wait"], child: ["Waiting for a child", "split"],
};
/** @param {string} status */
export const statusClass = (status) => (STATUS[status] ? status : "idle");
/** @param {string} status @param {string} [text] */
export const pill = (status, text) => el("span.pill." + statusClass(status), icon(STATUS[status]?.[1] ?? "ring"), text ?? STATUS[status]?.[0] ?? status);
/** @param {...string} keys */
export const kbd = (...keys) => keys.map((key) => el("kbd", { "aria-hidden": "true" }, key));
/** @param {string} label @param {string} ic @param {Record<string, any>} props */
export const iconButton = (label, ic, props) => el("button.btn.icon", { "aria-label": label, title: label, ...props }, icon(ic));

/** @type {HTMLElement | undefined} */
let polite;
let spoken = 0, speaking = /** @type {any} */ (0);
/** Says something to those who listen, at most once a second: of several the newest. @param {string} text */
export function announce(text) {
  const region = (polite ??= el("div", { role: "status", "aria-live": "polite", vars: { position: "absolute", width: "1px", height: "1px", overflow: "hidden", "clip-path": "inset(50%)" } }));
  if (!region.isConnected) document.body.append(region);
  clearTimeout(speaking);
  speaking = setTimeout(() => { spoken = Date.now(); region.textContent = safe(text); }, Math.max(0, spoken + 1000 - Date.now()));
}

/** A time in words, with the exact one as its title. @param {string | null | undefined} at @param {string} [words] */
export const time = (at, words) => { const t = ms(at); return Number.isFinite(t) ? el("time", { datetime: at, title: clock(t, true) }, words ?? ago(t, Date.now())) : el("span.dimmer", "–"); };
/** @param {string | null | undefined} at */
export const left = (at) => { const rest = ms(at) - Date.now(); return rest > 0 ? `in ${span(rest)}` : `${span(-rest)} ago`; };
/** Text in which names stand in backticks. @param {string} text */
export const rich = (text) => pieces(text).map((piece, i) => (i % 2 ? el("b", piece) : piece));

/** @param {string} ic @param {string} title @param {...any} rest */
/** @param {string} title @param {any} aside @param {...any} body */
export const card = (title, aside, ...body) => el("section.card", el("header", el("h2.grow", title), aside), body);
/** Attributes of a box that scrolls by keyboard. @param {string} name */
export const scrolls = (name) => ({ tabindex: "0", role: "region", "aria-label": name });
/** A table; headings that start with `>` are for numbers. @param {string} name @param {string[]} heads @param {any} rows @param {string} [cls] */
export const table = (name, heads, rows, cls = ".tight") => el("div.tablebox", scrolls(name), el("table.t" + cls, el("thead", el("tr", heads.map((text) => (text[0] === ">" ? el("th.right", { scope: "col" }, text.slice(1)) : el("th", { scope: "col" }, text))))), el("tbody", rows)));
/** A labelled field. @param {string} id @param {any} label @param {any} box */
export const field = (id, label, box) => el("div.field", el("label", { for: id }, label), box);
/** @param {string} l @param {any} n @param {any} s @param {string} [cls] */
export const tile = (l, n, s, cls = "") => el("div.card.tile" + cls, el("span.l", l), el("span.n", n), el("span.s", s));
/** Address of a run's or task's screen, from `workflow/ID`, `task/ID` or a bare id. @param {string} run @param {boolean} [task] */
export const runHref = (run, task = run.startsWith("task/")) => (task ? "/tasks/" : "/runs/") + encodeURIComponent(run.slice(run.indexOf("/") + 1));
/** @param {string} type */
export const typeHref = (type) => "/workflows/" + encodeURIComponent(type);
/** @param {string} ic @param {string} title @param {...any} rest */
export const blank = (ic, title, ...rest) => el("div.card.blank", icon(ic), el("h2", title), rest);
/** @param {import("./api.js").Problem | Error | any} problem @param {any} [more] */
export function problemNote(problem, more) {
  return el("div.note.failed", { role: "alert" }, icon("warn"), el("div.stack.grow", null,
    el("p", el("b", problem.title ?? "Something went wrong"), problem.code && el("span", " (", el("a.link", { href: "https://github.com/wigwag/wigwag/blob/main/docs/reference/errors.md", rel: "noreferrer" }, problem.code), ")")),
    el("p.small", rich(problem.detail || problem.message || "")),
    problem.hint && el("p.small", el("span.dim", "hint: "), rich(problem.hint)),
    problem.trace && el("p.small.dim", "trace ", el("span.mono", problem.trace)), more));
}
/** @param {number} rows */
export const skeleton = (rows) => el("div.card", { "aria-busy": "true", "aria-label": "Loading" }, Array.from({ length: rows }, (_, i) => el("div.w.skeleton", el("span"), el("div.title", el("div.sk", { vars: { "--w": 40 + ((i * 17) % 40) + "%" } })), el("div.sub", el("div.sk", { vars: { "--w": "30%" } })))));

/** Shows a skeleton if something takes longer than 150 ms. @template T @param {Element} box @param {number} rows @param {Promise<T>} doing */
export async function patiently(box, rows, doing) {
  const timer = setTimeout(() => { if (!box.childElementCount) fill(box, skeleton(rows)); }, 150);
  try { return await doing; } finally { clearTimeout(timer); }
}

/** @param {string} text @param {string} what */
export async function copy(text, what) {
  try { await navigator.clipboard.writeText(text); announce(`${what} copied`); return true; } catch { announce("The browser does not allow copying."); return false; }
}
/** @param {string} text @param {string} what */
export const copyButton = (text, what) => iconButton("Copy " + what, "copy", { class: "small quiet", onclick: (/** @type {Event} */ event) => { const button = /** @type {HTMLElement} */ (event.currentTarget); copy(text, what).then((done) => { if (!done) return; fill(button, icon("check")); setTimeout(() => fill(button, icon("copy")), 1200); }); } });
/** @param {string} text */
export const command = (text) => el("div.cmd", el("span.grow", { tabindex: "0", role: "region", "aria-label": "Command" }, text), copyButton(text, "command"));

/**
 * A dialog; focus returns where it was.
 * @param {string} title @param {any[]} body @param {any[]} footer @param {{wide?: boolean, onclose?: () => void}} [options]
 */
export function dialog(title, body, footer, options = {}) {
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const foot = el("footer", footer), inner = el("div", body);
  const box = /** @type {HTMLDialogElement} */ (el("dialog.modal" + (options.wide ? ".big" : ""), { "aria-label": title }, el("header", el("h2.grow", title), iconButton("Close", "cross", { class: "small quiet", onclick: () => box.close() }), kbd("esc")), inner, footer.length > 0 && foot));
  box.addEventListener("close", () => { box.remove(); before?.focus?.(); options.onclose?.(); });
  document.body.append(box);
  box.showModal();
  /** @type {HTMLElement | null} */ (inner.querySelector("input:not([type=checkbox]), textarea, select, [role=radio]"))?.focus();
  return { box, inner, foot, close: () => box.close() };
}

/** @param {string} name @param {[string, string][]} choices @param {string} picked @param {(value: string) => void} onpick */
export function segments(name, choices, picked, onpick) {
  const box = el("div.seg", { role: "group", "aria-label": name }, choices.map(([id, text]) => el("button", { "data-id": id, "aria-pressed": String(id === picked), onclick: () => { for (const one of box.children) one.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (one).dataset.id === id)); onpick(id); } }, text)));
  return box;
}
/** @param {string} name @param {[string, string][]} choices @param {string} picked @param {(value: string) => void} onpick */
export const choice = (name, choices, picked, onpick) => { const box = el("select.input.slim", { "aria-label": name, onchange: () => onpick(box.value) }, choices.map(([value, text]) => el("option", { value, selected: value === picked }, text))); box.value = picked; return box; };

const SHOWN_MAX = 20_000;
/** JSON as coloured text. @param {any} value @param {string} [name] */
export function json(value, name = "JSON") {
  const whole = stringify(value, 2);
  const box = el("pre.json", { tabindex: "0", role: "region", "aria-label": name });
  colour(box, whole.slice(0, SHOWN_MAX));
  if (whole.length <= SHOWN_MAX) return box;
  const more = el("button.btn.small", { onclick: () => { fill(box, whole); more.remove(); } }, `Show all ${Math.ceil(whole.length / 1024)} KiB`);
  return el("div.stack", box, more);
}

/** @param {Element} box @param {string} text */
function colour(box, text) {
  const re = /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false)\b|\bnull\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  let at = 0;
  for (const m of text.matchAll(re)) {
    const kind = m[1] ? (m[2] ? "k" : "s") : m[0] === "null" ? "z" : /^[tf]/.test(m[0]) ? "b" : "n";
    add(box, [text.slice(at, m.index), el("span." + kind, m[1] ?? m[0]), m[2] ?? ""]);
    at = m.index + m[0].length;
  }
  add(box, [text.slice(at)]);
}
