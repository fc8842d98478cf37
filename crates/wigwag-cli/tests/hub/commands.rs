//! `wigwag hub` as a user runs it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use wigwag_hub_client::Client;
use wigwag_server::{Auth, Scope, Tls};

use crate::common::{bad, command, good, text, wigwag};
use crate::place::Place;
use crate::process::Serving;

/// A `hub listen` that runs until it is dropped.
struct Listening {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Listening {
    /// Starts the command and waits until it is listening.
    #[track_caller]
    fn start(place: &Place, args: &[&str]) -> Self {
        Self::spawn(place.command(&[&["hub", "listen"], args].concat()))
    }

    #[track_caller]
    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        let mut listening = Self { child, out, err };
        let said = listening.said();
        assert!(said.starts_with("listening as `@("), "{said}");
        listening
    }

    /// Returns the next line of standard error.
    fn said(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).unwrap();
        line
    }

    /// Returns the next message.
    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended: {}", self.said());
        line.trim_end().to_owned()
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_sent_received_and_acknowledged() {
    let place = Place::served().await;
    let mut listening = Listening::start(&place, &["@(worker/a)", "--capability", "print"]);
    let said = place.good(&["hub", "send", "@(worker/a)", "job:run", "{\"n\": 1}", "--from", "@(page/1)"]);
    assert_eq!(said, "`job:run` delivered to `@(worker/a)`\n");
    let line = listening.line();
    assert!(line.ends_with("  @(page/1) -> @(worker/a)  job:run  {\"n\": 1}"), "{line}");
    let said = place.good(&["hub", "send", "@(worker/a)", "job:run", "--require-ack"]);
    assert_eq!(said, "`job:run` acknowledged by `@(worker/a)`\n");
    listening.line();
    let said = place.good(&["hub", "send", "@(worker/a)", "job:run", "--tell"]);
    assert_eq!(said, "`job:run` sent to `@(worker/a)` without a receipt\n");
    listening.line();
    let sent = place.json(&["hub", "send", "@(worker/a)", "job:run", "12345678901234567890123"]);
    assert_eq!((&sent["status"], &sent["to"]), (&json!("delivered"), &json!("@(worker/a)")));
    assert!(listening.line().ends_with("  12345678901234567890123"));
    let actors = place.good(&["hub", "actors"]);
    assert!(actors.starts_with("@(worker/a)  print  1  "), "{actors}");
    let actors = place.json_lines(&["hub", "actors", "@(worker/*)", "--capability", "print"]);
    assert_eq!((actors.len(), &actors[0]["actorAddress"]), (1, &json!("@(worker/a)")));
    let none = place.run(&["hub", "actors", "@(page/*)"]);
    assert_eq!((text(&none.stdout), text(&none.stderr)), (String::new(), "no actors\n".into()));
    drop(listening);
    let mut said = String::new();
    while !said.contains("queued until") {
        // After a kill, its registration remains until the server detects the disconnect.
        said = place.good(&["hub", "send", "@(worker/a)", "job:later"]);
    }
    let mut listening = Listening::start(&place, &["@(worker/a)", "--json", "--limit", "1"]);
    assert_eq!(listening.json()["type"], "job:later");
    assert_eq!(listening.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_published_received_and_resumed() {
    let place = Place::served().await;
    let mut listening = Listening::start(&place, &["--topic", "orders/new", "--json"]);
    let said = place.good(&["hub", "publish", "orders/new", "order:new", "{\"id\": 17}"]);
    assert!(
        said.starts_with("`order:new` published to `orders/new` at ") && said.ends_with(":1 (1 subscriber)\n"),
        "{said}"
    );
    let heard = listening.json();
    assert_eq!((&heard["type"], &heard["data"], &heard["seq"]), (&json!("order:new"), &json!({"id": 17}), &json!(1)));
    let published = place.json(&["hub", "publish", "orders/new", "order:new"]);
    assert_eq!((&published["seq"], &published["epoch"]), (&json!(2), &heard["epoch"]));
    let after = format!("{}:1", heard["epoch"]);
    let mut later = Listening::start(&place, &["--topic", "orders/new", "--after", &after, "--limit", "1"]);
    let line = later.line();
    assert!(line.contains(&format!("-> @(topic/orders/new)  {}:2  order:new  null", heard["epoch"])), "{line}");
    let mut anew = Listening::start(&place, &["--topic", "orders/new", "--after", "1:1", "--json", "--limit", "1"]);
    assert_eq!(anew.json()["gap"], json!({"topic": "orders/new", "epoch": heard["epoch"], "from": null, "to": 0}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_is_waited_for_and_printed() {
    let place = Place::served().await;
    let url = place.url().replace("http://", "ws://") + "/hub";
    let worker = Client::connect(url).register("@(worker/a)", ["add"]).await.unwrap();
    let mut messages = worker.messages();
    tokio::spawn(async move {
        while let Some(message) = messages.next().await {
            let (a, b): (i64, i64) = message.data().unwrap();
            message.reply("sum", &(a + b)).await.unwrap();
        }
    });
    let said = place.good(&["hub", "send", "@(worker/a)", "add", "[2, 3]", "--reply", "--ttl", "20s"]);
    assert_eq!(said, "5\n");
    let reply = place.json(&["hub", "send", "@(worker/a)", "add", "[2, 4]", "--reply"]);
    assert_eq!((&reply["data"], &reply["from"], &reply["type"]), (&json!(6), &json!("@(worker/a)"), &json!("sum")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_address_is_taken_over_ends_with_an_error() {
    let place = Place::served().await;
    let mut first = Listening::start(&place, &["@(worker/a)"]);
    let _second = Listening::start(&place, &["@(worker/a)"]);
    assert_eq!(first.code(), Some(4));
    let said = first.said();
    assert!(said.starts_with("error: another session registered an address of this client (@(worker/a))"), "{said}");
    assert!(first.said().starts_with("hint: the newest registration wins"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_invalid_call_is_an_error_with_a_hint() {
    let place = Place::served().await;
    let run = |args: &[&str]| place.run(&[&["hub"], args].concat());
    bad(&run(&["send", "worker", "job"]), 2, "invalid address: `worker`", "use the form `@(worker/a)`");
    bad(&run(&["send", "@(worker/a)", "job", "ada"]), 2, "invalid DATA: `ada`", "DATA is JSON");
    bad(&run(&["send", "@(nobody)", "job"]), 3, "@(nobody)", "");
    bad(&run(&["send", "@(a)", "job", "--id", ""]), 2, "invalid id: want 1 to 128 bytes, got: 0", "the same id");
    bad(&run(&["send", "@(workflow/none)", "job"]), 3, "none", "");
    bad(&run(&["listen", "worker"]), 2, "invalid address: `worker`", "use the form `@(worker/a)`");
    bad(&run(&["listen", "@(hub)"]), 1, "@(hub)", "");
    bad(&run(&["listen", "--topic", "a b"]), 2, "invalid topic: `a b`", "use the form `orders/new`");
    let two = ["listen", "--topic", "a", "--topic", "b", "--after", "1:1"];
    bad(&run(&two), 2, "`--after` needs exactly one `--topic`", "one `hub listen` per topic");
    bad(&run(&["publish", "@(a)", "job"]), 2, "invalid topic: `@(a)`", "use the form `orders/new`");
    bad(&run(&["publish", "runs", "job"]), 1, "runs", "");
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    std::fs::write(place.0.path().join("large.json"), large).unwrap();
    assert_eq!(run(&["send", "@(a)", "job", "@large.json"]).status.code(), Some(2));
    assert_eq!(run(&["listen", "--after", "1:1"]).status.code(), Some(2));
    assert_eq!(run(&["listen", "--topic", "a", "--after", "soon"]).status.code(), Some(2));
    assert_eq!(run(&["send", "@(a)", "job", "--tell", "--reply"]).status.code(), Some(2));
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    for args in [&["send", "@(a)", "job"][..], &["listen"], &["publish", "a", "b"], &["actors"]] {
        let args = [&["hub"], args, &["--server", &url]].concat();
        let output = wigwag(folder.path(), &args);
        bad(&output, 1, &format!("cannot reach `{}/hub`: ", url.replace("http", "ws")), "`--server`");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_wanted_wrong_or_too_weak() {
    let scopes = ["hub:own:@(worker/*)"].map(|scope| scope.parse::<Scope>().unwrap());
    let auth = Auth::new().token("ci", "a-good-token-0123456789", scopes).unwrap();
    let place = Place::served_with(|server| server.auth(auth)).await;
    bad(&place.run(&["hub", "actors"]), 1, "requires a token", "set `WIGWAG_TOKEN`");
    let with = |token: &str, args: &[&str]| place.command(args).env("WIGWAG_TOKEN", token).output().unwrap();
    bad(
        &with("a-bad-token-0123456789", &["hub", "actors"]),
        1,
        "denied the request",
        "check the token in `WIGWAG_TOKEN`",
    );
    bad(&with("a-good-token-0123456789", &["hub", "listen", "@(page/1)"]), 1, "@(page/1)", "hub:own:");
    assert!(with("a-good-token-0123456789", &["hub", "actors"]).status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_works_over_tls_and_rejects_unknown_certificates() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (pem, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let tls = Tls::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
    let place = Place::served_with(|server| server.tls(tls)).await;
    std::fs::write(place.0.path().join("root.pem"), pem).unwrap();
    let url = place.url().replace("http://127.0.0.1", "https://localhost");
    let publish = |root: &str| {
        let mut command = place.command(&["hub", "publish", "orders", "order:new"]);
        command.env("WIGWAG_SERVER", &url);
        command.env("SSL_CERT_FILE", place.0.path().join(root));
        command.output().unwrap()
    };
    let said = good(&publish("root.pem"));
    assert!(said.starts_with("`order:new` published to `orders` at "), "{said}");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(place.0.path().join("other.pem"), other.cert.pem()).unwrap();
    bad(&publish("other.pem"), 1, "invalid peer certificate", "`--server`");
}

#[test]
fn listening_continues_across_a_restart_and_reports_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
    let address = serving.address();
    let url = format!("http://{address}");
    let listen = ["hub", "listen", "@(worker/a)", "--topic", "orders", "--json", "--server", &url];
    let mut listening = Listening::spawn(command(folder.path(), &listen));
    let publish = || good(&wigwag(folder.path(), &["hub", "publish", "orders", "order:new", "--server", &url]));
    publish();
    assert_eq!(listening.json()["seq"], 1);
    serving.stop("-KILL");
    let said = listening.said();
    assert!(said.contains("; reconnecting in "), "{said}");
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", &address]);
    serving.address();
    while listening.said() != "reconnected\n" {}
    assert!(listening.json()["gap"]["from"].is_null(), "the topic started a new epoch");
    publish();
    assert_eq!(listening.json()["seq"], 1);
    let sent = wigwag(folder.path(), &["hub", "send", "@(worker/a)", "job", "--require-ack", "--server", &url]);
    assert_eq!(good(&sent), "`job` acknowledged by `@(worker/a)`\n", "it has its address");
}

#[test]
fn the_log_of_a_run_is_printed_until_the_run_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--demo", "--bind", "127.0.0.1:0"]);
    let url = format!("http://{}", serving.address());
    serving.until(" status order-1");
    let listen = ["hub", "listen", "--topic", "run/order-1", "--json", "--server", &url];
    let mut listening = Listening::spawn(command(folder.path(), &listen));
    assert_eq!(listening.json()["type"], "run:events");
    let approve =
        ["hub", "send", "@(workflow/order-1)", "approval", "{\"approved\": true, \"by\": \"ada\"}", "--server", &url];
    assert_eq!(good(&wigwag(folder.path(), &approve)), "`approval` delivered to `@(workflow/order-1)`\n");
    assert_eq!(listening.code(), Some(0));
    assert!(listening.said().contains("topic `run/order-1` ended: ended"));
}
