/** The client of the wigwag hub, for browsers and Node. */
export { connect, Hub, type ActorPage, type Broadcast, type Published } from "./hub.js";
export { HubError, type ErrorCode } from "./errors.js";
export type { Registration } from "./leases.js";
export type { Delivery, Message, Reply, RunEntry, TopicMessage } from "./messages.js";
export type * from "./options.js";
export type { Actor, Connected, Gap, Metadata, Position } from "./protocol.js";
export type { SocketConstructor, SocketLike } from "./socket.js";
export type { HubEvent } from "./steps.js";
export type { Subscription } from "./subscription.js";
