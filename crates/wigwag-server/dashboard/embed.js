// Parts of the dashboard for other pages: <wigwag-inbox>, <wigwag-run> and <wigwag-graph>. `element.server`, `element.token = async () => …`.
// All elements of a page use the same server.
import { answerPanel, isTask } from "./answer.js";
import { allSteps, get, query, runPath, session, useServer } from "./api.js";
import { el, fill, left, pill, rich } from "./dom.js";
import { graph } from "./graph.js";
import { live } from "./live.js";
import { ms, plural } from "./words.js";

const STYLE = new URL("./style.css", import.meta.url).href;

class Part extends HTMLElement {
  constructor() {
    super();
    this.root = this.attachShadow({ mode: "open" });
    this.box = el("div.embedded");
    /** Address of the server; that of the module by default. */
    this.server = new URL(import.meta.url).origin;
    /** @type {null | (() => Promise<string>)} */
    this.token = null;
    this.run = "";
    /** @type {any} */ this.timer = 0;
    this.unsubscribe = () => {};
  }
  /** Topic whose messages redraw the element. */
  get topic() { return "run/" + this.run; }
  connectedCallback() {
    this.run ||= this.getAttribute("run") ?? "";
    this.root.replaceChildren(el("link", { rel: "stylesheet", href: STYLE }), this.box);
    useServer(this.server, this.token);
    live.start();
    const soon = () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.refresh(), 200); };
    this.unsubscribe = live.subscribe({ topic: this.topic, gap: soon, on: soon });
    this.refresh();
  }
  disconnectedCallback() { clearTimeout(this.timer); this.unsubscribe(); if (!live.topics.size) live.stop(); }
  async refresh() {
    clearTimeout(this.timer);
    if (!document.hidden) {
      try { fill(this.box, await this.draw()); } catch (error) { fill(this.box, el("p", { role: "alert" }, /** @type {Error} */ (error).message)); }
    }
    // The hub says what changes; without it the element asks again.
    if (this.isConnected) this.timer = setTimeout(() => this.refresh(), live.isConnected ? 60e3 : 5e3);
  }
  /** @returns {Promise<any>} */
  async draw() { return null; }
}

class GraphPart extends Part {
  async draw() {
    const path = runPath(this.run), [run, steps] = await Promise.all([get(path), allSteps(path)]);
    const definition = run.definition_hash && !run.version ? await get(`/v1/definitions/${encodeURIComponent(run.type)}/${encodeURIComponent(run.definition_hash)}`) : null;
    if (!definition?.steps?.length) return el("p", "This run has no graph.");
    const points = Object.fromEntries(steps.items.map((/** @type {any} */ one) => [one.path, { status: run.undo?.[one.path] ? "undone" : one.status === "running" && one.kind === "wait" ? "wait" : one.status, ms: one.ended_at && one.started_at ? ms(one.ended_at) - ms(one.started_at) : undefined }]));
    return el("div.graphbox", graph(definition.steps, points, null));
  }
}

class RunPart extends GraphPart {
  async draw() {
    const [run, explained] = await Promise.all([get(runPath(this.run)), get(runPath(this.run) + "/explain")]);
    return el("div.card", el("header", pill(run.status), el("b.mono", run.id)), el("div.in", el("p", rich(explained.why))), await super.draw());
  }
}

/** Open waits and a form for the picked one: `<wigwag-inbox name="approval" type="order">`. Sends the event `sent` with run, name and point. */
class InboxPart extends Part {
  picked = "";
  /** @type {ReturnType<typeof answerPanel> | null} */
  panel = null;
  get topic() { return "waiting"; }
  async draw() {
    session.me ??= await get("/v1/me");
    const { items } = await get("/v1/waiting" + query({ name: this.getAttribute("name"), type: this.getAttribute("type"), order: "due", limit: 50 }));
    if (!items.length) { this.panel = null; return el("div.card.in", el("p.dim", "Nothing waits.")); }
    return el("div.card", el("header", el("h2.grow", plural(items.length, "wait"))), items.map((/** @type {import("./answer.js").WaitRow} */ wait) => {
      const key = wait.run + "~" + wait.point, isOpen = key === this.picked;
      const row = el("button.w", { "aria-expanded": String(isOpen), onclick: () => { this.panel = null; this.picked = isOpen ? "" : key; this.refresh(); } }, el("span.title.clip", wait.about ?? wait.id), el("span.sub", el("span.mono.clip", wait.id), el("span.tag", wait.name)), el("span.cell.due.dim", wait.deadline ? left(wait.deadline) : "no deadline"));
      if (!isOpen) return row;
      this.panel ??= answerPanel(wait, { onsent: () => { this.picked = ""; this.dispatchEvent(new CustomEvent("sent", { detail: { run: wait.id, task: isTask(wait), name: wait.name, point: wait.point } })); this.refresh(); }, onover: () => this.refresh() });
      return [row, el("div.in.stack.gap", this.panel.box, this.panel.button)];
    }));
  }
}

for (const [name, part] of /** @type {[string, typeof Part][]} */ ([["wigwag-graph", GraphPart], ["wigwag-run", RunPart], ["wigwag-inbox", InboxPart]])) if (!customElements.get(name)) customElements.define(name, part);
export { GraphPart, InboxPart, RunPart };
