/**
 * The user's side of the hub: promises, handlers and iterators around a `Session`, which makes all decisions.
 *
 * Holds: inputs are processed one at a time, in order, also those caused by handlers; events of an
 * abandoned socket are ignored.
 */
import type { Call } from "./calls.js";
import { Emitter } from "./emitter.js";
import { HubError } from "./errors.js";
import type { Registration } from "./leases.js";
import * as limits from "./limits.js";
import { Inbox, message, topicMessage, type Delivery, type Message, type Reply, type RunEntry, type TopicMessage } from "./messages.js";
import type * as options from "./options.js";
import { object, runAddress, runTopic, type Actor, type Connected, type Envelope, type Metadata, type Position } from "./protocol.js";
import { Session } from "./session.js";
import { deafen, listen, socketConstructor, socketUrl, type SocketConstructor, type SocketLike } from "./socket.js";
import type { HubEvent, Input, Output } from "./steps.js";
import { Subscription } from "./subscription.js";

/** Opens a connection and keeps it until `close()`. Calls can be made immediately; they wait for the connection. */
export function connect(url: string, options: options.ConnectOptions = {}): Hub {
  return new Hub(url, options);
}

/** A page of topics: subscribers of each, and the number of its newest message. */
export interface TopicPage {
  topics: { topic: string; subscribers: number; epoch: number; seq: number }[];
  hasMore: boolean;
  next: string | null;
}

/** A page of actors; `next` is the cursor of the next page. */
export interface ActorPage {
  actors: Actor[];
  hasMore: boolean;
  next: string | null;
}

export interface Broadcast {
  id: string;
  deliveredCount: number;
  queuedCount: number;
  failedCount: number;
}

export interface Published extends Position {
  topic: string;
  subscriberCount: number;
}

type Settle = { resolve: (frame: Envelope | null) => void; reject: (error: unknown) => void };

export class Hub {
  private url: string;
  /** The server that the client was created for. */
  private readonly home: string;
  private readonly WebSocket: SocketConstructor;
  private readonly session: Session;
  private readonly emitter = new Emitter<HubEvent>();
  private readonly settles = new Map<number, Settle>();
  private readonly subscriptions = new Map<string, Subscription>();
  private readonly inbox = new Inbox<Message>(limits.INBOX_MESSAGES);
  private readonly inputs: Input[] = [];
  private readonly waiters: { key: number; call: Call }[] = [];
  private socket: SocketLike | null = null;
  /** Incremented whenever a socket is opened or abandoned; events of older sockets are ignored. */
  private generation = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stepping = false;
  private nextKey = 1;
  /** Resolves when the hub has ended, with the error unless the user closed it. */
  readonly closed: Promise<HubError | null>;
  private onEnded: (error: HubError | null) => void = () => undefined;

  /** @internal Use `connect`. */
  constructor(
    url: string,
    private readonly options: options.ConnectOptions,
  ) {
    this.url = socketUrl(url);
    this.home = this.url;
    this.WebSocket = socketConstructor(options.WebSocket);
    this.closed = new Promise((resolve) => (this.onEnded = resolve));
    this.session = new Session({
      capabilities: options.capabilities ?? [],
      bufferMessages: options.buffer?.messages ?? limits.BUFFER_MESSAGES,
      bufferBytes: options.buffer?.bytes ?? limits.BUFFER_BYTES,
      freshTokens: typeof options.token === "function",
      newId: randomId,
      random: Math.random,
    });
    for (const registration of options.register ?? []) this.put({ kind: "register", key: null, registration });
    this.put({ kind: "start" });
  }

  /** The session's own address, once it was connected. */
  get address(): string | null {
    return this.session.address;
  }

  /** Adds a listener. Returns a function that removes it. */
  on<Type extends HubEvent["type"]>(type: Type, listener: (event: Extract<HubEvent, { type: Type }>) => void): () => void {
    return this.emitter.on(type, listener);
  }

  /** Resolves at the next connection with all addresses registered, not with the current one. */
  nextConnection(): Promise<Connected> {
    return new Promise((resolve, reject) => {
      const off = this.on("connected", ({ connected }) => (off(), resolve(connected)));
      void this.closed.then((error) => reject(error ?? new HubError("closed", "the hub is closed")));
    });
  }

  // Messages to actors

  /** Sends at most once. Resolves when the message is written; it is lost if the target is away, unless `queue` is set. */
  async tell(to: string, type: string, data?: unknown, options: options.TellOptions = {}): Promise<void> {
    const queue = options.queue === true ? { queue: true } : {};
    await this.call({ type: "hub:send", payload: { to, type, data }, pattern: "tell", ...common(options, queue) });
  }

  /** Sends at least once. Resolves with the delivery receipt. */
  async ask(to: string, type: string, data?: unknown, options: options.AskOptions = {}): Promise<Delivery> {
    const frame = await this.call({ type: "hub:send", payload: { to, type, data }, pattern: "ask", ...asking(options) });
    return delivery(frame);
  }

  /** Sends a request. Resolves with the target's reply. */
  async request<T = unknown>(to: string, type: string, data?: unknown, options: options.AskOptions = {}): Promise<Reply<T>> {
    const payload = { to, type, data, expectReply: true };
    const frame = await this.call({ type: "hub:send", payload, pattern: "ask", expectReply: true, ...asking(options) });
    return { type: frame.type, data: frame.payload as T, from: frame.from, metadata: frame.metadata };
  }

  /** Sends to all actors that this client may send to. */
  async broadcast(type: string, data?: unknown, options: options.BroadcastOptions = {}): Promise<Broadcast> {
    const { excludeSelf, capability } = options;
    const payload = { message: { type, payload: data }, excludeSelf, capability };
    const frame = await this.call({ type: "hub:broadcast", payload, pattern: "ask", ...common(options) });
    const { deliveredCount, queuedCount, failedCount } = frame.payload as Broadcast;
    return { id: frame.correlationId ?? "", deliveredCount, queuedCount, failedCount };
  }

  /**
   * Sets the handler of messages to this client's addresses, which is called for one at a time: the next
   * waits for its promise.
   * There is one handler; earlier messages wait for it. Returns a function that removes it.
   */
  onMessage(handler: (message: Message) => unknown): () => void {
    if (this.inbox.isHandled) throw new HubError("already_subscribed", "there is a handler of messages already");
    this.inbox.handle((message) => this.deal(message, handler));
    return () => this.inbox.handle(null);
  }

  // Addresses

  /** Registers an address and keeps it registered. Resolves with its version, a fencing token, once the hub has registered it. */
  async register(registration: Registration): Promise<{ address: string; version: number; expiresAt: number }> {
    const frame = await this.promise((key) => ({ kind: "register", key, registration }));
    const { version, expiresAt } = object(frame?.payload);
    return { address: registration.address, version: Number(version), expiresAt: Number(expiresAt) };
  }

  async unregister(address: string): Promise<void> {
    await this.promise((key) => ({ kind: "unregister", key, address }));
  }

  async discover(pattern: string, options: options.DiscoverOptions = {}): Promise<ActorPage> {
    return (await this.query("hub:discover", { pattern, ...options })) as unknown as ActorPage;
  }

  async actors(options: options.PageOptions = {}): Promise<ActorPage> {
    return (await this.query("hub:list_actors", { ...options })) as unknown as ActorPage;
  }

  async topics(options: options.PageOptions = {}): Promise<TopicPage> {
    return (await this.query("hub:list_topics", { ...options })) as unknown as TopicPage;
  }

  queueStats(): Promise<Metadata> {
    return this.query("hub:queue_stats", {});
  }

  metrics(): Promise<Metadata> {
    return this.query("hub:metrics", {});
  }

  // Topics

  /** Resolves with the position of the message in its topic. */
  async publish(topic: string, type: string, data?: unknown, options: options.SendOptions = {}): Promise<Published> {
    const frame = await this.call({ type: "hub:publish", payload: { topic, type, data }, pattern: "ask", ...common(options) });
    return frame.payload as Published;
  }

  /** Subscribes to a topic, with a handler (one message at a time) or by iterating over the result. */
  subscribe<T = unknown>(topic: string, options?: options.SubscribeOptions): Subscription<T>;
  subscribe<T = unknown>(
    topic: string,
    handler: (message: TopicMessage<T>) => unknown,
    options?: options.SubscribeOptions,
  ): Subscription<T>;
  subscribe<T>(
    topic: string,
    first: ((message: TopicMessage<T>) => unknown) | options.SubscribeOptions = {},
    second: options.SubscribeOptions = {},
  ): Subscription<T> {
    const { after } = typeof first === "function" ? second : first;
    const subscription = this.newSubscription<T>(topic, after ?? null);
    if (typeof first === "function") void this.feed(subscription, first);
    return subscription;
  }

  // Runs

  /** Sends a signal to a run: `delivered` if a wait was open for it, else `queued`. */
  signal(run: string, name: string, data?: unknown, options: options.SendOptions = {}): Promise<Delivery> {
    return this.ask(runAddress(run), name, data, options);
  }

  /** Follows a run's log, from the beginning or `after`. The iteration ends with the run. */
  follow(run: string, options: options.SubscribeOptions = {}): Subscription<RunEntry> {
    return this.subscribe<RunEntry>(runTopic(run), options);
  }

  /** Disconnects. Unsettled calls are rejected with `closed`. */
  async close(): Promise<void> {
    this.put({ kind: "close" });
    await this.closed;
  }

  // Between the user and the session

  private async query(type: string, payload: unknown): Promise<Metadata> {
    return object((await this.call({ type, payload, pattern: "ask" })).payload);
  }

  /** Sends a call. A tell has no answer frame, and its callers ignore the result. */
  private async call(call: Call): Promise<Envelope> {
    const wait = this.options.buffer?.whenFull === "wait" && (this.waiters.length > 0 || !this.session.hasRoomFor(call));
    return (await this.promise((key) => (wait ? (this.waiters.push({ key, call }), null) : { kind: "call", key, call }))) as Envelope;
  }

  private promise(input: (key: number) => Input | null): Promise<Envelope | null> {
    return new Promise((resolve, reject) => {
      const key = this.nextKey++;
      this.settles.set(key, { resolve, reject });
      try {
        const made = input(key);
        if (made !== null) this.put(made);
      } catch (error) {
        this.settles.delete(key);
        reject(error);
      }
    });
  }

  private put(input: Input): void {
    this.inputs.push(input);
    if (this.stepping) return;
    this.stepping = true;
    try {
      for (let next = this.inputs.shift(); next !== undefined; next = this.inputs.shift()) this.step(next);
    } finally {
      this.stepping = false;
      this.schedule();
    }
  }

  private step(input: Input): void {
    const room = limits.SOCKET_BYTES - (this.socket?.bufferedAmount ?? 0);
    for (const output of this.session.step(input, now(), room)) this.carryOut(output);
    const next = this.inputs.length === 0 ? this.waiters[0] : undefined;
    if (next === undefined || !(this.session.isEnded || this.session.hasRoomFor(next.call))) return;
    this.waiters.shift();
    this.inputs.push({ kind: "call", ...next });
  }

  private carryOut(output: Output): void {
    switch (output.kind) {
      case "open":
        return void this.open();
      case "move":
        return this.moveTo(output.url);
      case "send":
        return this.socket?.send(output.text);
      case "shut":
        return this.shut(output.code);
      case "resolve":
        return this.settle(output.key)?.resolve(output.frame);
      case "reject":
        return this.settle(output.key)?.reject(output.error);
      case "message":
        return this.receive(output.frame);
      case "topic message":
        return this.topicMessage(output.topic, output.at, output.frame);
      case "topic end":
        this.subscriptions.get(output.topic)?.end(output.reason, output.error);
        return void this.subscriptions.delete(output.topic);
      case "event":
        return this.emitter.emit(output.event);
      case "ended":
        this.shut(1000);
        return this.onEnded(output.error);
    }
  }

  private settle(key: number): Settle | undefined {
    const settle = this.settles.get(key);
    this.settles.delete(key);
    return settle;
  }

  private schedule(): void {
    clearTimeout(this.timer);
    const soon = this.session.isCrowded ? limits.SOCKET_LOOK_AGAIN_MS : Infinity;
    const wait = Math.min(soon, Math.max(0, this.session.wakeAt - now()));
    // Timers hold at most 2³¹ ms.
    if (wait < 2 ** 31) this.timer = setTimeout(() => this.put({ kind: "tick" }), Math.ceil(wait));
  }

  // The socket

  private async open(): Promise<void> {
    const generation = ++this.generation;
    try {
      const { token } = this.options;
      const given = (typeof token === "function" ? await token() : token) ?? null;
      if (generation === this.generation) this.attach(new this.WebSocket(this.url), given);
    } catch (error) {
      if (generation === this.generation) this.put({ kind: "closed", code: 1006, reason: String(error) });
    }
  }

  /** Switches to another server for the next connection. Never downgrades from TLS. */
  private moveTo(url: string | null): void {
    if (url === null) return void (this.url = this.home);
    try {
      const there = socketUrl(url);
      if (there.startsWith("wss:") || !this.url.startsWith("wss:")) this.url = there;
    } catch {
      // Not a valid address: the next connection uses the same server.
    }
  }

  private attach(socket: SocketLike, token: string | null): void {
    this.socket = socket;
    listen(socket, {
      opened: () => this.put({ kind: "opened", token }),
      heard: (text) => this.put({ kind: "frame", text }),
      closed: (code, reason) => {
        this.shut(1000);
        this.put({ kind: "closed", code, reason });
      },
    });
  }

  private shut(code: number): void {
    this.generation += 1;
    if (this.socket === null) return;
    deafen(this.socket);
    this.socket.close(code);
    this.socket = null;
  }

  // Incoming frames and events

  private receive(frame: Envelope): void {
    const made = message(frame, {
      ack: () => this.put({ kind: "acknowledge", id: frame.id, from: frame.to }),
      progress: () => this.put({ kind: "progress", id: frame.id, from: frame.to }),
      reply: (type, data) => this.reply(frame, type, data),
    });
    if (this.inbox.push(made)) return;
    this.put({ kind: "forget", id: frame.id });
    const error = new HubError("inbox_full", `a message was dropped, for ${limits.INBOX_MESSAGES} wait for the handler`, { details: frame });
    this.emitter.emit({ type: "error", error });
  }

  private async reply(frame: Envelope, type: string, data: unknown): Promise<Delivery> {
    const from = frame.to === "@(broadcast)" ? undefined : frame.to;
    const payload = { inReplyTo: frame.id, type, data };
    return delivery(await this.call({ type: "hub:reply", payload, pattern: "ask", from }));
  }

  private async deal(message: Message, handler: (message: Message) => unknown): Promise<void> {
    let acknowledged = false;
    const ack = (): void => {
      if (!acknowledged) message.ack();
      acknowledged = true;
    };
    const done = await this.handled(message.type, () => handler({ ...message, ack }));
    if (done && message.wantsAck) ack();
    // An unprocessed message may be delivered again, if the hub still has it.
    if (!done && !acknowledged) this.put({ kind: "forget", id: message.id });
  }

  private newSubscription<T>(topic: string, after: Position | null): Subscription<T> {
    const ready = this.promise((key) => ({ kind: "subscribe", key, topic, after })).then((frame) => {
      const { epoch, seq } = object(frame?.payload);
      return { epoch, seq } as Position;
    });
    const subscription: Subscription<T> = new Subscription<T>(topic, ready, limits.TOPIC_MESSAGES, {
      drained: () => this.put({ kind: "drained", topic }),
      close: () => this.unsubscribe(topic, subscription as Subscription),
    });
    // The session rejects a second subscription to the same topic: it ends with that error, and the first continues.
    ready.catch((error: HubError) => subscription.end(null, error));
    if (!this.subscriptions.has(topic)) this.subscriptions.set(topic, subscription as Subscription);
    return subscription;
  }

  private async unsubscribe(topic: string, subscription: Subscription): Promise<void> {
    if (this.subscriptions.get(topic) !== subscription || this.session.isEnded) return;
    await this.promise((key) => ({ kind: "unsubscribe", key, topic }));
  }

  private async feed<T>(subscription: Subscription<T>, handler: (message: TopicMessage<T>) => unknown): Promise<void> {
    try {
      for await (const message of subscription) await this.handled(subscription.topic, () => handler(message));
    } catch (error) {
      this.emitter.emit({ type: "error", error: error as HubError });
    }
  }

  private async handled(what: string, handle: () => unknown): Promise<boolean> {
    try {
      await handle();
      return true;
    } catch (cause) {
      const error = new HubError("handler_failed", `a handler threw (\`${what}\`): ${String(cause)}`, { cause });
      this.emitter.emit({ type: "error", error });
      return false;
    }
  }

  private topicMessage(topic: string, at: Position, frame: Envelope): void {
    const taken = this.subscriptions.get(topic)?.push(topicMessage(topic, at, frame));
    if (taken === false) this.put({ kind: "overflow", topic, at });
  }
}

function common({ from, ttl, metadata, id }: options.SendOptions, more: Metadata = {}): Partial<Call> {
  return { from, ttl, id, metadata: { ...metadata, ...more } };
}

function asking(options: options.AskOptions): Partial<Call> {
  return common(options, options.requireAck === true ? { requireAck: true } : {});
}

function delivery(frame: Envelope): Delivery {
  const { status, deliveredAt } = object(frame.payload);
  const id = frame.correlationId ?? "";
  return { id, status: status === "queued" ? "queued" : "delivered", deliveredAt: typeof deliveredAt === "number" ? deliveredAt : null };
}

/** Returns monotonic milliseconds since 1970, unaffected by clock changes; the hub measures the offset at each connection. */
function now(): number {
  return Math.round(performance.timeOrigin + performance.now());
}

/** Returns a random id. `randomUUID` exists only in secure contexts, which excludes pages on plain HTTP in a local network. */
function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
