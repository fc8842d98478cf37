/** Every limit and time of this client, each with its reason. */

/** What the hub's page asks for: 30 s for each of three attempts, with waits of 1 s × attempt between them. */
export const ASK_TIMEOUT_MS = 30_000;
export const ASK_ATTEMPTS = 3;
export const ASK_WAIT_MS = 1_000;

/** The hub answers for a reply that does not come; this much later the client does it itself, should the hub have forgotten. */
export const REPLY_GRACE_MS = 5_000;

/** What may wait in the client while there is no connection, or a pause. */
export const BUFFER_MESSAGES = 1_000;
export const BUFFER_BYTES = 8 * 1024 * 1024;

/** What may lie in the socket: it has no bound of its own, and says nothing when it has written. */
export const SOCKET_BYTES = 1024 * 1024;
export const SOCKET_LOOK_AGAIN_MS = 10;

/** What may wait for handlers and iterators that are slower than the hub. */
export const INBOX_MESSAGES = 1_000;
export const TOPIC_MESSAGES = 1_000;

/** As many forwarded ids are remembered; a queue holds 100, so a repeat lies far below. */
export const SEEN_IDS = 10_000;

/** The hub wants `hub:connect` within 10 s of the opening; a handshake beyond this will not come. */
export const CONNECT_TIMEOUT_MS = 15_000;

/** Waits between attempts to connect: doubled each time, and a random part of them. */
export const BACKOFF_MIN_MS = 100;
export const BACKOFF_MAX_MS = 30_000;

/** Maximum moves between servers within that time, in case targets are at two servers. */
export const MOVES_MAX = 3;
export const MOVES_WITHIN_MS = 10_000;

/** Failed connections to another server after which the client returns to its first one. */
export const HOME_AFTER = 3;

/** A connection that lived this long was a good one: the next wait is short again. */
export const SETTLED_MS = 5_000;

/** After so many heartbeat intervals without a frame the connection counts as dead, as it does for the hub. */
export const SILENT_INTERVALS = 3;

/** Two renewals may be lost before a lease ends. */
export const RENEWALS_PER_LEASE = 3;

/** An address that could not be registered for now is tried again after this. */
export const REGISTER_AGAIN_MS = 10_000;

/** How long `close()` waits for the hub to close. */
export const CLOSE_TIMEOUT_MS = 2_000;
