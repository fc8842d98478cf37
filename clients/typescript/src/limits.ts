/** Every limit and time of this client, each with its reason. */

/** As the hub's protocol requires: 30 s for each of three attempts, with waits of 1 s × attempt between them. */
export const ASK_TIMEOUT_MS = 30_000;
export const ASK_ATTEMPTS = 3;
export const ASK_WAIT_MS = 1_000;

/** The hub sends a timeout for a missing reply; this much later the client does so itself, in case the hub has lost the request. */
export const REPLY_GRACE_MS = 5_000;

/** Limits of unsettled calls while there is no connection, or during a pause. */
export const BUFFER_MESSAGES = 1_000;
export const BUFFER_BYTES = 8 * 1024 * 1024;

/** Maximum bytes buffered in the socket, which has no limit of its own and does not report completed writes. */
export const SOCKET_BYTES = 1024 * 1024;
export const SOCKET_LOOK_AGAIN_MS = 10;

/** Maximum messages that wait for slow handlers and iterators. */
export const INBOX_MESSAGES = 1_000;
export const TOPIC_MESSAGES = 1_000;

/** Number of forwarded ids remembered; the hub's queue holds 100, so a repeat is far more recent. */
export const SEEN_IDS = 10_000;

/** The hub requires `hub:connect` within 10 s of the opening; after this time, the handshake has failed. */
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

/** After this many heartbeat intervals without a frame, the connection counts as dead, as it does for the hub. */
export const SILENT_INTERVALS = 3;

/** Two renewals may be lost before a lease ends. */
export const RENEWALS_PER_LEASE = 3;

/** Delay before a failed registration is retried. */
export const REGISTER_AGAIN_MS = 10_000;

/** How long `close()` waits for the hub to close. */
export const CLOSE_TIMEOUT_MS = 2_000;
