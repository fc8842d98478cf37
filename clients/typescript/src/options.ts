/** What the user may say about a connection and a message. */
import type { Registration } from "./leases.js";
import type { Metadata, Position } from "./protocol.js";
import type { SocketConstructor } from "./socket.js";

export interface ConnectOptions {
  /** A token, or what gives one; it is asked for one at every connection, and must give another after one was refused. */
  token?: string | (() => string | Promise<string>);
  /** Addresses to hold for as long as the hub is open. */
  register?: Registration[];
  capabilities?: string[];
  /** Where there is no global `WebSocket` (Node 20). */
  WebSocket?: SocketConstructor;
  buffer?: BufferOptions;
}

/** What may be unsettled: tells that are not written, asks that are not answered. */
export interface BufferOptions {
  /** 1,000 unless told. */
  messages?: number;
  /** 8 MiB unless told. */
  bytes?: number;
  /** `reject` (unless told): the call fails with `buffer_full`. `wait`: it begins when there is room. */
  whenFull?: "reject" | "wait";
}

export interface SendOptions {
  /** One of this client's addresses; unless told the first that it holds, or the session's. */
  from?: string;
  /** How long the message is worth anything, in ms. */
  ttl?: number;
  metadata?: Metadata;
  /** To recognise a repeat by, also across restarts of this program; random unless told. */
  id?: string;
}

export interface AskOptions extends SendOptions {
  /** `delivered` then means that the target has dealt with it. */
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
  /** What came after this is sent first, as far as the hub still has it. */
  after?: Position;
}

export interface PageOptions {
  /** 1 to 1000; 100 unless told. */
  limit?: number;
  /** `next` of the page before. */
  after?: string;
}

export interface DiscoverOptions extends PageOptions {
  capability?: string;
}
