//! Hostile requests over a raw socket, because HTTP clients normalise requests.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wigwag::{Engine, LinkSecret};
use wigwag_server::{Auth, Code, Scope, Settings};

use crate::kit::{Answer, Kit, answer};

/// Returns the method, path and required scope of every route.
async fn routes(kit: &Kit) -> Vec<(Method, String, String)> {
    let described = kit.get("/v1/openapi.json").await.ok(200);
    let mut routes = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let scope = operation["x-scope"].as_str().unwrap().to_owned();
            routes.push((method.to_uppercase().parse().unwrap(), path.clone(), scope));
        }
    }
    assert!(routes.len() > 30, "{routes:?}");
    routes
}

/// Returns all keys of runs, tasks and their signals.
async fn stored(kit: &Kit) -> Vec<String> {
    let mut keys = Vec::new();
    for prefix in ["workflow/", "task/"] {
        let page = kit.store.list(prefix, "", 1_000).await.unwrap();
        assert!(!page.more);
        keys.extend(page.entries.into_iter().map(|found| found.key));
    }
    keys
}

/// Sends bytes and reads until the server closes the connection.
async fn raw(kit: &Kit, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(kit.server.addr()).await.unwrap();
    // The server may close the connection before it has read everything.
    let _ = socket.write_all(bytes).await;
    let mut said = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "the server does not hang up after {:?}", String::from_utf8_lossy(bytes));
    String::from_utf8_lossy(&said).into_owned()
}

/// Parses the status and the problem of a raw response.
#[track_caller]
fn problem(said: &str) -> (u16, Value) {
    let status = said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {said}"));
    assert!(head.contains("content-type: application/problem+json"), "{said}");
    let problem: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(problem["status"], status, "{said}");
    let code = problem["code"].as_str().unwrap();
    assert!(Code::ALL.iter().any(|known| known.name() == code), "{code}");
    (status, problem)
}

const ADMIN: &str = "admin-token-0123456789";

fn auth() -> Auth {
    let scopes = ["runs:read", "runs:write", "signals:other", "tasks"];
    scopes.into_iter().fold(Auth::new().token("admin", ADMIN, [Scope::Admin]).unwrap(), |auth, scope| {
        auth.token(scope, &format!("a-token-with-only-{scope}"), [scope.parse().unwrap()]).unwrap()
    })
}

/// Returns a body that would have an effect if the request were allowed.
fn effective(path: &str) -> Value {
    match path {
        "/v1/runs" => json!({"type": "echo", "id": "new"}),
        "/v1/tasks" => json!({"type": "double"}),
        "/v1/signals" => json!({"signals": [{"run": "a", "name": "approval"}]}),
        "/v1/links/revoke" => json!({"run": "a", "id": "00"}),
        "/v1/links" => json!({"run": "a", "name": "approval"}),
        _ => json!({}),
    }
}

#[tokio::test]
async fn no_scope_but_the_right_one_does_anything_on_any_route() {
    let kit = Kit::with(|server| server.auth(auth())).await;
    let admin = |method, path: &str, body: Value| answer(kit.request(method, path).bearer_auth(ADMIN).json(&body));
    admin(Method::POST, "/v1/runs", json!({"type": "nap", "id": "a"})).await.ok(201);
    let task = admin(Method::POST, "/v1/tasks", json!({"type": "nobody-does-this", "key": "t"})).await.ok(201);
    let before = stored(&kit).await;
    for (method, path, needed) in routes(&kit).await {
        if needed == "none" {
            continue;
        }
        let id = if path.contains("/tasks/") { task["id"].as_str().unwrap() } else { "a" };
        let there = path.replace("{id}", id).replace("{name}", "approval").replace("{type}", "echo");
        let ask = || kit.request(method.clone(), &there).json(&effective(&path));
        answer(ask()).await.problem("not_authenticated");
        answer(ask().bearer_auth("a-token-of-nobody-at-all")).await.problem("not_authenticated");
        let in_query = || kit.request(method.clone(), &format!("{there}?access_token={ADMIN}")).json(&effective(&path));
        answer(in_query().header("authorization", "Bearer ")).await.problem("not_authenticated");
        if !path.ends_with("/events") {
            answer(in_query()).await.problem("not_authenticated");
        }
        for scope in ["runs:read", "runs:write", "signals:other", "tasks"]
            .into_iter()
            .filter(|scope| *scope != needed && needed != "any")
        {
            let refused: Answer = answer(ask().bearer_auth(format!("a-token-with-only-{scope}"))).await;
            // In a request with many signals, each one is rejected individually.
            if path == "/v1/signals" && scope == "signals:other" {
                assert_eq!(refused.ok(200)["results"][0]["code"], "not_allowed");
            } else {
                refused.problem("not_allowed");
            }
        }
        assert_eq!(stored(&kit).await, before, "{method} {path}");
    }
    admin(Method::POST, "/v1/runs/a/signals/approval", json!({})).await.ok(200);
    assert_ne!(stored(&kit).await, before, "an allowed request has a visible effect");
}

#[tokio::test]
async fn no_path_leads_anywhere_it_should_not_on_any_route() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    let before = stored(&kit).await;
    let long = "x".repeat(10 * 1024);
    let wrong = [
        "..",
        ".",
        "%2e%2e",
        "..%2f..",
        "%2e%2e%2f%2e%2e%2fwigwag.json",
        "%2f",
        "%5c..",
        "%00",
        "a%00",
        "a%0d%0ax-evil:%201",
        "%ff",
        "%c0%ae%c0%ae%c0%af",
        "%",
        "%zz",
        "a%20b",
        "a%3fb",
        "%e2%80%ae",
        "a.json",
        ".hidden",
        "a%23b",
        &long,
    ];
    let mut tried = 0;
    for (method, path, _) in routes(&kit).await {
        for part in path.split('/').filter(|part| part.starts_with('{')) {
            for wrong in wrong {
                // The token of a link has no format rule: only its signature is verified.
                let there = path.replace(part, wrong).replace("{id}", "a").replace("{name}", "approval");
                let request = format!(
                    "{method} {there} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                     content-length: 2\r\n\r\n{{}}"
                );
                let said = raw(&kit, request.as_bytes()).await;
                let (status, problem) = problem(&said);
                let code = problem["code"].as_str().unwrap();
                let known = ["invalid_path", "invalid_name", "invalid"].contains(&code);
                assert!(status == 400 && known, "{method} {there}: {said}");
                assert!(!said.contains("\r\nx-evil"), "{said}");
                tried += 1;
            }
        }
        // An unescaped slash ends the segment, so no route matches, or another route that has no such run.
        let there = path.replace("{id}", "../../etc").replace("{name}", "../x").replace("{token}", "../../x");
        if there != path {
            let request = format!("{method} {there} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            let (status, _) = problem(&raw(&kit, request.as_bytes()).await);
            assert!((400..500).contains(&status), "{method} {there}: {status}");
        }
    }
    assert!(tried > 400, "{tried}");
    assert_eq!(stored(&kit).await, before, "nothing came of it");
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_is_sent() {
    let kit = Kit::new().await;
    for (method, path, _) in routes(&kit).await {
        if method != Method::POST {
            continue;
        }
        let there = path.replace("{id}", "a").replace("{name}", "approval").replace("{token}", "x");
        let head = format!(
            "POST {there} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: 1099511627776\r\n\r\n{{"
        );
        let (status, problem) = problem(&raw(&kit, head.as_bytes()).await);
        assert_eq!((status, &problem["code"]), (413, &json!("body_too_large")), "{there}");
    }
}

#[tokio::test]
async fn depth_is_refused_wherever_json_is_taken() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    for depth in [200, 20_000, 300_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (path, body) in [
            ("/v1/runs", format!(r#"{{"type":"echo","input":{deep}}}"#)),
            ("/v1/runs", deep.clone()),
            ("/v1/tasks", format!(r#"{{"type":"double","input":{deep}}}"#)),
            ("/v1/runs/a/signals/approval", format!(r#"{{"payload":{deep}}}"#)),
            ("/v1/signals", format!(r#"{{"signals":[{{"run":"a","name":"approval","payload":{deep}}}]}}"#)),
            ("/v1/runs/a/migrate", format!(r#"{{"rename":{deep}}}"#)),
        ] {
            let request = kit.request(Method::POST, path).header("content-type", "application/json").body(body);
            let refused = answer(request).await;
            assert!([400, 422].contains(&refused.status.as_u16()), "{path} {depth}: {refused:?}");
            let code = refused.json()["code"].as_str().unwrap().to_owned();
            refused.problem(&code);
        }
    }
    assert_eq!(kit.get("/v1/runs/a/signals").await.ok(200)["items"], json!([]));
}

#[tokio::test]
async fn an_array_is_no_object_wherever_one_is_wanted() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    for (path, body) in [
        ("/v1/runs/a/cancel", json!([])),
        ("/v1/runs/a/pause", json!([])),
        ("/v1/runs/a/signals/approval", json!([1])),
        ("/v1/runs/b/signals/approval", json!({"start_if_absent": ["approve", null]})),
        ("/v1/signals", json!([[]])),
        ("/v1/signals", json!({"signals": [["a", "approval"]]})),
        ("/v1/links", json!(["a", "approval"])),
        ("/v1/tasks", json!(["double", 1])),
    ] {
        kit.post(path, body).await.problem("invalid_body");
    }
    assert_eq!(kit.get("/v1/runs/a/signals").await.ok(200)["items"], json!([]));
    kit.get("/v1/runs/b").await.problem("not_found");
}

#[tokio::test]
async fn what_is_not_http_ends_the_connection_and_nothing_else() {
    let kit = Kit::new().await;
    let ok = "GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let said = raw(&kit, format!("{ok}{ok}\x01\x02 garbage\r\n\r\n{ok}").as_bytes()).await;
    assert_eq!((said.matches("HTTP/1.1 200").count(), said.matches("HTTP/1.1 400").count()), (2, 1), "{said}");
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/health HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /v1/health\r\n\r\n",
        b"GET /v1/he alth HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let said = raw(&kit, garbage).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4") || said.starts_with("HTTP/1.0 4"), "{said}");
    }
    let many: String = (0..2_000).map(|number| format!("x-{number}: y\r\n")).collect();
    let said = raw(&kit, format!("GET /v1/health HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 431"), "{said}");
    let long = format!("GET /v1/health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(2_000_000));
    let said = raw(&kit, long.as_bytes()).await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    kit.get("/v1/health").await.ok(200);
}

#[tokio::test]
async fn where_a_body_ends_is_never_in_doubt() {
    let kit = Kit::new().await;
    let hidden = "GET /v1/hidden HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let post = "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let length = hidden.len() + 5;
    for doubtful in [
        format!("content-length: 2\r\ncontent-length: {length}\r\n\r\n{{}}{hidden}"),
        format!("content-length: 2, {length}\r\n\r\n{{}}{hidden}"),
        format!("content-length: +2\r\n\r\n{{}}{hidden}"),
        format!("content-length: -1\r\n\r\n{hidden}"),
        format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n\r\n0\r\n\r\n{hidden}"),
        format!("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        format!("transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("transfer-encoding: chunked\r\n\r\n2;\0\r\n{{}}\r\nzz\r\n\r\n{hidden}"),
    ] {
        let said = raw(&kit, format!("{post}{doubtful}").as_bytes()).await;
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{doubtful}\n{said}");
        assert!(said.starts_with("HTTP/1.1 4") && !said.contains("/v1/hidden"), "{doubtful}\n{said}");
    }
    assert_eq!(kit.get("/v1/runs").await.ok(200)["items"], json!([]), "nothing was started");
}

#[tokio::test]
async fn two_names_or_two_origins_are_as_bad_as_a_foreign_one() {
    let kit = Kit::new().await;
    let own = kit.server.addr();
    for (head, code) in [
        ("host: localhost\r\nhost: evil.example.com".to_owned(), "foreign_host"),
        ("host: evil.example.com\r\nhost: localhost".to_owned(), "foreign_host"),
        ("host: localhost@evil.example.com".to_owned(), "foreign_host"),
        ("host: localhost.evil.example.com".to_owned(), "foreign_host"),
        ("x: y".to_owned(), "foreign_host"),
        (format!("host: {own}\r\norigin: http://{own}\r\norigin: https://evil.example.com"), "foreign_origin"),
        (format!("host: {own}\r\norigin: http://{own}.evil.example.com"), "foreign_origin"),
        (format!("host: {own}\r\norigin: http://evil.example.com/{own}"), "foreign_origin"),
        (format!("host: {own}\r\norigin: null"), "foreign_origin"),
    ] {
        let said = raw(&kit, format!("GET /v1/runs HTTP/1.1\r\n{head}\r\nconnection: close\r\n\r\n").as_bytes()).await;
        let (status, problem) = problem(&said);
        assert_eq!((status, problem["code"].as_str()), (403, Some(code)), "{head}");
    }
    let absolute =
        "GET http://evil.example.com/v1/runs HTTP/1.1\r\nhost: evil.example.com\r\nconnection: close\r\n\r\n";
    assert_eq!(problem(&raw(&kit, absolute.as_bytes()).await).1["code"], "foreign_host");
}

#[tokio::test]
async fn who_does_not_read_is_let_go() {
    let mut settings = Settings::default();
    settings.write_timeout = Duration::from_millis(200);
    let kit = Kit::with(|server| server.settings(settings)).await;
    // More than the socket buffers hold.
    let large = "x".repeat(1024 * 1024 - 2);
    kit.post("/v1/runs", json!({"type": "echo", "id": "large", "input": large})).await.ok(201);
    kit.get("/v1/runs/large/wait").await;
    let mut socket = TcpStream::connect(kit.server.addr()).await.unwrap();
    let ask = "GET /v1/runs/large/input HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(64);
    socket.write_all(ask.as_bytes()).await.unwrap();
    // Detects the close without reading: writing fails once the peer has closed.
    let gone = async {
        loop {
            wigwag_store::Clock::sleep(&wigwag_store::System, Duration::from_millis(20)).await;
            if socket.write_all(b"GET / HTTP/1.1\r\n").await.is_err() {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), gone).await.is_ok(), "the connection is never closed");
    kit.get("/v1/health").await.ok(200);
}

#[tokio::test]
async fn a_link_that_was_changed_anywhere_or_signed_by_another_does_nothing() {
    let mut settings = Settings::default();
    // Each of these counts as a failed authentication.
    settings.failed_auth_rate = None;
    let kit = Kit::with(|server| server.settings(settings)).await;
    kit.waiting("a").await;
    let made = kit.post("/v1/links", json!({"run": "a", "name": "approval", "once": true})).await.ok(201);
    let token = made["token"].as_str().unwrap().to_owned();
    for place in 0..token.len() {
        for other in ["A", "x", "_"].into_iter().filter(|other| !token[place..].starts_with(other)) {
            let changed = format!("{}{other}{}", &token[..place], &token[place + 1..]);
            kit.get(&format!("/v1/links/{changed}")).await.problem("invalid");
            kit.post(&format!("/v1/links/{changed}"), json!({})).await.problem("invalid");
        }
        if place > 0 {
            kit.post(&format!("/v1/links/{}", &token[..place]), json!({})).await.problem("invalid");
        }
    }
    let mut settings = wigwag::Settings::default();
    settings.link_secret = Some(LinkSecret::new("a secret of somebody else").unwrap());
    let other = Engine::builder(std::sync::Arc::clone(&kit.store)).settings(settings).start().await.unwrap();
    let foreign = other.client().link("a", "approval", Duration::from_secs(60)).token().await.unwrap();
    other.stop().await;
    kit.post(&format!("/v1/links/{foreign}"), json!({})).await.problem("invalid");
    assert_eq!(kit.get("/v1/runs/a/signals").await.ok(200)["items"], json!([]), "nothing was sent");
    kit.post(&format!("/v1/links/{token}"), json!({"payload": 1})).await.ok(200);
    kit.get("/v1/runs/a/wait").await.ok(200);
    kit.post(&format!("/v1/links/{token}"), json!({"payload": 1})).await.problem("conflict");
}
