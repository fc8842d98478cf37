//! Describes a JSON Schema: in one line of words, and as an example payload that fits.
//!
//! Deliberately without validation, which the engine does. If an example may not fit, none is shown.

use serde_json::{Map, Number, Value};

use crate::output::short;

/// Maximum length of a description.
const WORDS_MAX: usize = 200;

/// Maximum depth of a description; deeper parts are omitted.
const WORDS_DEPTH: usize = 4;

/// Maximum depth of an example; a deeper schema has no example.
const EXAMPLE_DEPTH: usize = 8;

/// Maximum number of items in an example list.
const EXAMPLE_ITEMS: u64 = 16;

/// Describes a schema in one line, such as `{"by": text, "note"?: text}`.
pub(crate) fn words(schema: &Value) -> String {
    short(&describe(schema, schema, 0), WORDS_MAX)
}

fn describe(root: &Value, schema: &Value, depth: usize) -> String {
    if depth > WORDS_DEPTH {
        return "…".into();
    }
    let deeper = |part: &Value| describe(root, part, depth + 1);
    let either = |parts: &[Value]| parts.iter().map(&deeper).collect::<Vec<_>>().join(" | ");
    let Some(facts) = schema.as_object() else {
        return if schema == &Value::Bool(false) { "nothing".into() } else { "any JSON".into() };
    };
    if let Some(meant) = referred(root, facts) {
        return deeper(meant);
    }
    if let Some(value) = facts.get("const") {
        return value.to_string();
    }
    if let Some(Value::Array(values)) = facts.get("enum") {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    if let Some(Value::Array(parts)) = facts.get("anyOf").or_else(|| facts.get("oneOf")) {
        return either(parts);
    }
    match types(facts).as_slice() {
        [] => "any JSON".into(),
        kinds => kinds.iter().map(|kind| of_kind(facts, kind, &deeper)).collect::<Vec<_>>().join(" | "),
    }
}

fn of_kind(facts: &Map<String, Value>, kind: &str, deeper: &impl Fn(&Value) -> String) -> String {
    match kind {
        "object" => match facts.get("properties").and_then(Value::as_object) {
            Some(parts) if !parts.is_empty() => {
                let part = |(name, part): (&String, &Value)| {
                    let mark = if required(facts).any(|wanted| wanted == name) { "" } else { "?" };
                    format!("{}{mark}: {}", Value::from(name.as_str()), deeper(part))
                };
                format!("{{{}}}", parts.iter().map(part).collect::<Vec<_>>().join(", "))
            }
            _ => "an object".into(),
        },
        "array" => facts.get("items").map_or_else(|| "a list".into(), |items| format!("[{}, …]", deeper(items))),
        "string" => match facts.get("format").and_then(Value::as_str) {
            Some(format) => format!("text ({format})"),
            None => "text".into(),
        },
        "integer" => "whole number".into(),
        "boolean" => "true | false".into(),
        other => other.to_owned(),
    }
}

/// Returns a payload that fits a schema; `None` if that is uncertain.
pub(crate) fn example(schema: &Value) -> Option<Value> {
    fitting(schema, schema, 0)
}

/// Keywords that examples do not support; a schema with one of them has no example.
const UNSURE: [&str; 14] = [
    "allOf",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "minProperties",
    "not",
    "pattern",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "$dynamicRef",
    "$recursiveRef",
];

fn fitting(root: &Value, schema: &Value, depth: usize) -> Option<Value> {
    let Some(facts) = schema.as_object() else { return (schema != &Value::Bool(false)).then_some(Value::Null) };
    if depth > EXAMPLE_DEPTH {
        return None;
    }
    if let Some(meant) = referred(root, facts) {
        return fitting(root, meant, depth + 1);
    }
    let first = |name: &str| facts.get(name).and_then(|values| values.get(0));
    if let Some(known) = facts.get("const").or_else(|| first("enum")).or_else(|| first("examples")) {
        return Some(known.clone());
    }
    if facts.contains_key("$ref") || UNSURE.iter().any(|rule| facts.contains_key(*rule)) {
        return None;
    }
    if let Some(parts) = facts.get("anyOf").or_else(|| facts.get("oneOf")) {
        let alone = !facts.contains_key("properties") && !facts.contains_key("required");
        return parts.as_array().filter(|_| alone)?.iter().find_map(|part| fitting(root, part, depth + 1));
    }
    let kinds = types(facts);
    match kinds.iter().find(|kind| **kind != "null") {
        None => Some(Value::Null),
        Some(kind) => fitting_kind(root, facts, kind, depth),
    }
}

fn fitting_kind(root: &Value, facts: &Map<String, Value>, kind: &str, depth: usize) -> Option<Value> {
    match kind {
        "object" => {
            let parts = facts.get("properties").and_then(Value::as_object);
            let part = |name: &str| match parts.and_then(|parts| parts.get(name)) {
                Some(part) => Some((name.to_owned(), fitting(root, part, depth + 1)?)),
                // Another keyword defines its schema, so no example is certain to fit.
                None => None,
            };
            required(facts).map(part).collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        "array" => {
            let least = facts.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            let unique = facts.get("uniqueItems") == Some(&Value::Bool(true));
            if least > EXAMPLE_ITEMS || (unique && least > 1) {
                return None;
            }
            let item = || facts.get("items").map_or(Some(Value::Null), |items| fitting(root, items, depth + 1));
            (0..least).map(|_| item()).collect::<Option<Vec<_>>>().map(Value::Array)
        }
        "string" => text(facts),
        "integer" | "number" => number(facts),
        "boolean" => Some(Value::Bool(true)),
        _ => None,
    }
}

fn text(facts: &Map<String, Value>) -> Option<Value> {
    let known = match facts.get("format").and_then(Value::as_str) {
        Some("date-time") => "2026-01-28T12:00:00Z",
        Some("date") => "2026-01-28",
        Some("time") => "12:00:00Z",
        Some("email") => "ada@example.com",
        Some("uri" | "url") => "https://example.com",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        _ => "text",
    };
    let limit = |name: &str| facts.get(name).and_then(Value::as_u64).and_then(|letters| usize::try_from(letters).ok());
    let (least, most) = (limit("minLength").unwrap_or(0), limit("maxLength").unwrap_or(usize::MAX));
    let fits = |letters: usize| letters >= least && letters <= most;
    match known {
        known if fits(known.chars().count()) => Some(known.into()),
        "text" if least <= most && least <= WORDS_MAX => Some("x".repeat(least.max(most.min(1))).into()),
        _ => None,
    }
}

/// Returns the simplest number that fits: one, the minimum or the maximum.
fn number(facts: &Map<String, Value>) -> Option<Value> {
    let rule = |name: &str| facts.get(name).and_then(Value::as_f64);
    let (least, most) = (rule("minimum"), rule("maximum"));
    let (above, below) = (rule("exclusiveMinimum"), rule("exclusiveMaximum"));
    let step = rule("multipleOf");
    let fits = |number: &f64| {
        least.is_none_or(|least| *number >= least)
            && most.is_none_or(|most| *number <= most)
            && above.is_none_or(|above| *number > above)
            && below.is_none_or(|below| *number < below)
            && step.is_none_or(|step| *number % step == 0.0)
            && number.fract() == 0.0
            && number.abs() < 1e15
    };
    let known =
        [Some(1.0), step, least, most, above.map(|above| above + 1.0), below.map(|below| below - 1.0), Some(0.0)];
    let whole = known.into_iter().flatten().find(fits)?;
    // An integer is written without a fraction.
    format!("{whole:.0}").parse::<i64>().ok().map(|whole| Value::Number(Number::from(whole)))
}

/// Resolves a reference within the schema.
fn referred<'a>(root: &'a Value, facts: &Map<String, Value>) -> Option<&'a Value> {
    root.pointer(facts.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn required(facts: &Map<String, Value>) -> impl Iterator<Item = &str> {
    facts.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the allowed types. Without `type`, they are inferred from the other keywords.
fn types(facts: &Map<String, Value>) -> Vec<&str> {
    match facts.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ if facts.contains_key("properties") || facts.contains_key("required") => vec!["object"],
        _ if facts.contains_key("items") => vec!["array"],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, said: &str, fits: Option<Value>) {
        assert_eq!((words(schema).as_str(), example(schema)), (said, fits));
    }

    #[test]
    fn plain_kinds() {
        check(&json!(true), "any JSON", Some(Value::Null));
        check(&json!({}), "any JSON", Some(Value::Null));
        check(&json!(false), "nothing", None);
        check(&json!({"type": "boolean"}), "true | false", Some(json!(true)));
        check(&json!({"type": "null"}), "null", Some(Value::Null));
        check(&json!({"type": ["null", "string"]}), "null | text", Some(json!("text")));
        check(&json!({"type": "string", "format": "date"}), "text (date)", Some(json!("2026-01-28")));
        check(&json!({"type": "string", "minLength": 6}), "text", Some(json!("xxxxxx")));
        check(&json!({"type": "string", "maxLength": 2}), "text", Some(json!("x")));
        check(&json!({"enum": ["yes", "no"]}), "\"yes\" | \"no\"", Some(json!("yes")));
        check(&json!({"const": 3}), "3", Some(json!(3)));
        check(&json!({"type": "array", "items": {"type": "number"}}), "[number, …]", Some(json!([])));
        check(
            &json!({"type": "array", "items": {"type": "null"}, "minItems": 2}),
            "[null, …]",
            Some(json!([null, null])),
        );
    }

    #[test]
    fn numbers_keep_their_limits() {
        let fits = |facts: Value| example(&facts).unwrap();
        assert_eq!(fits(json!({"type": "integer", "minimum": 0, "format": "uint32"})), json!(1));
        assert_eq!(fits(json!({"type": "integer", "minimum": 5})), json!(5));
        assert_eq!(fits(json!({"type": "number", "exclusiveMaximum": 0})), json!(-1));
        assert_eq!(fits(json!({"type": "integer", "multipleOf": 4, "minimum": 3})), json!(4));
        assert_eq!(example(&json!({"type": "number", "minimum": 0.2, "maximum": 0.4})), None);
    }

    #[test]
    fn examples_of_objects_have_all_required_fields() {
        let schema = json!({
            "$defs": {"Who": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
            "type": "object",
            "properties": {"by": {"$ref": "#/$defs/Who"}, "note": {"type": "string"}, "yes": {"type": "boolean"}},
            "required": ["by", "yes"],
        });
        let said = "{\"by\": {\"name\": text}, \"note\"?: text, \"yes\": true | false}";
        check(&schema, said, Some(json!({"by": {"name": "text"}, "yes": true})));
        check(&json!({"type": "object"}), "an object", Some(json!({})));
        check(&json!({"oneOf": [{"const": "a"}, {"type": "integer"}]}), "\"a\" | whole number", Some(json!("a")));
    }

    #[test]
    fn uncertain_schemas_have_no_example() {
        check(&json!({"type": "string", "pattern": "^[A-Z]{3}$"}), "text", None);
        check(&json!({"type": "object", "required": ["by"]}), "an object", None);
        let endless = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        check(&endless, "…", None);
        check(&json!({"$ref": "https://example.com/a.json"}), "any JSON", None);
    }
}
