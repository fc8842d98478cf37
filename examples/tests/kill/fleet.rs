//! Worker and client processes that are killed and replaced.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::{Builder, Client, Engine, ErrorKind, Settings};
use wigwag_core::mutation::{Mutation, mutate};
use wigwag_store::{Clock, OpenSettings, Opened, Stamp, System, open};

use super::cases::Kind;
use super::clients::{self, Manner};
use super::{ledger, load};

/// Retry time of a store that does not answer: shorter than the default, so that a client sees the error
/// of an outage soon.
const RETRY_TIME_MAX: Duration = Duration::from_secs(8);

/// Parameters of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) url: String,
    /// Endpoint of the bucket; empty on a disk.
    pub(crate) endpoint: String,
    pub(crate) ledger: PathBuf,
    /// Duration of a step.
    pub(crate) takes: Duration,
    pub(crate) lease: Duration,
    pub(crate) look_max: Duration,
    pub(crate) turns_max: usize,
    /// Whether to use only the kinds of cases that a slow server can handle.
    pub(crate) light: bool,
    pub(crate) lanes: usize,
    pub(crate) pause: Duration,
    /// A file with the offset of the wall clock, if it is stepped.
    pub(crate) off: Option<PathBuf>,
    /// The client's seat; `None` for a worker.
    pub(crate) seat: Option<String>,
}

const TOLD: &str = "WIGWAG_CRASH";

impl Told {
    fn from_env() -> Self {
        let told = std::env::var(TOLD).expect("the parent test sets the parameters of this process");
        serde_json::from_str(&told).unwrap()
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        (settings.lease, settings.look_max, settings.turns_max) = (self.lease, self.look_max, self.turns_max);
        settings
    }

    pub(crate) fn manner(&self) -> Manner {
        let kinds = if self.light { Kind::LIGHT.to_vec() } else { Kind::ALL.to_vec() };
        Manner { ledger: self.ledger.clone(), kinds, lanes: self.lanes, pause: self.pause }
    }

    /// Opens the store.
    pub(crate) fn open(&self) -> Opened {
        let mut settings = OpenSettings::default();
        if !self.endpoint.is_empty() {
            settings.bucket.endpoint = Some(self.endpoint.clone());
        }
        settings.retry.time_max = RETRY_TIME_MAX;
        settings.embedded.clock = self.clock();
        open(&self.url, &settings)
            .unwrap_or_else(|error| panic!("error: {error}\nhint: {}", error.advice().unwrap_or_default()))
    }

    /// Returns the builder of an engine or client, with the same clock as the store.
    pub(crate) fn builder(&self) -> Builder {
        load::builder(self.open().store, &self.ledger, self.takes).settings(self.settings()).clock(self.clock())
    }

    pub(crate) async fn client(&self) -> Client {
        Engine::builder(self.open().store).clock(self.clock()).client().await.unwrap()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        match &self.off {
            Some(off) => Arc::new(Stepped { off: off.clone() }),
            None => Arc::new(System),
        }
    }
}

/// The machine's clock with a wall clock offset by the seconds in a file.
///
/// The real wall clock is shared by all processes of the machine, so it cannot be stepped for some of them.
#[derive(Debug)]
struct Stepped {
    off: PathBuf,
}

#[async_trait::async_trait]
impl Clock for Stepped {
    fn wall(&self) -> Stamp {
        let said = std::fs::read_to_string(&self.off).unwrap_or_default();
        let seconds: i64 = said.trim().parse().unwrap_or_default();
        Stamp::from_micros(System.wall().micros().saturating_add_signed(seconds * 1_000_000))
    }
    fn boot(&self) -> Duration {
        System.boot()
    }
    async fn sleep(&self, span: Duration) {
        System.sleep(span).await;
    }
}

/// Id of a killed process, and the time of its death.
pub(crate) type Kill = (u32, u64);

/// Child processes; killed on drop.
pub(crate) struct Fleet {
    told: Told,
    /// Command prefix that runs this program.
    by: Vec<String>,
    crew: Vec<Member>,
    pub(crate) kills: Vec<Kill>,
}

struct Member {
    seat: Option<String>,
    process: Child,
}

impl Fleet {
    /// Starts this many workers.
    pub(crate) fn start(told: Told, workers: usize) -> Self {
        Self::start_by(told, &[], workers)
    }

    /// Starts workers through another program.
    pub(crate) fn start_by(told: Told, by: &[&str], workers: usize) -> Self {
        let by = by.iter().map(|word| (*word).to_owned()).collect();
        let mut fleet = Self { told, by, crew: Vec::new(), kills: Vec::new() };
        (0..workers).for_each(|_| fleet.add());
        fleet
    }

    /// Adds a worker.
    pub(crate) fn add(&mut self) {
        self.join(None);
    }

    /// Adds a client at a seat.
    pub(crate) fn add_client(&mut self, seat: &str) {
        self.join(Some(seat.to_owned()));
    }

    fn join(&mut self, seat: Option<String>) {
        let process = self.spawn(&Told { seat: seat.clone(), ..self.told.clone() });
        self.crew.push(Member { seat, process });
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        self.crew.iter().map(|member| member.process.id()).collect()
    }

    /// Returns the indexes of the workers, or of the clients.
    pub(crate) fn places(&self, clients: bool) -> Vec<usize> {
        (0..self.crew.len()).filter(|place| self.crew[*place].seat.is_some() == clients).collect()
    }

    /// Waits briefly until a client has a request in progress; workers mostly have.
    pub(crate) async fn catch_at_work(&self, place: usize) {
        let member = &self.crew[place];
        let Some(seat) = &member.seat else { return };
        for _ in 0..300 {
            if clients::is_at_work(&self.told.ledger, seat, member.process.id()) {
                return;
            }
            System.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Kills a process and starts its replacement; returns the time of death.
    pub(crate) fn replace(&mut self, place: usize) -> u64 {
        let seat = self.crew[place].seat.clone();
        // The successor of a client reads its complete log, so it starts after the client's end.
        if seat.is_some() {
            let mut member = self.crew.remove(place);
            let at = self.end(&mut member.process);
            self.join(seat);
            return at;
        }
        let replacement = self.spawn(&self.told);
        let mut worker = std::mem::replace(&mut self.crew[place].process, replacement);
        self.end(&mut worker)
    }

    /// Kills a process; returns the time of death.
    pub(crate) fn kill(&mut self, process: u32) -> u64 {
        let place = self.crew.iter().position(|member| member.process.id() == process).unwrap();
        let mut member = self.crew.remove(place);
        self.end(&mut member.process)
    }

    /// Kills all remaining processes.
    pub(crate) fn kill_all(&mut self) {
        self.processes().into_iter().for_each(|process| _ = self.kill(process));
    }

    /// Starts a worker that is expected to fail; returns its error output.
    pub(crate) fn fail_to_join(&self) -> String {
        let output = self.command(&self.told).stderr(Stdio::piped()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    fn spawn(&self, told: &Told) -> Child {
        self.command(told).spawn().unwrap()
    }

    /// Returns the command of a child process of this program.
    fn command(&self, told: &Told) -> Command {
        let this = std::env::current_exe().unwrap().display().to_string();
        let mut words = self.by.iter().chain([&this]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(["--ignored", "--exact", "child_works_until_it_is_killed", "--nocapture"])
            .env(TOLD, serde_json::to_string(told).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        command
    }

    fn end(&mut self, process: &mut Child) -> u64 {
        assert_eq!(process.try_wait().unwrap(), None, "process {} ended by itself", process.id());
        process.kill().unwrap();
        process.wait().unwrap();
        let at = ledger::wall();
        self.kills.push((process.id(), at));
        at
    }

    /// Lets the clients finish their current cases, and waits for them.
    pub(crate) async fn dismiss_clients(&mut self, within: Duration) {
        std::fs::write(self.told.manner().stop(), "").unwrap();
        let patience = ledger::wall() + u64::try_from(within.as_micros()).unwrap();
        for place in self.places(true).into_iter().rev() {
            let seat = self.crew[place].seat.clone().unwrap();
            let status = loop {
                if let Some(status) = self.crew[place].process.try_wait().unwrap() {
                    break status;
                }
                let last = || clients::notes(&self.told.ledger, &seat).pop();
                assert!(ledger::wall() < patience, "the client at `{seat}` does not finish: {:?}", last());
                System.sleep(Duration::from_millis(20)).await;
            };
            assert!(status.success(), "the client at `{seat}` ended with {status}");
            self.crew.remove(place);
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in &mut self.crew {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

/// Main function of a child process: works until it is killed or its parent ends.
pub(crate) fn work() {
    let told = Told::from_env();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().on_thread_start(break_on_purpose).build().unwrap();
    break_on_purpose();
    if let Some(seat) = &told.seat {
        // The parent may end without notice, which closes stdin.
        std::thread::spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            std::process::abort();
        });
        return runtime.block_on(async {
            clients::work(told.client().await, &told.manner(), seat).await;
        });
    }
    let _engine = runtime.block_on(async {
        loop {
            match told.builder().start().await {
                // The store may be unavailable at the start; a service manager would restart the process.
                Err(error) if error.kind() == ErrorKind::Unavailable => eprintln!("not yet: {error}"),
                started => break started.unwrap(),
            }
        }
    });
    let _ = std::io::stdin().read(&mut [0]);
}

/// Activates the deliberate bug named by `WIGWAG_MUTATION`, to check that the tests notice it.
fn break_on_purpose() {
    let Ok(wanted) = std::env::var("WIGWAG_MUTATION") else { return };
    let found = Mutation::ALL.iter().find(|mutation| format!("{mutation:?}") == wanted);
    mutate(Some(*found.unwrap_or_else(|| panic!("`WIGWAG_MUTATION={wanted}` names no deliberate bug"))));
}

/// Sends a system signal to a child process. After SIGSTOP, waits until all its threads have stopped: on a busy
/// machine some run for a moment longer.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().unwrap();
    assert!(sent.success());
    let patience = ledger::wall() + 10_000_000;
    while name == "STOP" && !has_stopped(process) {
        assert!(ledger::wall() < patience, "{process} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether every thread of a process is stopped.
fn has_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // The state follows the name, which is in parentheses and may contain any character.
    let state = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    threads.flatten().all(|thread| {
        std::fs::read_to_string(thread.path().join("stat")).map_or(true, |stat| state(&stat) == Some('T'))
    })
}
