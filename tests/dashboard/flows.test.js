// Whole flows through the dashboard: time, pages, long logs, scopes, lost tokens, restarts. A real server, a real browser.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { CHROMIUM, axeOf, browser, open, page, serve, serveWithTokens, until } from "./kit.js";

const skip = CHROMIUM ? false : "no Chromium";
let server, chrome;
before(async () => { if (!skip) { server = await serve(); chrome = await browser(); } });
after(async () => { await chrome?.close(); await server?.stop(); });

const done = async (view) => { view.check(); await view.close(); };
const status = async (id, from = server) => (await from.api("/v1/runs/" + id)).status;

test("a stranger finds what waits, answers it, finds why another run failed, restarts it, and finds what it cost", { skip }, async () => {
  const view = await page(chrome, server.url), { tab } = view;
  await tab.goto(server.url);
  // What waits is the first screen; the order is one click away, its form is open beside it.
  await tab.getByText("grand piano").first().click();
  await tab.getByRole("radio", { name: "Approve" }).click();
  await tab.getByLabel("By", { exact: true }).fill("stranger");
  await tab.getByRole("button", { name: /Approve and next/ }).click();
  await until("order-1 is completed", async () => (await status("order-1")) === "completed");
  await until("its row leaves", async () => (await tab.locator(".w", { hasText: "order-1" }).count()) === 0);
  // Why another failed: by navigation and eyes alone.
  await tab.locator("a.nav", { hasText: "Runs" }).click();
  const row = tab.locator("tr", { hasText: "shipment-1" });
  assert.match(String(await row.textContent()), /Failed.*no capacity on Wednesday/s, "the list says why");
  await row.click();
  await tab.getByRole("alert").getByText("no capacity on Wednesday").waitFor();
  assert.match(String(await tab.locator(".note.failed").textContent()), /book-carrier.*charge.*reserve/s, "the step, and what was compensated");
  assert.match(String(await tab.locator(".facts").textContent()), /Cost on S3\$0\.\d+ ?\d+ PUT/, "what it cost");
  await tab.getByRole("button", { name: "Restart from book-carrier…" }).click();
  assert.equal(await tab.locator("#restart-from").inputValue(), "book-carrier");
  await tab.locator("dialog").getByRole("button", { name: "Restart" }).click();
  await tab.getByText("run.restarted").first().waitFor();
  await done(view);
});

test("a rejected order is compensated, restarted from its approval, completed, and restarted again from one step", { skip }, async () => {
  const view = await page(chrome, server.url), { tab } = view;
  await server.api("/v1/runs", { type: "demo-order", id: "order-30", input: { item: "tuba", cents: 5, approved_by: null } });
  await open(view, "/runs/order-30", "Waits for one signal");
  await tab.getByRole("radio", { name: "Reject" }).click();
  await tab.getByLabel("By", { exact: true }).fill("grace");
  await tab.getByRole("button", { name: /Send approval/ }).click();
  await tab.locator(".runhead .pill.failed").waitFor();
  await until("two steps are drawn as compensated", async () => (await tab.locator(".graph .node.undone").count()) === 2);
  await tab.getByRole("button", { name: /^Restart/ }).click();
  await tab.locator("#restart-from").selectOption("approval");
  await tab.locator("dialog").getByRole("button", { name: "Restart" }).click();
  await tab.locator(".runhead .pill.waiting_signal").waitFor();
  await tab.getByRole("radio", { name: "Approve" }).click();
  await tab.getByLabel("By", { exact: true }).fill("grace");
  await tab.getByRole("button", { name: /Send approval/ }).click();
  await tab.locator(".runhead .pill.completed").waitFor();
  // An ended run that is restarted is followed again without a reload.
  await tab.getByRole("button", { name: /^Restart/ }).click();
  await tab.locator("#restart-from").selectOption("ship");
  await tab.locator("dialog").getByRole("button", { name: "Restart" }).click();
  await until("it was restarted twice", async () => (await server.api("/v1/runs/order-30")).restarts === 2);
  await tab.locator(".facts").getByText("Restarts").waitFor();
  await until("both restarts are in the log", async () => (await tab.getByText("run.restarted").count()) === 2);
  await done(view);
});

test("a page that is reloaded while it sends has sent once", { skip }, async () => {
  await server.api("/v1/runs", { type: "demo-contract", id: "contract-30", input: { party: "Reload" } });
  const view = await page(chrome, server.url, { allows: /ERR_ABORTED|Failed to load/ }), { tab } = view;
  await open(view, "/runs/contract-30", "signed-contract");
  let arrived = () => {};
  const sent = new Promise((resolve) => { arrived = () => resolve(undefined); });
  // The server gets the signal; the page is gone before its answer arrives.
  await tab.route("**/signals/signed-contract", async (route) => { await route.fetch(); arrived(); });
  await tab.getByRole("button", { name: "Send signed-contract" }).dblclick();
  await sent;
  await tab.unroute("**/signals/signed-contract");
  await tab.reload();
  await tab.locator(".runhead .pill.completed").waitFor();
  assert.equal((await server.api("/v1/runs/contract-30/signals")).items.length, 1);
  await view.close();
});

test("the strip of ends, its drag, and the list of spans filter runs by time; the address keeps it", { skip }, async () => {
  const view = await page(chrome, server.url), { tab } = view;
  await open(view, "/runs", "shipment-1");
  const strip = tab.locator("svg.ends"), box = await until("the strip is drawn", () => strip.boundingBox());
  const rows = () => tab.locator("tbody tr .idcell").allTextContents();
  // The newest bar: what ended in the last minutes, and nothing unfinished.
  // By its position: the strip is drawn again when runs end.
  const bar = await until("a bar is drawn", () => strip.locator("rect.bar").last().boundingBox());
  await tab.mouse.click(bar.x + bar.width / 2, bar.y + bar.height / 2);
  await tab.waitForURL(/since=.*until=/);
  await until("ended runs only", async () => { const found = await rows(); return found.includes("shipment-1") && !found.includes("payout-1"); });
  await tab.getByRole("button", { name: "Clear the time" }).waitFor();
  await tab.reload();
  await until("the address keeps it", async () => { const found = await rows(); return found.includes("shipment-1") && !found.includes("payout-1"); });
  // Dragging over hours without ends.
  await tab.mouse.move(box.x + 20, box.y + 20);
  await tab.mouse.down();
  await tab.mouse.move(box.x + 200, box.y + 20, { steps: 3 });
  await tab.mouse.up();
  await tab.getByText("No run matches the filter").waitFor();
  const span = new URL(tab.url()).searchParams;
  assert.ok(Date.parse(span.get("until")) - Date.parse(span.get("since")) > 2 * 3600e3, "several bars");
  await tab.getByRole("button", { name: "Clear the time" }).click();
  await until("all again", async () => (await rows()).includes("payout-1"));
  // By keyboard: the list of spans.
  await tab.getByLabel("Time", { exact: true }).selectOption("Last hour");
  await until("the last hour", async () => (await rows()).includes("shipment-1"));
  await tab.getByRole("button", { name: /^Waiting/ }).click();
  await until("unfinished runs by their start", async () => (await rows()).includes("payout-1"));
  await tab.getByText("Started since").waitFor();
  await done(view);
  // Wrong times in the address are no times.
  const wrong = await page(chrome, server.url);
  for (const query of ["since=yesterday", "since=2026-13-45&until=x", "until="]) { await open(wrong, "/runs?" + query, "payout-1"); }
  await done(wrong);
});

test("a long inbox is shown page by page, selected whole, and stays small in the page", { skip }, async () => {
  const own = await serve();
  try {
    for (let i = 0; i < 120; i += 40) await Promise.all(Array.from({ length: 40 }, (_, j) => own.api("/v1/runs", { type: "demo-contract", id: `page-${String(i + j).padStart(3, "0")}`, input: { party: "Page " + (i + j) } })));
    await until("all wait", async () => (await own.api("/v1/waiting/summary")).total === 124);
    const view = await page(chrome, own.url), { tab } = view;
    await open(view, "/?name=signed-contract&order=oldest", "121 waiting", own);
    const shown = () => tab.locator(".waits > .w").count();
    assert.equal(await shown(), 50);
    await tab.getByRole("button", { name: "Next", exact: true }).click();
    await tab.getByText("51–100 of 121").waitFor();
    assert.equal(await shown(), 50);
    // The keyboard goes on over the edge of a page, both ways.
    for (let i = 0; i < 50; i++) await tab.keyboard.press("j");
    await tab.getByText("101–121 of 121").waitFor();
    await until("the first row of the page is picked", async () => (await tab.locator(".waits > .w").first().getAttribute("class"))?.includes("at"));
    await tab.keyboard.press("k");
    await tab.getByText("51–100 of 121").waitFor();
    await tab.keyboard.press("x");
    await tab.getByRole("button", { name: "Select all 121" }).click();
    await tab.getByText("121 selected").waitFor();
    assert.ok(await shown() <= 60);
    await done(view);
  } finally { await own.stop(); }
});

test("lists follow also while changes never stop", { skip }, async () => {
  const [inbox, runs] = [await page(chrome, server.url), await page(chrome, server.url)];
  await open(inbox, "/?name=signed-contract&order=oldest", "waiting");
  await open(runs, "/runs", "shipment-1");
  for (const view of [inbox, runs]) await view.tab.locator(".live:not(.off)").waitFor();
  let isOver = false, started = 0;
  const starting = (async () => { while (!isOver) { await server.api("/v1/runs", { type: "demo-contract", id: `storm-${started}`, input: { party: "Storm" } }); started++; } })();
  try {
    const count = async (view, what) => Number(/([\d,]+) waiting/.exec(String(await view.tab.locator(what).textContent()))?.[1].replace(",", "") ?? 0);
    const first = await count(inbox, ".toolbar");
    await until("the count of the inbox grows while runs start", async () => (await count(inbox, ".toolbar")) > first + 2);
    await until("a new run is in the list of runs while runs start", async () => (await runs.tab.locator(".idcell", { hasText: "storm-" }).count()) > 0);
    const badge = async () => Number(/\d+/.exec(String(await runs.tab.locator("a.nav .badge").first().textContent()))?.[0] ?? 0), before = await badge();
    await until("the badge of another screen grows by the hub", async () => (await badge()) > before + 2);
  } finally { isOver = true; await starting; }
  await done(inbox);
  await done(runs);
});

test("a long log is a window: few rows, any entry by its number, and its end is followed", { skip }, async () => {
  const steps = 300;
  await server.api("/v1/runs", { type: "demo-batch", id: "batch-log", input: { parts: steps } });
  await until("it has ended", async () => (await status("batch-log")) === "completed");
  const view = await page(chrome, server.url), { tab } = view;
  let read = 0;
  tab.on("request", (request) => { const limit = /history\?.*limit=(\d+)/.exec(request.url())?.[1]; if (limit) read += Number(limit); });
  await open(view, "/runs/batch-log?tab=log", "run.completed");
  const entries = (await server.api("/v1/runs/batch-log")).seq, rows = () => tab.locator(".log > *").count();
  assert.ok(entries > 250, `${entries} entries`);
  assert.ok(read <= 250 && await rows() <= 300, `${read} entries read, ${await rows()} rows`);
  await tab.getByLabel("Go to entry").fill("20");
  await tab.keyboard.press("Enter");
  await tab.locator('[data-seq="20"]').first().waitFor();
  const last = async () => Number(await tab.locator(".log > *").last().getAttribute("data-seq")), before = await last();
  await tab.getByRole("button", { name: /newer entries/ }).click();
  await until("the entries after are added without a gap", async () => (await last()) > before && (await tab.locator(`[data-seq="${before + 1}"]`).count()) > 0);
  assert.ok(await rows() <= 300, `${await rows()} rows`);
  await tab.getByRole("button", { name: "Older entries" }).click();
  await until("and those before", async () => (await tab.locator('[data-seq="20"]').count()) > 0);
  assert.ok(await rows() <= 300, `${await rows()} rows`);
  await tab.getByRole("button", { name: "Newest", exact: true }).click();
  await tab.locator(`[data-seq="${entries}"]`).first().waitFor();
  for (const wrong of ["0", "x", "-3"]) { await tab.getByLabel("Go to entry").fill(wrong); await tab.keyboard.press("Enter"); }
  await tab.locator(`[data-seq="${entries}"]`).first().waitFor();
  await tab.getByLabel("Go to entry").fill("999999");
  await tab.keyboard.press("Enter");
  await tab.locator(`[data-seq="${entries}"]`).first().waitFor();
  await done(view);
});

test("a run that makes an event every few milliseconds is followed to its end without a long list of rows", { skip }, async () => {
  const view = await page(chrome, server.url, { height: 700 }), { tab } = view;
  await server.api("/v1/runs", { type: "demo-batch", id: "batch-live", input: { parts: 400, part_ms: 4 } });
  await open(view, "/runs/batch-live?tab=log", "run.started");
  await tab.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await tab.getByText("run.completed").first().waitFor({ timeout: 60e3 });
  assert.ok(await tab.locator(".log > *").count() <= 300);
  const isAtEnd = await tab.evaluate(() => innerHeight + scrollY >= document.documentElement.scrollHeight - 80);
  assert.ok(isAtEnd, "the page stays at the end of the log");
  await done(view);
});

/** Controls that a scope decides on: path, name of the button, and the scopes of which one is enough. */
const CONTROLS = [
  ["/runs", "Start a run", ["runs:write"]], ["/runs/pause-1", "Pause", ["runs:write"]], ["/runs/pause-1", "Cancel…", ["runs:write"]],
  ["/runs/pause-1", "Send signed-contract", ["signals:signed-contract", "signals:*"]], ["/runs/pause-1", "Make a resume link", ["signals:signed-contract", "signals:*"]],
];
test("for each scope, controls are on or off as the server decides, and nothing is asked that would be refused", { skip }, async () => {
  const scopes = ["runs:read", "runs:write", "signals:signed-contract", "signals:other", "signals:*", "tasks", "hub:read:*", "admin"];
  const worker = await serve(), { server: own, tokens, stop } = await serveWithTokens(scopes.map((scope) => [scope]).concat(scopes.map((scope) => ["runs:read", scope])), worker.folder);
  try {
    await worker.api("/v1/runs", { type: "demo-contract", id: "pause-1", input: { party: "Scopes" } });
    await until("it waits", async () => (await status("pause-1", worker)) === "waiting_signal");
    for (const [i, token] of tokens.entries()) {
      const scope = scopes[i % scopes.length], all = i < scopes.length ? [scope] : ["runs:read", scope], may = (some) => all.some((one) => one === "admin" || some.includes(one));
      const view = await page(chrome, own.url, { allows: /403/ }), refused = [];
      view.tab.on("response", (response) => { if (response.status() === 403 || response.status() === 401) refused.push(response.url()); });
      await view.tab.goto(own.url + "/#token=" + token);
      for (const [path, need, text] of [["/", "runs:read", "Waiting now"], ["/runs", "runs:read", "Runs"], ["/tasks", "tasks", "Tasks"], ["/workflows", "runs:read", "Workflows"], ["/store", "admin", "Store"], ["/system", "runs:read", "System"]]) {
        if (path !== "/") await view.tab.locator("a.nav", { hasText: text }).click();
        await view.tab.locator("h1", { hasText: text }).waitFor();
        const off = view.tab.getByText(`This needs the scope ${need}`);
        if (may([need])) { await view.tab.locator(".content > *").first().waitFor(); assert.equal(await off.count(), 0, `${all}: ${path}`); } else await off.waitFor();
      }
      if (may(["runs:read"])) for (const [path, name, some] of CONTROLS) {
        await view.tab.goto(own.url + path);
        const button = view.tab.getByRole("button", { name }).first();
        await button.waitFor();
        assert.equal(await button.isDisabled(), !may(some), `${all}: ${name}`);
        if (!may(some)) assert.match(String(await button.getAttribute("title")), /Needs the scope/, name);
      }
      assert.deepEqual(refused, [], String(all));
      await view.close();
    }
  } finally { await stop(); await worker.stop(); }
});

test("a token that expires is asked for again over the page, and what was filled in stays", { skip }, async () => {
  const folder = await mkdtemp(join(tmpdir(), "wigwag-dashboard-")), secret = "s".repeat(40), worker = await serve();
  await writeFile(join(folder, "secret"), secret, { mode: 0o600 });
  await writeFile(join(folder, "wigwag.toml"), `store = ${JSON.stringify(join(worker.folder, ".wigwag"))}\n[jwt]\nhs256_secret = "secret"\nany_audience = true\n`);
  const jwt = (seconds) => { const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url"), text = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: "ada", scope: "runs:read signals:*", exp: Math.floor(Date.now() / 1000) + seconds })}`; return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`; };
  const own = await serve(["serve"], { folder });
  try {
    const view = await page(chrome, own.url, { allows: /401|WebSocket/ }), { tab } = view, began = Date.now();
    await tab.goto(`${own.url}/runs/contract-1#token=${jwt(4)}`);
    await tab.getByRole("button", { name: "JSON", exact: true }).waitFor();
    await tab.getByLabel("Payload as JSON").first().fill('{"kept": true}');
    assert.ok(!tab.url().includes("token"));
    await until("the token has expired", async () => (await fetch(own.url + "/v1/me", { headers: { authorization: "Bearer " + (await tab.evaluate(() => sessionStorage.getItem("wigwag.token"))) } })).status === 401);
    console.log(`the token expired after ${((Date.now() - began) / 1000).toFixed(1)} s`);
    await tab.getByRole("button", { name: "Send signed-contract" }).click();
    const dialog = tab.getByRole("dialog", { name: "Sign in" });
    await dialog.waitFor();
    assert.deepEqual(await axeOf(view), []);
    await dialog.getByLabel("Token").fill(jwt(600));
    await dialog.getByRole("button", { name: "Sign in" }).click();
    await dialog.waitFor({ state: "detached" });
    await until("what was filled in is there", async () => (await tab.getByLabel("Payload as JSON").first().inputValue()).includes("kept"));
    await tab.getByRole("button", { name: "Send signed-contract" }).click();
    await tab.locator(".runhead .pill.completed").waitFor();
    const [signal] = (await worker.api("/v1/runs/contract-1/signals")).items;
    assert.deepEqual([signal.payload, signal.source.by], [{ kept: true }, "ada"]);
    await view.close();
  } finally { await own.stop(); await worker.stop(); await rm(folder, { recursive: true, force: true }); }
});

test("a run that is removed while its page is open says so, and a hub that is cut off is caught up with", { skip }, async () => {
  const own = await serve();
  try {
    const view = await page(chrome, own.url, { allows: /410|404|WebSocket/ }), { tab } = view;
    await open(view, "/runs/contract-1", "signed-contract", own);
    await tab.locator(".live:not(.off)").waitFor();
    // The connection is cut; meanwhile the run ends. The page learns of it when it is connected again.
    await tab.evaluate(() => import(/** @type {any} */ (document.querySelector('link[href$="live.js"]')).href).then(({ live }) => { window.hub = live; live.stop(); }));
    await tab.locator(".live.off").waitFor();
    assert.deepEqual(await axeOf(view), []);
    await own.api("/v1/runs/contract-1/signals/signed-contract", { payload: 1, by: "grace" });
    await until("it ends", async () => (await status("contract-1", own)) === "completed");
    await tab.evaluate(() => window.hub.start());
    await tab.locator(".runhead .pill.completed").waitFor();
    await until("nothing is doubled", async () => (await tab.locator(".log b", { hasText: "run.completed" }).count()) === 1);
    await until("it is removed", async () => { await own.api("/v1/prune", { older_than: "0s" }); return (await fetch(own.url + "/v1/runs/contract-1")).status === 410; });
    await tab.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    await tab.getByRole("heading", { name: "contract-1 is gone" }).waitFor();
    assert.deepEqual(await axeOf(view), []);
    await view.close();
  } finally { await own.stop(); }
});

/** Width, height, and what it stands for; zoom makes the viewport smaller. */
const WIDTHS = [[360, 740, "a phone"], [768, 1024, "a tablet"], [1100, 800, "a laptop"], [2560, 1300, "a large screen"], [720, 450, "1440 px at 200 %"], [360, 225, "1440 px at 400 %"]];
const SCREENS = [["/", "Waiting now"], ["/runs", "Compensating"], ["/runs/payout-1", "Timeline"], ["/runs/shipment-1", "book-carrier"], ["/tasks", "Task"], ["/workflows", "demo-order"], ["/workflows/demo-shipment", "Graph"], ["/actors", "Send a message"], ["/store?prefix=workflow/payout-1/", "workflow/"], ["/system", "Store bill"]];
test("no screen scrolls sideways at any width or zoom, and forced colours bring no barriers", { skip }, async () => {
  const view = await page(chrome, server.url);
  for (const [path, text] of SCREENS) {
    await view.tab.setViewportSize({ width: 1440, height: 900 });
    await open(view, path, text);
    for (const [width, height, name] of WIDTHS) {
      await view.tab.setViewportSize({ width, height });
      const wide = await view.tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${path} is ${wide} px too wide for ${name}`);
    }
  }
  await view.tab.emulateMedia({ forcedColors: "active" });
  for (const [path, text] of SCREENS.slice(0, 3)) { await open(view, path, text); assert.deepEqual(await axeOf(view), [], `${path} with forced colours`); }
  await done(view);
});

test("on a phone every screen is reached, also the theme and the end of the session", { skip }, async () => {
  const view = await page(chrome, server.url, { width: 390, height: 844, touch: true }), { tab } = view;
  await open(view, "/", "Waiting now");
  for (const name of ["Runs", "Tasks", "Workflows", "Waiting"]) { await tab.locator(".tabs-bottom a", { hasText: name }).click(); await tab.locator("h1", { hasText: name }).waitFor(); }
  for (const name of ["Actors & topics", "Store", "System"]) {
    await tab.locator(".tabs-bottom button").click();
    assert.deepEqual(await axeOf(view), []);
    await tab.locator("dialog").getByRole("link", { name }).click();
    await tab.locator("h1", { hasText: name }).waitFor();
  }
  await tab.locator(".tabs-bottom button").click();
  await tab.locator("dialog").getByRole("button", { name: "Light or dark" }).click();
  await until("the theme changes", async () => (await tab.evaluate(() => document.documentElement.dataset.theme)) === "dark");
  await done(view);
});
