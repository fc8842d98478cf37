/** The subset of WebSocket that this client needs: available in browsers, in Node from 22 on, and in the `ws` package. */
import { HubError } from "./errors.js";

export interface SocketLike {
  readonly bufferedAmount: number;
  onopen: ((event: never) => unknown) | null;
  onmessage: ((event: never) => unknown) | null;
  onclose: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type SocketConstructor = new (url: string) => SocketLike;

/** Returns the given constructor, or the global one. */
export function socketConstructor(given: SocketConstructor | undefined): SocketConstructor {
  const found = given ?? (globalThis as { WebSocket?: SocketConstructor }).WebSocket;
  if (found !== undefined) return found;
  throw new HubError("invalid_call", "there is no `WebSocket` here", {
    hint: "give one in the options (`WebSocket`), use Node 22, or start Node 20 with `--experimental-websocket`",
  });
}

/** Returns the WebSocket URL; `http` is converted to `ws`, since the hub is part of the server. */
export function socketUrl(url: string): string {
  const parsed = new URL(url);
  if (parsed.protocol === "http:") parsed.protocol = "ws:";
  if (parsed.protocol === "https:") parsed.protocol = "wss:";
  if (parsed.protocol !== "ws:" && parsed.protocol !== "wss:") throw new TypeError(`not an address of a hub (want \`ws://…/hub\`): \`${url}\``);
  return parsed.href;
}

/** Callbacks of one socket. */
export interface Ears {
  opened(): void;
  heard(text: string): void;
  closed(code: number, reason: string): void;
}

export function listen(socket: SocketLike, ears: Ears): void {
  socket.onopen = () => ears.opened();
  socket.onmessage = (event: { data: unknown }) => {
    if (typeof event.data === "string") ears.heard(event.data);
  };
  socket.onclose = (event: { code?: number; reason?: string }) => ears.closed(event.code ?? 1006, String(event.reason ?? ""));
  // `close` usually follows with more detail, but not in Node 20 if the connection was never established.
  socket.onerror = () => setTimeout(() => socket.onclose?.({ code: 1006, reason: "the connection failed" } as never), 0);
}

/** Removes all callbacks of this socket. */
export function deafen(socket: SocketLike): void {
  socket.onopen = null;
  socket.onmessage = null;
  socket.onclose = null;
  socket.onerror = () => undefined;
}
