//! A server that is stopped or killed under load: acknowledged requests survive, and take effect once.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wigwag_store::{Clock as _, System};

const CLIENTS: usize = 64;

/// Number of answers between two restarts.
const ANSWERS: u64 = 150;

/// Timeout after which a server counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server process, and its successors.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(dir: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wigwag-bench"));
        command.arg("http-server").arg("--dir").arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addr = line.trim().strip_prefix("listening ").unwrap_or_else(|| panic!("it does not start: {line}"));
        Self { url: format!("http://{addr}"), child }
    }

    /// Ends the process with a signal, and waits for its exit.
    fn end(mut self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.success(), signal == Signal::TERM, "{status}");
    }
}

/// State that all clients share.
#[derive(Clone)]
struct Shared {
    http: reqwest::Client,
    url: watch::Receiver<String>,
    answers: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
}

impl Shared {
    /// Retries a request until a server answers without a temporary error.
    async fn ask(&self, path: &str, key: &str, body: &Value) -> (u16, Value) {
        let asking = async {
            loop {
                let url = format!("{}{path}", *self.url.borrow());
                let sent = self.http.post(url).header("idempotency-key", key).json(body).send().await;
                if let Ok(answer) = sent {
                    let status = answer.status().as_u16();
                    // A truncated response counts as no response.
                    if let (true, Ok(body)) = (status < 500, answer.json().await) {
                        self.answers.fetch_add(1, Ordering::SeqCst);
                        return (status, body);
                    }
                }
                System.sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("no answer to `{path}` of `{key}`"))
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", *self.url.borrow());
        let answer = self.http.get(url).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    }
}

/// Starts runs and signals them until stopped. Returns the ids of acknowledged runs.
async fn work(shared: Shared, client: usize) -> Vec<String> {
    let mut runs = Vec::new();
    for round in 0.. {
        if shared.done.load(Ordering::SeqCst) {
            break;
        }
        let key = format!("{client}-{round}");
        let (status, run) = shared.ask("/v1/runs", &key, &json!({"type": "go"})).await;
        assert_eq!(status, 201, "{run}");
        let id = run["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/runs/{id}/signals/go");
        let (status, sent) = shared.ask(&path, &key, &json!({"payload": 42})).await;
        // Even if the first answer was lost, and the signal has already ended the run.
        assert_eq!(status, 200, "{sent}");
        runs.push(id);
    }
    runs
}

/// Checks that a run started once, consumed its signal once, and ended once with it.
async fn check(shared: &Shared, id: &str) {
    assert_eq!(shared.get(&format!("/v1/runs/{id}/result?timeout=55s")).await, 42, "run `{id}`");
    let history = shared.get(&format!("/v1/runs/{id}/history?limit=1000")).await;
    let entries = history["items"].as_array().unwrap().iter();
    let events: Vec<&Value> = entries.flat_map(|entry| entry["events"].as_array().unwrap()).collect();
    for name in ["run.started", "signal.received", "run.completed"] {
        assert_eq!(events.iter().filter(|event| event["type"] == name).count(), 1, "`{name}` of `{id}`: {history}");
    }
    let signals = shared.get(&format!("/v1/runs/{id}/signals")).await;
    assert_eq!(signals["items"].as_array().unwrap().len(), 1, "{signals}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_under_load_loses_nothing_and_does_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let mut server = Server::start(&dir);
    let (tell, url) = watch::channel(server.url.clone());
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let shared = Shared { http, url, answers: Arc::default(), done: Arc::default() };
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(work(shared.clone(), client));
    }
    for signal in [Signal::TERM, Signal::KILL, Signal::KILL, Signal::TERM, Signal::KILL] {
        let wanted = shared.answers.load(Ordering::SeqCst) + ANSWERS;
        while shared.answers.load(Ordering::SeqCst) < wanted {
            assert_eq!(clients.len(), CLIENTS, "a client has given up: {:?}", clients.try_join_next());
            System.sleep(Duration::from_millis(2)).await;
        }
        server.end(signal);
        server = Server::start(&dir);
        tell.send_replace(server.url.clone());
    }
    shared.done.store(true, Ordering::SeqCst);
    let mut runs = 0;
    for id in clients.join_all().await.into_iter().flatten() {
        check(&shared, &id).await;
        runs += 1;
    }
    assert!(runs > CLIENTS, "only {runs} runs were acknowledged");
    server.end(Signal::TERM);
}
