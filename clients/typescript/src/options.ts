/** Options of connections and messages. */
import type { Registration } from "./leases.js";
import type { Metadata, Position } from "./protocol.js";
import type { SocketConstructor } from "./socket.js";

export interface ConnectOptions {
  /** A token, or a function called at each connection, which must return another token after one was rejected. */
  token?: string | (() => string | Promise<string>);
  /** Addresses to hold for as long as the hub is open. */
  register?: Registration[];
  capabilities?: string[];
  /** A constructor for runtimes without a global `WebSocket` (Node 20). */
  WebSocket?: SocketConstructor;
  buffer?: BufferOptions;
}

/** Limits of unsettled calls: tells that are not written, asks that are not answered. */
export interface BufferOptions {
  /** Maximum number of calls; 1,000 by default. */
  messages?: number;
  /** Maximum bytes; 8 MiB by default. */
  bytes?: number;
  /** When the buffer is full: `reject` (the default) fails the call with `buffer_full`, `wait` delays it until there is room. */
  whenFull?: "reject" | "wait";
}

export interface SendOptions {
  /** One of this client's addresses; by default the first one registered, or the session's. */
  from?: string;
  /** Time to live in ms. */
  ttl?: number;
  metadata?: Metadata;
  /** Id for deduplication, also across restarts of this program; random by default. */
  id?: string;
}

export interface AskOptions extends SendOptions {
  /** Require an acknowledgement: `delivered` then means that the target has processed the message. */
  requireAck?: boolean;
}

export interface TellOptions extends SendOptions {
  /** Keeps the message if the target is away. */
  queue?: boolean;
}

export interface BroadcastOptions extends SendOptions {
  excludeSelf?: boolean;
  capability?: string;
}

export interface SubscribeOptions {
  /** Replay messages after this position first, as far as the hub still has them. */
  after?: Position;
}

export interface PageOptions {
  /** Page size, 1 to 1000; 100 by default. */
  limit?: number;
  /** `next` of the previous page. */
  after?: string;
}

export interface DiscoverOptions extends PageOptions {
  capability?: string;
}
