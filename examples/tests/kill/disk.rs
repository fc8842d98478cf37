//! Faults of a disk under load: it fills up, its directory is moved away or made read-only, the wall clock is
//! stepped. The processes are real and are not restarted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use wigwag_store::conformance;

use crate::check::{Counted, Scene, Slack, Tidy};
use crate::clients::{self, Note, Word};
use crate::crash;
use crate::faults::{SLACK, acknowledged, until};
use crate::fleet::{Fleet, Told};
use crate::ledger;

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the clients' failed and rejected requests.
fn failures(told: &Told) -> Vec<Note> {
    let notes = clients::all_notes(&told.ledger).into_iter();
    notes.filter(|note| matches!(note.word, Word::Failed { .. })).collect()
}

/// Waits for failures with this message and advice, each with the store's directory; all failures must match.
async fn told_so(told: &Told, says: &str, advises: &str) {
    let before = failures(told).len();
    until("an error that names the fault", || failures(told).len() >= before + 10).await;
    for note in failures(told) {
        let Word::Failed { what, advice, .. } = &note.word else { continue };
        assert!(what.contains(says) && what.contains(&told.url), "{note:?}");
        assert!(advice.contains(advises), "{note:?}");
    }
    eprintln!("told: {:?}", failures(told)[0].word);
}

/// Settings for processes that survive a fault: a turn that was given up is taken over when its lease ends.
fn brief(folder: &Path) -> Told {
    Told { lease: Duration::from_secs(4), ..crash::told(folder) }
}

/// Starts two workers and two clients.
fn crew(told: &Told, by: &[&str]) -> Fleet {
    let mut fleet = Fleet::start_by(told.clone(), by, 2);
    ["a", "b"].iter().for_each(|seat| fleet.add_client(seat));
    fleet
}

/// Waits for all runs to end and checks the invariants; no process was killed or restarted.
async fn all_is_well(told: &Told, fleet: &mut Fleet, slack: Slack) -> Counted {
    fleet.dismiss_clients(PATIENCE).await;
    let opened = told.open();
    let scene = Scene {
        store: opened.store,
        client: told.client().await,
        ledger: told.ledger.clone(),
        kinds: told.manner().kinds,
        slack,
        patience: PATIENCE,
        tidy: Tidy::Harmless,
        tidy_within: PATIENCE,
    };
    let (counted, _) = scene.check(&[]).await;
    opened.embedded.unwrap().check_integrity().await.unwrap();
    counted
}

/// A small file system for one test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts the file system; `None`, with a message, where mounting is not permitted.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]).arg(folder.path()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        conformance::skip("no file system can be mounted here, so a full disk under load is not tested");
        None
    }

    /// Fills all free space.
    fn fill(&self) -> PathBuf {
        use std::io::Write as _;
        let ballast = self.0.path().join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_disk_is_full_and_has_room_again() {
    let Some(disk) = SmallDisk::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let told = Told { url: disk.0.path().join("store").display().to_string(), ..brief(folder.path()) };
    let mut fleet = crew(&told, &[]);
    for _ in 0..2 {
        acknowledged(&told.ledger, 40).await;
        let ballast = disk.fill();
        told_so(&told, "full", "free disk space").await;
        std::fs::remove_file(ballast).unwrap();
    }
    acknowledged(&told.ledger, 40).await;
    all_is_well(&told, &mut fleet, SLACK).await;
}

/// Limits the size of files that the processes may create, in bytes.
fn limit_files(fleet: &Fleet, bytes: &str) {
    for process in fleet.processes() {
        let (pid, limit) = (process.to_string(), format!("--fsize={bytes}:"));
        let set = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(set.success(), "{process}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_disk_file_size_is_limited_and_unlimited_again() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        conformance::skip("there is no `prlimit`, so a limit on the size of files is not tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let told = brief(folder.path());
    // Without the trap, the system would end a process that exceeds the limit.
    let mut fleet = crew(&told, &["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    acknowledged(&told.ledger, 40).await;
    let log = std::fs::metadata(Path::new(&told.url).join("wigwag.db-wal")).unwrap().len();
    limit_files(&fleet, &log.to_string());
    told_so(&told, "cannot write to", "ulimit -f").await;
    limit_files(&fleet, "unlimited");
    acknowledged(&told.ledger, 40).await;
    all_is_well(&told, &mut fleet, SLACK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_disk_directory_is_moved_away_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let told = brief(folder.path());
    let elsewhere = folder.path().join("elsewhere");
    let mut fleet = crew(&told, &[]);
    acknowledged(&told.ledger, 40).await;
    std::fs::rename(&told.url, &elsewhere).unwrap();
    told_so(&told, "removed or moved away", "put it back").await;
    std::fs::rename(&elsewhere, &told.url).unwrap();
    acknowledged(&told.ledger, 40).await;
    all_is_well(&told, &mut fleet, SLACK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_disk_database_is_replaced_under_running_processes() {
    let folder = tempfile::tempdir().unwrap();
    let told = brief(folder.path());
    let mut fleet = crew(&told, &[]);
    acknowledged(&told.ledger, 40).await;
    let (database, aside) = (Path::new(&told.url).join("wigwag.db"), folder.path().join("aside"));
    std::fs::rename(&database, &aside).unwrap();
    std::fs::copy(&aside, &database).unwrap();
    told_so(&told, "replaced by another file", "restart every process").await;
    let acknowledged_then = clients::all_notes(&told.ledger).iter().filter(|note| note.word.is_acknowledged()).count();
    // The original file is put back, and all processes continue.
    std::fs::rename(&aside, &database).unwrap();
    acknowledged(&told.ledger, 40).await;
    all_is_well(&told, &mut fleet, SLACK).await;
    eprintln!("{acknowledged_then} were acknowledged before the fault, and none was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_disk_directory_is_removed_and_nothing_is_acknowledged_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let told = brief(folder.path());
    let mut fleet = crew(&told, &[]);
    acknowledged(&told.ledger, 40).await;
    std::fs::remove_dir_all(&told.url).unwrap();
    told_so(&told, "removed or moved away", "restart every process").await;
    let since = ledger::wall();
    let later = || clients::all_notes(&told.ledger).into_iter().filter(|note| note.at > since).collect::<Vec<_>>();
    until("more answers", || later().len() > 40).await;
    // Earlier acknowledgements may be repeated to a retry under the same key.
    let new: Vec<Note> = later().into_iter().filter(|note| note.attempt == 0 && note.word.is_acknowledged()).collect();
    assert!(new.is_empty(), "acknowledged without a store: {new:?}");
    fleet.kill_all();
    assert!(!Path::new(&told.url).exists(), "no process created another directory in its place");
}

/// Returns the command prefix that runs a program as an unprivileged user; empty if this user is unprivileged.
fn as_nobody() -> Option<Vec<&'static str>> {
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout.trim_ascii() != b"0" {
        return Some(Vec::new());
    }
    let by = vec!["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let this = std::env::current_exe().unwrap();
    let works =
        Command::new(by[0]).args(&by[1..]).arg(this).arg("--list").output().is_ok_and(|out| out.status.success());
    if !works {
        conformance::skip("only root can run the tests' program here, so lost permissions are not tested");
        return None;
    }
    Some(by)
}

fn run(program: &str, args: &[&str]) {
    assert!(Command::new(program).args(args).status().unwrap().success(), "{program} {args:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_disk_permission_is_lost_and_restored() {
    let Some(by) = as_nobody() else { return };
    let folder = tempfile::tempdir().unwrap();
    let told = brief(folder.path());
    run("chmod", &["a+rwx", &folder.path().display().to_string()]);
    let mut fleet = crew(&told, &by);
    acknowledged(&told.ledger, 40).await;
    run("chmod", &["-R", "a-w", &told.url]);
    // Processes with open files continue; a new process gets an error.
    acknowledged(&told.ledger, 20).await;
    let said = fleet.fail_to_join();
    assert!(said.contains(&told.url) && said.contains("Permission denied"), "{said}");
    assert!(said.contains("must be writable by this user"), "{said}");
    run("chmod", &["-R", "u+w", &told.url]);
    fleet.add();
    acknowledged(&told.ledger, 20).await;
    fleet.dismiss_clients(PATIENCE).await;
    drop(fleet);
    // This user did not create the store, and from here on creates files of its own in it.
    let mut fleet = Fleet::start(told.clone(), 2);
    all_is_well(&told, &mut fleet, SLACK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_disk_calendar_is_stepped_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let off = folder.path().join("off");
    let told = Told { off: Some(off.clone()), ..brief(folder.path()) };
    let mut fleet = crew(&told, &[]);
    for seconds in ["7200", "-3600", "0", "90", "-90", "0"] {
        acknowledged(&told.ledger, 30).await;
        let next = folder.path().join("next");
        std::fs::write(&next, seconds).unwrap();
        std::fs::rename(next, &off).unwrap();
    }
    acknowledged(&told.ledger, 30).await;
    // The ledger keeps the true time; the store's time is hours ahead of it by now.
    let slack = Slack { clocks: Duration::from_secs(4 * 3_600), commit: None };
    all_is_well(&told, &mut fleet, slack).await;
    assert!(failures(&told).is_empty(), "{:?}", failures(&told));
}
