// Answers and actions under bad conditions: a lost connection, a double click, hostile text, very many steps.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CHROMIUM, browser, open, page, serve, until } from "./kit.js";

const skip = CHROMIUM ? false : "no Chromium";
let server, chrome;
before(async () => { if (!skip) { server = await serve(); chrome = await browser(); } });
after(async () => { await chrome?.close(); await server?.stop(); });

const done = async (view) => { view.check(); await view.close(); };
const status = async (id) => (await server.api("/v1/runs/" + id)).status;
const OFFLINE = /ERR_INTERNET_DISCONNECTED|ERR_FAILED|Failed to load|WebSocket/;

test("an answer that is sent without a connection is kept, and sent once when the user says so", { skip }, async () => {
  await server.api("/v1/runs", { type: "demo-contract", id: "offline-1", input: { party: "Offline" } });
  const view = await page(chrome, server.url, { allows: OFFLINE }), { tab } = view;
  await open(view, "/runs/offline-1", "signed-contract");
  const area = tab.getByLabel("Payload as JSON").first();
  await area.fill('{"signed": "on the train"}');
  await view.context.setOffline(true);
  await tab.getByRole("button", { name: "Send signed-contract" }).click();
  await tab.getByText("No connection: your answer is kept").waitFor();
  assert.equal(await area.inputValue(), '{"signed": "on the train"}');
  await view.context.setOffline(false);
  await tab.getByRole("button", { name: "Send it now" }).dblclick({ timeout: 15e3 });
  await tab.locator(".runhead .pill.completed").waitFor();
  const signals = (await server.api("/v1/runs/offline-1/signals")).items;
  assert.deepEqual(signals.map((one) => one.payload), [{ signed: "on the train" }]);
  await done(view);
});

test("an answer that arrived although its reply was lost is not sent a second time", { skip }, async () => {
  await server.api("/v1/runs", { type: "demo-payout", id: "offline-2", input: { batch: "Lost reply" } });
  await until("it waits", async () => (await status("offline-2")) === "waiting_signal");
  const view = await page(chrome, server.url, { allows: OFFLINE }), { tab } = view;
  await open(view, "/runs/offline-2", "release");
  await tab.getByRole("radio", { name: "Yes" }).click();
  await tab.getByLabel("Checked").selectOption({ label: "bank" });
  await tab.getByLabel("Sender").fill("ada");
  await tab.route("**/signals/release", async (route) => { await route.fetch(); await route.abort(); });
  await tab.getByRole("button", { name: "Send release" }).click();
  await tab.getByText("Your answer is kept and not confirmed").waitFor({ timeout: 15e3 });
  await tab.unroute("**/signals/release");
  await tab.getByRole("button", { name: "Send it now" }).click();
  await until("the page has its outcome", async () => (await tab.getByText("Stored").count()) > 0);
  const signals = (await server.api("/v1/runs/offline-2/signals")).items;
  assert.deepEqual(signals.map((one) => one.source.by), ["ada"]);
  await done(view);
});

test("a double click restarts each of many runs once, and a retry leaves out the runs that accepted it", { skip }, async () => {
  const ids = ["many-1", "many-2", "many-3"];
  for (const id of ids) await server.api("/v1/runs", { type: "demo-invoice", id, input: { customer: "Many" } });
  for (const id of ids) await until("it has ended", async () => (await status(id)) === "completed");
  const view = await page(chrome, server.url, { allows: /Failed to load/ }), { tab } = view;
  await open(view, "/runs?type=demo-invoice", "many-1");
  for (const id of ids) await tab.getByLabel("Select " + id).check();
  let isFirst = true;
  const asked = [];
  await tab.route("**/restart", async (route) => {
    asked.push(route.request().url().split("/").at(-2));
    await new Promise((next) => setTimeout(next, 100));
    if (isFirst) { isFirst = false; await route.fulfill({ status: 503, json: { type: "about:blank", title: "Busy", status: 503, code: "overloaded", detail: "too busy" } }); } else await route.continue();
  });
  await tab.getByRole("button", { name: "Restart", exact: true }).click();
  await tab.locator("dialog footer .prime").dblclick();
  await tab.locator("dialog").getByText("too busy").waitFor();
  await tab.getByRole("button", { name: "Try 1 run again" }).click();
  await tab.locator("dialog").waitFor({ state: "detached" });
  assert.deepEqual([...new Set(asked)].length, 3);
  assert.equal(asked.length, 4, asked.join());
  for (const id of ids) await until("it was restarted", async () => (await server.api("/v1/runs/" + id)).restarts === 1);
  await done(view);
});

test("bidirectional control characters are shown as escapes, also in titles and behind `Show all`", { skip }, async () => {
  const bidi = "\u202efdp.exe\u2066", view = await page(chrome, server.url), { tab } = view;
  await server.api("/v1/runs", { type: "demo-contract", id: "bidi-1", input: { party: bidi, text: "x".repeat(30_000) + bidi } });
  await tab.route("**/v1/me", async (route) => { const me = await (await route.fetch()).json(); me.store.url = "s3://" + bidi; await route.fulfill({ json: me }); });
  await open(view, "/runs/bidi-1?tab=state", "Snapshot");
  for (const more of await tab.getByRole("button", { name: /^Show all/ }).all()) await tab.getByRole("button", { name: /^Show all/ }).first().click();
  await until("all is shown", async () => (await tab.getByRole("button", { name: /^Show all/ }).count()) === 0);
  const found = await tab.evaluate(() => {
    const raw = /[\u202a-\u202e\u2066-\u2069]/, attributes = [...document.querySelectorAll("*")].flatMap((one) => ["title", "aria-label", "placeholder"].map((name) => one.getAttribute(name) ?? ""));
    return { text: raw.test(document.body.textContent ?? "") || raw.test(document.title), attributes: attributes.filter((text) => raw.test(text)), shown: document.body.textContent?.split("\\u202efdp.exe\\u2066").length };
  });
  assert.deepEqual([found.text, found.attributes], [false, []]);
  assert.ok((found.shown ?? 0) > 4, "every place has the escapes");
  await done(view);
});

test("the steps of a run are read page by page, and none is missing", { skip }, async () => {
  const parts = 1100;
  await server.api("/v1/runs", { type: "demo-batch", id: "pages-1", input: { parts } });
  await until("it has ended", async () => (await status("pages-1")) === "completed");
  const view = await page(chrome, server.url), { tab } = view, limits = [];
  tab.on("request", (request) => { const limit = /\/steps\?.*limit=(\d+)/.exec(request.url())?.[1]; if (limit) limits.push(Number(limit)); });
  await open(view, "/runs/pages-1", `${parts.toLocaleString("en-US")} steps`);
  assert.deepEqual(limits, [500, 500, 500]);
  await done(view);
});

test("a run shows its attempts, their ticks, its compensations, and a minimap of a large graph", { skip }, async () => {
  const view = await page(chrome, server.url), { tab } = view;
  await open(view, "/runs/shipment-1?step=book-carrier", "Idempotency key");
  const tries = tab.locator(".rail .results li", { hasText: "no capacity" });
  await until("three attempts", async () => (await tries.count()) === 3);
  assert.ok(await tab.locator(".gantt .g", { hasText: "book-carrier" }).locator(".mark").count() === 2, "a tick for each attempt that was repeated");
  await tab.locator(".gantt .g.undone", { hasText: "compensate charge" }).waitFor();
  await tab.getByText("Worker", { exact: true }).waitFor();
  assert.equal(await tab.locator("svg.map").count(), 0, "a small graph has none");
  await tab.route("**/v1/definitions/**", async (route) => { const response = await route.fetch(), body = await response.json(); for (let i = 0; i < 120; i++) body.steps.push({ name: "more-" + i, kind: "step", after: [i ? "more-" + (i - 1) : "notify"] }); await route.fulfill({ response, json: body }); });
  await tab.reload();
  const box = await until("the small picture is drawn", () => tab.locator("svg.map").boundingBox()), left = () => tab.locator(".graphbox").evaluate((one) => one.scrollLeft);
  assert.equal(await left(), 0);
  await tab.mouse.click(box.x + box.width * 0.9, box.y + box.height / 2);
  await until("the graph is scrolled", async () => (await left()) > 1000);
  await done(view);
});

test("System shows each worker with its version, its workflows and its load; a late, full or other one in amber", { skip }, async () => {
  const view = await page(chrome, server.url), { tab } = view, now = Date.now(), seen = (ago) => new Date(now - ago).toISOString();
  const { version } = await server.api("/v1/me"), worker = (id, ago, about) => ({ id, seen: seen(ago), about });
  await tab.route("**/v1/workers", (route) => route.fulfill({ json: { by_lock: false, items: [worker("eu-1", 1000, { version, workflows: ["order", "invoice", "kyc"], queues: [], runs: 3, runs_max: 64 }), worker("eu-2", 90_000, { version: "0.0.1", workflows: [], queues: ["gpu"], runs: 8, runs_max: 8 }), worker("old", 1000, { id: "old", at: seen(1000) })] } }));
  await open(view, "/system", "eu-1");
  const row = (id) => tab.locator("tr", { hasText: id }), amber = (id) => row(id).locator(".tag.soon").allTextContents();
  assert.match(String(await row("eu-1").textContent()), /order, invoice, \+13 of 64/);
  assert.deepEqual(await amber("eu-1"), []);
  const [old, full, late] = await amber("eu-2");
  assert.deepEqual([old, full], ["0.0.1", "8 of 8"]);
  assert.match(late, /late/);
  assert.match(String(await row("eu-2").textContent()), /queue gpu/);
  assert.deepEqual(await amber("old"), []);
  await done(view);
});
