//! The dashboard's files and its operations on the whole store.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use wigwag_server::{Auth, Scope};
use wigwag_store::Memory;

use crate::kit::{Kit, answer, with};

#[tokio::test]
async fn the_page_is_served_at_its_paths_and_nowhere_else() {
    let kit = Kit::new().await;
    for path in [
        "/",
        "/runs",
        "/runs/order-1",
        "/tasks",
        "/tasks/x",
        "/workflows",
        "/workflows/x",
        "/actors",
        "/store",
        "/system",
    ] {
        let page = kit.get(path).await;
        assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"), "{path}");
        assert!(page.header("content-security-policy").contains("require-trusted-types-for 'script'"), "{path}");
        assert_eq!(page.header("cache-control"), "no-cache");
        assert_eq!(page.header("referrer-policy"), "no-referrer");
    }
    for path in ["/index.html", "/runs/a/b", "/ui/", "/anything", "/keys", "/sign-in"] {
        assert_eq!(kit.get(path).await.status.as_u16(), 404, "{path}");
    }
}

#[tokio::test]
async fn files_are_cached_for_good_and_the_page_is_not_sent_twice() {
    let kit = Kit::new().await;
    let page = kit.get("/").await;
    let module = page.text.split("src=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let file = kit.get(&module).await;
    assert_eq!((file.status.as_u16(), file.header("content-type")), (200, "text/javascript; charset=utf-8"));
    assert!(file.header("cache-control").contains("immutable"));
    kit.get("/ui/0000000000000000/app.js").await.problem("not_found");
    kit.get(&module.replace("app.js", "..%2f..%2fCargo.toml")).await.problem("not_found");
    let again = answer(kit.request(Method::GET, "/").header("if-none-match", page.header("etag"))).await;
    assert_eq!((again.status.as_u16(), again.text.as_str()), (304, ""));
    assert!(kit.get("/ui/embed.js").await.text.contains("/embed.js"));
}

#[tokio::test]
async fn me_says_what_a_token_may_do() {
    let auth = Auth::new().token("ci", "a token of the tests", [Scope::RunsRead]).unwrap();
    let kit = Kit::with(|server| server.auth(auth)).await;
    kit.get("/v1/me").await.problem("not_authenticated");
    assert_eq!(kit.get("/").await.status.as_u16(), 200, "the page itself is public");
    let me = with(&kit, "a token of the tests", Method::GET, "/v1/me", None).await.ok(200);
    assert_eq!((&me["name"], &me["scopes"], &me["by_free"]), (&json!("ci"), &json!(["runs:read"]), &json!(false)));
    with(&kit, "a token of the tests", Method::GET, "/v1/store", None).await.problem("not_allowed");
    let open = Kit::new().await;
    let me = open.get("/v1/me").await.ok(200);
    assert_eq!((&me["scopes"], &me["by_free"]), (&json!(null), &json!(true)));
}

#[tokio::test]
async fn waits_are_counted_and_ordered() {
    let kit = Kit::new().await;
    for id in ["b", "a", "c"] {
        kit.waiting(id).await;
    }
    kit.post("/v1/runs", json!({"type": "vote", "id": "v", "input": {"what": "budget", "cents": 3}})).await.ok(201);
    kit.until("/v1/runs/v/waiting", |found| found["items"] != json!([])).await;
    kit.post("/v1/runs/v/signals/vote", json!({"payload": 1, "by": "ada"})).await.ok(200);
    let summary = kit.until("/v1/waiting/summary", |found| found["total"] == 4).await;
    assert_eq!((&summary["groups"][0]["name"], &summary["groups"][0]["count"]), (&json!("approval"), &json!(3)));
    assert_eq!(summary["groups"][0]["ages"], json!([3, 0, 0, 0]));
    let first = kit.get("/v1/waiting?order=oldest&limit=2").await.ok(200);
    let ids = |page: &serde_json::Value| {
        page["items"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&first), ["b", "a"]);
    let next = first["next"].as_str().unwrap();
    let rest = kit.get(&format!("/v1/waiting?order=oldest&after={next}")).await.ok(200);
    assert_eq!((ids(&rest), &rest["next"]), (vec!["c".to_owned(), "v".to_owned()], &json!(null)));
    assert_eq!((&rest["items"][1]["have"], &rest["items"][1]["about"]), (&json!(["ada"]), &json!("budget · 3")));
    let typed = kit.get("/v1/waiting?order=due&type=vote").await.ok(200);
    assert_eq!(ids(&typed), ["v"]);
    kit.get("/v1/waiting?type=vote").await.problem("invalid_query");
}

#[tokio::test]
async fn a_payload_that_does_not_fit_is_refused_part_by_part() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "order", "id": "o", "input": {}})).await.ok(201);
    kit.until("/v1/runs/o/waiting", |found| found["items"] != json!([])).await;
    let missing = kit.post("/v1/runs/o/signals/approval", json!({"payload": {}})).await.problem("invalid_payload");
    assert_eq!(missing["errors"][0]["path"], "/yes");
    let wrong =
        kit.post("/v1/runs/o/signals/approval", json!({"payload": {"yes": 1}})).await.problem("invalid_payload");
    assert_eq!(wrong["errors"][0]["path"], "/yes");
}

#[tokio::test]
async fn an_explanation_says_what_a_run_needs_and_has() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "vote", "id": "v"})).await.ok(201);
    kit.until("/v1/runs/v/waiting", |found| found["items"] != json!([])).await;
    kit.post("/v1/runs/v/signals/vote", json!({"payload": 1, "by": "ada"})).await.ok(200);
    let why = kit.get("/v1/runs/v/explain").await.ok(200);
    assert_eq!(why["points"][0]["needs"], "signals `vote` of 2 different senders");
    assert_eq!(why["points"][0]["have"], "1 of 2, from `ada`");
    kit.post("/v1/runs", json!({"type": "fail", "id": "f"})).await.ok(201);
    kit.get("/v1/runs/f/wait").await.ok(200);
    assert_eq!(kit.get("/v1/runs/f/explain").await.ok(200)["why"], "no luck");
    kit.get("/v1/runs/nobody/explain").await.problem("not_found");
}

#[tokio::test]
async fn a_wait_says_what_it_is_about_wherever_it_is_shown() {
    let kit = Kit::new().await;
    let start = |of: &str, id: &str, input: serde_json::Value| json!({"type": of, "id": id, "input": input});
    kit.post("/v1/runs", start("gift", "g", json!({"cents": 3}))).await.ok(201);
    kit.post("/v1/runs", start("loan", "l", json!({"cents": 5, "borrower": "grace"}))).await.ok(201);
    kit.post("/v1/runs", start("loan", "panics", json!({"cents": 7}))).await.ok(201);
    for id in ["g", "l", "panics"] {
        kit.until(&format!("/v1/runs/{id}/waiting"), |found| found["items"] != json!([])).await;
    }
    // A description is one line, and never fails a run; a wait without one has the fields of the input in an ordered list alone.
    let about = [("g", Some("a lamp for <b>ada</b>")), ("l", Some("5 for grace")), ("panics", None)];
    let found = |page: &serde_json::Value, id: &str| {
        let rows = page["items"].as_array().unwrap().iter();
        rows.clone().find(|row| row["id"] == id).unwrap()["about"].as_str().map(str::to_owned)
    };
    let (plain, ordered) = (kit.get("/v1/waiting").await.ok(200), kit.get("/v1/waiting?order=oldest").await.ok(200));
    for (id, want) in about {
        assert_eq!(found(&plain, id).as_deref(), want, "{id}");
        assert_eq!(found(&ordered, id).as_deref(), want.or(Some("7")), "{id}");
        let wait = kit.get_owned(format!("/v1/runs/{id}/waiting")).await.ok(200);
        let explained = kit.get_owned(format!("/v1/runs/{id}/explain")).await.ok(200);
        assert_eq!(
            (wait["items"][0]["about"].as_str(), explained["points"][0]["about"].as_str()),
            (want, want),
            "{id}"
        );
    }
    // Recorded in the log and in the index of waits.
    let history = kit.get("/v1/runs/g/history").await.ok(200).to_string();
    assert!(history.contains("a lamp for <b>ada</b>"), "{history}");
    let keys = kit.get("/v1/store?prefix=waiting/thanks/").await.ok(200);
    let key = keys["items"][0]["key"].as_str().unwrap();
    let entry = kit.get_owned(format!("/v1/store/object?key={key}")).await.ok(200);
    assert_eq!(entry["json"]["about"], "a lamp for <b>ada</b>");
    // The page of a resume link shows it as text.
    let link = kit.post("/v1/links", json!({"run": "g", "name": "thanks"})).await.ok(201);
    let page = answer(kit.request(Method::GET, link["path"].as_str().unwrap()).header("accept", "text/html")).await;
    assert!(page.text.contains("a lamp for &lt;b&gt;ada&lt;/b&gt;"), "{}", page.text);
}

#[tokio::test]
async fn a_worker_on_a_bucket_announces_its_version_what_it_serves_and_its_load() {
    let kit = Kit::on(Arc::new(Memory::bucket()), |server| server).await;
    let found = kit.until("/v1/workers", |found| found["items"] != json!([])).await;
    let about = &found["items"][0]["about"];
    let names: Vec<&str> = about["workflows"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    assert!(names.contains(&"order") && names.contains(&"echo"), "{names:?}");
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert!(about["runs"].as_u64().is_some() && about["runs_max"].as_u64().is_some_and(|most| most > 0), "{about}");
}

#[tokio::test]
async fn ids_and_keys_are_found_by_their_first_letters() {
    let kit = Kit::new().await;
    for id in ["order-1", "order-2", "other"] {
        kit.post("/v1/runs", json!({"type": "echo", "id": id})).await.ok(201);
        kit.get(&format!("/v1/runs/{id}/wait")).await.ok(200);
    }
    let found = kit.get("/v1/ids?prefix=order").await.ok(200);
    assert_eq!(found["items"], json!([{"id": "order-1", "task": false}, {"id": "order-2", "task": false}]));
    assert_eq!(kit.get("/v1/ids?prefix=o&limit=1").await.ok(200)["items"].as_array().unwrap().len(), 1);
    kit.get("/v1/ids?prefix=%2f..").await.problem("invalid_query");
    let keys = kit.get("/v1/store?prefix=workflow/order-1/&limit=1").await.ok(200);
    assert_eq!(keys["items"][0]["key"], "workflow/order-1/log/0000000001.json");
    kit.get("/v1/store/object?key=nothing").await.problem("not_found");
    let summary = kit.get("/v1/runs/summary").await.ok(200);
    assert_eq!(summary["ended"]["completed"], 3);
}

#[tokio::test]
async fn runs_are_listed_by_time_and_by_several_statuses_and_wrong_spans_are_refused() {
    let kit = Kit::new().await;
    kit.waiting("open").await;
    for (of, id) in [("echo", "ended"), ("fail", "broken")] {
        kit.post("/v1/runs", json!({"type": of, "id": id, "input": 2})).await.ok(201);
        kit.get_owned(format!("/v1/runs/{id}/wait")).await.ok(200);
    }
    let ids = |page: &serde_json::Value| {
        page["items"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let long_ago = "2020-01-01T00:00:00Z";
    let ended = kit.get("/v1/runs?status=completed,failed&since=2020-01-01T00:00:00Z").await.ok(200);
    assert_eq!((ids(&ended), &ended["examined"]), (vec!["broken".to_owned(), "ended".to_owned()], &json!(2)));
    let open = kit.get_owned(format!("/v1/runs?status=waiting_signal,running&since={long_ago}")).await.ok(200);
    assert_eq!(ids(&open), ["open"]);
    let before = kit.get_owned(format!("/v1/runs?until={long_ago}")).await.ok(200);
    assert_eq!((ids(&before), &before["next"]), (vec![], &json!(null)));
    let tasks = kit.get_owned(format!("/v1/tasks?since={long_ago}&until=2021-01-01T00:00:00Z")).await.ok(200);
    assert_eq!(ids(&tasks), Vec::<String>::new());
    for list in ["runs", "tasks"] {
        for wrong in [
            "since=yesterday",
            "since=",
            "until=2026-13-45T00:00:00Z",
            "until=1700000000",
            "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
            "since=2026-01-02T00:00:00Z&until=2026-01-02T00:00:00Z",
            "status=done",
            "status=completed,",
            "status=completed,,failed",
            "status=",
        ] {
            kit.get_owned(format!("/v1/{list}?{wrong}")).await.problem("invalid_query");
        }
    }
}
