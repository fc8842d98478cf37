//! `wigwag dev` and `wigwag serve` from the user's side: real processes, real sockets, signals from the terminal.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
#[path = "it/notified.rs"]
mod notified;
#[path = "common/process.rs"]
mod process;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use common::{bad, good, text, wigwag};
use process::Serving;

/// Sends a request over a plain socket; returns the status and the whole answer.
fn http(address: &str, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{token}Connection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[test]
fn the_demo_waits_and_the_lines_it_prints_let_it_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--demo", "--bind", "127.0.0.1:0"]);
    let address = serving.address();
    serving.until(" status order-1");
    let said = serving.said.clone();
    // Run the printed lines in a shell.
    let line = said.lines().find(|line| line.contains(" signal order-1 approval ")).unwrap();
    let sent = Command::new("sh").args(["-c", line]).current_dir(folder.path()).output().unwrap();
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert!(
        serving
            .until("Run `order-1` ")
            .contains("Run `order-1` completed: \"the grand piano is on its way, approved by ada\"")
    );
    assert_eq!(http(&address, "GET", "/v1/runs/order-1", None, "").0, 200);
    let (said, code) = serving.stop("-INT");
    assert_eq!(code, Some(0), "{said}");

    // Stored data is kept: the next order waits, and the printed curl command resumes it.
    let mut serving = Serving::start(folder.path(), &["dev", "--demo", "--bind", "127.0.0.1:0"]);
    serving.until(" status order-2");
    let said = serving.said.clone();
    let curl = said.split("  curl ").nth(1).unwrap().split("\n\n").next().unwrap();
    let sent = Command::new("sh").args(["-c", &format!("curl -sS --fail-with-body {curl}")]).output().unwrap();
    assert!(sent.status.success(), "{}{}", text(&sent.stdout), text(&sent.stderr));
    serving.until("Run `order-2` completed");
    let (said, code) = serving.stop("-TERM");
    assert_eq!(code, Some(0), "{said}");
    assert!(good(&wigwag(folder.path(), &["list"])).contains("order-1"));
}

#[test]
fn a_server_accepts_the_tokens_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let made = wigwag(folder.path(), &["token", "ci", "--scope", "runs:read", "--scope", "signals:ok"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let token = text(&made.stdout).trim().to_owned();
    let lines = text(&made.stderr).split("[[token]]").nth(1).map(|rest| format!("[[token]]{rest}")).unwrap();
    assert!(!lines.contains(&token), "of the token only its hash is kept");
    std::fs::write(folder.path().join("wigwag.toml"), format!("store = \"./data\"\nbind = \"127.0.0.1:0\"\n{lines}"))
        .unwrap();
    let mut serving = Serving::start(folder.path(), &["serve"]);
    let address = serving.address();
    assert!(serving.said.contains("(store: ./data)"), "the file names the store: {}", serving.said);
    let ask = |token: Option<&str>, method: &str| http(&address, method, "/v1/runs", token, "{\"type\": \"x\"}").0;
    assert_eq!([ask(None, "GET"), ask(Some("another token here"), "GET")], [401, 401]);
    assert_eq!([ask(Some(&token), "GET"), ask(Some(&token), "POST")], [200, 403]);
    let (said, code) = serving.stop("-TERM");
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains(&token));
    assert!(folder.path().join("data").is_dir() && !folder.path().join(".wigwag").exists());

    // A flag overrides the environment, which overrides the file.
    let mut serving = Serving::start(folder.path(), &["serve", "--store", "./other"]);
    serving.until("(store: ./other)");
}

#[test]
fn invalid_server_settings_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| wigwag(folder.path(), args);
    bad(&run(&["serve", "--bind", "0.0.0.0:0"]), 2, "can be reached from other machines", "tokens");
    bad(&run(&["serve", "--bind", "here"]), 2, "invalid listen address: `here`", "127.0.0.1:7070");
    bad(&run(&["serve", "--config", "nowhere.toml"]), 2, "cannot read `nowhere.toml`", "check the path");
    std::fs::write(folder.path().join("bad.toml"), "\nbnid = 3\n").unwrap();
    bad(&run(&["serve", "--config", "bad.toml"]), 2, "unknown field `bnid`", "line 2");
    bad(&run(&["token", "", "--scope", "admin"]), 2, "invalid token name", "NAME");
    let wrong = run(&["token", "ci", "--scope", "everything"]);
    assert!(wrong.status.code() == Some(2) && text(&wrong.stderr).contains("not a scope"), "{}", text(&wrong.stderr));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    bad(&run(&["dev", "--bind", &address]), 2, &format!("cannot listen on `{address}`"), "another");
}

#[test]
fn a_killed_server_keeps_acknowledged_data() {
    let folder = tempfile::tempdir().unwrap();
    let start = |n: usize| format!("{{\"type\": \"order\", \"id\": \"o-{n}\", \"input\": {n}}}");
    for round in 0..3 {
        let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
        let address = serving.address();
        for n in round * 20..(round + 1) * 20 {
            assert_eq!(http(&address, "POST", "/v1/runs", None, &start(n)).0, 201);
        }
        let _ = serving.stop("-KILL");
    }
    let listed = good(&wigwag(folder.path(), &["list", "--limit", "1000"]));
    assert_eq!(listed.lines().filter(|line| line.contains("o-")).count(), 60, "{listed}");
}
