/** The subset of JSON Schema 2020-12 that `docs/reference/hub.schema.json` uses; an unknown keyword is an error. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";

type Value = unknown;
type Schema = { [keyword: string]: unknown };

const SCHEMA = JSON.parse(readFileSync(new URL("../../../docs/reference/hub.schema.json", import.meta.url), "utf8")) as Schema;
export const DEFINITIONS = SCHEMA["$defs"] as { [name: string]: Schema };

/** Returns why a value does not match the definition, or null. */
export function mismatch(definition: string, value: Value): string | null {
  return check({ $ref: `#/$defs/${definition}` }, value, "");
}

function check(schema: Schema, value: Value, at: string): string | null {
  for (const [keyword, argument] of Object.entries(schema)) {
    const rule = RULES[keyword];
    assert.ok(rule !== undefined, `unknown keyword \`${keyword}\``);
    const wrong = rule(argument as never, value, at);
    if (wrong !== null) return wrong;
  }
  return null;
}

type Rule = (argument: never, value: Value, at: string) => string | null;

const RULES: { [keyword: string]: Rule } = {
  description: () => null,
  $ref: (name: string, value, at) => {
    const found = DEFINITIONS[name.replace("#/$defs/", "")];
    assert.ok(found !== undefined, `nothing is at \`${name}\``);
    return check(found, value, at);
  },
  type: (names: string | string[], value, at) => unless([names].flat().some((name) => isOfType(name, value)), at, `is not ${String(names)}`),
  const: (wanted: Value, value, at) => unless(isDeepStrictEqual(wanted, value), at, `is not ${JSON.stringify(wanted)}`),
  enum: (all: Value[], value, at) => unless(all.some((one) => isDeepStrictEqual(one, value)), at, `is none of ${JSON.stringify(all)}`),
  pattern: (pattern: string, value, at) => unless(typeof value !== "string" || new RegExp(pattern, "u").test(value), at, `does not match ${pattern}`),
  minLength: (min: number, value, at) => unless(typeof value !== "string" || value.length >= min, at, "is too short"),
  maxLength: (max: number, value, at) => unless(typeof value !== "string" || value.length <= max, at, "is too long"),
  minimum: (min: number, value, at) => unless(typeof value !== "number" || value >= min, at, "is too small"),
  maximum: (max: number, value, at) => unless(typeof value !== "number" || value <= max, at, "is too large"),
  maxProperties: (max: number, value, at) => unless(!isObject(value) || Object.keys(value).length <= max, at, "has too many keys"),
  required: (keys: string[], value, at) => first(keys.map((key) => unless(!isObject(value) || key in value, `${at}.${key}`, "is missing"))),
  properties: (schemas: { [key: string]: Schema }, value, at) =>
    isObject(value)
      ? first(Object.entries(schemas).map(([key, schema]) => (key in value ? check(schema, value[key], `${at}.${key}`) : null)))
      : null,
  items: (schema: Schema, value, at) =>
    Array.isArray(value) ? first(value.map((item, index) => check(schema, item, `${at}[${index}]`))) : null,
  allOf: (schemas: Schema[], value, at) => first(schemas.map((schema) => check(schema, value, at))),
  anyOf: (schemas: Schema[], value, at) => {
    const wrongs = schemas.map((schema) => check(schema, value, at));
    return wrongs.includes(null) ? null : `\`${at}\` matches none of ${schemas.length}: ${wrongs.slice(0, 60).join("; ")}`;
  },
  not: (schema: Schema, value, at) => unless(check(schema, value, at) !== null, at, "matches the schema of `not`"),
};

function isOfType(name: string, value: Value): boolean {
  if (name === "null") return value === null;
  if (name === "array") return Array.isArray(value);
  if (name === "object") return isObject(value);
  if (name === "integer") return Number.isInteger(value);
  return typeof value === name;
}

function isObject(value: Value): value is { [key: string]: Value } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unless(holds: boolean, at: string, wrong: string): string | null {
  return holds ? null : `\`${at}\` ${wrong}`;
}

function first(wrongs: (string | null)[]): string | null {
  return wrongs.find((wrong) => wrong !== null) ?? null;
}
