// A separate server for each test file, and a page that fails the test on errors of the console or the browser.
import { spawn, spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { existsSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { chromium } from "playwright-core";

const BIN = process.env.WIGWAG_BIN ?? resolve("../../target/debug/wigwag");
export const CHROMIUM = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => existsSync(path));

/** Starts a server and waits for its address. */
export async function serve(args = ["dev", "--demo"], options = {}) {
  const folder = options.folder ?? (await mkdtemp(join(tmpdir(), "wigwag-dashboard-")));
  const child = spawn(BIN, [...args, "--bind", options.bind ?? "127.0.0.1:0"], { cwd: folder, stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...options.env } });
  let said = "";
  const url = await new Promise((done, fail) => {
    const hear = (data) => { said += data; const found = / (?:at|on) (http:\/\/[0-9.:]+)/.exec(said)?.[1]; if (found && (!args.includes("--demo") || said.includes(" status order-"))) done(found); };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.on("exit", () => fail(new Error("the server ended: " + said)));
    setTimeout(() => fail(new Error("the server does not start: " + said)), 60e3).unref();
  });
  return {
    url, folder, said: () => said,
    /** @param {string} path @param {any} [body] */
    api: async (path, body) => { const answer = await fetch(url + path, body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }); return answer.json(); },
    kill: () => new Promise((done) => { child.once("exit", done); child.kill("SIGKILL"); }),
    stop: async () => { if (child.exitCode === null && child.signalCode === null) await new Promise((done) => { child.once("exit", done); child.kill("SIGKILL"); }); if (!options.folder) await rm(folder, { recursive: true, force: true }); },
  };
}

/** Starts `wigwag serve` with one token for each list of scopes, on a store of its own or on that of another server; returns it and the tokens. */
export async function serveWithTokens(lists, shared) {
  const folder = await mkdtemp(join(tmpdir(), "wigwag-dashboard-"));
  const made = lists.map((scopes, i) => spawnSync(BIN, ["token", "t" + i, ...scopes.flatMap((scope) => ["--scope", scope])], { cwd: folder, encoding: "utf8" }));
  await writeFile(join(folder, "wigwag.toml"), `store = ${JSON.stringify(shared ? join(shared, ".wigwag") : "./data")}\n` + made.map((one) => "[[token]]" + one.stderr.split("[[token]]")[1]).join("\n"));
  const server = await serve(["serve"], { folder });
  return { server, tokens: made.map((one) => one.stdout.trim()), stop: async () => { await server.stop(); await rm(folder, { recursive: true, force: true }); } };
}

/** Name, bytes and bytes with gzip of each file that the page of a server loads. */
export async function filesOf(url) {
  const page = await (await fetch(url + "/")).text(), paths = [...new Set([...page.matchAll(/(?:href|src)="(\/ui\/[^"]+)"/g)].map((found) => found[1]))];
  return Promise.all(paths.map(async (path) => { const body = Buffer.from(await (await fetch(url + path)).arrayBuffer()); return { name: path.split("/").slice(3).join("/"), bytes: body.length, gzip: gzipSync(body, { level: 9 }).length }; }));
}

export async function browser() { return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage", "--font-render-hinting=none"] }); }

/** Opens a page whose errors are collected; `offline` allows failed requests. */
export async function page(chrome, url, options = {}) {
  const context = await chrome.newContext({ viewport: { width: options.width ?? 1440, height: options.height ?? 900 }, colorScheme: options.dark ? "dark" : "light", reducedMotion: "reduce", hasTouch: Boolean(options.touch), locale: "en-US", timezoneId: "UTC", deviceScaleFactor: options.scale ?? 1 });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
  const tab = await context.newPage();
  const complaints = [];
  tab.on("console", (message) => { if (message.type() === "error" && !options.allows?.test(message.text())) complaints.push(message.text()); });
  tab.on("pageerror", (error) => complaints.push(String(error)));
  tab.on("request", (request) => { if (!request.url().startsWith(url) && !request.url().startsWith(url.replace("http", "ws"))) complaints.push("a request left the origin: " + request.url()); });
  return { tab, context, url, complaints, check: () => { if (complaints.length) throw new Error(complaints.join("\n")); }, close: () => context.close() };
}

/** Opens a path and waits for a text. */
export async function open(view, path, text, from) { await view.tab.goto((from?.url ?? view.url) + path); if (text) await view.tab.locator("main").getByText(text, { exact: false }).first().waitFor({ timeout: 15e3 }); }
/** Waits for a condition. */
export async function until(what, so) { const end = Date.now() + 20e3; for (;;) { const found = await so(); if (found) return found; if (Date.now() > end) throw new Error("never: " + what); await new Promise((done) => setTimeout(done, 50)); } }
export const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** Barriers that axe-core finds on a page. The page's policy lets no script in but its own: the checker comes through the debugger. */
export const axeOf = (view) => view.tab.evaluate(`(async () => { ${axe}; return (await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] })).violations.map((one) => one.id + ": " + one.nodes.slice(0, 3).map((node) => node.target.join(" ") + " " + (node.any[0]?.message ?? node.all[0]?.message ?? "")).join(" | ")); })()`);
