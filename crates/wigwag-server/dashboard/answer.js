// Answers to one wait or to many: the form, the sender, sending once, and the outcome.
import { lacks, newKey, pause, post, rememberSender, returns, runPath, sender, session } from "./api.js";
import { announce, command, copy, copyButton, dialog, el, field, fill, icon, iconButton, kbd, problemNote, rich } from "./dom.js";
import { payloadForm } from "./form.js";
import { count, plural, quoted, stringify } from "./words.js";

/** @typedef {Omit<import("./types.d.ts").WaitingRun, "schema"> & {schema?: any}} WaitRow  a schema is written by others: it is read with care, not by type */

/** @param {WaitRow} wait */
export const isTask = (wait) => wait.run.startsWith("task/");

/**
 * @param {WaitRow} wait
 * @param {{label?: string, onsent?: (sent: any) => void, onover?: () => void, extra?: any}} [options]
 */
export function answerPanel(wait, options = {}) {
  const form = payloadForm(wait.schema, { by: sender(), onchange: () => { if (options.label) fill(verb, options.label.replace("Send", { true: "Approve", false: "Reject", null: "Send" }[/** @type {"null"} */ (String(form.decision))])); } }), off = lacks("signals:" + wait.name);
  const verb = el("span", options.label ?? `Send ${wait.name}`);
  // The same answer keeps its key, so that a repeat of a request whose outcome is unknown is the same signal.
  let key = newKey(), lastSent = "", isSending = false;
  const outcome = el("div", { "aria-live": "polite" });
  const only = el("input.check", { type: "checkbox", id: "only-" + key, checked: true });
  const isFree = session.me?.by_free ?? true;
  const by = el("input.input", { id: "by-" + key, autocomplete: "off", value: sender(), placeholder: "your name", disabled: !isFree });
  const hasBy = Boolean(wait.schema?.properties?.by);
  const toggle = el("div.seg", { role: "group", "aria-label": "Form or JSON" }, ["Form", "JSON"].map((text, i) => el("button", { "aria-pressed": String(form.asJson === Boolean(i)), disabled: !form.canDraw && !i, title: !form.canDraw && !i ? "This schema has no form" : undefined, onclick: () => { if (form.asJson !== Boolean(i)) switchForm(); } }, text)));
  const switchForm = () => { const json = form.toggle(); [...toggle.children].forEach((one, i) => one.setAttribute("aria-pressed", String(json === Boolean(i)))); };
  const button = el("button.btn.prime.grow", { onclick: () => send(), disabled: Boolean(off), title: off }, icon("send"), verb, kbd("⌘↵"));

  async function send() {
    if (isSending || off) return null;
    const { value, errors } = form.read();
    if (Object.keys(errors).length) { form.show(errors); announce("Not sent: " + Object.values(errors)[0]); form.focus(); return null; }
    isSending = true;
    button.disabled = true;
    const name = by.value.trim() || (hasBy && isFree ? String(value?.by ?? "") : "");
    if (isFree) rememberSender(name);
    returns.delete(ask);
    const body = { payload: value, only_if_waiting: only.checked, point: wait.point, ...(name && isFree ? { by: name } : {}), wait: "5s" }, text = stringify(body);
    if (lastSent && lastSent !== text) key = newKey();
    lastSent = text;
    try {
      const sent = await post(`${runPath(wait.id, isTask(wait))}/signals/${encodeURIComponent(wait.name)}`, body, key);
      key = newKey();
      lastSent = "";
      const next = sent.consumed?.next ?? [];
      const words = sent.consumed ? `Consumed by \`${sent.consumed.point}\`. ${next.length ? "The run now waits for " + next.map((/** @type {any} */ one) => "`" + one.name + "`").join(" and ") + "." : "The run is " + sent.consumed.status.replace("_signal", "") + "."}` : "Stored; no wait has consumed it yet.";
      fill(outcome, el("div.note.completed", { role: "status" }, icon("check"), el("p", rich(words))));
      announce(`Sent ${wait.name} to ${wait.id}`);
      options.onsent?.(sent);
      return sent;
    } catch (error) { failed(error); return null; } finally { isSending = false; button.disabled = Boolean(off); }
  }

  /** Asks whether to send the kept answer, once the server is reachable again. */
  const ask = () => {
    fill(outcome, el("div.note.soon", { role: "status" }, icon("check"), el("div.stack.grow", el("p", el("b", "Connected again")), el("p.small", "Your answer is kept and not confirmed. It is sent once, also if it had arrived before."), el("div.row", el("button.btn.small.prime", { onclick: () => send() }, icon("send"), "Send it now")))));
    announce(`Connected again. The answer to ${wait.id} is not sent yet.`);
  };

  /** @param {any} problem */
  function failed(problem) {
    if (problem.code === "no_connection") {
      returns.add(ask);
      fill(outcome, el("div.note.soon", { role: "status" }, icon("cloud"), el("div.stack", el("p", el("b", "No connection: your answer is kept")), el("p.small", "What you filled in stays here. The page asks whether to send it when the server answers again."))));
      announce("No connection. Your answer is kept.");
      return;
    }
    if (problem.errors?.length) { form.show(Object.fromEntries(problem.errors.map((/** @type {any} */ one) => [one.path, one.message]))); announce("Not sent: " + problem.errors[0].message); return; }
    if (problem.code === "timed_out") { fill(outcome, el("div.note.soon", { role: "status" }, icon("wait"), el("p", "Stored, and not consumed within 5 s."))); key = newKey(); return; }
    if (problem.code === "not_waiting" || problem.code === "not_running") {
      fill(outcome, el("div.note.soon", { role: "status" }, icon("wait"), el("div.stack", el("p", el("b", `${wait.id} does not wait any more`), ` (${problem.code})`), el("p.small", "Somebody answered before, or the run ended. Nothing was sent."))));
      announce(`${wait.id} does not wait any more. Nothing was sent.`);
      options.onover?.();
      return;
    }
    fill(outcome, problemNote(problem));
  }

  const box = el("div.answer", form.box,
    !hasBy && field(by.id, ["Sender", !isFree && el("span.dimmer", " · your token")], by),
    el("div.row.wrap", toggle, el("span.grow"), el("label.row.small.dim", { for: only.id }, only, "only if it still waits")), off && el("p.small.dim", icon("lock"), " ", off), outcome);
  return { box, button, send, switchForm, focus: () => form.focus(), get isDirty() { return form.isDirty; } };
}

/** Makes a link that sends this signal. @param {WaitRow} wait */
export function linkButton(wait) {
  const off = lacks("signals:" + wait.name) ?? (isTask(wait) ? "Links are for runs" : null);
  return iconButton("Make a resume link", "link", { class: "small quiet", disabled: Boolean(off), title: off ?? "Make a resume link", onclick: () => linkDialog(wait) });
}

/** @param {WaitRow} wait */
function linkDialog(wait) {
  const once = el("input.check", { type: "checkbox", id: "link-once", checked: true });
  const life = el("select.input", { id: "link-life" }, [["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"]].map(([value, text]) => el("option", { value, selected: value === "1d" }, text)));
  const made = el("div", { "aria-live": "polite" });
  const make = async () => {
    try {
      const link = await post("/v1/links", { run: wait.id, name: wait.name, once: once.checked, expires_in: life.value });
      const url = link.url ?? location.origin + link.path;
      fill(made, command(url));
      copy(url, "Link");
    } catch (error) { fill(made, problemNote(error)); }
  };
  dialog(`Link that sends ${wait.name} to ${wait.id}`, [el("p.small.dim", "Whoever has the link may send this one signal, without a token."), field("link-life", "Valid for", life), el("label.row", { for: "link-once" }, once, "can be used once"), made], [el("button.btn.prime", { onclick: make }, icon("link"), "Make and copy")]);
}

/** The same as a command, for those who script. @param {WaitRow} wait @param {any} value */
export const asCommand = (wait, value) => `wigwag signal ${quoted(wait.id)} ${quoted(wait.name)} ${quoted(stringify(value))} --server ${location.origin}`;

const BATCH = 100;

/** @param {WaitRow[]} waits @param {() => void} onend */
export function bulkDialog(waits, onend) {
  const names = [...new Set(waits.map((one) => one.name))], schemas = [...new Set(waits.map((one) => stringify(one.schema ?? null)))], me = sender();
  const form = payloadForm(schemas.length === 1 ? waits[0].schema : undefined, { by: me }), isFree = session.me?.by_free ?? true;
  const off = names.map((name) => lacks("signals:" + name)).find(Boolean) ?? null;
  const hasBy = schemas.length === 1 && Boolean(waits[0].schema?.properties?.by);
  const by = el("input.input", { id: "bulk-by", autocomplete: "off", value: me, disabled: !isFree });
  const signed = waits.filter((one) => one.quorum > 1 && me && one.have?.includes(me)).length, quorum = waits.filter((one) => one.quorum > 1).length;
  const facts = ["Each is sent only if it still waits, and once, however often you press.", names.length > 1 && `${names.length} signals: ${names.join(", ")}.`, schemas.length > 1 && `${schemas.length} schemas: the payload is checked against each.`, quorum > 0 && `${plural(quorum, "wait needs", "waits need")} several senders${signed ? `; ${signed} already signed by you` : ""}.`].filter(Boolean).join(" ");
  const keys = new Map(waits.map((one) => [one, newKey()]));
  /** @type {Map<WaitRow, {ok: boolean, text: string}>} */
  const results = new Map();
  let running = false, stopped = false;
  const progress = el("div", { "aria-live": "polite" }), said = el("div");
  const start = el("button.btn.prime", { disabled: Boolean(off), title: off, onclick: run }, icon("send"), `Send to ${count(waits.length)}`);
  const stop = el("button.btn.quiet", { onclick: () => { if (running) stopped = true; else opened.close(); } }, "Close");
  const opened = dialog(`Send ${names.length === 1 ? names[0] : plural(names.length, "signal")} to ${plural(waits.length, "run")}`, [form.box, !hasBy && field("bulk-by", "Sender", by), el("div.note.idle", icon("wait"), el("p.small", facts)), progress, said], [stop, start], { wide: true, onclose: () => { stopped = true; if (results.size) onend(); } });

  function draw() {
    const all = [...results.values()], good = all.filter((one) => one.ok).length, bad = all.length - good;
    fill(progress, el("div.row.small", el("span.grow.num", `${count(all.length)} of ${count(waits.length)}`), el("span.completed.pill.bare", icon("check"), `${count(good)} sent`), el("span.failed.pill.bare", icon("cross"), `${count(bad)} refused`)), el("div.meter.completed", { role: "progressbar", "aria-label": "Sent", "aria-valuenow": String(all.length), "aria-valuemin": "0", "aria-valuemax": String(waits.length) }, el("i", { vars: { "--w": (all.length / waits.length) * 100 + "%" } })),
      bad > 0 && !running && el("details.small", el("summary", `${bad} refused`), el("ul.results", [...results].filter(([, one]) => !one.ok).slice(0, 200).map(([wait, one]) => el("li", el("span.mono", wait.id), ": ", one.text)))), !running && all.length > 0 && el("div.row", el("span.grow"), copyButton([...results].map(([wait, one]) => `${wait.id}\t${wait.name}\t${one.text}`).join("\n"), "results")));
  }

  async function run() {
    const { value, errors } = form.read();
    if (Object.keys(errors).length) { form.show(errors); return; }
    const name = by.value.trim() || (hasBy ? String(value?.by ?? "") : "");
    if (isFree) rememberSender(name);
    [running, stopped] = [true, false];
    start.disabled = true;
    fill(stop, "Stop");
    fill(said);
    const todo = waits.filter((one) => !results.get(one)?.ok);
    for (let at = 0; at < todo.length && !stopped; at += BATCH) await batch(todo.slice(at, at + BATCH), value, name);
    running = false;
    const left = waits.filter((one) => !results.get(one)?.ok).length;
    start.disabled = left === 0;
    fill(start, icon("send"), left ? `Try ${count(left)} again` : "All sent");
    fill(stop, "Close");
    draw();
    announce(`${[...results.values()].filter((one) => one.ok).length} sent, ${left} not sent`);
  }

  /** Sends a hundred; a lost connection is tried again under the same keys, so that nothing is sent twice. @param {WaitRow[]} some @param {any} value @param {string} name */
  async function batch(some, value, name) {
    const signals = some.map((wait) => ({ run: wait.id, task: isTask(wait), name: wait.name, payload: value, key: keys.get(wait), only_if_waiting: true, point: wait.point, ...(name && isFree ? { by: name } : {}) }));
    for (let wait = 500; !stopped; wait = Math.min(5000, wait * 2)) {
      try {
        const { results: found } = await post("/v1/signals", { signals });
        found.forEach((/** @type {any} */ one, /** @type {number} */ i) => results.set(some[i], one.code ? { ok: false, text: one.detail } : { ok: true, text: one.state }));
        fill(said);
        draw();
        return;
      } catch (error) {
        const problem = /** @type {any} */ (error);
        fill(said, problemNote(problem));
        if (problem.code !== "no_connection" && problem.status < 500 && problem.status !== 429) { for (const one of some) results.set(one, { ok: false, text: problem.detail }); draw(); return; }
        await pause(wait);
      }
    }
  }
}
