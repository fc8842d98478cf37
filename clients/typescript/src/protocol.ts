/** The frames of the hub, as specified in `docs/reference/hub.md`. */

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

/** A position in a topic: its epoch, and the number of a message. */
export interface Position {
  epoch: number;
  seq: number;
}

/** Payload of `hub:connected`. */
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

/** Messages of a topic that are no longer available; `from` null: their number is unknown. */
export interface Gap {
  topic: string;
  epoch: number;
  from: number | null;
  to: number | null;
}

/** An actor as listed by `discover` and `actors`. */
export interface Actor {
  actorAddress: string;
  capabilities: string[];
  metadata: Metadata;
  version: number;
  registeredAt: number;
  expiresAt: number;
}

/** Returns the address of a run, which accepts signals. */
export function runAddress(run: string): string {
  return `@(workflow/${run})`;
}

/** Returns the topic with a run's log. */
export function runTopic(run: string): string {
  return `run/${run}`;
}

/** Whether a topic is a run's log: by default, a log is read from its beginning, other topics from now on. */
export function isRunTopic(topic: string): boolean {
  return topic.startsWith("run/");
}

/** Parses a frame; null if the text is not an envelope (a `pong` is not). */
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

/** Returns the value if it is an object, else an empty one. */
export function object(value: unknown): { [key: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as { [key: string]: unknown }) : {};
}

/** Returns the length of a text in bytes of UTF-8. */
export function byteLength(text: string): number {
  return encoder.encode(text).length;
}

const encoder = new TextEncoder();

function asText(value: unknown): string {
  return typeof value === "string" ? value : "";
}
