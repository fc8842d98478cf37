//! The binary from the user's side: its output, streams and exit codes.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
#[cfg(unix)]
#[path = "it/terminal.rs"]
mod terminal;

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{bad, good, text, wigwag};
use serde_json::{Value, json};
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Ctx, Failure, Graph, StepCtx};
use wigwag_store::{Batch, Clock as _, Embedded, EmbeddedSettings, Store, System};

#[test]
fn doctor_creates_and_checks_an_embedded_store_and_ls_and_cat_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let said = good(&wigwag(folder.path(), &["doctor"]));
    for line in ["ok       create if absent", "ok       list order", "ok       clock", "`./.wigwag` passed all checks"]
    {
        assert!(said.contains(line), "{said}");
    }
    assert_eq!(good(&wigwag(folder.path(), &["ls"])), "wigwag.json\n", "nothing is left behind");
    let cat = good(&wigwag(folder.path(), &["cat", "wigwag.json"]));
    assert_eq!(cat, "{\n  \"layout\": 1,\n  \"shards\": 1\n}\n");
    let long = good(&wigwag(folder.path(), &["ls", "--long"]));
    assert!(long.trim().starts_with("33  20") && long.ends_with("Z  wigwag.json\n"), "{long}");
}

#[test]
fn json_is_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let read = |args: &[&str]| -> Value { serde_json::from_str(&good(&wigwag(folder.path(), args))).unwrap() };
    let doctor = read(&["--json", "doctor"]);
    assert_eq!((doctor["good"].as_bool(), doctor["kind"].as_str()), (Some(true), Some("embedded")));
    assert!(doctor["findings"].as_array().is_some_and(|findings| findings.len() >= 6));
    assert_eq!(read(&["ls", "--json"])["key"], "wigwag.json");
    let cat = read(&["cat", "wigwag.json", "--json"]);
    assert_eq!((&cat["body"]["layout"], &cat["size"]), (&1.into(), &33.into()));
}

#[test]
fn every_invalid_call_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::write(folder.path().join("other/file"), "x").unwrap();
    good(&wigwag(folder.path(), &["doctor"]));
    let run = |args: &[&str]| wigwag(folder.path(), args);
    bad(&run(&["ls", "--store", "nowhere"]), 2, "store not found: `nowhere`", "--store");
    bad(&run(&["ls", "--store", "other"]), 2, "is not a wigwag store: it holds `file`", "left as it is");
    bad(&run(&["ls", "--store", "ftp://x"]), 2, "unknown store scheme: `ftp://`", "s3://bucket/prefix");
    bad(&run(&["ls", "--store", "s4:x"]), 2, "unknown store scheme: `s4:`", "file:dir");
    bad(&run(&["ls", "--store", ""]), 2, "got an empty name", "./dir");
    bad(&run(&["doctor", "--store", "s3://orders--use1-az4--x-s3"]), 2, "directory bucket", "ordinary bucket");
    bad(&run(&["cat", "nothing/here"]), 3, "object not found: `nothing/here`", "wigwag ls --store ./.wigwag nothing");
    let output = run(&["cat", "../etc/passwd"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no segment `.` or `..`"));
    assert_eq!(run(&["fly"]).status.code(), Some(2));
    assert!(!folder.path().join("nowhere").exists(), "looking makes nothing");
}

#[test]
fn a_damaged_store_is_reported_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".wigwag")).unwrap();
    let path = folder.path().join(".wigwag/wigwag.db");
    std::fs::write(&path, vec![1; 5_000]).unwrap();
    bad(&wigwag(folder.path(), &["doctor"]), 1, "is damaged, or not a database", "restore it from a backup");
    assert_eq!(std::fs::read(&path).unwrap(), vec![1; 5_000]);
}

#[test]
fn a_closed_output_pipe_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    good(&wigwag(folder.path(), &["doctor"]));
    let mut child = Command::new(env!("CARGO_BIN_EXE_wigwag"))
        .current_dir(folder.path())
        .args(["cat", "wigwag.json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

/// Returns the commands that a help text lists.
fn commands_in(help: &str) -> Vec<String> {
    let section = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = section.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn help_has_an_example_for_each_command_and_names_the_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let help = good(&wigwag(folder.path(), &["--help"]));
    assert!(help.contains("Exit codes: 0 success, 1 failure, 2 invalid usage, 3 not found"), "{help}");
    let mut commands = commands_in(&help);
    assert!(
        ["doctor", "ls", "cat", "start", "status", "migrate", "task", "prune"]
            .iter()
            .all(|name| commands.iter().any(|known| known == name))
    );
    for group in ["task", "hub"] {
        let below = commands_in(&good(&wigwag(folder.path(), &[group, "--help"])));
        assert!(below.len() >= 3, "{below:?}");
        commands.extend(below.iter().map(|name| format!("{group} {name}")));
    }
    for command in commands.iter().filter(|name| !name.ends_with("help")) {
        let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = good(&wigwag(folder.path(), &args));
        assert!(help.contains(&format!("Example:\n  wigwag {command}")), "{help}");
    }
}

/// Runs `doctor` on a server that `cargo xtask test` started, or prints that it is skipped.
fn doctor_on(server: &str) -> Option<Output> {
    let Ok(endpoint) = std::env::var(format!("WIGWAG_TEST_{server}")) else {
        wigwag_store::conformance::skip(&format!("{server} does not run; `cargo xtask test` starts it"));
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    Some(wigwag(folder.path(), &["doctor", "--store", "s3://wigwag/doctor", "--endpoint", &endpoint]))
}

#[test]
fn s3_doctor_accepts_a_good_server_and_lists_its_checks() {
    for server in ["SEAWEEDFS", "MINISTACK"] {
        let Some(output) = doctor_on(server) else { continue };
        let said = good(&output);
        assert!(said.contains("ok       create if absent     25 races of 32 writers, one winner each"), "{said}");
        assert!(said.contains("`s3://wigwag/doctor` passed all checks"), "{said}");
    }
}

#[test]
fn s3_doctor_rejects_a_server_that_ignores_conditions() {
    let Some(output) = doctor_on("RCLONE") else { return };
    let (found, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(found.contains("FAILED   create if absent"), "{found}");
    assert!(found.contains("racing writers all got a success response for the same key"), "{found}");
    assert!(found.contains("cannot be used as a store"), "{found}");
    assert!(said.contains("error: `s3://wigwag/doctor` does not provide the guarantees that wigwag needs"), "{said}");
    assert!(said.contains("hint: this server accepts `If-None-Match: *` and ignores it"), "{said}");
}

/// Creates a store whose runs were started two hours ago. No worker serves `pair`.
async fn a_store(folder: &std::path::Path) -> Kit {
    let clock = ManualClock::default();
    let passed = System.wall().since(clock.wall());
    clock.advance(passed.saturating_sub(Duration::from_secs(2 * 3_600)));
    let mut settings = EmbeddedSettings::default();
    settings.clock = Arc::new(clock.clone());
    let store: Arc<dyn Store> = Arc::new(Embedded::open_with(folder.join(".wigwag"), &settings).unwrap());
    let waits = |ctx: Ctx, _: Value| async move { ctx.wait::<Value>("approval").await };
    let step = |_: StepCtx<Value>| async { Ok::<_, Failure>(()) };
    let pair = Graph::<Value>::new("pair").step("a", step).step("b", step).after("a");
    let kit = Kit::on(store, clock, |engine| engine.workflow(pair)).await.unwrap();
    kit.crash(|engine| engine.function("waits", 1, waits)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_lists_queued_messages_that_the_hub_could_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let kit = a_store(folder.path()).await;
    let key = format!("hub/~unreadable/b/{:015}_{:015}_{}.json", 1, 2, "a".repeat(64));
    kit.store().write(Batch::new().put(&key, "not a frame")).await.unwrap();
    drop(kit);
    let said = good(&wigwag(folder.path(), &["doctor", "--no-store"]));
    assert!(
        said.contains(&format!("note     hub                  a queued message cannot be read: `wigwag cat {key}`")),
        "{said}"
    );
    let json: Value = serde_json::from_str(&good(&wigwag(folder.path(), &["doctor", "--no-store", "--json"]))).unwrap();
    assert_eq!(json["unreadable_messages"], json!([key]));
}

#[tokio::test]
async fn vacuum_returns_free_space_and_names_what_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path().join(".wigwag")).unwrap();
    for number in 0..20 {
        store.write(Batch::new().put(format!("big/{number}"), "x".repeat(500_000))).await.unwrap();
    }
    for number in 0..20 {
        store.write(Batch::new().delete(format!("big/{number}"))).await.unwrap();
    }
    let vacuumed: Value = serde_json::from_str(&good(&wigwag(folder.path(), &["vacuum", "--json"]))).unwrap();
    let bytes = |name: &str| vacuumed[name].as_u64().unwrap();
    assert!(bytes("bytes_before") > 9_000_000 && bytes("bytes_after") < 1_000_000, "{vacuumed}");
    assert_eq!(vacuumed["rebuilt"], false);
    let said = good(&wigwag(folder.path(), &["vacuum"]));
    assert!(said.contains(" MB before, 0.") && said.ends_with(" MB after\n"), "{said}");

    let server = &["vacuum", "--server", "http://127.0.0.1:1"];
    bad(&wigwag(folder.path(), server), 2, "needs direct access to a store", "use `--store URL`");
    bad(
        &wigwag(folder.path(), &["vacuum", "--store", "memory:"]),
        2,
        "got store: `memory:`",
        "a bucket frees the space",
    );
    bad(&wigwag(folder.path(), &["vacuum", "--store", "./absent"]), 2, "store not found", "existing store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_counts_runs_by_type_and_status() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".wigwag");
    let echo = |_: Ctx, input: Value| async move { Ok::<_, Failure>(input) };
    let rest = |ctx: Ctx, (): ()| async move { ctx.sleep("rest", Duration::from_secs(3_600)).await };
    let engine =
        wigwag::Engine::open(path.to_str().unwrap()).unwrap().function("echo", 1, echo).function("rest", 1, rest);
    let engine = engine.start().await.unwrap();
    for id in ["a", "b"] {
        engine.client().start("echo", &1).id(id).await.unwrap().result::<u32>().await.unwrap();
    }
    engine.client().start("rest", &()).id("c").await.unwrap();
    let rows = |args: &[&str]| -> Vec<Vec<String>> {
        let said = good(&wigwag(folder.path(), args));
        said.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    // A pipe gets the rows without a header: type, unfinished, completed, failed, cancelled.
    assert_eq!(rows(&["list", "--count"]), [["echo", "0", "2", "0", "0"], ["rest", "1", "0", "0", "0"]]);
    assert_eq!(rows(&["list", "--count", "--type", "rest"]), [["rest", "1", "0", "0", "0"]]);
    let json: Value = serde_json::from_str(&good(&wigwag(folder.path(), &["list", "--count", "--json"]))).unwrap();
    assert_eq!(json["types"]["echo"]["completed"], 2, "{json}");
    engine.stop().await;
}
