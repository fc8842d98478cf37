/** Whether to reconnect after a connection has ended, and when. */
import { BACKOFF_MAX_MS, BACKOFF_MIN_MS } from "./limits.js";

export type Return = "at once" | "later" | "with a new token" | "never";

/** Implements the hub's table of close codes. */
export function comeBack(code: number): Return {
  switch (code) {
    case 1001:
      return "at once";
    case 4001:
      return "with a new token";
    case 1000: // the client asked
    case 1009: // the same frame would do it again
    case 4000: // another has the address; two that take it from each other would never end
    case 4004:
      return "never";
    default:
      return "later";
  }
}

/** Returns the delay before the attempt with this number (from 0): half of it is random, so that clients do not reconnect simultaneously. */
export function backoff(attempt: number, random: number): number {
  const whole = Math.min(BACKOFF_MAX_MS, BACKOFF_MIN_MS * 2 ** Math.min(attempt, 30));
  return Math.round(whole / 2 + (whole / 2) * random);
}
