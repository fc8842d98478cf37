//! Starting, observing and controlling runs from the command line, with an engine on the same directory.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
#[path = "common/place.rs"]
mod place;

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{bad, good, text};
use place::Place;
use serde_json::{Value, json};
use wigwag::{Ctx, Failure, Graph, OnFailure, Retry, StepCtx, permanent, retryable};
use wigwag_store::{Clock as _, System};

const HOUR: Duration = Duration::from_secs(3_600);

async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    let greeting = ctx.step("write", || async { Ok::<_, Failure>(format!("hello {name}")) }).await?;
    ctx.step("shout", || async { Ok::<_, Failure>(greeting.to_uppercase()) }).await
}

async fn nap(ctx: Ctx, _: Value) -> Result<String, Failure> {
    ctx.step("lie-down", || async { Ok::<_, Failure>(7) }).await?;
    ctx.sleep("rest", HOUR).await?;
    Ok("rested".into())
}

async fn call(ctx: Ctx, _: Value) -> Result<(), Failure> {
    let retry = Retry::times(5).first(HOUR).cap(HOUR);
    ctx.step("dial", || async { Err::<(), _>(retryable("the line is\nbusy")) }).retry(retry).await
}

async fn burn(ctx: Ctx, _: Value) -> Result<(), Failure> {
    ctx.step("light", || async { Ok::<_, Failure>(1) })
        .compensate(|_| async { Err::<(), _>(permanent("the match is gone")) })
        .await?;
    ctx.step("burn", || async { Err::<(), _>(permanent("no fuel")) }).await
}

async fn move_house(ctx: Ctx, _: Value) -> Result<(), Failure> {
    let unpack = |_| async {
        System.sleep(Duration::from_secs(2)).await;
        Ok::<_, Failure>(())
    };
    ctx.step("pack", || async { Ok::<_, Failure>(1) }).compensate(unpack).await?;
    ctx.sleep("wait", HOUR).await
}

/// Fails, and takes three seconds to compensate.
async fn wreck(ctx: Ctx, _: Value) -> Result<(), Failure> {
    ctx.step("build", || async { Ok::<_, Failure>(()) })
        .compensate(|_| async {
            System.sleep(Duration::from_secs(3)).await;
            Ok::<_, Failure>(())
        })
        .await?;
    Err(permanent("it fell down"))
}

fn order(may_charge: &Arc<AtomicBool>, then: OnFailure) -> Graph<Value> {
    let may_charge = Arc::clone(may_charge);
    Graph::<Value>::new("order")
        .step("reserve", |_: StepCtx<Value>| async { Ok::<_, Failure>("r-1") })
        .step("charge", move |_: StepCtx<Value>| {
            let good = may_charge.load(Ordering::SeqCst);
            async move { if good { Ok("c-1") } else { Err(permanent("the card was refused")) } }
        })
        .after("reserve")
        .on_failure(then)
        .step("ship", |_: StepCtx<Value>| async { Ok::<_, Failure>("s-1") })
        .after("charge")
}

/// Two steps; the second fails under its old name, is retried after a second, and has another name in newer code.
fn letter(second: &str) -> Graph<Value> {
    let is_new = second != "post";
    Graph::<Value>::new("letter")
        .step("write", |_: StepCtx<Value>| async { Ok::<_, Failure>("dear ada") })
        .step(
            second,
            move |_: StepCtx<Value>| async move { if is_new { Ok("sent") } else { Err(retryable("no stamp")) } },
        )
        .after("write")
        .retry(Retry::times(9).first(Duration::from_secs(1)).jitter(0.0))
}

async fn start_makes_the_store_and_prints_the_id_of_a_run_that_waits_for_a_worker(place: Place) {
    assert_eq!(place.good(&["start", "greet", "\"ada\"", "--id", "g"]), "g\n");
    assert_eq!(place.good(&["start", "greet", "\"ada\"", "--id", "g"]), "g\n", "the same start is the same run");
    assert_eq!(place.json(&["start", "greet", "--id", "h"])["id"], "h");
    let made = place.good(&["start", "greet", "-5"]);
    assert_eq!(made.len(), 27, "an id is made: {made}");
    let said = place.good(&["status", "g"]);
    assert!(said.contains("status      pending\n") && said.contains("type        greet\n"), "{said}");
    assert!(said.contains("started     20") && said.contains(" ago)"), "{said}");
}

async fn status_and_history_show_the_store_requests_of_a_run(place: Place) {
    place.good(&["start", "greet", "\"ada\"", "--id", "g"]);
    let said = place.good(&["status", "g"]);
    // The wake-up, the index entry, entry 1 and the snapshot.
    assert!(said.ends_with("\ncost        4 PUT: $0.00002 at S3 list prices\n"), "{said}");
    let state = place.json(&["status", "g"]);
    assert_eq!((&state["requests"], &state["dollars"]), (&json!({"puts": 4}), &json!(0.00002)));
    let engine = place.builder().function("greet", 1, greet).start().await.unwrap();
    let said = place.until("g", "completed");
    let cost = said.lines().find_map(|line| line.strip_prefix("cost        ")).unwrap();
    assert!(
        cost.contains(" PUT, ")
            && cost.contains(" GET, ")
            && cost.contains(" LIST, ")
            && cost.contains(" DELETE: $0.0000"),
        "{said}"
    );
    let state = place.json(&["status", "g"]);
    let count = |of: &Value, kind: &str| of["requests"][kind].as_u64().unwrap_or_default();
    for follow in [&["history", "g", "--json"][..], &["history", "g", "--json", "--follow"]] {
        let log = place.good(follow);
        let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for kind in ["puts", "gets", "lists", "deletes"] {
            let sum: u64 = entries.iter().map(|entry| count(entry, kind)).sum();
            assert_eq!(sum, count(&state, kind), "{kind}: the run has what its entries say: {log}");
        }
    }
    engine.stop().await;
}

async fn a_start_can_be_put_off(place: Place) {
    place.good(&["start", "greet", "--id", "a", "--delay", "2h"]);
    place.good(&["start", "greet", "--id", "b", "--at", "2100-01-28T13:00:00+01:00"]);
    assert!(place.good(&["status", "a"]).contains("(in 1h 59m)"));
    assert!(place.good(&["status", "b"]).contains("not before  2100-01-28T12:00:00Z"));
}

async fn input_comes_from_the_command_line_a_file_or_standard_input(place: Place) {
    std::fs::write(place.0.path().join("in.json"), "{\"b\": 1, \"a\": 12345678901234567890123}\n").unwrap();
    place.good(&["start", "greet", "@in.json", "--id", "f"]);
    let state = place.good(&["status", "f", "--json"]);
    assert!(state.contains("12345678901234567890123"), "numbers are passed on as they came: {state}");
    let mut child = place
        .command(&["start", "greet", "-", "--id", "s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\"eve\"\n").unwrap();
    assert_eq!(good(&child.wait_with_output().unwrap()), "s\n");
    assert_eq!(place.json(&["status", "s"])["input"], "eve");
    let large = format!("\"{}\"", "x".repeat(40_000));
    std::fs::write(place.0.path().join("large.json"), &large).unwrap();
    place.good(&["start", "greet", "@large.json", "--id", "l"]);
    assert_eq!(place.json(&["status", "l"])["input"].as_str().unwrap().len(), 40_000, "wherever it is kept");
    std::fs::write(place.0.path().join("huge.json"), format!("\"{}\"", "x".repeat(2_000_000))).unwrap();
    bad(&place.run(&["start", "greet", "@huge.json"]), 2, "`huge.json` is too large", "store the data elsewhere");
    bad(&place.run(&["start", "greet", "@none.json"]), 2, "cannot read `none.json`", "`@file`");
    bad(&place.run(&["start", "greet", "ada"]), 2, "invalid INPUT: `ada`: not JSON", "a JSON string needs quotes");
}

async fn start_waits_for_the_result_or_reports_the_failure(place: Place) {
    let engine = place.builder().function("greet", 1, greet).function("burn", 1, burn).function("nap", 1, nap);
    let engine = engine.start().await.unwrap();
    assert_eq!(place.good(&["start", "greet", "\"ada\"", "--wait"]), "\"HELLO ADA\"\n");
    let failed = place.run(&["start", "burn", "--wait", "--id", "b"]);
    bad(&failed, 1, "run `b` failed: no fuel", "wigwag steps b");
    let late = place.run(&["start", "nap", "--wait", "--timeout", "200ms", "--id", "n"]);
    bad(&late, 1, "run `n` did not finish within 200ms", "wigwag status n");
    place.good(&["cancel", "n", "--reason", "enough"]);
    bad(&place.run(&["start", "nap", "--wait", "--id", "n"]), 1, "run `n` was cancelled: enough", "wigwag steps n");
    engine.stop().await;
}

async fn status_shows_waits_and_errors(place: Place) {
    let engine = place.builder().function("nap", 1, nap).function("call", 1, call).function("burn", 1, burn);
    let engine = engine.start().await.unwrap();
    for of in ["nap", "call", "burn"] {
        place.good(&["start", of, "--id", of]);
    }
    let said = place.until_says("nap", "`rest` sleeps until 20");
    assert!(said.contains("status      running\n") && said.contains("(in 59m"), "{said}");
    assert!(said.contains("type        nap (version 1, definition "), "{said}");
    let said = place.until_says("call", "`dial` will be retried at 20");
    assert!(said.contains("attempt 1 failed: Retryable: the line is\\nbusy"), "{said}");
    let said = place.until("burn", "failed");
    assert!(said.contains("error       Permanent: no fuel (at `burn`)\n"), "{said}");
    assert!(said.contains("compensate  `light` failed: Permanent: the match is gone"), "{said}");
    let state = place.json(&["status", "nap"]);
    assert_eq!((&state["status"], &state["current_steps"][0]), (&"running".into(), &"rest".into()));
    let first = place.good(&["status", "nap", "--json"]);
    assert!(
        first.starts_with("{\n  \"v\": 1,\n  \"id\": \"nap\",\n  \"type\": \"nap\",\n"),
        "the order is that of the store: {first}"
    );
    engine.stop().await;
}

async fn steps_and_history_show_all_that_happened(place: Place) {
    let engine = place.builder().function("greet", 1, greet).function("burn", 1, burn).start().await.unwrap();
    place.good(&["start", "greet", "\"ada\"", "--id", "g", "--wait"]);
    place.run(&["start", "burn", "--id", "b", "--wait"]);
    let steps = place.good(&["steps", "g"]);
    let words: Vec<Vec<&str>> = steps.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0][..4], ["write", "step", "completed", "1"], "in the order they began: {steps}");
    assert!(words[1][0] == "shout" && words[1][4].starts_with("20") && words[1][5].ends_with('s'), "{steps}");
    assert!(steps.contains("\"HELLO ADA\""), "{steps}");
    assert!(place.good(&["steps", "b"]).contains("Permanent: no fuel"));
    let lines = place.json_lines(&["steps", "g"]);
    assert_eq!(
        (&lines[1]["path"], &lines[1]["kind"], &lines[1]["result"]),
        (&"shout".into(), &"step".into(), &"HELLO ADA".into())
    );
    let history = place.good(&["history", "g"]);
    let names: Vec<&str> = history.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("run.started", "run.completed"), "{history}");
    assert!(history.contains("step.completed          shout  result=\"HELLO ADA\""), "{history}");
    assert!(
        place
            .good(&["history", "b"])
            .contains("compensation.failed     light  attempt=1  error=\"Permanent: the match is gone\"")
    );
    let entries = place.json_lines(&["history", "g"]);
    assert_eq!((&entries[0]["seq"], &entries[0]["events"][0]["type"]), (&1.into(), &"run.started".into()));
    let page = place.run(&["history", "g", "--from", "2", "--limit", "1"]);
    assert!(text(&page.stdout).lines().all(|line| line.starts_with("   2  ")), "{}", text(&page.stdout));
    assert_eq!(text(&page.stderr), "more entries: `wigwag history g --from 3`\n");
    assert_eq!(place.good(&["history", "g", "--follow"]), history, "an ended run is not waited for");
    engine.stop().await;
}

async fn history_follows_a_run_until_it_ends(place: Place) {
    let engine = place.builder().function("nap", 1, nap).start().await.unwrap();
    place.good(&["start", "nap", "--id", "n"]);
    let follower =
        place.command(&["history", "n", "--follow"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.until_says("n", "sleeps");
    place.good(&["cancel", "n"]);
    let followed = good(&follower.wait_with_output().unwrap());
    assert_eq!(followed, place.good(&["history", "n"]), "all of it, once");
    assert!(followed.trim_end().ends_with("run.cancelled"), "{followed}");
    engine.stop().await;
}

async fn list_filters_and_shows_the_command_for_the_next_page(place: Place) {
    let engine = place.builder().function("greet", 1, greet).function("burn", 1, burn).start().await.unwrap();
    for id in ["a", "b", "c"] {
        place.good(&["start", "greet", "\"ada\"", "--id", id, "--wait"]);
    }
    place.run(&["start", "burn", "--id", "d", "--wait"]);
    place.good(&["start", "nap", "--id", "e"]);
    let ids = |args: &[&str]| -> Vec<String> {
        let lines = place.json_lines(&[&["list"], args].concat());
        lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["e", "d", "c", "b", "a"], "unfinished ones first, then the last that ended");
    assert_eq!(ids(&["--type", "greet"]), ["c", "b", "a"]);
    assert_eq!(ids(&["--status", "failed"]), ["d"]);
    assert_eq!(ids(&["--status", "pending"]), ["e"]);
    let listed = place.good(&["list", "--status", "failed"]);
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words[..3], ["d", "burn", "failed"], "no header where no terminal is: {listed}");
    assert!(listed.ends_with("  no fuel\n"), "{listed}");
    let mut found = Vec::new();
    let mut next = "wigwag list --type greet --limit 1".to_owned();
    while found.len() < 4 {
        let args: Vec<&str> = next.split(' ').skip(1).collect();
        let output = place.run(&args);
        found.extend(text(&output.stdout).split_whitespace().next().map(str::to_owned));
        let said = text(&output.stderr);
        let Some(command) = said.split('`').nth(1) else { break };
        next = command.to_owned();
    }
    assert_eq!(found, ["c", "b", "a"], "each page names the next");
    bad(&place.run(&["list", "--after", "here"]), 2, "invalid cursor for a list of runs: `here`", "omit `--after`");
    bad(&place.run(&["list", "--type", "a b"]), 2, "not a type", "name of a workflow");
    engine.stop().await;
}

async fn cancel_ends_a_run_once_and_keeps_the_reason(place: Place) {
    let engine = place.builder().function("nap", 1, nap).start().await.unwrap();
    place.good(&["start", "nap", "--id", "n"]);
    place.until_says("n", "sleeps");
    assert_eq!(place.good(&["cancel", "n", "--reason", "the bell rang"]), "cancel requested for `n`\n");
    let said = place.until("n", "cancelled");
    assert!(said.contains("the bell rang"), "{said}");
    bad(&place.run(&["cancel", "n"]), 4, "run `n` has already finished: `cancelled`", "wigwag restart n");
    bad(&place.run(&["pause", "n"]), 4, "run `n` has already finished", "wigwag restart n");
    bad(&place.run(&["cancel", "m"]), 3, "run not found: `m`", "wigwag list");
    engine.stop().await;
}

async fn a_second_cancel_is_reported_as_a_duplicate(place: Place) {
    let engine = place.builder().function("move", 1, move_house).start().await.unwrap();
    place.good(&["start", "move", "--id", "m"]);
    place.until_says("m", "sleeps");
    place.good(&["cancel", "m"]);
    let said = place.until("m", "compensating");
    assert!(said.contains("compensate  0 steps compensated so far; the run was cancelled\n"), "{said}");
    assert!(said.contains("now         compensating `pack`, attempt 1\n"), "{said}");
    assert_eq!(place.good(&["cancel", "m"]), "cancel already requested for `m`\n");
    assert_eq!(place.json(&["cancel", "m"])["new"], false);
    bad(&place.run(&["pause", "m"]), 4, "run `m` is being compensated and cannot be paused", "wigwag status m");
    place.until("m", "cancelled");
    engine.stop().await;
}

async fn a_cancel_during_compensation_of_a_failed_run_is_reported_as_without_effect(place: Place) {
    let engine = place.builder().function("wreck", 1, wreck).start().await.unwrap();
    place.good(&["start", "wreck", "--id", "w"]);
    place.until("w", "compensating");
    assert_eq!(place.good(&["cancel", "w"]), "`w` failed and is being compensated: cancel has no effect\n");
    let told = place.json(&["cancel", "w"]);
    assert_eq!((&told["new"], &told["compensating"]), (&false.into(), &true.into()));
    place.until("w", "failed");
    engine.stop().await;
}

async fn a_reason_that_is_too_long_is_rejected_with_the_limit(place: Place) {
    place.good(&["start", "nap", "--id", "n"]);
    let long = "x".repeat(4_097);
    bad(&place.run(&["cancel", "n", "--reason", &long]), 2, "at most 4096 bytes, got: 4097", "shorten it");
}

async fn an_unregistered_workflow_is_named_by_start_and_status_with_the_closest(place: Place) {
    let engine = place.builder().function("greet", 1, greet).function("nap", 1, nap).start().await.unwrap();
    let started = place.run(&["start", "gret", "--id", "g"]);
    assert_eq!((text(&started.stdout), started.status.code()), ("g\n".to_owned(), Some(0)), "it is started");
    let said = text(&started.stderr);
    assert!(said.starts_with("warning: no worker has registered workflow `gret`"), "{said}");
    assert!(said.contains("known: `greet`, `nap`"), "{said}");
    assert_eq!(place.json(&["start", "gret", "--id", "g"])["warnings"].as_array().unwrap().len(), 1);
    let status = place.good(&["status", "g"]);
    assert!(status.contains("warning     no worker has registered workflow `gret`"), "{status}");
    let why = place.json(&["explain", "g"])["why"].as_str().unwrap().to_owned();
    assert!(why.contains("No worker has registered workflow `gret`") && why.contains("known: `greet`"), "{why}");
    assert!(text(&place.run(&["start", "greet", "\"ada\"", "--id", "h"]).stderr).is_empty());
    assert!(!place.good(&["status", "h"]).contains("warning"));
    engine.stop().await;
}

async fn pause_holds_a_run_and_resume_lets_it_go_on(place: Place) {
    let engine = place.builder().function("nap", 1, nap).start().await.unwrap();
    place.good(&["start", "nap", "--id", "n"]);
    place.until_says("n", "sleeps");
    bad(&place.run(&["resume", "n"]), 4, "run `n` is not paused: `running`", "wigwag status n");
    bad(
        &place.run(&["restart", "n"]),
        4,
        "run `n` can be restarted only when it has finished or is paused",
        "wigwag pause n",
    );
    bad(&place.run(&["migrate", "n"]), 4, "run `n` can be migrated only while it is paused", "wigwag status n");
    assert_eq!(place.json(&["pause", "n"]), serde_json::json!({"id": "n", "asked": "pause", "new": true}));
    let said = place.until("n", "paused");
    assert!(said.contains("paused      by request, 20") && said.contains("resume      wigwag resume n\n"), "{said}");
    assert_eq!(place.good(&["pause", "n"]), "pause already requested for `n`\n");
    assert_eq!(place.good(&["resume", "n"]), "resume requested for `n`\n");
    place.until("n", "running");
    engine.stop().await;
}

async fn restart_resumes_an_ended_run_from_a_step(place: Place) {
    let may_charge = Arc::new(AtomicBool::new(false));
    let engine = place.builder().workflow(order(&may_charge, OnFailure::Fail)).start().await.unwrap();
    bad(&place.run(&["start", "order", "{}", "--id", "o", "--wait"]), 1, "the card was refused", "wigwag steps o");
    bad(
        &place.run(&["restart", "o", "--from", "pack"]),
        2,
        "run `o` never came to `pack`; it has: `charge`, `reserve`",
        "wigwag steps o",
    );
    bad(&place.run(&["restart", "o", "--from", "a b"]), 2, "not a point", "wigwag steps o");
    may_charge.store(true, Ordering::SeqCst);
    assert_eq!(place.good(&["restart", "o", "--from", "charge"]), "restart requested for `o`\n");
    let said = place.until("o", "completed");
    assert!(said.contains("restarted   once\n") && said.contains("result      \"s-1\"\n"), "{said}");
    let reserved = place.good(&["history", "o"]).matches("step.started            reserve").count();
    assert_eq!(reserved, 1, "earlier steps are kept");
    assert_eq!(place.good(&["restart", "o"]), "restart requested for `o`\n");
    place.until_says("o", "restarted   2 times\n");
    engine.stop().await;
}

async fn a_run_paused_by_a_failed_step_names_the_error_and_the_command_that_resumes_it(place: Place) {
    let may_charge = Arc::new(AtomicBool::new(false));
    let engine = place.builder().workflow(order(&may_charge, OnFailure::Pause)).start().await.unwrap();
    place.good(&["start", "order", "{}", "--id", "o"]);
    let said = place.until("o", "paused");
    assert!(said.contains("paused      step failure"), "{said}");
    assert!(said.contains("error       Permanent: the card was refused (at `charge`)\n"), "{said}");
    assert!(said.contains("resume      wigwag resume o\n"), "{said}");
    may_charge.store(true, Ordering::SeqCst);
    place.good(&["resume", "o"]);
    place.until("o", "completed");
    engine.stop().await;
}

async fn a_run_incompatible_with_the_code_is_reported_and_migrated(place: Place) {
    let engine = place.builder().workflow(letter("post")).start().await.unwrap();
    place.good(&["start", "letter", "{}", "--id", "l"]);
    place.until_says("l", "`post` will be retried");
    engine.stop().await;
    let engine = place.builder().workflow(letter("send")).start().await.unwrap();
    let said = place.until("l", "paused");
    assert!(said.contains("paused      version mismatch"), "{said}");
    assert!(said.contains("mismatch    post\n") && said.contains("run: definition "), "{said}");
    assert!(said.contains("migrate     wigwag migrate l --rename post=NEW\n"), "{said}");
    bad(
        &place.run(&["resume", "l"]),
        4,
        "run `l` is incompatible with the worker's code at `post`",
        "wigwag migrate l",
    );
    let misfit = place.run(&["migrate", "l"]);
    bad(&misfit, 2, "run `l` still does not fit `letter` at `post", "--rename OLD=NEW");
    bad(&place.run(&["migrate", "l", "--rename", "post=fly"]), 2, "`post` cannot become `fly`", "wigwag steps l");
    bad(&place.run(&["migrate", "l", "--rename", "post"]), 2, "invalid rename", "`charge=pay`");
    bad(&place.run(&["migrate", "l", "--to", "xyz"]), 3, "no definition of `letter` starts with `xyz`", "newest first");
    let newest = place.good(&["status", "l"]);
    let newest = newest.split("worker: definition ").nth(1).unwrap().lines().next().unwrap();
    assert_eq!(place.good(&["migrate", "l", "--rename", "post=send", "--to", newest]), "migrate requested for `l`\n");
    let said = place.until("l", "completed");
    assert!(said.contains("result      \"sent\"\n"), "{said}");
    engine.stop().await;
}

async fn tasks_are_submitted_waited_for_and_found_by_the_same_commands(place: Place) {
    let key = ["task", "submit", "mail", "{\"to\": \"ada\"}", "--key", "welcome", "--queue", "slow"];
    let id = place.good(&[&key[..], &["--retries", "2", "--timeout", "90s", "--expires", "1h"]].concat());
    let id = id.trim_end();
    assert_eq!(place.good(&key).trim_end(), id, "the same key is the same task");
    let other = ["task", "submit", "mail", "{\"to\": \"eve\"}", "--key", "welcome"];
    bad(&place.run(&other), 4, "a task with this key already exists with a different input", "another key");
    let said = place.good(&["task", "status", id]);
    assert!(said.contains("type        mail (task in queue `slow`, up to 3 attempts of 1m 30s)\n"), "{said}");
    assert!(said.contains("expires     20"), "{said}");
    assert!(place.good(&["status", id]).contains("task in queue `slow`"), "`status` finds tasks too");
    let queue = place.json_lines(&["list", "--tasks", "--type", "mail", "--queue", "slow"]);
    assert_eq!((queue.len(), queue[0]["id"].as_str()), (1, Some(id)));
    assert_eq!(place.json_lines(&["list"]), Vec::<Value>::new(), "a task is no workflow");
    let send = |ctx: StepCtx<Value>| async move { Ok::<_, Failure>(format!("sent to {}", ctx.input()?["to"])) };
    let engine = place.builder().task("mail", send).queues(["slow", "default"]).start().await.unwrap();
    assert_eq!(place.good(&[&key[..], &["--wait"]].concat()), "\"sent to \\\"ada\\\"\"\n");
    assert!(place.good(&["history", id]).contains("run.completed"));
    assert!(place.good(&["steps", id]).contains("sent to"));
    let later = place.good(&["task", "submit", "mail", "--delay", "1h"]);
    assert_eq!(
        place.good(&["task", "cancel", later.trim_end()]),
        format!("cancel requested for `{}`\n", later.trim_end())
    );
    place.until(later.trim_end(), "cancelled");
    bad(&place.run(&["task", "cancel", id]), 4, "has already finished: `completed`", "wigwag restart");
    bad(&place.run(&["task", "status", "none"]), 3, "task not found: `none`", "wigwag list");
    bad(&place.run(&["task", "submit", "a b"]), 2, "not a type", "name of a task");
    bad(&place.run(&["task", "submit", "mail", "--queue", "a b"]), 2, "not a name", "the name of a queue");
    engine.stop().await;
}

async fn prune_removes_only_ended_runs(place: Place) {
    let engine = place.builder().function("greet", 1, greet).function("burn", 1, burn).start().await.unwrap();
    place.good(&["start", "greet", "\"ada\"", "--id", "done", "--wait"]);
    place.run(&["start", "burn", "--id", "failed", "--wait"]);
    place.good(&["start", "nap", "--id", "open"]);
    engine.stop().await;
    assert!(place.good(&["prune", "--older-than", "1h"]).starts_with("deleted 0 runs ("));
    assert_eq!(place.good(&["prune", "--older-than", "0s", "--dry-run"]), "would delete 2 runs\n");
    assert!(place.good(&["prune", "--older-than", "0s", "--status", "failed"]).starts_with("deleted 1 run ("));
    assert_eq!(place.json(&["prune", "--older-than", "0s"])["runs"], 1);
    bad(&place.run(&["status", "done"]), 3, "run `done` is gone: it ended as `completed`", "wigwag list");
    bad(&place.run(&["start", "greet", "\"ada\"", "--id", "done"]), 3, "run `done` is gone", "another id");
    assert_eq!(place.json_lines(&["list"])[0]["id"], "open", "an unfinished run is never touched");
    bad(&place.run(&["prune", "--older-than", "0s", "--status", "running"]), 2, "not a final status", "`completed`");
    assert_eq!(place.run(&["prune"]).status.code(), Some(2), "nothing is removed without being told how old");
}

async fn sweep_passes_once_and_finds_nothing_wrong(place: Place) {
    place.good(&["start", "greet", "--id", "g"]);
    let said = place.good(&["sweep"]);
    assert_eq!(said, "checked 0 old wake-ups and 1 unfinished run\nno problems found\n", "its hint is there");
    assert_eq!(place.good(&["sweep", "--once", "--dry-run"]), said);
    let swept = place.json(&["sweep"]);
    assert_eq!((&swept["runs"], &swept["lost_runs"]), (&1.into(), &0.into()));
    bad(&place.run(&["sweep", "--interval", "1ms"]), 2, "the interval must be at least 1s", "10m");
}

#[test]
fn every_invalid_call_is_an_error_with_a_hint() {
    let place = Place::new();
    let commands: [&[&str]; 13] = [
        &["status", "x"],
        &["list"],
        &["steps", "x"],
        &["history", "x"],
        &["cancel", "x"],
        &["pause", "x"],
        &["resume", "x"],
        &["restart", "x"],
        &["migrate", "x"],
        &["task", "status", "x"],
        &["task", "cancel", "x"],
        &["sweep"],
        &["prune", "--older-than", "1d"],
    ];
    for command in commands {
        bad(&place.run(command), 2, "store not found: `./.wigwag`", "--store");
    }
    assert!(!place.0.path().join(".wigwag").exists(), "only a start makes a store");
    place.good(&["start", "greet", "\"ada\"", "--id", "g"]);
    for command in commands.iter().filter(|command| command.contains(&"x")) {
        bad(&place.run(command), 3, "`x`", "wigwag list");
        let odd: Vec<&str> = command.iter().map(|word| if *word == "x" { "a/b" } else { word }).collect();
        bad(&place.run(&odd), 2, "not an id", "wigwag list");
    }
    let run = |args: &[&str]| place.run(args);
    bad(
        &run(&["start", "greet", "\"eve\"", "--id", "g"]),
        4,
        "run `g` already exists with a different input",
        "use another id",
    );
    bad(&run(&["start", "other", "\"ada\"", "--id", "g"]), 4, "run `g` already exists with type `greet`", "another id");
    bad(&run(&["start", "greet", "--id", "a/b"]), 2, "not an id", "a run id");
    bad(&run(&["start", "a b"]), 2, "not a name", "name of a workflow");
    bad(&run(&["start", "greet", "{"]), 2, "invalid INPUT: `{`: not JSON", "@file");
    bad(&run(&["start", "greet", "--delay", "5x"]), 2, "invalid duration", "`90s`, `15m`, `2h`, `7d`");
    bad(&run(&["start", "greet", "--delay", "5"]), 2, "invalid duration", "`90s`");
    bad(&run(&["start", "greet", "--delay", "1y"]), 2, "years are not supported", "`7d`");
    bad(&run(&["start", "greet", "--at", "tomorrow"]), 2, "invalid time", "2026-01-28T12:00:00Z");
    bad(&run(&["prune", "--older-than=-5m"]), 2, "cannot be negative", "`90s`");
    bad(&run(&["list", "--status", "asleep"]), 2, "invalid status", "`waiting_signal`");
    for args in [&["start", "greet", "--timeout", "5s"][..], &["sweep", "--once", "--interval", "5s"]] {
        assert_eq!(run(args).status.code(), Some(2));
    }
    assert_eq!(place.json_lines(&["list"]).len(), 1, "a refused start starts nothing");
}

#[test]
fn hints_name_the_store_that_was_named() {
    let place = Place::new();
    place.good(&["start", "greet", "--id", "a", "--store", "here"]);
    place.good(&["start", "greet", "--id", "b", "--store", "here"]);
    let output = place.run(&["list", "--limit", "1", "--store", "here"]);
    assert!(text(&output.stderr).contains(" --after live/greet/a --store here`"), "{}", text(&output.stderr));
    bad(&place.run(&["resume", "a", "--store", "here"]), 4, "is not paused", "`wigwag status a --store here`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_reads_every_run_and_names_the_promise_that_is_broken() {
    let place = Place::new();
    let engine = place.builder().function("greet", 1, greet).function("nap", 1, nap).start().await.unwrap();
    place.good(&["start", "greet", "\"ada\"", "--id", "done", "--wait"]);
    place.good(&["start", "nap", "--id", "open"]);
    place.until("open", "running");
    let said = place.good(&["doctor"]);
    assert!(said.contains("ok       runs                 2 runs (1 unfinished), "), "while it is at work: {said}");
    assert!(said.contains("`./.wigwag` passed all checks"), "{said}");
    engine.stop().await;
    let seen = place.json(&["doctor", "--no-store"]);
    assert_eq!((&seen["findings"], &seen["runs"]["runs"]), (&Value::Null, &2.into()));
    assert_eq!(place.json(&["doctor", "--no-store", "--limit", "1"])["runs"]["runs"], 1);
    assert_eq!(place.json(&["doctor", "--no-runs"])["runs"], Value::Null);

    let opened = wigwag_store::open(place.0.path().join(".wigwag").to_str().unwrap(), &Default::default()).unwrap();
    let key = "workflow/done/log/0000000002.json";
    opened.store.write(wigwag_store::Batch::new().put(key, "{\"seq\": ")).await.unwrap();
    let broken = place.run(&["doctor", "--no-store"]);
    let (said, talk) = (text(&broken.stdout), text(&broken.stderr));
    assert_eq!(broken.status.code(), Some(1), "{said}{talk}");
    assert!(said.contains(&format!("BROKEN   guarantee 7          `{key}` cannot be read")), "{said}");
    assert!(said.contains("FAILED   runs                 1 run (1 unfinished)"), "{said}");
    assert!(talk.contains("error: `./.wigwag` violates a guarantee in 1 place"), "{talk}");
    assert!(talk.contains("hint: back up the store"), "{talk}");
    let json = place.run(&["doctor", "--no-store", "--json"]);
    let json: Value = serde_json::from_str(&text(&json.stdout)).unwrap();
    assert_eq!((&json["good"], &json["runs"]["broken"][0]["promise"]), (&false.into(), &7.into()));
    assert_eq!(place.run(&["doctor", "--no-store", "--no-runs"]).status.code(), Some(2), "nothing would be left to do");
}

both! {
    start_makes_the_store_and_prints_the_id_of_a_run_that_waits_for_a_worker
    a_start_can_be_put_off
    input_comes_from_the_command_line_a_file_or_standard_input
    start_waits_for_the_result_or_reports_the_failure
    status_shows_waits_and_errors
    status_and_history_show_the_store_requests_of_a_run
    steps_and_history_show_all_that_happened
    history_follows_a_run_until_it_ends
    list_filters_and_shows_the_command_for_the_next_page
    cancel_ends_a_run_once_and_keeps_the_reason
    a_second_cancel_is_reported_as_a_duplicate
    a_cancel_during_compensation_of_a_failed_run_is_reported_as_without_effect
    a_reason_that_is_too_long_is_rejected_with_the_limit
    an_unregistered_workflow_is_named_by_start_and_status_with_the_closest
    pause_holds_a_run_and_resume_lets_it_go_on
    restart_resumes_an_ended_run_from_a_step
    a_run_paused_by_a_failed_step_names_the_error_and_the_command_that_resumes_it
    a_run_incompatible_with_the_code_is_reported_and_migrated
    tasks_are_submitted_waited_for_and_found_by_the_same_commands
    prune_removes_only_ended_runs
    sweep_passes_once_and_finds_nothing_wrong
}
