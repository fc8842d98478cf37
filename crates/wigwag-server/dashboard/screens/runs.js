// Runs or tasks: ends of a day, filters that are the address, rows that change in place.
import { manyDialog, startDialog } from "../actions.js";
import { get, lacks, listInterval, paced, query, session } from "../api.js";
import { blank, choice, command, el, fill, icon, kbd, keyed, patiently, pill, problemNote, runHref, scrolls, STATUS, time } from "../dom.js";
import { bars } from "../graph.js";
import { live } from "../live.js";
import { screenKeys } from "../shell.js";
import { ago, clock, count, isFinal, ms, plural, span } from "../words.js";

// On a bucket each read costs: there the list follows changes every two minutes, or less often if it examines many runs; the counts every ten.
const BUCKET_COUNTS_MS = 600e3, LOCAL_LIST_MS = 15e3, POLL_MS = 15e3;
const PAGE = 50, ENDS = "completed,failed,cancelled", SPANS = /** @type {[number, string][]} */ ([[1, "Last hour"], [6, "Last 6 hours"], [24, "Last 24 hours"], [168, "Last 7 days"]]);
/** @param {number} at */
const iso = (at) => (at ? new Date(at).toISOString() : "");
/** A time without its seconds. @param {number} at */
const minute = (at) => clock(at).replace(/(:\d\d):\d\d/, "$1");
const CHIPS = ["", "waiting_signal", "running", "paused", "compensating", "failed", "completed", "cancelled"];

/** @param {import("../app.js").Context} context */
export async function open(context) {
  /** A time of the address; 0 if there is none. @param {string} name */
  const moment = (name) => Date.parse(context.query.get(name) ?? "") || 0;
  const { shell, task } = context, base = task ? "/tasks" : "/runs", abort = new AbortController();
  context.onclose(() => abort.abort());
  const state = { status: context.query.get("status") ?? "", type: context.query.get("type") ?? "", rows: /** @type {import("../types.d.ts").Summary[]} */ ([]), next: /** @type {string | undefined} */ (undefined), unreadable: /** @type {string[]} */ ([]), summary: /** @type {import("../types.d.ts").RunsSummary | null} */ (null), marked: new Set(), at: -1, newer: 0, looked: 0, examined: 0, pages: /** @type {(string | undefined)[]} */ ([undefined]), from: moment("since"), to: moment("until") };
  const sub = el("span.sub.num"), strip = el("div"), tools = el("div.row.wrap"), list = el("div"), off = lacks(task ? "tasks" : "runs:write");
  shell.setTop(task ? "tasks" : "runs", [el("h1", task ? "Tasks" : "Runs"), sub], task ? "Tasks" : "Runs", task ? [] : [el("button.btn.hide", { disabled: Boolean(off), title: off, onclick: () => startDialog((id) => context.go(runHref(id))) }, icon("play"), "Start a run")]);
  fill(shell.content, el("div.body", strip, tools, list));
  const url = () => context.replace(base + query({ status: state.status, type: state.type, since: iso(state.from), until: iso(state.to) }));
  const inTime = () => state.from > 0 || state.to > 0, isEnd = () => !state.status || isFinal(state.status);
  /** Shows the first page of another filter. @param {Partial<typeof state>} change */
  function filter(change) { Object.assign(state, change, { pages: [undefined], looked: 0, at: -1 }); state.marked.clear(); url(); load().catch(failed); }


  // A span of the strip is one of ends: without a status it shows the runs that ended then.
  const path = (/** @type {string | undefined} */ after) => `/v1${base}` + query({ status: state.status || (inTime() ? ENDS : ""), type: state.type, since: iso(state.from), until: iso(state.to), limit: PAGE, after });
  let counted = 0, readAt = 0, askedAt = 0;
  const wantsCounts = () => !(task && lacks("runs:read")) && (session.me?.store.notifies || !state.summary || Date.now() - counted >= BUCKET_COUNTS_MS);
  async function load() {
    const isCounted = wantsCounts();
    askedAt = Date.now();
    const [page, summary] = await patiently(list, 8, Promise.all([get(path(state.pages.at(-1)), abort.signal), isCounted ? get("/v1/runs/summary", abort.signal) : state.summary]));
    if (!context.isOpen()) return;
    if (isCounted) counted = Date.now();
    readAt = Date.now();
    const isWhole = !page.next && state.pages.length === 1;
    Object.assign(state, { rows: state.status ? page.items : newestFirst(page.items, isWhole), next: page.next, unreadable: page.unreadable ?? [], summary, newer: 0, looked: state.pages.length > 1 ? state.looked : page.examined, examined: page.examined });
    draw();
  }
  /** Where the whole list is here, the newest comes first, unfinished or not. @param {any[]} rows @param {boolean} whole */
  const newestFirst = (rows, whole) => (whole ? [...rows].sort((a, b) => ms(b.updated_at) - ms(a.updated_at)) : rows);
  /** One page is shown at a time. @param {number} by */
  async function turn(by) {
    if (by > 0 && state.next) state.pages.push(state.next); else if (by < 0 && state.pages.length > 1) state.pages.pop(); else return;
    const looked = state.looked;
    state.at = -1;
    await load();
    if (by > 0) state.looked = looked + state.examined;
    scrollTo(0, 0);
  }

  function draw() {
    const { summary } = state;
    if (summary && !task) { fill(sub, `${plural(summary.unfinished, "unfinished run")} · ${count(summary.ended.completed + summary.ended.failed + summary.ended.cancelled)} ended in 24 h`); drawStrip(); }
    const counts = /** @type {Record<string, number | undefined>} */ (summary && !task ? { failed: summary.ended.failed, completed: summary.ended.completed, cancelled: summary.ended.cancelled } : {});
    const types = (summary?.types ?? []).map((one) => one.type).filter((/** @type {string} */ one) => one.startsWith("task:") === task).map((/** @type {string} */ one) => (task ? one.split(":").slice(2).join(":") : one));
    if (state.type && !types.includes(state.type)) types.push(state.type);
    fill(tools, el("div.chips", { role: "group", "aria-label": "Status" }, CHIPS.map((id) => el("button.chip" + (id && "." + id), { "aria-pressed": String(id === state.status), onclick: () => filter({ status: id }) }, id && icon(STATUS[id][1]), id ? STATUS[id][0] : "All", counts[id] ? el("b", count(counts[id] ?? 0)) : null))), el("span.grow"), inTime() && el("button.btn.small.span", { "aria-label": "Clear the time", title: "Clear the time", onclick: () => filter({ from: 0, to: 0 }) }, `${isEnd() ? "Ended" : "Started"} ${state.from ? (state.to ? "" : "since ") + minute(state.from) : "before"}${state.to ? " – " + minute(state.to) : ""}`, icon("cross")), choice("Time", [["", inTime() ? "Chosen time" : "Any time"], ...SPANS.map(([hours, text]) => /** @type {[string, string]} */ ([String(hours), text]))], "", (hours) => filter({ from: hours ? Date.now() - Number(hours) * 3600e3 : 0, to: 0 })), types.length > 1 && choice(task ? "Task" : "Workflow", [["", task ? "All tasks" : "All workflows"], ...types.map((/** @type {string} */ one) => /** @type {[string, string]} */ ([one, one]))], state.type, (value) => filter({ type: value })));
    drawList();
  }

  function drawStrip() {
    if (strip.querySelector(".dragged")) return;
    if (task || !state.summary) { fill(strip); return; }
    const width = 15 * 60e3, end = Math.ceil(Date.now() / width) * width, start = end - 96 * width, found = new Map(state.summary.steps.map((one) => [ms(one.at), one]));
    const data = Array.from({ length: 96 }, (_, i) => { const one = found.get(start + i * width), good = (one?.completed ?? 0) + (one?.cancelled ?? 0), bad = one?.failed ?? 0; return { good, bad, title: `${clock(start + i * width)}: ${good} ended, ${bad} failed` }; });
    const { ended } = state.summary;
    fill(strip, el("div.card", el("header", el("h2", "Ended in 24 h"), el("span.legend", el("span.completed", `${count(ended.completed)} completed`), el("span.failed", `${count(ended.failed)} failed`))), el("div.in.strip", bars(data, (from, to) => filter({ status: isEnd() ? state.status : "", from: start + from * width, to: start + to * width }), inTime() ? [(state.from - start) / width, ((state.to || end) - start) / width] : null), el("div.row.small.dimmer.num", { "aria-hidden": "true" }, [0, 24, 48, 72].map((i) => el("span.grow", (/\d\d:\d\d/.exec(clock(start + i * width)) ?? [""])[0])), el("span", "now")))));
  }

  function drawList() {
    const { rows } = state;
    if (!rows.length && !state.unreadable.length) { fill(list, el("div.card", noRows())); return; }
    let body = list.querySelector("tbody");
    if (!body) { body = el("tbody"); fill(list, el("div.card", el("div.newer-box"), el("div.tablebox", scrolls(task ? "Tasks" : "Runs"), el("table.t.cards", { "aria-label": task ? "Tasks" : "Runs" }, el("thead", el("tr", el("th", { scope: "col" }, el("span.sr", "Select")), ["Status", task ? "Task" : "Run", task ? "Type" : "Workflow", "At", "When", "Took", "Next"].map((t, i) => el("th" + (i > 4 ? ".right" : ""), { scope: "col" }, t)))), body)), el("div.list-foot"))); }
    keyed(body, rows, (row) => row.id, drawRow);
    fill(/** @type {Element} */ (list.querySelector(".newer-box")), state.newer > 0 && el("div.row.newer", el("button.btn.small.quiet.grow", { onclick: load }, `${plural(state.newer, "newer run")} · show`, kbd("."))), state.unreadable.slice(0, 5).map((text) => el("div.note.failed.flat", { role: "alert" }, icon("warn"), el("p.small", text))));
    const many = state.marked.size, first = (state.pages.length - 1) * PAGE;
    fill(/** @type {Element} */ (list.querySelector(".list-foot")), many ? el("div.selbar", { role: "region", "aria-label": "Selection" }, el("span", el("b.num", many), " selected"), /** @type {const} */ (["cancel", "pause", "resume", "restart"]).map((what) => el("button.btn.small.quiet", { disabled: Boolean(off), title: off, onclick: () => manyDialog(what, [...state.marked], task, acted) }, what[0].toUpperCase() + what.slice(1))), el("button.btn.small.prime", { onclick: () => { state.marked.clear(); draw(); } }, "Clear")) : el("div.foot-row", el("span.num", `${first + 1}–${first + rows.length}`), el("span", !live.isConnected ? "not live" : session.me?.store.notifies ? "live" : `as of ${clock(readAt)}`), el("span.grow"), first > 0 && el("button.btn.small", { onclick: () => turn(-1) }, "Newer"), state.next && el("button.btn.small", { onclick: () => turn(1) }, "Older")));
  }
  function noRows() {
    if (state.next) return blank("find", `None among ${plural(state.looked, "run")}`, el("p", "This status has no index: each unfinished run has to be read."), el("div.row", el("button.btn", { onclick: () => turn(1).catch(failed) }, "Look further"), clear()));
    if (state.status || state.type || inTime()) return blank("find", "No run matches the filter", clear());
    return blank("flag", task ? "No tasks yet" : "No runs yet", el("p", "Start one from your program, from here, or try the sample order that waits for an approval:"), command("wigwag dev --demo"));
  }
  const clear = () => el("button.btn.quiet", { onclick: () => filter({ status: "", type: "", from: 0, to: 0 }) }, "Clear the filter");

  /** @param {any} row @param {HTMLElement | undefined} old */
  function drawRow(row, old) {
    const took = (isFinal(row.status) ? ms(row.updated_at) : Date.now()) - ms(row.created_at), at = row.error && isFinal(row.status) ? el("span.pill.bare.failed", { title: row.error }, el("span.clip", row.error)) : row.current_steps.length ? el("span.dim", (row.status === "waiting_signal" ? "waits at " : "") + row.current_steps.slice(0, 3).join(", ") + (row.current_steps.length > 3 ? ` +${row.current_steps.length - 3}` : "")) : el("span.dimmer", "–");
    const box = el("input.check", { type: "checkbox", "aria-label": "Select " + row.id, checked: state.marked.has(row.id), onchange: () => { if (box.checked) state.marked.add(row.id); else state.marked.delete(row.id); drawList(); } });
    const href = `${base}/${encodeURIComponent(row.id)}`, isAt = state.rows[state.at]?.id === row.id;
    const made = el("tr" + (isAt ? ".at" : ""), { "aria-selected": String(state.marked.has(row.id)), class: old && old.dataset.status !== row.status ? "fresh" : undefined, onclick: (/** @type {MouseEvent} */ event) => { if (!(event.target instanceof Element) || !event.target.closest("a, input")) context.go(href); } }, el("td.slim.hide", box), el("td.slim", pill(row.status)), el("td.idcell", el("a.mono.strong", { href }, row.id)), el("td.clip.dim.hide", row.type), el("td.clip", at), el("td.slim.dim.num", time(row.updated_at, ago(ms(row.updated_at), Date.now()))), el("td.slim.right.num.dim.hide", span(took)), el("td.slim.right.num.dimmer.hide", row.next_at && ms(row.next_at) > Date.now() ? "in " + span(ms(row.next_at) - Date.now(), 1) : ""));
    made.dataset.status = row.status;
    return made;
  }

  const acted = () => { state.marked.clear(); drawList(); setTimeout(() => { if (context.isOpen()) load().catch(failed); }, 300); };
  const { soon: due, stop } = paced(load, () => (session.me?.store.notifies ? 1000 : listInterval(state.examined))), soon = () => due(200);
  context.onclose(stop);
  context.onclose(live.subscribe({ topic: task ? "tasks" : "runs", gap: soon, on: ({ type, payload }) => { if (type.endsWith(":started") && (scrollY > 200 || state.pages.length > 1)) { state.newer++; drawList(); } else if (type.endsWith(":started") || state.rows.some((row) => row.id === payload.id) || type.endsWith(":missed")) soon(); } }));
  const poll = setInterval(() => { if (!document.hidden && !(live.isConnected && session.me?.store.notifies) && scrollY < 200 && Date.now() - askedAt >= (session.me?.store.notifies ? LOCAL_LIST_MS : listInterval(state.examined)) - 1000) load().catch(() => {}); }, POLL_MS);
  context.onclose(() => clearInterval(poll));
  /** @param {number} by */
  const move = (by) => { state.at = Math.max(0, Math.min(state.rows.length - 1, state.at + by)); drawList(); list.querySelector("tr.at")?.scrollIntoView({ block: "nearest" }); /** @type {HTMLElement | null} */ (list.querySelector("tr.at a"))?.focus({ preventScroll: true }); };
  screenKeys({ j: () => move(1), k: () => move(-1), Enter: () => { const row = state.rows[state.at]; if (row) context.go(`${base}/${encodeURIComponent(row.id)}`); }, x: () => { const row = state.rows[state.at]; if (row) { if (!state.marked.delete(row.id)) state.marked.add(row.id); drawList(); } }, ".": load, Escape: () => { state.marked.clear(); drawList(); } });
  /** @param {unknown} error */
  function failed(error) { if (!abort.signal.aborted && context.isOpen()) fill(list, problemNote(error)); }
  await load().catch(failed);
}
