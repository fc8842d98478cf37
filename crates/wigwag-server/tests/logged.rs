//! Tests of the log, in a separate process, because a subscriber captures the logs of the whole process.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/gate.rs"]
mod gate;
#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/hub_socket.rs"]
mod hub_socket;
#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/kit.rs"]
mod kit;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use wigwag_server::{Auth, S3Keys, Scope};
use wigwag_store::{Clock as _, Faults, System};

use crate::gate::Gate;
use crate::hub_socket::Socket;
use crate::kit::{Kit, with};

const TOKEN: &str = "a-token-0123456789";

/// Captures all log lines.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<String>>);

impl tracing::field::Visit for Written {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0.lock().unwrap(), " {field}={value:?}");
    }
}

impl tracing::Subscriber for Written {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let _ = write!(self.0.lock().unwrap(), "\nspan {}", span.metadata().name());
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let _ = write!(self.0.lock().unwrap(), "\nevent {}", event.metadata().target());
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn nothing_secret_is_logged() {
    let written = Written::default();
    let _until_the_end = tracing::subscriber::set_default(written.clone());
    let auth = Auth::new().token("all", TOKEN, [Scope::Admin]).unwrap();
    let kit = Kit::with(|server| server.auth(auth)).await;
    with(&kit, TOKEN, Method::POST, "/v1/runs", Some(json!({"type": "approve", "id": "a"}))).await.ok(201);
    let link =
        with(&kit, TOKEN, Method::POST, "/v1/links", Some(json!({"run": "a", "name": "approval"}))).await.ok(201);
    let token = link["token"].as_str().unwrap();
    kit.get(&format!("/v1/links/{token}")).await.ok(200);
    kit.get("/v1/runs/a/events?access_token=a-wrong-but-secret-token").await.problem("not_authenticated");
    with(&kit, "another-wrong-secret", Method::GET, "/v1/runs", None).await.problem("not_authenticated");
    let text = written.0.lock().unwrap().clone();
    assert!(text.contains("http.route=\"/v1/links/{token}\"") && text.contains("trace_id"), "it writes down: {text}");
    for secret in [token, TOKEN, "a-wrong-but-secret-token", "another-wrong-secret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

const SECRET: &str = "a secret of the tests, long enough";

#[tokio::test]
async fn what_is_done_to_runs_and_to_the_store_is_in_the_audit_log() {
    let written = Written::default();
    let _until_the_end = tracing::subscriber::set_default(written.clone());
    let auth = Auth::new().token("ada", TOKEN, [Scope::Admin]).unwrap();
    let keys = S3Keys::new().full("worker", SECRET).unwrap();
    let kit = Kit::with(|server| server.auth(auth).s3(keys)).await;
    let kit = &kit;
    let post = |path: String, body| async move { with(kit, TOKEN, Method::POST, &path, Some(body)).await };
    post("/v1/runs".into(), json!({"type": "approve", "id": "a"})).await.ok(201);
    for what in ["pause", "resume", "cancel", "restart", "migrate"] {
        post(format!("/v1/runs/a/{what}"), json!({})).await;
    }
    post("/v1/runs/nobody/cancel".into(), json!({})).await.problem("not_found");
    post("/v1/runs".into(), json!({"type": "approve", "id": "b"})).await.ok(201);
    let link = post("/v1/links".into(), json!({"run": "b", "name": "approval"})).await.ok(201);
    post(link["path"].as_str().unwrap().into(), json!({"payload": "private"})).await.ok(200);
    post("/v1/links/revoke".into(), json!({"token": link["token"]})).await.ok(200);
    post(link["path"].as_str().unwrap().into(), json!({"payload": "private"})).await.problem("gone");
    post("/v1/links".into(), json!({"run": "nobody", "name": "approval"})).await.problem("not_found");
    let unknown = "0".repeat(32);
    post("/v1/links/revoke".into(), json!({"run": "no body", "id": unknown})).await;
    post("/v1/sweep".into(), json!({"dry_run": true})).await.ok(200);
    post("/v1/prune".into(), json!({"older_than": "1d"})).await.ok(200);
    let text = written.0.lock().unwrap().clone();
    let id = link["id"].as_str().unwrap();
    for line in [
        r#"action="pause" who="ada" from=127.0.0.1 what="run=a" outcome="#.to_owned(),
        r#"action="resume" who="ada" from=127.0.0.1 what="run=a" outcome="#.to_owned(),
        r#"action="cancel" who="ada" from=127.0.0.1 what="run=a" outcome="done""#.to_owned(),
        r#"action="restart" who="ada""#.to_owned(),
        r#"action="migrate" who="ada""#.to_owned(),
        r#"action="cancel" who="ada" from=127.0.0.1 what="run=nobody" outcome="not_found""#.to_owned(),
        format!(r#"action="link.make" who="ada" from=127.0.0.1 what="run=b signal=approval link={id}" outcome="done""#),
        format!(r#"action="link.use" who="ada" from=127.0.0.1 what="run=b signal=approval link={id}" outcome="done""#),
        format!(r#"action="link.use" who="ada" from=127.0.0.1 what="run=b signal=approval link={id}" outcome="gone""#),
        r#"action="link.make" who="ada" from=127.0.0.1 what="run=nobody signal=approval" outcome="not_found""#
            .to_owned(),
        format!(r#"action="link.revoke" who="ada" from=127.0.0.1 what="run=no body link={unknown}" outcome="#),
        r#"action="sweep" who="ada" from=127.0.0.1"#.to_owned(),
        format!(r#"action="link.revoke" who="ada" from=127.0.0.1 what="run=b link={id}" outcome="done""#),
        r#"action="prune" who="ada" from=127.0.0.1 what="older_than=86400s dry_run=false runs="#.to_owned(),
    ] {
        let line = format!("event wigwag::audit {line}");
        assert!(text.contains(&line), "want: {line}, got: {text}");
    }
    for secret in [link["token"].as_str().unwrap(), TOKEN, "private"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test]
async fn raw_writes_and_denied_requests_are_in_the_audit_log_and_a_flood_is_counted() {
    let written = Written::default();
    let _until_the_end = tracing::subscriber::set_default(written.clone());
    let scopes = ["runs:read", "signals:one"].map(|scope| scope.parse::<Scope>().unwrap());
    let auth = Auth::new().token("reader", TOKEN, scopes).unwrap();
    let limited = S3Keys::new().full("worker", SECRET).unwrap();
    let keys = limited.limited("narrow", SECRET, false, &["logs/".to_owned()]).unwrap();
    let kit = Kit::with(|server| server.auth(auth).s3(keys)).await;
    let bucket = |id: &str| {
        let mut settings = wigwag_store::OpenSettings::default();
        settings.bucket.endpoint = Some(kit.url("/s3"));
        settings.bucket.keys = Some((id.to_owned(), SECRET.to_owned()));
        settings.unproven = true;
        wigwag_store::open("s3://wigwag", &settings).unwrap().store
    };
    let store = bucket("worker");
    store.write(wigwag_store::Batch::new().put("by/hand", "private")).await.unwrap();
    let create = wigwag_store::Batch::new().create("by/hand", "again");
    assert!(store.write(create).await.unwrap_err().is_exists());
    with(&kit, TOKEN, Method::POST, "/v1/runs/a/cancel", Some(json!({}))).await.problem("not_allowed");
    with(&kit, TOKEN, Method::POST, "/v1/runs/a/signals/other", Some(json!({}))).await.problem("not_allowed");
    assert!(bucket("narrow").get("runs/a").await.is_err());
    for payload in [json!({"token": "a-wrong-but-secret-token"}), json!({})] {
        let mut socket = Socket::open(kit.server.addr()).await;
        assert_eq!(socket.connect(payload).await.unwrap()["type"], "hub:unauthorized");
    }
    for _ in 0..40 {
        kit.get("/v1/runs").await.problem("not_authenticated");
    }
    let text = written.0.lock().unwrap().clone();
    for line in [
        r#"event wigwag::audit::store action="PutObject" who="worker" from=127.0.0.1 what="key=by/hand" outcome="done""#,
        r#"event wigwag::audit::store action="PutObject" who="worker" from=127.0.0.1 what="key=by/hand" outcome="PreconditionFailed""#,
        r#"event wigwag::audit action="denied" who="reader" from=127.0.0.1 what="/v1/runs/{id}/cancel" outcome="not_allowed""#,
        r#"event wigwag::audit action="denied" who="reader" from=127.0.0.1 what="/v1/runs/{id}/signals/{name}" outcome="not_allowed""#,
        r#"event wigwag::audit action="denied" who="narrow" from=127.0.0.1 what="/s3" outcome="AccessDenied""#,
        r#"event wigwag::audit action="denied" who="anonymous" from=127.0.0.1 what="/v1/runs" outcome="not_authenticated""#,
    ] {
        assert!(text.contains(line), "want: {line}, got: {text}");
    }
    let denied = text.matches("action=\"denied\"").count();
    assert!((20..35).contains(&denied), "{denied} of 45 are written");
    let at_hub = r#"action="denied" who="anonymous" from=127.0.0.1 what="/hub" outcome="not_authenticated""#;
    assert_eq!(text.matches(at_hub).count(), 2, "a wrong token and none: {text}");
    assert!(!text.contains("a-wrong-but-secret-token"), "{text}");
    assert!(!text.contains("private") && !text.contains(SECRET), "{text}");
}

/// Waits until the log contains a text.
async fn until(written: &Written, wanted: &str) {
    let waiting = async {
        while !written.0.lock().unwrap().contains(wanted) {
            System.sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(found.is_ok(), "want: {wanted}, got: {}", written.0.lock().unwrap());
}

/// The server drops a request whose client disconnects; the change may have been made nevertheless.
#[tokio::test]
async fn whoever_hangs_up_before_the_answer_is_in_the_audit_log_all_the_same() {
    let written = Written::default();
    let _until_the_end = tracing::subscriber::set_default(written.clone());
    let gate = Gate::new(Faults { slow: 1.0, slow_for: Duration::from_secs(3_600), ..Faults::default() });
    let auth = Auth::new().token("ada", TOKEN, [Scope::Admin]).unwrap();
    let kit = Kit::on(gate.clone(), |server| server.auth(auth)).await;
    with(&kit, TOKEN, Method::POST, "/v1/runs", Some(json!({"type": "approve", "id": "a"}))).await.ok(201);
    gate.shut(true);
    let mut socket = TcpStream::connect(kit.server.addr()).await.unwrap();
    let ask = format!(
        "POST /v1/runs/a/cancel HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 0\r\n\r\n"
    );
    socket.write_all(ask.as_bytes()).await.unwrap();
    until(&written, "http.route=\"/v1/runs/{id}/cancel\"").await;
    drop(socket);
    until(&written, r#"action="cancel" who="ada" from=127.0.0.1 what="run=a" outcome="interrupted""#).await;
    gate.shut(false);
}
