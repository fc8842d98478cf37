//! JSON Schemas of payloads, compiled once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use jsonschema::Validator;
use serde_json::Value;
use wigwag_core::{Payload, Refusal, limits};

use crate::engine_core::lock;
use crate::error::FieldError;
use crate::limits::SCHEMAS_CACHED_MAX;

/// Parts of a payload that one error names.
const FIELDS_MAX: usize = 50;

/// Compiled schemas, by their text.
#[derive(Default)]
pub(crate) struct Schemas(Mutex<HashMap<String, Arc<Validator>>>);

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schemas").field(&lock(&self.0).len()).finish()
    }
}

/// A schema violation of a payload: its path and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// A JSON pointer; empty for the payload itself.
    pub(crate) path: String,
    pub(crate) what: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the payload" } else { &self.path };
        write!(f, "at {path}: {}", self.what)
    }
}

impl Schemas {
    /// Checks a payload.
    pub(crate) fn check(&self, schema: &Value, payload: &Payload) -> Result<(), Misfit> {
        let validator = match self.validator(schema) {
            Ok(validator) => validator,
            Err(refusal) => return Err(Misfit { path: String::new(), what: refusal.to_string() }),
        };
        let value = payload.value();
        validator.validate(&value).map_err(|error| {
            let what: String = error.to_string().chars().take(500).collect();
            Misfit { path: error.instance_path().to_string(), what }
        })
    }

    /// Returns all parts of a payload that do not fit, at most [`FIELDS_MAX`].
    pub(crate) fn misfits(&self, schema: &Value, payload: &Payload) -> Vec<FieldError> {
        let Ok(validator) = self.validator(schema) else { return Vec::new() };
        let value = payload.value();
        let errors = validator.iter_errors(&value).take(FIELDS_MAX);
        errors
            .map(|error| {
                let path = field_path(&error);
                FieldError { path, message: error.to_string().chars().take(500).collect() }
            })
            .collect()
    }

    fn validator(&self, schema: &Value) -> Result<Arc<Validator>, Refusal> {
        let text = schema.to_string();
        if let Some(known) = lock(&self.0).get(&text) {
            return Ok(Arc::clone(known));
        }
        let validator = Arc::new(compile(schema)?);
        let mut known = lock(&self.0);
        if known.len() >= SCHEMAS_CACHED_MAX {
            known.clear();
        }
        known.insert(text, Arc::clone(&validator));
        Ok(validator)
    }
}

/// JSON pointer to the error in the payload; for a missing property, to the place where
/// it should be.
fn field_path(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    match error.kind() {
        jsonschema::error::ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default().replace('~', "~0").replace('/', "~1");
            format!("{path}/{name}")
        }
        _ => path,
    }
}

fn compile(schema: &Value) -> Result<Validator, Refusal> {
    jsonschema::validator_for(schema).map_err(|error| Refusal::new(format!("not a JSON Schema: {error}")))
}

/// Returns the schema if it is valid and small enough for a log entry.
pub(crate) fn checked(schema: Value) -> Result<Value, Refusal> {
    let bytes = Payload::of(&schema)?.text().len();
    if bytes > limits::SCHEMA_BYTES_MAX {
        let max = limits::SCHEMA_BYTES_MAX;
        return Err(Refusal::new(format!("the schema of a signal has at most {max} bytes, got: {bytes}")));
    }
    compile(&schema)?;
    Ok(schema)
}

/// The schema of a type.
pub(crate) fn of_type<T: schemars::JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}
