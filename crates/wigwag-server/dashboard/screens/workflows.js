// Workflows: each with its newest definition, how many runs are unfinished, and how they ended.
import { startDialog } from "../actions.js";
import { get, lacks, query } from "../api.js";
import { blank, card, command, el, fill, icon, json, patiently, runHref, scrolls, time, typeHref } from "../dom.js";
import { graph } from "../graph.js";
import { count, plural } from "../words.js";

/** @param {import("../app.js").Context} context */
export async function open(context) {
  const { shell } = context, sub = el("span.sub.num"), body = el("div.body");
  shell.setTop("workflows", [el("h1", "Workflows"), sub], "Workflows");
  fill(shell.content, body);
  const [known, summary] = await patiently(body, 6, Promise.all([get("/v1/definitions"), get("/v1/runs/summary")]));
  if (!context.isOpen()) return;
  const counts = new Map(summary.types.map((/** @type {any} */ one) => [one.type, one]));
  fill(sub, plural(known.items.length, "workflow"));
  if (!known.items.length) { fill(body, blank("shapes", "No workflows yet", el("p", "Workers register their workflows when they start."), command("wigwag dev --demo"))); return; }
  fill(body, el("div.card", el("div.tablebox", scrolls("Workflows"), el("table.t", el("thead", el("tr", ["Workflow", "Kind", "Definition", "Unfinished", "Completed 24 h", "Failed 24 h"].map((t, i) => el("th" + ((i > 2 ? ".right" : "") + ([1, 2, 4].includes(i) ? ".hide" : "")), { scope: "col" }, t)))), el("tbody", known.items.map((/** @type {any} */ one) => {
    const own = counts.get(one.type), ended = own?.ended ?? { completed: 0, failed: 0, cancelled: 0 }, whole = ended.completed + ended.failed + ended.cancelled, share = whole ? (ended.failed / whole) * 100 : 0, href = typeHref(one.type);
    return el("tr", { onclick: () => context.go(href) }, el("td", el("a.strong", { href }, one.type)), el("td.dim.hide", one.style === "function" ? `function v${one.version ?? 1}` : one.style, one.steps > 0 && ` · ${plural(one.steps, "step")}`), el("td.mono.dim.hide", one.hash.slice(7, 15), one.definitions > 1 && ` +${one.definitions - 1}`), el("td.right.num", count(own?.unfinished ?? 0)), el("td.right.num.dim.hide", count(ended.completed)), el("td.right.num", share > 1 ? el("span.tag.failed", `${count(ended.failed)} · ${share.toFixed(1)} %`) : count(ended.failed)));
  }))))));
}

/** @param {import("../app.js").Context} context */
export async function openOne(context) {
  const { shell } = context, of = context.params[0], off = lacks("runs:write"), body = el("div.body");
  shell.setTop("workflows", [el("a.crumb", { href: "/workflows" }, "Workflows"), el("span.crumb", { "aria-hidden": "true" }, icon("right")), el("h1.clip", of)], of, [el("button.btn.hide", { disabled: Boolean(off), title: off, onclick: () => startDialog((id) => context.go(runHref(id)), of) }, icon("play"), "Start a run")]);
  fill(shell.content, body);
  const [known, page] = await patiently(body, 4, Promise.all([get("/v1/definitions/" + encodeURIComponent(of)), get("/v1/runs" + query({ type: of, limit: 10 })).catch(() => ({ items: [] }))]));
  if (!context.isOpen()) return;
  const newest = known.items.at(-1);
  fill(body, newest.steps?.length ? card("Graph of the newest definition", el("span.dimmer.small.mono", newest.hash.slice(7, 15)), el("div.graphbox", scrolls("Graph"), graph(newest.steps, {}, null))) : el("section.card.in", el("p", "A function, version ", el("b", newest.version ?? 1), ": its steps are known when it runs.")),
    card("Runs", el("a.link.small", { href: "/runs" + query({ type: of }) }, "All runs of this workflow"), el("div.log", page.items.map((/** @type {any} */ row) => el("a.e." + row.status, { href: runHref(row.id) }, el("span.seq"), icon({ waiting_signal: "wait", completed: "check", failed: "cross" }[/** @type {"failed"} */ (row.status)] ?? "play"), el("span.clip", el("b.mono", row.id), el("span.dim", "  " + row.status.replace("_signal", ""))), el("span.when", time(row.updated_at)))), !page.items.length && el("p.dim.pad-in", "No runs."))),
    card("Definitions", el("span.badge", known.items.length), el("div.in.stack.gap", [...known.items].reverse().map((/** @type {any} */ one) => el("details", el("summary.mono", one.hash), json(one, "Definition"))))));
}
