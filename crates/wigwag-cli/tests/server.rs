//! Commands through a server: the same output as on the store, and errors of a faulty or unreachable server.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
#[path = "common/place.rs"]
mod place;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{bad, command, good, text, wigwag};
use place::Place;
use serde_json::{Value, json};
use wigwag::{Ctx, Failure, Graph, StepCtx, permanent};
use wigwag_server::{Auth, Scope, Server, Tls};

/// Returns a large value, then waits for an approval.
async fn order(ctx: Ctx, _: Value) -> Result<Option<Value>, Failure> {
    ctx.step("pack", || async { Ok::<_, Failure>("x".repeat(40_000)) }).await?;
    ctx.wait::<Value>("approval").timeout(Duration::from_secs(7_200)).await
}

async fn burn(ctx: Ctx, _: Value) -> Result<(), Failure> {
    ctx.step("light", || async { Err::<(), _>(permanent("no\nfuel")) }).await
}

fn strict() -> Graph<Value> {
    let schema = json!({"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]});
    Graph::<Value>::new("strict").signal("approval").schema(schema)
}

/// Creates runs in every state, without a worker.
async fn fill(place: &Place) {
    let engine = place.builder().function("order", 1, order).function("burn", 1, burn).workflow(strict());
    let engine = engine.task("large", |ctx: StepCtx<Value>| async move { ctx.input() }).start().await.unwrap();
    let client = engine.client();
    let large = "y".repeat(50_000);
    client.submit("large", &large).key("k").await.unwrap().wait().await.unwrap();
    client.submit("mail", &json!({"to": "ada"})).queue("slow").key("m").await.unwrap();
    client.start("burn", &json!({"n": 1})).id("burnt").await.unwrap().wait().await.unwrap();
    client.start("later", &large).id("later").await.unwrap();
    for (of, id) in [("order", "a"), ("order", "b"), ("strict", "s"), ("order", "done"), ("order", "held")] {
        let run = client.start(of, &json!({})).id(id).await.unwrap();
        while run.waiting().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    }
    client.signal("done", "approval", &json!({"by": "ada"})).by("ada").await.unwrap();
    client.run("done").unwrap().wait().await.unwrap();
    client.signal("a", "payment", &wigwag::Payload::parse("12345678901234567890123").unwrap()).await.unwrap();
    client.run("held").unwrap().pause().await.unwrap();
    place.until("held", "paused");
    engine.stop().await;
}

/// Returns the output without parts that depend on the current time: durations, and the padding for them.
fn timeless(said: &str) -> String {
    let is_span = |word: &str| {
        let word = word.trim_matches(['(', ')', ',']);
        let rest = word.trim_start_matches(|letter: char| letter.is_ascii_digit() || ".smhd".contains(letter));
        word.starts_with(|letter: char| letter.is_ascii_digit()) && rest.is_empty() && !word.ends_with(char::is_numeric)
    };
    let line = |line: &str| {
        let mut words: Vec<&str> =
            line.split_whitespace().map(|word| if is_span(word) { "SPAN" } else { word }).collect();
        words.dedup_by(|one, other| *one == "SPAN" && *one == *other);
        words.join(" ")
    };
    said.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn only_spans_are_left_out_of_a_comparison() {
    assert_eq!(timeless("a  9.1s  b (3m 12s ago) 340ms"), "a SPAN b SPAN ago) SPAN");
    assert_eq!(timeless("2026-01-28T12:00:00Z 17 x7"), "2026-01-28T12:00:00Z 17 x7");
}

/// Commands without effect, or that are rejected; each is run on the store and through the server.
fn calls(task: &str) -> Vec<Vec<&str>> {
    let mut calls: Vec<Vec<&str>> = Vec::new();
    for id in ["a", "s", "burnt", "done", "held", "later", task, "none", "a/b"] {
        for what in ["status", "steps", "history", "signals"] {
            calls.push(vec![what, id]);
        }
        for what in ["resume", "restart", "migrate"] {
            calls.push(vec![what, id, if what == "resume" { "--anyway" } else { "--json" }]);
        }
    }
    calls.retain(|call| {
        !(["restart", "resume"].contains(&call[0]) && ["burnt", "done", "held", task].contains(&call[1]))
    });
    calls.extend([
        vec!["list"],
        vec!["list", "--limit", "2"],
        vec!["list", "--type", "order", "--status", "waiting_signal"],
        vec!["list", "--tasks"],
        vec!["list", "--tasks", "--type", "mail", "--queue", "slow"],
        vec!["list", "--tasks", "--type", "mail"],
        vec!["list", "--after", "here"],
        vec!["list", "--type", "a b"],
        vec!["inbox"],
        vec!["inbox", "approval", "--limit", "1"],
        vec!["inbox", "nothing"],
        vec!["inbox", "--after", "here"],
        vec!["signals", "a", "payment"],
        vec!["signals", "a", "other"],
        vec!["history", "a", "--from", "2", "--limit", "1"],
        vec!["history", "done", "--follow"],
        vec!["history", "done", "--follow", "--from", "2", "--limit", "1"],
        vec!["history", "done", "--follow", "--from", "99"],
        vec!["signal", "none", "approval"],
        vec!["signal", task, "approval"],
        vec!["signal", "done", "approval"],
        vec!["signal", "done", "approval", "--wait", "1s"],
        vec!["signal", "a", "nothing", "--only-if-waiting"],
        vec!["signal", "a", "approval", "--point", "elsewhere"],
        vec!["signal", "s", "approval", "{\"yes\": 1}"],
        vec!["signal", "a", "approval", "--by", ""],
        vec!["signal", "new", "approval", "--start", "a b"],
        vec!["signal", "--all-waiting", "approval", "7", "--dry-run"],
        vec!["signal", "--all-waiting", "nothing"],
        vec!["signal", "--all-waiting", "approval", "{\"yes\": 1}", "--type", "strict"],
        vec!["start", "a b"],
        vec!["start", "order", "--id", "a/b"],
        vec!["start", "order", "1", "--id", "a"],
        vec!["start", "burn", "{\"n\":1}", "--id", "burnt", "--wait"],
        vec!["start", "order", "{}", "--id", "a", "--wait", "--timeout", "50ms"],
        vec!["task", "submit", "mail", "--key", "m"],
        vec!["task", "submit", "a b"],
        vec!["task", "submit", "mail", "--queue", "a b"],
        vec!["task", "status", task],
        vec!["task", "status", "a"],
        vec!["task", "cancel", "none"],
        vec!["cancel", "done"],
        vec!["pause", "done"],
        vec!["pause", "held"],
        vec!["restart", "burnt", "--from", "elsewhere"],
        vec!["migrate", "held", "--to", "xyz"],
        vec!["migrate", "held", "--rename", "a b=c"],
        vec!["prune", "--older-than", "0s", "--dry-run"],
        vec!["sweep", "--dry-run"],
    ]);
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_prints_the_same_on_the_store_and_through_the_server() {
    let place = Place::served().await;
    fill(&place).await;
    let tasks = place.json_lines(&["list", "--tasks", "--type", "large"]);
    let task = tasks[0]["id"].as_str().unwrap().to_owned();
    for call in calls(&task) {
        for json in [&[][..], &["--json"]] {
            let call = [&call[..], json].concat();
            let direct = wigwag(place.0.path(), &call);
            let served = place.run(&call);
            let seen = |output: &Output| {
                (output.status.code(), timeless(&text(&output.stdout)), timeless(&text(&output.stderr)))
            };
            assert_eq!(seen(&served), seen(&direct), "{call:?}");
        }
    }
    let large = place.json_lines(&["steps", "a"]);
    assert_eq!(large[0]["result"].as_str().unwrap().len(), 40_000, "whole, wherever it is kept");
    assert_eq!(place.json(&["status", "later"])["input"].as_str().unwrap().len(), 50_000);
    assert!(place.good(&["signals", "a"]).contains("12345678901234567890123"), "numbers are passed on as they came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_lead_to_the_server_that_was_named() {
    let place = Place::served().await;
    let url = place.url();
    let named = |args: &[&str]| wigwag(place.0.path(), &[args, &["--server", &url]].concat());
    assert_eq!(good(&named(&["start", "order", "--id", "a"])), "a\n");
    good(&named(&["start", "order", "--id", "b"]));
    let page = named(&["list", "--limit", "1"]);
    assert!(text(&page.stderr).contains(&format!(" --after live/order/a --server {url}`")), "{}", text(&page.stderr));
    bad(&named(&["resume", "a"]), 4, "is not paused", &format!("`wigwag status a --server {url}`"));
    bad(&named(&["status", "x"]), 3, "run not found: `x`", &format!("`wigwag list --tasks --server {url}`"));
    let mut away = place.command(&["status", "x", "--store", "./.wigwag"]);
    bad(&away.output().unwrap(), 3, "run not found: `x`", "`wigwag list --store ./.wigwag`");
    let at_one_place = wigwag(place.0.path(), &["--server", &format!("{url}/"), "list", "--json"]);
    assert_eq!(text(&at_one_place.stdout).lines().count(), 2, "a slash at the end is no matter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_and_a_server_do_not_go_together_and_a_flag_beats_the_environment() {
    let place = Place::served().await;
    let url = place.url();
    place.good(&["start", "order", "--id", "served"]);
    let folder = place.0.path();
    good(&wigwag(folder, &["start", "order", "--id", "other", "--store", "other"]));
    let ids = |output: &Output| text(&output.stdout).split_whitespace().next().map(str::to_owned);
    let both = wigwag(folder, &["list", "--store", "other", "--server", &url]);
    bad(
        &both,
        2,
        &format!("`--store` and `--server` are mutually exclusive: `other` and `{url}`"),
        "use only one of them",
    );
    let flag =
        |args: &[&str], variable: &str, value: &str| command(folder, args).env(variable, value).output().unwrap();
    assert_eq!(ids(&flag(&["list", "--store", "other"], "WIGWAG_SERVER", &url)).unwrap(), "other");
    assert_eq!(ids(&flag(&["list", "--server", &url], "WIGWAG_STORE", "other")).unwrap(), "served");
    let set = place.command(&["list"]).env("WIGWAG_STORE", "other").output().unwrap();
    bad(&set, 2, "`WIGWAG_STORE` and `WIGWAG_SERVER` are both set", "unset one of them");
    for args in [&["ls"][..], &["cat", "wigwag.json"], &["doctor"]] {
        bad(
            &place.run(args),
            2,
            &format!("this command needs direct access to a store, got server: `{url}`"),
            "`--store URL`",
        );
    }
    bad(&wigwag(folder, &["list", "--server", "ftp://x"]), 2, "invalid server URL", "https://");
    let region = wigwag(folder, &["list", "--server", &url, "--region", "here"]);
    bad(&region, 2, "`--region` applies to a bucket", "omit it");
    bad(&wigwag(folder, &["list", "--token-file", "t"]), 2, "`--token-file` needs `--server`", "`--server URL`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_makes_and_reads_links_with_its_own_secret() {
    let place = Place::served().await;
    place.good(&["start", "order", "--id", "o"]);
    let link = ["link", "o", "approval", "--expires", "2d"];
    let url = place.good(&link);
    assert!(url.starts_with(&format!("{}/v1/links/", place.url())), "{url}");
    let said = place.good(&["link", "--verify", url.trim_end()]);
    assert!(said.starts_with("run          o\nsignal       approval\nexpires      20"), "{said}");
    let public = [&link[..], &["--once", "--public-url", "https://wigwag.example.com/"]].concat();
    let made = place.json(&public);
    let token = made["token"].as_str().unwrap();
    assert_eq!(made["url"], format!("https://wigwag.example.com/v1/links/{token}"));
    let on_store = command(place.0.path(), &[&public[..], &["--json"]].concat())
        .env("WIGWAG_LINK_SECRET", "a secret of the tests")
        .output()
        .unwrap();
    let on_store: Value = serde_json::from_str(&good(&on_store)).unwrap();
    let names = |made: &Value| made.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&on_store), names(&made), "made by either, it looks the same");
    for token in [on_store["token"].as_str().unwrap(), token] {
        assert!(place.good(&["link", "--verify", token]).ends_with("uses         once\n"));
    }
    for wrong in ["x.y", "..", ".", "a/../b", "ü.x", ""] {
        bad(
            &place.run(&["link", "--verify", wrong]),
            2,
            "this link is not valid",
            "a different secret than the server's",
        );
    }
    bad(&place.run(&["link", "none", "approval", "--expires", "2d"]), 3, "run not found: `none`", "wigwag list");
    bad(&place.run(&["link", "a/b", "approval", "--expires", "2d"]), 2, "not an id", "wigwag list");
    bad(&place.run(&["link", "o", "approval"]), 2, "missing RUN, NAME or `--expires`", "`link RUN NAME --expires 2d`");
}

fn tokens() -> Auth {
    let known = |auth: Auth, name: &str, scope: &str| {
        auth.token(name, &format!("token-of-{name}-0123456789"), [scope.parse::<Scope>().unwrap()]).unwrap()
    };
    let auth = known(Auth::new(), "reader", "runs:read");
    let auth = known(auth, "tasker", "tasks");
    known(auth, "admin", "admin")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_tokens_names_the_missing_scope() {
    let place = Place::served_with(|server| server.auth(tokens())).await;
    let url = place.url();
    let with = |token: &str, args: &[&str]| place.command(args).env("WIGWAG_TOKEN", token).output().unwrap();
    bad(
        &place.run(&["list"]),
        1,
        &format!("`{url}` requires a token"),
        "set `WIGWAG_TOKEN`, or use `--token-file FILE`",
    );
    bad(&with("wrong", &["list"]), 1, "the token is unknown or expired", "check the token in `WIGWAG_TOKEN`");
    bad(&with("two words", &["list"]), 2, "`WIGWAG_TOKEN` does not contain a valid token", "without spaces");
    assert_eq!(good(&with("token-of-admin-0123456789", &["start", "order", "--id", "o"])), "o\n");
    let reader = "token-of-reader-0123456789";
    assert!(good(&with(reader, &["status", "o"])).contains("status      pending\n"));
    let refused = with(reader, &["start", "order"]);
    bad(&refused, 1, "the token lacks the scope `runs:write`", "the token in `WIGWAG_TOKEN` lacks the required scope");
    bad(
        &with(reader, &["prune", "--older-than", "1d"]),
        1,
        "the token lacks the scope `admin`",
        "lacks the required scope",
    );
    bad(&with(reader, &["status", "none"]), 3, "run not found: `none`", "wigwag list");
    let tasker = "token-of-tasker-0123456789";
    let task = good(&with(tasker, &["task", "submit", "mail"]));
    assert!(
        good(&with(tasker, &["status", task.trim_end()])).contains("task in queue"),
        "it finds the runs that it may read"
    );
    bad(&with(tasker, &["status", "none"]), 3, "task not found: `none`", "wigwag list");
    let file = place.0.path().join("token");
    std::fs::write(&file, format!("{reader}\n")).unwrap();
    let by_file = ["--token-file", "token", "status", "none"];
    let output = with("wrong", &by_file);
    bad(&output, 3, "run not found: `none`", "`wigwag list --token-file token`");
    assert!(!text(&output.stderr).contains(reader), "a token is not shown");
    std::fs::write(&file, "").unwrap();
    bad(&place.run(&by_file), 2, "`token` does not contain a valid token", "ASCII letters");
    bad(&place.run(&["--token-file", "nowhere", "list"]), 2, "cannot read `nowhere`", "contains only a token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tls_server_is_trusted_only_with_a_known_certificate() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = Tls::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
    let place = Place::served_with(|server| server.tls(tls)).await;
    let url = format!("https://localhost:{}", place.1.as_ref().unwrap().addr().port());
    std::fs::write(place.0.path().join("root.pem"), &pem).unwrap();
    let ask = |root: &str| {
        let mut list = command(place.0.path(), &["start", "order", "--id", "o", "--server", &url]);
        list.env("SSL_CERT_FILE", place.0.path().join(root)).output().unwrap()
    };
    assert_eq!(good(&ask("root.pem")), "o\n");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(place.0.path().join("other.pem"), other.cert.pem()).unwrap();
    bad(&ask("other.pem"), 1, &format!("cannot reach `{url}`: invalid peer certificate"), "its URL");
}

/// Starts a server, not of wigwag, that gives the same answer to each request.
fn stranger(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_missing_or_foreign_server_is_reported_with_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |url: &str| wigwag(folder.path(), &["list", "--server", url]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    bad(&ask(&gone), 1, &format!("cannot reach `{gone}`"), "check that the server is running");
    let start = wigwag(folder.path(), &["start", "order", "--server", &gone]);
    bad(&start, 1, "cannot reach", "use `--store` to work without a server");
    assert!(!folder.path().join(".wigwag").exists(), "no store is made instead");
    let page = stranger(
        "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 24\r\n\r\n<html>\x1b[2Jtoo busy</html>",
    );
    let output = ask(&page);
    bad(&output, 1, &format!("unexpected response from `{page}`: 502 Bad Gateway with text/html"), "/v1/health");
    assert!(!text(&output.stderr).contains('\u{1b}'), "foreign text cannot control the terminal");
    let odd = stranger("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]");
    bad(&ask(&odd), 1, &format!("cannot read the response of `{odd}`"), "a different version");
    let moved = stranger("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n");
    bad(&ask(&moved), 1, "unexpected response from", "check the URL");
    let short = stranger("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{");
    bad(&ask(&short), 1, &format!("lost the connection to `{short}`"), "try again later");
    bad(&ask("http://ada:secret@127.0.0.1"), 2, "invalid server URL", "http://127.0.0.1:7070");
}

/// Starts a proxy in front of a server that drops the first answers to POSTs.
fn lossy(server: SocketAddr, lost: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let posts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&posts);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (client, server) = (stream.unwrap(), TcpStream::connect(server).unwrap());
            let (back, lose) =
                ((server.try_clone().unwrap(), client.try_clone().unwrap()), Arc::new(AtomicBool::new(false)));
            let (seen, is_lost) = (Arc::clone(&seen), Arc::clone(&lose));
            std::thread::spawn(move || {
                relay(client, server, |part| {
                    let is_lost = part.starts_with(b"POST") && seen.fetch_add(1, Ordering::SeqCst) < lost;
                    lose.fetch_or(is_lost, Ordering::SeqCst);
                    true
                })
            });
            // The server has carried out the request, but the client gets no answer.
            std::thread::spawn(move || relay(back.0, back.1, |_| !is_lost.load(Ordering::SeqCst)));
        }
    });
    (url, posts)
}

/// Forwards bytes until `may_pass` returns false.
fn relay(mut from: TcpStream, mut to: TcpStream, mut may_pass: impl FnMut(&[u8]) -> bool) {
    let mut part = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut part) {
        if !may_pass(&part[..count]) || to.write_all(&part[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_retried_after_a_lost_answer_takes_effect_once() {
    let place = Place::served().await;
    let server = place.1.as_ref().unwrap().addr();
    let calls: [&[&str]; 4] = [
        &["start", "order"],
        &["task", "submit", "mail"],
        &["signal", "o", "approval"],
        &["signal", "o", "approval", "--key", "click ü"],
    ];
    place.good(&["start", "order", "--id", "o"]);
    for call in calls {
        let (url, posts) = lossy(server, 2);
        let said = good(&wigwag(place.0.path(), &[call, &["--server", &url]].concat()));
        assert!(!said.is_empty() && posts.load(Ordering::SeqCst) == 3, "{call:?}: {said}");
    }
    assert_eq!(place.json_lines(&["list"]).len(), 2, "one run beside `o`");
    assert_eq!(place.json_lines(&["list", "--tasks"]).len(), 1);
    assert_eq!(place.json_lines(&["signals", "o"]).len(), 2);
    // A request that is not idempotent is not retried, and the user is informed.
    let (url, posts) = lossy(server, 1);
    let paused = wigwag(place.0.path(), &["pause", "o", "--server", &url]);
    bad(&paused, 1, "lost the connection", "the request may have succeeded");
    assert_eq!(posts.load(Ordering::SeqCst), 1);
}

/// A server in a separate process that can be killed.
struct Served(Child, SocketAddr);

impl Served {
    fn start(place: &Place, addr: SocketAddr) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_server_for_the_tests_beside_it", "--ignored", "--nocapture"])
            .env("WIGWAG_TEST_STORE", place.0.path().join(".wigwag"))
            .env("WIGWAG_TEST_ADDR", addr.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut lines = said.lines().map(Result::unwrap);
        let line = lines.find_map(|line| line.split("listens on ").nth(1).map(str::to_owned));
        Self(child, line.unwrap().trim().parse().unwrap())
    }

    /// Kills the server. A failed test drops it, which kills it too.
    fn kill(self) {
        drop(self);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "it is a process that other tests start and kill"]
async fn a_server_for_the_tests_beside_it() {
    let Ok(store) = std::env::var("WIGWAG_TEST_STORE") else { return };
    let client = wigwag::Engine::open(&store).unwrap().client().await.unwrap();
    let addr = std::env::var("WIGWAG_TEST_ADDR").unwrap().parse().unwrap();
    let server = Server::builder(client).bind(addr).start().await.unwrap();
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listens on {}", server.addr()).unwrap();
    stdout.flush().unwrap();
    std::future::pending::<()>().await;
}

/// Waits for `count` items in sequence.
async fn gather(ctx: Ctx, count: u64) -> Result<u64, Failure> {
    for _ in 0..count {
        ctx.wait::<Value>("item").await?;
    }
    Ok(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_loses_nothing_when_the_server_is_killed_and_restarted() {
    let place = Place::new();
    let engine = place.builder().function("gather", 1, gather).start().await.unwrap();
    let run = engine.client().start("gather", &44_u64).id("g").await.unwrap();
    let mut served = Served::start(&place, ([127, 0, 0, 1], 0).into());
    let addr = served.1;
    let url = format!("http://{addr}");
    for flags in [&[][..], &["--json"]] {
        let args = [&["history", "g", "--follow", "--server", &url], flags].concat();
        let mut follower =
            command(place.0.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
        let mut seen = vec![lines.next().unwrap().unwrap()];
        for round in 0..2 {
            for number in 0..10 {
                run.signal("item", &(round * 10 + number)).await.unwrap();
            }
            // In the middle of the log: some events have arrived, and more follow.
            let until = seen.len() + 5;
            seen.extend(lines.by_ref().map(Result::unwrap).take(until - seen.len()));
            served.kill();
            // The run continues while the server is down; the last item ends it.
            run.signal("item", &round).await.unwrap();
            served = Served::start(&place, addr);
        }
        if !flags.is_empty() {
            run.wait().await.unwrap();
        } else {
            // The first follower is dropped; the second sees the end.
            let known = text(&wigwag(place.0.path(), &["history", "g"]).stdout);
            let known: Vec<&str> = known.lines().collect();
            seen.extend(lines.by_ref().map(Result::unwrap).take(known.len().saturating_sub(seen.len())));
            assert_eq!(seen[..known.len()], known[..], "nothing is lost or repeated");
            follower.kill().unwrap();
            follower.wait().unwrap();
            continue;
        }
        seen.extend(lines.map(Result::unwrap));
        let output = follower.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lost = text(&output.stderr).matches(&format!("lost the connection to `{url}`")).count();
        // A server that is killed twice during a reconnect counts as lost once.
        assert!((1..=2).contains(&lost), "{}", text(&output.stderr));
        let all =
            text(&wigwag(place.0.path(), &args[..2].iter().copied().chain(["--json"]).collect::<Vec<_>>()).stdout);
        assert_eq!(seen, all.lines().collect::<Vec<_>>(), "nothing is lost or repeated");
    }
    served.kill();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_in_good_order_is_waited_for() {
    let mut place = Place::served().await;
    let addr = place.1.as_ref().unwrap().addr();
    let engine = place.builder().function("gather", 1, gather).start().await.unwrap();
    let run = engine.client().start("gather", &1_u64).id("g").await.unwrap();
    let mut follower = place.command(&["history", "g", "--follow"]);
    let mut follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    place.1.take().unwrap().stop().await;
    run.signal("item", &1).await.unwrap();
    run.wait().await.unwrap();
    let client = place.builder().client().await.unwrap();
    place.1 = Some(Server::builder(client).bind(addr).start().await.unwrap());
    let seen: Vec<String> = [Ok(first)].into_iter().chain(lines).map(Result::unwrap).collect();
    assert_eq!(seen, place.good(&["history", "g"]).lines().collect::<Vec<_>>());
    engine.stop().await;
    assert!(follower.wait().unwrap().success());
}

#[test]
fn each_shell_gets_its_completions() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, word) in [
        ("bash", "complete -F _wigwag"),
        ("zsh", "#compdef wigwag"),
        ("fish", "complete -c wigwag"),
        ("elvish", "edit:completion:arg-completer[wigwag]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = good(&wigwag(folder.path(), &["completions", shell]));
        assert!(script.contains(word) && script.contains("all-waiting"), "{shell}");
    }
    assert_eq!(wigwag(folder.path(), &["completions", "tcsh"]).status.code(), Some(2));
    let script = good(&wigwag(folder.path(), &["completions", "bash"]));
    std::fs::write(folder.path().join("wigwag.bash"), script).unwrap();
    let line = "source wigwag.bash && COMP_WORDS=(wigwag hist) COMP_CWORD=1 && _wigwag wigwag hist wigwag && echo ${COMPREPLY[*]}";
    let Ok(output) = Command::new("bash").args(["-c", line]).current_dir(folder.path()).output() else { return };
    assert_eq!(text(&output.stdout).trim(), "history", "{}", text(&output.stderr));
}
