// What can be asked of a run: start, cancel, pause, resume, restart, migrate. Each says what it will do before it is done.
import { get, lacks, newKey, post, runPath } from "./api.js";
import { announce, command, dialog, el, field, fill, icon, iconButton, problemNote, rich } from "./dom.js";
import { isFinal, parse, plural, quoted } from "./words.js";

/** @param {string[]} names */
const list = (names) => (names.length ? names.map((name) => "`" + name + "`").join(", ") : "");

/**
 * Buttons for what the status allows.
 * @param {any} run @param {any} explained @param {boolean} task @param {() => void} onasked  called when the server has recorded it
 */
export function actions(run, explained, task, onasked) {
  const off = lacks(task ? "tasks" : "runs:write"), status = run.status;
  /** @param {string} what @param {any} body */
  const ask = async (what, body = {}) => { await post(`${runPath(run.id, task)}/${what}`, body); announce(`${what} requested for ${run.id}`); onasked(); };
  /** @param {string} text @param {string} ic @param {() => void} doing @param {string} [cls] */
  const button = (text, ic, doing, cls = "") => el("button.btn" + cls, { disabled: Boolean(off), title: off, onclick: doing }, icon(ic), text);
  const failedAt = run.error?.point ?? explained?.points?.[0]?.point;
  return [
    status === "paused" && button("Resume", "play", () => resumeDialog(run, ask)),
    !isFinal(status) && !["paused", "compensating"].includes(status) && button("Pause", "pause", () => decide(`Pause ${run.id}`, [el("p", "No step starts until it is resumed. A step that runs now is not interrupted.")], "Pause", () => ask("pause"))),
    !isFinal(status) && status !== "compensating" && button("Cancel…", "cross", () => cancelDialog(run, explained, ask), ".danger"),
    (isFinal(status) || status === "paused") && button(failedAt && status === "failed" && run.steps?.[failedAt] ? `Restart from ${failedAt}…` : "Restart…", "undo", () => restartDialog(run, status === "failed" ? failedAt : null, task, onasked)),
    iconButton("More: migrate, copy as command", "more", { onclick: () => moreDialog(run, task, ask, off) }),
  ];
}

/** Asks before something is done; a failure is shown in the dialog. @param {string} title @param {any[]} body @param {any} word @param {() => Promise<any>} doing @param {any} [other]  another button; by default one that closes the dialog */
function decide(title, body, word, doing, other) {
  const said = el("div", { "aria-live": "polite" }), button = el("button.btn.prime", { onclick: async () => {
    button.disabled = true;
    try { await doing(); opened.close(); } catch (error) { fill(said, problemNote(error instanceof SyntaxError ? { title: "Invalid JSON", detail: error.message } : error)); } finally { button.disabled = false; }
  } }, word);
  const opened = dialog(title, [...body, said], [other ?? el("button.btn.quiet", { onclick: () => opened.close() }, "Close"), button]);
  other?.addEventListener("click", opened.close);
}
const optional = () => el("span.dimmer", " · optional");

/** @param {any} run @param {any} explained @param {(what: string, body?: any) => Promise<void>} ask */
function cancelDialog(run, explained, ask) {
  const reason = el("input.input", { id: "cancel-reason", autocomplete: "off", maxlength: 1000 }), undo = explained?.would_compensate ?? [];
  decide(`Cancel ${run.id}`, [el("p", rich(undo.length ? `These steps will be compensated, in this order: ${list(undo)}.` : "No step of this run has a compensation; nothing will be undone.")), field("cancel-reason", ["Reason", optional()], reason)], [icon("cross"), "Cancel the run"], () => ask("cancel", reason.value ? { reason: reason.value } : {}));
}

/** @param {any} run @param {(what: string, body?: any) => Promise<void>} ask */
function resumeDialog(run, ask) {
  const wrong = run.error?.incompatible_steps ?? [];
  if (wrong.length) decide(`Resume ${run.id}`, [el("p", rich(`The code does not fit the run. These steps differ: ${list(wrong)}. Migrate it first, or resume anyway.`))], "Resume anyway", () => ask("resume", { anyway: true }), el("button.btn", { onclick: () => migrateDialog(run, ask) }, "Migrate…"));
  else decide(`Resume ${run.id}`, [el("p", rich(run.error ? `It was paused because: ${run.error.message}` : "Steps start again."))], "Resume", () => ask("resume"));
}

/** @param {any} run @param {string | null | undefined} from @param {boolean} task @param {() => void} onasked */
export function restartDialog(run, from, task, onasked) {
  const pick = el("select.input", { id: "restart-from" }, el("option", { value: "" }, "The start"), Object.keys(run.steps ?? {}).map((name) => el("option", { value: name, selected: name === from }, name)));
  decide(`Restart ${run.id}`, [field("restart-from", "From", pick), el("p.small.dim", "Results of this step and of all steps that depend on it are dropped and made again. Steps before it keep their results. A step without recorded result may run again under the same idempotency key.")], [icon("undo"), "Restart"], async () => { await post(`${runPath(run.id, task)}/restart`, pick.value ? { from: pick.value } : {}); announce(`restart requested for ${run.id}`); onasked(); });
}

/** @param {any} run @param {(what: string, body?: any) => Promise<void>} ask */
function migrateDialog(run, ask) {
  const area = el("textarea.input.mono", { id: "migrate-body", rows: 5, spellcheck: "false", value: '{\n  "rename": {},\n  "skip": []\n}' });
  decide(`Migrate ${run.id}`, [el("p.small.dim", rich("Moves a paused run to the newest definition of its workflow. `rename`: old step to new step; `skip`: steps to skip.")), field("migrate-body", "Mapping as JSON", area)], "Migrate", () => ask("migrate", parse(area.value)));
}

/** @param {any} run @param {boolean} task @param {(what: string, body?: any) => Promise<void>} ask @param {string | null} off */
function moreDialog(run, task, ask, off) {
  const id = quoted(run.id), server = ` --server ${location.origin}`, url = `${location.origin}${runPath(run.id, task)}`;
  const opened = dialog(run.id, [el("h3.small.dim", "As commands"), command(`wigwag explain ${id}${server}`), command(`wigwag history ${id}${server}`), command(`curl ${url}`), run.status === "paused" && el("button.btn", { disabled: Boolean(off), title: off, onclick: () => { opened.close(); migrateDialog(run, ask); } }, "Migrate…")], [], { wide: true });
}

const MANY = { cancel: "Completed steps with a compensation are compensated.", pause: "No step starts until they are resumed.", resume: "Paused runs continue.", restart: "Ended or paused runs start again from their beginning." };
/**
 * Applies one action to many runs, once each: a retry leaves out the runs that accepted it.
 * @param {"cancel" | "pause" | "resume" | "restart"} what @param {string[]} ids @param {boolean} task @param {() => void} onend
 */
export function manyDialog(what, ids, task, onend) {
  const word = what[0].toUpperCase() + what.slice(1), said = el("div", { "aria-live": "polite" }), reason = el("input.input", { id: "many-reason", autocomplete: "off", maxlength: 1000 });
  let todo = [...ids], isRunning = false, isStopped = false;
  const button = el("button.btn.prime", { onclick: run }, word), close = el("button.btn.quiet", { onclick: () => { if (isRunning) isStopped = true; else opened.close(); } }, "Close");
  const opened = dialog(`${word} ${plural(ids.length, "run")}`, [what === "cancel" && field("many-reason", ["Reason", optional()], reason), el("p.small.dim", MANY[what]), said], [close, button], { onclose: () => { isStopped = true; onend(); } });
  async function run() {
    if (isRunning) return;
    [isRunning, isStopped, button.disabled] = [true, false, true];
    fill(close, "Stop");
    /** @type {string[]} */
    const left = [], refused = [];
    for (const [i, id] of todo.entries()) {
      if (isStopped) { left.push(...todo.slice(i)); break; }
      try { await post(`${runPath(id, task)}/${what}`, what === "cancel" && reason.value ? { reason: reason.value } : {}); } catch (error) {
        const problem = /** @type {any} */ (error);
        if (problem.code === "no_connection") { left.push(...todo.slice(i)); refused.unshift("No connection. Nothing more was asked."); break; }
        left.push(id);
        refused.push(`${id}: ${problem.detail}`);
      }
      show(i + 1 - left.length, refused);
    }
    const good = todo.length - left.length;
    show(good, refused);
    announce(`${what}: ${good} of ${todo.length}`);
    [todo, isRunning, button.disabled] = [left, false, false];
    if (!todo.length) { opened.close(); return; }
    fill(close, "Close");
    fill(button, `Try ${plural(todo.length, "run")} again`);
  }
  /** @param {number} good @param {string[]} refused */
  const show = (good, refused) => { fill(said, el("p.small", `${good} of ${plural(todo.length, "run")}`), el("ul.results.small", refused.slice(0, 50).map((one) => el("li", one)))); };
}

/** One key per dialog, so that a double click starts one run. @param {(id: string) => void} onstarted @param {string} [of] */
export async function startDialog(onstarted, of = "") {
  const key = newKey(), known = await get("/v1/definitions").catch(() => ({ items: [] }));
  const type = el("input.input", { id: "start-type", list: "start-types", value: of, autocomplete: "off" }), id = el("input.input.mono", { id: "start-id", autocomplete: "off", placeholder: "made by the server" });
  const input = el("textarea.input.mono", { id: "start-input", rows: 5, spellcheck: "false", value: "{}" }), delay = el("input.input", { id: "start-delay", autocomplete: "off", placeholder: "now; or 90s, 2h, 7d" });
  decide("Start a run", [field("start-type", "Workflow", type), el("datalist", { id: "start-types" }, known.items.map((/** @type {any} */ one) => el("option", { value: one.type }))), field("start-id", ["Id", optional()], id), field("start-input", "Input as JSON", input), field("start-delay", ["Delay", optional()], delay)], [icon("play"), "Start"], async () => {
    const started = await post("/v1/runs", { type: type.value.trim(), input: parse(input.value || "null"), id: id.value.trim() || undefined, delay: delay.value.trim() || undefined }, key);
    announce(`Started ${started.id}`);
    onstarted(started.id);
  });
}
