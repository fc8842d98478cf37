/** The addresses that the user registers, and their leases. */
import { RENEWALS_PER_LEASE } from "./limits.js";
import type { Metadata } from "./protocol.js";

export interface Registration {
  address: string;
  capabilities?: string[];
  metadata?: Metadata;
  /** 10 to 3600; the hub's default is 300. */
  ttlSeconds?: number;
}

export interface Lease {
  readonly wanted: Registration;
  /** The call that waits for the first answer. */
  key: number | null;
  renewalToken: string | null;
  renewAt: number;
}

export function newLease(wanted: Registration, key: number | null): Lease {
  return { wanted, key, renewalToken: null, renewAt: Infinity };
}

/** The payload of `hub:register`. */
export function registerPayload({ address, capabilities, metadata, ttlSeconds }: Registration): Metadata {
  return {
    actorAddress: address,
    capabilities: capabilities ?? [],
    metadata: metadata ?? {},
    ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
  };
}

/** Returns when to renew. Both times are the hub's, so that this machine's clock is irrelevant. */
export function renewTime(now: number, expiresAt: number, answeredAt: number): number {
  return now + Math.max(0, expiresAt - answeredAt) / RENEWALS_PER_LEASE;
}
