//! Sending and listing signals from the command line: open waits, outcomes and errors.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
#[path = "common/place.rs"]
mod place;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{bad, clean, good, text};
use place::Place;
use serde_json::{Value, json};
use wigwag::{Builder, Ctx, Engine, Failure, Graph, StepCtx};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Waits for an approval, then for a payment.
async fn order(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    let approval = ctx.wait::<Value>("approval").timeout(2 * DAY).await?;
    let payment = ctx.wait::<Value>("payment").await?;
    Ok(json!([approval, payment]))
}

/// Accepts only payloads that name the approver.
async fn strict(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    let schema = json!({
        "type": "object",
        "properties": {"by": {"type": "string", "minLength": 2}, "note": {"type": "string"}},
        "required": ["by"],
    });
    ctx.wait::<Value>("approval").schema(schema).await
}

/// Two waits for the same signal.
async fn pair(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    let (one, other) = tokio::join!(ctx.wait::<Value>("approval"), ctx.wait::<Value>("approval"));
    Ok(json!([one?, other?]))
}

/// Times out soon, then waits for a signal that ends it.
async fn hasty(ctx: Ctx, _: Value) -> Result<bool, Failure> {
    let first = ctx.wait::<Value>("approval").timeout(Duration::from_millis(10)).await?;
    ctx.wait::<Value>("end").await?;
    Ok(first.is_some())
}

/// Waits for `go` first, so that signals accumulate; then only the newest is consumed.
async fn newest(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    ctx.wait::<Value>("go").await?;
    let newest = ctx.wait::<Value>("rate").latest().await?;
    ctx.wait::<Value>("end").await?;
    Ok(newest)
}

/// A quorum of two senders.
async fn council(ctx: Ctx, _: Value) -> Result<Vec<Value>, Failure> {
    ctx.wait::<Value>("vote").quorum(2).await
}

fn signed() -> Graph<Value> {
    Graph::<Value>::new("signed")
        .signal_at("first", "signature")
        .signal_at("second", "signature")
        .step("file", |_: StepCtx<Value>| async { Ok::<_, Failure>("filed") })
        .after(["first", "second"])
}

impl Place {
    /// Returns the channel of signals that commands send.
    fn via(&self) -> &'static str {
        if self.1.is_some() { "http" } else { "cli" }
    }

    async fn engine(&self) -> Engine {
        all(self.builder()).start().await.unwrap()
    }

    /// Starts a run and waits until it waits for a signal.
    fn waits(&self, of: &str, id: &str) {
        self.good(&["start", of, "--id", id]);
        self.until(id, "waiting_signal");
    }
}

fn all(builder: Builder) -> Builder {
    builder
        .function("order", 1, order)
        .function("strict", 1, strict)
        .function("pair", 1, pair)
        .function("hasty", 1, hasty)
        .function("newest", 1, newest)
        .function("council", 1, council)
        .workflow(signed())
}

/// Runs a command with standard input and environment variables.
fn run_with(place: &Place, args: &[&str], variables: &[(&str, &str)], stdin: &str) -> Output {
    let mut command = place.command(args);
    command.envs(variables.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read may have ended already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

/// Runs a line in a shell, as a user would after copying it.
fn shell(place: &Place, line: &str, variables: &[(&str, &str)]) -> Output {
    let binaries = Path::new(env!("CARGO_BIN_EXE_wigwag")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(place.0.path()).env("PATH", path);
    clean(&mut command);
    if place.1.is_some() {
        command.env("WIGWAG_SERVER", place.url());
    }
    command.envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

/// Returns the lines of `status` with this label.
fn lines_of<'a>(said: &'a str, label: &str) -> Vec<&'a str> {
    let found = said.lines().filter(|line| line.split_whitespace().next() == Some(label));
    found.map(|line| line.split_once("  ").unwrap().1.trim_start()).collect()
}

async fn a_signal_resumes_the_run_that_waits_for_it(place: Place) {
    let engine = place.engine().await;
    place.waits("order", "o");
    let said = place.good(&["signal", "o", "approval", "{\"by\": \"ada\"}", "--by", "ada"]);
    assert_eq!(said, "signal `approval` sent: run `o` was waiting for it\n");
    place.until_says("o", "waits for signal `payment`");
    let receipt = place.json(&["signal", "o", "payment", "12345678901234567890123"]);
    assert_eq!(
        (&receipt["run"], &receipt["name"], &receipt["state"]),
        (&"o".into(), &"payment".into(), &"waiting".into())
    );
    assert_eq!((receipt["id"].as_str().unwrap().len(), &receipt["repeated"]), (32, &false.into()));
    assert!(receipt["suffix"].as_str().unwrap().ends_with(receipt["id"].as_str().unwrap()));
    place.until("o", "completed");
    let sent = place.json_lines(&["signals", "o", "approval"]);
    assert_eq!(sent[0]["source"], json!({"by": "ada", "via": place.via()}));
    assert!(place.good(&["signals", "o"]).contains("12345678901234567890123"), "numbers are passed on as they came");
    engine.stop().await;
}

async fn an_early_signal_is_buffered_and_without_a_payload_it_is_null(place: Place) {
    place.good(&["start", "order", "--id", "o"]);
    let said = place.good(&["signal", "o", "payment", "-5"]);
    assert_eq!(said, "signal `payment` sent: buffered until run `o` waits for it\n");
    assert_eq!(place.json(&["signal", "o", "approval"])["state"], "buffered");
    let engine = place.engine().await;
    let said = place.until("o", "completed");
    assert!(said.contains("result      [null,-5]\n"), "{said}");
    engine.stop().await;
}

async fn payloads_come_from_the_command_line_a_file_or_standard_input(place: Place) {
    let folder = place.0.path();
    place.good(&["start", "order", "--id", "o"]);
    std::fs::write(folder.join("yes.json"), "{\"by\": \"file\"}\n").unwrap();
    place.good(&["signal", "o", "approval", "@yes.json"]);
    good(&run_with(&place, &["signal", "o", "approval", "-"], &[], "\"stdin\"\n"));
    let sent = place.json_lines(&["signals", "o", "approval"]);
    assert_eq!((&sent[0]["payload"]["by"], &sent[1]["payload"]), (&"file".into(), &"stdin".into()));
    bad(&place.run(&["signal", "o", "approval", "@none.json"]), 2, "cannot read `none.json`", "PAYLOAD is JSON text");
    bad(
        &place.run(&["signal", "o", "approval", "ada"]),
        2,
        "invalid PAYLOAD: `ada`: not JSON",
        "a JSON string needs quotes",
    );
    let nothing = run_with(&place, &["signal", "o", "approval", "-"], &[], "");
    bad(&nothing, 2, "invalid PAYLOAD: standard input: not JSON", "PAYLOAD is JSON");
    let large = format!("\"{}\"", "x".repeat(2_000_000));
    std::fs::write(folder.join("large.json"), large).unwrap();
    bad(
        &place.run(&["signal", "o", "approval", "@large.json"]),
        2,
        "`large.json` is too large",
        "store the data elsewhere",
    );
    assert_eq!(place.json_lines(&["signals", "o"]).len(), 2, "a rejected signal is not stored");
}

async fn a_signal_with_a_key_arrives_once(place: Place) {
    let engine = place.engine().await;
    place.waits("order", "o");
    let send = ["signal", "o", "payment", "3", "--key", "click-1"];
    let first = place.json(&send);
    let again = place.json(&send);
    assert_eq!((&first["id"], &first["repeated"], &again["repeated"]), (&again["id"], &false.into(), &true.into()));
    let said = place.good(&send);
    assert_eq!(said, "signal `payment` already sent with this key: buffered until run `o` waits for it\n");
    let other = place.run(&["signal", "o", "payment", "4", "--key", "click-1"]);
    bad(&other, 4, "idempotency key `click-1` was used for another payload", "a new message needs a new key");
    let long = "k".repeat(300);
    bad(&place.run(&["signal", "o", "payment", "--key", &long]), 2, "idempotency key has 1 to 256", "short texts");
    assert_eq!(place.json_lines(&["signals", "o"]).len(), 1);
    engine.stop().await;
}

async fn a_signal_can_be_sent_only_if_the_run_waits_for_it_or_at_one_point(place: Place) {
    let engine = place.engine().await;
    place.waits("order", "o");
    place.waits("pair", "p");
    let early = place.run(&["signal", "o", "payment", "--only-if-waiting"]);
    bad(&early, 4, "run `o` does not wait for `payment` now; it waits for: `approval`", "without `--only-if-waiting`");
    place.good(&["signal", "o", "approval", "--only-if-waiting"]);
    let elsewhere = place.run(&["signal", "p", "approval", "--point", "approval#3"]);
    bad(&elsewhere, 2, "it waits at: `approval`, `approval#2`", "omit `--point`");
    bad(
        &place.run(&["signal", "p", "approval", "--point", "a b"]),
        2,
        "not a point",
        "`--point` the path of a waiting step",
    );
    place.good(&["signal", "p", "approval", "2", "--point", "approval#2"]);
    place.good(&["signal", "p", "approval", "1"]);
    assert!(place.until("p", "completed").contains("result      [1,2]\n"));
    engine.stop().await;
}

async fn a_sender_can_wait_until_the_signal_is_consumed_and_sees_the_next_waits(place: Place) {
    let engine = place.engine().await;
    place.waits("order", "o");
    let said = place.good(&["signal", "o", "approval", "--wait"]);
    let want =
        "signal `approval` sent: consumed by run `o` at `approval`; it now waits for `payment`, without a deadline\n";
    assert_eq!(said, want);
    let late = place.run(&["signal", "o", "receipt", "--wait", "200ms"]);
    bad(&late, 1, "run `o` did not consume signal `receipt` within 200ms", "`wigwag signals o receipt`");
    let consumed = place.json(&["signal", "o", "payment", "3", "--wait", "30s"]);
    assert_eq!(
        (&consumed["point"], &consumed["status"], &consumed["next"]),
        (&"payment".into(), &"completed".into(), &json!([]))
    );
    place.waits("order", "p");
    let next = place.json(&["signal", "p", "approval", "--wait"]);
    assert_eq!((&next["next"][0]["name"], &next["next"][0]["deadline"]), (&"payment".into(), &Value::Null));
    assert_eq!(
        place.good(&["signal", "p", "payment", "--wait"]).lines().next().unwrap(),
        "signal `payment` sent: consumed by run `p` at `payment`; the run is `completed`"
    );
    bad(&place.run(&["signal", "--wait", "p", "payment"]), 2, "invalid duration", "put `--wait` at the end");
    bad(&place.run(&["signal", "p", "payment", "--wait"]), 4, "has already finished: `completed`", "wigwag restart p");
    engine.stop().await;
}

async fn a_signal_can_start_the_run_that_it_is_for(place: Place) {
    let start = ["signal", "o", "approval", "1", "--start", "order", "--input", "{\"item\": \"kettle\"}"];
    let said = place.good(&start);
    assert_eq!(
        said, "signal `approval` sent: buffered until run `o` waits for it\n",
        "the store is made, as by `start`"
    );
    assert_eq!(place.json(&["status", "o"])["input"]["item"], "kettle");
    std::fs::write(place.0.path().join("in.json"), "7").unwrap();
    place.good(&["signal", "o", "payment", "2", "--start", "order", "--input", "@in.json"]);
    assert_eq!(place.json(&["status", "o"])["input"]["item"], "kettle", "a run that is there is left as it is");
    good(&run_with(&place, &["signal", "p", "approval", "--start", "order", "--input", "-"], &[], "8"));
    assert_eq!(place.json(&["status", "p"])["input"], 8);
    let engine = place.engine().await;
    assert!(place.until("o", "completed").contains("result      [1,2]\n"));
    engine.stop().await;
    let both = place.run(&["signal", "q", "approval", "-", "--start", "order", "--input", "-"]);
    bad(&both, 2, "standard input cannot be both PAYLOAD and `--input`", "`@file`");
    let odd = place.run(&["signal", "q", "approval", "--start", "order", "--input", "kettle"]);
    bad(&odd, 2, "invalid INPUT: `kettle`: not JSON", "INPUT is JSON");
    bad(&place.run(&["signal", "q", "approval", "--start", "a b"]), 2, "not a name", "`--start` takes a workflow name");
    bad(&place.run(&["status", "q"]), 3, "run not found: `q`", "wigwag list");
}

async fn a_signal_is_sent_to_a_task_with_the_task_flag(place: Place) {
    let id = place.good(&["task", "submit", "mail"]);
    let id = id.trim_end();
    bad(&place.run(&["signal", id, "poke"]), 3, &format!("run not found: `{id}`"), "add `--task`");
    let said = place.good(&["signal", id, "poke", "--task"]);
    assert_eq!(said, format!("signal `poke` sent: buffered until task `{id}` waits for it\n"));
    assert!(place.good(&["signals", id]).trim_end().ends_with("unconsumed"));
    bad(&place.run(&["signal", "none", "poke", "--task"]), 3, "task not found: `none`", "wigwag list --tasks");
}

async fn all_that_wait_are_sent_to_and_no_other(place: Place) {
    let engine = place.engine().await;
    for id in ["a", "b"] {
        place.waits("order", id);
    }
    place.waits("pair", "p");
    place.waits("newest", "n");
    let dry = place.good(&["signal", "--all-waiting", "approval", "{\"by\": \"ada\"}", "--dry-run"]);
    let rows: Vec<Vec<&str>> = dry.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..4], ["a", "order", "approval", "approval"], "{dry}");
    assert_eq!((rows[1][0], rows[2][0]), ("b", "p"), "{dry}");
    assert_eq!(dry.lines().last().unwrap(), "would send `approval` with {\"by\": \"ada\"} to 3 runs");
    let dry = place.json_lines(&["signal", "--all-waiting", "approval", "7", "--type", "pair", "--dry-run"]);
    let want =
        json!({"run": "p", "type": "pair", "name": "approval", "point": "approval", "payload": 7, "dry_run": true});
    assert_eq!(dry, [want]);
    assert_eq!(place.json_lines(&["signals", "a"]), Vec::<Value>::new(), "a dry run sends nothing");
    let said =
        place.good(&["signal", "--all-waiting", "approval", "1", "--type", "order", "--by", "ada", "--key", "k"]);
    assert_eq!(said, "sent `approval` to 2 runs\n");
    for id in ["a", "b"] {
        place.until_says(id, "waits for signal `payment`");
    }
    let output = place.run(&["signal", "--all-waiting", "approval", "2", "--json"]);
    let sent: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((&sent["run"], &sent["state"]), (&"p".into(), &"waiting".into()), "one signal for each run");
    assert_eq!(text(&output.stderr), "sent `approval` to 1 run\n");
    assert_eq!(place.json_lines(&["signals", "a"])[0]["source"]["by"], "ada");
    assert_eq!(place.json_lines(&["signals", "n"]).len(), 0, "it waits for something else");
    let none = place.run(&["signal", "--all-waiting", "approval", "--type", "order"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(0), "sent `approval` to 0 runs\n"));
    assert!(text(&none.stderr).contains("no run waits for `approval`; list all waits with `wigwag inbox`"));
    engine.stop().await;
}

async fn rejections_are_reported_with_their_reason_and_do_not_stop_the_rest(place: Place) {
    let engine = place.engine().await;
    place.waits("order", "o");
    place.waits("strict", "s");
    place.waits("strict", "t");
    let output = place.run(&["signal", "--all-waiting", "approval", "{\"by\": 3}"]);
    assert_eq!(output.status.code(), Some(1));
    let want = "sent `approval` to 1 run; rejected by 2 runs\n\
                rejected by `s`, `t`: the payload does not match signal `approval` at /by: 3 is not of type \"string\"\n";
    assert_eq!(text(&output.stdout), want);
    let said = text(&output.stderr);
    assert!(said.starts_with("error: 2 runs rejected `approval`\nhint: want: {"), "{said}");
    place.until_says("o", "waits for signal `payment`");
    let output = place.run(&["signal", "--all-waiting", "approval", "{\"by\": 3}", "--json"]);
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["run"], &lines[0]["state"]), (2, &"s".into(), &"refused".into()));
    assert!(lines[0]["error"].as_str().unwrap().contains("/by") && output.status.code() == Some(1));
    engine.stop().await;
}

async fn many_that_wait_are_found_page_by_page(place: Place) {
    let engine = place.engine().await;
    let client = engine.client();
    for number in 0..300 {
        client.start("order", &()).id(format!("o-{number:03}")).await.unwrap();
    }
    place.until("o-299", "waiting_signal");
    let count = || place.json_lines(&["inbox", "approval", "--limit", "1000"]).len();
    while count() < 300 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(place.good(&["signal", "--all-waiting", "approval"]), "sent `approval` to 300 runs\n");
    assert_eq!(place.json_lines(&["signals", "o-299"]).len(), 1);
    engine.stop().await;
}

async fn the_inbox_shows_open_waits_with_age_and_deadline(place: Place) {
    let engine = place.engine().await;
    let empty = place.run(&["inbox"]);
    assert_eq!((empty.status.code(), text(&empty.stdout).as_str()), (Some(0), ""));
    assert_eq!(text(&empty.stderr), "no run waits for a signal; list runs with `wigwag list`\n");
    place.waits("order", "o");
    place.waits("pair", "p");
    place.waits("newest", "n");
    let inbox = place.good(&["inbox"]);
    let rows: Vec<Vec<&str>> = inbox.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 4, "each wait has a row: {inbox}");
    assert_eq!(rows[0][..4], ["o", "order", "approval", "approval"], "{inbox}");
    assert!(rows[0][4].ends_with('s') && rows[0][5..] == ["in", "1d", "23h"], "{inbox}");
    assert_eq!((rows[2][3], rows[2][5]), ("approval#2", "none"), "{inbox}");
    assert_eq!(place.good(&["inbox", "go"]).split_whitespace().next().unwrap(), "n");
    let nothing = text(&place.run(&["inbox", "payment"]).stderr);
    assert_eq!(nothing, "no run waits for `payment`; list all waits with `wigwag inbox`\n");
    let lines = place.json_lines(&["inbox", "approval"]);
    assert_eq!(
        (lines.len(), &lines[0]["id"], &lines[0]["type"], &lines[0]["point"]),
        (3, &"o".into(), &"order".into(), &"approval".into())
    );
    assert!(lines[0]["since"].is_string() && lines[0]["deadline"].is_string());
    let page = place.run(&["inbox", "approval", "--limit", "1"]);
    let more = text(&page.stderr);
    assert!(more.starts_with("next page: `wigwag inbox approval --limit 1 --after waiting/approval/o~"), "{more}");
    let next = shell(&place, more.split('`').nth(1).unwrap(), &[]);
    assert!(text(&next.stdout).starts_with("p  pair  approval  approval"), "{}", text(&next.stdout));
    let hint = "omit `--after`";
    bad(&place.run(&["inbox", "--after", "here"]), 2, "invalid cursor for this list: `here`", hint);
    bad(&place.run(&["inbox", "go", "--after", "waiting/approval/o~1"]), 2, "invalid cursor for this list", hint);
    bad(&place.run(&["inbox", "a b"]), 2, "not a name", "such as `approval`");
    engine.stop().await;
}

async fn each_signal_has_a_fate(place: Place) {
    let engine = place.engine().await;
    place.waits("newest", "n");
    for rate in ["1", "2"] {
        place.good(&["signal", "n", "rate", rate]);
    }
    let fates = |id: &str| -> Vec<String> {
        let said = place.good(&["signals", id]);
        said.lines().map(|line| line.split("  ").last().unwrap().trim().to_owned()).collect()
    };
    assert_eq!(fates("n"), ["unconsumed", "unconsumed"]);
    place.good(&["signal", "n", "go", "--wait"]);
    place.until_says("n", "waits for signal `end`");
    let now = fates("n");
    assert!(now[0].starts_with("consumed by `go` at 20") && now[2].starts_with("consumed by `rate` at 20"), "{now:?}");
    assert_eq!(now[1], "superseded by a newer signal");
    place.good(&["signal", "n", "other"]);
    place.good(&["signal", "n", "end", "--wait"]);
    assert_eq!(place.json_lines(&["signals", "n", "other"])[0]["fate"], "never_consumed");
    assert!(place.good(&["signals", "n", "other"]).ends_with("never consumed (run finished)\n"));
    let long = format!("\"{}\"", "x".repeat(500));
    place.waits("order", "o");
    place.good(&["signal", "o", "payment", &long, "--by", "ada\u{1b}[2J"]);
    let row = place.good(&["signals", "o", "payment"]);
    assert!(
        row.contains("xxx…") && row.contains(&format!("ada\\u{{1b}}[2J ({})", place.via())) && row.len() < 250,
        "{row}"
    );
    let none = place.run(&["signals", "o", "approval"]);
    let want = "no signal `approval` was sent to `o`; show its open waits with `wigwag status o`\n";
    assert_eq!((text(&none.stdout).as_str(), text(&none.stderr).as_str()), ("", want));
    bad(&place.run(&["signals", "o", "a b"]), 2, "not a name", "such as `approval`");
    bad(&place.run(&["signals", "none"]), 3, "run not found: `none`", "wigwag list");
    engine.stop().await;
}

async fn a_signal_that_is_not_consumed_shows_why(place: Place) {
    place.good(&["start", "strict", "--id", "s"]);
    place.good(&["signal", "s", "approval", "{\"by\": 3}"]);
    let engine = place.engine().await;
    place.until("s", "waiting_signal");
    let said = place.good(&["signals", "s"]);
    assert!(said.ends_with("  unconsumed: `approval` rejects it at /by: 3 is not of type \"string\"\n"), "{said}");
    engine.stop().await;
}

async fn a_signal_for_one_wait_alone_is_void_when_that_ends_first(place: Place) {
    place.good(&["start", "slow", "--id", "s"]);
    let slow = |ctx: Ctx, _: Value| async move {
        let first = ctx.wait_any::<Value, _>(["approval", "refusal"]).await?;
        ctx.wait::<Value>("end").await?;
        Ok::<_, Failure>(first)
    };
    let engine = place.builder().function("slow", 1, slow).start().await.unwrap();
    place.until_says("s", "waits for signal `approval`");
    engine.stop().await;
    place.good(&["signal", "s", "refusal"]);
    let state = &place.json(&["signal", "s", "approval", "--only-if-waiting"])["state"];
    assert_eq!(state, "waiting", "the wait is still open");
    let engine = place.builder().function("slow", 1, slow).start().await.unwrap();
    place.until_says("s", "waits for signal `end`");
    let said = place.good(&["signals", "s", "approval"]);
    assert!(said.ends_with("  void: its wait ended first\n"), "{said}");
    engine.stop().await;
}

async fn status_names_each_wait_and_the_command_that_resumes_the_run(place: Place) {
    let engine = place.engine().await;
    for of in ["order", "strict", "pair", "council"] {
        place.waits(of, of);
    }
    let said = place.good(&["status", "order"]);
    let now = lines_of(&said, "now");
    assert!(
        now[0].starts_with("`approval` waits for signal `approval` since 20") && now[0].contains(" ago) until 20"),
        "{said}"
    );
    assert!(now[0].ends_with("(in 1d 23h)"), "{said}");
    assert_eq!(lines_of(&said, "takes"), ["any JSON; replace `null` with your payload"]);
    assert_eq!(lines_of(&said, "signal"), ["wigwag signal order approval null"]);
    let said = place.good(&["status", "strict"]);
    assert!(lines_of(&said, "now")[0].ends_with(" ago), without a deadline"), "{said}");
    assert_eq!(lines_of(&said, "takes"), ["{\"by\": text, \"note\"?: text}"]);
    assert_eq!(lines_of(&said, "signal"), ["wigwag signal strict approval '{\"by\":\"text\"}'"]);
    let said = place.good(&["status", "council"]);
    assert_eq!(
        lines_of(&said, "takes"),
        ["any JSON; one signal from each of 2 senders; replace `null` with your payload"]
    );
    assert_eq!(lines_of(&said, "signal"), ["wigwag signal council vote null --by NAME"]);
    let said = place.good(&["status", "pair"]);
    let want =
        ["wigwag signal pair approval null --point approval", "wigwag signal pair approval null --point 'approval#2'"];
    assert_eq!(lines_of(&said, "signal"), want, "each is reached where several wait for the same");
    for of in ["strict", "pair"] {
        for command in lines_of(&place.good(&["status", of]), "signal") {
            let output = shell(&place, command, &[]);
            assert_eq!(good(&output), format!("signal `approval` sent: run `{of}` was waiting for it\n"));
        }
        place.until(of, "completed");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_that_resumes_a_run_leads_to_the_store_that_was_named() {
    let place = Place::new();
    let folder = place.0.path();
    let store = folder.join("my store");
    let engine = all(Engine::open(store.to_str().unwrap()).unwrap()).start().await.unwrap();
    let named = |args: &[&str]| place.run(&[&["--store", "my store"], args].concat());
    good(&named(&["start", "order", "--id", "o"]));
    let until = |wanted: &str, look: &dyn Fn() -> Output| -> String {
        for _ in 0..600 {
            let said = good(&look());
            if said.contains(wanted) {
                return lines_of(&said, "signal").first().unwrap().to_string();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("`{wanted}` did not come");
    };
    let command = until("`approval` waits", &|| named(&["status", "o"]));
    assert_eq!(command, "wigwag signal o approval null --store 'my store'");
    good(&shell(&place, &command, &[]));
    let set = [("WIGWAG_STORE", "my store")];
    let command = until("`payment` waits", &|| run_with(&place, &["status", "o"], &set, ""));
    assert_eq!(command, "wigwag signal o payment null", "what the environment says need not be said");
    good(&shell(&place, &command, &set));
    assert_eq!(good(&named(&["start", "order", "--id", "o", "--wait"])), "[null,null]\n");
    bad(&named(&["signal", "o", "payment"]), 4, "has already finished", "`wigwag restart o --store 'my store'`");
    bad(
        &named(&["status", "x"]),
        3,
        "run not found: `x`",
        "`wigwag list --store 'my store'` and tasks with `wigwag list --tasks --store 'my store'`",
    );
    bad(&named(&["cancel", "o"]), 4, "has already finished", "`wigwag restart o --store 'my store'`");
    place.good(&["start", "order", "--id", "p"]);
    let away = run_with(&place, &["--store", "./.wigwag", "status", "x"], &set, "");
    bad(&away, 3, "run not found: `x`", "`wigwag list --store ./.wigwag`");
    engine.stop().await;
}

async fn steps_show_waits_with_their_outcomes(place: Place) {
    let engine = place.engine().await;
    let last = |id: &str| {
        place
            .good(&["steps", id])
            .lines()
            .map(|line| line.split("  ").last().unwrap().trim().to_owned())
            .collect::<Vec<_>>()
    };
    place.waits("order", "o");
    assert!(last("o")[0].starts_with("waits for signal `approval` until 20"), "{:?}", last("o"));
    place.good(&["signal", "o", "approval", "{\"by\":\"ada\"}", "--wait"]);
    assert_eq!(last("o"), ["received {\"by\":\"ada\"}", "waits for signal `payment`, without a deadline"]);
    place.good(&["start", "hasty", "--id", "h"]);
    place.until_says("h", "waits for signal `end`");
    assert_eq!(last("h")[0], "timed out");
    place.good(&["cancel", "h"]);
    place.until("h", "cancelled");
    assert!(last("h")[1].starts_with("closed: "), "{:?}", last("h"));
    let impatient = Graph::<Value>::new("impatient").signal("approval").timeout(Duration::from_millis(10));
    let other = place.builder().workflow(impatient).start().await.unwrap();
    place.good(&["start", "impatient", "{}", "--id", "i"]);
    place.until("i", "failed");
    assert_eq!(last("i"), ["timed out: SignalTimeout: no signal came in time"]);
    let history = place.good(&["history", "o"]);
    assert!(
        history.contains("signal.received         approval  name=approval  payload={\"by\":\"ada\"}  by=-\n"),
        "{history}"
    );
    other.stop().await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_are_created_and_verified_with_the_secret_of_the_environment() {
    let place = Place::new();
    let set = [("WIGWAG_LINK_SECRET", "0123456789abcdef0123456789abcdef")];
    place.good(&["start", "order", "--id", "o"]);
    let link = ["link", "o", "approval", "--expires", "2d"];
    let run = |args: &[&str]| run_with(&place, args, &set, "");
    let token = good(&run(&link));
    let said = good(&run(&["link", "--verify", token.trim_end()]));
    assert!(said.starts_with("run          o\nsignal       approval\nexpires      20"), "{said}");
    assert!(said.contains("(in 1d 23h)\n") && said.ends_with("uses         unlimited\n"), "{said}");
    let url = good(&run(&[&link[..], &["--once", "--public-url", "https://wigwag.example.com/"]].concat()));
    assert!(url.starts_with("https://wigwag.example.com/v1/links/") && url.trim_end().contains('.'), "{url}");
    let said = good(&run_with(&place, &["link", "--verify", "-"], &set, &url));
    assert!(said.ends_with("uses         once\n"), "a URL, from standard input: {said}");
    let made: Value = serde_json::from_str(&good(&run(&[&link[..], &["--once", "--json"]].concat()))).unwrap();
    assert_eq!((&made["run"], &made["name"], &made["once"]), (&"o".into(), &"approval".into(), &true.into()));
    let token = made["token"].as_str().unwrap();
    let read: Value = serde_json::from_str(&good(&run(&["link", "--verify", token, "--json"]))).unwrap();
    assert_eq!((&read["once"], &read["expires"]), (&true.into(), &made["expires"]));
    let url: Value =
        serde_json::from_str(&good(&run(&[&link[..], &["--public-url", "http://x", "--json"]].concat()))).unwrap();
    assert_eq!(url["url"], format!("http://x/v1/links/{}", url["token"].as_str().unwrap()));
    let mut settings = wigwag::Settings::default();
    settings.link_secret = Some(wigwag::LinkSecret::new(set[0].1).unwrap());
    let client = place.builder().settings(settings).client().await.unwrap();
    client.use_link(token, &true).await.unwrap();
    assert_eq!(place.json_lines(&["signals", "o"])[0]["source"]["via"], "link", "the token is good");
    let engine = place.engine().await;
    place.good(&["cancel", "o"]);
    place.until("o", "cancelled");
    bad(&run(&link), 4, "run `o` has already finished: `cancelled`", "wigwag restart o");
    engine.stop().await;
}

#[test]
fn links_that_cannot_be_created_or_used_are_errors_with_reasons() {
    let place = Place::new();
    let secret = |text: &'static str| [("WIGWAG_LINK_SECRET", text)];
    let set = secret("0123456789abcdef0123456789abcdef");
    place.good(&["start", "order", "--id", "o"]);
    let link = ["link", "o", "approval", "--expires", "2d"];
    bad(&place.run(&link), 2, "no link secret is configured", "set `WIGWAG_LINK_SECRET`");
    bad(&run_with(&place, &link, &secret(""), ""), 2, "no link secret is configured", "openssl rand -hex 32");
    bad(&run_with(&place, &link, &secret("short"), ""), 2, "`WIGWAG_LINK_SECRET` is too short", "openssl rand -hex 32");
    bad(&place.run(&["link", "--verify", "x.y"]), 2, "no link secret is configured", "WIGWAG_LINK_SECRET");
    let run = |args: &[&str]| run_with(&place, args, &set, "");
    for args in [&["link"][..], &["link", "o"], &["link", "o", "approval"], &["link", "--expires", "2d"]] {
        bad(&run(args), 2, "missing RUN, NAME or `--expires`", "`link RUN NAME --expires 2d`");
    }
    bad(&run(&["link", "none", "approval", "--expires", "2d"]), 3, "run not found: `none`", "wigwag list");
    bad(&run(&["link", "a/b", "approval", "--expires", "2d"]), 2, "not an id", "wigwag list");
    bad(&run(&["link", "o", "a b", "--expires", "2d"]), 2, "not a name", "such as `approval`");
    bad(&run(&["link", "o", "approval", "--expires", "0s"]), 2, "the lifetime must be at least 1s", "`2d`");
    bad(&run(&["link", "o", "approval", "--expires", "soon"]), 2, "invalid duration", "`90s`");
    bad(&run(&[&link[..], &["--public-url", "wigwag.example.com"]].concat()), 2, "invalid server URL", "https://");
    bad(&run(&["link", "--verify", "x.y"]), 2, "this link is not valid", "a different secret");
    let token = good(&run(&link));
    let other = run_with(&place, &["link", "--verify", token.trim_end()], &secret("another secret, as long"), "");
    bad(&other, 2, "this link is not valid", "a different secret");
    let token = good(&run(&["link", "o", "approval", "--expires", "1s"]));
    std::thread::sleep(Duration::from_millis(1_100));
    bad(&run(&["link", "--verify", token.trim_end()]), 3, "this link expired at 20", "create another");
    assert_eq!(run(&["link", "o", "--verify", "x.y"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_invalid_call_is_an_error_with_a_hint() {
    let place = Place::new();
    for command in
        [&["signal", "x", "approval"][..], &["signal", "--all-waiting", "approval"], &["inbox"], &["signals", "x"]]
    {
        bad(&place.run(command), 2, "store not found: `./.wigwag`", "--store");
    }
    let engine = place.engine().await;
    place.waits("strict", "s");
    let run = |args: &[&str]| place.run(args);
    let calls = "`signal RUN NAME [PAYLOAD]` or `signal --all-waiting NAME [PAYLOAD]`";
    bad(&run(&["signal"]), 2, "missing RUN or `--all-waiting`", calls);
    bad(&run(&["signal", "s"]), 2, "missing signal name for run `s`", calls);
    bad(&run(&["signal", "--all-waiting"]), 2, "missing signal name", calls);
    bad(&run(&["signal", "--all-waiting", "s", "approval", "1"]), 2, "`--all-waiting` takes no RUN, got: `s`", calls);
    bad(&run(&["signal", "--all-waiting", "s", "approval"]), 2, "invalid PAYLOAD: `approval`", "PAYLOAD is JSON");
    bad(&run(&["signal", "--all-waiting", "a b"]), 2, "not a name", "such as `approval`");
    bad(&run(&["signal", "--all-waiting", "approval", "--type", "a b"]), 2, "not a type", "name of a workflow");
    bad(&run(&["signal", "s", "a b"]), 2, "not a name", "such as `approval` or `payment.received`");
    bad(&run(&["signal", "a/b", "approval"]), 2, "not an id", "wigwag list");
    bad(&run(&["signal", "none", "approval"]), 3, "run not found: `none`", "`--start TYPE`");
    bad(
        &run(&["signal", "s", "approval", "{}"]),
        2,
        "does not match signal `approval` at the payload: \"by\" is a required property",
        "want: {",
    );
    bad(&run(&["signal", "s", "approval", "--by", ""]), 2, "a sender has 1 to 256 bytes", "short texts");
    let contradictions: [&[&str]; 9] = [
        &["signal", "--all-waiting", "approval", "--wait"],
        &["signal", "--all-waiting", "approval", "--point", "p"],
        &["signal", "--all-waiting", "approval", "--start", "order"],
        &["signal", "--all-waiting", "approval", "--task"],
        &["signal", "s", "approval", "--dry-run"],
        &["signal", "s", "approval", "--type", "order"],
        &["signal", "s", "approval", "--input", "1"],
        &["signal", "s", "approval", "--start", "order", "--task"],
        &["signal", "s", "approval", "--start", "order", "--only-if-waiting"],
    ];
    for args in contradictions {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains("Usage: wigwag signal [OPTIONS] RUN NAME [PAYLOAD]"), "{args:?}");
    }
    assert_eq!(place.json_lines(&["signals", "s"]), Vec::<Value>::new(), "a rejected signal is not stored");
    engine.stop().await;
}

async fn a_signal_that_no_step_waits_for_is_sent_with_a_warning_and_strict_rejects_it(place: Place) {
    let graph = Graph::<Value>::new("order").signal("approval").signal("payment").after("approval");
    let engine = place.builder().workflow(graph).start().await.unwrap();
    place.good(&["start", "order", "{}", "--id", "o"]);
    place.until("o", "waiting_signal");
    let output = place.run(&["signal", "o", "aproval", "true"]);
    let said = text(&output.stderr);
    assert!(said.contains("warning: workflow `order` never waits for signal `aproval`"), "{said}");
    assert!(said.contains("did you mean `approval`? known: `approval`, `payment`"), "{said}");
    assert_eq!(text(&output.stdout), "signal `aproval` sent: buffered until run `o` waits for it\n");
    let json = place.run(&["signal", "o", "aproval", "true", "--json"]);
    let receipt: Value = serde_json::from_str(&text(&json.stdout)).unwrap();
    assert!(receipt["warning"].as_str().unwrap().contains("`approval`"), "{receipt}");
    let strict = place.run(&["signal", "o", "aproval", "true", "--only-if-waiting"]);
    bad(&strict, 4, "did you mean `approval`?", "wigwag status o");
    engine.stop().await;
}

both! {
    a_signal_that_no_step_waits_for_is_sent_with_a_warning_and_strict_rejects_it
    a_signal_resumes_the_run_that_waits_for_it
    an_early_signal_is_buffered_and_without_a_payload_it_is_null
    payloads_come_from_the_command_line_a_file_or_standard_input
    a_signal_with_a_key_arrives_once
    a_signal_can_be_sent_only_if_the_run_waits_for_it_or_at_one_point
    a_sender_can_wait_until_the_signal_is_consumed_and_sees_the_next_waits
    a_signal_can_start_the_run_that_it_is_for
    a_signal_is_sent_to_a_task_with_the_task_flag
    all_that_wait_are_sent_to_and_no_other
    rejections_are_reported_with_their_reason_and_do_not_stop_the_rest
    many_that_wait_are_found_page_by_page
    the_inbox_shows_open_waits_with_age_and_deadline
    each_signal_has_a_fate
    a_signal_that_is_not_consumed_shows_why
    a_signal_for_one_wait_alone_is_void_when_that_ends_first
    status_names_each_wait_and_the_command_that_resumes_the_run
    steps_show_waits_with_their_outcomes
}
