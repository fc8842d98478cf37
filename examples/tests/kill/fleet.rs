//! Worker and client processes that are killed and replaced.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::core::mutation::{Mutation, mutate};
use wigwag::{Builder, Client, Engine, ErrorKind, Settings};
use wigwag_store::{Clock, OpenSettings, Opened, Stamp, System, open};

use super::cases::Kind;
use super::clients::{self, Manner};
use super::{ledger, load};

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) url: String,
    /// Where the bucket is; empty on a disk.
    pub(crate) endpoint: String,
    pub(crate) ledger: PathBuf,
    /// How long a step takes.
    pub(crate) takes: Duration,
    pub(crate) lease: Duration,
    pub(crate) look_max: Duration,
    pub(crate) turns_max: usize,
    /// The cases are of the kinds that a slow server bears.
    pub(crate) light: bool,
    pub(crate) lanes: usize,
    pub(crate) pause: Duration,
    /// A file that says how far the calendar is off, if it is.
    pub(crate) off: Option<PathBuf>,
    /// The client's seat; none of a worker.
    pub(crate) seat: Option<String>,
}

const TOLD: &str = "WIGWAG_CRASH";

impl Told {
    fn from_env() -> Self {
        let told = std::env::var(TOLD).expect("the test that starts this process says what to do");
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
        settings.embedded.clock = self.clock();
        open(&self.url, &settings)
            .unwrap_or_else(|error| panic!("error: {error}\nhint: {}", error.advice().unwrap_or_default()))
    }

    /// An engine or a client to be, with the same clock as the store.
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

/// The machine's clock, whose calendar is stepped by so many seconds as a file says.
///
/// The calendar itself belongs to all of the machine, and cannot be stepped for some of its processes.
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

/// A process that was killed, and when.
pub(crate) type Kill = (u32, u64);

/// Processes; killed on drop.
pub(crate) struct Fleet {
    told: Told,
    /// What this program is run by: words before its own.
    by: Vec<String>,
    crew: Vec<Member>,
    pub(crate) kills: Vec<Kill>,
}

struct Member {
    seat: Option<String>,
    process: Child,
}

impl Fleet {
    /// So many workers.
    pub(crate) fn start(told: Told, workers: usize) -> Self {
        Self::start_by(told, &[], workers)
    }

    /// The same, run by another program.
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

    /// Adds a client at that seat.
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

    /// Where the workers are, or the clients.
    pub(crate) fn places(&self, clients: bool) -> Vec<usize> {
        (0..self.crew.len()).filter(|place| self.crew[*place].seat.is_some() == clients).collect()
    }

    /// Waits, if not for long, until a client is in the middle of something; a worker mostly is.
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

    /// Kills one and starts another in its place; says when it was dead.
    pub(crate) fn replace(&mut self, place: usize) -> u64 {
        let seat = self.crew[place].seat.clone();
        // Who follows a client reads all that it wrote, and so comes after its end.
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

    /// Kills one; says when it was dead.
    pub(crate) fn kill(&mut self, process: u32) -> u64 {
        let place = self.crew.iter().position(|member| member.process.id() == process).unwrap();
        let mut member = self.crew.remove(place);
        self.end(&mut member.process)
    }

    /// Kills all that are left.
    pub(crate) fn kill_all(&mut self) {
        self.processes().into_iter().for_each(|process| _ = self.kill(process));
    }

    /// Starts a worker that cannot begin; gives what it says.
    pub(crate) fn fail_to_join(&self) -> String {
        let output = self.command(&self.told).stderr(Stdio::piped()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    fn spawn(&self, told: &Told) -> Child {
        self.command(told).spawn().unwrap()
    }

    /// This program, as a process that does what it is told.
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

    /// Lets the clients finish what they have begun, and waits for them.
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
                assert!(ledger::wall() < patience, "the client at `{seat}` does not come to an end: {:?}", last());
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

/// What a process does until it is killed, or its parent is gone.
pub(crate) fn work() {
    let told = Told::from_env();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().on_thread_start(break_on_purpose).build().unwrap();
    break_on_purpose();
    if let Some(seat) = &told.seat {
        // Whoever started it may end without a word.
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
                // The store may be away when it begins; whoever looks after a service starts it again.
                Err(error) if error.kind() == ErrorKind::Unavailable => eprintln!("not yet: {error}"),
                started => break started.unwrap(),
            }
        }
    });
    let _ = std::io::stdin().read(&mut [0]);
}

/// Turns on the deliberate bug that `WIGWAG_MUTATION` names, to see that the tests notice it.
fn break_on_purpose() {
    let Ok(wanted) = std::env::var("WIGWAG_MUTATION") else { return };
    let found = Mutation::ALL.iter().find(|mutation| format!("{mutation:?}") == wanted);
    mutate(Some(*found.unwrap_or_else(|| panic!("`WIGWAG_MUTATION={wanted}` names no deliberate bug"))));
}

/// Sends a signal of the system to a process of ours. One that is told to stop has stopped when this returns: on a busy
/// machine its threads go on for a moment.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().unwrap();
    assert!(sent.success());
    let patience = ledger::wall() + 10_000_000;
    while name == "STOP" && !has_stopped(process) {
        assert!(ledger::wall() < patience, "{process} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether every thread of a process stands still.
fn has_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // The state follows the name, which is in brackets and may hold anything.
    let state = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    threads.flatten().all(|thread| {
        std::fs::read_to_string(thread.path().join("stat")).map_or(true, |stat| state(&stat) == Some('T'))
    })
}
