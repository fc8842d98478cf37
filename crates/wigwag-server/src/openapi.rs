//! The API's description (OpenAPI 3.1), generated from the route table, so that every route is described.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::api;
use crate::auth::Need;
use crate::problem::{Code, Problem};
use crate::route::{Answer, Route};
use crate::words;

/// Problems of all routes.
const ANY: [Code; 5] =
    [Code::ForeignOrigin, Code::ForeignHost, Code::ProxyNotAllowed, Code::RateLimited, Code::Internal];

/// Problems of routes that call the engine.
const OF_ENGINE: [Code; 4] = [Code::Invalid, Code::Damaged, Code::Unavailable, Code::RequestTimeout];

/// Problems of routes with a body.
const WITH_BODY: [Code; 6] = [
    Code::MalformedJson,
    Code::InvalidBody,
    Code::UnsupportedMediaType,
    Code::BodyTooLarge,
    Code::BodyTimeout,
    Code::Overloaded,
];

/// Builds the whole description.
pub(crate) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<Problem>();
    let mut paths = Map::new();
    for route in api::routes() {
        let entry = paths.entry(route.path).or_insert_with(|| json!({}));
        entry[route.method.as_str().to_ascii_lowercase()] = operation(&route, &mut schemas, problem.as_value());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "wigwag",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable workflows that wait for signals, on nothing but a bucket. Errors are RFC 9457 problem \
                documents with a stable `code`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API token or a JWT."},
                "basic": {"type": "http", "scheme": "basic", "description": "An access key of `/s3` and its secret."},
            },
        },
        "x-codes": Code::ALL.iter().map(|code| json!({
            "code": code.name(), "status": code.status(), "title": code.title(),
            "when": code.when(), "action": code.action(),
        })).collect::<Vec<_>>(),
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator, problem: &Value) -> Value {
    let about = &route.about;
    let mut described = json!({
        "operationId": about.id,
        "tags": [about.group],
        "summary": about.summary,
        "parameters": parameters(route, schemas),
        "responses": responses(route, schemas, problem),
        "x-scope": route.need.name(),
        "security": match route.need {
            Need::Public => json!([]),
            Need::Store => json!([{"bearer": []}, {"basic": []}]),
            _ => json!([{"bearer": []}]),
        },
    });
    if !about.more.is_empty() {
        described["description"] = about.more.into();
    }
    if let Some(body) = about.body {
        let schema = body(schemas).to_value();
        // An absent body is an empty object, which is valid if no field is required.
        let required = needs_fields(&schema, schemas);
        described["requestBody"] = json!({"required": required, "content": {"application/json": {"schema": schema}}});
    }
    described
}

fn needs_fields(schema: &Value, schemas: &SchemaGenerator) -> bool {
    let name = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next()).unwrap_or_default();
    let whole = schemas.definitions().get(name).unwrap_or(schema);
    let names_fields = |form: &Value| form["required"].as_array().is_some_and(|fields| !fields.is_empty());
    names_fields(whole) || whole["oneOf"].as_array().is_some_and(|forms| forms.iter().all(names_fields))
}

fn parameters(route: &Route, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let path =
        in_path.map(|name| json!({"name": name, "in": "path", "required": true, "schema": words::in_path(name)}));
    let mut found: Vec<Value> = path.collect();
    if let Some(query) = route.about.query {
        let schema = query(schemas).to_value();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let mut field = not_null(field.clone());
            let said = field.as_object_mut().and_then(|field| field.remove("description"));
            let needed = required.iter().any(|required| required == name.as_str());
            let mut parameter = json!({"name": name, "in": "query", "required": needed, "schema": field});
            if let Some(said) = said {
                parameter["description"] = said;
            }
            found.push(parameter);
        }
    }
    let header = |name: &str, schema: Value, what: &str| json!({"name": name, "in": "header", "required": false, "description": what, "schema": schema});
    if route.about.keyed {
        found.push(header(
            "Idempotency-Key",
            words::Key::rule(),
            "Idempotency key: repeated requests with the same key take effect once.",
        ));
    }
    if route.about.last_event_id {
        found.push(header(
            "Last-Event-ID",
            words::LastEventId::rule(),
            "Id of the last received event; the stream continues after it.",
        ));
    }
    found
}

/// Removes `null` from a schema: a parameter is present or absent, but never `null`.
fn not_null(mut schema: Value) -> Value {
    let null = json!("null");
    if let Some(kinds) = schema["type"].as_array() {
        let mut kinds: Vec<Value> = kinds.iter().filter(|kind| **kind != null).cloned().collect();
        schema["type"] = if kinds.len() == 1 { kinds.remove(0) } else { kinds.into() };
    }
    let any = schema["anyOf"].as_array().into_iter().flatten();
    match any.filter(|one| one["type"] != null).cloned().collect::<Vec<Value>>().as_slice() {
        [one] => {
            let mut one = one.clone();
            one["description"] = schema["description"].take();
            one
        }
        _ => schema,
    }
}

fn responses(route: &Route, schemas: &mut SchemaGenerator, problem: &Value) -> Map<String, Value> {
    let mut responses = Map::new();
    for Answer { status, kind, what, shape } in &route.about.answers {
        let mut response = json!({"description": what});
        if let Some(shape) = shape {
            response["content"] = json!({(*kind): {"schema": shape(schemas).to_value()}});
        } else if !kind.is_empty() {
            response["content"] = json!({(*kind): {"schema": {"type": "string"}}});
        }
        responses.insert(status.to_string(), response);
    }
    let codes = codes(route);
    for status in codes.iter().map(|code| code.status()).collect::<std::collections::BTreeSet<_>>() {
        let mut names: Vec<&str> =
            codes.iter().filter(|code| code.status() == status).map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        let what = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let response = json!({"description": what, "x-codes": names,
            "content": {"application/problem+json": {"schema": problem}}});
        responses.insert(status.to_string(), response);
    }
    responses
}

/// Returns every problem that a route may respond with.
fn codes(route: &Route) -> Vec<Code> {
    let about = &route.about;
    let mut codes: Vec<Code> = about.codes.iter().copied().chain(ANY).collect();
    if !about.asks_nobody {
        codes.extend(OF_ENGINE);
    }
    if route.need != Need::Public {
        codes.extend([Code::NotAuthenticated, Code::NotAllowed, Code::TooManyAttempts]);
    }
    if route.path.contains('{') {
        codes.push(Code::InvalidPath);
    }
    if about.query.is_some() {
        codes.push(Code::InvalidQuery);
    }
    if about.body.is_some() {
        codes.extend(WITH_BODY);
    }
    if about.keyed || about.last_event_id {
        codes.push(Code::InvalidHeader);
    }
    codes
}
