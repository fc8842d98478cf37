//! Maintenance: prune and sweep.

use serde_json::json;

use crate::kit::Kit;

#[tokio::test]
async fn what_has_ended_is_removed_and_nothing_else() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "echo", "id": "done"})).await.ok(201);
    kit.post("/v1/runs", json!({"type": "fail", "id": "failed"})).await.ok(201);
    for id in ["done", "failed"] {
        kit.get(&format!("/v1/runs/{id}/wait")).await.ok(200);
    }
    kit.waiting("open").await;
    kit.until("/v1/runs?status=failed", |page| page["items"] != json!([])).await;
    let prune = |body| kit.post("/v1/prune", body);
    let dry = prune(json!({"older_than": 0, "dry_run": true})).await.ok(200);
    assert_eq!((&dry["runs"], &dry["more"]), (&2.into(), &false.into()));
    assert_eq!(prune(json!({"older_than": "1h"})).await.ok(200)["runs"], 0);
    assert_eq!(prune(json!({"older_than": 0, "status": "failed"})).await.ok(200)["runs"], 1);
    kit.get("/v1/runs/failed").await.problem("gone");
    assert_eq!(prune(json!({"older_than": 0})).await.ok(200)["runs"], 1);
    assert_eq!(kit.get("/v1/runs/open").await.ok(200)["status"], "waiting_signal");
    for wrong in [json!({}), json!({"older_than": "soon"}), json!({"older_than": 0, "status": "asleep"})] {
        prune(wrong).await.problem("invalid_body");
    }
}

#[tokio::test]
async fn a_sweep_says_what_it_looked_at() {
    let kit = Kit::new().await;
    kit.waiting("open").await;
    let swept = kit.post("/v1/sweep", json!({"dry_run": true})).await.ok(200);
    assert_eq!((&swept["runs"], &swept["lost_runs"]), (&1.into(), &0.into()));
    assert_eq!(kit.post("/v1/sweep", json!({})).await.ok(200), swept);
}

#[tokio::test]
async fn large_results_are_left_where_they_are_if_they_are_not_wanted() {
    let kit = Kit::new().await;
    let large = "x".repeat(40_000);
    kit.post("/v1/tasks", json!({"type": "same", "input": large, "key": "k"})).await.ok(201);
    let id = kit.client().submit("same", &large).key("k").await.unwrap().id().to_string();
    kit.get(&format!("/v1/tasks/{id}/wait")).await.ok(200);
    let whole = kit.get(&format!("/v1/tasks/{id}/steps")).await.ok(200);
    assert_eq!(whole["items"][0]["result"].as_str().unwrap().len(), 40_000);
    let stored = kit.get(&format!("/v1/tasks/{id}/steps?whole=false")).await.ok(200);
    assert!(stored["items"][0]["result"].to_string().len() < 1_000, "{stored}");
    kit.get("/v1/runs/none/steps?whole=perhaps").await.problem("invalid_query");
}
