// Drawings: graphs of steps, timelines, plots, bars.
import { el, icon, path, STATUS, svg } from "./dom.js";
import { span } from "./words.js";

/** @typedef {{name: string, kind: string, after?: string[], signal?: {name: string}, compensate?: boolean, stack?: string[]}} Step */
/** @typedef {{step?: Step, layer: number, row: number, x: number, y: number, mid: number, from: GraphNode[], to: GraphNode[], bend?: boolean}} GraphNode */
/** @typedef {Record<string, {status: string, ms?: number, note?: string}>} Points */
const W = 142, H = 46, GAP_X = 40, GAP_Y = 18, PAD = 22, STACK_MIN = 9;

/** Siblings with the same parents and the same dependants become one stack. @param {Step[]} steps @returns {Step[]} */
export function stacked(steps) {
  /** @type {Map<string, string[]>} */
  const next = new Map(steps.map((step) => [step.name, []]));
  for (const step of steps) for (const name of step.after ?? []) next.get(name)?.push(step.name);
  /** @type {Map<string, Step[]>} */
  const alike = new Map();
  for (const step of steps) { const key = step.kind + "|" + [...(step.after ?? [])].sort().join() + "|" + [...(next.get(step.name) ?? [])].sort().join(); const some = alike.get(key); if (some) some.push(step); else alike.set(key, [step]); }
  const gone = new Map(), made = [];
  for (const some of alike.values()) {
    if (some.length < STACK_MIN) { made.push(...some); continue; }
    const name = `${some[0].name} +${some.length - 1}`;
    for (const one of some) gone.set(one.name, name);
    made.push({ ...some[0], name, stack: some.map((one) => one.name) });
  }
  return gone.size ? made.map((step) => ({ ...step, after: [...new Set((step.after ?? []).map((name) => gone.get(name) ?? name))] })) : steps;
}

/** Places every step. @param {Step[]} steps */
export function layout(steps) {
  const names = new Set(steps.map((step) => step.name));
  /** @type {Map<string, GraphNode>} */
  const nodes = new Map(steps.map((step) => [step.name, { step, layer: 0, row: 0, x: 0, y: 0, mid: 0, from: [], to: [] }]));
  for (const node of nodes.values()) for (const name of node.step?.after ?? []) if (names.has(name)) { const parent = /** @type {GraphNode} */ (nodes.get(name)); node.from.push(parent); parent.to.push(node); }
  // Longest paths, without recursion: a chain may have thousands of steps.
  const waiting = new Map([...nodes.values()].map((node) => [node, node.from.length])), ready = [...nodes.values()].filter((node) => !node.from.length);
  for (let i = 0; i < ready.length; i++) for (const next of ready[i].to) { next.layer = Math.max(next.layer, ready[i].layer + 1); const left = (waiting.get(next) ?? 0) - 1; waiting.set(next, left); if (!left) ready.push(next); }
  /** @type {GraphNode[][]} */
  const layers = [];
  for (const node of nodes.values()) (layers[node.layer] ??= []).push(node);
  // An edge over several layers passes through a place of its own in each, so that it crosses no box.
  const edges = [];
  for (const node of nodes.values()) for (const parent of [...node.from]) {
    const way = [parent];
    for (let layer = parent.layer + 1; layer < node.layer; layer++) { const last = way[way.length - 1], bend = { bend: true, layer, row: 0, from: [last], to: [], x: 0, y: 0, mid: 0 }; last.to.push(bend); layers[layer].push(bend); way.push(bend); }
    if (way.length > 1) { const last = way[way.length - 1]; parent.to = parent.to.filter((to) => to !== node); node.from = node.from.map((from) => (from === parent ? last : from)); last.to.push(node); }
    way.push(node); edges.push(way);
  }
  for (const layer of layers) layer.forEach((node, row) => (node.row = row));
  /** @param {GraphNode[]} list @param {number} fallback */
  const median = (list, fallback) => { const rows = list.map((node) => node.row).sort((a, b) => a - b); return rows.length ? (rows[(rows.length - 1) >> 1] + rows[rows.length >> 1]) / 2 : fallback; };
  for (let sweep = 0; sweep < 6; sweep++) for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
    const key = new Map(layer.map((node) => [node, median(sweep % 2 ? node.to : node.from, node.row)]));
    layer.sort((a, b) => (key.get(a) ?? 0) - (key.get(b) ?? 0) || a.row - b.row).forEach((node, row) => (node.row = row));
  }
  const size = (/** @type {GraphNode} */ node) => (node.bend ? 12 : H);
  const height = (/** @type {GraphNode[]} */ layer) => layer.reduce((sum, node) => sum + size(node) + GAP_Y, -GAP_Y);
  const tall = Math.max(...layers.map(height));
  layers.forEach((layer, i) => { let y = PAD + (tall - height(layer)) / 2; for (const node of layer) { node.x = PAD + i * (W + GAP_X); node.y = y; y += size(node) + GAP_Y; node.mid = node.y + size(node) / 2; } });
  return { nodes, edges, layers, width: PAD * 2 + layers.length * (W + GAP_X) - GAP_X, height: PAD * 2 + tall };
}

const done = (/** @type {string} */ status) => ["completed", "skipped", "undone"].includes(status);
const now = (/** @type {string} */ status) => ["running", "retrying", "wait", "child", "sleeping", "failed", "compensating"].includes(status);

/** @param {GraphNode[]} way */
function curve(way) {
  let d = "";
  for (let i = 0; i + 1 < way.length; i++) {
    const [a, b] = [way[i], way[i + 1]], x1 = a.x + W, x2 = b.x, m = (x1 + x2) / 2;
    d += (i ? `L${x1} ${a.mid}` : `M${x1} ${a.mid}`) + `C${m} ${a.mid} ${m} ${b.mid} ${x2} ${b.mid}`;
  }
  return d;
}

/** @param {Step[]} given @param {Points} points @param {string | null} picked @param {(name: string) => void} [onpick] */
export function graph(given, points, picked, onpick = () => {}) {
  const steps = stacked(given), { nodes, edges, layers, width, height } = layout(steps);
  /** @param {GraphNode} node */
  const state = (node) => {
    const stack = node.step?.stack;
    if (!stack) return points[node.step?.name ?? ""]?.status ?? "todo";
    const all = stack.map((name) => points[name]?.status ?? "todo");
    return all.find((s) => s === "failed") ?? all.find(now) ?? (all.every(done) ? all[0] : all.some(done) ? "running" : "todo");
  };
  const lines = edges.map((way) => { const a = way[0], b = way[way.length - 1], from = state(a), to = state(b); return svg("path.edge" + (done(from) ? (to === "failed" ? ".bad" : now(to) ? ".on" : done(to) ? ".done" : "") : ""), { d: curve(way) }); });
  const isBare = !Object.keys(points).length, real = layers.map((layer) => layer.filter((node) => !node.bend));
  const first = picked && nodes.has(picked) ? picked : steps[0]?.name;
  const boxes = [...nodes.values()].map((node) => {
    const step = /** @type {Step} */ (node.step), status = state(node), point = points[step.name] ?? {}, wait = step.kind === "signal";
    const cls = ["node", status === "child" ? "wait" : status, now(status) && "now", step.name === picked && "picked", step.stack && "stack"].filter(Boolean).join(".");
    const name = step.name.length > 15 ? step.name.slice(0, 14) + "…" : step.name, word = STATUS[status]?.[0] ?? status;
    const meta = step.stack ? `${step.stack.filter((one) => done(points[one]?.status ?? "")).length} of ${step.stack.length}` : point.note ?? (point.ms !== undefined ? span(point.ms) : wait && status === "todo" ? "signal" : isBare ? "step" : word.toLowerCase());
    const r = wait ? H / 2 : 8;
    return svg("g." + cls, { transform: `translate(${node.x} ${node.y})`, tabindex: step.name === first ? 0 : -1, role: "button", "aria-pressed": String(step.name === picked), "data-step": step.name, "aria-label": `${name} ${meta}, ${word}`, onclick: () => onpick(step.stack?.[0] ?? step.name), onkeydown: (/** @type {KeyboardEvent} */ event) => key(event, node) },
      svg("title", step.name), step.stack && svg("rect.box.under", { x: 4, y: 4, width: W, height: H, rx: r }),
      now(status) && status !== "failed" && svg("rect.halo", { x: -3, y: -3, width: W + 6, height: H + 6, rx: r + 3 }), svg("rect.box", { width: W, height: H, rx: r }),
      svg("g", { transform: `translate(${wait ? 16 : 12} ${H / 2 - 8})` }, svg("path.icon", { d: path(wait && status === "todo" ? "flag" : STATUS[status]?.[1]) })),
      svg("text.name", { "aria-hidden": "true", x: wait ? 41 : 37, y: 20 }, name + " "), svg("text.meta", { "aria-hidden": "true", x: wait ? 41 : 37, y: 35 }, meta.length > 18 ? meta.slice(0, 17) + "…" : meta));
  });
  /** @param {KeyboardEvent} event @param {GraphNode} node */
  function key(event, node) {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); onpick(node.step?.stack?.[0] ?? node.step?.name ?? ""); return; }
    const layer = real[node.layer], row = layer.indexOf(node), near = (/** @type {GraphNode[] | undefined} */ some) => some?.reduce((best, one) => (Math.abs(one.mid - node.mid) < Math.abs(best.mid - node.mid) ? one : best), some[0]);
    const to = { ArrowUp: layer[row - 1], ArrowDown: layer[row + 1], ArrowLeft: near(real[node.layer - 1]), ArrowRight: near(real[node.layer + 1]) }[event.key];
    if (!to) return;
    event.preventDefault();
    const target = /** @type {SVGGElement | null} */ (drawn.querySelector(`[data-step="${CSS.escape(to.step?.name ?? "")}"]`));
    for (const one of drawn.querySelectorAll(".node")) one.setAttribute("tabindex", one === target ? "0" : "-1");
    target?.focus();
  }
  const drawn = /** @type {SVGSVGElement} */ (svg("svg.graph", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Graph of ${given.length} steps` }, lines, boxes));
  drawn.style.setProperty("--full", width + "px");
  drawn.style.setProperty("--least", Math.round(Math.min(width * 0.8, Math.max(width * 0.35, 900))) + "px");
  return drawn;
}

const MAP_W = 260, MAP_H = 90;
/** Minimap of a large graph: shows the visible part; a click or a drag scrolls the box. @param {SVGSVGElement} drawn @param {HTMLElement} box */
export function minimap(drawn, box) {
  const [, , w, h] = (drawn.getAttribute("viewBox") ?? "0 0 1 1").split(" ").map(Number), k = Math.min(MAP_W / w, MAP_H / h), view = svg("rect", { fill: "none", stroke: "currentColor", "stroke-width": 2 / k });
  const nodes = [...drawn.querySelectorAll(".node")].map((node) => { const [x, y] = (/translate\(([\d.]+) ([\d.]+)\)/.exec(node.getAttribute("transform") ?? "") ?? []).slice(1); return svg("g", { class: node.getAttribute("class"), transform: `translate(${x} ${y})` }, svg("rect.box", { width: W, height: H })); });
  const scale = () => (box.scrollWidth || w) / w, place = () => { for (const [name, value] of [["x", box.scrollLeft], ["y", box.scrollTop], ["width", box.clientWidth], ["height", Math.min(box.clientHeight, h * scale())]]) view.setAttribute(String(name), String(Number(value) / scale())); };
  const go = (/** @type {PointerEvent} */ event) => { if (event.type === "pointermove" && !event.buttons) return; const at = map.getBoundingClientRect(); box.scrollTo({ left: ((event.clientX - at.left) / k) * scale() - box.clientWidth / 2, top: ((event.clientY - at.top) / k) * scale() - box.clientHeight / 2 }); };
  const map = svg("svg.graph.map", { width: w * k, height: h * k, viewBox: `0 0 ${w} ${h}`, "aria-hidden": "true", onpointerdown: go, onpointermove: go }, nodes, view);
  for (const [name, value] of [["width", w * k + "px"], ["min-width", "0"], ["touch-action", "none"]]) /** @type {any} */ (map).style.setProperty(name, value);
  box.addEventListener("scroll", place, { passive: true });
  new ResizeObserver(place).observe(box);
  return map;
}

/** @typedef {{name: string, status: string, from: number, to: number | null, ticks?: number[], took?: string, onpick?: () => void}} Lane */

/** Places of times in percent. @param {Lane[]} lanes @param {number} end @param {boolean} squeezed */
export function scale(lanes, end, squeezed) {
  const cuts = [...new Set([0, end, ...lanes.flatMap((lane) => [lane.from, lane.to ?? end, ...(lane.ticks ?? [])])])].filter((t) => t >= 0 && t <= end).sort((a, b) => a - b);
  const at = [0];
  for (let i = 1; i < cuts.length; i++) at.push(at[i - 1] + (squeezed ? Math.log2(2 + (cuts[i] - cuts[i - 1])) : cuts[i] - cuts[i - 1]));
  const whole = at.at(-1) || 1;
  /** @param {number} t */
  const place = (t) => { let low = 0, high = cuts.length - 1; while (low < high) { const mid = (low + high) >> 1; if (cuts[mid] < t) low = mid + 1; else high = mid; } return (at[low] / whole) * 100; };
  /** @param {number} percent */
  const back = (percent) => { const want = (percent / 100) * whole; for (let i = 1; i < cuts.length; i++) if (at[i] >= want) { const share = (want - at[i - 1]) / (at[i] - at[i - 1] || 1); return cuts[i - 1] + share * (cuts[i] - cuts[i - 1]); } return end; };
  return { place, back };
}

const LANES_MAX = 200;
/** @param {Lane[]} lanes @param {number} end @param {boolean} squeezed */
export function gantt(lanes, end, squeezed) {
  const shown = lanes.slice(0, LANES_MAX), { place, back } = scale(shown, Math.max(end, 1), squeezed);
  return el("div.gantt", { role: "table", "aria-label": "Timeline" },
    el("div.g.axis", { role: "row" }, el("span.nm", { role: "columnheader" }, "Step"), el("span.lane", { role: "columnheader", "aria-label": "Time since the start" }, [0, 25, 50, 75].map((pct) => el("span", pct ? "+" + span(back(pct), 1) : "0"))), el("span.tm", { role: "columnheader" }, "Took")),
    shown.map((lane) => {
      const to = lane.to ?? Math.max(end, 1), x = place(lane.from), isWait = ["wait", "sleeping", "child"].includes(lane.status);
      return el("div.g." + (STATUS[lane.status] ? (lane.status === "child" ? "wait" : lane.status) : "idle"), { role: "row" },
        el("span.nm", { role: "rowheader" }, icon(STATUS[lane.status]?.[1] ?? "ring"), lane.onpick ? el("button.plain.clip", { title: lane.name, onclick: lane.onpick }, lane.name) : el("span.clip", lane.name)),
        el("span.lane", { role: "cell", "aria-label": `from +${span(lane.from)}, ${STATUS[lane.status]?.[0] ?? lane.status}` }, el("i" + (isWait ? ".wait" : ""), { vars: { "--x": x + "%", "--w": Math.max(0, place(to) - x) + "%" } }), lane.ticks?.map((t) => el("i.mark", { vars: { "--x": place(t) + "%", "--w": "0" } }))),
        el("span.tm", { role: "cell" }, lane.took ?? span(to - lane.from, 2)));
    }),
    lanes.length > LANES_MAX && el("div.g", { role: "row" }, el("span.nm", { role: "cell" }, `${lanes.length - LANES_MAX} more`), el("span", { role: "cell" }), el("span", { role: "cell" })));
}

const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6];

/** @param {[string, (number | null)[]][]} lines  class and values @param {string} label */
export function plot(lines, label) {
  const w = innerWidth < 720 ? 330 : Math.min(640, Math.max(300, (innerWidth - 300) / 2)), h = 132, left = 40, bottom = 20;
  const top = Math.max(0.001, ...lines.flatMap(([, values]) => values.map((v) => v ?? 0))) * 1.1;
  const step = STEPS.find((s) => top / s <= 4) ?? 1e6, max = Math.ceil(top / step) * step;
  const n = Math.max(2, ...lines.map(([, values]) => values.length));
  const x = (/** @type {number} */ i) => left + (i / (n - 1)) * (w - left), y = (/** @type {number} */ v) => (h - bottom) * (1 - v / max) + 4;
  return svg("svg.plot", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label },
    Array.from({ length: Math.round(max / step) + 1 }, (_, i) => svg("g", svg("line.grid", { x1: left, x2: w, y1: y(i * step), y2: y(i * step) }), svg("text", { x: left - 8, y: y(i * step) + 4, "text-anchor": "end" }, String(Number((i * step).toPrecision(3)))))),
    ["start", "middle", "end"].map((anchor, i) => svg("text", { x: left + (i / 2) * (w - left), y: h, "text-anchor": anchor }, i === 2 ? "now" : "−" + span((n - 1) * 10e3 * (2 - i) / 2, 1))),
    lines.map(([cls, values]) => {
      let d = "", open = false, area = "", from = 0, last = 0;
      values.forEach((v, i) => { if (v === null || v === undefined) { if (open) area += `V${h - bottom + 4}H${from.toFixed(1)}Z`; open = false; return; } last = x(i + n - values.length); if (!open) from = last; const at = `${open ? "L" : "M"}${last.toFixed(1)} ${y(v).toFixed(1)}`; d += at; area += at; open = true; });
      if (open) area += `V${h - bottom + 4}H${from.toFixed(1)}Z`;
      return svg("g." + cls, area && svg("path.area", { d: area }), d && svg("path.ln", { d }));
    }));
}

/**
 * Ends by time, failed ones on top. A click picks one bar, a drag several.
 * @param {{good: number, bad: number, title: string}[]} bars @param {(from: number, to: number) => void} onpick @param {[number, number] | null} picked
 */
export function bars(bars, onpick, picked) {
  const w = 1000, h = 54, span = svg("rect.span", { y: 0, height: h, width: 0 });
  /** @param {number} from @param {number} to */
  const mark = (from, to) => { span.setAttribute("x", String(Math.max(0, from) * bw)); span.setAttribute("width", String(Math.max(0, Math.min(bars.length, to) - Math.max(0, from)) * bw)); };
  let began = -1, last = -1;
  const place = (/** @type {PointerEvent} */ event) => { const box = drawn.getBoundingClientRect(); return Math.max(0, Math.min(bars.length - 1, Math.floor(((event.clientX - box.left) / box.width) * bars.length))); };
  const range = () => /** @type {[number, number]} */ ([Math.min(began, last), Math.max(began, last) + 1]);
  const pointer = {
    onpointerdown: (/** @type {PointerEvent} */ event) => { if (event.button) return; began = last = place(event); drawn.classList.add("dragged"); drawn.setPointerCapture?.(event.pointerId); mark(...range()); event.preventDefault(); },
    onpointermove: (/** @type {PointerEvent} */ event) => { if (began < 0) return; last = place(event); mark(...range()); },
    onpointerup: () => { if (began < 0) return; const [from, to] = range(); began = -1; drawn.classList.remove("dragged"); onpick(from, to); },
    onpointercancel: () => { began = -1; drawn.classList.remove("dragged"); mark(picked?.[0] ?? 0, picked?.[1] ?? 0); },
  };
  const most = Math.max(1, ...bars.map((one) => one.good + one.bad)), bw = w / bars.length;
  if (picked) mark(...picked);
  const drawn = /** @type {SVGSVGElement} */ (svg("svg.plot.ends", { viewBox: `0 0 ${w} ${h}`, preserveAspectRatio: "none", role: "img", "aria-label": "Runs that ended, in steps of 15 minutes, last 24 hours", ...pointer },
    svg("line.grid", { x1: 0, x2: w, y1: h, y2: h }), span,
    bars.map(({ good, bad, title }, i) => {
      const gh = (good / most) * h, bh = bad ? Math.max(3, (bad / most) * h) : 0;
      return svg("g.pickable", svg("title", title), svg("rect.hit", { x: i * bw, width: bw, y: 0, height: h }), gh > 0 && svg("rect.bar.completed", { x: i * bw + 1, width: bw - 2, y: h - gh, height: gh, rx: 1, opacity: 0.55 }), bh > 0 && svg("rect.bar.failed", { x: i * bw + 1, width: bw - 2, y: Math.max(0, h - gh - bh), height: bh, rx: 1 }));
    })));
  return drawn;
}
