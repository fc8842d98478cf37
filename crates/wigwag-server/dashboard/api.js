// The session, and requests to the API: token, scopes, problem documents, abort, retry of reads.
import { parse, stringify } from "./words.js";

/** @typedef {import("./types.d.ts").Me} Me */

const STORED = "wigwag.token", NAME = "wigwag.by";

/** @type {{token: string | null, me: Me | null}} */
export const session = { token: null, me: null };

/** Takes a token from `#token=…`, which leaves the address at once, or from this tab's storage. */
export function restore() {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (given) history.replaceState(null, "", location.pathname + location.search);
  session.token = given ? decodeURIComponent(given) : read(STORED);
  if (given) write(STORED, session.token);
}

/** @param {string | null} token */
export function signIn(token) { session.token = token; session.me = null; write(STORED, token); }

/** Whether the token has a scope; without tokens everything is allowed. @param {string} scope */
export function may(scope) {
  const scopes = session.me?.scopes;
  return !scopes || !scope || scopes.some((one) => one === "admin" || one === scope || (one === "signals:*" && scope.startsWith("signals:")));
}
/** Why a control is off, if it is. @param {string} scope */
export const lacks = (scope) => (may(scope) ? null : `Needs the scope ${scope}`);

/** In whose name signals are sent, where that is free. */
export const sender = () => session.me?.name ?? read(NAME) ?? "";
/** @param {string} name */
export const rememberSender = (name) => write(NAME, name || null);

/** Storage may be off; then nothing is remembered. @param {string} key */
function read(key) { try { return sessionStorage.getItem(key); } catch { return null; } }
/** @param {string} key @param {string | null} value */
function write(key, value) { try { if (value) sessionStorage.setItem(key, value); else sessionStorage.removeItem(key); } catch { /* private mode */ } }

/** A problem document, or a connection that failed (`code` is `no_connection`). */
export class Problem extends Error {
  /** @param {any} document @param {string} [trace] */
  constructor(document, trace = "") {
    super(document.detail ?? document.title ?? "unknown problem");
    this.code = String(document.code ?? "unknown");
    this.status = Number(document.status ?? 0);
    this.title = String(document.title ?? "Problem");
    this.detail = String(document.detail ?? "");
    this.hint = String(document.hint ?? "");
    /** @type {import("./types.d.ts").FieldProblem[]} */
    this.errors = document.errors ?? [];
    this.trace = trace;
  }
}

/** @type {{unauthorized: () => void, offline: (is: boolean) => void}} */
export const events = { unauthorized: () => {}, offline: () => {} };
/** Called once when the server answers again. @type {Set<() => void>} */
export const returns = new Set();
/** @param {boolean} is */
function setOffline(is) {
  events.offline(is);
  if (!is) for (const one of [...returns]) { returns.delete(one); one(); }
}

const base = { url: "", token: /** @type {null | (() => Promise<string>)} */ (null) };
/** Asks another server, for embedded elements. @param {string} url @param {null | (() => Promise<string>)} token */
export function useServer(url, token) { base.url = url.replace(/\/$/, ""); base.token = token; }
export const serverUrl = () => base.url || location.origin;
export const currentToken = async () => (base.token ? base.token() : session.token);

/** Asks the API. @param {string} method @param {string} path @param {{body?: any, key?: string, signal?: AbortSignal, tries?: number}} [options] @returns {Promise<any>} */
export async function call(method, path, options = {}) {
  const { body, key, signal, tries = method === "GET" ? 3 : 1 } = options;
  const token = await currentToken();
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json" };
  if (token) headers.authorization = "Bearer " + token;
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key) headers["idempotency-key"] = key;
  let response;
  try {
    response = await fetch(base.url + path, { method, headers, signal, redirect: "error", cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer", body: body === undefined ? undefined : stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    if (tries > 1) { await pause(250); return call(method, path, { ...options, tries: tries - 1 }); }
    setOffline(true);
    throw new Problem({ code: "no_connection", title: "No connection", detail: "The server does not answer.", hint: "Check whether it runs; the page tries again by itself." });
  }
  setOffline(false);
  const text = await response.text(), trace = response.headers.get("traceparent")?.split("-")[1] ?? "";
  if (response.ok) return text ? parse(text) : null;
  let document;
  try { document = parse(text); } catch { document = { title: "Unexpected answer", status: response.status, code: "unknown", detail: `The server answered ${response.status} without a problem document.` }; }
  if (response.status === 401) events.unauthorized();
  throw new Problem(document, trace);
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => call("GET", path, { signal });
/** @param {string} path @param {any} body @param {string} [key] */
export const post = (path, body, key) => call("POST", path, { body, key });
/** @param {number} time */
export const pause = (time) => new Promise((done) => setTimeout(done, time));
/**
 * Throttles `doing`: at most one call per interval, and never two concurrent calls. A later request does not delay an earlier one, so that a
 * list refreshes also while changes are more frequent than the interval. Slow calls lengthen the interval.
 * @param {() => Promise<any> | void} doing @param {number | (() => number)} interval
 */
export function paced(doing, interval) {
  let timer = /** @type {any} */ (0), at = 0, next = 0, isBusy = false, isDue = false, isOver = false;
  const run = async () => {
    [timer, isBusy, isDue] = [0, true, false];
    const began = Date.now();
    try { await doing(); } catch { /* the banner or the screen says it */ }
    isBusy = false;
    next = Date.now() + Math.max(typeof interval === "number" ? interval : interval(), 2 * (Date.now() - began));
    if (isDue) soon(0);
  };
  /** @param {number} wait */
  function soon(wait) {
    if (isOver) return;
    if (isBusy) { isDue = true; return; }
    const then = Math.max(Date.now() + wait, next);
    if (timer && at <= then) return;
    clearTimeout(timer);
    at = then;
    timer = setTimeout(run, then - Date.now());
  }
  return { soon, stop: () => { isOver = true; clearTimeout(timer); } };
}
const STEPS_PAGE = 500, STEPS_MAX = 5000;
/** The steps of a run without their results, page by page; `more` says whether it has more than are read. @param {string} path @param {AbortSignal} [signal] @param {number} [most] */
export async function allSteps(path, signal, most = STEPS_MAX) {
  /** @type {any[]} */
  const items = [];
  let after = /** @type {string | undefined} */ (undefined);
  do {
    const page = await get(`${path}/steps${query({ limit: STEPS_PAGE, whole: "false", after })}`, signal);
    items.push(...page.items);
    after = page.next;
  } while (after && items.length < most);
  return { items, more: Boolean(after) };
}

/** Dollars at S3 list prices of one GET and one LIST, and what the reads of one list may cost in an hour of a visible tab. */
const GET_DOLLARS = 4e-7, LIST_DOLLARS = 5e-6, LIST_HOUR_DOLLARS = 0.0015, BUCKET_LIST_MS = 120e3;
/** Time between two reads of a list of runs on a bucket: the server reads two objects of each run that it examines. @param {number} examined */
export const listInterval = (examined) => Math.max(BUCKET_LIST_MS, ((2 * examined * GET_DOLLARS + 2 * LIST_DOLLARS) / LIST_HOUR_DOLLARS) * 3600e3);
/** A key under which a request happens once, however often it is sent. */
export const newKey = () => crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
/** @param {Record<string, string | number | null | undefined>} parts */
export function query(parts) {
  const found = Object.entries(parts).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return found.length ? "?" + new URLSearchParams(found.map(([k, v]) => [k, String(v)])).toString() : "";
}
/** Path of a run or task in the API. @param {string} id @param {boolean} [task] */
export const runPath = (id, task = false) => `/v1/${task ? "tasks" : "runs"}/${encodeURIComponent(id)}`;
