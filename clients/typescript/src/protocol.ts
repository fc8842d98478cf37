/** The frames of the hub, as `docs/reference/hub.md` has them. */

export const PROTOCOL_VERSION = "0.1.0";
export const HUB = "@(hub)";

export type Pattern = "ask" | "tell";
export type Metadata = { [key: string]: unknown };

/** One frame, in either direction. */
export interface Envelope {
  id: string;
  from: string;
  to: string;
  type: string;
  pattern: Pattern;
  timestamp: number;
  correlationId: string | null;
  payload: unknown;
  metadata: Metadata;
  ttl: number | null;
}

/** Where a topic is: its epoch, and the number of a message in it. */
export interface Position {
  epoch: number;
  seq: number;
}

/** What `hub:connected` says. */
export interface Connected {
  sessionId: string;
  address: string;
  resumed: boolean;
  serverVersion: string;
  protocolVersion: string;
  serverTime: number;
  maxMessageSize: number;
  heartbeatInterval: number;
  limits: Metadata;
}

/** Messages of a topic that cannot be had any more; `from` null: nobody knows how many. */
export interface Gap {
  topic: string;
  epoch: number;
  from: number | null;
  to: number | null;
}

/** An actor as `discover` and `actors` show it. */
export interface Actor {
  actorAddress: string;
  capabilities: string[];
  metadata: Metadata;
  version: number;
  registeredAt: number;
  expiresAt: number;
}

/** The address of a run, which takes signals. */
export function runAddress(run: string): string {
  return `@(workflow/${run})`;
}

/** The topic with a run's log. */
export function runTopic(run: string): string {
  return `run/${run}`;
}

/** A log is read from its beginning unless told otherwise; other topics from now on. */
export function isRunTopic(topic: string): boolean {
  return topic.startsWith("run/");
}

/** The frame in a text, or null if it is none (a `pong` is none). */
export function parse(text: string): Envelope | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const frame = object(value);
  if (typeof frame["id"] !== "string" || typeof frame["type"] !== "string" || typeof frame["from"] !== "string") return null;
  return {
    ...frame,
    id: frame["id"],
    from: frame["from"],
    to: asText(frame["to"]),
    type: frame["type"],
    pattern: frame["pattern"] === "ask" ? "ask" : "tell",
    timestamp: Number(frame["timestamp"] ?? 0),
    correlationId: typeof frame["correlationId"] === "string" ? frame["correlationId"] : null,
    payload: frame["payload"] ?? null,
    metadata: object(frame["metadata"]),
    ttl: typeof frame["ttl"] === "number" ? frame["ttl"] : null,
  };
}

/** The value as an object; an empty one if it is none. */
export function object(value: unknown): { [key: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as { [key: string]: unknown }) : {};
}

/** How many bytes a text has on the wire. */
export function byteLength(text: string): number {
  return encoder.encode(text).length;
}

const encoder = new TextEncoder();

function asText(value: unknown): string {
  return typeof value === "string" ? value : "";
}
