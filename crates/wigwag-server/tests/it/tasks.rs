//! Tasks: submit, read, list, wait, cancel.

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

#[tokio::test]
async fn a_task_is_looked_at_followed_and_steered_as_a_run_is() {
    let kit = Kit::new().await;
    let id =
        kit.post("/v1/tasks", json!({"type": "double", "input": 21})).await.ok(201)["id"].as_str().unwrap().to_owned();
    let task = format!("/v1/tasks/{id}");
    kit.get(&format!("{task}/wait")).await.ok(200);
    assert_eq!(kit.get(&format!("{task}/input")).await.ok(200), json!(21));
    assert_eq!(kit.get(&format!("{task}/output")).await.ok(200), json!(42));
    assert_eq!(kit.get(&format!("{task}/steps")).await.ok(200)["items"][0]["result"], json!(42));
    let history = kit.get(&format!("{task}/history")).await.ok(200);
    let entries = history["items"].as_array().unwrap();
    assert_eq!(entries[0]["events"][0]["type"], "run.started");
    // Each event names its entry and the number of events in it: together they are the log.
    let events = kit.get(&format!("{task}/events")).await.text;
    let told =
        events.lines().filter_map(|line| line.strip_prefix("data: ")).map(|data| serde_json::from_str(data).unwrap());
    let told: Vec<Value> = told.filter(|told: &Value| told["seq"].is_u64() && told["event"].is_object()).collect();
    for entry in entries {
        let own: Vec<&Value> = told.iter().filter(|told| told["seq"] == entry["seq"]).collect();
        assert_eq!(
            own.iter().map(|told| &told["event"]).collect::<Vec<_>>(),
            entry["events"].as_array().unwrap().iter().collect::<Vec<_>>()
        );
        assert!(
            own.iter().all(|told| told["count"] == own.len() && told["by"] == entry["by"] && told["at"] == entry["at"])
        );
    }
    let body = json!({"type": "double", "queue": "nobody"});
    let id = kit.post("/v1/tasks", body).await.ok(201)["id"].as_str().unwrap().to_owned();
    let task = format!("/v1/tasks/{id}");
    assert_eq!(kit.post(&format!("{task}/signals/poke"), json!({})).await.ok(200)["state"], "buffered");
    let many = json!({"signals": [{"run": id, "task": true, "name": "poke"}, {"run": id, "name": "poke"}]});
    let sent = kit.post("/v1/signals", many).await.ok(200);
    assert_eq!((&sent["results"][0]["state"], &sent["results"][1]["code"]), (&"buffered".into(), &"not_found".into()));
    assert_eq!(kit.get(&format!("{task}/signals?name=poke")).await.ok(200)["items"].as_array().unwrap().len(), 2);
    assert_eq!(kit.get(&format!("{task}/waiting")).await.ok(200)["items"], json!([]));
    assert_eq!(kit.post(&format!("{task}/pause"), json!({})).await.ok(202)["new"], true);
    for (what, code) in [("resume", "not_running"), ("restart", "not_running"), ("migrate", "not_running")] {
        kit.post(&format!("{task}/{what}"), json!({})).await.problem(code);
    }
    kit.get(&format!("/v1/runs/{id}/steps")).await.problem("not_found");
}

#[tokio::test]
async fn a_run_and_a_task_of_one_id_are_followed_each_by_itself() {
    let kit = Kit::new().await;
    let id =
        kit.post("/v1/tasks", json!({"type": "double", "input": 4})).await.ok(201)["id"].as_str().unwrap().to_owned();
    kit.post("/v1/runs", json!({"type": "echo", "id": id, "input": 5})).await.ok(201);
    let (task, run) =
        tokio::join!(kit.get_owned(format!("/v1/tasks/{id}/events")), kit.get_owned(format!("/v1/runs/{id}/events")));
    assert!(task.text.contains("\"result\":8") && !task.text.contains("\"result\":5"), "{}", task.text);
    assert!(run.text.contains("\"result\":5") && !run.text.contains("\"result\":8"), "{}", run.text);
}
