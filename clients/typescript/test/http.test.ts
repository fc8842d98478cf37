/** The client of the HTTP API on the real server: types, retries, problems, lists, following a run. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ApiError, Client, OPERATIONS } from "../dist/index.js";
import { NEEDS_SERVER, Server, temporaryFolder } from "./server.js";

let server: Server, client: Client;
before(async () => {
  if (NEEDS_SERVER.skip !== undefined) return;
  server = await Server.dev(temporaryFolder(), { demo: true });
  client = new Client({ url: server.http });
});
after(() => server?.stop());

test("an operation takes and returns what its description says", NEEDS_SERVER, async () => {
  const me = await client.call("me");
  assert.equal(me.by_free, true);
  const run = await client.call("getRun", { path: { id: "order-1" } });
  assert.equal(run.status, "waiting_signal");
  const why = await client.call("explainRun", { path: { id: "order-1" } });
  assert.match(why.why, /approval/);
});

test("a problem is a typed error", NEEDS_SERVER, async () => {
  const refused = await client.call("getRun", { path: { id: "nobody" } }).catch((error: unknown) => error);
  assert.ok(refused instanceof ApiError);
  assert.deepEqual([refused.code, refused.status], ["not_found", 404]);
});

test("a request whose answer was lost is repeated under the same key, and happens once", NEEDS_SERVER, async () => {
  let lost = 0;
  const lossy = new Client({
    url: server.http,
    fetch: async (input, init) => {
      const response = await fetch(input, init);
      if (lost++ === 0) throw new TypeError("the answer was lost");
      return response;
    },
  });
  const started = await lossy.call("startRun", { body: { type: "demo-contract", input: { party: "lossy" } } });
  assert.equal(lost, 2);
  const page = await client.call("listRuns", { query: { type: "demo-contract" } });
  assert.equal(page.items.filter((one) => one.id === (started as { id: string }).id).length, 1);
});

test("a list is read page by page, and a run is followed to its end", NEEDS_SERVER, async () => {
  const ids: string[] = [];
  for await (const run of client.items("listRuns", { query: { limit: 2 } })) ids.push(run.id);
  assert.ok(ids.includes("order-1") && ids.length > 5, ids.join());
  const types: string[] = [];
  const following = client.follow("order-1", (entry) => types.push(...entry.events.map((event) => event.type)));
  await client.call("sendSignal", { path: { id: "order-1", name: "approval" }, body: { payload: { approved: true, by: "ada" } } });
  await following;
  assert.equal(types.at(-1), "run.completed");
});

test("there is a call for every operation of the server's description, with its method and path", NEEDS_SERVER, async () => {
  const description = (await (await fetch(server.http + "/v1/openapi.json")).json()) as { paths: Record<string, Record<string, { operationId: string }>> };
  const described = Object.entries(description.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => [operation.operationId, `${method.toUpperCase()} ${path}`] as const));
  const known = Object.entries(OPERATIONS).map(([id, { method, path }]) => [id, `${method} ${path}`] as const);
  assert.deepEqual(Object.fromEntries(known), Object.fromEntries(described));
});

test("a payload that does not fit is an error for each field", NEEDS_SERVER, async () => {
  await client.call("startRun", { body: { type: "demo-order", id: "order-fields", input: { item: "lute", cents: 5, approved_by: null } } });
  while ((await client.call("listWaits", { path: { id: "order-fields" } })).items.length === 0);
  const refused = await client.call("sendSignal", { path: { id: "order-fields", name: "approval" }, body: { payload: { approved: 7 } } }).catch((error: unknown) => error);
  assert.ok(refused instanceof ApiError);
  assert.deepEqual([refused.code, refused.problem.errors?.some((one) => one.path === "/approved")], ["invalid_payload", true]);
});

test("a busy server is retried after the time that it names, and the caller can abort", NEEDS_SERVER, async () => {
  const asked: number[] = [];
  const busy = (seconds: string): typeof fetch => async (input, init) => {
    asked.push(performance.now());
    return asked.length === 1 ? new Response("{}", { status: 503, headers: { "retry-after": seconds } }) : fetch(input, init);
  };
  await new Client({ url: server.http, fetch: busy("1") }).call("health");
  assert.ok(asked[1]! - asked[0]! >= 990, String(asked[1]! - asked[0]!));
  asked.length = 0;
  const signal = AbortSignal.timeout(50);
  await assert.rejects(new Client({ url: server.http, fetch: busy("20") }).call("health", { signal }), { name: "TimeoutError" });
  assert.equal(asked.length, 1);
});

test("an invalid request is rejected before it is sent", NEEDS_SERVER, async () => {
  assert.throws(() => new Client({ url: "localhost:7070" }), /http:\/\/127/);
  await assert.rejects(client.call("getRun", { path: { id: "" } }), /needs `id`/);
  await assert.rejects(client.call("nothing" as "health"), /no operation `nothing`/);
});
