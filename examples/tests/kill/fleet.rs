//! Worker processes that are killed and replaced.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use wigwag::Settings;
use wigwag_store::{OpenSettings, Opened, open};

use super::{ledger, load};

/// What a worker process is told: one line each.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) url: String,
    pub(crate) endpoint: String,
    pub(crate) ledger: PathBuf,
    pub(crate) takes: Duration,
    pub(crate) settings: Settings,
}

const TOLD: &str = "WIGWAG_CRASH";

impl Told {
    fn to_text(&self) -> String {
        let Settings { lease, turns_max, look_max, .. } = self.settings;
        let times = [self.takes, lease, look_max].map(|span| span.as_micros().to_string()).join("\n");
        format!("{}\n{}\n{}\n{times}\n{turns_max}", self.url, self.endpoint, self.ledger.display())
    }

    fn from_env() -> Self {
        let told = std::env::var(TOLD).expect("the test that starts this process says what to do");
        let [url, endpoint, ledger, takes, lease, look_max, turns_max] = told.split('\n').collect::<Vec<_>>()[..]
        else {
            panic!("seven lines: {told}")
        };
        let span = |text: &str| Duration::from_micros(text.parse().unwrap());
        let mut settings = Settings::default();
        (settings.lease, settings.look_max) = (span(lease), span(look_max));
        settings.turns_max = turns_max.parse().unwrap();
        Self { url: url.into(), endpoint: endpoint.into(), ledger: ledger.into(), takes: span(takes), settings }
    }

    /// Opens the store.
    pub(crate) fn open(&self) -> Opened {
        let mut settings = OpenSettings::default();
        if !self.endpoint.is_empty() {
            settings.bucket.endpoint = Some(self.endpoint.clone());
        }
        open(&self.url, &settings).unwrap()
    }
}

/// A worker that was killed: by its process, and when.
pub(crate) type Kill = (u32, u64);

/// Worker processes; killed on drop.
pub(crate) struct Fleet {
    told: Told,
    workers: Vec<Child>,
    pub(crate) kills: Vec<Kill>,
}

impl Fleet {
    pub(crate) fn start(told: Told, count: usize) -> Self {
        let workers = (0..count).map(|_| spawn(&told)).collect();
        Self { told, workers, kills: Vec::new() }
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        self.workers.iter().map(Child::id).collect()
    }

    /// Kills one and starts another in its place; says when it was dead.
    pub(crate) fn replace(&mut self, place: usize) -> u64 {
        let replacement = spawn(&self.told);
        let mut worker = std::mem::replace(&mut self.workers[place], replacement);
        self.end(&mut worker)
    }

    /// Kills one; says when it was dead.
    pub(crate) fn kill(&mut self, process: u32) -> u64 {
        let place = self.workers.iter().position(|worker| worker.id() == process).unwrap();
        let mut worker = self.workers.remove(place);
        self.end(&mut worker)
    }

    pub(crate) fn add(&mut self) {
        self.workers.push(spawn(&self.told));
    }

    fn end(&mut self, worker: &mut Child) -> u64 {
        assert_eq!(worker.try_wait().unwrap(), None, "worker {} ended by itself", worker.id());
        worker.kill().unwrap();
        worker.wait().unwrap();
        let at = ledger::wall();
        self.kills.push((worker.id(), at));
        at
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn spawn(told: &Told) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_works_until_it_is_killed", "--nocapture"])
        .env(TOLD, told.to_text())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// What a worker process does until it is killed, or its parent is gone.
pub(crate) fn work() {
    let told = Told::from_env();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _engine = runtime.block_on(async {
        let builder = load::builder(told.open().store, &told.ledger, told.takes);
        builder.settings(told.settings.clone()).start().await.unwrap()
    });
    let _ = std::io::stdin().read(&mut [0]);
}

/// A folder for ledgers below the test's own.
pub(crate) fn ledger_folder(folder: &Path) -> PathBuf {
    let ledger = folder.join("ledger");
    std::fs::create_dir_all(&ledger).unwrap();
    ledger
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().unwrap();
    assert!(sent.success());
}
