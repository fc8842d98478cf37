//! An S3 server that the test kills under load and restarts on the same data.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wigwag_store::{Batch, Bucket, BucketSettings, Clock as _, Store as _, System, conformance};

use crate::faults::{Crew, acknowledged, scene};
use crate::fleet::Told;
use crate::s3;

const RESTARTS: usize = 5;

/// A server process; killed on drop.
struct Server {
    words: Vec<String>,
    log: File,
    process: Child,
    endpoint: String,
}

impl Server {
    /// Starts a server on a folder; `None` with a message if the test is skipped.
    fn start(folder: &Path) -> Option<Self> {
        let Ok(line) = std::env::var("WIGWAG_TEST_SEAWEEDFS_LINE") else {
            conformance::skip("no SeaweedFS to kill; `cargo xtask test` installs it");
            return None;
        };
        let data = folder.join("data");
        std::fs::create_dir_all(&data).unwrap();
        let s3 = free_port();
        let words: Vec<String> = line
            .lines()
            .map(|word| word.replace("{data}", &data.display().to_string()).replace("{s3}", &s3))
            .map(|word| if word.contains("{port}") { word.replace("{port}", &free_port()) } else { word })
            .collect();
        let log = File::create(folder.join("log")).unwrap();
        let process = spawn(&words, &log);
        Some(Self { words, log, process, endpoint: format!("http://127.0.0.1:{s3}") })
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.process = spawn(&self.words, &self.log);
    }

    /// Waits until an object that was put can be read.
    async fn ready(&self) {
        let mut settings = BucketSettings::default();
        settings.endpoint = Some(self.endpoint.clone());
        let bucket = Bucket::open("s3://wigwag", &settings).unwrap();
        let began = Instant::now();
        loop {
            let put = bucket.write(Batch::new().put("ready", "yes")).await;
            match put {
                Ok(_) if bucket.get("ready").await.is_ok_and(|object| object.is_some()) => return,
                _ => assert!(began.elapsed() < Duration::from_secs(60), "the server is not ready: {put:?}"),
            }
            System.sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(words: &[String], log: &File) -> Child {
    Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log.try_clone().unwrap())
        .spawn()
        .unwrap()
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_server_killed_and_restarted_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Server::start(folder.path()) else { return };
    server.ready().await;
    let corner = s3::told(folder.path(), server.endpoint.clone());
    let told = Told { lease: Duration::from_secs(4), takes: Duration::from_millis(20), turns_max: 64, ..corner };
    let told = Told { lanes: 3, pause: Duration::from_millis(300), ..told };
    let mut crew = Crew::start(&told).await;
    for _ in 0..RESTARTS {
        acknowledged(&told.ledger, 20).await;
        server.kill();
        let killed = Instant::now();
        server.start_again();
        acknowledged(&told.ledger, 1).await;
        eprintln!("acknowledged again {:?} after the server was killed", killed.elapsed());
    }
    acknowledged(&told.ledger, 20).await;
    crew.dismiss_clients(&told).await;
    let (_, answered) = scene(&told, &server.endpoint).await.check(&[]).await;
    assert!(answered.signals > 20, "{answered:?}");
}
