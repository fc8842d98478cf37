//! The API's description is correct, complete, and the source of the reference pages.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use wigwag_server::Code;

use crate::kit::Kit;

async fn description(kit: &Kit) -> Value {
    kit.get("/v1/openapi.json").await.ok(200)
}

/// Every operation as (path, method, description).
fn operations(description: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = description["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, methods)| {
            methods
                .as_object()
                .unwrap()
                .iter()
                .map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        })
        .collect()
}

#[tokio::test]
async fn every_described_route_is_served_and_says_what_it_is() {
    let kit = Kit::new().await;
    let described = description(&kit).await;
    assert_eq!(described["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&described) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(!id.is_empty() && ids.insert(id.to_owned()), "`{method} {path}` has a unique id");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{id}");
        assert!(operation["responses"].as_object().unwrap().keys().any(|status| status.starts_with('2')), "{id}");
        // A served route may reject this request, but never with `no_route`.
        let there = path
            .replace("{id}", "x")
            .replace("{name}", "x")
            .replace("{token}", "x")
            .replace("{type}", "x")
            .replace("{hash}", "x");
        let method = method.to_uppercase().parse().unwrap();
        let text = crate::kit::answer(kit.request(method, &there)).await.text;
        for absent in ["\"code\":\"no_route\"", "\"code\":\"method_not_allowed\""] {
            assert!(!text.starts_with("{\"type\"") || !text.contains(absent), "{id}: {text}");
        }
    }
    assert!(ids.len() > 30, "{ids:?}");
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    let kit = Kit::new().await;
    let described = description(&kit).await;
    let text = described.to_string();
    for part in text.split("\"$ref\":\"").skip(1) {
        let target = part.split('"').next().unwrap();
        let place = target.strip_prefix('#').unwrap();
        assert!(described.pointer(place).is_some(), "`{target}` leads nowhere");
    }
}

#[tokio::test]
async fn every_code_is_described() {
    let kit = Kit::new().await;
    let described = description(&kit).await;
    let listed: Vec<&str> =
        described["x-codes"].as_array().unwrap().iter().map(|code| code["code"].as_str().unwrap()).collect();
    let all: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(listed, all);
    let schema = described["components"]["schemas"]["Code"].to_string();
    let mut at_routes = BTreeSet::new();
    for (_, _, operation) in operations(&described) {
        for response in operation["responses"].as_object().unwrap().values() {
            at_routes.extend(response["x-codes"].as_array().into_iter().flatten().map(|code| code.as_str().unwrap()));
        }
    }
    for code in all {
        assert!(schema.contains(&format!("\"{code}\"")), "{code}");
        // These two codes belong to no route.
        let of_none = ["no_route", "method_not_allowed"].contains(&code);
        assert!(of_none || at_routes.contains(code), "no route says that it may answer `{code}`");
    }
}

/// Sends a request and validates the response against the description.
async fn check(kit: &Kit, described: &Value, id: &str, path: &str, body: Option<Value>) -> Value {
    let all = operations(described);
    let (_, method, operation) = all.iter().find(|(_, _, operation)| operation["operationId"] == id).unwrap();
    let request = kit.request(method.to_uppercase().parse().unwrap(), path);
    let answer = crate::kit::answer(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await;
    let response = &operation["responses"][answer.status.as_str()];
    let kind = answer.header("content-type");
    let schema = &response["content"][kind]["schema"];
    assert!(schema.is_object() || schema.is_boolean(), "{id}: {} {kind} is not described", answer.status);
    let mut whole = json!({"components": described["components"], "allOf": [schema]});
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    let value = answer.json();
    let validator = jsonschema::validator_for(&whole).unwrap();
    let wrong: Vec<String> =
        validator.iter_errors(&value).map(|error| format!("{error} at {}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{id}: {wrong:?}\n{value}");
    value
}

#[tokio::test]
async fn answers_are_what_the_description_says() {
    let kit = Kit::new().await;
    let described = &description(&kit).await;
    let order = json!({"type": "order", "id": "o", "input": {}});
    check(&kit, described, "startRun", "/v1/runs", Some(order)).await;
    check(&kit, described, "startRun", "/v1/runs", Some(json!({"type": "approve", "id": "o"}))).await;
    kit.until("/v1/runs/o/waiting", |found| found["items"] != json!([])).await;
    check(&kit, described, "waitForRun", "/v1/runs/o/wait?timeout=0", None).await;
    check(&kit, described, "getRunResult", "/v1/runs/o/result?timeout=0", None).await;
    check(&kit, described, "listWaits", "/v1/runs/o/waiting", None).await;
    let waiting = check(&kit, described, "listWaiting", "/v1/waiting", None).await;
    assert_eq!(waiting["items"].as_array().unwrap().len(), 1);
    let link = check(&kit, described, "makeLink", "/v1/links", Some(json!({"run": "o", "name": "approval"}))).await;
    let link = link["path"].as_str().unwrap().to_owned();
    check(&kit, described, "showLink", &link, None).await;
    check(&kit, described, "pauseRun", "/v1/runs/o/pause", None).await;
    kit.until("/v1/runs/o", |run| run["status"] == "paused").await;
    check(&kit, described, "getRun", "/v1/runs/o", None).await;
    check(&kit, described, "migrateRun", "/v1/runs/o/migrate", Some(json!({"skip": [".."]}))).await;
    check(&kit, described, "resumeRun", "/v1/runs/o/resume", None).await;
    kit.until("/v1/runs/o", |run| run["status"] == "waiting_signal").await;
    let wrong = json!({"payload": 1});
    check(&kit, described, "sendSignal", "/v1/runs/o/signals/approval", Some(wrong)).await;
    let many = json!({"signals": [{"run": "nobody", "name": "x"}, {"run": "o", "name": "spare"}]});
    check(&kit, described, "sendSignals", "/v1/signals", Some(many)).await;
    let yes = json!({"payload": {"yes": true}, "wait": "10s"});
    check(&kit, described, "sendSignal", "/v1/runs/o/signals/approval", Some(yes)).await;
    check(&kit, described, "waitForRun", "/v1/runs/o/wait", None).await;
    check(&kit, described, "useLink", &link, Some(json!({"payload": {"yes": true}}))).await;
    for (id, place) in [("getRunInput", "input"), ("getRunOutput", "output?step=first"), ("listSteps", "steps")] {
        check(&kit, described, id, &format!("/v1/runs/o/{place}"), None).await;
    }
    check(&kit, described, "listHistory", "/v1/runs/o/history", None).await;
    let inbox = check(&kit, described, "listSignals", "/v1/runs/o/signals", None).await;
    assert_eq!(inbox["items"].as_array().unwrap().len(), 2);
    check(&kit, described, "restartRun", "/v1/runs/o/restart", None).await;
    check(&kit, described, "cancelRun", "/v1/runs/o/cancel", Some(json!({"reason": "r"}))).await;
    check(&kit, described, "listRuns", "/v1/runs", None).await;
    check(&kit, described, "listRuns", "/v1/runs?limit=0", None).await;
    let task = check(&kit, described, "submitTask", "/v1/tasks", Some(json!({"type": "double", "input": 1}))).await;
    let task = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    check(&kit, described, "getTask", &task, None).await;
    check(&kit, described, "waitForTask", &format!("{task}/wait"), None).await;
    check(&kit, described, "getTaskResult", &format!("{task}/result"), None).await;
    check(&kit, described, "cancelTask", &format!("{task}/cancel"), None).await;
    check(&kit, described, "listTasks", "/v1/tasks", None).await;
    for (id, place) in [("getTaskInput", "input"), ("getTaskOutput", "output"), ("listTaskSteps", "steps")] {
        check(&kit, described, id, &format!("{task}/{place}"), None).await;
    }
    for (id, place) in [("listTaskHistory", "history"), ("listTaskSignals", "signals"), ("listTaskWaits", "waiting")] {
        check(&kit, described, id, &format!("{task}/{place}"), None).await;
    }
    check(&kit, described, "sendTaskSignal", &format!("{task}/signals/poke"), None).await;
    for (id, what) in [("pauseTask", "pause"), ("resumeTask", "resume"), ("migrateTask", "migrate")] {
        check(&kit, described, id, &format!("{task}/{what}"), None).await;
    }
    check(&kit, described, "restartTask", &format!("{task}/restart"), None).await;
    check(&kit, described, "sweep", "/v1/sweep", None).await;
    check(&kit, described, "prune", "/v1/prune", Some(json!({"older_than": "1h"}))).await;
    check(&kit, described, "prune", "/v1/prune", None).await;
    check(&kit, described, "listDefinitions", "/v1/definitions/order", None).await;
    check(&kit, described, "health", "/v1/health", None).await;
    check(&kit, described, "ready", "/v1/ready", None).await;
    check(&kit, described, "describe", "/v1/openapi.json", None).await;
}

#[tokio::test]
async fn the_page_asks_nobody_else() {
    let kit = Kit::new().await;
    let page = kit.get("/v1/docs").await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").starts_with("default-src 'none'"));
    let mut parts = vec![page.text];
    for part in ["page.js", "page.css"] {
        let answer = kit.get(&format!("/v1/docs/{part}")).await;
        assert_eq!(answer.status.as_u16(), 200);
        assert!(parts[0].contains(&format!("docs/{part}")));
        parts.push(answer.text);
    }
    for part in parts {
        assert!(!part.contains("://") && !part.contains("\"//") && !part.contains("innerHTML"), "{part}");
    }
}

#[tokio::test]
async fn answers_beyond_single_runs_are_what_the_description_says() {
    let kit = Kit::new().await;
    let described = &description(&kit).await;
    check(&kit, described, "startRun", "/v1/runs", Some(json!({"type": "order", "id": "o", "input": {}}))).await;
    kit.until("/v1/runs/o/waiting", |found| found["items"] != json!([])).await;
    check(&kit, described, "explainRun", "/v1/runs/o/explain", None).await;
    let waiting = check(&kit, described, "listWaiting", "/v1/waiting?order=due", None).await;
    assert_eq!(waiting["order"], "due");
    for (id, path) in [
        ("summarizeWaiting", "/v1/waiting/summary"),
        ("summarizeRuns", "/v1/runs/summary"),
        ("me", "/v1/me"),
        ("listIds", "/v1/ids?prefix=o"),
        ("listWorkflows", "/v1/definitions"),
        ("listWorkers", "/v1/workers"),
        ("getSeries", "/v1/system/series"),
        ("listKeys", "/v1/store?prefix=workflow/"),
        ("getObject", "/v1/store/object?key=workflow/o/log/0000000001.json"),
    ] {
        check(&kit, described, id, path, None).await;
    }
}

/// Compares a page of the reference with the generated one; `WIGWAG_BLESS=1` writes it.
fn check_page(name: &str, want: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("WIGWAG_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, want).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == want,
        "docs/reference/{name} is out of date: make it with `WIGWAG_BLESS=1 cargo test -p wigwag-server`"
    );
}

#[tokio::test]
async fn the_reference_pages_are_current() {
    let kit = Kit::new().await;
    let described = description(&kit).await;
    check_page("http.md", &http_page(&described));
    check_page("errors.md", &errors_page(&described));
}

const MADE: &str = "<!-- Made from the code: `WIGWAG_BLESS=1 cargo test -p wigwag-server` writes it. -->\n";

/// Returns the error codes of an operation.
fn codes_of(operation: &Value) -> BTreeSet<String> {
    let responses = operation["responses"].as_object().unwrap().values();
    let codes = responses.flat_map(|response| response["x-codes"].as_array().cloned().unwrap_or_default());
    codes.map(|code| code.as_str().unwrap().to_owned()).collect()
}

/// Returns the error codes that all of these operations share.
fn shared<'a>(operations: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    operations.map(codes_of).reduce(|all, one| &all & &one).unwrap_or_default()
}

fn words(codes: &BTreeSet<String>) -> String {
    codes.iter().map(|code| format!("[`{code}`](errors.md)")).collect::<Vec<_>>().join(", ")
}

fn http_page(described: &Value) -> String {
    let mut all = operations(described);
    all.sort_by_key(|(path, _, operation)| (operation["tags"][0].as_str().unwrap().to_owned(), path.to_string()));
    let scoped = |operation: &&Value| operation["x-scope"] != "none";
    let with_body = |operation: &&Value| operation["requestBody"].is_object();
    let by_any = shared(all.iter().map(|found| found.2));
    let by_scoped = &shared(all.iter().map(|found| found.2).filter(scoped)) - &by_any;
    let by_body = &(&shared(all.iter().map(|found| found.2).filter(with_body)) - &by_any) - &by_scoped;
    let mut page = format!(
        "{MADE}# HTTP\n\nEvery operation, as `/v1/openapi.json` describes it; `/v1/docs` is a page to try it. Errors are RFC \
         9457 problem documents. A list answers `items`, and `next` where there is more: give it as `after`. Spans of time \
         are seconds or text such as `90s`, `2h`, `7d`.\n\nAny operation may answer {}; one that needs a scope also {}; \
         one with a body also {}. Beside these, each names its own.\n",
        words(&by_any),
        words(&by_scoped),
        words(&by_body),
    );
    let mut group = "";
    for (path, method, operation) in all {
        if operation["tags"][0] != group {
            group = operation["tags"][0].as_str().unwrap();
            let _ = write!(page, "\n## {group}\n");
        }
        let method = method.to_uppercase();
        let _ = write!(page, "\n### {}\n\n`{method} {path}`", operation["summary"].as_str().unwrap());
        let scope = operation["x-scope"].as_str().unwrap();
        let _ = writeln!(page, " · {}", if scope == "none" { "no token".into() } else { format!("scope `{scope}`") });
        if let Some(more) = operation["description"].as_str() {
            let _ = writeln!(page, "\n{more}");
        }
        let named = operation["parameters"].as_array().unwrap().iter().filter(|given| given["in"] != "path");
        let mut rows: Vec<String> = named.map(parameter_row).collect();
        rows.extend(body_rows(described, operation));
        if !rows.is_empty() {
            let _ = writeln!(page, "\n| | in | | |\n|---|---|---|---|\n{}", rows.join("\n"));
        }
        let _ = writeln!(page);
        for (status, response) in operation["responses"].as_object().unwrap() {
            if response["x-codes"].is_null() {
                let _ = writeln!(page, "- {status}: {}", response["description"].as_str().unwrap());
            }
        }
        let own = &(&codes_of(operation) - &by_any) - &by_scoped;
        let own = if with_body(&operation) { &own - &by_body } else { own };
        if !own.is_empty() {
            let _ = writeln!(page, "- or {}", words(&own));
        }
    }
    page
}

fn parameter_row(given: &Value) -> String {
    let text = |name: &str| given[name].as_str().unwrap();
    row(text("name"), text("in"), &given["schema"], &given["description"], given["required"] == true)
}

fn row(name: &str, place: &str, schema: &Value, said: &Value, required: bool) -> String {
    let kind = match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect::<Vec<_>>().join(" or ")
        }
        _ => schema.to_string().split("/schemas/").nth(1).map_or("any", |rest| rest.split('"').next().unwrap()).into(),
    };
    let needed = if required { ", required" } else { "" };
    let said = said.as_str().unwrap_or_default().replace('\n', " ");
    format!("| `{name}` | {place} | {kind}{needed} | {said} |")
}

fn body_rows(described: &Value, operation: &Value) -> Vec<String> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let Some(target) = schema["$ref"].as_str() else { return Vec::new() };
    let schema = described.pointer(target.strip_prefix('#').unwrap()).unwrap();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields
        .map(|(name, field)| row(name, "body", field, &field["description"], required.contains(&json!(name))))
        .collect()
}

fn errors_page(described: &Value) -> String {
    let mut page = format!(
        "{MADE}# Error codes\n\nErrors are RFC 9457 problem documents (`application/problem+json`) with `type`, `title`, `status`, `detail` (what \
         failed and why), a stable `code`, and `hint` (how to fix it); `fault` has the error of a failed run. The first fifteen codes \
         are the error kinds of the engine. [Troubleshooting](../troubleshooting.md) explains them with examples.\n\n\
         | code | status | cause | fix |\n|---|---|---|---|\n"
    );
    for code in described["x-codes"].as_array().unwrap() {
        let text = |name: &str| code[name].as_str().unwrap();
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", text("code"), code["status"], text("when"), text("action"));
    }
    page
}

/// An error code without a test may be wrong.
#[test]
fn every_code_has_a_test() {
    let tests = [
        include_str!("doors.rs"),
        include_str!("edges.rs"),
        include_str!("events.rs"),
        include_str!("links.rs"),
        include_str!("runs.rs"),
        include_str!("security.rs"),
        include_str!("signals.rs"),
    ];
    for code in Code::ALL {
        let wanted = format!("problem(\"{}\")", code.name());
        assert!(tests.iter().any(|test| test.contains(&wanted)), "no test has `{wanted}`");
    }
}
