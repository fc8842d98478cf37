//! Resume links: opening one sends nothing, its button does.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wigwag::LinkSecret;
use wigwag_server::{Auth, Scope, Settings};

use crate::kit::{Kit, answer, with};

async fn made(kit: &Kit, body: Value) -> String {
    kit.post("/v1/links", body).await.ok(201)["path"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn looking_at_a_link_sends_nothing_and_its_button_sends_once() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    let path = made(&kit, json!({"run": "a", "name": "approval", "expires_in": "1h", "once": true})).await;
    for _ in 0..3 {
        let shown = answer(kit.request(Method::GET, &path).header("accept", "text/html")).await;
        assert_eq!((shown.status.as_u16(), shown.header("content-type")), (200, "text/html; charset=utf-8"));
        assert!(shown.text.contains("method=\"post\">") && shown.text.contains("<b>approval</b>"));
        assert_eq!((shown.header("cache-control"), shown.header("referrer-policy")), ("no-store", "same-origin"));
        assert!(shown.header("content-security-policy").contains("default-src 'none'"));
        kit.http.head(kit.url(&path)).send().await.unwrap();
    }
    let shown = kit.get(&path).await.ok(200);
    assert_eq!((&shown["run"], &shown["once"]), (&json!("a"), &json!(true)));
    assert_eq!(kit.get("/v1/runs/a/signals").await.ok(200)["items"], json!([]), "nothing was sent");
    let pressed = kit.request(Method::POST, &path).header("content-type", "application/x-www-form-urlencoded");
    // A request as a browser sends it from the page.
    let pressed = pressed.header("origin", format!("http://{}", kit.server.addr()));
    let sent = answer(pressed.body("payload=%7B%22yes%22%3Atrue%7D")).await;
    assert_eq!(sent.status.as_u16(), 200, "{}", sent.text);
    assert!(sent.text.contains("<h1>Sent</h1>"));
    assert_eq!(kit.get("/v1/runs/a/result").await.ok(200), json!({"yes": true}));
    kit.post(&path, json!({"payload": {"yes": true}})).await.problem("conflict");
}

#[tokio::test]
async fn a_link_may_be_used_as_often_as_it_is_pressed_unless_it_was_made_for_once() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "gather", "id": "g", "input": 2})).await.ok(201);
    let path = made(&kit, json!({"run": "g", "name": "item"})).await;
    kit.post(&path, json!({"payload": 1})).await.ok(200);
    kit.post(&path, json!({"payload": 2})).await.ok(200);
    assert_eq!(kit.get("/v1/runs/g/result").await.ok(200), json!([1, 2]));
    kit.post(&path, json!({"payload": 3})).await.problem("not_running");
}

#[tokio::test]
async fn a_link_that_is_not_ours_or_is_over_does_nothing() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    let path = made(&kit, json!({"run": "a", "name": "approval"})).await;
    let tampered = format!("{}x", &path[..path.len() - 1]);
    for token in ["x", "a.b", "%00", "..%2f..", tampered.rsplit('/').next().unwrap(), &"y".repeat(9_000)] {
        kit.get(&format!("/v1/links/{token}")).await.problem("invalid");
        kit.post(&format!("/v1/links/{token}"), json!({})).await.problem("invalid");
    }
    let over = kit.client().link("a", "approval", Duration::ZERO).token().await.unwrap();
    kit.post(&format!("/v1/links/{over}"), json!({})).await.problem("gone");
    let page = answer(kit.request(Method::GET, &format!("/v1/links/{over}")).header("accept", "text/html")).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (410, "text/html; charset=utf-8"));
    let form = kit.request(Method::POST, &path).header("content-type", "application/x-www-form-urlencoded");
    let refused = answer(form.body("payload={bad")).await;
    assert_eq!((refused.status.as_u16(), refused.header("content-type")), (400, "text/html; charset=utf-8"));
    assert_eq!(kit.get("/v1/runs/a/signals").await.ok(200)["items"], json!([]), "nothing was sent");
    kit.post("/v1/links", json!({"run": "nobody", "name": "approval"})).await.problem("not_found");
    kit.post("/v1/links", json!({"run": "a", "name": "approval", "expires_in": 0})).await.problem("invalid");
}

#[tokio::test]
async fn the_address_of_a_link_is_what_the_server_was_told() {
    let mut settings = Settings::default();
    settings.public_url = Some("https://wigwag.example.com/".into());
    settings.insecure = true;
    let kit = Kit::with(|server| server.settings(settings)).await;
    kit.waiting("a").await;
    let made = kit.post("/v1/links", json!({"run": "a", "name": "approval"})).await.ok(201);
    let token = made["token"].as_str().unwrap();
    assert_eq!(made["url"], format!("https://wigwag.example.com/v1/links/{token}"));
    let kit = Kit::new().await;
    kit.waiting("a").await;
    let made = kit.post("/v1/links", json!({"run": "a", "name": "approval"})).await.ok(201);
    assert_eq!(made["url"], Value::Null, "never made from `Host`");
}

#[tokio::test]
async fn a_revoked_link_does_nothing() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    let make = json!({"run": "a", "name": "approval"});
    let first = kit.post("/v1/links", make.clone()).await.ok(201);
    let second = kit.post("/v1/links", make).await.ok(201);
    let path = |link: &Value| link["path"].as_str().unwrap().to_owned();
    let revoked = kit.post("/v1/links/revoke", json!({"token": first["token"]})).await.ok(200);
    assert_eq!((&revoked["id"], &revoked["new"]), (&first["id"], &json!(true)));
    assert_eq!(kit.post("/v1/links/revoke", json!({"token": first["token"]})).await.ok(200)["new"], false);
    kit.get(&path(&first)).await.problem("gone");
    let problem = kit.post(&path(&first), json!({"payload": 1})).await.problem("gone");
    assert!(problem["detail"].as_str().unwrap().contains("revoked"), "{problem}");
    kit.get(&path(&second)).await.ok(200);
    kit.post("/v1/links/revoke", json!({"run": "a", "id": second["id"]})).await.ok(200);
    kit.post(&path(&second), json!({"payload": 1})).await.problem("gone");
    assert_eq!(kit.get("/v1/runs/a/signals").await.ok(200)["items"], json!([]), "nothing was sent");
    for wrong in [json!({}), json!({"run": "a"}), json!({"token": "x", "run": "a", "id": "y"})] {
        kit.post("/v1/links/revoke", wrong).await.problem("invalid_body");
    }
    kit.post("/v1/links/revoke", json!({"token": "not.signed"})).await.problem("not_found");
    kit.post("/v1/links/revoke", json!({"run": "a", "id": "../../x"})).await.problem("invalid");
    kit.post("/v1/links/revoke", json!({"run": "nobody", "id": second["id"]})).await.problem("not_found");
}

#[tokio::test]
async fn a_link_is_made_and_revoked_by_who_may_send_its_signal_and_sends_in_their_name() {
    let (ada, bob, admin) = ("ada-token-0123456789", "bob-token-0123456789", "admin-token-0123456789");
    let scope = |text: &str| text.parse::<Scope>().unwrap();
    let auth = Auth::new()
        .token("ada", ada, [scope("signals:item")])
        .and_then(|auth| auth.token("bob", bob, [scope("signals:other")]))
        .and_then(|auth| auth.token("admin", admin, [Scope::Admin]))
        .unwrap();
    let kit = Kit::with(|server| server.auth(auth)).await;
    let post = |token, path: &'static str, body| with(&kit, token, Method::POST, path, Some(body));
    post(admin, "/v1/runs", json!({"type": "gather", "id": "g", "input": 3})).await.ok(201);
    let own = post(ada, "/v1/links", json!({"run": "g", "name": "item"})).await.ok(201);
    post(ada, "/v1/links", json!({"run": "g", "name": "item", "sender": "grace"})).await.problem("not_allowed");
    let named = post(admin, "/v1/links", json!({"run": "g", "name": "item", "sender": "grace"})).await.ok(201);
    for link in [&own, &named] {
        kit.post(link["path"].as_str().unwrap(), json!({"payload": 1})).await.ok(200);
    }
    let inbox = with(&kit, admin, Method::GET, "/v1/runs/g/signals", None).await.ok(200);
    let senders: Vec<&Value> = inbox["items"].as_array().unwrap().iter().map(|one| &one["source"]["by"]).collect();
    assert_eq!(senders, [&json!("ada"), &json!("grace")]);
    post(bob, "/v1/links/revoke", json!({"token": own["token"]})).await.problem("not_allowed");
    post(ada, "/v1/links/revoke", json!({"run": "g", "id": named["id"]})).await.problem("not_allowed");
    post(ada, "/v1/links/revoke", json!({"token": own["token"]})).await.ok(200);
    post(admin, "/v1/links/revoke", json!({"run": "g", "id": named["id"]})).await.ok(200);
}

/// A server with the voters `ada` and `bob`, and an administrator.
async fn voters() -> (Kit, [&'static str; 3]) {
    let tokens = ["ada-token-0123456789", "bob-token-0123456789", "admin-token-0123456789"];
    let scopes = || ["signals:vote", "runs:read"].map(|text| text.parse::<Scope>().unwrap());
    let auth = Auth::new()
        .token("ada", tokens[0], scopes())
        .and_then(|auth| auth.token("bob", tokens[1], scopes()))
        .and_then(|auth| auth.token("admin", tokens[2], [Scope::Admin]))
        .unwrap();
    (Kit::with(|server| server.auth(auth)).await, tokens)
}

#[tokio::test]
async fn one_person_does_not_fill_a_quorum_with_a_token_and_a_link() {
    let (kit, [ada, bob, admin]) = voters().await;
    let post = |token, path: &'static str, body| with(&kit, token, Method::POST, path, Some(body));
    post(admin, "/v1/runs", json!({"type": "vote", "id": "v"})).await.ok(201);
    post(ada, "/v1/runs/v/signals/vote", json!({"payload": "token"})).await.ok(200);
    for once in [false, true] {
        let link = post(ada, "/v1/links", json!({"run": "v", "name": "vote", "once": once})).await.ok(201);
        kit.post(link["path"].as_str().unwrap(), json!({"payload": "link"})).await.ok(200);
    }
    let answer = post(bob, "/v1/runs/v/signals/vote", json!({"payload": "bob", "wait": "30s"})).await.ok(200);
    assert_eq!(answer["consumed"]["point"], "vote", "{answer}");
    let result = with(&kit, ada, Method::GET, "/v1/runs/v/result?timeout=30s", None).await.ok(200);
    assert_eq!(result, json!(["token", "bob"]));
}

#[tokio::test]
async fn a_wait_for_authenticated_senders_takes_tokens_and_their_links_and_no_claims() {
    let (kit, [ada, _, admin]) = voters().await;
    let post = |token, path: &'static str, body| with(&kit, token, Method::POST, path, Some(body));
    for id in ["a", "b"] {
        post(admin, "/v1/runs", json!({"type": "verified", "id": id})).await.ok(201);
    }
    let waits = |path: &'static str| with(&kit, admin, Method::GET, path, None);
    for path in ["/v1/runs/a/waiting", "/v1/runs/b/waiting"] {
        while waits(path).await.ok(200)["items"].as_array().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(waits(path).await.ok(200)["items"][0]["authenticated"], true);
    }
    // An administrator may name another sender, which does not authenticate that sender.
    post(admin, "/v1/runs/a/signals/vote", json!({"by": "ada"})).await.problem("rejected_sender");
    post(ada, "/v1/runs/a/signals/vote", json!({"wait": "30s"})).await.ok(200);
    let link = post(ada, "/v1/links", json!({"run": "b", "name": "vote"})).await.ok(201);
    kit.post(link["path"].as_str().unwrap(), json!({})).await.ok(200);
    with(&kit, ada, Method::GET, "/v1/runs/b/result?timeout=30s", None).await.ok(200);
}

#[tokio::test]
async fn an_idempotency_key_of_one_token_neither_swallows_nor_blocks_the_signal_of_another() {
    let (kit, [ada, bob, admin]) = voters().await;
    let post = |token, path: &'static str, body| with(&kit, token, Method::POST, path, Some(body));
    post(admin, "/v1/runs", json!({"type": "vote", "id": "v"})).await.ok(201);
    let vote = |payload: u32| json!({"payload": payload, "key": "k"});
    assert_eq!(post(ada, "/v1/runs/v/signals/vote", vote(1)).await.ok(200)["repeated"], false);
    assert_eq!(post(ada, "/v1/runs/v/signals/vote", vote(1)).await.ok(200)["repeated"], true);
    post(ada, "/v1/runs/v/signals/vote", vote(2)).await.problem("conflict");
    assert_eq!(post(bob, "/v1/runs/v/signals/vote", vote(2)).await.ok(200)["repeated"], false);
    let result = with(&kit, ada, Method::GET, "/v1/runs/v/result?timeout=30s", None).await.ok(200);
    assert_eq!(result, json!([1, 2]));
}

#[tokio::test]
async fn a_link_outlives_its_secret_for_as_long_as_that_is_accepted() {
    let (first, second) = ("the first secret, of the tests", "the second secret, of the tests");
    let secrets = LinkSecret::new(first).unwrap();
    let mut settings = wigwag::Settings::default();
    settings.link_secret = Some(secrets.clone());
    let engine = wigwag::Engine::open("memory:").unwrap().settings(settings).start().await.unwrap();
    let client = engine.client();
    let make = || client.link("a", "go", Duration::from_secs(60)).token();
    let old = make().await.unwrap();
    secrets.replace(&LinkSecret::new(second).unwrap().accepting(first).unwrap());
    let new = make().await.unwrap();
    assert!(client.verify_link(&old).is_ok() && client.verify_link(&new).is_ok());
    secrets.replace(&LinkSecret::new(second).unwrap());
    assert!(client.verify_link(&old).is_err() && client.verify_link(&new).is_ok());
    assert!(LinkSecret::new(second).unwrap().accepting("short").is_err());
    engine.stop().await;
}
