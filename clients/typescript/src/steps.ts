/** Inputs and outputs of a session. */
import type { Call } from "./calls.js";
import type { HubError } from "./errors.js";
import type { Registration } from "./leases.js";
import type { Connected, Envelope, Gap, Position } from "./protocol.js";

export type Input =
  | { kind: "start" }
  | { kind: "opened"; token: string | null }
  | { kind: "frame"; text: string }
  | { kind: "closed"; code: number; reason: string }
  | { kind: "tick" }
  | { kind: "call"; key: number; call: Call }
  | { kind: "register"; key: number | null; registration: Registration }
  | { kind: "unregister"; key: number; address: string }
  | { kind: "subscribe"; key: number; topic: string; after: Position | null }
  | { kind: "unsubscribe"; key: number; topic: string }
  | { kind: "overflow"; topic: string; at: Position }
  | { kind: "drained"; topic: string }
  | { kind: "acknowledge"; id: string; from: string }
  | { kind: "progress"; id: string; from: string }
  | { kind: "forget"; id: string }
  | { kind: "close" };

export type Output =
  | { kind: "open" }
  /** Use another server from the next `open` on; null: the first one again. */
  | { kind: "move"; url: string | null }
  | { kind: "send"; text: string }
  | { kind: "shut"; code: number }
  | { kind: "resolve"; key: number; frame: Envelope | null }
  | { kind: "reject"; key: number; error: HubError }
  | { kind: "message"; frame: Envelope }
  | { kind: "topic message"; topic: string; at: Position; frame: Envelope }
  | { kind: "topic end"; topic: string; reason: string | null; error: HubError | null }
  | { kind: "event"; event: HubEvent }
  | { kind: "ended"; error: HubError | null };

export type HubEvent =
  | { type: "connected"; connected: Connected }
  | { type: "disconnected"; code: number; reason: string; returns: boolean; inMs: number | null }
  | { type: "moved"; url: string }
  | { type: "registered"; address: string; version: number }
  | { type: "paused"; address: string | null }
  | { type: "resumed" }
  | { type: "gap"; gap: Gap }
  | { type: "error"; error: HubError };

export interface SessionOptions {
  capabilities: string[];
  bufferMessages: number;
  bufferBytes: number;
  /** Whether a rejected token can be replaced by another. */
  freshTokens: boolean;
  newId: () => string;
  random: () => number;
}
