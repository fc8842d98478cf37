//! Many waiting clients: the server holds all of them, and answers all of them.

use std::time::Duration;

use reqwest::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use wigwag_server::Metrics;
use wigwag_store::{Clock as _, System};

use crate::kit::{Kit, answer};

/// A thousand connections have both ends in this process, and each followed run has a reader.
const FILES: u64 = 4_096;

/// Raises the limit on open files; prints a message if it is too low.
#[expect(clippy::print_stdout, reason = "the test prints that it is skipped")]
fn has_files() -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let enough = maximum.is_none_or(|maximum| maximum >= FILES);
    if enough {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    } else {
        println!("SKIPPED: a thousand connections want {FILES} open files; raise `ulimit -Hn`");
    }
    enough
}

const RUNS: usize = 100;
const FOLLOWERS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_followers_see_every_event_once_and_the_end() {
    if !has_files() {
        return;
    }
    let kit = Kit::new().await;
    for run in 0..RUNS {
        kit.post("/v1/runs", json!({"type": "gather", "id": format!("g-{run}"), "input": 3})).await.ok(201);
    }
    let mut followers = Vec::new();
    for run in (0..RUNS).flat_map(|run| [run; FOLLOWERS]) {
        // Once the head of the response arrives, it follows the run.
        let response = kit.request(Method::GET, &format!("/v1/runs/g-{run}/events")).send().await.unwrap();
        assert_eq!(response.status(), 200);
        followers.push((run, tokio::spawn(response.text())));
    }
    for item in 0..3 {
        let to = |run| json!({"run": format!("g-{run}"), "name": "item", "payload": item});
        let signals: Vec<_> = (0..RUNS).map(to).collect();
        kit.post("/v1/signals", json!({"signals": signals})).await.ok(200);
    }
    let mut answered = 0;
    for (run, text) in followers {
        let text = text.await.unwrap().unwrap();
        let history = kit.get(&format!("/v1/runs/g-{run}/history?limit=1000")).await.ok(200);
        let mut wanted = Vec::new();
        for entry in history["items"].as_array().unwrap() {
            let events = entry["events"].as_array().unwrap().len();
            wanted.extend((0..events).map(|place| format!("{}.{place}", entry["seq"])));
        }
        let seen: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(seen, wanted, "run {run}");
        let end = text.split("event: end\n").nth(1).unwrap_or_else(|| panic!("run {run} has no end: {text}"));
        assert!(end.contains(r#""reason":"ended""#) && end.contains(r#""status":"completed""#), "{end}");
        answered += 1;
    }
    assert_eq!(answered, RUNS * FOLLOWERS);
}

const POLLS: usize = 1_000;

/// Both ends of a long-poll are in this process.
const POLL_KB_MAX: u64 = 128;

/// Returns the anonymous memory of this process.
fn anonymous_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_long_polls_are_held_and_answered_when_their_runs_end() {
    if !has_files() {
        return;
    }
    let kit = Kit::with(|server| server.metrics(Metrics::install().unwrap())).await;
    for run in 0..POLLS {
        kit.post("/v1/runs", json!({"type": "approve", "id": format!("a-{run}")})).await.ok(201);
    }
    let before = anonymous_kb();
    let mut polls = Vec::new();
    for run in 0..POLLS {
        let request = kit.request(Method::GET, &format!("/v1/runs/a-{run}/result?timeout=55s"));
        polls.push((run, tokio::spawn(answer(request))));
    }
    until_under_way(&kit, POLLS).await;
    let each = anonymous_kb().saturating_sub(before) / POLLS as u64;
    assert!(each <= POLL_KB_MAX, "a long-poll takes {each} KB");
    let to = |run| json!({"run": format!("a-{run}"), "name": "approval", "payload": run});
    let signals: Vec<_> = (0..POLLS).map(to).collect();
    kit.post("/v1/signals", json!({"signals": signals})).await.ok(200);
    for (run, poll) in polls {
        assert_eq!(poll.await.unwrap().ok(200), run, "run {run}");
    }
}

/// Waits until this many requests are in progress.
async fn until_under_way(kit: &Kit, count: usize) {
    for _ in 0..3_000 {
        let text = kit.get("/metrics").await.text;
        let line = text.lines().find_map(|line| line.strip_prefix("wigwag_http_requests_under_way "));
        if line.and_then(|number| number.parse::<f64>().ok()).is_some_and(|number| number >= count as f64) {
            return;
        }
        System.sleep(Duration::from_millis(10)).await;
    }
    panic!("{count} requests do not get under way");
}
