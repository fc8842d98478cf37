// Router, sign-in, search, and what happens when the connection is lost.
import { events, get, lacks, may, Problem, query, restore, session, signIn } from "./api.js";
import { announce, blank, dialog, el, fill, icon, problemNote, runHref, typeHref } from "./dom.js";
import { live } from "./live.js";
import { globalKeys, restoreTheme, screenKeys, Shell, showKeys, signInBox, switchTheme } from "./shell.js";
import { clock, switchZone } from "./words.js";
import * as waiting from "./screens/waiting.js";
import * as runs from "./screens/runs.js";
import * as run from "./screens/run.js";

/** @typedef {{shell: Shell, params: string[], query: URLSearchParams, go: (path: string) => void, replace: (path: string) => void, task: boolean, onclose: (end: () => void) => void, isOpen: () => boolean}} Context */

// These screens are rarely the first. They are loaded when they are opened, or after three seconds, because a server of
// another version no longer serves them.
const workflows = () => import("./screens/workflows.js"), system = () => import("./screens/system.js");
setTimeout(() => { for (const load of [workflows, system]) load().catch(() => {}); }, 3000);

/**
 * A screen that is loaded when it is opened.
 * @template {string} Name
 * @param {() => Promise<Record<Name, (context: Context) => Promise<void>>>} load @param {Name} name
 * @returns {(context: Context) => Promise<void>}
 */
function later(load, name) {
  // Without a connection, the request for the health fails with an error that says so.
  return async (context) => { const screen = await load().catch(async (error) => { await get("/v1/health"); throw error; }); if (context.isOpen()) await screen[name](context); };
}

/** Path, screen, whether it is one of tasks, and the scope that its requests need. @type {[RegExp, (context: Context) => void | Promise<void>, boolean, string][]} */
const ROUTES = [
  [/^\/$/, waiting.open, false, "runs:read"], [/^\/runs$/, runs.open, false, "runs:read"], [/^\/tasks$/, runs.open, true, "tasks"], [/^\/runs\/([^/]+)$/, run.open, false, "runs:read"], [/^\/tasks\/([^/]+)$/, run.open, true, "tasks"],
  [/^\/workflows$/, later(workflows, "open"), false, "runs:read"], [/^\/workflows\/([^/]+)$/, later(workflows, "openOne"), false, "runs:read"], [/^\/actors$/, later(system, "openActors"), false, ""], [/^\/store$/, later(system, "openStore"), false, "admin"], [/^\/system$/, later(system, "openSystem"), false, "runs:read"],
];

/** Name, path, icon and scope of each screen. @type {[string, string, string, string][]} */
const SCREENS = [["Waiting now", "/", "inbox", "runs:read"], ["Runs", "/runs", "list", "runs:read"], ["Tasks", "/tasks", "box", "tasks"], ["Workflows", "/workflows", "shapes", "runs:read"], ["Actors & topics", "/actors", "hub", ""], ["Store", "/store", "disk", "admin"], ["System", "/system", "pulse", "runs:read"]];

restoreTheme();
restore();
const shell = new Shell({ find: openFind, keys: showKeys, signOut });
/** @type {(() => void)[]} */
let ends = [];
let visit = 0, refusals = 0, isOpened = false;

/** @param {string} path */
function go(path) { if (path !== location.pathname + location.search) { remember(); history.pushState({}, "", path); } route(0); }
/** @param {string} path */
function replace(path) { history.replaceState({ ...history.state }, "", path); }
function remember() { history.replaceState({ ...history.state, scroll: scrollY }, ""); }

/** @param {number} scroll */
async function route(scroll) {
  for (const end of ends.splice(0)) end();
  screenKeys({});
  const mine = ++visit;
  isOpened = false;
  for (const [pattern, open, task, scope] of ROUTES) {
    const found = pattern.exec(location.pathname);
    if (!found) continue;
    /** @type {Context} */
    const context = { shell, params: found.slice(1).map(decodeURIComponent), query: new URLSearchParams(location.search), go, replace, task, onclose: (end) => { if (mine === visit) ends.push(end); else end(); }, isOpen: () => mine === visit };
    fill(shell.content);
    // What would be refused is not asked for.
    if (scope && lacks(scope)) { refuse(scope); return; }
    const before = refusals;
    try { await open(context); isOpened = before === refusals; } catch (error) { if (mine === visit) fill(shell.content, el("div.body", problemNote(error))); }
    if (mine === visit && scroll) scrollTo(0, scroll);
    return;
  }
  shell.setTop("", [el("h1", "Not found")], "Not found");
  fill(shell.content, el("div.body", blank("find", "There is no such screen", el("a.btn", { href: "/" }, "Waiting now"))));
}

/** @param {string} scope */
function refuse(scope) {
  const name = SCREENS.find(([, path]) => path === "/" + location.pathname.split("/")[1])?.[0] ?? "wigwag";
  shell.setTop(location.pathname.split("/")[1] || "waiting", [el("h1", name)], name);
  fill(shell.content, el("div.body", blank("lock", `This needs the scope ${scope}`, el("p", "You are ", el("b", session.me?.name ?? "nobody"), " with ", session.me?.scopes?.join(" ") || "no scopes", "."), el("div.row", SCREENS.filter(([, , , own]) => may(own)).slice(0, 3).map(([text, path]) => el("a.btn", { href: path }, text))))));
}

addEventListener("popstate", (event) => route(event.state?.scroll ?? 0));
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null, href = link?.getAttribute("href");
  if (!link || !href?.startsWith("/") || href.startsWith("/v1/") || event.metaKey || event.ctrlKey || event.shiftKey || event.button || event.defaultPrevented || link.getAttribute("target")) return;
  event.preventDefault();
  go(href);
});

/** Goes to a run, workflow or screen. */
function openFind() {
  const list = el("div.found", { role: "listbox", "aria-label": "Matches", id: "found" });
  let place = 0, asked = 0;
  const box = el("input.input", { "aria-label": "Go to", placeholder: "Id of a run, workflow or screen", autocomplete: "off", role: "combobox", "aria-expanded": "true", "aria-controls": "found", oninput: () => look(), onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); move(event.key === "ArrowDown" ? 1 : -1); } if (event.key === "Enter") { const at = /** @type {HTMLElement | undefined} */ (list.children[place]); event.preventDefault(); if (at) at.click(); else if (box.value.trim()) leave(runHref(box.value.trim())); } } });
  const opened = dialog("Go to", [box, list], []);
  /** @param {string} path */
  const leave = (path) => { opened.close(); go(path); };
  /** @param {number} by */
  const move = (by) => { place = Math.max(0, Math.min(list.children.length - 1, place + by)); [...list.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === place))); };
  /** @param {string} text @param {string} path @param {string} ic @param {string} [note] */
  const option = (text, path, ic, note) => el("div.option", { role: "option", onclick: () => leave(path) }, icon(ic), el("span.grow.clip", text), note && el("span.dimmer.small", note));
  async function look() {
    const text = box.value.trim(), mine = ++asked;
    const near = SCREENS.filter(([name]) => name.toLowerCase().includes(text.toLowerCase())).map(([name, path, ic]) => option(name, path, ic, "screen"));
    const answers = text && may("runs:read") && /^[A-Za-z0-9._:-]+$/.test(text) ? await Promise.all([get("/v1/ids" + query({ prefix: text, limit: 12 })), get("/v1/definitions")]).catch(() => null) : null;
    if (mine !== asked) return;
    const ids = (answers?.[0].items ?? []).map((/** @type {any} */ one) => option(one.id, (one.task ? "/tasks/" : "/runs/") + encodeURIComponent(one.id), one.task ? "box" : "list", one.task ? "task" : "run"));
    const types = (answers?.[1].items ?? []).filter((/** @type {any} */ one) => one.type.toLowerCase().includes(text.toLowerCase())).slice(0, 5).map((/** @type {any} */ one) => option(one.type, typeHref(one.type), "shapes", "workflow"));
    fill(list, ids, types, near);
    place = 0;
    move(0);
  }
  look();
}

function signOut() { signIn(null); live.stop(); location.assign("/"); }

let asking = false, badge = /** @type {any} */ (0);
/** Waits by signal, told by the hub: the badge follows without a request. */
let watchesBoard = false;
function watchBoard() {
  // On a bucket the index of waits is listed for this topic: only while the inbox lists it anyway.
  if (watchesBoard || !session.me?.store.notifies || !may("runs:read")) return;
  watchesBoard = true;
  live.subscribe({ topic: "board", gap: () => refreshBadge(), on: ({ payload }) => shell.setBadge(payload.waiting) });
}
/** @param {boolean} [stays]  whether the screen stays as it is, with what was filled in */
async function begin(stays = false) {
  try { session.me = await get("/v1/me"); } catch (error) { if (/** @type {any} */ (error).status !== 401) fill(shell.content, el("div.body", problemNote(error, el("button.btn.small", { onclick: () => begin() }, "Again")))); return; }
  shell.drawFoot();
  live.stop();
  live.start();
  watchBoard();
  if (!stays) route(history.state?.scroll ?? 0);
  // The inbox sets the count itself.
  if (location.pathname === "/") badge = setTimeout(refreshBadge, badgeInterval());
  else refreshBadge();
}

/** Asks for a token over the page; what is open stays. */
events.unauthorized = () => {
  refusals++;
  if (asking) return;
  asking = true;
  signInBox(async (token) => { signIn(token); session.me = await get("/v1/me"); asking = false; begin(isOpened); }, () => { asking = false; });
};

let offlineSince = 0, retry = /** @type {any} */ (0);
events.offline = (is) => {
  if (!is) { if (offlineSince) { offlineSince = 0; clearTimeout(retry); shell.setBanner(null); document.body.classList.remove("offline"); announce("Connected again"); if (session.me) live.start(); } return; }
  if (!offlineSince) { offlineSince = Date.now(); document.body.classList.add("offline"); announce("No connection"); }
  let left = 3;
  const again = () => get("/v1/health").catch(() => {});
  const draw = () => { shell.setBanner(el("div.banner.soon", icon("cloud"), el("span.grow", `No connection. The page shows the state of ${clock(offlineSince)}. Trying again in ${left} s.`), el("button.btn.small", { onclick: again }, "Now"))); };
  clearTimeout(retry);
  const tick = () => { if (!offlineSince) return; draw(); if (left-- <= 0) again(); else retry = setTimeout(tick, 1000); };
  tick();
};

/** The count beside the inbox; on a bucket it costs a LIST, so that it is asked for only while the tab is seen. */
async function refreshBadge() {
  clearTimeout(badge);
  if (!document.hidden && session.me && may("runs:read")) {
    try { const found = await get("/v1/waiting/summary"); shell.setBadge(found.total); checkVersion(); } catch { /* the screen says why */ }
  }
  badge = setTimeout(refreshBadge, badgeInterval());
}
// Where the hub tells the count, this is what checks the version; on a bucket other screens than the inbox ask for it rarely.
const badgeInterval = () => (session.me?.store.notifies ? (live.isConnected ? 60e3 : 15e3) : 30 * 60e3);

/** A page of another version than its server says so; it never reloads by itself. */
async function checkVersion() {
  const me = await get("/v1/me").catch(() => null), own = /\/ui\/([0-9a-f]+)\//.exec(import.meta.url)?.[1];
  if (me?.dashboard && own && me.dashboard !== own && !offlineSince) shell.setBanner(el("div.banner.idle", { role: "status" }, icon("flag"), el("span.grow", "wigwag was updated."), el("button.btn.small", { onclick: () => location.reload() }, "Reload")));
}

// A read in the background that failed: the banner says that the connection is lost, anything else is said once.
addEventListener("unhandledrejection", (event) => { if (event.reason instanceof Problem) { event.preventDefault(); if (event.reason.code !== "no_connection") announce(event.reason.detail); } else if (event.reason?.name === "AbortError") event.preventDefault(); });
globalKeys({ "/": openFind, "?": showKeys, d: switchTheme, u: () => { announce(switchZone() ? "Times in UTC" : "Local times"); route(scrollY); }, gw: () => go("/"), gr: () => go("/runs"), gt: () => go("/tasks"), gy: () => go("/workflows"), ga: () => go("/actors"), go: () => go("/store"), gs: () => go("/system") });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refreshBadge(); });
begin();
