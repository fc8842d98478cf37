//! Slightly malformed requests through the server's own routes: each gets an answer by the API, or a problem document
//! with a known code. Never a 500, never a panic.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use wigwag::{Ctx, Engine, Failure, LinkSecret, Settings, StepCtx};
use wigwag_fuzz::{Choices, body, fuzz, text, without_panics};
use wigwag_server::{Code, Server};
use wigwag_store::Memory;

const IDS: [&str; 10] =
    ["waiting", "done", "paused", "nobody", "..", "%2e%2e%2f", "%00", "%ff", "a%0d%0ab", "waiting.json"];
const NAMES: [&str; 6] = ["approval", "spare", "double", "a%2fb", ".", "approve"];
const QUERIES: [&str; 16] = [
    "limit=1",
    "limit=0",
    "limit=99999999999999999999",
    "after=live/approve/waiting",
    "after=done/2026-01-01",
    "after=17.0",
    "after=%00",
    "timeout=0",
    "timeout=5ms",
    "timeout=1e300",
    "timeout=-1",
    "status=waiting_signal",
    "type=approve",
    "step=note#2",
    "from=18446744073709551615",
    "access_token=x",
];
const KINDS: [&str; 5] =
    ["application/json", "application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded", ""];

/// Valid bodies, used as seeds.
fn bodies() -> Vec<Vec<u8>> {
    let span =
        json!({"type": "approve", "id": "new", "input": {"a": [1, null]}, "delay": "2h", "at": "2026-01-28T12:00:00Z"});
    let signal = json!({"payload": {"yes": true}, "key": "k", "by": "ada", "point": "approval", "only_if_waiting": true,
        "start_if_absent": {"type": "approve", "input": 1}, "wait": "5ms"});
    let task = json!({"type": "double", "input": 1, "key": "k", "queue": "default", "retries": 1, "timeout": 1,
        "expires_in": "1h", "expires_at": "2026-01-28T12:00:00Z"});
    let many = json!({"signals": [{"run": "waiting", "name": "spare"}, {"run": "nobody", "name": "x", "payload": 1}]});
    let others = [json!({}), json!({"reason": "r"}), json!({"anyway": true}), json!({"from": "note"})];
    let migrate = json!({"rename": {"note": "noted"}, "skip": ["note"], "to": "abc"});
    let link = json!({"run": "waiting", "name": "approval", "expires_in": 60, "once": true});
    let all = [span, signal, task, many, migrate, link].into_iter().chain(others);
    all.map(|value| value.to_string().into_bytes()).chain([b"payload=%7B%7D".to_vec()]).collect()
}

async fn approve(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    let answer: Value = ctx.wait("approval").await?;
    ctx.step("note", || async { Ok::<_, Failure>(()) }).await?;
    Ok(answer)
}

/// Returns the routes with an engine behind them, and runs in various states.
async fn served() -> (Engine, Router) {
    let mut settings = Settings::default();
    settings.link_secret = Some(LinkSecret::new("a secret of the fuzz target").expect("it is long enough"));
    settings.grace = Duration::from_millis(1);
    let double = |ctx: StepCtx<Value>| async move { ctx.input() };
    let builder = Engine::builder(Arc::new(Memory::new())).settings(settings).task("double", double);
    let engine = builder.function("approve", 1, approve).start().await.expect("an engine in memory starts");
    let client = engine.client();
    for id in ["waiting", "done", "paused"] {
        client.start("approve", &()).id(id).await.expect("a run starts");
    }
    client.signal("done", "approval", &1).await.expect("the run waits for it");
    client.run("done").expect("an id").wait().await.expect("it ends");
    client.run("paused").expect("an id").pause().await.expect("it can be paused");
    let router = Server::builder(client).router().expect("the settings are the defaults");
    (engine, router)
}

fn request(choices: &mut Choices<'_>, routes: &[(String, String)], seeds: &[Vec<u8>]) -> Option<Request<Body>> {
    let (method, template) = choices.pick(routes);
    let mut path = template.replace("{id}", &part(choices, &IDS)).replace("{name}", &part(choices, &NAMES));
    path = path
        .replace("{type}", &part(choices, &NAMES))
        .replace("{token}", &part(choices, &["a.b", "x", "eyJ2IjoxfQ.AAAA"]));
    if choices.once_in(8) {
        path = format!("/{}", part(choices, &["v1/runs//", "v1", "%2e%2e/metrics", "v1/runs/a/b/c/d"]));
    }
    for number in 0..choices.below(4) {
        path.push(if number == 0 { '?' } else { '&' });
        path.push_str(&part(choices, &QUERIES));
    }
    let method =
        if choices.once_in(12) { *choices.pick(&["PUT", "DELETE", "HEAD", "OPTIONS", "BREW"]) } else { method };
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    for name in ["idempotency-key", "last-event-id", "traceparent", "origin", "accept"] {
        if choices.once_in(10) {
            request = request.header(name, text(choices, &["k", "1.0", "00-x", "http://localhost", "text/html"]));
        }
    }
    let kind = if choices.once_in(6) { *choices.pick(&KINDS) } else { KINDS[0] };
    if !kind.is_empty() {
        request = request.header("content-type", kind);
    }
    let body = if method == "GET" { Vec::new() } else { body(choices, seeds) };
    // Input that is no valid request never reaches the routes.
    request.body(body.into()).ok()
}

/// Returns a part of a path or query: one of these, or an odd text with reserved characters percent-encoded.
fn part(choices: &mut Choices<'_>, of: &[&str]) -> String {
    if !choices.once_in(3) {
        return (*choices.pick(of)).to_owned();
    }
    let odd = text(choices, of);
    odd.bytes()
        .map(|byte| if byte.is_ascii_graphic() { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

/// Checks that a response is a success, or a complete problem with a known code.
async fn check(what: &str, response: Response<Body>) {
    let status = response.status().as_u16();
    assert!(![500, 502].contains(&status), "{what}: {status}");
    if status < 400 {
        return;
    }
    let kind = response.headers().get("content-type").map(|kind| kind.as_bytes().to_vec()).unwrap_or_default();
    if kind.starts_with(b"text/html") && what.contains("/v1/links/") {
        return;
    }
    let body = to_bytes(response.into_body(), 1 << 20).await.expect("a problem is short");
    if what.starts_with("HEAD ") {
        return;
    }
    assert_eq!(kind, b"application/problem+json", "{what}");
    let problem: Value = serde_json::from_slice(&body).expect("a problem is JSON");
    let code = problem["code"].as_str().unwrap_or_default();
    let known = Code::ALL.iter().find(|known| known.name() == code);
    assert_eq!(known.map(|known| known.status()), Some(status), "{what}: {problem}");
    assert!(problem["detail"].as_str().is_some_and(|said| !said.is_empty() && said.len() < 4_096), "{what}: {problem}");
}

#[test]
fn any_request_is_answered_or_rejected_with_a_problem() {
    // The clock advances only while all tasks wait, so that long-polls end immediately.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime starts");
    let (engine, router) = runtime.block_on(served());
    let described = runtime.block_on(async {
        let ask = Request::get("/v1/openapi.json").header("host", "localhost").body(Body::empty()).expect("a request");
        let answer = router.clone().oneshot(ask).await.expect("routes do not fail");
        serde_json::from_slice::<Value>(&to_bytes(answer.into_body(), 1 << 24).await.expect("it ends")).expect("JSON")
    });
    let paths = described["paths"].as_object().expect("it has paths").iter();
    let routes: Vec<(String, String)> = paths
        .flat_map(|(path, methods)| {
            methods.as_object().into_iter().flatten().map(move |(method, _)| (method.to_uppercase(), path.clone()))
        })
        .collect();
    assert!(routes.len() > 30);
    let seeds = bodies();
    without_panics(|| {
        fuzz!(3_000, |input: &[u8]| {
            let mut choices = Choices::new(input);
            let Some(request) = request(&mut choices, &routes, &seeds) else { return };
            let what = format!("{} {}", request.method(), request.uri());
            runtime.block_on(async {
                let response = router.clone().oneshot(request).await.expect("routes do not fail");
                check(&what, response).await;
            });
        });
    });
    runtime.block_on(engine.stop());
}
