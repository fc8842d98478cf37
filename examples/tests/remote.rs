//! A server and a worker in two processes that share nothing but HTTP.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stdout, reason = "the test prints its measurements")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag_examples::remote_worker::Greeting;
use wigwag_store::{Clock as _, System};

/// Poll interval of the worker without notifications.
const LOOK_SECONDS: u64 = 2;

/// A child process, killed at the end of the test.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn start(program: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE"] {
            command.env_remove(name);
        }
        let mut child = command.args(args).envs(env.iter().copied()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Reads the next line of its output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended without output: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    /// Kills it with a signal that cannot be caught.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Server {
    process: Process,
    http: reqwest::Client,
    /// URL of its store.
    store: String,
}

impl Server {
    fn start(folder: &Path, addr: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_remote_server");
        let mut process = Process::start(program, &[folder.to_str().unwrap(), addr], &[]);
        let store = process.line();
        // Another test may have installed it first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { process, http: reqwest::Client::builder().no_proxy().build().unwrap(), store }
    }

    fn addr(&self) -> &str {
        self.store.trim_start_matches("http://").trim_end_matches("/s3")
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr())
    }

    /// Starts a worker that gets notifications from the server, or one that treats it as any other bucket.
    fn worker(&self, nudged: bool) -> Process {
        let program = env!("CARGO_BIN_EXE_remote_worker");
        let seconds = LOOK_SECONDS.to_string();
        let keys = [("AWS_ACCESS_KEY_ID", "wigwag"), ("AWS_SECRET_ACCESS_KEY", "wigwag")];
        let bucket = [keys[0], keys[1], ("AWS_ENDPOINT_URL", self.store.as_str())];
        let mut worker = match nudged {
            true => Process::start(program, &[&self.store, &seconds], &[]),
            false => Process::start(program, &["s3://wigwag", &seconds], &bucket),
        };
        assert_eq!(worker.line(), "works");
        worker
    }

    /// Starts a run; returns whether the start was acknowledged.
    async fn start_run(&self, id: &str) -> bool {
        let body = json!({"type": "greet", "id": id, "input": id}).to_string();
        let request = self.http.post(self.url("/v1/runs")).header("content-type", "application/json").body(body);
        request.send().await.is_ok_and(|response| response.status() == 201)
    }

    /// Waits for the result of a run, without a time limit.
    async fn result(&self, id: &str) -> Greeting {
        loop {
            let asked = self.http.get(self.url(&format!("/v1/runs/{id}/result?timeout=20s"))).send().await.unwrap();
            match asked.status().as_u16() {
                200 => return serde_json::from_str(&asked.text().await.unwrap()).unwrap(),
                504 => {}
                status => panic!("{status}: {}", asked.text().await.unwrap()),
            }
        }
    }

    /// Returns the median time from a start request to the first step of the run.
    async fn dispatch(&self, name: &str, count: usize) -> Duration {
        let mut spans = Vec::new();
        for number in 0..count {
            let id = format!("{name}-{number}");
            let asked = System.wall();
            assert!(self.start_run(&id).await);
            let greeting = self.result(&id).await;
            assert_eq!(greeting.text, format!("hello {id}"));
            spans.push(Duration::from_micros(greeting.began.saturating_sub(asked.micros())));
        }
        spans.sort_unstable();
        spans[count / 2]
    }

    /// Returns how often the store was listed.
    async fn lists(&self) -> u64 {
        let text = self.http.get(self.url("/metrics")).send().await.unwrap().text().await.unwrap();
        let lists =
            text.lines().filter(|line| line.starts_with("wigwag_s3_requests_total{operation=\"ListObjectsV2\""));
        lists.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_a_notified_worker_starts_immediately_and_does_not_poll() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), "127.0.0.1:0");

    let mut polling = server.worker(false);
    let by_looking = server.dispatch("polled", 7).await;
    // An idle worker keeps polling: measure how long three polls take.
    let (before, began) = (server.lists().await, System.boot());
    while server.lists().await < before + 3 {
        System.sleep(Duration::from_millis(50)).await;
    }
    let three_looks = System.boot().saturating_sub(began);
    polling.kill();

    let _nudged = server.worker(true);
    let by_nudges = server.dispatch("nudged", 50).await;
    let before = server.lists().await;
    System.sleep(three_looks).await;
    let looks = server.lists().await - before;
    println!("dispatch {by_nudges:?} nudged, {by_looking:?} by looking; {looks} looks in {three_looks:?}, against 3");
    assert!(looks <= 1, "{looks} looks in the time in which it makes 3 without nudges");
    assert!(by_nudges * 4 < by_looking, "{by_nudges:?} against {by_looking:?}");
    assert!(by_nudges * 4 < Duration::from_secs(LOOK_SECONDS), "{by_nudges:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_a_worker_survives_its_server_and_completes_acknowledged_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), "127.0.0.1:0");
    let mut worker = server.worker(true);
    let mut acknowledged = Vec::new();
    for round in 0..2 {
        for number in 0..20 {
            let id = format!("run-{round}-{number}");
            if server.start_run(&id).await {
                acknowledged.push(id);
            }
        }
        // Most of these are in progress.
        let addr = server.addr().to_owned();
        server.process.kill();
        server = Server::start(folder.path(), &addr);
    }
    assert_eq!(acknowledged.len(), 40);
    for id in &acknowledged {
        assert_eq!(server.result(id).await.text, format!("hello {id}"));
    }
    let after = server.dispatch("after", 5).await;
    println!("dispatch {after:?} after the restarts");
    assert!(worker.child.try_wait().unwrap().is_none(), "it is the same worker");
    let listed = server.http.get(server.url("/v1/runs?limit=1000")).send().await.unwrap().text().await.unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(listed["items"].as_array().unwrap().iter().all(|run| run["status"] == "completed"), "{listed}");
}
