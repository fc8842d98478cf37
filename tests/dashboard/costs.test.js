// What a visible page asks of a bucket in an hour: requests are counted over an hour of the page's clock.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CHROMIUM, browser, filesOf, open, page, serve } from "./kit.js";

const skip = CHROMIUM ? false : "no Chromium";
let server, chrome;
before(async () => { if (!skip) { server = await serve(); chrome = await browser(); } });
after(async () => { await chrome?.close(); await server?.stop(); });

const GET = 4e-7, LIST = 5e-6;
/** A page of the server that believes its store to be a bucket; `change` edits what the server answers for a path. */
async function onBucket(change = () => {}) {
  const view = await page(chrome, server.url), asked = [];
  await view.tab.clock.install();
  await view.tab.route("**/v1/**", async (route) => { const response = await route.fetch(), path = new URL(route.request().url()).pathname; const body = await response.json(); if (path === "/v1/me") body.store.notifies = false; change(path, body); await route.fulfill({ response, json: body }); });
  view.tab.on("request", (request) => asked.push(new URL(request.url()).pathname));
  return { view, asked, count: (path) => asked.filter((one) => one === path).length };
}
async function hour(view, asked) {
  await view.tab.locator(".live:not(.off)").waitFor();
  await view.tab.clock.runFor(5000);
  asked.length = 0;
  // In parts, so that answers arrive in between.
  for (let i = 0; i < 60; i++) await view.tab.clock.runFor(60e3);
}

for (const [status, examined] of [["", 50], ["paused", 500]]) {
  test(`an hour of a visible list of runs ${status ? `with status=${status}` : "without a filter"} costs at most a cent on a bucket`, { skip }, async () => {
    const { view, asked, count } = await onBucket((path, body) => { if (path === "/v1/runs") body.examined = examined; });
    await open(view, "/runs" + (status && "?status=" + status), status ? "No run matches" : "shipment-1");
    await hour(view, asked);
    const lists = count("/v1/runs"), counts = count("/v1/runs/summary"), badges = count("/v1/waiting/summary");
    // A list reads two objects of each run that it examines. Counts and badges list the indexes of 100,000 runs or waits; the hub polls the ends.
    const dollars = lists * (2 * examined * GET + 2 * LIST) + (counts + badges) * 100 * LIST + 720 * LIST;
    console.log(`status=${status}: ${lists} lists, ${counts} counts, ${badges} badges, $${dollars.toFixed(4)} an hour (bar $0.01)`);
    assert.ok(lists >= 2 && dollars <= 0.01, `$${dollars}`);
    await view.tab.unrouteAll({ behavior: "ignoreErrors" });
    await view.close();
  });
}

test("an hour of a visible System screen costs at most a cent on a bucket", { skip }, async () => {
  const { view, asked, count } = await onBucket();
  await open(view, "/system", "Store bill");
  await hour(view, asked);
  const [series, workers, counts, badges] = ["/v1/system/series", "/v1/workers", "/v1/runs/summary", "/v1/waiting/summary"].map(count);
  // Workers: one LIST and an object of each of 20. Counts: 100,000 unfinished runs, the ends, the names of workflows.
  const dollars = workers * (LIST + 20 * GET) + counts * 102 * LIST + badges * 100 * LIST;
  console.log(`System: ${series} figures, ${workers} workers, ${counts} counts, ${badges} badges, $${dollars.toFixed(4)} an hour (bar $0.01)`);
  assert.ok(series > 300, "the figures of the process are live");
  assert.ok(workers >= 5 && dollars <= 0.01, `$${dollars}`);
  await view.tab.unrouteAll({ behavior: "ignoreErrors" });
  await view.close();
});

/** JavaScript with gzip, file by file. It is over its bar of 50,000 bytes (`npm run bench` prints that) and may only fall. */
const GZIP_MAX = 62_000;
test("the files of the page are within their budgets, also with gzip", { skip }, async () => {
  const files = await filesOf(server.url), sum = (ending, key) => files.filter((one) => one.name.endsWith(ending)).reduce((all, one) => all + one[key], 0);
  const [script, zipped, style] = [sum(".js", "bytes"), sum(".js", "gzip"), sum(".css", "bytes")];
  const line = (what, value, most) => console.log(`${value <= most ? "PASS" : "FAIL"}  ${what}: ${value.toLocaleString("en-US")} bytes (bar ${most.toLocaleString("en-US")})`);
  line("JavaScript", script, 160_000); line("JavaScript with gzip", zipped, GZIP_MAX); line("style", style, 40_000);
  assert.ok(files.length > 10 && script <= 160_000 && zipped <= GZIP_MAX && style <= 40_000);
});
