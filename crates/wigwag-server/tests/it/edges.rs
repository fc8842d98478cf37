//! Errors before a handler is reached, and errors of the store.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wigwag_server::Settings;
use wigwag_store::{Batch, Faults};

use crate::gate::Gate;
use crate::kit::{Kit, answer};

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_problems() {
    let kit = Kit::new().await;
    for path in ["/v1", "/v1/nothing", "/v2/runs", "/v1/runs/a/b/c/d", "//", "/v1/runs/"] {
        kit.get(path).await.problem("no_route");
    }
    let refused = answer(kit.request(Method::DELETE, "/v1/runs")).await;
    let allowed = refused.header("allow").to_owned();
    refused.problem("method_not_allowed");
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
}

#[tokio::test]
async fn no_id_leads_out_of_its_place() {
    let kit = Kit::new().await;
    let long = "x".repeat(20_000);
    for id in ["..%2f..%2fwigwag", "%00", "a%00b", "%ff", "a%20b", ".hidden", "x.json", "%2e%2e%2flog", &long] {
        for place in ["", "/steps", "/history", "/signals", "/waiting", "/wait"] {
            kit.get(&format!("/v1/runs/{id}{place}")).await.problem("invalid_path");
        }
        kit.post(&format!("/v1/runs/{id}/signals/approval"), json!({})).await.problem("invalid_path");
        kit.get(&format!("/v1/tasks/{id}")).await.problem("invalid_path");
    }
    // Sent over a raw socket, because clients normalise such paths.
    for (path, code) in [("../../etc/passwd", "no_route"), ("..", "invalid_path"), ("%2e%2e", "invalid_path")] {
        let request = format!("GET /v1/runs/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = raw(&kit, &request).await;
        assert!(answer.starts_with("HTTP/1.1 40") && answer.contains(code), "{answer}");
    }
    kit.get(&format!("/v1/runs?after={}", "x".repeat(5_000))).await.problem("invalid_query");
    kit.get("/v1/runs?after=live/%00").await.problem("invalid_query");
    kit.get("/v1/runs?type=../x").await.problem("invalid");
    kit.get("/v1/definitions/..%2f..").await.problem("invalid");
}

/// Writes bytes and reads until the server closes the connection.
async fn raw(kit: &Kit, text: &str) -> String {
    let mut socket = TcpStream::connect(kit.server.addr()).await.unwrap();
    socket.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Far longer than any limit in a test, and far shorter than hyper's defaults.
    let ended = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the server does not hang up");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_problems() {
    let kit = Kit::new().await;
    let post = |kind: &str, body: String| {
        answer(kit.request(Method::POST, "/v1/runs").header("content-type", kind).body(body))
    };
    let json_kind = "application/json; charset=utf-8";
    for body in ["{", "{\"type\": }", "", "nonsense", "{\"type\": \"echo\"} more"] {
        post(json_kind, body.into()).await.problem("malformed_json");
    }
    // A struct could be read from an array, field by field.
    for body in [
        "[\"echo\"]",
        "[\"echo\", \"id\", 1, null, null]",
        "[]",
        "{}",
        "{\"type\": 1}",
        "{\"type\": \"echo\", \"imput\": 1}",
        "null",
    ] {
        post(json_kind, body.into()).await.problem("invalid_body");
    }
    post("text/plain", "{\"type\": \"echo\"}".into()).await.problem("unsupported_media_type");
    post("application/x-www-form-urlencoded", "type=echo".into()).await.problem("unsupported_media_type");
    answer(kit.request(Method::POST, "/v1/runs")).await.problem("invalid_body");
    let deep = format!("{{\"type\": \"echo\", \"input\": {}{}}}", "[".repeat(5_000), "]".repeat(5_000));
    post(json_kind, deep).await.problem("invalid_body");
    kit.get("/v1/runs?colour=red").await.problem("invalid_query");
    kit.get("/v1/runs?limit=many").await.problem("invalid_query");
}

#[tokio::test]
async fn bodies_have_a_limit_and_a_payload_may_reach_it() {
    let kit = Kit::new().await;
    // The largest payload that the engine accepts: two quotes and the text.
    let largest = "x".repeat(1024 * 1024 - 2);
    kit.post("/v1/runs", json!({"type": "echo", "id": "largest", "input": largest})).await.ok(201);
    kit.post("/v1/runs", json!({"type": "echo", "input": format!("{largest}x")})).await.problem("invalid");
    kit.post("/v1/runs", json!({"type": "echo", "input": "x".repeat(2 * 1024 * 1024)})).await.problem("body_too_large");
    // The same body, sent without a length.
    let chunks = futures_util::stream::iter((0..64).map(|_| Ok::<_, std::io::Error>(vec![b' '; 64 * 1024])));
    let request = kit.request(Method::POST, "/v1/runs").header("content-type", "application/json");
    answer(request.body(reqwest::Body::wrap_stream(chunks))).await.problem("body_too_large");
}

#[tokio::test]
async fn headers_that_cannot_be_read_are_problems() {
    let kit = Kit::new().await;
    for key in ["", "ké", &"x".repeat(257)] {
        let request = kit.request(Method::POST, "/v1/runs").header("idempotency-key", key.as_bytes());
        answer(request.json(&json!({"type": "echo"}))).await.problem("invalid_header");
    }
}

#[tokio::test]
async fn slow_clients_are_let_go() {
    let mut settings = Settings::default();
    settings.header_timeout = Duration::from_millis(200);
    settings.body_timeout = Duration::from_millis(200);
    let kit = Kit::with(|server| server.settings(settings)).await;
    // A head that never ends: the server closes the connection, without a response or with a timeout error.
    let answer = raw(&kit, "GET /v1/health HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(raw(&kit, "").await.is_empty(), "nor is silence waited for");
    let head =
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let answer = raw(&kit, head).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    let slow = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let request = kit.request(Method::POST, "/v1/runs").header("content-type", "application/json");
    crate::kit::answer(request.body(reqwest::Body::wrap_stream(slow))).await.problem("body_timeout");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_a_problem_and_the_server_is_not_ready() {
    let gate = Gate::new(Faults { refused: 1.0, ..Faults::default() });
    let kit = Kit::on(gate.clone(), |server| server).await;
    kit.get("/v1/ready").await.ok(200);
    gate.shut(true);
    kit.get("/v1/health").await.ok(200);
    let refused = kit.get("/v1/ready").await;
    assert_eq!(refused.header("retry-after"), "1");
    refused.problem("unavailable");
    kit.get("/v1/runs/a").await.problem("unavailable");
    kit.post("/v1/runs", json!({"type": "echo"})).await.problem("unavailable");
    gate.shut(false);
    kit.get("/v1/ready").await.ok(200);
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_a_problem() {
    let gate = Gate::new(Faults { slow: 1.0, slow_for: Duration::from_secs(3_600), ..Faults::default() });
    let mut settings = Settings::default();
    settings.request_timeout = Duration::from_millis(100);
    let kit = Kit::on(gate.clone(), |server| server.settings(settings)).await;
    gate.shut(true);
    kit.get("/v1/runs/a").await.problem("request_timeout");
    kit.get("/v1/ready").await.problem("request_timeout");
    gate.shut(false);
    kit.get("/v1/runs/a").await.problem("not_found");
}

#[tokio::test]
async fn what_cannot_be_read_is_a_problem_of_its_own() {
    let kit = Kit::new().await;
    kit.waiting("d").await;
    let batch = Batch::new().put("workflow/d/log/0000000001.json", "nonsense").delete("workflow/d/state.json");
    kit.store.write(batch).await.unwrap();
    let problem = kit.get("/v1/runs/d").await.problem("damaged");
    assert!(problem["detail"].as_str().unwrap().contains("workflow/d/log/0000000001.json"), "{problem}");
    let listed = kit.get("/v1/runs").await.ok(200);
    assert_eq!(listed["unreadable"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_panic_is_a_problem_and_the_server_goes_on() {
    let broken = axum::Router::new().route("/broken", axum::routing::get(broken));
    let kit = Kit::with(|server| server.merge(broken)).await;
    let problem = kit.get("/broken").await.problem("internal");
    assert!(!problem.to_string().contains("secret"), "{problem}");
    kit.get("/v1/health").await.ok(200);
}

async fn broken() -> &'static str {
    panic!("an internal detail")
}

#[tokio::test]
async fn a_server_that_stops_lets_go_of_those_who_wait_and_finishes_the_rest() {
    let kit = Kit::new().await;
    kit.waiting("w").await;
    let long_poll = tokio::spawn(answer(kit.request(Method::GET, "/v1/runs/w/wait?timeout=50s")));
    let begun = json!({"type": "approve", "id": "begun", "wait": "50s"});
    let begun = tokio::spawn(answer(kit.request(Method::POST, "/v1/runs").json(&begun)));
    kit.until("/v1/waiting", |page| page["items"].as_array().unwrap().len() == 2).await;
    let mut half = TcpStream::connect(kit.server.addr()).await.unwrap();
    let body = json!({"type": "echo", "id": "last"}).to_string();
    let (length, first) = (body.len(), &body[..5]);
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{first}"
    );
    half.write_all(head.as_bytes()).await.unwrap();
    // Both are in progress once a third one, sent after them, was answered.
    kit.get("/v1/ready").await.ok(200);
    let addr = kit.server.addr();
    let stopping = tokio::spawn(kit.server.stop());
    long_poll.await.unwrap().problem("stopped");
    assert_eq!(begun.await.unwrap().ok(202), json!({"id": "begun"}), "it was started, and that is said");
    half.write_all(&body.as_bytes()[5..]).await.unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    stopping.await.unwrap();
    assert!(TcpStream::connect(addr).await.is_err(), "the port is free");
}

#[tokio::test]
async fn the_routes_can_be_served_by_something_else_and_below_a_path() {
    let kit = Kit::new().await;
    let routes = wigwag_server::Server::builder(kit.client()).router().unwrap();
    let routes = axum::Router::new().nest("/wigwag", routes);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/wigwag/v1", listener.local_addr().unwrap());
    let serving = tokio::spawn(axum::serve(listener, routes).into_future());
    let start = kit.http.post(format!("{url}/runs")).json(&json!({"type": "echo", "id": "e"}));
    answer(start).await.ok(201);
    answer(kit.http.get(format!("{url}/runs/e/wait"))).await.ok(200);
    answer(kit.http.get(format!("{url}/nothing"))).await.problem("no_route");
    serving.abort();
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_ever() {
    let mut settings = Settings::default();
    settings.grace = Duration::from_millis(100);
    let kit = Kit::with(|server| server.settings(settings)).await;
    let mut half = TcpStream::connect(kit.server.addr()).await.unwrap();
    let head =
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    half.write_all(head.as_bytes()).await.unwrap();
    kit.get("/v1/ready").await.ok(200);
    tokio::time::timeout(Duration::from_secs(5), kit.server.stop()).await.unwrap();
    assert_eq!(half.read(&mut [0; 1]).await.unwrap_or(0), 0, "it hangs up");
}

#[tokio::test]
async fn a_signal_to_a_store_that_hangs_is_given_up_too() {
    let gate = Gate::new(Faults { slow: 1.0, slow_for: Duration::from_secs(3_600), ..Faults::default() });
    let mut settings = Settings::default();
    settings.request_timeout = Duration::from_millis(100);
    let kit = Kit::on(gate.clone(), |server| server.settings(settings)).await;
    kit.waiting("a").await;
    gate.shut(true);
    kit.post("/v1/runs/a/signals/approval", json!({})).await.problem("request_timeout");
}
