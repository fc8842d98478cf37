//! Resume links: looking sends nothing, the button does.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wigwag_server::Settings;

use crate::kit::{Kit, answer};

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
        assert!(shown.text.contains("<form method=\"post\">") && shown.text.contains("<b>approval</b>"));
        assert_eq!((shown.header("cache-control"), shown.header("referrer-policy")), ("no-store", "same-origin"));
        assert!(shown.header("content-security-policy").contains("default-src 'none'"));
        kit.http.head(kit.url(&path)).send().await.unwrap();
    }
    let shown = kit.get(&path).await.ok(200);
    assert_eq!((&shown["run"], &shown["once"]), (&json!("a"), &json!(true)));
    assert_eq!(kit.get("/v1/runs/a/signals").await.ok(200)["items"], json!([]), "nothing was sent");
    let pressed = kit.request(Method::POST, &path).header("content-type", "application/x-www-form-urlencoded");
    // As a browser sends it from the page.
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
