// Times, spans, counts, text, and JSON as text. Pure, but for the choice of a time zone.

/** Characters that reorder text around them: shown as escapes, so that an id looks like what it is. */
const BIDI = /[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** @param {string} text */
export const safe = (text) => text.replace(BIDI, (letter) => "\\u" + letter.charCodeAt(0).toString(16).padStart(4, "0"));

const zone = { utc: false };
/** Switches between local time and UTC. Returns whether it is UTC now. */
export function switchZone() { zone.utc = !zone.utc; return zone.utc; }

/** Milliseconds of a time as the API writes it, with fractions for microseconds. @param {string | null | undefined} at */
export function ms(at) {
  if (!at) return NaN;
  const [whole, rest] = at.replace("Z", "").split(".");
  return Date.parse(whole + "Z") + (rest ? Number("0." + rest) * 1000 : 0);
}

/** @type {[string, number][]} */
const UNITS = [["d", 86400e3], ["h", 3600e3], ["m", 60e3], ["s", 1e3]];
/** 93,784,000 → `1 d 2 h`; below a second `620 ms`. @param {number} time @param {number} [parts] */
export function span(time, parts = 2) {
  if (!(time >= 0)) return "0 ms";
  if (time < 1) return time <= 0 ? "0 ms" : Math.round(time * 1000) + " µs";
  if (time < 1000) return Math.round(time) + " ms";
  if (time < 10e3 && parts > 1) return (time / 1000).toFixed(1) + " s";
  const found = [];
  let rest = time;
  for (const [unit, size] of UNITS) {
    const n = Math.floor(rest / size);
    if (n || found.length) found.push(n ? n + " " + unit : "");
    rest -= n * size;
  }
  return found.slice(0, parts).filter(Boolean).join(" ");
}

/** @param {number} at @param {boolean} [exact] */
export function clock(at, exact = false) {
  if (!Number.isFinite(at)) return "–";
  const date = new Date(at), same = new Date().toDateString() === date.toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const how = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", ...(zone.utc ? { timeZone: "UTC" } : {}), ...(same && !exact ? {} : { month: "short", day: "numeric" }), ...(exact ? { year: "numeric", fractionalSecondDigits: 3 } : {}) };
  return new Intl.DateTimeFormat("en-US", how).format(date) + (zone.utc ? " UTC" : "");
}

/** @param {number} at @param {number} now */
export const ago = (at, now) => (now - at < 1000 ? "now" : span(now - at, 1) + " ago");
/** @param {number} n */
export const count = (n) => n.toLocaleString("en-US");
/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many ?? one + "s"}`;
/** 1284 → `1.3k`. @param {number} n */
export const short = (n) => (n < 1000 ? String(n) : n < 1e6 ? (n / 1e3).toFixed(n < 1e4 ? 1 : 0) + "k" : (n / 1e6).toFixed(1) + "M");
/** @param {number} d */
export function dollars(d) {
  if (d === 0) return "$0";
  return d >= 0.01 ? "$" + d.toFixed(2) : "$" + d.toFixed(d < 1e-5 ? 8 : 6).replace(/0+$/, "");
}
/** @param {number} n */
export const bytes = (n) => (n < 1024 ? n + " B" : n < 1048576 ? (n / 1024).toFixed(1) + " KiB" : (n / 1048576).toFixed(1) + " MiB");
/** `approved_by` → `Approved by`. @param {string} name */
export const label = (name) => (name ? (name[0].toUpperCase() + name.slice(1)).replace(/[_-]+/g, " ") : "Value");
/** Text in which names stand in backticks, in pieces: odd ones are names. @param {string} text */
export const pieces = (text) => text.split("\x60");
/** Whether a run of this status has ended. @param {string} status */
export const isFinal = (status) => ["completed", "failed", "cancelled"].includes(status);
/** A shell word. @param {string} text */
export const quoted = (text) => (/^[A-Za-z0-9_./:=@%+-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'");

/** A number that a float cannot hold: its text. */
export class Exact {
  /** @param {string} source */
  constructor(source) { this.source = source; }
  toString() { return this.source; }
}

/** Digits without zeros at their ends, and the power of ten that they are multiplied by: equal for `1.50`, `15e-1` and `0.15E1`. @param {string} text */
function digits(text) {
  const [, sign, whole, part = "", exponent = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? ["", "", "0"];
  const all = (whole + part).replace(/^0+/, ""), kept = all.replace(/0+$/, "");
  return kept ? `${sign}${kept}e${Number(exponent) - part.length + all.length - kept.length}` : "0";
}
/** Whether a float holds exactly the decimal digits of a number as it is written. @param {string} text */
export const isExact = (text) => Number.isFinite(Number(text)) && digits(text) === digits(String(Number(text)));

const TOKEN = /"(?:\\.|[^"\\])*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** Parses JSON; numbers that a float cannot hold stay as they were written. @param {string} text */
export function parse(text) {
  let mark = "exact";
  while (text.includes(mark)) mark += "_";
  // Each such number becomes an object with a key that the text has nowhere, and that object its number.
  const marked = text.replace(TOKEN, (token) => (token[0] === '"' || isExact(token) ? token : `{"${mark}":"${token}"}`));
  if (marked === text) return JSON.parse(text);
  // An error names a place in the text as it was given.
  try { JSON.parse(marked); } catch { return JSON.parse(text); }
  return JSON.parse(marked, (_, value) => (value && typeof value === "object" && Object.hasOwn(value, mark) ? new Exact(value[mark]) : value));
}

const DEPTH_MAX = 60;
/** Writes JSON. @param {any} value @param {number} [indent] @param {number} [depth] @returns {string} */
export function stringify(value, indent = 0, depth = 0) {
  if (value instanceof Exact) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  if (depth > DEPTH_MAX && indent) return '"…"';
  const line = indent ? "\n" + " ".repeat(indent * (depth + 1)) : "", end = indent ? "\n" + " ".repeat(indent * depth) : "";
  const parts = Array.isArray(value) ? value.map((one) => stringify(one, indent, depth + 1)) : Object.entries(value).filter(([, one]) => one !== undefined).map(([key, one]) => JSON.stringify(key) + (indent ? ": " : ":") + stringify(one, indent, depth + 1));
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return parts.length ? open + line + parts.join("," + line) + end + close : open + close;
}
