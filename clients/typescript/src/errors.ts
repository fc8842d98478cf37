/** Errors with a hint for their solution. */
import { object, type Envelope } from "./protocol.js";

/** The hub's error codes, and those of this client: `buffer_full`, `closed`, `inbox_full`, `already_subscribed`, `invalid_call`. */
export type ErrorCode =
  | "timeout"
  | "message_expired"
  | "invalid_message"
  | "version_mismatch"
  | "queue_full"
  | "conflict"
  | "elsewhere"
  | "internal_error"
  | "unknown_actor"
  | "unauthorized"
  | "rate_limited"
  | "message_too_large"
  | "buffer_full"
  | "inbox_full"
  | "already_subscribed"
  | "invalid_call"
  | "handler_failed"
  | "closed";

export interface ErrorFields {
  hint?: string | null;
  retryable?: boolean;
  details?: unknown;
  retryAfter?: number | null;
  cause?: unknown;
}

export class HubError extends Error {
  override readonly name = "HubError";
  readonly code: ErrorCode;
  readonly hint: string | null;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  readonly details: unknown;
  /** Milliseconds to wait before a retry; only for `rate_limited`. */
  readonly retryAfter: number | null;

  constructor(code: ErrorCode, message: string, fields: ErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = code;
    this.hint = fields.hint ?? null;
    this.retryable = fields.retryable ?? false;
    this.details = fields.details ?? null;
    this.retryAfter = fields.retryAfter ?? null;
  }
}

/** Returns the error that a frame of the hub reports, or null. */
export function errorIn(frame: Envelope): HubError | null {
  const payload = object(frame.payload);
  const code = codeOf(frame.type, payload["code"]);
  if (code === null) return null;
  const { message, hint, retryable, retryAfter } = payload;
  return new HubError(code, typeof message === "string" ? message : code, {
    hint: typeof hint === "string" ? hint : null,
    retryable: retryable === true,
    details: payload["details"] ?? payload,
    retryAfter: typeof retryAfter === "number" ? retryAfter : null,
  });
}

const TYPES: { [type: string]: ErrorCode } = {
  "hub:unknown_actor": "unknown_actor",
  "hub:unauthorized": "unauthorized",
  "hub:rate_limited": "rate_limited",
  "hub:message_too_large": "message_too_large",
};

function codeOf(type: string, code: unknown): ErrorCode | null {
  if (type === "hub:error") return typeof code === "string" ? (code as ErrorCode) : "internal_error";
  return TYPES[type] ?? null;
}
