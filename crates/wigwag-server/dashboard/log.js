// The log of a run: a window over its entries, which follows the end, pages back and forth, and goes to any entry.
import { announce, el, fill, icon, json } from "./dom.js";
import { clock, ms, span, stringify } from "./words.js";

/** @typedef {Omit<import("./types.d.ts").Entry, "events"> & {events: any[]}} Entry  events differ by their type */

/** Colour and icon of each kind of event. @type {[RegExp, string, string][]} */
const LOOK = [[/failed|cancelled/, "failed", "cross"], [/timed_out|timeout/, "soon", "warn"], [/^compensation\.completed/, "undone", "undo"], [/^compensation/, "compensating", "undo"], [/completed|fired|received/, "completed", "check"], [/signal\.waiting/, "wait", "wait"], [/sleep/, "sleeping", "moon"], [/parked|paused/, "idle", "pause"], [/claimed/, "idle", "key"], [/child/, "running", "split"], [/restarted|resumed|started|migrated/, "running", "play"]];
/** @param {string} type */
export const look = (type) => LOOK.find(([re]) => re.test(type)) ?? [/./, "idle", "ring"];

/** The rest of an event in a few words. @param {any} event */
export function words(event) {
  const at = event.point ?? "", cut = (/** @type {any} */ value) => { const text = stringify(value); return text.length > 80 ? text.slice(0, 79) + "…" : text; };
  const attempt = event.attempt > 1 ? `, attempt ${event.attempt}` : "";
  switch (event.type) {
    case "run.started": return event.of;
    case "run.claimed": return `by ${event.owner}`;
    case "run.parked": return event.next_at ? `next wake-up ${clock(ms(event.next_at))}` : "until something arrives";
    case "step.completed": case "child.completed": return `${at}${event.result === undefined || event.result === null ? "" : " → " + cut(event.result)}`;
    case "step.failed": return `${at}${attempt}: ${event.error?.message ?? ""}${event.retry_at ? `, again at ${clock(ms(event.retry_at))}` : ""}`;
    case "signal.waiting": return `${event.name}${event.name === at ? "" : " at " + at}${event.deadline ? `, until ${clock(ms(event.deadline))}` : ""}`;
    case "signal.received": return `${event.name ?? at}${event.by ? " from " + event.by : ""}`;
    case "run.completed": return "→ " + cut(event.result);
    case "run.failed": return event.error?.message ?? "";
    default: return [at, event.name, event.reason, event.error?.message, event.by && "by " + event.by, event.refused && "refused: " + event.refused].filter(Boolean).join(" ") + attempt;
  }
}

/** @typedef {{n: number, from: number, to: number | null, ok: boolean, message: string, worker: string}} Attempt */
/** Attempts of each step, and of each compensation in the order they began, as far as these entries have them. @param {Iterable<Entry>} entries */
export function attemptsOf(entries) {
  const found = { steps: /** @type {Map<string, Attempt[]>} */ (new Map()), undo: /** @type {Map<string, Attempt[]>} */ (new Map()) };
  for (const entry of entries) for (const event of entry.events) {
    const [what, how] = event.type.split("."), some = what === "step" ? found.steps : what === "compensation" ? found.undo : null;
    if (!some || !event.point) continue;
    const list = some.get(event.point) ?? [], at = ms(event.at ?? entry.at), last = list.at(-1);
    if (how === "started") list.push({ n: event.attempt ?? 1, from: at, to: null, ok: false, message: "", worker: entry.by.split(".")[0] });
    else if (last && last.to === null && (how === "completed" || how === "failed")) Object.assign(last, { to: at, ok: how === "completed", message: event.error?.message ?? "" });
    some.set(event.point, list);
  }
  return found;
}

/** Entries that are read at once, and rows that are kept in the page. */
const PAGE = 200, ROWS_MAX = 250, ROWS_KEPT = 30, DRAW_MS = 100;
/** As many entries from the end or the start as there are rows for; one has a row for each of its events. @param {Entry[]} entries @param {boolean} fromEnd @param {number} [rows] */
function fitting(entries, fromEnd, rows = ROWS_MAX) {
  let count = 0;
  const some = (fromEnd ? [...entries].reverse() : entries).filter((entry, i) => (count += entry.events.length) <= rows || !i);
  return fromEnd ? some.reverse() : some;
}

export class LogView {
  /** @param {(from: number, limit: number) => Promise<Entry[]>} read */
  constructor(read) {
    this.read = read;
    /** @type {Entry[]} */
    this.entries = [];
    /** Number of the newest entry that is known, shown or not. */
    this.last = 0;
    this.kind = "";
    /** Start of the run, from which times are counted. */
    this.began = NaN;
    /** @type {any} */
    this.timer = 0;
    this.list = el("div.log", { role: "log", "aria-label": "Log, the newest last", "aria-live": "off" });
    const filter = el("select.input.slim", { "aria-label": "Kind of event", onchange: () => { this.kind = filter.value; this.draw(); } }, [["", "All events"], ["step", "Steps"], ["signal", "Signals"], ["run", "Run"], ["compensation", "Compensation"], ["child", "Children"], ["sleep", "Sleeps"]].map(([value, text]) => el("option", { value }, text)));
    this.goto = el("input.input.slim.num.goto", { "aria-label": "Go to entry", placeholder: "Entry", inputmode: "numeric", autocomplete: "off", hidden: true, onkeydown: (/** @type {KeyboardEvent} */ event) => { const seq = Number(this.goto.value); if (event.key === "Enter" && seq >= 1) this.show(Math.min(seq, this.last)); } });
    this.tools = el("div.row", this.goto, filter);
    this.older = el("div.row.newer", { hidden: true }, el("button.btn.small.quiet.grow", { onclick: () => this.turn(-1) }, "Older entries"));
    this.newer = el("div.row.newer.below", { hidden: true }, (this.newerButton = el("button.btn.small.quiet.grow", { onclick: () => this.turn(1) }, "Newer entries")), el("button.btn.small.quiet", { onclick: () => this.show(this.last) }, "Newest"));
    this.box = el("div", this.older, this.list, this.newer);
  }

  /** Shows entries up to the end of the log. @param {Entry[]} entries @param {number} last */
  set(entries, last) {
    this.last = Math.max(last, entries.at(-1)?.seq ?? 0);
    // The window is elsewhere in the log: it stays.
    if (this.entries.length && (this.entries.at(-1)?.seq ?? 0) < (entries[0]?.seq ?? 0) - 1) { this.drawEdges(); return; }
    this.entries = fitting(entries, true);
    this.draw();
  }

  /** Adds entries that follow the log. They are shown if its end is shown. @param {Entry[]} entries */
  append(entries) {
    const fresh = entries.filter((entry) => entry.seq > this.last);
    if (!fresh.length) return;
    const isAtEnd = (this.entries.at(-1)?.seq ?? 0) === this.last;
    this.last = fresh.at(-1)?.seq ?? this.last;
    if (isAtEnd) this.entries.push(...fresh);
    // A busy run has hundreds a second: they are drawn ten times a second.
    this.timer ||= setTimeout(() => { this.timer = 0; if (isAtEnd) this.drawNew(); else this.drawEdges(); announce(`${this.entries.at(-1)?.events.at(-1)?.type ?? "entry"}`); }, DRAW_MS);
  }

  /** Shows the page before or after this one. @param {number} by */
  async turn(by) {
    const first = this.entries[0]?.seq ?? 1, last = this.entries.at(-1)?.seq ?? 0, from = by < 0 ? Math.max(1, first - PAGE) : last + 1;
    const found = await this.read(from, by < 0 ? first - from : PAGE);
    if (!found.length) return;
    const edge = by < 0 ? this.list.firstElementChild : this.list.lastElementChild, top = edge?.getBoundingClientRect().top ?? 0, place = /** @type {HTMLElement | null} */ (edge)?.dataset.seq;
    // A few entries of the previous window remain for orientation.
    this.entries = by < 0 ? fitting([...fitting(found, true, ROWS_MAX - ROWS_KEPT), ...this.entries], false) : fitting([...this.entries, ...fitting(found, false, ROWS_MAX - ROWS_KEPT)], true);
    this.draw();
    // Keeps the scroll position of the edge row.
    const now = this.list.querySelector(`[data-seq="${place}"]`);
    if (now) scrollBy(0, now.getBoundingClientRect().top - top);
  }

  /** Shows the entries around one. @param {number} seq */
  async show(seq) {
    const found = await this.read(Math.max(1, Math.min(seq - PAGE / 2, this.last - PAGE + 1)), PAGE);
    this.entries = [...fitting(found.filter((entry) => entry.seq < seq), true, ROWS_MAX / 2), ...fitting(found.filter((entry) => entry.seq >= seq), false, ROWS_MAX / 2)];
    this.draw();
    const row = /** @type {HTMLElement | null} */ (this.list.querySelector(`[data-seq="${seq}"]`));
    row?.scrollIntoView({ block: "center" });
    /** @type {HTMLElement | null} */ (row?.querySelector("button"))?.focus({ preventScroll: true });
  }

  drawEdges() {
    const first = this.entries[0], last = this.entries.at(-1)?.seq ?? 0;
    this.older.hidden = !first || first.seq <= 1;
    this.newer.hidden = last >= this.last;
    this.goto.hidden = this.last <= PAGE;
    fill(this.newerButton, `${this.last - last} newer entries`);
  }

  draw() {
    const open = new Set([...this.list.querySelectorAll('[aria-expanded="true"]')].map((one) => /** @type {HTMLElement} */ (one).dataset.place));
    this.drawEdges();
    fill(this.list, this.entries.flatMap((entry) => this.rows(entry, open)));
    if (!this.list.childElementCount) fill(this.list, el("p.dim.pad-in", "No entries."));
  }

  /** Adds rows at the end and removes as many at the start; a page that is scrolled to its end stays there. */
  drawNew() {
    const root = document.documentElement, isAtEnd = this.list.isConnected && root.scrollHeight > root.clientHeight && root.scrollTop + root.clientHeight >= root.scrollHeight - 24;
    const shown = Number(/** @type {HTMLElement | null} */ (this.list.lastElementChild)?.dataset.seq ?? 0), fresh = this.entries.filter((entry) => entry.seq > shown);
    this.entries = fitting(this.entries, true);
    if (!shown || fresh.length >= ROWS_MAX) { this.draw(); } else {
      this.list.append(...fresh.flatMap((entry) => this.rows(entry, new Set())));
      while (this.list.childElementCount > ROWS_MAX) this.list.firstElementChild?.remove();
      this.drawEdges();
    }
    if (isAtEnd) root.scrollTop = root.scrollHeight;
  }

  /** @param {Entry} entry @param {Set<string | undefined>} open */
  rows(entry, open) { return entry.events.map((event, i) => this.row(entry, event, i, open)).filter((row) => row !== null); }

  /** @param {Entry} entry @param {any} event @param {number} i @param {Set<string | undefined>} open */
  row(entry, event, i, open) {
    if (this.kind && !String(event.type).startsWith(this.kind)) return null;
    const [, cls, ic] = look(event.type), place = `${entry.seq}.${i}`, isOpen = open.has(place), at = ms(entry.at);
    const more = el("div.more", { hidden: !isOpen });
    const show = () => { if (!more.childElementCount) more.append(json({ ...event, seq: entry.seq, by: entry.by, requests: entry.requests }, "Event")); };
    if (isOpen) show();
    const row = el("button.e." + cls + (i ? ".cont" : "") + (isOpen ? ".open" : ""), { "aria-expanded": String(isOpen), "data-place": place, onclick: () => { const is = row.getAttribute("aria-expanded") !== "true"; row.setAttribute("aria-expanded", String(is)); row.classList.toggle("open", is); more.hidden = !is; if (is) show(); } },
      el("span.seq", { "aria-hidden": i ? "true" : undefined }, entry.seq), icon(ic), el("span.clip", el("b.strong", event.type), el("span.dim", "  " + words(event))), el("span.when", { title: clock(at, true) }, i ? "" : entry.seq === 1 || !this.began ? clock(at) : "+" + span(Math.max(0, at - this.began))));
    return el("div", { "data-seq": entry.seq }, row, more);
  }
}
