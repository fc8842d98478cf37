// The verdict of a form against that of the server: the same schema and payload are accepted by both or refused by both, at the same field.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, until } from "./kit.js";

const UI = "../../crates/wigwag-server/dashboard/";
const { fieldsOf, read } = await import(UI + "form.js");
const { stringify } = await import(UI + "words.js");

let server, runs = 0;
before(async () => { server = await serve(); });
after(() => server?.stop());

const object = (properties, required = Object.keys(properties)) => ({ type: "object", properties, required });
/** One field `a`. */
const one = (schema) => object({ a: schema });

/** Verdict of the server on a payload: null, or the paths of the fields that do not fit. @param {any} schema @param {string} payload */
async function verdictOf(schema, payload) {
  const id = `verdict-${runs++}`;
  await server.api("/v1/runs", { type: "demo-form", id, input: schema });
  await until("it waits", async () => (await server.api(`/v1/runs/${id}/waiting`)).items?.length);
  const answer = await fetch(`${server.url}/v1/runs/${id}/signals/answer`, { method: "POST", headers: { "content-type": "application/json" }, body: `{"only_if_waiting":true,"payload":${payload}}` });
  const body = await answer.json();
  if (answer.ok) return null;
  assert.ok(["invalid_payload", "malformed_json", "invalid_body", "invalid"].includes(body.code), JSON.stringify(body));
  return (body.errors ?? []).map((error) => error.path).sort();
}

/** Schema, input of the form by path, and the same input as a payload for the server. @type {[any, Record<string, any>, string][]} */
const TABLE = [
  [one({ type: "string" }), { "/a": "x" }, '{"a":"x"}'],
  [one({ type: "string" }), {}, "{}"],
  [one({ type: "string", minLength: 3 }), { "/a": "ab" }, '{"a":"ab"}'],
  [one({ type: "string", minLength: 2 }), { "/a": "😀" }, '{"a":"😀"}'],
  [one({ type: "string", maxLength: 1 }), { "/a": "😀" }, '{"a":"😀"}'],
  [one({ type: "string", maxLength: 3 }), { "/a": "abcd" }, '{"a":"abcd"}'],
  [one({ type: "integer" }), { "/a": "12" }, '{"a":12}'],
  [one({ type: "integer" }), { "/a": "1.5" }, '{"a":1.5}'],
  [one({ type: "integer" }), { "/a": "twelve" }, '{"a":"twelve"}'],
  [one({ type: "integer", minimum: 3 }), { "/a": "2" }, '{"a":2}'],
  [one({ type: "integer", minimum: 3 }), { "/a": "3" }, '{"a":3}'],
  [one({ type: "integer", maximum: 3 }), { "/a": "90071992547409931" }, '{"a":90071992547409931}'],
  [one({ type: "integer" }), { "/a": "90071992547409931" }, '{"a":90071992547409931}'],
  [one({ type: "integer", exclusiveMinimum: 3 }), { "/a": "3" }, '{"a":3}'],
  [one({ type: "integer", multipleOf: 5 }), { "/a": "7" }, '{"a":7}'],
  [one({ type: "integer", multipleOf: 5 }), { "/a": "10" }, '{"a":10}'],
  [one({ type: "number" }), { "/a": "-1.5e3" }, '{"a":-1.5e3}'],
  [one({ type: "number" }), { "/a": "0.1234567890123456789" }, '{"a":0.1234567890123456789}'],
  [one({ type: "number", exclusiveMaximum: 3 }), { "/a": "3.0" }, '{"a":3.0}'],
  [one({ type: "number", multipleOf: 0.1 }), { "/a": "0.3" }, '{"a":0.3}'],
  [one({ type: "number", multipleOf: 0.01 }), { "/a": "19.99" }, '{"a":19.99}'],
  [one({ type: "number", multipleOf: 0.5 }), { "/a": "0.7" }, '{"a":0.7}'],
  [one({ type: "number" }), { "/a": "1e999" }, '{"a":1e999}'],
  [one({ type: "boolean" }), { "/a": false }, '{"a":false}'],
  [one({ type: "boolean" }), {}, "{}"],
  [one({ enum: ["x", 3] }), { "/a": "1" }, '{"a":3}'],
  [one({ enum: ["x", 3] }), {}, "{}"],
  [one({ oneOf: [{ const: "x", title: "X" }, { const: 3 }] }), { "/a": "0" }, '{"a":"x"}'],
  [one({ const: 7 }), {}, '{"a":7}'],
  [one({ type: ["string", "null"] }), {}, '{"a":null}'],
  [one({ anyOf: [{ type: "integer", minimum: 2 }, { type: "null" }] }), {}, '{"a":null}'],
  [one({ type: "array", items: { type: "string" } }), { "/a": "x\ny" }, '{"a":["x","y"]}'],
  [one({ type: "array", items: { type: "string" }, minItems: 1 }), {}, '{"a":[]}'],
  [one({ type: "array", items: { type: "string" }, maxItems: 1 }), { "/a": "x\ny" }, '{"a":["x","y"]}'],
  [one({ type: "array", items: { type: "integer" }, uniqueItems: true }), { "/a": "1\n1" }, '{"a":[1,1]}'],
  [one({ type: "array", items: { type: "string", minLength: 3 } }), { "/a": "abc\nx" }, '{"a":["abc","x"]}'],
  [one({ type: "array", items: { type: "integer", minimum: 3 } }), { "/a": "5\n1" }, '{"a":[5,1]}'],
  [one({ type: "array", items: { type: "integer" } }), { "/a": "5\nsix" }, '{"a":[5,"six"]}'],
  [one(object({ b: { type: "string" } })), { "/a/b": "x" }, '{"a":{"b":"x"}}'],
  [one(object({ b: { type: "string", minLength: 2 } })), { "/a/b": "x" }, '{"a":{"b":"x"}}'],
  [object({ a: { type: "string" }, b: { type: "integer" } }), { "/b": "x" }, '{"b":"x"}'],
  [object({ a: object({ b: { type: "string" }, c: { type: "string" } }, ["b"]) }, []), { "/a/c": "x" }, '{"a":{"c":"x"}}'],
  [object({ "a/b~": { type: "integer", minimum: 3 } }), { "/a~1b~0": "2" }, '{"a/b~":2}'],
  [{ ...object({ a: { $ref: "#/$defs/t" } }), $defs: { t: { type: "integer", maximum: 2 } } }, { "/a": "3" }, '{"a":3}'],
  [{ type: "boolean" }, { "": true }, "true"],
];

test("the form and the server give the same verdict on the same payload, at the same fields", async () => {
  const differences = [];
  for (const [schema, raw, payload] of TABLE) {
    const fields = fieldsOf(schema);
    assert.ok(fields, "it is drawn: " + JSON.stringify(schema));
    const found = read(fields, (path) => raw[path]), own = Object.keys(found.errors).sort();
    // The page sends exactly this text: the server judges it.
    const other = await verdictOf(schema, own.length ? payload : stringify(found.value));
    const what = `${JSON.stringify(schema)} with ${payload}`;
    if ((own.length === 0) !== (other === null)) differences.push(`${what}: the form ${own.length ? "refuses" : "accepts"} it, the server ${other ? "refuses" : "accepts"} it`);
    // A number out of range is no JSON for the server: it names no field.
    else if (other?.length && JSON.stringify(own) !== JSON.stringify(other)) differences.push(`${what}: the form marks ${own}, the server ${other}`);
  }
  assert.deepEqual(differences, []);
});

/** A random number with a fixed seed. */
function random(seed) { let state = seed; return (most) => { state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff; return Math.floor((state / 0x7fffffff) * most) % most; }; }

test("whatever a form accepts, the server accepts", async () => {
  const pick = random(7), of = (list) => list[pick(list.length)];
  const scalars = () => of([
    () => ({ type: "string", ...(pick(2) ? { minLength: pick(4) } : {}), ...(pick(2) ? { maxLength: 3 + pick(4) } : {}) }),
    () => ({ type: "integer", ...(pick(2) ? { minimum: pick(10) - 5 } : {}), ...(pick(2) ? { exclusiveMaximum: 5 + pick(5) } : {}), ...(pick(3) ? {} : { multipleOf: 2 + pick(3) }) }),
    () => ({ type: pick(2) ? "number" : ["number", "null"], ...(pick(2) ? { maximum: pick(10) } : {}), ...(pick(3) ? {} : { multipleOf: of([0.1, 0.01, 0.25]) }) }),
    () => ({ type: "boolean" }), () => ({ enum: ["x", 3, null, "y"].slice(pick(3)) }), () => ({ type: "array", items: { type: of(["string", "integer"]) }, maxItems: 2, uniqueItems: Boolean(pick(2)) }),
  ])();
  const inputs = ["", "x", "xyz", "abcdefg", "0", "-3", "4", "6", "2.5", "0.3", "1e2", "19.99", "90071992547409931", "0.1234567890123456789", "1\n2", "1\n1", "x\ny\nz"];
  let accepted = 0;
  for (let round = 0; round < 60; round++) {
    const names = ["a", "b", "c"], properties = Object.fromEntries(names.map((name) => [name, scalars()]));
    const schema = object(properties, names.filter(() => pick(2))), fields = fieldsOf(schema);
    assert.ok(fields, JSON.stringify(schema));
    for (let again = 0; again < 5; again++) {
      const raw = Object.fromEntries(fields.fields.map((field) => [field.path, field.kind === "boolean" ? of([true, false, undefined]) : field.kind === "choice" ? of(["0", ""]) : of(inputs)]));
      const found = read(fields, (path) => raw[path]);
      if (Object.keys(found.errors).length) continue;
      const text = stringify(found.value), verdict = await verdictOf(schema, text);
      assert.equal(verdict, null, `${JSON.stringify(schema)} with ${text}: the server refuses ${verdict}`);
      accepted++;
      break;
    }
  }
  console.log(`${accepted} payloads that the form accepts are accepted by the server`);
  assert.ok(accepted >= 20, String(accepted));
});
