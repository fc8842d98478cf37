/** The built package in a real browser: a page approves an order. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { chromium, type Browser, type Page } from "playwright-core";
import { makeToken, NEEDS_SERVER, Server, temporaryFolder } from "./server.js";

const CHROMIUM = [process.env["CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(
  (path) => path !== undefined && existsSync(path),
);
const NEEDS = CHROMIUM === undefined ? { skip: "SKIPPED: there is no Chromium (CHROMIUM names one), so nothing is tried in a browser" } : NEEDS_SERVER;

const PAGE = `<!doctype html><title>approvals</title><script type="module">
  import { connect } from "/dist/index.js";
  window.connectHub = connect;
  window.isReady = true;
</script>`;

/** Serves the page and the built package, nothing else. */
async function servePage(): Promise<http.Server> {
  const server = http.createServer((request, response) => {
    if (request.url === "/") return void response.setHeader("content-type", "text/html").end(PAGE);
    const file = new URL(`..${request.url}`, import.meta.url);
    if (!/^\/dist\/[a-z]+\.js$/.test(request.url ?? "") || !existsSync(file)) return void response.writeHead(404).end();
    response.setHeader("content-type", "text/javascript").end(readFileSync(file));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

const origin = (server: http.Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

describe("in a browser", { ...NEEDS, timeout: 180_000 }, () => {
  let [worker, hub]: Server[] = [];
  let [pages, strangers]: http.Server[] = [];
  let browser: Browser;
  const store = temporaryFolder();
  const token = NEEDS.skip === undefined ? makeToken("ada", ["signals:approval", "runs:read", "hub:own:@(browser/*)", "hub:read:news", "hub:publish:news"]) : null!;

  before(async () => {
    [pages, strangers] = await Promise.all([servePage(), servePage()]);
    // One process runs the order, another serves the same store to pages that have a token.
    worker = await Server.dev(store, { demo: true });
    hub = await Server.serve(store, [token], [origin(pages)]);
    browser = await chromium.launch({ executablePath: CHROMIUM!, args: ["--no-sandbox", "--headless"] });
  });
  after(async () => {
    await browser?.close();
    await Promise.all([worker?.stop(), hub?.stop()]);
    pages?.close();
    strangers?.close();
  });

  async function visit(server: http.Server): Promise<Page> {
    const page = await browser.newPage();
    await page.goto(origin(server));
    await page.waitForFunction("window.isReady === true");
    return page;
  }

  test("a page with a token approves an order, and sees it end", async () => {
    const page = await visit(pages!);
    const seen = await page.evaluate(approve, { url: hub!.hub, token: token.token, run: worker!.run! });
    assert.equal(seen.status, "delivered");
    assert.equal(seen.refused, "unauthorized");
    assert.deepEqual(seen.seqs, seen.seqs.map((_, i) => i + 1));
    assert.equal(seen.types[0], "run.started");
    assert.equal(seen.types.at(-1), "run.completed");
    assert.equal(seen.reason, "ended");
  });

  test("a page reconnects when its server is back", async () => {
    const page = await visit(pages!);
    await page.evaluate(watchNews, { url: hub!.hub, token: token.token });
    await page.waitForFunction("window.seen.includes('before')");
    await hub!.stop("SIGKILL");
    await page.waitForFunction("window.seen.includes('disconnected')");
    hub = await Server.serve(store, [token], [origin(pages!)], hub!.port);
    await page.waitForFunction("window.seen.includes('connected again')");
    await page.evaluate(publishNews, "after");
    await page.waitForFunction("window.seen.includes('after')");
    assert.deepEqual(await page.evaluate("window.seen"), ["before", "disconnected", "connected again", "gap", "after"]);
  });

  test("a page of another origin is rejected", async () => {
    const page = await visit(strangers!);
    const returns = await page.evaluate(firstEnd, { url: hub!.hub, token: token.token });
    assert.equal(returns.connected, false);
  });
});

interface Given {
  url: string;
  token: string;
}

/** Runs in the page. */
async function approve({ url, token, run }: Given & { run: string }) {
  const { connectHub } = window as unknown as { connectHub: typeof import("../dist/index.js").connect };
  const hub = connectHub(url, { token, register: [{ address: "@(browser/page-7)" }] });
  const log = hub.follow(run);
  await log.ready;
  const refused = await hub.signal(run, "another", {}).then(
    () => "sent",
    (error: { code: string }) => error.code,
  );
  const { status } = await hub.signal(run, "approval", { approved: true, by: "ada" });
  const seqs: number[] = [];
  const types: string[] = [];
  for await (const { data } of log) {
    seqs.push(data.seq);
    types.push(...data.events.map((event) => event.type));
  }
  await hub.close();
  return { refused, status, seqs, types, reason: log.reason };
}

interface Watching {
  connectHub: typeof import("../dist/index.js").connect;
  hub: import("../dist/index.js").Hub;
  seen: unknown[];
}

/** Runs in the page: records messages of a topic and changes of the connection. */
async function watchNews({ url, token }: Given) {
  const page = window as unknown as Watching;
  page.seen = [];
  page.hub = page.connectHub(url, { token });
  const news = page.hub.subscribe("news", ({ data }) => page.seen.push(data));
  await news.ready;
  await page.hub.publish("news", "headline", "before");
  const note = (what: string) => () => page.seen.includes(what) || page.seen.push(what);
  page.hub.on("disconnected", note("disconnected"));
  page.hub.on("connected", note("connected again"));
  page.hub.on("gap", note("gap"));
}

/** Runs in the page. */
async function publishNews(news: string) {
  await (window as unknown as Watching).hub.publish("news", "headline", news);
}

/** Runs in the page: returns whichever comes first, a connection or the end of the attempt. */
async function firstEnd({ url, token }: Given) {
  const { connectHub } = window as unknown as { connectHub: typeof import("../dist/index.js").connect };
  const hub = connectHub(url, { token });
  const connected = await new Promise<boolean>((resolve) => {
    hub.on("connected", () => resolve(true));
    hub.on("disconnected", () => resolve(false));
  });
  await hub.close();
  return { connected };
}
