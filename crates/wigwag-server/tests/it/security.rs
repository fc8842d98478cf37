//! Authorization: allowed and rejected requests for each scope.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use wigwag_server::{Auth, Scope, Server, Settings, Tls};
use wigwag_store::{Clock as _, System};

use crate::jwt::{jwt, unsigned};
use crate::kit::{Kit, answer, with};

const READER: &str = "reader-token-0123456789";
const WRITER: &str = "writer-token-0123456789";
const APPROVER: &str = "approver-token-0123456789";
const TASKER: &str = "tasker-token-0123456789";
const ADMIN: &str = "admin-token-0123456789";
const HS256: &[u8] = b"a secret of thirty-two bytes, at least";

fn scope(text: &str) -> Scope {
    text.parse().unwrap()
}

fn tokens() -> Auth {
    Auth::new()
        .token("reader", READER, [scope("runs:read")])
        .and_then(|auth| auth.token("writer", WRITER, [scope("runs:write"), scope("runs:read")]))
        .and_then(|auth| auth.token("ada", APPROVER, [scope("signals:approval")]))
        .and_then(|auth| auth.token_hash("tasker", &Auth::hash(TASKER), [scope("tasks")]))
        .and_then(|auth| auth.token("admin", ADMIN, [scope("admin")]))
        .unwrap()
}

async fn kit(auth: Auth) -> Kit {
    Kit::with(|server| server.auth(auth)).await
}

#[tokio::test]
async fn without_a_token_or_with_a_wrong_one_nobody_gets_in() {
    let kit = kit(tokens()).await;
    let refused = kit.get("/v1/runs").await;
    assert_eq!(refused.header("www-authenticate"), "Bearer");
    refused.problem("not_authenticated");
    for wrong in ["", "x", "reader", &READER[1..], &format!("{READER}x"), &"x".repeat(20_000)] {
        let problem = with(&kit, wrong, Method::GET, "/v1/runs", None).await.problem("not_authenticated");
        assert!(wrong.len() < 5 || !problem.to_string().contains(wrong), "{problem}");
    }
    let basic = kit.request(Method::GET, "/v1/runs").basic_auth("reader", Some(READER));
    answer(basic).await.problem("not_authenticated");
    kit.get(&format!("/v1/runs?access_token={READER}")).await.problem("not_authenticated");
    // Routes without data of runs need no token.
    for path in ["/v1/health", "/v1/ready", "/v1/openapi.json"] {
        kit.get(path).await.ok(200);
    }
    with(&kit, READER, Method::GET, "/v1/runs", None).await.ok(200);
}

#[tokio::test]
async fn every_route_wants_its_scope() {
    let kit = kit(tokens()).await;
    let described = kit.get("/v1/openapi.json").await.ok(200);
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let scope = operation["x-scope"].as_str().unwrap();
            let there = path.replace("{id}", "x").replace("{name}", "approval").replace("{type}", "x");
            let method: Method = method.to_uppercase().parse().unwrap();
            let ask = |token| with(&kit, token, method.clone(), &there, None);
            let nobody = answer(kit.request(method.clone(), &there)).await;
            match scope {
                "none" => assert_ne!(nobody.status.as_u16(), 401, "{path}"),
                _ => _ = nobody.problem("not_authenticated"),
            }
            for (token, has) in [
                (READER, ["runs:read"].as_slice()),
                (WRITER, &["runs:read", "runs:write"]),
                (APPROVER, &["signals:NAME"]),
                (TASKER, &["tasks"]),
            ] {
                let answer = ask(token).await;
                let allowed = scope == "none" || scope == "any" || has.contains(&scope);
                assert_eq!(answer.status.as_u16() != 403, allowed, "{method} {path} with {has:?}: {}", answer.text);
            }
            assert_ne!(ask(ADMIN).await.status.as_u16(), 403, "{path}");
        }
    }
}

#[tokio::test]
async fn who_may_start_a_run_and_not_look_at_it_does_not_get_its_result() {
    let blind = "blind-token-0123456789";
    let auth = tokens().token("blind", blind, [scope("runs:write")]).unwrap();
    let kit = kit(auth).await;
    let body = json!({"type": "echo", "id": "r", "input": "secret", "wait": "10s"});
    assert_eq!(with(&kit, WRITER, Method::POST, "/v1/runs", Some(body.clone())).await.ok(200), "secret");
    with(&kit, blind, Method::POST, "/v1/runs", Some(body)).await.problem("not_allowed");
    let body = json!({"type": "echo", "id": "r", "input": "secret"});
    with(&kit, blind, Method::POST, "/v1/runs", Some(body)).await.ok(201);
}

#[tokio::test]
async fn a_token_for_one_signal_sends_that_one_alone_and_in_its_own_name() {
    let kit = kit(tokens()).await;
    let post = |token, path: &'static str, body| with(&kit, token, Method::POST, path, Some(body));
    post(WRITER, "/v1/runs", json!({"type": "approve", "id": "a"})).await.ok(201);
    post(WRITER, "/v1/runs/a/signals/approval", json!({})).await.problem("not_allowed");
    post(APPROVER, "/v1/runs/a/signals/other", json!({})).await.problem("not_allowed");
    let start = json!({"start_if_absent": {"type": "approve"}});
    post(APPROVER, "/v1/runs/new/signals/approval", start).await.problem("not_allowed");
    post(APPROVER, "/v1/runs/a/signals/approval", json!({"by": "grace"})).await.problem("not_allowed");
    post(APPROVER, "/v1/links", json!({"run": "a", "name": "other"})).await.problem("not_allowed");
    post(ADMIN, "/v1/runs/a/signals/spare", json!({"by": "grace"})).await.ok(200);
    let many = json!({"signals": [{"run": "a", "name": "other"}, {"run": "a", "name": "approval", "by": "ada"}]});
    let sent = post(APPROVER, "/v1/signals", many).await.ok(200);
    assert_eq!((&sent["results"][0]["code"], &sent["results"][1]["code"]), (&json!("not_allowed"), &Value::Null));
    let inbox = with(&kit, READER, Method::GET, "/v1/runs/a/signals", None).await.ok(200);
    let senders: Vec<&Value> =
        inbox["items"].as_array().unwrap().iter().map(|signal| &signal["source"]["by"]).collect();
    assert_eq!(senders, [&json!("ada"), &json!("grace")]);
}

fn seconds_from_now(seconds: i64) -> i64 {
    i64::try_from(System.wall().micros() / 1_000_000).unwrap() + seconds
}

#[tokio::test]
async fn a_jwt_opens_what_its_scope_says_until_its_end() {
    let ed = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let auth = Auth::new().jwt_hs256(HS256).unwrap();
    let auth = auth.jwt_eddsa(ed.public_key_pem().as_bytes()).unwrap();
    let auth = auth.jwt_rs256(include_bytes!("rsa.pub.pem")).unwrap().any_audience();
    let kit = kit(auth).await;
    let hs = HS256;
    let claims = json!({"sub": "ada", "exp": seconds_from_now(600), "scope": "runs:read something:else"});
    let ed = ed.serialize_pem();
    let rsa: &[u8] = include_bytes!("rsa.pem");
    for (algorithm, key) in [("HS256", hs), ("EdDSA", ed.as_bytes()), ("RS256", rsa)] {
        let token = jwt(algorithm, key, &claims);
        with(&kit, &token, Method::GET, "/v1/runs", None).await.ok(200);
        with(&kit, &token, Method::GET, "/v1/tasks", None).await.problem("not_allowed");
    }
    let public_as_secret = include_bytes!("rsa.pub.pem");
    let other = b"another secret of thirty-two bytes";
    let later = seconds_from_now(600);
    for (what, token) in [
        ("expired", jwt("HS256", hs, &json!({"sub": "ada", "exp": seconds_from_now(-600), "scope": "admin"}))),
        ("without an end", jwt("HS256", hs, &json!({"sub": "ada", "scope": "admin"}))),
        ("an end that is text", jwt("HS256", hs, &json!({"sub": "ada", "exp": "never", "scope": "admin"}))),
        ("not yet", jwt("HS256", hs, &json!({"sub": "a", "exp": later, "nbf": later, "scope": "admin"}))),
        ("of nobody", jwt("HS256", hs, &json!({"exp": later, "scope": "admin"}))),
        ("of an empty name", jwt("HS256", hs, &json!({"sub": "", "exp": later, "scope": "admin"}))),
        ("signed by another", jwt("HS256", other, &claims)),
        ("of another algorithm", jwt("HS512", hs, &claims)),
        ("a public key as secret", jwt("HS256", public_as_secret, &claims)),
        ("alg none", unsigned("none", &claims)),
        ("alg None", unsigned("None", &claims)),
        ("no alg", unsigned("", &claims)),
        ("no signature", format!("{}.", jwt("HS256", hs, &claims).rsplit_once('.').unwrap().0)),
    ] {
        let answer = with(&kit, &token, Method::GET, "/v1/runs", None).await;
        assert_eq!(answer.status.as_u16(), 401, "{what}: {}", answer.text);
        assert!(!answer.problem("not_authenticated").to_string().contains(&token), "{what}");
    }
}

#[tokio::test]
async fn a_public_key_is_nobodys_secret() {
    let pem = include_bytes!("rsa.pub.pem");
    let kit = kit(Auth::new().jwt_rs256(pem).unwrap().any_audience()).await;
    let claims = json!({"sub": "ada", "exp": seconds_from_now(600), "scope": "admin"});
    let trimmed = pem.strip_suffix(b"\n").unwrap_or(pem);
    for secret in [&pem[..], trimmed] {
        for algorithm in ["HS256", "HS384", "HS512"] {
            let token = jwt(algorithm, secret, &claims);
            with(&kit, &token, Method::GET, "/v1/runs", None).await.problem("not_authenticated");
        }
    }
    let rsa = include_bytes!("rsa.pem");
    with(&kit, &jwt("RS256", rsa, &claims), Method::GET, "/v1/runs", None).await.ok(200);
}

#[tokio::test]
async fn a_jwt_must_be_meant_for_us() {
    let auth = Auth::new().jwt_hs256(HS256).unwrap().issuer("https://id.example.com").audience("wigwag");
    let kit = kit(auth).await;
    let token = |iss: &str, aud: &str| {
        let claims = json!({"sub": "a", "exp": seconds_from_now(60), "scope": "admin", "iss": iss, "aud": aud});
        jwt("HS256", HS256, &claims)
    };
    with(&kit, &token("https://id.example.com", "wigwag"), Method::GET, "/v1/runs", None).await.ok(200);
    for wrong in [token("https://evil.example.com", "wigwag"), token("https://id.example.com", "other")] {
        with(&kit, &wrong, Method::GET, "/v1/runs", None).await.problem("not_authenticated");
    }
}

#[tokio::test]
async fn browsers_follow_events_with_a_token_in_the_query() {
    let kit = kit(tokens()).await;
    let started = json!({"type": "echo", "id": "e"});
    with(&kit, WRITER, Method::POST, "/v1/runs", Some(started)).await.ok(201);
    with(&kit, READER, Method::GET, "/v1/runs/e/wait", None).await.ok(200);
    kit.get("/v1/runs/e/events").await.problem("not_authenticated");
    kit.get("/v1/runs/e/events?access_token=wrong").await.problem("not_authenticated");
    kit.get(&format!("/v1/runs/e/events?access_token={APPROVER}")).await.problem("not_allowed");
    let events = kit.get(&format!("/v1/runs/e/events?access_token={READER}")).await;
    assert!(events.text.contains("event: run.completed") && events.text.contains("event: end"), "{}", events.text);
}

#[tokio::test]
async fn pages_from_elsewhere_are_refused_and_those_on_the_list_are_not() {
    let from = |request: RequestBuilder, origin: &str| answer(request.header("origin", origin));
    let kit = Kit::new().await;
    let own = format!("http://{}", kit.server.addr());
    for foreign in ["https://evil.example.com", "null", "http://127.0.0.1:1", "http://localhost"] {
        from(kit.request(Method::GET, "/v1/runs"), foreign).await.problem("foreign_origin");
        let start = kit.request(Method::POST, "/v1/runs").json(&json!({"type": "echo", "id": "e"}));
        from(start, foreign).await.problem("foreign_origin");
    }
    assert_eq!(kit.get("/v1/runs").await.ok(200)["items"], json!([]), "nothing was started");
    let allowed = from(kit.request(Method::GET, "/v1/runs"), &own).await;
    assert_eq!((allowed.status.as_u16(), allowed.header("access-control-allow-origin")), (200, ""));
    let mut settings = Settings::default();
    settings.origins = vec!["https://admin.example.com".into()];
    let kit = Kit::with(|server| server.settings(settings)).await;
    let allowed = from(kit.request(Method::GET, "/v1/runs"), "https://admin.example.com").await;
    assert_eq!(allowed.header("access-control-allow-origin"), "https://admin.example.com");
    allowed.ok(200);
    let refused = from(kit.request(Method::GET, "/v1/runs"), "https://evil.example.com").await;
    assert_eq!(refused.header("access-control-allow-origin"), "");
    refused.problem("foreign_origin");
    let asking = kit.request(Method::OPTIONS, "/v1/runs").header("access-control-request-method", "POST");
    let asking = asking.header("access-control-request-headers", "authorization, content-type, idempotency-key");
    let preflight = from(asking, "https://admin.example.com").await;
    assert_eq!(preflight.header("access-control-allow-origin"), "https://admin.example.com");
    assert!(preflight.header("access-control-allow-methods").contains("POST"));
    let asking = kit.request(Method::OPTIONS, "/v1/runs").header("access-control-request-method", "POST");
    assert_eq!(from(asking, "https://evil.example.com").await.header("access-control-allow-origin"), "");
}

#[tokio::test]
async fn a_server_without_tokens_answers_to_names_of_this_machine_only() {
    let named = |kit: &Kit, host: &str| answer(kit.request(Method::GET, "/v1/runs").header("host", host));
    let kit = Kit::new().await;
    named(&kit, "evil.example.com:7070").await.problem("foreign_host");
    named(&kit, "localhost:7070").await.ok(200);
    let kit = self::kit(tokens()).await;
    let request = kit.request(Method::GET, "/v1/runs").header("host", "wigwag.example.com").bearer_auth(READER);
    answer(request).await.ok(200);
}

#[tokio::test]
async fn nobody_else_is_served_without_tokens_unless_told_so() {
    let engine = wigwag::Engine::open("memory:").unwrap().start().await.unwrap();
    let everywhere = || Server::builder(engine.client()).bind(([0, 0, 0, 0], 0).into());
    let error = everywhere().start().await.unwrap_err();
    assert!(error.to_string().contains("no tokens") && error.advice().contains("tokens"), "{error}");
    everywhere().auth(tokens()).start().await.unwrap().stop().await;
    let mut settings = Settings::default();
    settings.insecure = true;
    everywhere().settings(settings).start().await.unwrap().stop().await;
    let mut settings = Settings::default();
    settings.origins = vec!["admin.example.com/path".into()];
    assert!(everywhere().auth(tokens()).settings(settings).start().await.is_err(), "that is no origin");
    let taken = Server::builder(engine.client()).bind(([127, 0, 0, 1], 0).into()).start().await.unwrap();
    let error = Server::builder(engine.client()).bind(taken.addr()).start().await.unwrap_err();
    assert!(error.to_string().contains(&taken.addr().to_string()), "{error}");
}

#[test]
fn weak_secrets_and_wrong_scopes_are_refused() {
    assert!(Auth::new().token("short", "short", [scope("admin")]).is_err());
    assert!(Auth::new().token_hash("x", "not hex", [scope("admin")]).is_err());
    assert!(Auth::new().token_hash("x", &"é".repeat(32), [scope("admin")]).is_err());
    assert!(Auth::new().jwt_hs256(b"short").is_err());
    assert!(Auth::new().jwt_rs256(b"nonsense").is_err() && Auth::new().jwt_eddsa(b"nonsense").is_err());
    for wrong in ["", "runs", "signals:", "signals:a b", "root"] {
        assert!(wrong.parse::<Scope>().is_err(), "{wrong}");
    }
    for right in ["runs:read", "runs:write", "signals:*", "signals:approval", "tasks", "admin"] {
        assert_eq!(scope(right).to_string(), right);
    }
    let shown = format!("{:?}", tokens().jwt_hs256(HS256).unwrap());
    assert!(!shown.contains(ADMIN) && !shown.contains(&Auth::hash(ADMIN)) && !shown.contains("thirty-two"), "{shown}");
}

#[tokio::test]
async fn it_speaks_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = Tls::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
    let kit = Kit::with(|server| server.tls(tls)).await;
    let root = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([root]).build().unwrap();
    let url = format!("https://localhost:{}/v1/health", kit.server.addr().port());
    answer(http.get(&url)).await.ok(200);
    assert!(kit.http.get(&url).send().await.is_err(), "its certificate is not trusted");
    assert!(kit.http.get(kit.url("/v1/health")).send().await.is_err(), "and it speaks nothing else");
    assert!(Tls::from_pem(b"", key.as_bytes()).is_err());
    assert!(Tls::from_pem(pem.as_bytes(), b"nonsense").is_err());
}
