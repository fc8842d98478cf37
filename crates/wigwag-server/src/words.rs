//! JSON Schemas of ids, names and other words in the description: the rules of `wigwag_core`.
//!
//! Holds: a text that a schema here allows is allowed by its rule too (a test compares the two).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use wigwag_core::limits::{
    ID_BYTES_MAX, MAPPING_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, REASON_BYTES_MAX, SENDER_BYTES_MAX, SPAN_MAX,
    TASK_TYPE_BYTES_MAX,
};

use crate::limits::{CURSOR_BYTES_MAX, LINK_BYTES_MAX};

/// All statuses, as alternatives of a pattern.
const STATUSES: &str = "pending|running|paused|waiting_signal|compensating|completed|failed|cancelled";

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $schema:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) struct $name;

            impl $name {
                pub(crate) fn rule() -> Value {
                    $schema
                }
            }

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    Schema::try_from(Self::rule()).unwrap_or_else(|_| json_schema!({"type": "string"}))
                }
            }
        )*
    };
}

words! {
    /// The id of a run or task.
    Id = word("A-Za-z0-9_:-", ID_BYTES_MAX);
    /// The name of a workflow, signal or queue.
    Word = word("A-Za-z0-9_-", NAME_BYTES_MAX);
    /// Type of a definition.
    Type = word("A-Za-z0-9_:-", TASK_TYPE_BYTES_MAX);
    /// Type of a task: the store lists it with the prefix of its queue.
    TaskType = word("A-Za-z0-9_:-", TASK_TYPE_BYTES_MAX - "task:default:".len());
    /// Path of a step: names separated by `/`.
    Point = point();
    /// Renamed steps: old path to new path.
    Renamed = json!({
        "type": "object", "propertyNames": point(), "additionalProperties": point(), "maxProperties": MAPPING_MAX,
    });
    /// Paths of skipped steps.
    Skipped = json!({"type": "array", "items": point(), "maxItems": MAPPING_MAX});
    /// Lifetime of a link: at least one second.
    LinkLife = json!({
        "type": ["string", "number"],
        "pattern": "^[1-9][0-9]{0,3}(s|m|h|d)$",
        "minimum": 1,
        "maximum": SPAN_MAX.as_secs(),
        "examples": ["2d", "12h", 3_600],
    });
    /// A key or a sender's name; the limit counts bytes.
    Short = json!({"type": "string", "minLength": 1, "maxLength": SENDER_BYTES_MAX});
    /// Reason of a cancel; the limit counts bytes.
    Reason = json!({"type": "string", "maxLength": REASON_BYTES_MAX});
    /// The hash of a definition.
    Hash = json!({"type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$"});
    /// The header `Idempotency-Key`.
    Key = json!({"type": "string", "pattern": format!("^[!-~]([\\t -~]{{0,{}}}[!-~])?$", SENDER_BYTES_MAX - 2)});
    /// Position of an event in a log.
    EventId = json!({"type": "string", "pattern": "^[0-9]{1,10}(\\.[0-9]{1,9})?$"});
    /// The same in the form of a browser: empty if it has received no event.
    LastEventId = json!({"type": "string", "pattern": "^([0-9]{1,10}(\\.[0-9]{1,9})?)?$"});
    /// Cursor of a list.
    Cursor = json!({"type": "string", "pattern": format!("^[!-~]{{1,{CURSOR_BYTES_MAX}}}$")});
    /// Cursor of a list of runs or tasks.
    RunCursor = json!({"type": "string", "pattern": format!("^(live|done)/[!-~]{{1,{}}}$", CURSOR_BYTES_MAX - 5)});
    /// Statuses, separated by commas.
    Statuses = json!({"type": "string", "pattern": format!("^({STATUSES})(,({STATUSES})){{0,7}}$"), "examples": ["failed,cancelled"]});
    /// A key of the store.
    ObjectKey = json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._~:/-]{0,400}$"});
    /// A link's token.
    Token = json!({"type": "string", "minLength": 1, "maxLength": LINK_BYTES_MAX});
}

/// No leading dot and no suffix `.json`, because these words are part of keys of the store.
fn word(letters: &str, max: usize) -> Value {
    json!({
        "type": "string",
        "pattern": format!("^[{letters}][.{letters}]{{0,{}}}$", max - 1),
        "not": {"type": "string", "pattern": "\\.json$"},
    })
}

fn point() -> Value {
    let name =
        format!("(\\.delay|[A-Za-z0-9_-][.A-Za-z0-9_-]{{0,{}}})(#([2-9]|[1-9][0-9]{{1,8}}))?", NAME_BYTES_MAX - 1);
    json!({
        "type": "string",
        "pattern": format!("^{name}(/{name})*$"),
        "maxLength": PATH_BYTES_MAX,
        "not": {"type": "string", "pattern": "\\.json(#|/|$)"},
    })
}

/// Returns the schema of a path parameter.
pub(crate) fn in_path(name: &str) -> Value {
    match name {
        "id" => Id::rule(),
        "name" => Word::rule(),
        "type" => Type::rule(),
        "hash" => Hash::rule(),
        _ => Token::rule(),
    }
}

#[cfg(test)]
mod tests {
    use wigwag_core::{Name, Path, RunId, TypeName};

    use super::*;

    /// Checks that both agree on each text.
    fn check(rule: &Value, allowed: impl Fn(&str) -> bool) {
        let schema = jsonschema::validator_for(rule).unwrap();
        let long: Vec<String> = [63, 64, 65, 99, 100, 101, 190, 191, 512, 513].map(|count| "x".repeat(count)).into();
        let given = [
            "", "a", ".", "..", ".a", "a.b", "a.json", "a.JSON", "json", "a b", "a:b", ":", "-", "_", "a/b", "/", "a/",
            "é", "a\n", "a\0", "a#2", "a#1", "a#02", "a#10", "a#", "a.json#2", ".delay", "a/.delay", "a.json/b", "%2e",
            "a#2/b#3",
        ];
        for text in given.into_iter().chain(long.iter().map(String::as_str)) {
            assert_eq!(schema.is_valid(&text.into()), allowed(text), "{text:?} by {rule}");
        }
    }

    #[test]
    fn the_description_has_the_rules_of_the_engine() {
        check(&Id::rule(), |text| RunId::new(text).is_ok());
        check(&Word::rule(), |text| Name::new(text).is_ok());
        check(&Type::rule(), |text| TypeName::new(text).is_ok());
        check(&Point::rule(), |text| Path::new(text).is_ok());
    }
}
