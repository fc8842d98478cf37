/** Every rule of `conformance/hub/` holds on a real server, and every frame is as the schema says. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { mismatch } from "./schema.js";
import { NEEDS_SERVER, Server, temporaryFolder } from "./server.js";
import { Runner, vectors, type Json, type Step } from "./vectors.js";

describe("conformance", NEEDS_SERVER, () => {
  let server: Server;
  before(async () => void (server = await Server.dev(temporaryFolder())));
  after(async () => await server.stop());

  for (const vector of vectors()) {
    test(`${vector.name}: ${vector.rule}`, async () => {
      await Runner.run(vector, server.hub, (frame) => assert.equal(mismatch("toClient", frame), null, JSON.stringify(frame).slice(0, 1_000)));
    });
  }
});

describe("the schema", () => {
  const frames = (steps: Step[]): Json[] => steps.flatMap((step) => ("steps" in step ? frames(step.steps) : "from" in step && "frame" in step ? [step.frame] : []));
  // Placeholder for a value that is known only at run time.
  const plain = (value: Json): Json => {
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value === "object" && value !== null) {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, key === "epoch" ? 1 : plain(item)]));
    }
    if (typeof value !== "string") return value;
    if (value.startsWith("$now")) return 1;
    return /^\$[a-z]$/.test(value) ? "@(session/s)" : value.replaceAll("$run", "r").replace(/\$fill:(\d+)/, (_, count: string) => "x".repeat(Number(count)));
  };

  for (const { name, steps } of vectors()) {
    const hasMalformed = name.startsWith("malformed-");
    test(`accepts the frames of \`${name}\`${hasMalformed ? ", except malformed ones" : ""}`, () => {
      const wrongs = frames(steps).map((frame) => mismatch("toHub", plain(frame))).filter((wrong) => wrong !== null);
      if (!hasMalformed) assert.deepEqual(wrongs, []);
      else if (!["malformed-abuse", "malformed-text", "malformed-longest-id"].includes(name)) assert.notDeepEqual(wrongs, []);
    });
  }

  test("rejects frames that the hub never sends", () => {
    const answer = { id: "1", from: "@(hub)", to: "@(a)", type: "hub:registered", pattern: "tell", timestamp: 1, correlationId: "2", metadata: {} };
    const payload = { actorAddress: "@(a)", expiresAt: 1, renewalToken: "r", version: 1 };
    assert.equal(mismatch("toClient", { ...answer, payload }), null);
    assert.notEqual(mismatch("toClient", { ...answer, payload: { ...payload, version: "1" } }), null);
    assert.notEqual(mismatch("toClient", { ...answer, payload, from: "@(somebody)", to: 7 }), null);
    assert.notEqual(mismatch("toClient", { ...answer, payload, type: "hub:dance" }), null);
    assert.notEqual(mismatch("toClient", { type: "pong", more: 1 }), null);
  });
});
