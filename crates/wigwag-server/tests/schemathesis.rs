//! Schemathesis against a live server: it sends requests that the description allows or forbids, and validates each response
//! against the description.
//!
//! `WIGWAG_TEST_TOOLS` names the folder with the program `schemathesis`; `cargo xtask test` installs it. A longer run:
//! `WIGWAG_SCHEMATHESIS_SECONDS=600 WIGWAG_SCHEMATHESIS_SEED=7`.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/kit.rs"]
mod kit;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wigwag_server::{Auth, Metrics, Scope, Settings};
use wigwag_store::conformance::skip;

use crate::kit::{Answer, Kit, answer};

const TOKEN: &str = "a-token-that-may-do-all";

/// Duration and seed of the test.
fn asked(name: &str, otherwise: u32) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_string())
}

async fn post(kit: &Kit, path: &str, body: Value) -> Answer {
    answer(kit.request(Method::POST, path).bearer_auth(TOKEN).json(&body)).await
}

/// Creates runs and tasks in every status. Returns a task that ends and one without a worker.
async fn populate(kit: &Kit) -> [String; 2] {
    for (id, of, input) in [
        ("waiting", "approve", json!(null)),
        ("order", "order", json!({})),
        ("done", "echo", json!({"a": [1, null, "é"]})),
        ("failed", "fail", json!(null)),
        ("napping", "nap", json!(null)),
        ("paused", "gather", json!(3)),
    ] {
        post(kit, "/v1/runs", json!({"type": of, "id": id, "input": input})).await.ok(201);
    }
    post(kit, "/v1/runs/paused/pause", json!({})).await.ok(202);
    let mut tasks = Vec::new();
    for of in ["double", "nobody-does-this"] {
        let task = post(kit, "/v1/tasks", json!({"type": of, "input": 21})).await.ok(201);
        tasks.push(task["id"].as_str().unwrap().to_owned());
    }
    tasks.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_what_the_description_says() {
    let Some(tools) = std::env::var_os("WIGWAG_TEST_TOOLS") else {
        return skip("no Schemathesis; `cargo xtask test` installs it");
    };
    let auth = Auth::new().token("all", TOKEN, [Scope::Admin]).unwrap();
    let mut settings = Settings::default();
    // Short, so that long-polls end soon.
    settings.wait_max = Duration::from_millis(20);
    let metrics = Metrics::install().unwrap();
    let kit = Kit::with(|server| server.auth(auth).metrics(metrics).settings(settings)).await;
    let [task, idle] = populate(&kit).await;
    let (program, folder) = (Path::new(&tools).join("schemathesis"), tempfile::tempdir().unwrap());
    let description = kit.url("/v1/openapi.json");
    let config =
        include_str!("schemathesis.toml").replace("$TOKEN", TOKEN).replace("$TASK", &task).replace("$IDLE", &idle);
    std::fs::write(folder.path().join("schemathesis.toml"), config).unwrap();
    let mut command = Command::new(program);
    command
        .args(["--config-file", "schemathesis.toml"])
        .args(["--no-color", "run", &description, "--continue-on-failure", "--generation-database", "none"])
        .args(["--seed", &asked("WIGWAG_SCHEMATHESIS_SEED", 1)])
        .args(["--max-time", &asked("WIGWAG_SCHEMATHESIS_SECONDS", 60)])
        .args(["--request-timeout", "20"])
        .current_dir(folder.path());
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{status}\n{said}\n{}", String::from_utf8_lossy(&stderr));
    assert!(said.contains("Operations:"), "it tried nothing: {said}");
}
