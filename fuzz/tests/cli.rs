//! Command line input: arguments, durations, times, names, JSON. Each is accepted or rejected with the expected
//! format; never a panic.

// The command has no library, so its source files are included here; the parts other than parsing are unused.
#[expect(dead_code, reason = "nothing is opened")]
#[path = "../../crates/wigwag-cli/src/args.rs"]
mod args;
#[expect(dead_code, unreachable_pub, reason = "nothing is reported, and the library of the command exports it")]
#[path = "../../crates/wigwag-cli/src/error.rs"]
mod error;
#[expect(dead_code, reason = "no secret is read")]
#[path = "../../crates/wigwag-cli/src/input.rs"]
mod input;
#[expect(dead_code, reason = "nothing is shown")]
#[path = "../../crates/wigwag-cli/src/output.rs"]
mod output;

use clap::Parser as _;
use wigwag_core::limits::SPAN_MAX;
use wigwag_fuzz::{Choices, body, fuzz, golden, text};

const WORDS: [&str; 54] = [
    "dev",
    "serve",
    "token",
    "bench",
    "completions",
    "doctor",
    "ls",
    "cat",
    "start",
    "status",
    "list",
    "steps",
    "history",
    "signal",
    "inbox",
    "signals",
    "link",
    "cancel",
    "pause",
    "resume",
    "restart",
    "migrate",
    "task",
    "sweep",
    "prune",
    "submit",
    "hub",
    "listen",
    "send",
    "publish",
    "actors",
    "--topic",
    "--store",
    "--server",
    "--token-file",
    "--public-url",
    "--json",
    "--limit",
    "--id",
    "--wait",
    "--timeout",
    "--after",
    "--follow",
    "--all-waiting",
    "--key",
    "--older-than",
    "--status",
    "--rename",
    "--expires",
    "--dry-run",
    "order-1",
    "{\"a\":1}",
    "--",
    "-",
];

const VALUES: [&str; 22] = [
    "90s",
    "1h30m",
    "7d",
    "-5m",
    "1y",
    "99999999999999999999d",
    "P1DT2H",
    "2026-01-28T12:00:00Z",
    "2026-01-28T13:00:00+01:00",
    "-9999-01-01T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "completed",
    "waiting_signal",
    "charge=pay",
    "@(worker/a)",
    "1763251200000:17",
    "=",
    "https://wigwag.example.com",
    "http://",
    "18446744073709551616",
    "[1,2]",
    "\"ada\"",
];

#[test]
fn any_arguments_are_accepted_or_rejected() {
    fuzz!(6_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let mut words = vec!["wigwag".to_owned()];
        while !choices.is_empty() && words.len() < 12 {
            let known = if choices.once_in(3) { &VALUES[..] } else { &WORDS[..] };
            words.push(if choices.once_in(6) { text(&mut choices, known) } else { (*choices.pick(known)).to_owned() });
        }
        if let Err(error) = args::Args::try_parse_from(&words) {
            assert!(!error.to_string().is_empty());
        }
    });
}

#[test]
fn durations_times_and_names_are_accepted_or_rejected() {
    fuzz!(20_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let given = if choices.once_in(4) {
            String::from_utf8_lossy(choices.bytes(64)).into_owned()
        } else {
            text(&mut choices, &VALUES)
        };
        for span in [input::span(&given), input::interval(&given), input::wait(&given), input::lifetime(&given)] {
            assert!(span.map_or_else(|wrong| wrong.contains("hint: "), |span| span <= SPAN_MAX), "{given}");
        }
        let times = input::time(&given).map(|time| assert_eq!(time.to_string().parse(), Ok(time)));
        let statuses = input::status(&given).map(drop).and(input::final_status(&given).map(drop));
        let names = input::renamed(&given).map(|(old, new)| assert_eq!(format!("{old}={new}"), given));
        let servers = input::server(&given).map(drop);
        let places = input::position(&given).map(drop);
        for outcome in [times, statuses, names, servers, places] {
            assert!(outcome.err().is_none_or(|wrong| wrong.contains("hint: ")), "{given}");
        }
    });
}

#[test]
fn json_is_passed_on_verbatim_or_rejected() {
    let seeds: Vec<Vec<u8>> = golden().into_iter().map(|(_, body)| body).collect();
    fuzz!(5_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let given = String::from_utf8_lossy(&body(&mut choices, &seeds)).into_owned();
        // These read files and standard input, which belong to the user.
        if given.starts_with('@') || given == "-" {
            return;
        }
        for payload in [input::json(&given), input::payload(&given), input::data(&given)].into_iter().flatten() {
            assert_eq!(payload.text(), given.trim());
            let _ = payload.value();
        }
    });
}
