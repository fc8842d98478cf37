//! TypeScript types of the API, made from its description: `clients/typescript/src/api.ts` for the client, and `dashboard/types.d.ts` for the
//! type check of the dashboard.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::kit::Kit;

const MADE: &str = "/** Types of the HTTP API, made from its description: `WIGWAG_BLESS=1 cargo test -p wigwag-server` writes them. */\n";

/// A type in TypeScript for a JSON Schema.
fn type_of(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        return name_of(target.rsplit('/').next().unwrap());
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    for word in ["enum", "oneOf", "anyOf", "allOf"] {
        let Some(parts) = schema[word].as_array() else { continue };
        let join = if word == "allOf" { " & " } else { " | " };
        let text = |part: &Value| if word == "enum" { part.to_string() } else { type_of(part) };
        let mut parts: Vec<String> = parts.iter().map(text).collect();
        parts.dedup();
        let own = if schema["properties"].is_object() { format!("{} & ", object(schema)) } else { String::new() };
        return format!("{own}({})", parts.join(join));
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let kinds = kinds.iter().map(|kind| type_of(&with_type(schema, kind))).collect::<Vec<_>>();
            format!("({})", kinds.join(" | "))
        }
        Value::String(kind) => match kind.as_str() {
            "object" => object(schema),
            "array" => format!("{}[]", type_of(&schema["items"])),
            "integer" | "number" => "number".into(),
            "null" => "null".into(),
            "boolean" => "boolean".into(),
            _ => "string".into(),
        },
        _ if schema["properties"].is_object() => object(schema),
        _ => "unknown".into(),
    }
}

fn with_type(schema: &Value, kind: &Value) -> Value {
    let mut one = schema.clone();
    one["type"] = kind.clone();
    one
}

fn object(schema: &Value) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let mut text: Vec<String> = fields
        .map(|(name, field)| {
            let optional = if required.contains(&Value::String(name.clone())) { "" } else { "?" };
            format!("{name:?}{optional}: {}", type_of(field))
        })
        .collect();
    if text.is_empty() || schema["additionalProperties"] == true {
        text.push("[key: string]: unknown".into());
    } else if schema["additionalProperties"].is_object() {
        text.push(format!("[key: string]: {}", type_of(&schema["additionalProperties"])));
    }
    format!("{{ {} }}", text.join("; "))
}

/// A schema's name as a type's name: `Page_for_Step` becomes `PageForStep`.
fn name_of(name: &str) -> String {
    let parts = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.map(|part| part[..part.len().min(1)].to_uppercase() + part.get(1..).unwrap_or_default()).collect()
}

/// The module of the client, and the part of it that is types alone.
fn modules(described: &Value) -> (String, String) {
    let mut text = format!("{MADE}/* eslint-disable */\n\n");
    for (name, schema) in described["components"]["schemas"].as_object().unwrap() {
        let _ = writeln!(text, "export type {} = {};", name_of(name), type_of(schema));
    }
    let mut operations: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let parameters = operation["parameters"].as_array().unwrap();
            let of = |place: &str| {
                let some = parameters.iter().filter(|one| one["in"] == place);
                let fields: Vec<String> = some
                    .map(|one| {
                        let optional = if one["required"] == true { "" } else { "?" };
                        format!("{:?}{optional}: {}", one["name"].as_str().unwrap(), type_of(&one["schema"]))
                    })
                    .collect();
                if fields.is_empty() { "undefined".into() } else { format!("{{ {} }}", fields.join("; ")) }
            };
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = if body.is_null() { "undefined".into() } else { type_of(body) };
            let good = operation["responses"].as_object().unwrap().iter().filter(|(status, _)| status.starts_with('2'));
            let mut answers: Vec<String> = good
                .map(|(_, response)| response["content"]["application/json"]["schema"].clone())
                .map(|schema| if schema.is_null() { "string".into() } else { type_of(&schema) })
                .collect();
            answers.dedup();
            let keyed = parameters.iter().any(|one| {
                one["name"].as_str() == Some("idempotency-key") || one["name"].as_str() == Some("Idempotency-Key")
            });
            let (in_path, query, answer) = (of("path"), of("query"), answers.join(" | "));
            let types = format!("{{ path: {in_path}; query: {query}; body: {body}; answer: {answer} }}");
            let facts = format!("{{ method: {:?}, path: {path:?}, keyed: {keyed} }}", method.to_uppercase());
            operations.insert(id, (types, facts));
        }
    }
    text.push_str("\n/** Parameters, body and answer of each operation. */\nexport interface Operations {\n");
    for (id, (types, _)) in &operations {
        let _ = writeln!(text, "  {id}: {types};");
    }
    text.push_str("}\n");
    let types = text.clone();
    text.push_str("\n/** Method and path of each operation; `keyed` ones take an idempotency key. */\nexport const OPERATIONS: { [K in keyof Operations]: { method: string; path: string; keyed: boolean } } = {\n");
    for (id, (_, facts)) in &operations {
        let _ = writeln!(text, "  {id}: {facts},");
    }
    text.push_str("};\n");
    (text, types)
}

#[tokio::test]
async fn the_types_of_the_typescript_client_and_of_the_dashboard_are_those_of_the_description() {
    let kit = Kit::new().await;
    let (client, types) = modules(&kit.get("/v1/openapi.json").await.ok(200));
    for (file, made) in [("../../clients/typescript/src/api.ts", client), ("dashboard/types.d.ts", types)] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
        if std::env::var_os("WIGWAG_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == made, "{file} is out of date: make it with `WIGWAG_BLESS=1 cargo test -p wigwag-server`");
    }
}
