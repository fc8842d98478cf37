// Pure parts of the dashboard: schemas to fields, graphs, times, JSON text.
import assert from "node:assert/strict";
import { test } from "node:test";

const UI = "../../crates/wigwag-server/dashboard/";
// `words.js` needs no page; `form.js` and `graph.js` draw only on request.
const { fieldsOf, read, skeletonOf } = await import(UI + "form.js");
const { span, ms, safe, short, dollars, quoted, Exact, parse, stringify } = await import(UI + "words.js");
const { layout, scale, stacked } = await import(UI + "graph.js");
const { attemptsOf } = await import(UI + "log.js");

const object = (properties, required = []) => ({ type: "object", properties, required });
/** Fills in a form: paths to raw values. */
const filled = (schema, raw) => read(fieldsOf(schema), (path) => raw[path]);

test("schemas become fields, and the input becomes a value", () => {
  const table = [
    [object({ a: { type: "string" } }, ["a"]), { "/a": "x" }, { a: "x" }],
    [object({ a: { type: "string" } }), {}, {}],
    [object({ a: { type: ["string", "null"] } }, ["a"]), {}, { a: null }],
    [object({ a: { anyOf: [{ type: "string" }, { type: "null" }] } }), { "/a": "x" }, { a: "x" }],
    [object({ a: { type: "boolean" } }, ["a"]), { "/a": false }, { a: false }],
    [object({ a: { type: "integer" } }), { "/a": "12" }, { a: 12 }],
    [object({ a: { type: "number" } }), { "/a": "-1.5e3" }, { a: -1500 }],
    [object({ a: { enum: ["x", "y"] } }), { "/a": "1" }, { a: "y" }],
    [object({ a: { oneOf: [{ const: "x", title: "X" }, { const: 3 }] } }), { "/a": "1" }, { a: 3 }],
    [object({ a: { const: 7 } }, ["a"]), {}, { a: 7 }],
    [object({ a: { $ref: "#/$defs/t" } }, ["a"]), {}, null],
    [{ ...object({ a: { $ref: "#/$defs/t" } }), $defs: { t: { type: "string" } } }, { "/a": "x" }, { a: "x" }],
    [{ ...object({ a: { $ref: "#/$defs/t" } }), $defs: { t: { type: "string", enum: ["q"] } } }, { "/a": "0" }, { a: "q" }],
    [object({ a: object({ b: { type: "string" } }, ["b"]) }, ["a"]), { "/a/b": "x" }, { a: { b: "x" } }],
    [object({ a: object({ b: { type: "string" } }) }), {}, {}],
    [object({ a: { type: "array", items: { type: "string" } } }), { "/a": "x\n\n y " }, { a: ["x", "y"] }],
    [object({ a: { type: "array", items: { type: "integer" } } }, ["a"]), {}, { a: [] }],
    [object({ a: { type: "string", format: "date" } }), { "/a": "2026-01-02" }, { a: "2026-01-02" }],
    [object({ "a/b~": { type: "string" } }), { "/a~1b~0": "x" }, { "a/b~": "x" }],
    [{ type: "boolean" }, { "": true }, true],
    [{ type: "string" }, { "": "x" }, "x"],
    [object({ a: object({ b: object({ c: { type: "string" } }) }) }), {}, null],
    [object({ a: {} }), {}, null],
    [object({ a: { type: ["string", "integer"] } }), {}, null],
    [object({ a: { not: { type: "string" }, type: "string" } }), {}, null],
    [object({ a: { allOf: [{ type: "string" }] } }), {}, null],
    [object({}, ["b"]), {}, null],
    [{ type: "array", items: { type: "string" } }, {}, null],
    [true, {}, null],
    [null, {}, null],
  ];
  for (const [schema, raw, want] of table) {
    const fields = fieldsOf(schema);
    if (want === null) { assert.equal(fields, null, JSON.stringify(schema)); continue; }
    assert.ok(fields, JSON.stringify(schema));
    const found = read(fields, (path) => raw[path]);
    assert.deepEqual(found, { value: want, errors: {} }, JSON.stringify(schema));
  }
});

test("a mismatch is reported with its path", () => {
  const wrong = (schema, raw) => filled(object({ a: schema }, ["a"]), { "/a": raw }).errors["/a"];
  assert.match(wrong({ type: "string" }, ""), /Required/);
  assert.match(wrong({ type: "boolean" }, undefined), /Choose/);
  assert.match(wrong({ type: "integer" }, "1.5"), /whole/);
  assert.match(wrong({ type: "integer", minimum: 3 }, "2"), /At least 3/);
  assert.match(wrong({ type: "number", exclusiveMaximum: 3 }, "3"), /Less than 3/);
  assert.match(wrong({ type: "string", minLength: 3 }, "ab"), /At least 3/);
  assert.match(wrong({ type: "integer", multipleOf: 5 }, "7"), /multiple of 5/);
  assert.match(wrong({ type: "array", items: { type: "string" }, maxItems: 1 }, "a\nb"), /At most 1/);
  // Only the server checks patterns: in a browser, one may take exponential time.
  assert.equal(wrong({ type: "string", pattern: "^(a+)+$" }, "b"), undefined);
});

test("hostile names are data", () => {
  const schema = JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"string"}}}');
  const { value } = filled(schema, { "/__proto__": "x", "/constructor": "y" });
  assert.equal(stringify(value), '{"__proto__":"x","constructor":"y"}');
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.equal(safe("a\u202eb"), "a\\u202eb");
  assert.equal(quoted("a'b"), "'a'\\''b'");
});

test("large numbers stay as they were written", () => {
  const found = filled(object({ a: { type: "integer" } }), { "/a": "90071992547409931" });
  assert.ok(found.value.a instanceof Exact);
  assert.equal(stringify(found.value), '{"a":90071992547409931}');
  assert.equal(stringify(JSON.parse('{"a":[1,{"b":"x"}]}')), '{"a":[1,{"b":"x"}]}');
  let deep = "0";
  for (let i = 0; i < 1000; i++) deep = `[${deep}]`;
  assert.ok(stringify(parse(deep), 2).includes("…"));
});

test("numbers are kept as they were typed, or refused", () => {
  const number = (text) => filled(object({ a: { type: "number" } }), { "/a": text });
  for (const text of ["0.1234567890123456789", "9007199254740993", "1234567.00000000000000001", "-3.14159265358979323846e10"]) assert.equal(stringify(number(text).value), `{"a":${text}}`, text);
  for (const [text, want] of [["1.50", "1.5"], ["15e-1", "1.5"], ["1e3", "1000"], ["0.1", "0.1"], ["100000000000000000000", "100000000000000000000"]]) assert.equal(stringify(number(text).value), `{"a":${want}}`, text);
  for (const text of ["1e999", "-1e400"]) assert.match(number(text).errors["/a"], /Larger/, text);
  assert.equal(stringify(filled(object({ a: { type: "integer" } }), { "/a": "0090071992547409931" }).value), '{"a":90071992547409931}');
  // Bounds hold for them too, and of a list each is another one.
  assert.match(filled(object({ a: { type: "number", maximum: 1 } }), { "/a": "1.00000000000000000001e1" }).errors["/a"], /At most/);
  const list = { type: "array", items: { type: "integer" }, uniqueItems: true };
  assert.match(filled(object({ a: list }), { "/a": "90071992547409931\n90071992547409931" }).errors["/a"], /once/);
  assert.deepEqual(filled(object({ a: list }), { "/a": "90071992547409931\n90071992547409933" }).errors, {});
});

test("JSON that is typed keeps each number, in any browser", () => {
  for (const text of ['{"a":90071992547409931,"b":[0.1234567890123456789,1e999],"c":"1e999 \\" 90071992547409931"}', "1e999", "[1,2.5,-0.5]", '{"exact":"90071992547409931","n":90071992547409931}']) assert.equal(stringify(parse(text)), text, text);
  for (const text of ["012345678901234567890", "[1e999 1]", '{1e999:2}', "90071992547409931.", "--90071992547409931", '"90071992547409931', "0x90071992547409931"]) assert.throws(() => parse(text), SyntaxError, text);
  assert.equal(String(parse("90071992547409931")), "90071992547409931");
});

test("an initial value has all required fields", () => {
  assert.deepEqual(skeletonOf(object({ a: { type: "integer", minimum: 2 }, b: { type: "string" } }, ["a"])), { a: 2 });
  assert.deepEqual(skeletonOf({ oneOf: [{ type: "object", properties: {} }] }), {});
});

test("times in words", () => {
  assert.deepEqual([0, 0.4, 620, 8400, 93784000, 3600e3].map((n) => span(n)), ["0 ms", "400 µs", "620 ms", "8.4 s", "1 d 2 h", "1 h"]);
  assert.equal(ms("2026-01-01T00:00:00.000500Z") - ms("2026-01-01T00:00:00.000000Z"), 0.5);
  assert.deepEqual([999, 1284, 41_000, 2.5e6].map(short), ["999", "1.3k", "41k", "2.5M"]);
  assert.deepEqual([0, 0.00005, 12.345].map(dollars), ["$0", "$0.00005", "$12.35"]);
});

test("a graph is laid out in layers without overlaps, fast", () => {
  const chain = Array.from({ length: 500 }, (_, i) => ({ name: "s" + i, kind: "step", after: i ? ["s" + (i - 1), ...(i > 7 ? ["s" + (i - 7)] : [])] : [] }));
  const began = performance.now(), placed = layout(chain), took = performance.now() - began;
  console.log(`500 nodes are laid out in ${took.toFixed(0)} ms`);
  assert.ok(took < 1000, String(took));
  const boxes = [...placed.nodes.values()];
  for (const layer of placed.layers) for (let i = 1; i < layer.length; i++) assert.ok(layer[i].y > layer[i - 1].y);
  assert.ok(boxes.every((node) => node.from.every((from) => from.x < node.x)));
  const fan = [{ name: "a", kind: "step" }, ...Array.from({ length: 20 }, (_, i) => ({ name: "f" + i, kind: "step", after: ["a"] })), { name: "z", kind: "step", after: Array.from({ length: 20 }, (_, i) => "f" + i) }];
  assert.deepEqual(stacked(fan).map((step) => step.name), ["a", "f0 +19", "z"]);
});

test("a squeezed timeline keeps milliseconds beside days", () => {
  const lanes = [{ name: "a", status: "completed", from: 0, to: 8 }, { name: "b", status: "wait", from: 8, to: 2 * 86400e3 }];
  const squeezed = scale(lanes, 2 * 86400e3, true), real = scale(lanes, 2 * 86400e3, false);
  assert.ok(squeezed.place(8) > 5 && real.place(8) < 0.001);
  assert.ok(Math.abs(squeezed.back(squeezed.place(8)) - 8) < 1);
});

test("attempts and compensations are collected from the log", () => {
  const entry = (seq, at, ...events) => ({ seq, at: `2026-01-01T00:00:0${at}Z`, by: `worker-1.${seq}`, events });
  const { steps, undo } = attemptsOf([
    entry(1, 0, { type: "run.started" }, { type: "step.started", point: "a", attempt: 1 }),
    entry(2, 1, { type: "step.failed", point: "a", attempt: 1, at: "2026-01-01T00:00:01Z", error: { message: "no" } }),
    entry(3, 2, { type: "step.started", point: "a", attempt: 2 }),
    entry(4, 3, { type: "step.completed", point: "a", at: "2026-01-01T00:00:03Z" }, { type: "step.started", point: "b", attempt: 1 }, { type: "compensation.started", point: "a", attempt: 1 }),
    entry(5, 4, { type: "compensation.completed", point: "a" }),
    entry(6, 5, { type: "step.failed", point: "unknown", error: { message: "its start was not read" } }),
  ]);
  const short = (list) => list.map((one) => [one.n, one.to === null ? null : one.to - one.from, one.ok, one.message, one.worker]);
  assert.deepEqual(short(steps.get("a")), [[1, 1000, false, "no", "worker-1"], [2, 1000, true, "", "worker-1"]]);
  assert.deepEqual(short(steps.get("b")), [[1, null, false, "", "worker-1"]]);
  assert.deepEqual(short(undo.get("a")), [[1, 1000, true, "", "worker-1"]]);
  assert.deepEqual(steps.get("unknown"), []);
});
