//! Signals: sending one and many, inboxes, open waits.

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Kit, answer};

#[tokio::test]
async fn a_signal_resumes_the_run_that_waits_for_it() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    let body = json!({"payload": {"by": "ada"}, "by": "ada", "wait": "10s"});
    let sent = kit.post("/v1/runs/a/signals/approval", body).await.ok(200);
    assert_eq!((&sent["state"], &sent["repeated"]), (&json!("waiting"), &json!(false)));
    assert_eq!(sent["consumed"]["point"], "approval");
    assert_eq!(kit.get("/v1/runs/a/result").await.ok(200), json!({"by": "ada"}));
    let inbox = kit.get("/v1/runs/a/signals").await.ok(200);
    let signal = &inbox["items"][0];
    assert_eq!((&signal["fate"], &signal["point"]), (&json!("consumed"), &json!("approval")));
    assert_eq!(signal["source"], json!({"by": "ada", "via": "http"}));
}

#[tokio::test]
async fn one_key_is_one_signal() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "gather", "id": "g", "input": 3})).await.ok(201);
    let send = |payload: Value| {
        let request = kit.request(Method::POST, "/v1/runs/g/signals/item").header("idempotency-key", "k");
        answer(request.json(&json!({"payload": payload})))
    };
    let first = send(json!(1)).await.ok(200);
    let again = send(json!(1)).await.ok(200);
    assert_eq!((&first["id"], &again["repeated"]), (&again["id"], &json!(true)));
    send(json!(2)).await.problem("conflict");
    // The body's key is equivalent to the header.
    let same = kit.post("/v1/runs/g/signals/item", json!({"payload": 1, "key": "k"})).await.ok(200);
    assert_eq!(same["id"], first["id"]);
    let request = kit.request(Method::POST, "/v1/runs/g/signals/item").header("idempotency-key", "k");
    answer(request.json(&json!({"key": "other"}))).await.problem("invalid_header");
    assert_eq!(kit.get("/v1/runs/g/signals").await.ok(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_for_a_reason() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    kit.post("/v1/runs/nobody/signals/approval", json!({})).await.problem("not_found");
    kit.post("/v1/runs/a/signals/other", json!({"only_if_waiting": true})).await.problem("not_waiting");
    kit.post("/v1/runs/a/signals/approval", json!({"point": "elsewhere"})).await.problem("unknown_point");
    kit.post("/v1/runs/a/signals/bad%20name", json!({})).await.problem("invalid_name");
    kit.post("/v1/runs/a/signals/other", json!({"wait": 0.05})).await.problem("timed_out");
    kit.post("/v1/runs", json!({"type": "order", "id": "o", "input": {}})).await.ok(201);
    let problem = kit.post("/v1/runs/o/signals/approval", json!({"payload": {"yes": 1}})).await;
    let problem = problem.problem("invalid_payload");
    assert!(problem["hint"].as_str().unwrap().contains("boolean"), "{problem}");
    kit.post("/v1/runs", json!({"type": "echo", "id": "e"})).await.ok(201);
    kit.get("/v1/runs/e/wait").await.ok(200);
    kit.post("/v1/runs/e/signals/approval", json!({})).await.problem("not_running");
}

#[tokio::test]
async fn a_signal_may_start_its_run() {
    let kit = Kit::new().await;
    let body = json!({"payload": "x", "start_if_absent": {"type": "gather", "input": 1}});
    kit.post("/v1/runs/new/signals/item", body).await.ok(200);
    assert_eq!(kit.get("/v1/runs/new/result").await.ok(200), json!(["x"]));
}

#[tokio::test]
async fn many_signals_are_sent_and_a_bad_one_stops_none() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    kit.waiting("b").await;
    let many = json!({"signals": [
        {"run": "a", "name": "approval", "payload": 1},
        {"run": "nobody", "name": "approval"},
        {"run": "../x", "name": "approval"},
        {"run": "b", "name": "approval", "payload": 2},
    ]});
    let send = || answer(kit.request(Method::POST, "/v1/signals").header("idempotency-key", "m").json(&many));
    let first = send().await.ok(200);
    let codes: Vec<&Value> = first["results"].as_array().unwrap().iter().map(|result| &result["code"]).collect();
    assert_eq!(codes, [&Value::Null, &json!("not_found"), &json!("invalid_path"), &Value::Null]);
    assert_eq!(kit.get("/v1/runs/a/result").await.ok(200), json!(1));
    assert_eq!(kit.get("/v1/runs/b/result").await.ok(200), json!(2));
    let again = send().await.ok(200);
    assert_eq!(again["results"][0]["repeated"], true);
    assert_eq!(again["results"][3]["id"], first["results"][3]["id"]);
    let too_many: Vec<Value> = (0..1_001).map(|_| json!({"run": "a", "name": "x"})).collect();
    kit.post("/v1/signals", json!({"signals": too_many})).await.problem("invalid_body");
}

#[tokio::test]
async fn an_inbox_is_read_page_by_page() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "gather", "id": "g", "input": 2})).await.ok(201);
    for number in 0..5 {
        kit.post("/v1/runs/g/signals/spare", json!({"payload": number})).await.ok(200);
    }
    kit.post("/v1/runs/g/signals/item", json!({"payload": "i"})).await.ok(200);
    let (mut payloads, mut after) = (Vec::new(), String::new());
    loop {
        let page = kit.get(&format!("/v1/runs/g/signals?name=spare&limit=2{after}")).await.ok(200);
        payloads.extend(page["items"].as_array().unwrap().iter().map(|signal| signal["payload"].as_u64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(payloads, [0, 1, 2, 3, 4]);
    assert_eq!(kit.get("/v1/runs/g/signals").await.ok(200)["items"].as_array().unwrap().len(), 6);
    kit.get("/v1/runs/g/signals?name=no/name").await.problem("invalid_name");
    for wrong in ["elsewhere", "../../log/0000000001", "spare/", ".control/x"] {
        kit.get(&format!("/v1/runs/g/signals?after={wrong}")).await.problem("invalid");
    }
    // A page reads only the waits that it shows, not other inbox objects such as the pause request.
    kit.post("/v1/runs/g/pause", json!({})).await.ok(202);
    let (mut count, mut after) = (0, String::new());
    loop {
        let page = kit.get(&format!("/v1/runs/g/signals?limit=1{after}")).await.ok(200);
        count += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(count, 6);
}

#[tokio::test]
async fn what_waits_is_listed_page_by_page() {
    let kit = Kit::new().await;
    for id in ["a", "b", "c"] {
        kit.waiting(id).await;
    }
    kit.post("/v1/runs", json!({"type": "gather", "id": "g", "input": 1})).await.ok(201);
    kit.until("/v1/waiting", |page| page["items"].as_array().unwrap().len() == 4).await;
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = kit.get(&format!("/v1/waiting?name=approval&limit=2{after}")).await.ok(200);
        ids.extend(page["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(ids, ["a", "b", "c"]);
    let open = kit.get("/v1/runs/g/waiting").await.ok(200);
    assert_eq!((&open["items"][0]["name"], &open["items"][0]["mode"]), (&json!("item"), &json!("queue")));
    kit.get("/v1/waiting?after=elsewhere").await.problem("invalid");
}
