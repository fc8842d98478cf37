//! Runs: start, read, list, wait, control.

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Kit, answer};

#[tokio::test]
async fn a_run_is_started_looked_at_and_waited_for() {
    let kit = Kit::new().await;
    let answer = kit.post("/v1/runs", json!({"type": "echo", "id": "e-1", "input": {"a": 1}})).await;
    assert_eq!(answer.header("location"), "/v1/runs/e-1");
    assert_eq!(answer.ok(201), json!({"id": "e-1"}));
    let ended = kit.get("/v1/runs/e-1/wait?timeout=10s").await.ok(200);
    assert_eq!((&ended["status"], &ended["result"]), (&json!("completed"), &json!({"a": 1})));
    assert_eq!(kit.get("/v1/runs/e-1").await.ok(200)["type"], "echo");
    for place in ["result", "input", "output"] {
        assert_eq!(kit.get(&format!("/v1/runs/e-1/{place}")).await.ok(200), json!({"a": 1}), "{place}");
    }
}

#[tokio::test]
async fn an_unregistered_workflow_is_named_in_the_answer_of_its_start_and_in_its_state() {
    let kit = Kit::new().await;
    let started = kit.post("/v1/runs", json!({"type": "ecko", "id": "typo"})).await.ok(201);
    let warning = started["warnings"][0].as_str().unwrap().to_owned();
    assert!(warning.contains("workflow `ecko`") && warning.contains("known: `echo`"), "{warning}");
    assert_eq!(kit.get("/v1/runs/typo").await.ok(200)["warnings"], json!([warning]));
    assert_eq!(kit.get("/v1/runs/typo/wait?timeout=1ms").await.ok(202)["warnings"], json!([warning]));
}

#[tokio::test]
async fn runs_are_counted_by_type_and_status_and_waits_by_name() {
    let kit = Kit::new().await;
    assert_eq!(kit.get("/v1/counts").await.ok(200), json!({"types": {}, "waiting": {}}));
    for id in ["e-1", "e-2"] {
        kit.post("/v1/runs", json!({"type": "echo", "id": id, "input": 1, "wait": "10s"})).await.ok(200);
    }
    kit.waiting("w").await;
    let counts = kit.get("/v1/counts").await.ok(200);
    assert_eq!(counts["types"]["echo"], json!({"unfinished": 0, "completed": 2, "failed": 0, "cancelled": 0}));
    let all: u64 = counts["types"].as_object().unwrap().values().map(|of| of["unfinished"].as_u64().unwrap()).sum();
    assert_eq!(all, 1, "{counts}");
    let waits: u64 = counts["waiting"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(waits, 1, "{counts}");
}

#[tokio::test]
async fn a_reason_or_a_mapping_beyond_its_limit_is_rejected_with_the_limit() {
    let kit = Kit::new().await;
    kit.waiting("w").await;
    let problem = kit.post("/v1/runs/w/cancel", json!({"reason": "x".repeat(4_097)})).await.problem("invalid");
    assert!(problem["detail"].as_str().unwrap().contains("at most 4096 bytes, got: 4097"), "{problem}");
    let skip: Vec<String> = (0..257).map(|number| format!("s{number}")).collect();
    let problem = kit.post("/v1/runs/w/migrate", json!({"skip": skip})).await.problem("invalid");
    assert!(problem["detail"].as_str().unwrap().contains("at most 256 steps, got: 257"), "{problem}");
    kit.post("/v1/runs/w/migrate", json!({"to": "a/b"})).await.problem("invalid");
    assert_eq!(kit.get("/v1/runs/w").await.ok(200)["status"], "waiting_signal", "none of it was recorded");
}

#[tokio::test]
async fn a_run_says_what_it_costs() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "echo", "id": "e-1", "input": 1, "wait": "10s"})).await.ok(200);
    let run = kit.get("/v1/runs/e-1").await.ok(200);
    let count = |kind: &str| run["requests"][kind].as_u64().unwrap_or_default() as f64;
    assert!(count("puts") >= 3.0, "its entries, its snapshot, its place in the index: {run}");
    let dollars = ((count("puts") + count("lists")) * 5.0 + count("gets") * 0.4) / 1e6;
    assert!((run["dollars"].as_f64().unwrap() - dollars).abs() < 1e-9, "{run}");
    let log = kit.get("/v1/runs/e-1/history").await.ok(200);
    let of = |entry: &Value| entry["requests"]["puts"].as_f64().unwrap_or_default();
    let puts: f64 = log["items"].as_array().unwrap().iter().map(of).sum();
    assert_eq!(puts, count("puts"), "{log}");
}

#[tokio::test]
async fn what_is_large_or_unusual_comes_back_as_it_was_sent() {
    let kit = Kit::new().await;
    let text = format!(r#"{{"n":12345678901234567890123,"z":1.10,"a":"{}"}}"#, "é".repeat(40_000));
    let body = format!(r#"{{"type":"echo","id":"big","input":{text}}}"#);
    let request = kit.request(Method::POST, "/v1/runs").header("content-type", "application/json").body(body);
    answer(request).await.ok(201);
    assert_eq!(kit.get("/v1/runs/big/input").await.text, text);
    let ended = kit.get("/v1/runs/big/wait").await;
    assert!(ended.text.contains("12345678901234567890123"), "{}", &ended.text[..200]);
}

#[tokio::test]
async fn a_wait_that_is_over_before_the_run_says_how_the_run_is() {
    let kit = Kit::new().await;
    kit.waiting("w").await;
    let run = kit.get("/v1/runs/w/wait?timeout=0.05").await.ok(202);
    assert_eq!(run["status"], "waiting_signal");
    kit.get("/v1/runs/w/result?timeout=50ms").await.problem("timed_out");
    kit.get("/v1/runs/w/output").await.problem("not_found");
}

#[tokio::test]
async fn a_failed_run_has_no_result_but_a_fault() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "fail", "id": "f"})).await.ok(201);
    let problem = kit.get("/v1/runs/f/result").await.problem("run_failed");
    assert_eq!((problem["status"].as_u64(), &problem["fault"]["message"]), (Some(409), &json!("no luck")));
    kit.waiting("c").await;
    let asked = kit.post("/v1/runs/c/cancel", json!({"reason": "changed my mind"})).await.ok(202);
    assert_eq!(asked, json!({"id": "c", "asked": "cancel", "new": true}));
    let problem = kit.get("/v1/runs/c/result").await.problem("run_cancelled");
    assert!(problem["detail"].as_str().unwrap().contains("changed my mind"));
    kit.post("/v1/runs/c/cancel", json!({})).await.problem("not_running");
}

#[tokio::test]
async fn one_key_is_one_run() {
    let kit = Kit::new().await;
    let start =
        |body: Value| answer(kit.request(Method::POST, "/v1/runs").header("idempotency-key", "k-1").json(&body));
    let first = start(json!({"type": "echo", "input": 1})).await.ok(201);
    let again = start(json!({"type": "echo", "input": 1})).await.ok(201);
    assert_eq!(first, again);
    start(json!({"type": "echo", "input": 2})).await.problem("conflict");
    start(json!({"type": "approve", "input": 1})).await.problem("conflict");
    let other = answer(kit.request(Method::POST, "/v1/runs").json(&json!({"type": "echo", "input": 1}))).await.ok(201);
    assert_ne!(first, other, "without a key each request starts a separate run");
    let listed = kit.get("/v1/runs?type=echo").await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn one_request_starts_a_run_and_answers_with_its_result() {
    let kit = Kit::new().await;
    let answer = kit.post("/v1/runs", json!({"type": "echo", "id": "o-1", "input": {"a": 1}, "wait": "10s"})).await;
    assert_eq!(answer.header("location"), "/v1/runs/o-1");
    assert_eq!(answer.ok(200), json!({"a": 1}));
    let again = kit.post("/v1/runs", json!({"type": "echo", "id": "o-1", "input": {"a": 1}, "wait": "10s"})).await;
    assert_eq!(again.ok(200), json!({"a": 1}), "the same run once more");
    let failed = kit.post("/v1/runs", json!({"type": "fail", "id": "o-2", "wait": "10s"})).await;
    assert_eq!(failed.header("location"), "/v1/runs/o-2");
    assert_eq!(failed.problem("run_failed")["fault"]["message"], "no luck");
    kit.post("/v1/runs", json!({"type": "echo", "wait": "soon"})).await.problem("invalid_body");
}

#[tokio::test]
async fn a_run_that_does_not_end_in_time_was_started_all_the_same() {
    let kit = Kit::new().await;
    let begun = kit.post("/v1/runs", json!({"type": "approve", "id": "slow", "wait": 0.05})).await;
    assert_eq!(begun.header("location"), "/v1/runs/slow");
    assert_eq!(begun.ok(202), json!({"id": "slow"}));
    let body = json!({"type": "approve", "id": "slow", "wait": "50s"});
    let waits = tokio::spawn(answer(kit.request(Method::POST, "/v1/runs").json(&body)));
    kit.post("/v1/runs/slow/signals/approval", json!({"payload": "ada"})).await.ok(200);
    assert_eq!(waits.await.unwrap().ok(200), "ada");
}

#[tokio::test]
async fn runs_are_listed_page_by_page() {
    let kit = Kit::new().await;
    for id in ["a", "b", "c", "d", "e"] {
        kit.post("/v1/runs", json!({"type": "echo", "id": id})).await.ok(201);
        kit.get(&format!("/v1/runs/{id}/wait")).await.ok(200);
    }
    kit.waiting("w").await;
    kit.until("/v1/runs?status=completed", |page| page["items"].as_array().unwrap().len() == 5).await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = kit.get(&format!("/v1/runs?limit=2{after}")).await.ok(200);
        let items = page["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen[0], "w", "unfinished runs come first");
    seen.sort();
    assert_eq!(seen, ["a", "b", "c", "d", "e", "w"]);
    let only = kit.get("/v1/runs?status=waiting_signal&type=approve").await.ok(200);
    assert_eq!((only["items"][0]["id"].as_str(), only["items"].as_array().unwrap().len()), (Some("w"), 1));
    kit.get("/v1/runs?status=sleepy").await.problem("invalid_query");
    kit.get("/v1/runs?limit=0").await.problem("invalid_query");
    kit.get("/v1/runs?limit=1001").await.problem("invalid_query");
    kit.get("/v1/runs?after=nowhere").await.problem("invalid");
}

#[tokio::test]
async fn steps_and_history_are_read_page_by_page() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "order", "id": "o", "input": {}})).await.ok(201);
    kit.post("/v1/runs/o/signals/approval", json!({"payload": {"yes": true}})).await.ok(200);
    kit.get("/v1/runs/o/wait").await.ok(200);
    let (mut paths, mut after) = (Vec::new(), String::new());
    loop {
        let page = kit.get(&format!("/v1/runs/o/steps?limit=1{after}")).await.ok(200);
        paths.extend(page["items"].as_array().unwrap().iter().map(|step| step["path"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(paths, ["first", "approval", "last"]);
    assert_eq!(kit.get("/v1/runs/o/output?step=last").await.ok(200), json!("done"));
    kit.get("/v1/runs/o/output?step=nothing").await.problem("not_found");
    let all = kit.get("/v1/runs/o/history").await.ok(200);
    let count = all["items"].as_array().unwrap().len();
    let first = kit.get("/v1/runs/o/history?limit=1").await.ok(200);
    assert_eq!((first["items"][0]["events"][0]["type"].as_str(), &first["next"]), (Some("run.started"), &json!("1")));
    let rest = kit.get("/v1/runs/o/history?after=1").await.ok(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), count - 1);
    assert_eq!(kit.get("/v1/runs/o/history?from=2").await.ok(200), rest);
    assert_eq!(kit.get("/v1/runs/o/history?from=1000").await.ok(200)["items"], json!([]));
    kit.get("/v1/runs/nobody/history?from=1000").await.problem("not_found");
}

#[tokio::test]
async fn a_run_is_paused_resumed_and_restarted() {
    let kit = Kit::new().await;
    kit.waiting("p").await;
    kit.post("/v1/runs/p/resume", json!({})).await.problem("not_running");
    // A body may be absent if all its fields are optional.
    answer(kit.request(Method::POST, "/v1/runs/p/pause")).await.ok(202);
    kit.until("/v1/runs/p", |run| run["status"] == "paused").await;
    kit.post("/v1/runs/p/migrate", json!({"rename": {"..": "else"}})).await.problem("invalid");
    kit.post("/v1/runs/p/migrate", json!({"to": "no-such-hash"})).await.problem("invalid");
    let unknown = format!("sha256:{}", "0".repeat(64));
    kit.post("/v1/runs/p/migrate", json!({"to": unknown})).await.problem("not_found");
    kit.post("/v1/runs/p/resume", json!({"anyway": true})).await.ok(202);
    kit.until("/v1/runs/p", |run| run["status"] == "waiting_signal").await;
    kit.post("/v1/runs/p/signals/approval", json!({"payload": "ada"})).await.ok(200);
    assert_eq!(kit.get("/v1/runs/p/result").await.ok(200), json!("ada"));
    kit.post("/v1/runs/p/restart", json!({"from": "note"})).await.ok(202);
    kit.until("/v1/runs/p", |run| run["restarts"] == 1 && run["status"] == "completed").await;
    kit.post("/v1/runs/p/restart", json!({"from": "nothing"})).await.problem("invalid");
}

#[tokio::test]
async fn a_run_can_be_started_later() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "echo", "id": "later", "delay": "2h"})).await.ok(201);
    assert_eq!(kit.get("/v1/runs/later").await.ok(200)["status"], "pending");
    let at = json!({"type": "echo", "id": "then", "at": "2999-01-01T00:00:00+01:00"});
    kit.post("/v1/runs", at).await.ok(201);
    assert_eq!(kit.get("/v1/runs/then").await.ok(200)["not_before"], "2998-12-31T23:00:00.000000Z");
    kit.post("/v1/runs", json!({"type": "echo", "delay": "soon"})).await.problem("invalid_body");
    kit.post("/v1/runs", json!({"type": "echo", "at": "soon"})).await.problem("invalid_body");
}

#[tokio::test]
async fn definitions_are_those_that_workers_stored() {
    let kit = Kit::new().await;
    let known = kit.get("/v1/definitions/order").await.ok(200);
    assert_eq!(known["items"][0]["steps"][0]["name"], "first");
    kit.get("/v1/definitions/nothing").await.problem("not_found");
}

#[tokio::test]
async fn it_serves_a_directory_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let opened = wigwag_store::open(folder.path().join("store").to_str().unwrap(), &Default::default()).unwrap();
    let kit = Kit::on(opened.store, |server| server).await;
    kit.waiting("a").await;
    let followed = tokio::spawn(answer(kit.request(Method::GET, "/v1/runs/a/events")));
    kit.post("/v1/runs/a/signals/approval", json!({"payload": "ada", "wait": "20s"})).await.ok(200);
    assert_eq!(kit.get("/v1/runs/a/result").await.ok(200), json!("ada"));
    assert!(followed.await.unwrap().text.contains("event: run.completed"));
    kit.server.stop().await;
    kit.engine.stop().await;
}
