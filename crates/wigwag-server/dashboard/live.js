// One WebSocket to the hub: connect, heartbeat, subscribe, resubscribe after a cut. A hidden tab has none.
import { currentToken, newKey, serverUrl } from "./api.js";

/** @typedef {{type: string, payload: any, metadata: any}} Message */
/** @typedef {{topic: string, on: (message: Message) => void, gap: (isFirst: boolean) => void, ended?: (reason: string) => void, epoch?: number, seq?: number}} Subscription */

const BACKOFF_MAX = 15e3, HIDDEN_MS = 20e3;

export class Live {
  constructor() {
    /** @type {Map<string, Set<Subscription>>} */
    this.topics = new Map();
    /** @type {WebSocket | null} */
    this.socket = null;
    this.isConnected = false;
    this.hasConnected = false;
    this.failures = 0;
    this.address = "@(session/new)";
    /** @type {Map<string, (frame: any) => void>} */
    this.asks = new Map();
    /** @type {Set<(isLive: boolean) => void>} */
    this.watchers = new Set();
    this.isStopped = true;
    /** @type {any} */ this.timer = 0;
    /** @type {any} */ this.beat = 0;
    /** @type {any} */ this.hiding = 0;
    document.addEventListener("visibilitychange", () => this.seen());
  }

  start() { this.isStopped = false; this.connect(); }
  stop() { this.isStopped = true; clearTimeout(this.timer); this.drop(); }

  /** A hidden tab hears nothing and costs nothing. */
  seen() {
    clearTimeout(this.hiding);
    if (document.hidden) this.hiding = setTimeout(() => this.drop(), HIDDEN_MS);
    else if (!this.socket && !this.isStopped) { this.failures = 0; this.connect(); }
  }

  /** @param {boolean} is */
  say(is) { if (this.isConnected !== is) { this.isConnected = is; for (const watcher of this.watchers) watcher(is); } }

  drop() { const socket = this.socket; this.socket = null; clearInterval(this.beat); socket?.close(); this.say(false); }

  async connect() {
    clearTimeout(this.timer);
    if (this.isStopped || this.socket || document.hidden) return;
    const socket = new WebSocket(serverUrl().replace(/^http/, "ws") + "/hub");
    this.socket = socket;
    const token = await currentToken();
    socket.onopen = () => this.ask("hub:connect", { protocolVersion: "0.1.0", ...(token ? { token } : {}) }, (frame) => {
      if (frame.type !== "hub:connected") { socket.close(); return; }
      this.address = frame.payload.address;
      this.failures = 0;
      clearInterval(this.beat);
      this.beat = setInterval(() => this.send("hub:heartbeat", "tell", { timestamp: Date.now() }), frame.payload.heartbeatInterval ?? 30e3);
      for (const topic of this.topics.keys()) this.join(topic, true, !this.hasConnected);
      this.hasConnected = true;
      this.say(true);
    });
    socket.onmessage = (event) => this.receive(String(event.data));
    socket.onclose = () => { if (this.socket === socket) { this.drop(); this.later(); } };
    socket.onerror = () => socket.close();
  }

  later() {
    if (this.isStopped || document.hidden) return;
    const wait = Math.min(BACKOFF_MAX, 250 * 2 ** this.failures++) * (0.75 + Math.random() / 2);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), wait);
  }

  /** @param {string} type @param {"ask" | "tell"} pattern @param {any} payload */
  send(type, pattern, payload) {
    const id = newKey();
    if (this.socket?.readyState === 1) this.socket.send(JSON.stringify({ id, from: this.address, to: "@(hub)", type, pattern, correlationId: null, timestamp: Date.now(), payload, metadata: {}, ttl: null }));
    return id;
  }

  /** @param {string} type @param {any} payload @param {(frame: any) => void} answered */
  ask(type, payload, answered) { this.asks.set(this.send(type, "ask", payload), answered); }

  /** Asks the hub. @param {string} type @param {any} payload @returns {Promise<any>} */
  request(type, payload) {
    return new Promise((done, fail) => {
      const timer = setTimeout(() => fail(new Error("The hub does not answer.")), 8e3);
      this.ask(type, payload, (frame) => { clearTimeout(timer); if (/error|unauthorized|unknown_actor|too_large|rate_limited/.test(frame.type)) fail(new Error(frame.payload?.message ?? frame.type)); else done(frame.payload); });
    });
  }

  /** @param {string} text */
  receive(text) {
    let frame;
    try { frame = JSON.parse(text); } catch { return; }
    const answered = frame.correlationId && this.asks.get(frame.correlationId);
    if (answered) { this.asks.delete(frame.correlationId); answered(frame); return; }
    const topic = frame.metadata?.topic ?? frame.payload?.topic;
    for (const one of [...(this.topics.get(topic) ?? [])]) {
      if (frame.type === "hub:gap") one.gap(false);
      else if (frame.type === "hub:unsubscribed") one.ended?.(String(frame.payload.reason ?? ""));
      else { one.epoch = frame.metadata?.epoch; one.seq = frame.metadata?.seq; one.on({ type: frame.type, payload: frame.payload, metadata: frame.metadata }); }
    }
  }

  /** @param {string} topic @param {boolean} again @param {boolean} [isFirst]  whether it is the first connection of the page */
  join(topic, again, isFirst = false) {
    const some = [...(this.topics.get(topic) ?? [])], known = some.find((one) => one.seq !== undefined);
    this.ask("hub:subscribe", { topic, ...(known ? { after: { epoch: known.epoch, seq: known.seq } } : {}) }, (frame) => {
      // What came in between is not known where a topic has no number yet: it is read again.
      if (frame.type === "hub:subscribed") { if (again && !known) for (const one of some) one.gap(isFirst); } else for (const one of some) one.ended?.(frame.type);
    });
  }

  /** Hears a topic; returns what ends it. @param {Subscription} subscription */
  subscribe(subscription) {
    const { topic } = subscription, others = this.topics.get(topic);
    if (others) others.add(subscription); else this.topics.set(topic, new Set([subscription]));
    if (this.isConnected && (!others || subscription.seq !== undefined)) this.join(topic, false);
    return () => {
      const left = this.topics.get(topic);
      left?.delete(subscription);
      if (left && !left.size) { this.topics.delete(topic); if (this.isConnected) this.send("hub:unsubscribe", "tell", { topic }); }
    };
  }
}

export const live = new Live();
