// System, Store, and Actors & topics.
import { get, query, session } from "../api.js";
import { announce, blank, card, copyButton, el, field, fill, icon, json, patiently, problemNote, scrolls, table, tile, time, typeHref } from "../dom.js";
import { plot } from "../graph.js";
import { live } from "../live.js";
import { bytes, clock, count, dollars, ms, parse, plural, span } from "../words.js";

/** On a bucket workers and counts cost requests to the store; the figures of this process do not. */
const BUCKET_COUNTS_MS = 600e3, LATE_MS = 45e3;
/** A worker: late, full, or of another version in amber. @param {{id: string, seen: string, about: any}} worker @param {number} now */
function workerRow({ id, seen, about }, now) {
  const serves = [...(about?.workflows ?? []), ...(about?.queues ?? []).map((/** @type {string} */ name) => "queue " + name)], { runs, runs_max: most, version } = about ?? {}, age = now - ms(seen);
  return el("tr", el("td.mono.strong", id), el("td.slim", version ? el("span." + (version === session.me?.version ? "dim" : "tag.soon"), version) : el("span.dim", about?.this_process ? "this process" : "")), el("td.dim.clip", { title: serves.join(", ") }, serves.slice(0, 2).join(", "), serves.length > 2 && `, +${serves.length - 2}`),
    el("td.slim.num", most ? el("span" + (runs >= most ? ".tag.soon" : ".dim"), `${runs} of ${most}`) : ""), el("td.slim", age > LATE_MS ? el("span.tag.soon", span(age, 1), " ago, late") : time(seen)));
}

/** @param {import("../app.js").Context} context */
export async function openSystem(context) {
  const { shell } = context, sub = el("span.sub.num"), body = el("div.body"), abort = new AbortController();
  shell.setTop("system", [el("h1", "System"), sub], "System");
  fill(shell.content, body);
  context.onclose(() => abort.abort());
  let counted = /** @type {[any, any, boolean] | null} */ (null), countedAt = 0;
  async function load() {
    const isDue = !counted || session.me?.store.notifies || Date.now() - countedAt >= BUCKET_COUNTS_MS;
    if (isDue) countedAt = Date.now();
    const [figures, [workers, known, ready]] = await patiently(body, 6, Promise.all([get("/v1/system/series", abort.signal), isDue || !counted ? Promise.all([get("/v1/workers", abort.signal), get("/v1/runs/summary", abort.signal), get("/v1/ready", abort.signal).then(() => true, () => false)]) : counted]));
    if (!context.isOpen()) return;
    counted = [workers, known, ready];
    const steps = figures.steps, pick = (/** @type {string} */ name, by = 1) => steps.map((/** @type {any} */ one) => (one[name] === undefined ? null : one[name] * by));
    fill(sub, `up ${span(figures.up * 1000)} · ${location.host} · this process`, !session.me?.store.notifies && ` · workers and counts as of ${clock(countedAt)}`);
    /** @param {string} title @param {[string, string][]} legend @param {[string, (number | null)[]][]} lines @param {string} label */
    const chart = (title, legend, lines, label) => el("section.card", el("header", el("h2", title), el("span.legend", legend.map(([cls, text]) => el("span." + cls, text)))), el("div.in", steps.length > 1 ? plot(lines, label) : el("p.dim", "The first figures come after 20 seconds.")));
    const types = known.types.filter((/** @type {any} */ one) => !one.type.startsWith("task:")), hub = figures.hub ?? {}, dropped = Object.values(hub.drops ?? {}).reduce((sum, n) => sum + Number(n), 0);
    fill(body, el("div.tiles", tile("Store", ready ? "Ready" : "Not ready", session.me?.store.url ?? (session.me?.store.notifies ? "on this machine" : "bucket"), ready ? "" : ".bad"), tile("Workers", count(workers.items.length), workers.by_lock ? "processes on this machine" : "seen in the store"), tile("Unfinished", count(known.unfinished), plural(types.length, "workflow")), tile("Sweeper repaired", count(figures.sweeper_repairs), "anything but 0 is a bug", figures.sweeper_repairs ? ".bad" : ""), tile("Store bill", figures.dollars_a_day === undefined ? "$0" : dollars(figures.dollars_a_day), figures.dollars_a_day === undefined ? "an embedded store costs nothing" : "a day at this rate, list prices"), tile("Hub", count(hub.sessions ?? 0), `${plural(hub.sessions ?? 0, "session").split(" ").slice(1).join(" ")} · ${plural(hub.topics ?? 0, "topic")} · ${dropped} dropped`)),
      el("div.plots", chart("Runs a second", [["running", "started"], ["completed", "completed"], ["failed", "failed"]], [["running", pick("runs_started")], ["completed", pick("runs_completed")], ["failed", pick("runs_failed")]], "Runs a second over the last hour"), chart("Steps and signals a second", [["running", "steps"], ["wait", "signals"]], [["running", pick("steps")], ["wait", pick("signals")]], "Steps and signals a second over the last hour"), chart("Store requests a minute", [["running", "GET"], ["completed", "PUT"], ["soon", "LIST"]], [["running", pick("store_gets", 60)], ["completed", pick("store_puts", 60)], ["soon", pick("store_lists", 60)]], "Requests to the store a minute over the last hour"), chart("HTTP, ms", [["running", "p50"], ["soon", "p99"]], [["soon", pick("http_p99_ms")], ["running", pick("http_p50_ms")]], "Milliseconds of a request over the last hour")),
      el("div.two", card("Workers", el("span.dimmer.small", workers.by_lock ? "alive by a lock on this machine" : "seen by their presence in the store"), table("Workers", ["Worker", "Version", "Serves", "Runs", "Seen"], workers.items.map((/** @type {any} */ one) => workerRow(one, countedAt)))),
        card("Workflows", el("a.link.small", { href: "/workflows" }, `All ${types.length}`), table("Workflows", ["Workflow", ">Unfinished", ">Ended 24 h", ">Failed"], types.slice(0, 12).map((/** @type {any} */ one) => { const whole = one.ended.completed + one.ended.failed + one.ended.cancelled, share = whole ? (one.ended.failed / whole) * 100 : 0; return el("tr", { onclick: () => context.go(typeHref(one.type)) }, el("td.strong.clip", el("a", { href: typeHref(one.type) }, one.type)), el("td.right.num", count(one.unfinished)), el("td.right.num.dim", count(whole)), el("td.right.num", share > 1 ? el("span.tag.failed", share.toFixed(1) + " %") : el("span.dim", share.toFixed(0) + " %"))); })))));
  }
  const timer = setInterval(() => { if (!document.hidden && !body.contains(document.activeElement)) load().catch(() => {}); }, 10e3);
  context.onclose(() => clearInterval(timer));
  await load();
}

const PREFIXES = ["workflow/", "task/", "waiting/", "live/", "done/", "due/", "definition/", "workers/", "hub/"];

/** @param {import("../app.js").Context} context */
export async function openStore(context) {
  const { shell } = context;
  shell.setTop("store", [el("h1", "Store"), el("span.sub.mono", session.me?.store.url ?? "")], "Store");
  let prefix = context.query.get("prefix") ?? "";
  const list = el("div"), object = el("div"), box = el("input.input.mono", { "aria-label": "First letters of keys", value: prefix, placeholder: "workflow/order-17/", autocomplete: "off", onchange: () => load(box.value) });
  fill(shell.content, el("div.body", el("div.row.wrap", el("div.grow", box), el("div.chips", { role: "group", "aria-label": "Prefixes" }, PREFIXES.map((one) => el("button.chip", { onclick: () => { box.value = one; load(one); } }, one)))), el("div.two", list, object)));
  /** @param {string} wanted @param {string} [after] */
  async function load(wanted, after) {
    prefix = wanted;
    context.replace("/store" + query({ prefix, key: "" }));
    try {
      const page = await patiently(list, 8, get("/v1/store" + query({ prefix, limit: 100, after })));
      if (!context.isOpen()) return;
      fill(list, page.items.length ? el("section.card", table("Keys", ["Key", "Written"], page.items.map((/** @type {any} */ one) => el("tr", { onclick: () => show(one.key) }, el("td.mono.clip", el("button.plain", {}, one.key)), el("td.slim.dim", time(one.modified))))), page.next && el("div.foot-row", el("span.grow"), el("button.btn.small", { onclick: () => load(prefix, page.next) }, "More"))) : blank("disk", "No keys", el("p", "No key begins with ", el("span.mono", prefix))));
    } catch (error) { fill(list, problemNote(error)); }
  }
  /** @param {string} key */
  async function show(key) {
    context.replace("/store" + query({ prefix, key }));
    try {
      const found = await get("/v1/store/object" + query({ key }));
      fill(object, el("section.card", el("header", icon("disk"), el("h2.grow.mono.clip", found.key), copyButton(found.key, "key")), el("div.in.stack.gap", el("p.small.dim", bytes(found.bytes), " · written ", time(found.modified)), found.json !== undefined ? json(found.json, "Object") : el("pre.json", scrolls("Object"), found.text ?? found.base64 ?? ""))));
    } catch (error) { fill(object, problemNote(error)); }
  }
  const key = context.query.get("key");
  await load(prefix);
  if (key) await show(key);
}

/** @param {import("../app.js").Context} context */
export async function openActors(context) {
  const { shell } = context, sub = el("span.sub.num"), tiles = el("div.tiles"), actors = el("div.stack.gap"), said = el("div", { "aria-live": "polite" });
  shell.setTop("actors", [el("h1", "Actors & topics"), sub], "Actors & topics");
  const to = el("input.input.mono", { id: "msg-to", placeholder: "@(worker/a)", autocomplete: "off" }), type = el("input.input", { id: "msg-type", placeholder: "job:run", autocomplete: "off" }), data = el("textarea.input.mono", { id: "msg-data", rows: 3, spellcheck: "false", value: "{}" });
  const send = async () => { try { const answer = await live.request("hub:send", { to: to.value.trim(), type: type.value.trim(), data: parse(data.value || "null") }); fill(said, el("div.note.completed", icon("check"), el("p", `Answer: ${answer.status}`))); announce("Message sent"); } catch (error) { fill(said, problemNote({ title: "Not sent", detail: /** @type {Error} */ (error).message })); } };
  fill(shell.content, el("div.body", tiles, el("div.two", actors, el("section.card", el("header", el("h2", "Send a message")), el("div.in.stack.gap", field("msg-to", "To", to), field("msg-type", "Type", type), field("msg-data", "Data as JSON", data), said, el("button.btn.prime", { onclick: send }, icon("send"), "Send"))))));
  async function load() {
    if (!live.isConnected) { if (!actors.childElementCount) fill(actors, blank("hub", "Not connected to the hub", el("p", "The page connects again by itself."))); return; }
    try {
      const [figures, found, heard] = await Promise.all([live.request("hub:metrics", {}), live.request("hub:list_actors", { limit: 200 }), live.request("hub:list_topics", { limit: 200 })]);
      if (!context.isOpen()) return;
      const drops = Object.entries(figures.drops ?? {}).filter(([, n]) => Number(n) > 0), dropped = drops.reduce((sum, [, n]) => sum + Number(n), 0);
      fill(sub, `${plural(figures.sessions ?? 0, "session")} · ${plural(figures.actors ?? 0, "actor")} · ${plural(figures.topics ?? 0, "topic")}`);
      fill(tiles, tile("Sessions", count(figures.sessions ?? 0), "this server"), tile("Topics", count(figures.topics ?? 0), `${count(figures.published ?? 0)} published`), tile("Delivered", count(figures.delivered ?? 0), `${count(figures.queued ?? 0)} queued`), tile("Signals", count(figures.signals ?? 0), "sent over the hub"), tile("Dropped", count(dropped), drops.map(([why, n]) => `${why} ${n}`).join(", ") || "none"));
      fill(actors, found.actors.length ? card("Actors", el("span.badge", found.actors.length), table("Actors", ["Address", "Capabilities", "Version", "Expires"], found.actors.map((/** @type {any} */ one) => el("tr", { onclick: () => { to.value = one.actorAddress; to.focus(); } }, el("td.mono.strong", one.actorAddress), el("td.dim.clip", one.capabilities.join(", ")), el("td.num.dim", one.version), el("td.dim", time(new Date(one.expiresAt).toISOString(), new Date(one.expiresAt).toLocaleTimeString())))))) : blank("hub", "No actors", el("p", "Actors that register an address on the hub appear here.")), card("Topics", el("span.badge", heard.topics.length + (heard.hasMore ? "+" : "")), table("Topics", ["Topic", ">Subscribers", ">Messages"], heard.topics.map((/** @type {any} */ one) => el("tr", el("td.mono.strong.clip", one.topic), el("td.right.num", count(one.subscribers)), el("td.right.num.dim", count(one.seq)))))));
    } catch (error) { fill(actors, problemNote({ title: "The hub refused", detail: /** @type {Error} */ (error).message })); }
  }
  const timer = setInterval(() => { if (!document.hidden) load(); }, 3000);
  const watch = () => { load(); };
  live.watchers.add(watch);
  context.onclose(() => { clearInterval(timer); live.watchers.delete(watch); });
  await load();
}
