// From a JSON Schema to fields, and from what was filled in to a value. A `pattern` is never run here: the server judges.
import { el, field as labelled, icon } from "./dom.js";
import { Exact, isExact, label, parse, stringify } from "./words.js";

/**
 * @typedef {"boolean" | "choice" | "integer" | "number" | "text" | "long" | "date" | "date-time" | "email" | "list" | "fixed" | "group"} Kind
 * @typedef {{path: string, name: string, kind: Kind, title: string, hint: string, required: boolean, nullable: boolean, schema: any, choices?: {value: any, text: string}[], fields?: Field[], item?: Field}} Field
 */

const SCALARS = ["string", "integer", "number", "boolean"];
const UNDRAWABLE = ["allOf", "not", "if", "patternProperties", "dependentSchemas", "prefixItems", "contains", "propertyNames"];

/** Follows `$ref` to `$defs` of the same schema. @param {any} schema @param {any} root @param {number} [depth] @returns {any} */
function resolve(schema, root, depth = 0) {
  const ref = schema?.$ref;
  if (typeof ref !== "string") return schema;
  if (depth > 20 || !ref.startsWith("#/")) return null;
  let found = root;
  for (const part of ref.slice(2).split("/")) { const key = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"); found = found && Object.hasOwn(found, key) ? found[key] : undefined; }
  const { $ref: _, ...beside } = schema;
  return found === undefined ? null : resolve({ ...found, ...beside }, root, depth + 1);
}

/** @param {any} schema @returns {{type: string | undefined, nullable: boolean, schema: any} | null} */
function plain(schema, /** @type {any} */ root) {
  let found = resolve(schema, root);
  if (!found || typeof found !== "object") return null;
  let nullable = false;
  const either = found.anyOf ?? found.oneOf;
  if (Array.isArray(either) && !either.every(isConst)) {
    const some = either.map((one) => resolve(one, root)), real = some.filter((one) => one?.type !== "null");
    if (real.length !== 1 || real.length === some.length || !real[0]) return null;
    const { anyOf: _, oneOf: __, ...beside } = found;
    found = { ...real[0], ...beside };
    nullable = true;
  }
  const types = [found.type].flat().filter((type) => type !== undefined);
  if (types.includes("null")) nullable = true;
  const real = types.filter((type) => type !== "null");
  return real.length > 1 ? null : { type: real[0], nullable, schema: found };
}

/** @param {any} one */
const isConst = (one) => one && typeof one === "object" && Object.hasOwn(one, "const") && (one.const === null || typeof one.const !== "object");
/** @param {string} name */
const escape = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");

/** One field, or null if the schema cannot be drawn. @param {any} given @param {any} root @param {string} path @param {string} name @param {boolean} required @param {number} depth @returns {Field | null} */
function field(given, root, path, name, required, depth) {
  if (given === true) return null;
  const found = plain(given, root);
  if (!found) return null;
  const { type, nullable, schema } = found;
  if (UNDRAWABLE.some((word) => Object.hasOwn(schema, word))) return null;
  const title = String(schema.title && depth ? schema.title : schema.title ?? label(name)), hint = typeof schema.description === "string" ? schema.description : "";
  /** @type {Field} */
  const made = { path, name, kind: "text", title: name === "approved" && !schema.title ? "Decision" : title, hint, required, nullable, schema };
  const either = schema.oneOf ?? schema.anyOf;
  if (Object.hasOwn(schema, "const")) return { ...made, kind: "fixed" };
  if (Array.isArray(either) && either.every(isConst)) return { ...made, kind: "choice", choices: either.map((one) => ({ value: one.const, text: String(one.title ?? one.const) })) };
  if (either) return null;
  if (Array.isArray(schema.enum)) return schema.enum.every((/** @type {any} */ one) => one === null || typeof one !== "object") ? { ...made, kind: "choice", choices: schema.enum.filter((/** @type {any} */ one) => one !== null).map((/** @type {any} */ one) => ({ value: one, text: String(one) })), nullable: nullable || schema.enum.includes(null) } : null;
  if (type === "object" && depth < 2) return group(made, schema, root, path, depth);
  if (type === "array" && depth === 1 && schema.items) {
    const item = field(schema.items, root, path + "/0", name, true, 2);
    return item && ["text", "integer", "number"].includes(item.kind) ? { ...made, kind: "list", item } : null;
  }
  if (!type || !SCALARS.includes(type)) return null;
  if (type === "string") made.kind = schema.format === "date" || schema.format === "date-time" || schema.format === "email" ? schema.format : (schema.maxLength ?? 0) > 120 || /^(note|comment|reason|message|description)$/.test(name) ? "long" : "text";
  else made.kind = /** @type {Kind} */ (type);
  return made;
}

/** @param {Field} made @param {any} schema @param {any} root @param {string} path @param {number} depth @returns {Field | null} */
function group(made, schema, root, path, depth) {
  const properties = schema.properties;
  if (!properties || typeof properties !== "object") return null;
  const fields = [];
  for (const [name, one] of Object.entries(properties)) {
    const found = field(one, root, `${path}/${escape(name)}`, name, Boolean(schema.required?.includes(name)), depth + 1);
    if (!found) return null;
    fields.push(found);
  }
  for (const name of schema.required ?? []) if (!Object.hasOwn(properties, name)) return null;
  return { ...made, kind: "group", fields };
}

/** The fields of a payload, or null: then it is written as JSON. @param {any} schema @returns {Field | null} */
export function fieldsOf(schema) {
  if (!schema || typeof schema !== "object") return null;
  const found = field(schema, schema, "", "", true, 0);
  return found?.kind === "fixed" ? null : found;
}

/** Reads what was filled in. @param {Field} one @param {(path: string) => any} raw @returns {{value?: any, errors: Record<string, string>}} */
export function read(one, raw) {
  /** @type {Record<string, string>} */
  const errors = {};
  const value = readField(one, raw, errors);
  return { value, errors };
}

/** @param {Field} one @param {(path: string) => any} raw @param {Record<string, string>} errors @returns {any} */
function readField(one, raw, errors) {
  const { path, schema } = one, given = raw(path);
  if (one.kind === "fixed") return schema.const;
  if (one.kind === "group") {
    const parts = /** @type {Field[]} */ (one.fields).map((part) => [part.name, readField(part, raw, errors)]).filter(([, value]) => value !== undefined);
    if (!parts.length && !one.required) return undefined;
    return Object.fromEntries(parts);
  }
  if (given === undefined || given === null || given === "") {
    if (one.kind === "list" && one.required) return check(one, [], errors);
    if (one.required && one.nullable) return null;
    if (one.required && (one.kind === "text" || one.kind === "long") && given === "" && !schema.minLength && !schema.pattern && !schema.format) { errors[path] = "Required"; return undefined; }
    if (one.required) errors[path] = one.kind === "boolean" || one.kind === "choice" ? "Choose one" : "Required";
    return undefined;
  }
  switch (one.kind) {
    case "boolean": return given === true || given === "true";
    case "choice": return one.choices?.[Number(given)]?.value;
    case "integer": case "number": return check(one, number(one, String(given).trim(), errors), errors);
    case "list": return check(one, String(given).split("\n").map((line) => line.trim()).filter(Boolean).map((line, i) => { const item = /** @type {Field} */ ({ ...one.item, path: `${path}/${i}` }); return check(item, item.kind === "text" ? line : number(item, line, errors), errors); }), errors);
    case "date-time": { const at = new Date(String(given)); if (Number.isNaN(at.getTime())) { errors[path] = "Not a time"; return undefined; } return at.toISOString(); }
    default: return check(one, String(given), errors);
  }
}

/** @param {Field} one @param {string} text @param {Record<string, string>} errors */
function number(one, text, errors) {
  if (one.kind === "integer" ? !/^-?\d+$/.test(text) : !/^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text)) { errors[one.path] = one.kind === "integer" ? "Not a whole number" : "Not a number"; return undefined; }
  if (!Number.isFinite(Number(text))) { errors[one.path] = "Larger than any number that the server reads"; return undefined; }
  return isExact(text) ? Number(text) : new Exact(text.replace(/^(-?)0+(?=\d)/, "$1"));
}

/** Checks bounds that need no code of others. @param {Field} one @param {any} value @param {Record<string, string>} errors */
function check(one, value, errors) {
  const { schema, path } = one, size = typeof value === "string" ? [...value].length : 0, n = value instanceof Exact ? Number(value.source) : value;
  /** @param {boolean} is @param {string} what */
  const wrong = (is, what) => { if (is && !errors[path]) errors[path] = what; };
  if (typeof value === "string") { wrong(size < (schema.minLength ?? 0), `At least ${schema.minLength} characters`); wrong(size > (schema.maxLength ?? Infinity), `At most ${schema.maxLength} characters`); }
  if (typeof n === "number") {
    wrong(n < (schema.minimum ?? -Infinity), `At least ${schema.minimum}`); wrong(n > (schema.maximum ?? Infinity), `At most ${schema.maximum}`);
    wrong(n <= (schema.exclusiveMinimum ?? -Infinity), `More than ${schema.exclusiveMinimum}`); wrong(n >= (schema.exclusiveMaximum ?? Infinity), `Less than ${schema.exclusiveMaximum}`);
    wrong(schema.multipleOf !== undefined && Math.abs(n / schema.multipleOf - Math.round(n / schema.multipleOf)) > 1e-9, `A multiple of ${schema.multipleOf}`);
  }
  if (Array.isArray(value)) { wrong(value.length < (schema.minItems ?? 0), `At least ${schema.minItems} lines`); wrong(value.length > (schema.maxItems ?? Infinity), `At most ${schema.maxItems} lines`); wrong(Boolean(schema.uniqueItems) && new Set(value.map((one) => stringify(one))).size < value.length, "Each line once"); }
  return value;
}

/** A value to begin with, for the JSON box. @param {any} schema @param {any} [root] @param {number} [depth] @returns {any} */
export function skeletonOf(schema, root = schema, depth = 0) {
  const found = resolve(schema, root);
  if (!found || typeof found !== "object" || depth > 6) return null;
  if (Object.hasOwn(found, "default")) return found.default;
  if (Object.hasOwn(found, "const")) return found.const;
  if (found.examples?.length) return found.examples[0];
  if (found.enum?.length) return found.enum[0];
  const either = found.oneOf ?? found.anyOf;
  if (either?.length) return skeletonOf(either[0], root, depth + 1);
  switch ([found.type].flat()[0]) {
    case "object": return Object.fromEntries(Object.entries(found.properties ?? {}).filter(([name]) => found.required?.includes(name)).map(([name, one]) => [name, skeletonOf(one, root, depth + 1)]));
    case "array": return [];
    case "string": return "";
    case "integer": case "number": return found.minimum ?? 0;
    case "boolean": return false;
    default: return null;
  }
}

let forms = 0;

/**
 * A form for a payload, or a JSON box where the schema cannot be drawn or JSON is wanted.
 * @param {any} schema @param {{onchange?: () => void, by?: string}} [options]
 */
export function payloadForm(schema, options = {}) {
  forms++;
  const root = fieldsOf(schema), id = "f" + forms;
  /** @type {Map<string, any>} */
  const values = new Map();
  let asJson = !root, isDirty = false;
  const area = el("textarea.input.mono", { id: id + "-json", rows: 6, spellcheck: "false", "aria-label": "Payload as JSON", oninput: () => { isDirty = true; show({}); options.onchange?.(); } });
  area.value = stringify(schema ? skeletonOf(schema) : null, 2);
  const box = el("div.fields");
  /** @type {Record<string, string>} */
  let wrong = {};

  /** @param {Field} one */
  const begin = (one) => {
    for (const part of one.fields ?? []) begin(part);
    const { schema: s } = one;
    if (Object.hasOwn(s, "default") && one.kind !== "group") values.set(one.path, one.kind === "choice" ? one.choices?.findIndex((c) => stringify(c.value) === stringify(s.default)) : s.default);
    if (one.name === "by" && options.by && one.kind === "text" && !values.has(one.path)) values.set(one.path, options.by);
  };
  if (root) begin(root);

  /** @param {string} path @param {any} value */
  const set = (path, value) => { values.set(path, value); isDirty = true; options.onchange?.(); };

  /** Paths of errors that are not shown yet. @type {Set<string>} */
  let unshown = new Set();
  /** The error of a field, or of a line of a list. @param {Field} one */
  function errorAt(one) {
    const path = Object.keys(wrong).find((path) => path === one.path || (one.kind === "list" && path.startsWith(one.path + "/")));
    if (path === undefined) return undefined;
    unshown.delete(path);
    return path === one.path ? wrong[path] : `Line ${Number(path.slice(one.path.length + 1)) + 1}: ${wrong[path]}`;
  }

  /** @param {Field} one @returns {HTMLElement | null} */
  function draw(one) {
    if (one.kind === "fixed") return null;
    if (one.kind === "group") return one.path === "" ? el("div.fields", one.fields?.map(draw)) : el("fieldset.field.nested", el("legend", one.title), one.hint && el("div.hint", one.hint), one.fields?.map(draw));
    const key = id + one.path.replace(/[^A-Za-z0-9]/g, "-"), error = errorAt(one);
    const about = [one.hint && key + "-hint", error && key + "-wrong"].filter(Boolean).join(" ") || undefined;
    const hint = one.hint && el("div.hint", { id: key + "-hint" }, one.hint), bad = error && el("div.wrong", { id: key + "-wrong", role: "alert" }, icon("warn"), error);
    const optional = !one.required && el("span.dimmer", " · optional");
    if (one.kind === "boolean") return el("div.field", el("span.label", { id: key }, one.title, optional), yesNo(one, key, about), hint, bad);
    return el("div.field", el("label", { for: key }, one.title, optional), input(one, key, about, Boolean(error)), hint, bad);
  }

  /** @param {Field} one @param {string} key @param {string | undefined} about */
  function yesNo(one, key, about) {
    const [yes, no] = one.name === "approved" || one.name === "approve" ? ["Approve", "Reject"] : ["Yes", "No"];
    /** @param {boolean} value @param {string} text @param {string} cls @param {string} ic @param {number} place */
    const option = (value, text, cls, ic, place) => el("button." + cls, { role: "radio", "data-path": one.path, "aria-checked": String(values.get(one.path) === value), tabindex: values.get(one.path) === value || (values.get(one.path) === undefined && !place) ? "0" : "-1", onclick: () => pick(value) }, icon(ic), text);
    const group = el("div.seg.yesno", { role: "radiogroup", "aria-labelledby": key, "aria-describedby": about, "aria-required": String(one.required), onkeydown: (/** @type {KeyboardEvent} */ event) => { if (/^Arrow/.test(event.key)) { event.preventDefault(); pick(values.get(one.path) !== true, true); } } });
    const paint = () => group.replaceChildren(option(true, yes, "completed", "check", 0), option(false, no, "failed", "cross", 1));
    /** @param {boolean} value @param {boolean} [focus] */
    const pick = (value, focus = true) => { set(one.path, value); paint(); if (focus) /** @type {HTMLElement} */ (group.querySelector('[aria-checked="true"]')).focus(); };
    paint();
    return group;
  }

  /** @param {Field} one @param {string} key @param {string | undefined} about @param {boolean} invalid */
  function input(one, key, about, invalid) {
    const { schema: s } = one, value = values.get(one.path) ?? "";
    const base = { id: key, "data-path": one.path, "aria-describedby": about, "aria-invalid": invalid ? "true" : undefined, "aria-required": one.required ? "true" : undefined };
    const changed = (/** @type {any} */ event) => set(one.path, event.target.value);
    const example = typeof s.examples?.[0] === "string" ? s.examples[0] : undefined;
    if (one.kind === "choice") return el("select.input", { ...base, value, onchange: changed }, el("option", { value: "" }, one.required ? "Choose…" : "–"), one.choices?.map((c, i) => el("option", { value: i, selected: String(value) === String(i) }, c.text)));
    if (one.kind === "long" || one.kind === "list") return el("textarea.input", { ...base, rows: 3, placeholder: one.kind === "list" ? "One per line" : example, oninput: changed, value: Array.isArray(value) ? value.join("\n") : value });
    const kinds = { date: "date", "date-time": "datetime-local", email: "email" };
    return el("input.input" + (one.kind === "integer" || one.kind === "number" ? ".num" : ""), { ...base, type: kinds[/** @type {"date"} */ (one.kind)] ?? "text", inputmode: one.kind === "integer" ? "numeric" : one.kind === "number" ? "decimal" : undefined, placeholder: example, autocomplete: "off", oninput: changed, value });
  }

  /** Draws anew; focus stays. @param {Record<string, string>} errors */
  function show(errors) {
    wrong = errors;
    unshown = new Set(Object.keys(errors));
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.id;
    if (!asJson && root) box.replaceChildren(/** @type {HTMLElement} */ (draw(root)));
    else if (!area.isConnected || box.childElementCount > 1) box.replaceChildren(labelled(area.id, "Payload as JSON", area));
    // Errors without a field: all errors of a JSON box, errors of the payload as a whole, and of properties that the form lacks.
    for (const path of [...unshown].slice(0, asJson ? 1 : 3)) box.append(el("div.wrong", { role: "alert" }, icon("warn"), el("span", path && path + ": ", errors[path])));
    if (focused) document.getElementById(focused)?.focus();
  }
  show({});

  return {
    box, canDraw: Boolean(root), get asJson() { return asJson; }, get isDirty() { return isDirty; },
    /** Approved or rejected, where the schema asks that. */
    get decision() { const value = values.get("/approved") ?? values.get("/approve"); return asJson || typeof value !== "boolean" ? null : value; },
    /** Switches between form and JSON; what was filled in stays. */
    toggle() {
      if (!root) return asJson;
      if (!asJson) area.value = stringify(read(root, (path) => values.get(path)).value ?? skeletonOf(schema), 2);
      else try { spread(root, parse(area.value)); } catch { /* stays as it was in the form */ }
      asJson = !asJson;
      box.replaceChildren();
      show({});
      return asJson;
    },
    /** @param {Record<string, string>} errors */
    show,
    /** The value, or what is wrong with it. @returns {{value?: any, errors: Record<string, string>}} */
    read() {
      if (root && !asJson) return read(root, (path) => values.get(path));
      try { return { value: parse(area.value.trim() || "null"), errors: {} }; } catch (error) { return { errors: { "": "Not JSON: " + (error instanceof Error ? error.message : "") } }; }
    },
    focus() { /** @type {HTMLElement | null} */ (box.querySelector('[tabindex="0"], input, textarea, select'))?.focus(); },
  };

  /** @param {Field} one @param {any} value */
  function spread(one, value) {
    if (one.kind === "group") for (const part of one.fields ?? []) spread(part, value && typeof value === "object" && Object.hasOwn(value, part.name) ? value[part.name] : undefined);
    else if (value === undefined || (one.kind === "boolean" && typeof value !== "boolean")) values.delete(one.path);
    else values.set(one.path, one.kind === "choice" ? one.choices?.findIndex((c) => stringify(c.value) === stringify(value)) : one.kind === "list" && Array.isArray(value) ? value.join("\n") : value);
  }
}
