// One run or task: why it is where it is, its graph, timeline, log, inbox and state, and its actions.
import { actions, restartDialog } from "../actions.js";
import { answerPanel, linkButton } from "../answer.js";
import { allSteps, get, may, paced, query, runPath } from "../api.js";
import { blank, card, copy, copyButton, el, fill, icon, iconButton, json, left, patiently, pill, problemNote, rich, runHref, scrolls, segments, time, typeHref } from "../dom.js";
import { gantt, graph, minimap } from "../graph.js";
import { live } from "../live.js";
import { attemptsOf, LogView } from "../log.js";
import { screenKeys } from "../shell.js";
import { clock, dollars, isFinal, ms, plural, span, stringify } from "../words.js";

/** @typedef {Omit<import("../types.d.ts").Run, "error" | "undo"> & {error?: any, undo?: Record<string, import("../types.d.ts").Undo>, parent?: {run: string}, version?: number, definition_hash?: string}} Run */

/** Number of steps on the first load, number up to which steps are reloaded at each change, and the interval for longer lists. */
const STEPS_FIRST = 5000, STEPS_OFTEN_MAX = 500, STEPS_MS = 5000;
/** Number of entries from which attempts are collected, and number of steps from which a graph has a minimap. */
const KNOWN_MAX = 1000, MAP_MIN = 60;

/** @param {import("../app.js").Context} context */
export async function open(context) {
  const { shell, task } = context, id = context.params[0], path = runPath(id, task);
  const crumb = task ? ["Tasks", "/tasks", "tasks"] : ["Runs", "/runs", "runs"];
  shell.setTop(crumb[2], [el("a.crumb", { href: crumb[1] }, crumb[0]), el("span.crumb", { "aria-hidden": "true" }, icon("right")), el("span.strong.mono.clip", id)], id);
  const page = el("div"), abort = new AbortController();
  fill(shell.content, page);
  context.onclose(() => abort.abort());
  const state = { run: /** @type {Run} */ (/** @type {any} */ (null)), explained: /** @type {import("../types.d.ts").Explanation} */ (/** @type {any} */ (null)), definition: /** @type {any} */ (null), inbox: /** @type {import("../types.d.ts").Signal[]} */ ([]), waits: /** @type {import("../types.d.ts").OpenWait[]} */ ([]), steps: /** @type {Record<string, import("../types.d.ts").Step & {children?: any}>} */ ({}), picked: context.query.get("step"), tab: context.query.get("tab") ?? "overview", squeezed: true, hasMoreSteps: false };
  const log = new LogView(async (from, limit) => (await get(`${path}/history${query({ from, limit })}`, abort.signal)).items);
  /** @type {Map<string, ReturnType<typeof answerPanel>>} */
  const panels = new Map();
  let end = () => {}, reading = 0, isFollowed = false;

  /** The newest entries, by number. @type {Map<number, import("../log.js").Entry>} */
  const known = new Map();
  let attempts = attemptsOf([]);
  /** @param {import("../log.js").Entry[]} entries */
  function know(entries) {
    for (const entry of entries) known.set(entry.seq, entry);
    const seqs = [...known.keys()].sort((a, b) => a - b);
    for (const seq of seqs.splice(0, Math.max(0, seqs.length - KNOWN_MAX))) known.delete(seq);
    attempts = attemptsOf(seqs.map((seq) => /** @type {import("../log.js").Entry} */ (known.get(seq))));
  }
  let stepsAt = 0, stepsRead = { items: /** @type {any[]} */ ([]), more: false }, stepsMax = STEPS_FIRST;
  /** A run of many steps has several pages of them: those are read again at most every few seconds. @param {boolean} whole */
  async function stepsOf(whole) {
    if (!whole && stepsRead.items.length > STEPS_OFTEN_MAX && !isFinal(state.run?.status ?? "") && Date.now() - stepsAt < STEPS_MS) { due(STEPS_MS); return stepsRead; }
    stepsRead = await allSteps(path, abort.signal, stepsMax);
    stepsAt = Date.now();
    return stepsRead;
  }
  async function load(/** @type {boolean} */ whole) {
    const mine = ++reading;
    const run = await patiently(page, 4, get(path, abort.signal));
    const from = Math.max(1, run.seq - 199);
    const [explained, steps, waits, inbox, history, definition] = await Promise.all([get(path + "/explain", abort.signal), stepsOf(whole), isFinal(run.status) ? { items: [] } : get(path + "/waiting", abort.signal), get(`${path}/signals${query({ limit: 100 })}`, abort.signal), whole ? get(`${path}/history${query({ from, limit: 200 })}`, abort.signal) : null, state.definition?.hash === run.definition_hash || task || !run.definition_hash || run.version ? state.definition : get(`/v1/definitions/${encodeURIComponent(run.type)}/${encodeURIComponent(run.definition_hash)}`, abort.signal).catch(() => null)]);
    if (mine !== reading || !context.isOpen()) return;
    Object.assign(state, { run, explained, waits: waits.items, inbox: inbox.items, definition, steps: Object.fromEntries(steps.items.map((/** @type {any} */ one) => [one.path, one])), hasMoreSteps: steps.more });
    log.began = ms(run.created_at);
    if (history) { log.set(history.items, run.seq); know(history.items); }
    draw();
    follow();
  }
  const { soon: due, stop } = paced(() => load(false).catch(failed), 500), soon = () => due(60);
  context.onclose(() => { end(); stop(); });
  /** An action takes effect a little later: the topic of a run that ended is heard again then. */
  const acted = () => { isFollowed = false; end(); setTimeout(() => load(true).catch(failed), 150); setTimeout(() => load(true).catch(failed), 1200); };

  function follow() {
    if (isFollowed || task || isFinal(state.run.status)) return;
    isFollowed = true;
    end();
    const last = log.last;
    end = live.subscribe({ topic: "run/" + id, epoch: Math.floor(ms(state.run.created_at)), seq: last, gap: () => load(true).catch(failed), ended: () => { isFollowed = false; soon(); }, on: ({ payload }) => { log.append([payload]); know([payload]); soon(); } });
  }
  const poll = setInterval(() => { if (!document.hidden && state.run && (!live.isConnected || task) && !isFinal(state.run.status)) load(true).catch(failed); }, 5000);
  const seen = () => { if (!document.hidden && state.run) load(true).catch(failed); };
  document.addEventListener("visibilitychange", seen);
  context.onclose(() => { clearInterval(poll); document.removeEventListener("visibilitychange", seen); });

  /** @param {any} problem */
  async function failed(problem) {
    if (abort.signal.aborted || !context.isOpen()) return;
    if (problem.status === 410) { fill(page, el("div.body", el("h1.sr", "Gone"), blank("box", `${id} is gone`, el("p", rich(problem.detail)), el("p.small.dim", problem.hint)))); return; }
    if (problem.status !== 404 && problem.code !== "invalid_path") { if (!state.run) fill(page, el("div.body", el("h1.sr", id), problemNote(problem))); return; }
    const near = /^[A-Za-z0-9._:-]+$/.test(id) ? await get("/v1/ids" + query({ prefix: id.slice(0, Math.max(1, Math.ceil(id.length / 2))), limit: 6 })).catch(() => ({ items: [] })) : { items: [] };
    fill(page, el("div.body", el("h1.sr", "Not found"), blank("find", `There is no ${task ? "task" : "run"} of this id`, el("p.mono", id), near.items.length > 0 && el("p", "Close ids: ", near.items.map((/** @type {any} */ one, /** @type {number} */ i) => [i > 0 && ", ", el("a.link.mono", { href: `/${one.task ? "tasks" : "runs"}/${encodeURIComponent(one.id)}` }, one.id)])), el("a.btn", { href: crumb[1] }, crumb[0]))));
  }

  /** Status of a step for the eye: a wait is not running, a compensated step is not completed. @param {string} name @param {any} step */
  function look(name, step) {
    const undo = state.run.undo?.[name];
    if (undo) return { completed: "undone", failed: "failed", running: "compensating" }[/** @type {"completed"} */ (undo.status)] ?? "undone";
    if (step.status !== "running") return step.status;
    return { wait: "wait", sleep: "sleeping", child: "child" }[/** @type {"wait"} */ (step.kind)] ?? "running";
  }

  function draw() {
    const { run, explained } = state, focused = /** @type {HTMLElement | null} */ (document.activeElement)?.id, scroll = scrollY, shown = page.querySelector(".graphbox"), graphAt = shown && /** @type {[number, number]} */ ([shown.scrollLeft, shown.scrollTop]);
    const dirty = [...panels.values()].some((panel) => panel.isDirty && panel.box.contains(document.activeElement));
    const took = (isFinal(run.status) ? ms(run.updated_at) : Date.now()) - ms(run.created_at), need = run.requests ?? {};
    const requests = /** @type {["puts" | "gets" | "lists", string][]} */ ([["puts", "PUT"], ["gets", "GET"], ["lists", "LIST"]]).filter(([key]) => need[key]).map(([key, word]) => `${need[key]} ${word}`).join(" ");
    const facts = /** @type {[string, any][]} */ ([[task ? "Task" : "Workflow", task ? run.type : el("a.link", { href: typeHref(run.type) }, run.type)], ["Started", time(run.created_at, clock(ms(run.created_at)))], [isFinal(run.status) ? "Took" : "Age", span(took)], ["Log", plural(run.seq, "entry", "entries")], typeof run.dollars === "number" && ["Cost on S3", el("span", { title: requests + " at S3 list prices" }, dollars(run.dollars), el("span.dimmer", " " + requests))], run.definition_hash && ["Definition", el("span.mono", run.definition_hash.slice(7, 15))], run.restarts > 0 && ["Restarts", run.restarts], run.parent && ["Parent", el("a.link.mono", { href: runHref(run.parent.run) }, run.parent.run.split("/")[1])]].filter(Boolean));
    const head = el("div.runhead", el("div.row.wrap", pill(run.status), el("h1.mono.id", run.id), copyButton(run.id, "id"), el("span.grow"), el("div.row.wrap", actions({ ...run, steps: state.steps }, explained, task, acted))), el("dl.facts", facts.map(([k, v]) => el("div", el("dt", k), el("dd", v)))), note());
    const tabs = el("div.tabs", { role: "tablist", "aria-label": "Parts of the run" }, [["overview", "Overview"], ["log", "Log", run.seq], ["inbox", "Inbox", state.inbox.length], ["state", "State"], may("admin") && ["raw", "Raw"]].filter(Boolean).map((one) => { const [key, text, n] = /** @type {[string, string, number | undefined]} */ (one); return el("a", { role: "tab", id: "tab-" + key, href: `/${task ? "tasks" : "runs"}/${encodeURIComponent(id)}${query({ tab: key === "overview" ? "" : key })}`, "aria-selected": String(state.tab === key), onclick: (/** @type {Event} */ event) => { event.preventDefault(); state.tab = key; replaceUrl(); draw(); } }, text, n !== undefined && el("span.badge", n)); }));
    if (dirty && page.childElementCount) { page.children[0].replaceChildren(head); return; }
    fill(page, el("div", head), el("div.pad"), tabs, body());
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    scrollTo(0, scroll);
    if (graphAt) page.querySelector(".graphbox")?.scrollTo(...graphAt);
  }
  const replaceUrl = () => context.replace(`/${task ? "tasks" : "runs"}/${encodeURIComponent(id)}${query({ tab: state.tab === "overview" ? "" : state.tab, step: state.picked })}`);
  /** @param {string} ref */
  const runHref = (ref) => (ref.startsWith("task/") ? "/tasks/" : "/runs/") + encodeURIComponent(ref.slice(ref.indexOf("/") + 1));

  function note() {
    const { run, explained } = state, until = explained.points.length === 1 && explained.points[0].until;
    if (run.status === "failed") return el("div.note.failed", { role: "alert" }, icon("cross"), el("div.stack", el("p", rich(explained.why)), explained.compensated.length > 0 && el("p.small", `Compensated, in this order: `, explained.compensated.map((/** @type {any} */ one, /** @type {number} */ i) => [i > 0 && ", ", el("b", one.point), one.status === "failed" && ` (failed: ${one.error?.message ?? ""})`]))));
    const cls = { waiting_signal: "wait", completed: "completed", paused: "soon", compensating: "compensating", cancelled: "idle" }[/** @type {"paused"} */ (run.status)] ?? "running", ic = { wait: "wait", completed: "check", soon: "pause", compensating: "undo", idle: "dash" }[/** @type {"wait"} */ (cls)] ?? "play";
    return el("div.note." + cls, { role: "status" }, icon(ic), el("div.stack", el("p", rich(explained.why), until && ` (${left(until)})`), run.warnings?.map((/** @type {string} */ one) => el("p.small", rich(one)))));
  }

  function body() {
    const { tab, run } = state;
    if (tab === "log") return el("div.runbody.one", card("Log", log.tools, log.box));
    if (tab === "inbox") return el("div.runbody.one", inboxCard());
    if (tab === "state") return el("div.runbody.one", [["Data", run.data], ["Input", run.input], ["Output", run.result], ["Error", run.error], ["Snapshot", run]].filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => card(name, null, el("div.in", json(value, String(name))))));
    if (tab === "raw") return el("div.runbody.one", el("section.card.in", el("p", "Keys of this run in the store: ", el("a.link.mono", { href: "/store" + query({ prefix: `${task ? "task" : "workflow"}/${id}/` }) }, `${task ? "task" : "workflow"}/${id}/`))));
    const began = ms(run.created_at), finish = (isFinal(run.status) ? ms(run.updated_at) : Date.now()) - began;
    const names = Object.keys(state.steps).sort((a, b) => ms(state.steps[a].started_at ?? state.steps[a].ended_at) - ms(state.steps[b].started_at ?? state.steps[b].ended_at));
    const lanes = names.map((name) => { const step = state.steps[name]; return { name, status: look(name, step), from: Math.max(0, ms(step.started_at ?? step.ended_at) - began), to: step.ended_at ? ms(step.ended_at) - began : isFinal(run.status) ? finish : null, ticks: (attempts.steps.get(name) ?? []).slice(0, -1).flatMap((one) => (one.to === null ? [] : [one.to - began])), onpick: () => pick(name) }; });
    for (const [name, some] of attempts.undo) lanes.push({ name: `compensate ${name}`, status: some.at(-1)?.ok ? "undone" : some.at(-1)?.to === null ? "compensating" : "failed", from: some[0].from - began, to: some.at(-1)?.to ? Number(some.at(-1)?.to) - began : null, ticks: some.slice(0, -1).flatMap((one) => (one.to === null ? [] : [one.to - began])), onpick: () => pick(name) });
    const points = Object.fromEntries(names.map((name) => { const step = state.steps[name], status = look(name, step); return [name, { status, ms: step.ended_at && step.started_at ? ms(step.ended_at) - ms(step.started_at) : undefined, note: status === "undone" ? "compensated" : (step.attempt ?? 1) > 1 ? `${step.attempt} attempts` : status === "wait" && step.until ? left(step.until) : undefined }]; }));
    const wide = (state.definition?.steps?.length ?? 0) > 8, shown = state.definition?.steps?.length ? graphCard(points, wide) : outline(names);
    const line = card("Timeline", segments("Scale", [["squeezed", "Squeezed"], ["true", "True"]], state.squeezed ? "squeezed" : "true", (value) => { state.squeezed = value === "squeezed"; draw(); }), names.length ? gantt(lanes, finish, state.squeezed) : el("p.dim.pad-in", "No step has started."));
    return el("div.runbody", wide && shown, el("div.col", !wide && shown, line, card("Log", log.tools, log.box)), el("div.rail", side()));
  }

  /** @param {any} points @param {boolean} wide */
  function graphCard(points, wide) {
    const has = (/** @type {string} */ status) => Object.values(points).some((/** @type {any} */ one) => one.status === status);
    return el("section.card" + (wide ? ".wide" : ""), el("header", el("h2.grow", "Graph"), el("span.legend.hide", el("span.completed", "done"), has("wait") && el("span.wait", "waits"), has("failed") && el("span.failed", "failed"), has("undone") && el("span.undone", "compensated"), el("span.idle", "not reached"))), pictures(points));
  }
  /** The graph; a large one has a minimap. @param {any} points */
  function pictures(points) {
    const drawn = graph(state.definition.steps, points, state.picked, pick), box = el("div.graphbox", scrolls("Graph"), drawn);
    if (state.definition.steps.length < MAP_MIN) return box;
    for (const [name, value] of [["max-height", "70vh"], ["overflow", "auto"]]) box.style.setProperty(name, value);
    return [el("div.in", minimap(drawn, box)), box];
  }
  /** Functions have no graph: their steps by path, items of one map or fan-out in one line. @param {string[]} names */
  function outline(names) {
    /** @type {Map<string, string[]>} */
    const grouped = new Map();
    for (const name of names) { const base = name.replace(/\/\d+$/, "/…"); grouped.set(base, [...(grouped.get(base) ?? []), name]); }
    return card("Steps", el("span.dimmer.small", plural(names.length, "step")), el("div.log", [...grouped].map(([base, some]) => {
      const settled = some.filter((name) => state.steps[name].ended_at).length, worst = some.find((name) => state.steps[name].status === "failed") ?? some.find((name) => !state.steps[name].ended_at) ?? some[0], step = state.steps[worst], status = look(worst, step);
      return el("button.e." + (status === "child" ? "wait" : status), { onclick: () => pick(worst), "aria-pressed": String(state.picked === worst) }, el("span.seq", step.seq), icon({ wait: "wait", completed: "check", failed: "cross", sleeping: "moon", child: "split", retrying: "undo", undone: "undo" }[/** @type {"wait"} */ (status)] ?? "play"), el("span.clip", el("b.strong", base), some.length > 1 ? el("span.dim", `  ${settled} of ${some.length}`) : el("span.dim", "  " + (step.error?.message ?? step.kind ?? ""))), el("span.when", step.ended_at && step.started_at ? span(ms(step.ended_at) - ms(step.started_at)) : step.until ? left(step.until) : ""));
    }), !names.length && el("p.dim.pad-in", "No step has started."), state.hasMoreSteps && el("div.row.newer.below", el("button.btn.small.quiet.grow", { onclick: () => { stepsMax += STEPS_FIRST; load(true).catch(failed); } }, `The first ${plural(names.length, "step")} are shown · read more`))));
  }
  /** @param {string} name */
  function pick(name) { state.picked = state.picked === name ? null : name; replaceUrl(); draw(); }

  /** On a narrow screen behind the graph and the log. @param {HTMLElement} one */
  const late = (one) => { one.classList.add("late"); return one; };
  function side() {
    const cards = [];
    const picked = state.picked && (state.steps[state.picked] ?? state.definition?.steps?.find((/** @type {any} */ one) => one.name === state.picked));
    if (picked && state.picked) cards.push(stepCard(state.picked, state.steps[state.picked]));
    for (const wait of state.waits) {
      const row = { ...wait, id, run: `${task ? "task" : "workflow"}/${id}`, type: state.run.type, status: state.run.status }, key = `${wait.point}~${wait.since}`;
      let panel = panels.get(key);
      if (!panel) { panel = answerPanel(row, { onsent: () => { panels.delete(key); soon(); }, onover: soon }); panels.set(key, panel); }
      cards.push(el("section.card", el("header", icon("wait"), el("h2.grow", wait.name), wait.deadline && pill("wait", left(wait.deadline)), linkButton(row)), el("div.in.stack.gap", wait.about && el("p", el("b", wait.about)), panel.box, el("div.row", panel.button)), el("div.foot-row", wait.mode === "latest" ? "consumes the newest signal" : "consumes the oldest signal in the inbox", ` · ${plural(wait.quorum, "sender")}`, Boolean(wait.schema) && " · checked by schema")));
    }
    if (state.inbox.length) cards.push(late(inboxCard()));
    cards.push(late(card("Input", copyButton(stringify(state.run.input, 2), "input"), el("div.in", json(state.run.input, "Input")))));
    if (state.run.result !== undefined && state.run.result !== null) cards.push(late(card("Output", copyButton(stringify(state.run.result, 2), "output"), el("div.in", json(state.run.result, "Output")))));
    return cards;
  }

  /** @param {string} name @param {any} step */
  function stepCard(name, step) {
    const undo = state.run.undo?.[name], kids = step?.children, child = kids?.one ?? (typeof kids === "string" ? kids : null);
    /** @type {[string, any][]} */
    const rows = step ? [["Status", pill(look(name, step))], ["Attempts", step.attempt ?? 1], ["Started", time(step.started_at, clock(ms(step.started_at)))], ["Ended", step.ended_at ? time(step.ended_at, clock(ms(step.ended_at))) : "–"], ["Idempotency key", el("span.mono", `${id}:${name}`)], ...(step.until ? /** @type {[string, any][]} */ ([["Until", time(step.until, left(step.until))]]) : []), ...(undo ? /** @type {[string, any][]} */ ([["Compensation", undo.status]]) : []), ...(child ? /** @type {[string, any][]} */ ([["Child", el("a.link.mono", { href: runHref(child) }, child)]]) : [])] : [["Status", pill("todo")]];
    const tries = attempts.steps.get(name) ?? [], worker = tries.at(-1)?.worker;
    if (worker) rows.push(["Worker", el("span.mono", worker)]);
    return el("section.card", el("header", el("h2.grow.clip", name), iconButton("Close", "cross", { class: "small quiet", onclick: () => pick(name) })), el("div.in.stack.gap", el("dl.kv", rows.flatMap(([k, v]) => [el("dt", k), el("dd", v)])), tries.length > 1 && [el("h3", "Attempts"), el("ul.results.small", tries.map((one) => el("li", `${one.n} · ${clock(one.from)} · ${one.to === null ? "running" : span(one.to - one.from)}`, one.message && `: ${one.message}`)))], step?.result !== undefined && step.result !== null && [el("h3", "Result"), json(step.result, "Result")], step?.error && [el("h3", "Error"), json(step.error, "Error")], undo?.error && [el("h3", "Compensation error"), json(undo.error, "Error")], step && (isFinal(state.run.status) || state.run.status === "paused") && may(task ? "tasks" : "runs:write") && el("button.btn", { onclick: () => restartDialog({ ...state.run, steps: state.steps }, name, task, acted) }, icon("undo"), "Restart from here…")));
  }

  function inboxCard() {
    return card("Inbox", el("span.badge", state.inbox.length), el("div.in.stack.gap", state.inbox.length ? state.inbox.slice(-20).reverse().map((signal) => el("div.stack", el("div.row", el("span.strong", signal.name), el("span.tag" + (signal.misfit ? ".failed" : signal.fate === "consumed" ? ".completed" : ""), signal.misfit ? "does not fit" : signal.fate.replace("_", " ")), el("span.grow"), el("span.dimmer.small", time(signal.created_at))), el("div.small.dim", signal.source.by ? ["by ", el("b", signal.source.by)] : "no sender", signal.source.via && ` via ${signal.source.via}`, signal.point && ` · consumed by ${signal.point}`, signal.at && ` after ${span(Math.max(0, ms(signal.at) - ms(signal.created_at)))}`), signal.misfit && el("div.small", rich(signal.misfit)), json(signal.payload, "Payload"))) : el("p.dim", "No signal was sent to this run.")));
  }

  screenKeys({ Escape: () => (state.picked ? pick(state.picked) : context.go(crumb[1])), c: () => copy(id, "Id"), send: () => panels.values().next().value?.send(), f: () => panels.values().next().value?.switchForm() });
  await load(true).catch(failed);
}
