/**
 * The client's side of the protocol, without sockets, timers or promises: inputs and the time are
 * arguments, outputs are returned.
 *
 * Holds: after a (re)connection, addresses are registered before anything else is sent; every promise to the user is
 * resolved, rejected, or pending with a deadline; during a pause only heartbeats and acks are sent.
 */
import { Calls, expired, render, tooLarge, type Call, type Owner, type Pending } from "./calls.js";
import { errorIn, HubError } from "./errors.js";
import { newLease, registerPayload, renewTime, type Lease, type Registration } from "./leases.js";
import * as limits from "./limits.js";
import { HUB, object, parse, PROTOCOL_VERSION, type Connected, type Envelope, type Gap, type Position } from "./protocol.js";
import { backoff, comeBack } from "./reconnect.js";
import { Seen } from "./seen.js";
import type { HubEvent, Input, Output, SessionOptions } from "./steps.js";
import { Topic } from "./topics.js";

type Phase =
  | { name: "idle" }
  | { name: "waiting"; until: number }
  | { name: "opening"; until: number }
  | { name: "greeting"; until: number; id: string }
  | { name: "restoring" | "ready"; since: number }
  | { name: "closing"; until: number }
  | { name: "ended" };

export class Session {
  private phase: Phase = { name: "idle" };
  private connected: Connected | null = null;
  /** Id of the session to resume, a secret. */
  private resume: string | null = null;
  private token: string | null = null;
  private refusedToken: string | null | undefined;
  private refusal: HubError | null = null;
  private attempt = 0;
  /** Times of moves to another server. */
  private moves: number[] = [];
  /** Whether it is connected to another than its first server. */
  private away = false;
  private paused = false;
  private holdUntil = 0;
  private heardAt = 0;
  private beatAt = Infinity;
  private readonly calls: Calls;
  private readonly leases = new Map<string, Lease>();
  private readonly topics = new Map<string, Topic>();
  private readonly seen = new Seen(limits.SEEN_IDS);
  private owedAcks: { id: string; from: string }[] = [];
  private out: Output[] = [];
  private crowded = false;
  /** When calls delayed by `holdUntil` may be sent; Infinity if there are none. */
  private heldUntil = Infinity;

  constructor(private readonly options: SessionOptions) {
    this.calls = new Calls(options.bufferMessages, options.bufferBytes);
  }

  /** Processes one input; `room` is how many bytes the socket accepts. */
  step(input: Input, now: number, room: number): Output[] {
    this.out = [];
    this.take(input, now);
    this.flush(now, room);
    return this.out;
  }

  /** Time of the next `tick`; Infinity if no timer is pending. */
  get wakeAt(): number {
    const phase = this.phase;
    if (phase.name === "idle" || phase.name === "ended") return Infinity;
    const own = "until" in phase ? phase.until : Math.min(this.beatAt, this.nextRenewal());
    return Math.min(own, this.calls.wakeAt, this.heldUntil);
  }

  /** Whether the socket had no room for all frames. It does not report when it has, so poll it. */
  get isCrowded(): boolean {
    return this.crowded;
  }

  get isEnded(): boolean {
    return this.phase.name === "ended";
  }

  /** Whether this call would be accepted. */
  hasRoomFor(call: Call): boolean {
    return !this.calls.isFull(call);
  }

  get address(): string | null {
    return this.connected?.address ?? null;
  }

  private get isOpen(): boolean {
    return this.phase.name === "restoring" || this.phase.name === "ready";
  }

  private take(input: Input, now: number): void {
    if (this.phase.name === "ended") return this.refuse(input);
    switch (input.kind) {
      case "start":
        return this.open(now);
      case "opened":
        return this.opened(input.token, now);
      case "frame":
        return this.frame(input.text, now);
      case "closed":
        return this.closed(input.code, input.reason, now);
      case "tick":
        return this.tick(now);
      case "call":
        return this.call({ kind: "user", key: input.key }, input.call, now);
      case "register":
        return this.register(input.registration, input.key, now);
      case "unregister":
        return this.unregister(input.address, input.key, now);
      case "subscribe":
        return this.subscribe(input.topic, input.after, input.key, now);
      case "unsubscribe":
        return this.unsubscribe(input.topic, input.key, now);
      case "overflow":
        return this.topics.get(input.topic)?.overflow(input.at);
      case "drained":
        return this.drained(input.topic, now);
      case "acknowledge":
        return this.acknowledge(input.id, input.from, now);
      case "progress":
        return this.progress(input.id, input.from, now);
      case "forget":
        return this.seen.forget(input.id);
      case "close":
        return this.close(now);
    }
  }

  private refuse(input: Input): void {
    if ("key" in input && input.key !== null) this.out.push({ kind: "reject", key: input.key, error: isClosed(this.refusal) });
  }

  // Connecting

  private open(now: number): void {
    // The other server may be down; the first one knows the current location.
    if (this.away && this.attempt >= limits.HOME_AFTER) {
      this.away = false;
      this.out.push({ kind: "move", url: null });
    }
    this.phase = { name: "opening", until: now + limits.CONNECT_TIMEOUT_MS };
    this.out.push({ kind: "open" });
  }

  private opened(token: string | null, now: number): void {
    if (this.phase.name !== "opening") return;
    if (token !== null && token === this.refusedToken) {
      this.out.push({ kind: "shut", code: 1000 });
      return this.end(this.refusal, 4001, "no other token was given");
    }
    const id = this.options.newId();
    this.token = token;
    this.phase = { name: "greeting", until: now + limits.CONNECT_TIMEOUT_MS, id };
    this.heardAt = now;
    this.control("hub:connect", "ask", this.greeting(), now, id);
  }

  private greeting(): unknown {
    return {
      protocolVersion: PROTOCOL_VERSION,
      acks: "together",
      capabilities: this.options.capabilities,
      ...(this.token === null ? {} : { token: this.token }),
      ...(this.resume === null ? {} : { resume: { sessionId: this.resume } }),
    };
  }

  private greeted(frame: Envelope, now: number): void {
    if (frame.type !== "hub:connected") return this.notGreeted(errorIn(frame), now);
    this.connected = frame.payload as Connected;
    this.resume = this.connected.sessionId;
    this.refusal = null;
    this.refusedToken = undefined;
    this.paused = false;
    this.holdUntil = 0;
    this.phase = { name: "restoring", since: now };
    this.beatAt = now + this.connected.heartbeatInterval;
    for (const pending of this.calls.requeue(now)) this.resolve(keyOf(pending.owner), null);
    for (const lease of this.leases.values()) this.askLease(lease, now);
    for (const topic of this.topics.values()) this.askTopic(topic, now);
    this.restored(now);
  }

  private notGreeted(error: HubError | null, now: number): void {
    this.refusal = error;
    if (error?.code === "version_mismatch") {
      this.out.push({ kind: "shut", code: 1000 });
      return this.end(error, 1000, "version_mismatch");
    }
    // Do not try again to resume a session that cannot be resumed.
    if (error?.code === "invalid_message") this.resume = null;
    // The hub closes with 4001 itself; any other rejection may be temporary.
    if (error?.code === "unauthorized") return;
    if (error !== null) this.event({ type: "error", error });
    this.lost(1006, error?.message ?? "not connected", now);
  }

  /** Handles the last registration after a reconnect: other calls may now be sent. */
  private restored(now: number): void {
    if (this.phase.name !== "restoring" || this.calls.hasLeases) return;
    this.phase = { name: "ready", since: now };
    for (const ack of this.owedAcks.splice(0)) this.sendAck(ack.id, ack.from, now);
    this.event({ type: "connected", connected: this.connected as Connected });
  }

  private closed(code: number, reason: string, now: number): void {
    if (this.phase.name === "closing") return this.end(null, 1000, "closed by the user");
    if (this.phase.name === "idle" || this.phase.name === "waiting") return;
    const verdict = comeBack(code);
    const settled = "since" in this.phase && now - this.phase.since >= limits.SETTLED_MS;
    if (settled) this.attempt = 0;
    if (verdict === "never") return this.end(this.refusal, code, reason);
    if (verdict === "with a new token") {
      this.refusedToken = this.token;
      if (!this.options.freshTokens) return this.end(this.refusal, code, reason);
    }
    const atOnce = verdict === "at once" && this.isOpen;
    const inMs = atOnce ? 0 : backoff(this.attempt++, this.options.random());
    this.phase = { name: "waiting", until: now + inMs };
    this.beatAt = Infinity;
    this.crowded = false;
    this.event({ type: "disconnected", code, reason, returns: true, inMs });
  }

  /** Abandons a broken connection and handles it like a disconnect. */
  private lost(code: number, reason: string, now: number): void {
    this.out.push({ kind: "shut", code: 1000 });
    this.closed(code, reason, now);
  }

  private close(now: number): void {
    if (this.phase.name === "closing") return;
    if (!this.isOpen) {
      this.out.push({ kind: "shut", code: 1000 });
      return this.end(null, 1000, "closed by the user");
    }
    this.phase = { name: "closing", until: now + limits.CLOSE_TIMEOUT_MS };
    this.control("hub:disconnect", "tell", {}, now);
  }

  private end(error: HubError | null, code: number, reason: string): void {
    this.phase = { name: "ended" };
    this.refusal = error ?? new HubError("closed", `the hub is closed: ${reason || code}`, { details: { code, reason } });
    for (const pending of this.calls.drain()) this.reject(keyOf(pending.owner), this.refusal);
    for (const lease of this.leases.values()) this.reject(lease.key, this.refusal);
    for (const topic of this.topics.values()) this.endTopic(topic, null, code === 1000 ? null : this.refusal);
    this.event({ type: "disconnected", code, reason, returns: false, inMs: null });
    this.out.push({ kind: "ended", error: code === 1000 && error === null ? null : this.refusal });
  }

  // Time

  private tick(now: number): void {
    for (const { pending, error } of this.calls.tick(now)) this.failed(pending, error, now);
    const phase = this.phase;
    if ("until" in phase && now >= phase.until) return this.overdue(phase, now);
    if (!this.isOpen) return;
    const interval = (this.connected as Connected).heartbeatInterval;
    if (now - this.heardAt > interval * limits.SILENT_INTERVALS) return this.lost(4003, "nothing was heard", now);
    if (now >= this.beatAt) {
      this.beatAt = now + interval;
      this.control("hub:heartbeat", "tell", { timestamp: now }, now);
    }
    for (const lease of this.leases.values()) if (now >= lease.renewAt) this.renew(lease, now);
  }

  private overdue(phase: Phase & { until: number }, now: number): void {
    if (phase.name === "waiting") return this.open(now);
    if (phase.name !== "closing") return this.lost(1006, "the hub did not answer", now);
    this.out.push({ kind: "shut", code: 1000 });
    this.end(null, 1000, "closed by the user");
  }

  private nextRenewal(): number {
    let next = Infinity;
    for (const lease of this.leases.values()) next = Math.min(next, lease.renewAt);
    return next;
  }

  // Frames

  private frame(text: string, now: number): void {
    this.heardAt = now;
    const frame = parse(text);
    if (frame === null) return;
    if (this.phase.name === "greeting") {
      if (frame.from === HUB && frame.correlationId === this.phase.id) this.greeted(frame, now);
      return;
    }
    if (!this.isOpen) return;
    // Other actors may choose types like the hub's, but not its address.
    if (frame.from === HUB && frame.type.startsWith("hub:")) return this.fromHub(frame, now);
    if (frame.to.startsWith("@(topic/")) return this.topicMessage(frame, now);
    if (frame.correlationId !== null) return this.reply(frame);
    this.message(frame, now);
  }

  private fromHub(frame: Envelope, now: number): void {
    const pending = this.calls.get(frame.correlationId);
    if (pending !== undefined && frame.type === "hub:progress") return this.calls.extend(pending, now);
    if (pending !== undefined) return this.answered(pending, frame, now);
    const payload = object(frame.payload);
    switch (frame.type) {
      case "hub:pause":
        this.paused = true;
        return this.event({ type: "paused", address: typeof payload["address"] === "string" ? payload["address"] : null });
      case "hub:resume":
        this.paused = false;
        return this.event({ type: "resumed" });
      case "hub:delivery_acks":
        return this.acknowledged(frame, payload, now);
      case "hub:gap":
        return this.gap(payload as unknown as Gap, now);
      case "hub:unsubscribed":
        return this.unsubscribed(String(payload["topic"]), typeof payload["reason"] === "string" ? payload["reason"] : null);
    }
    const error = errorIn(frame);
    if (error === null) return;
    if (error.retryAfter !== null) this.holdUntil = now + error.retryAfter;
    this.event({ type: "error", error });
  }

  /** Handles a combined acknowledgement as one acknowledgement per message. */
  private acknowledged(frame: Envelope, payload: Record<string, unknown>, now: number): void {
    const { status, deliveredAt, messageIds } = payload;
    if (!Array.isArray(messageIds)) return;
    for (const messageId of messageIds) {
      const pending = this.calls.get(String(messageId));
      if (pending === undefined) continue;
      const answer = { ...frame, type: "hub:delivery_ack", correlationId: String(messageId), payload: { messageId, deliveredAt, status } };
      this.answered(pending, answer, now);
    }
  }

  private answered(pending: Pending, frame: Envelope, now: number): void {
    const error = errorIn(frame);
    if (error === null) return this.succeeded(pending, frame, now);
    if (error.code === "rate_limited") {
      this.holdUntil = now + (error.retryAfter ?? limits.ASK_WAIT_MS);
      return this.calls.again(pending);
    }
    if (error.code === "elsewhere" && this.moveTo(pending, error, now)) return;
    if (error.code === "queue_full" || error.code === "internal_error") {
      if (this.calls.failed(pending, error, now) === null) return;
    } else {
      this.calls.remove(pending);
    }
    this.failed(pending, error, now);
  }

  /** Moves to the target's server. Returns false after too many moves. */
  private moveTo(pending: Pending, error: HubError, now: number): boolean {
    const { url } = object(error.details);
    this.moves = this.moves.filter((at) => at + limits.MOVES_WITHIN_MS >= now);
    if (typeof url !== "string" || pending.call.type !== "hub:send" || this.moves.length >= limits.MOVES_MAX) return false;
    this.moves.push(now);
    this.away = true;
    this.attempt = 0;
    this.calls.again(pending);
    this.out.push({ kind: "shut", code: 1000 }, { kind: "move", url });
    this.phase = { name: "waiting", until: now };
    this.beatAt = Infinity;
    this.crowded = false;
    this.event({ type: "moved", url });
    return true;
  }

  private succeeded(pending: Pending, frame: Envelope, now: number): void {
    if (pending.call.expectReply === true && frame.type === "hub:delivery_ack") return this.calls.acknowledged(pending, now);
    this.calls.remove(pending);
    switch (pending.owner.kind) {
      case "user":
        return this.resolve(pending.owner.key, frame);
      case "lease":
        return this.leased(pending.owner.address, frame, now);
      case "topic":
        return this.subscribed(pending.owner.topic, frame);
    }
  }

  private failed(pending: Pending, error: HubError, now: number): void {
    switch (pending.owner.kind) {
      case "user":
        return this.reject(pending.owner.key, error);
      case "lease":
        return this.notLeased(pending, pending.owner.address, error, now);
      case "topic":
        return this.notSubscribed(pending.owner.topic, error);
    }
  }

  private reply(frame: Envelope): void {
    const pending = this.calls.get(frame.correlationId);
    if (pending?.call.expectReply !== true) return; // it came too late
    this.calls.remove(pending);
    this.resolve(keyOf(pending.owner), frame);
  }

  private message(frame: Envelope, now: number): void {
    if (this.seen.add(frame.id)) this.out.push({ kind: "message", frame });
    else if (this.seen.isAcknowledged(frame.id)) this.sendAck(frame.id, frame.to, now);
  }

  private acknowledge(id: string, from: string, now: number): void {
    this.seen.acknowledge(id);
    if (this.phase.name === "ready") return this.sendAck(id, from, now);
    // If the hub still needs this acknowledgement, it repeats the message; older acks can be dropped.
    this.owedAcks.push({ id, from });
    if (this.owedAcks.length > limits.INBOX_MESSAGES) this.owedAcks.shift();
  }

  /** Does nothing without a connection: the message is delivered again. */
  private progress(id: string, from: string, now: number): void {
    if (this.phase.name !== "ready") return;
    const owned = this.leases.has(from) ? from : (this.address as string);
    this.control("hub:progress", "tell", { messageId: id }, now, undefined, owned);
  }

  private sendAck(id: string, from: string, now: number): void {
    const owned = this.leases.has(from) ? from : (this.address as string);
    this.control("hub:ack", "tell", { messageId: id }, now, undefined, owned);
  }

  // Leases

  private register(wanted: Registration, key: number | null, now: number): void {
    this.reject(this.leases.get(wanted.address)?.key ?? null, new HubError("closed", "registered again by a later call"));
    const lease = newLease(wanted, key);
    this.leases.set(wanted.address, lease);
    if (this.isOpen) this.askLease(lease, now);
  }

  private unregister(address: string, key: number, now: number): void {
    const lease = this.leases.get(address);
    this.leases.delete(address);
    this.reject(lease?.key ?? null, new HubError("closed", "unregistered before it was registered"));
    // Without a connection, the hub holds no registration to end.
    if (!this.isOpen) return this.resolve(key, null);
    this.undo(key, "hub:unregister", { actorAddress: address }, now);
  }

  private askLease(lease: Lease, now: number): void {
    lease.renewalToken = null;
    lease.renewAt = Infinity;
    this.ask({ kind: "lease", address: lease.wanted.address }, "hub:register", registerPayload(lease.wanted), now);
  }

  private renew(lease: Lease, now: number): void {
    if (lease.renewalToken === null) return this.askLease(lease, now);
    lease.renewAt = Infinity;
    this.ask({ kind: "lease", address: lease.wanted.address }, "hub:renew", { renewalToken: lease.renewalToken }, now);
  }

  private leased(address: string, frame: Envelope, now: number): void {
    const lease = this.leases.get(address);
    if (lease === undefined) return; // unregistered meanwhile
    const { expiresAt, renewalToken, version } = object(frame.payload);
    if (typeof renewalToken === "string") lease.renewalToken = renewalToken;
    lease.renewAt = renewTime(now, Number(expiresAt), frame.timestamp);
    if (frame.type === "hub:registered") this.event({ type: "registered", address, version: Number(version) });
    this.resolve(lease.key, frame);
    lease.key = null;
    this.restored(now);
  }

  private notLeased(pending: Pending, address: string, error: HubError, now: number): void {
    const lease = this.leases.get(address);
    if (lease === undefined) return this.restored(now);
    // A lease that cannot be renewed may have ended while nothing could be sent.
    if (pending.call.type === "hub:renew") return this.askLease(lease, now);
    // A permanent registration has no waiting caller: it is retried, unless the error is permanent.
    const again = lease.key === null && error.retryable;
    if (again) lease.renewAt = now + limits.REGISTER_AGAIN_MS;
    else this.leases.delete(address);
    if (lease.key !== null) this.reject(lease.key, error);
    else this.event({ type: "error", error });
    this.restored(now);
  }

  // Topics

  private subscribe(name: string, after: Position | null, key: number, now: number): void {
    if (this.topics.has(name)) {
      const hint = "one subscription of a client serves all who are interested";
      return this.reject(key, new HubError("already_subscribed", `there is a subscription already: \`${name}\``, { hint }));
    }
    const topic = new Topic(name, after, key);
    this.topics.set(name, topic);
    if (this.isOpen) this.askTopic(topic, now);
  }

  private askTopic(topic: Topic, now: number): void {
    topic.ask();
    const after = topic.after === null ? {} : { after: topic.after };
    this.ask({ kind: "topic", topic: topic.name }, "hub:subscribe", { topic: topic.name, ...after }, now);
  }

  private subscribed(name: string, frame: Envelope): void {
    const topic = this.topics.get(name);
    if (topic === undefined) return;
    topic.subscribed(object(frame.payload) as unknown as Position);
    this.resolve(topic.key, frame);
    topic.key = null;
  }

  private notSubscribed(name: string, error: HubError): void {
    const topic = this.topics.get(name);
    if (topic === undefined) return;
    const isFirst = topic.key !== null;
    this.endTopic(topic, null, error);
    if (!isFirst) this.event({ type: "error", error });
  }

  private topicMessage(frame: Envelope, now: number): void {
    const { epoch, seq } = frame.metadata;
    const name = frame.to.slice("@(topic/".length, -1);
    const topic = this.topics.get(name);
    if (topic === undefined) return;
    const at = { epoch: Number(epoch), seq: Number(seq) };
    const verdict = topic.message(at);
    if (verdict === "deliver") this.out.push({ kind: "topic message", topic: name, at, frame });
    if (verdict === "recover") this.askTopic(topic, now);
  }

  private gap(gap: Gap, now: number): void {
    const topic = this.topics.get(gap.topic);
    const verdict = topic?.gap(gap);
    if (verdict === "tell") this.event({ type: "gap", gap });
    if (verdict === "recover") this.askTopic(topic as Topic, now);
  }

  private drained(name: string, now: number): void {
    const topic = this.topics.get(name);
    if (topic?.isStalled === true && this.isOpen) this.askTopic(topic, now);
  }

  private unsubscribe(name: string, key: number, now: number): void {
    const topic = this.topics.get(name);
    if (topic === undefined || !this.isOpen) {
      if (topic !== undefined) this.endTopic(topic, null, null);
      return this.resolve(key, null);
    }
    this.endTopic(topic, null, null);
    this.undo(key, "hub:unsubscribe", { topic: name }, now);
  }

  private unsubscribed(name: string, reason: string | null): void {
    const topic = this.topics.get(name);
    if (topic?.isLive === true) this.endTopic(topic, reason, null);
  }

  private endTopic(topic: Topic, reason: string | null, error: HubError | null): void {
    this.topics.delete(topic.name);
    this.reject(topic.key, error ?? new HubError("closed", `the subscription has ended: \`${topic.name}\``));
    this.out.push({ kind: "topic end", topic: topic.name, reason, error });
  }

  // Sending

  private ask(owner: Owner, type: string, payload: unknown, now: number): void {
    this.call(owner, { type, payload, pattern: "ask" }, now);
  }

  private undo(key: number, type: string, payload: unknown, now: number): void {
    this.call({ kind: "user", key }, { type, payload, pattern: "ask", endsWithConnection: true }, now);
  }

  private call(owner: Owner, call: Call, now: number): void {
    if (this.phase.name === "closing") return this.reject(keyOf(owner), isClosed(null));
    const error = this.calls.add(call.id ?? this.options.newId(), owner, call, now);
    if (error !== null) this.reject(keyOf(owner), error);
  }

  /** Writes all calls that may be written now. */
  private flush(now: number, room: number): void {
    this.crowded = false;
    this.heldUntil = Infinity;
    if (!this.isOpen || this.paused) return;
    if (now < this.holdUntil) {
      if (!this.calls.isEmpty) this.heldUntil = this.holdUntil;
      return;
    }
    for (;;) {
      const pending = this.calls.next(this.phase.name !== "ready");
      if (pending === undefined) return;
      if (room <= 0) {
        this.crowded = true;
        return;
      }
      room -= this.write(pending, now);
    }
  }

  private write(pending: Pending, now: number): number {
    const text = render(pending, this.sender());
    const error = expired(pending, now) ?? tooLarge(text, (this.connected as Connected).maxMessageSize);
    if (error !== null) {
      this.calls.remove(pending);
      this.failed(pending, error, now);
      return 0;
    }
    this.out.push({ kind: "send", text });
    this.calls.sent(pending);
    if (pending.call.pattern === "tell" && pending.call.expectReply !== true) this.resolve(keyOf(pending.owner), null);
    return text.length;
  }

  /** Returns the default sender: the first registered address, or the session itself. */
  private sender(): string {
    for (const lease of this.leases.values()) if (lease.renewalToken !== null) return lease.wanted.address;
    return (this.connected as Connected).address;
  }

  /** Returns a frame that is exempt from pauses and queues. */
  private control(type: string, pattern: "ask" | "tell", payload: unknown, now: number, id?: string, from?: string): void {
    const head = { id: id ?? this.options.newId(), from: from ?? this.address ?? "@(session/new)", to: HUB, type, pattern };
    const rest = { correlationId: null, timestamp: now, payload, metadata: {}, ttl: null, signature: null };
    this.out.push({ kind: "send", text: JSON.stringify({ ...head, ...rest }) });
  }

  private event(event: HubEvent): void {
    this.out.push({ kind: "event", event });
  }

  private resolve(key: number | null, frame: Envelope | null): void {
    if (key !== null) this.out.push({ kind: "resolve", key, frame });
  }

  private reject(key: number | null, error: HubError): void {
    if (key !== null) this.out.push({ kind: "reject", key, error });
  }
}

function keyOf(owner: Owner): number | null {
  return owner.kind === "user" ? owner.key : null;
}

function isClosed(cause: HubError | null): HubError {
  return new HubError("closed", "the hub is closed", cause === null ? {} : { cause });
}
