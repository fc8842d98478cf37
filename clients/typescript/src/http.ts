/** A client of the HTTP API: every operation by its id, retries, and problem documents as typed errors. */
import { OPERATIONS, type Operations, type Problem } from "./api.js";
import { connect } from "./hub.js";
import type { RunEntry } from "./messages.js";

export interface HttpOptions {
  /** Address of the server, such as `http://127.0.0.1:7070`. */
  url: string;
  /** A token, or a function that returns a current one. */
  token?: string | (() => Promise<string>);
  /** Maximum attempts of idempotent requests; 4 by default. */
  attempts?: number;
  /** Replaces `fetch`, for tests. */
  fetch?: typeof fetch;
}

type Given<T> = T extends undefined ? { [K in never]: never } : T;
type Part<Name extends string, T> = [T] extends [undefined] ? { [K in Name]?: undefined } : object extends Given<T> ? { [K in Name]?: T } : { [K in Name]: T };
/** Input of a call: the parts that its operation has, and an idempotency key. */
export type Input<K extends keyof Operations> = Part<"path", Operations[K]["path"]> & Part<"query", Operations[K]["query"]> & Part<"body", Operations[K]["body"]> & { key?: string; signal?: AbortSignal };

/** A request that the server answered with a problem document. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  constructor(readonly problem: Problem, readonly trace: string | null) {
    super(`${problem.detail} (${problem.code})`);
  }
  get code(): Problem["code"] {
    return this.problem.code;
  }
  get status(): number {
    return this.problem.status;
  }
}

const RETRYABLE = new Set([429, 502, 503, 504]);
const DELAY_MS = 200;
/** Upper limit for the server's `retry-after`. */
const RETRY_AFTER_MAX_MS = 30_000;

export class Client {
  private readonly url: string;
  constructor(private readonly options: HttpOptions) {
    if (!/^https?:\/\//.test(options.url)) throw new TypeError(`not the address of a server: \`${options.url}\`; write it like \`http://127.0.0.1:7070\``);
    this.url = options.url.replace(/\/+$/, "");
  }

  /** Performs an operation. Reads, and operations with an idempotency key, are repeated when the server does not answer. */
  async call<K extends keyof Operations>(operation: K, ...[input]: object extends Input<K> ? [Input<K>?] : [Input<K>]): Promise<Operations[K]["answer"]> {
    if (!Object.hasOwn(OPERATIONS, operation)) throw new TypeError(`there is no operation \`${String(operation)}\`; \`OPERATIONS\` has all of them`);
    const { method, path, keyed } = OPERATIONS[operation];
    const given = (input ?? {}) as { path?: Record<string, unknown>; query?: Record<string, unknown>; body?: unknown; key?: string; signal?: AbortSignal };
    const key = given.key ?? (keyed ? crypto.randomUUID() : undefined);
    const target = this.url + address(path, given.path, given.query);
    const request = async (): Promise<Response> => {
      const headers: Record<string, string> = { accept: "application/json" };
      const token = typeof this.options.token === "function" ? await this.options.token() : this.options.token;
      if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
      if (given.body !== undefined) headers["content-type"] = "application/json";
      if (key !== undefined) headers["idempotency-key"] = key;
      return (this.options.fetch ?? fetch)(target, { method, headers, redirect: "error", body: given.body === undefined ? null : JSON.stringify(given.body), signal: given.signal ?? null });
    };
    const response = await this.repeated(request, method === "GET" || key !== undefined, given.signal);
    const text = await response.text();
    if (!response.ok) throw new ApiError(problemOf(text, response.status), response.headers.get("traceparent")?.split("-")[1] ?? null);
    const isJson = response.headers.get("content-type")?.includes("json") === true;
    return (isJson ? JSON.parse(text) : text) as Operations[K]["answer"];
  }

  private async repeated(request: () => Promise<Response>, mayRepeat: boolean, signal?: AbortSignal): Promise<Response> {
    const attempts = mayRepeat ? Math.max(1, this.options.attempts ?? 4) : 1;
    for (let attempt = 1; ; attempt++) {
      let delay = DELAY_MS * 2 ** (attempt - 1) * (0.5 + Math.random());
      try {
        const response = await request();
        if (attempt >= attempts || !RETRYABLE.has(response.status)) return response;
        const asked = Number(response.headers.get("retry-after"));
        if (asked > 0) delay = Math.min(asked * 1000, RETRY_AFTER_MAX_MS);
        await response.body?.cancel();
      } catch (error) {
        if (attempt >= attempts || signal?.aborted === true) throw error;
      }
      await pause(delay, signal);
    }
  }

  /** All items of a list, page by page. */
  async *items<K extends keyof Operations>(operation: K, input: Input<K>): AsyncGenerator<Operations[K]["answer"] extends { items: (infer Item)[] } ? Item : never> {
    let after: string | undefined;
    do {
      const query = { ...(input as { query?: object }).query, ...(after === undefined ? {} : { after }) };
      const page = (await (this.call as (operation: K, input: unknown) => Promise<unknown>)(operation, { ...input, query })) as { items: never[]; next?: string };
      yield* page.items;
      after = page.next;
    } while (after !== undefined);
  }

  /** Follows a run's log until the run has ended; over the hub. */
  async follow(run: string, onEntry: (entry: RunEntry) => void): Promise<void> {
    const token = typeof this.options.token === "function" ? await this.options.token() : this.options.token;
    const hub = connect(this.url.replace(/^http/, "ws") + "/hub", token === undefined ? {} : { token });
    try {
      for await (const message of hub.follow(run)) onEntry(message.data);
    } finally {
      await hub.close();
    }
  }
}

/** Waits, unless the caller aborts. */
async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await new Promise<void>((done, fail) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason as Error); }, { once: true });
  });
}

function address(path: string, parts: Record<string, unknown> = {}, query: Record<string, unknown> = {}): string {
  const filled = path.replace(/\{([a-z]+)\}/g, (_, name: string) => {
    const part = parts[name];
    if (part === undefined || part === null || part === "") throw new TypeError(`\`${path}\` needs \`${name}\`; give it in \`path\``);
    return encodeURIComponent(String(part));
  });
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length === 0 ? filled : `${filled}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()}`;
}

function problemOf(text: string, status: number): Problem {
  try {
    const problem = JSON.parse(text) as Problem;
    if (typeof problem.code === "string") return problem;
  } catch {
    // Not a problem document: the answer is from a proxy in between.
  }
  return { type: "about:blank", title: "Unexpected answer", status, detail: `the server answered ${status} without a problem document`, code: "internal" };
}
