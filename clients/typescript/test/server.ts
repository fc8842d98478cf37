/** A real server, started for one test on a free port with its own store. */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const BIN = process.env["WIGWAG_BIN"];

/** Options for `test` and `describe` that skip with a message. */
export const NEEDS_SERVER = BIN === undefined ? { skip: "SKIPPED: WIGWAG_BIN does not name the program, so nothing is tried on a real server" } : {};

const START_MS = 60_000;

/** Resources that must not outlive the tests, however they end. */
const leftovers: (() => void)[] = [];
process.once("exit", () => leftovers.forEach((remove) => remove()));

/** Returns a folder that is removed after the tests. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "wigwag-hub-"));
  leftovers.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export class Server {
  private constructor(
    private readonly process: ChildProcess,
    readonly port: number,
    /** The run of the demo. */
    readonly run: string | null,
  ) {}

  get hub(): string {
    return `ws://127.0.0.1:${this.port}/hub`;
  }

  get http(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** `wigwag dev`: no tokens; with `demo` a run that waits for an approval. */
  static dev(store: string, options: { demo?: boolean; port?: number } = {}): Promise<Server> {
    const demo = options.demo === true ? ["--demo"] : [];
    const waits = options.demo === true ? /Run `([^`]+)` waits for signal/ : null;
    return Server.start(["dev", "--store", store, "--bind", `127.0.0.1:${options.port ?? 0}`, ...demo], waits);
  }

  /** `wigwag serve` with tokens. */
  static serve(store: string, tokens: Token[], origins: string[], port = 0): Promise<Server> {
    const config = join(temporaryFolder(), "wigwag.toml");
    writeFileSync(config, tokens.map(tokenLines).join("\n"));
    const allowed = origins.flatMap((origin) => ["--origin", origin]);
    return Server.start(["serve", "--store", store, "--config", config, "--bind", `127.0.0.1:${port}`, ...allowed], null);
  }

  private static async start(args: string[], waits: RegExp | null): Promise<Server> {
    const child = spawn(BIN as string, args, { stdio: ["ignore", "pipe", "pipe"] });
    leftovers.unshift(() => child.kill("SIGKILL"));
    let said = "";
    return await new Promise((resolve, reject) => {
      const limit = setTimeout(() => fail("took too long"), START_MS);
      const fail = (why: string): void => {
        clearTimeout(limit);
        child.kill("SIGKILL");
        reject(new Error(`the server ${why}: ${said}`));
      };
      const hear = (chunk: Buffer): void => {
        said += chunk.toString();
        const port = /on https?:\/\/127\.0\.0\.1:(\d+)/.exec(said)?.[1];
        const run = waits === null ? null : waits.exec(said)?.[1];
        if (port === undefined || run === undefined) return;
        clearTimeout(limit);
        resolve(new Server(child, Number(port), run));
      };
      child.stdout.on("data", hear);
      child.stderr.on("data", hear);
      child.once("exit", (code) => fail(`ended (${code})`));
    });
  }

  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = once(this.process, "exit");
    this.process.kill(signal);
    await ended;
  }
}

export interface Token {
  name: string;
  sha256: string;
  scopes: string[];
  token: string;
}

/** Creates a token as `wigwag token` does. */
export function makeToken(name: string, scopes: string[]): Token {
  const made = spawnSync(BIN as string, ["token", name, "--json", ...scopes.flatMap((scope) => ["--scope", scope])], { encoding: "utf8" });
  if (made.status !== 0) throw new Error(`no token: ${made.stderr}`);
  return JSON.parse(made.stdout) as Token;
}

function tokenLines({ name, sha256, scopes }: Token): string {
  return `[[token]]\nname = ${JSON.stringify(name)}\nsha256 = "${sha256}"\nscopes = ${JSON.stringify(scopes)}\n`;
}
