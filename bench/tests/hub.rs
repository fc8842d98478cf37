//! The hub benchmark at small size: checks its counts, on our hub and on the bare relay.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stderr, reason = "skipped tests are reported")]

use std::process::Command;

use serde_json::Value;

/// Returns the figures of one part, with small counts.
fn measure(part: &str) -> Option<Value> {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("SKIPPED: the load wants one core and the server another: there is only one");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wigwag-bench"));
    command.args(["hub", "--only", part, "--seconds", "0.2", "--rounds", "1", "--pairs", "2", "--window", "4"]);
    command.args(["--subscribers", "10", "--connections", "50"]).arg("--json").arg(&json);
    let output = command.arg("--dir").arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap())
}

/// Returns the names of the servers on which a load did any work.
fn measured_on<'a>(figures: &'a Value, value: &str) -> Vec<&'a str> {
    let sides = |load: &'a Value| load["sides"].as_array().unwrap().iter();
    let done = figures["loads"].as_array().unwrap().iter().flat_map(sides).filter(|of| of[value].as_f64() > Some(0.0));
    done.map(|of| of["side"].as_str().unwrap()).collect()
}

#[test]
fn round_trips_are_measured_with_and_without_acknowledgements() {
    let Some(figures) = measure("trips") else { return };
    assert_eq!(measured_on(&figures, "p50_us"), ["wigwag", "relay", "wigwag", "relay"]);
}

#[test]
fn every_message_of_a_pair_is_acknowledged_and_received() {
    let Some(figures) = measure("pairs") else { return };
    assert_eq!(measured_on(&figures, "per_s"), ["wigwag", "each", "relay", "enveloped"]);
    assert_eq!(figures["bars"][0]["what"], "H2: acked messages/s / the bare relay's");
}

#[test]
fn every_subscriber_gets_every_message() {
    let Some(figures) = measure("fan") else { return };
    assert_eq!(measured_on(&figures, "per_s"), ["wigwag", "relay", "wigwag", "relay"]);
}

#[test]
fn idle_connections_are_weighed() {
    let Some(figures) = measure("idle") else { return };
    let idle = figures["idle"].as_array().unwrap();
    assert_eq!(idle.len(), 4, "connected and named, on two servers: {idle:?}");
    assert!(idle.iter().all(|of| of["connections"] == 50), "{idle:?}");
}

#[test]
fn what_is_stored_outlives_a_kill() {
    let Some(figures) = measure("drain") else { return };
    let messages: Vec<&Value> = figures["drained"].as_array().unwrap().iter().map(|of| &of["messages"]).collect();
    assert_eq!(messages, [100, 1_000]);
}
