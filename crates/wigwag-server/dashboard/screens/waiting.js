// Waiting now: what waits for a person, group by group, answered one by one or many at once.
import { answerPanel, bulkDialog, isTask, linkButton } from "../answer.js";
import { get, paced, query, runPath, session } from "../api.js";
import { announce, blank, choice, el, fill, icon, json, kbd, keyed, left, patiently, pill, problemNote, rich, segments, time, typeHref } from "../dom.js";
import { live } from "../live.js";
import { screenKeys } from "../shell.js";
import { clock, count, ms, plural, span } from "../words.js";

/** @typedef {import("../answer.js").WaitRow} WaitRow */
const PAGE = 50, SELECT_MAX = 5000, SOON_MS = 3600e3;
/** @param {WaitRow} wait */
const keyOf = (wait) => `${wait.run}~${wait.point}`;
/** @param {WaitRow} wait */
const href = (wait) => `/${isTask(wait) ? "tasks" : "runs"}/${encodeURIComponent(wait.id)}`;
/** @param {WaitRow} wait */
function dueOf(wait) {
  const at = ms(wait.deadline), since = ms(wait.since);
  if (!Number.isFinite(at)) return null;
  const rest = at - Date.now(), whole = at - since || 1;
  return { rest, share: Math.min(1, Math.max(0, 1 - rest / whole)), soon: rest < SOON_MS || rest < whole / 10 };
}

/** @param {import("../app.js").Context} context */
export async function open(context) {
  const { shell } = context;
  const state = { name: context.query.get("name") ?? "", order: context.query.get("order") ?? "due", type: context.query.get("type") ?? "", summary: /** @type {import("../types.d.ts").WaitingSummary} */ (/** @type {any} */ (null)), rows: /** @type {WaitRow[]} */ ([]), next: /** @type {string | undefined} */ (undefined), shown: "", at: "", picked: context.query.get("run") ?? "", pages: /** @type {(string | undefined)[]} */ ([undefined]), marked: /** @type {Map<string, WaitRow>} */ (new Map()), gone: new Map(), fresh: 0, lastMark: -1 };
  const sub = el("span.sub.num"), groups = el("nav.groups", { "aria-label": "Signals that runs wait for" }), bar = el("div.toolbar"), list = el("div.waits", { role: "grid", "aria-label": "Open waits", "aria-multiselectable": "true" }), foot = el("div"), detail = el("aside.detail", { "aria-label": "Selected wait" }), pillBox = el("div");
  shell.setTop("waiting", [el("h1", "Waiting now"), sub], "Waiting now");
  const sheet = el("div.scrim", { onclick: () => document.body.classList.remove("sheet") });
  fill(shell.content, el("div.inbox", groups, el("section.list", { "aria-label": "Waits" }, bar, el("div.cols", { "aria-hidden": "true" }, el("span"), el("span", "What and which run"), el("span", "Waiting"), el("span", "Due")), pillBox, list, foot), detail, sheet));
  let panel = /** @type {ReturnType<typeof answerPanel> | null} */ (null), panelKey = "", reading = 0, abort = new AbortController();
  context.onclose(() => { abort.abort(); document.body.classList.remove("sheet"); });

  const url = () => context.replace("/" + query({ name: state.name, order: state.order === "due" ? "" : state.order, type: state.type, run: state.picked }));
  const path = (/** @type {string | undefined} */ after) => "/v1/waiting" + query({ name: state.name, order: state.order, type: state.type, limit: PAGE, after });

  async function load() {
    const mine = ++reading;
    const [summary, page] = await patiently(list, 6, Promise.all([get("/v1/waiting/summary", abort.signal), get(path(state.pages.at(-1)), abort.signal)]));
    if (mine !== reading || !context.isOpen()) return;
    if (!page.items.length && state.pages.length > 1) { state.pages.pop(); return load(); }
    Object.assign(state, { summary, rows: page.items, next: page.next, shown: page.order, at: page.at, fresh: 0 });
    shell.setBadge(summary.total);
    if (!state.rows.some((row) => keyOf(row) === state.picked)) { if (!panel?.isDirty) state.picked = matchMedia("(max-width: 720px)").matches ? "" : state.rows[0] ? keyOf(state.rows[0]) : ""; }
    draw();
  }
  /** One page is shown at a time, however many there are. @param {number} by @param {boolean} [pickLast] */
  async function turn(by, pickLast = false) {
    if (by > 0 && state.next) state.pages.push(state.next); else if (by < 0 && state.pages.length > 1) state.pages.pop(); else return;
    if (!panel?.isDirty) state.picked = "";
    state.lastMark = -1;
    await load();
    const row = pickLast ? state.rows.at(-1) : state.rows[0];
    list.scrollIntoView({ block: "nearest" });
    if (row && !panel?.isDirty) pick(keyOf(row), false);
    if (document.activeElement === document.body) /** @type {HTMLElement | null} */ (list.querySelector(".at .title"))?.focus({ preventScroll: true });
  }
  /** Shows the first page of another filter or order. @param {Partial<typeof state>} change */
  function filter(change) { Object.assign(state, change, { pages: [undefined], lastMark: -1 }); url(); load(); }

  function draw() {
    const { summary, rows } = state, soon = summary.groups.reduce((sum, one) => sum + (one.due_within_1h ?? 0), 0), oldest = summary.groups.map((/** @type {any} */ one) => one.oldest).filter(Boolean).sort()[0];
    fill(sub, summary.total ? [plural(summary.total, "wait"), ` for ${plural(summary.groups.length, "signal")}`, oldest && ` · oldest ${span(Date.now() - ms(oldest), 1)}`, soon > 0 && ` · ${soon} due within 1 h`, !summary.exact && " · counting…"] : "");
    drawGroups();
    drawBar();
    if (!rows.length && !state.gone.size) { for (const name of ["role", "aria-multiselectable", "aria-rowcount"]) list.removeAttribute(name); fill(list, empty()); } else { list.setAttribute("role", "grid"); list.setAttribute("aria-multiselectable", "true"); for (const one of list.querySelectorAll(":scope > :not(.w)")) one.remove(); list.setAttribute("aria-rowcount", String(groupCount())); keyed(list, rows, keyOf, drawRow); }
    fill(pillBox, state.fresh > 0 && el("div.row.newer", el("button.btn.small.quiet.grow", { onclick: load }, `${state.fresh} new · show`, kbd("."))));
    drawFoot();
    drawDetail();
  }
  const groupCount = () => (state.name ? state.summary.groups.find((one) => one.name === state.name)?.count ?? 0 : state.summary.total);
  function empty() {
    if (state.type || state.name) return blank("find", "Nothing waits here", el("p", "No open wait matches the filter."), el("button.btn", { onclick: () => filter({ type: "", name: "" }) }, "Clear the filter"));
    return blank("inbox", "Nothing waits", el("p", "Runs that wait for a signal appear here by themselves."), el("a.btn", { href: "/runs" }, "See runs"));
  }

  function drawGroups() {
    const most = (/** @type {number[]} */ ages) => Math.max(1, ...ages);
    const all = { name: "", label: "All", count: state.summary.total, ages: [0, 0, 0, 0], oldest: null, due_within_1h: 0 };
    const some = state.summary.groups.length > 1 || state.name ? [all, ...state.summary.groups] : state.summary.groups;
    fill(groups, el("h2", "Signals"), some.map((/** @type {any} */ one) => el("a.group", { href: "/" + query({ name: one.name }), "aria-current": state.name === one.name || some.length === 1 ? "true" : undefined, onclick: (/** @type {Event} */ event) => { event.preventDefault(); state.marked.clear(); filter({ name: one.name, type: "" }); } },
      el("span.name.clip", one.label ?? one.name), el("span.count", count(one.count)), el("span.sub", one.due_within_1h ? `${one.due_within_1h} due soon` : one.oldest ? `oldest ${span(Date.now() - ms(one.oldest), 1)}` : "every signal"),
      one.name && el("span.ages.wait", { role: "img", "aria-label": `Ages: ${one.ages.map((/** @type {number} */ n, /** @type {number} */ i) => `${n} ${["under 1 h", "under 1 d", "under 7 d", "older"][i]}`).join(", ")}` }, one.ages.map((/** @type {number} */ n, /** @type {number} */ i) => el("i" + (i === 3 ? ".hot" : ""), { vars: { "--h": (n / most(one.ages)) * 100 + "%" } }))))));
  }

  function drawBar() {
    const all = el("input.check", { type: "checkbox", "aria-label": "Select all that are shown", onchange: () => { if (all.checked) markAll(state.rows); else state.marked.clear(); draw(); } });
    all.checked = state.rows.length > 0 && state.rows.every((row) => state.marked.has(keyOf(row)));
    all.indeterminate = state.marked.size > 0 && !all.checked;
    const types = [...new Set(state.summary.groups.flatMap((one) => (!state.name || one.name === state.name ? one.types ?? [] : [])))].sort();
    if (state.type && !types.includes(state.type)) types.push(state.type);
    fill(bar, all, el("span.strong.clip", state.name || "All signals"), el("span.dimmer.num", `${count(groupCount())} waiting`), el("span.grow"),
      types.length > 1 && choice("Workflow", [["", "All workflows"], ...types.map((one) => /** @type {[string, string]} */ ([one, one]))], state.type, (value) => filter({ type: value })),
      segments("Order", [["due", "Due first"], ["oldest", "Oldest"]], state.order, (value) => filter({ order: value })));
  }

  /** @param {WaitRow} wait @param {HTMLElement | undefined} old */
  function drawRow(wait, old) {
    const key = keyOf(wait), due = dueOf(wait), isAt = key === state.picked, over = state.gone.get(key);
    const box = el("input.check", { type: "checkbox", "aria-label": "Select " + wait.id, tabindex: "-1", checked: state.marked.has(key), onclick: (/** @type {MouseEvent} */ event) => { event.stopPropagation(); mark(key, event.shiftKey); } });
    const row = el("div.w" + (isAt ? ".at" : "") + (over ? ".over" : ""), { role: "row", "aria-selected": String(isAt || state.marked.has(key)), onclick: () => pick(key, true) },
      el("div.pick", { role: "gridcell" }, box), el("div.title.clip", { role: "gridcell", tabindex: isAt ? 0 : -1 }, wait.about ?? wait.id),
      el("div.sub", { role: "gridcell" }, el("span.mono.clip", wait.id), el("span", "·"), el("span.clip", wait.type), !state.name && el("span.tag", wait.name), wait.quorum > 1 && el("span.tag.wait", `${wait.have?.length ?? 0} of ${wait.quorum}`)),
      el("div.cell.age.dim", { role: "gridcell" }, el("span.sr", "waits for "), time(wait.since, span(Date.now() - ms(wait.since)))),
      el("div.cell.due", { role: "gridcell" }, over ? el("span.dim", over) : !due ? el("span.dimmer", "no deadline") : [el("span" + (due.soon ? ".soon" : ".dim"), { title: clock(ms(wait.deadline), true) }, due.rest < 0 ? "overdue" : due.soon ? `${span(due.rest, due.rest > 600e3 ? 1 : 2)} left` : `in ${span(due.rest)}`), el("div.meter" + (due.soon ? ".soon" : ".idle"), { "aria-hidden": "true" }, el("i", { vars: { "--w": due.share * 100 + "%" } }))]));
    if (old && old.contains(document.activeElement)) queueMicrotask(() => /** @type {HTMLElement | null} */ (row.querySelector(".title"))?.focus({ preventScroll: true }));
    return row;
  }

  function drawFoot() {
    const many = state.marked.size, first = (state.pages.length - 1) * PAGE;
    if (many) { fill(foot, el("div.selbar", { role: "region", "aria-label": "Selection" }, el("span", el("b.num", count(many)), " selected"), many < groupCount() && (state.next || first > 0) && el("button.btn.small.quiet", { onclick: selectAll }, `Select all ${count(Math.min(groupCount(), SELECT_MAX))}`), el("button.btn.small.quiet", { onclick: () => { state.marked.clear(); draw(); } }, "Clear"), el("button.btn.small.prime", { onclick: sendMany }, icon("send"), `Send to ${count(many)}…`))); return; }
    fill(foot, el("div.foot-row", el("span.num", state.rows.length ? `${count(first + 1)}–${count(first + state.rows.length)} of ${count(Math.max(groupCount(), first + state.rows.length))}` : "0 of 0"), el("span", `as of ${clock(ms(state.at ?? state.summary.at))}`), state.order === "due" && state.shown === "oldest" && el("span", "oldest first: too many to order by deadline"), el("span.grow"), state.pages.length > 1 && el("button.btn.small", { onclick: () => turn(-1) }, "Previous"), state.next && el("button.btn.small", { onclick: () => turn(1) }, "Next"), el("span.row.hide", kbd("j"), kbd("k"), "move", kbd("x"), "select", kbd("↵"), "open")));
  }

  async function drawDetail() {
    const wait = state.rows.find((row) => keyOf(row) === state.picked);
    if (!wait) { if (!panel?.isDirty) { fill(detail, state.rows.length > 0 && el("div.sect.dim", "Pick a wait to answer it.")); panel = null; panelKey = ""; } return; }
    if (panelKey === state.picked) return;
    panelKey = state.picked;
    const why = el("div", el("p.dim.small", "…")), input = el("div");
    panel = answerPanel(wait, { label: "Send and next", onsent: () => { state.gone.set(keyOf(wait), "sent"); drop(wait, 600); }, onover: () => drop(wait, 4000) });
    const close = el("button.btn.icon.small.quiet.phone", { "aria-label": "Close", onclick: () => document.body.classList.remove("sheet") }, icon("cross"));
    fill(detail, el("i.grab"), el("div.sect", el("div.row", pill("waiting_signal", `Waiting ${span(Date.now() - ms(wait.since))}`), el("span.grow"), linkButton(wait), el("a.btn.small", { href: href(wait) }, "Open run", icon("right")), close), el("h2", wait.about ?? wait.id), el("div.row.small.dim.wrap", el("span.mono", wait.id), el("span", "·"), el("a.link", { href: typeHref(wait.type) }, wait.type), el("span", "·"), el("span", "step ", wait.point))),
      el("div.sect", el("h2", "Send ", el("span.mono", wait.name)), wait.schema?.description && el("p.small.dim", wait.schema.description), panel.box), el("div.sect", el("h2", "Why it waits"), why), el("div.sect", el("h2", "Input"), input),
      el("div.act", panel.button, el("button.btn", { onclick: () => move(1) }, "Skip", kbd("j"))));
    const mine = panelKey;
    try {
      const [explained, given] = await Promise.all([get(runPath(wait.id, isTask(wait)) + "/explain", abort.signal), get(runPath(wait.id, isTask(wait)) + "/input", abort.signal)]);
      if (mine !== panelKey) return;
      fill(why, whyList(explained, wait));
      fill(input, json(given, "Input"));
    } catch (error) { if (mine === panelKey && !abort.signal.aborted) fill(why, problemNote(error)); }
  }

  /** @param {WaitRow} wait @param {number} after */
  function drop(wait, after) {
    const key = keyOf(wait), place = state.rows.indexOf(wait);
    setTimeout(() => {
      if (!context.isOpen()) return;
      const here = state.rows.findIndex((row) => keyOf(row) === key), wasPicked = state.picked === key;
      state.rows = state.rows.filter((row) => keyOf(row) !== key);
      state.gone.delete(key);
      state.marked.delete(key);
      if (wasPicked) { const next = state.rows[Math.min(here < 0 ? place : here, state.rows.length - 1)]; panel = null; panelKey = ""; state.picked = next ? keyOf(next) : ""; document.body.classList.remove("sheet"); url(); }
      load();
    }, after);
    draw();
  }

  /** @param {string} key @param {boolean} byHand */
  function pick(key, byHand) { if (panel?.isDirty && panelKey !== key) announce("The form of the wait before was left."); state.picked = key; url(); draw(); if (byHand && matchMedia("(max-width: 720px)").matches) document.body.classList.add("sheet"); list.querySelector(".at")?.scrollIntoView({ block: "nearest" }); }
  /** @param {number} by */
  function move(by) {
    const at = state.rows.findIndex((row) => keyOf(row) === state.picked);
    if (at + by >= state.rows.length && state.next) { turn(1); return; }
    if (at + by < 0 && state.pages.length > 1) { turn(-1, true); return; }
    const next = state.rows[Math.max(0, Math.min(state.rows.length - 1, at + by))];
    if (next) { pick(keyOf(next), false); /** @type {HTMLElement | null} */ (list.querySelector(".at .title"))?.focus({ preventScroll: true }); } }
  /** @param {WaitRow[]} rows */
  const markAll = (rows) => { for (const row of rows) state.marked.set(keyOf(row), row); };
  /** @param {string} key @param {boolean} upTo */
  function mark(key, upTo) {
    const at = state.rows.findIndex((row) => keyOf(row) === key);
    if (upTo && state.lastMark >= 0) for (const row of state.rows.slice(Math.min(at, state.lastMark), Math.max(at, state.lastMark) + 1)) markAll([row]);
    else if (!state.marked.delete(key)) markAll(state.rows.slice(at, at + 1));
    state.lastMark = at;
    draw();
  }
  async function selectAll() {
    let next = /** @type {string | undefined} */ (undefined);
    do {
      const page = await get("/v1/waiting" + query({ name: state.name, order: state.order, type: state.type, limit: 1000, after: next }), abort.signal);
      markAll(page.items);
      next = page.next;
    } while (next && state.marked.size < SELECT_MAX);
    draw();
  }
  function sendMany() { bulkDialog([...state.marked.values()], () => { state.marked.clear(); load(); }); }

  screenKeys({ j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1), Enter: () => { const wait = state.rows.find((row) => keyOf(row) === state.picked); if (wait) context.go(href(wait)); }, x: () => state.picked && mark(state.picked, false), "⇧x": () => state.picked && mark(state.picked, true), f: () => panel?.switchForm(), ".": () => load(), c: () => { const wait = state.rows.find((row) => keyOf(row) === state.picked); if (wait) navigator.clipboard?.writeText(wait.id).then(() => announce("Id copied"), () => {}); }, send: () => panel?.send(), Escape: () => { state.marked.clear(); document.body.classList.remove("sheet"); draw(); } });

  const { soon, stop } = paced(load, 1000);
  context.onclose(stop);
  context.onclose(live.subscribe({ topic: "waiting", gap: (isFirst) => soon(isFirst ? 2000 : 0), on: ({ type, payload }) => {
    if (type === "wait:closed") {
      const wait = state.rows.find((row) => row.id === payload.run && row.name === payload.name);
      if (!wait || state.gone.has(keyOf(wait))) return;
      state.gone.set(keyOf(wait), payload.by ? `${payload.by}, just now` : payload.why);
      if (panelKey === keyOf(wait) && panel?.isDirty) { draw(); return; }
      drop(wait, 3000);
    } else if (type === "wait:opened" && (!state.name || payload.name === state.name) && (list.contains(document.activeElement) || list.matches(":hover"))) { state.fresh++; draw(); } else soon(300);
  } }));
  // Without the hub the list is read again now and then; on a bucket as often as the board is listed.
  const poll = setInterval(() => { if (!document.hidden && !(live.isConnected && session.me?.store.notifies)) load().catch(() => {}); }, session.me?.store.notifies ? 15e3 : 60e3);
  const ticking = setInterval(() => { if (!document.hidden && state.summary && !list.contains(document.activeElement)) draw(); }, 30e3);
  context.onclose(() => { clearInterval(poll); clearInterval(ticking); });
  await load();
}

const capital = (/** @type {string} */ text) => text.charAt(0).toUpperCase() + text.slice(1);
/** @param {any} explained @param {WaitRow} wait */
function whyList(explained, wait) {
  const own = explained.points.find((/** @type {any} */ one) => one.point === wait.point), other = explained.points.filter((/** @type {any} */ one) => one !== own);
  if (!own) return el("p", rich(explained.why));
  const item = (/** @type {string} */ cls, /** @type {string} */ ic, /** @type {any} */ text, /** @type {any} */ at) => el("li." + cls, icon(ic), el("span", text), el("span.dimmer.small.num", at));
  return el("ol.why", item("wait", "wait", rich(`Waits for ${own.needs}`), time(own.since, span(Date.now() - ms(own.since), 1))), item(own.misfits?.length ? "soon" : "idle", own.misfits?.length ? "warn" : "ring", rich(capital(own.have)), ""), (own.misfits ?? []).slice(0, 5).map((/** @type {any} */ one) => item("failed", "cross", [el("b", one.by ?? "somebody"), ": ", rich(one.reason)], time(one.at))),
    item(own.until ? "soon" : "idle", own.until ? "warn" : "dash", rich(capital(own.then)), own.until ? left(own.until) : ""), other.slice(0, 4).map((/** @type {any} */ one) => item("running", "play", rich(`\`${one.point}\`: ${one.needs}`), "")));
}
