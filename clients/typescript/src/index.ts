/** Clients of the wigwag hub and of the HTTP API, for browsers and Node. */
export { connect, Hub, type ActorPage, type Broadcast, type Published, type TopicPage } from "./hub.js";
export { HubError, type ErrorCode } from "./errors.js";
export type { Registration } from "./leases.js";
export type { Delivery, Message, Reply, RunEntry, TopicMessage } from "./messages.js";
export type * from "./options.js";
export type { Actor, Connected, Gap, Metadata, Position } from "./protocol.js";
export type { SocketConstructor, SocketLike } from "./socket.js";
export type { HubEvent } from "./steps.js";
export type { Subscription } from "./subscription.js";
export { ApiError, Client, type HttpOptions, type Input } from "./http.js";
export { OPERATIONS, type Operations } from "./api.js";
export type * as api from "./api.js";
