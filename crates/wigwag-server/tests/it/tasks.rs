//! Tasks: submit, look, list, wait, cancel.

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Kit, answer};

#[tokio::test]
async fn a_task_is_submitted_and_waited_for() {
    let kit = Kit::new().await;
    let made = kit.post("/v1/tasks", json!({"type": "double", "input": 21})).await;
    let location = made.header("location").to_owned();
    made.ok(201);
    assert_eq!(kit.get(&format!("{location}/wait")).await.ok(200)["status"], "completed");
    assert_eq!(kit.get(&format!("{location}/result")).await.ok(200), json!(42));
    assert_eq!(kit.get(&location).await.ok(200)["task"]["queue"], "default");
    kit.until("/v1/tasks?type=double&status=completed", |page| page["items"][0]["type"] == "double").await;
    assert_eq!(kit.get("/v1/tasks?type=double&queue=gpu").await.ok(200)["items"], json!([]));
    kit.get("/v1/tasks/nothing").await.problem("not_found");
    kit.get("/v1/tasks?type=a%20b").await.problem("invalid_query");
}

#[tokio::test]
async fn one_request_submits_a_task_and_answers_with_its_result() {
    let kit = Kit::new().await;
    let answer = kit.post("/v1/tasks", json!({"type": "double", "input": 21, "wait": "10s"})).await;
    assert!(answer.header("location").starts_with("/v1/tasks/"), "{answer:?}");
    assert_eq!(answer.ok(200), json!(42));
    let later = kit.post("/v1/tasks", json!({"type": "double", "delay": "1h", "wait": 0})).await;
    assert!(later.ok(202)["id"].is_string());
}

#[tokio::test]
async fn one_key_is_one_task() {
    let kit = Kit::new().await;
    let submit = |input: Value| {
        let request = kit.request(Method::POST, "/v1/tasks").header("idempotency-key", "k");
        answer(request.json(&json!({"type": "double", "input": input})))
    };
    let first = submit(json!(1)).await.ok(201);
    assert_eq!(submit(json!(1)).await.ok(201), first);
    submit(json!(2)).await.problem("conflict");
}

#[tokio::test]
async fn a_task_fails_or_is_cancelled() {
    let kit = Kit::new().await;
    let body = json!({"type": "hopeless", "retries": 0, "timeout": "10s", "expires_in": "1h"});
    let id = kit.post("/v1/tasks", body).await.ok(201)["id"].as_str().unwrap().to_owned();
    kit.get(&format!("/v1/tasks/{id}/result")).await.problem("run_failed");
    let body = json!({"type": "double", "queue": "nobody", "delay": "1h"});
    let id = kit.post("/v1/tasks", body).await.ok(201)["id"].as_str().unwrap().to_owned();
    assert_eq!(kit.get(&format!("/v1/tasks/{id}/wait?timeout=0")).await.ok(202)["status"], "pending");
    kit.post(&format!("/v1/tasks/{id}/cancel"), json!({"reason": "no need"})).await.ok(202);
}
