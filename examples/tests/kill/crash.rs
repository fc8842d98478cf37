//! Processes that share one directory are killed under load: workers, and clients that start runs, send signals and
//! cancel. Nothing acknowledged is lost, every run ends or waits as it should, and no recorded step runs again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wigwag::{Client, Engine};

use crate::check::{Scene, Slack, Tidy};
use crate::fleet::{self, Fleet, Told};
use crate::ledger::{self, Gauge};
use crate::{how_many, load};

const WORKERS: usize = 3;
const SEATS: [&str; 2] = ["a", "b"];
/// Number of kills per round; each round has its own store.
const KILLS: usize = 210;
/// Time limit of every wait in these tests.
const PATIENCE: Duration = Duration::from_secs(30);
const SLACK: Slack = Slack { clocks: Duration::from_millis(5), commit: Some(Duration::from_secs(2)) };

pub(crate) fn told(folder: &Path) -> Told {
    Told {
        url: folder.join("store").display().to_string(),
        endpoint: String::new(),
        ledger: folder.join("ledger"),
        takes: Duration::from_millis(8),
        lease: Duration::from_secs(30),
        look_max: Duration::from_secs(10),
        turns_max: 1_024,
        light: false,
        lanes: 3,
        pause: Duration::from_millis(250),
        off: None,
        seat: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_nothing_acknowledged_is_lost_and_no_recorded_step_runs_again_over_200_kills() {
    let mut kills = 0;
    for _ in 0..how_many(1, 10) {
        kills += one_round().await;
    }
    eprintln!("{kills} kills in all");
    assert!(kills >= how_many(200, 2_000));
}

/// Kills processes, waits for all runs to end, and checks the invariants.
async fn one_round() -> usize {
    let folder = tempfile::tempdir().unwrap();
    let told = told(folder.path());
    let opened = told.open();
    let client = Engine::builder(Arc::clone(&opened.store)).client().await.unwrap();
    let gauge = Gauge::start(folder.path());
    let mut fleet = Fleet::start(told.clone(), WORKERS);
    SEATS.iter().for_each(|seat| fleet.add_client(seat));
    let began = Instant::now();
    let mut clients_killed = 0;
    while fleet.kills.len() < KILLS {
        // Some processes are killed right after their start.
        let span = if fastrand::u8(..4) == 0 { 0..60 } else { 60..300 };
        tokio::time::sleep(Duration::from_millis(fastrand::u64(span))).await;
        // Occasionally several or all processes are killed together.
        let (clients, workers) = [(0, 1), (0, 1), (1, 0), (1, 0), (0, 2), (1, 1), (2, WORKERS)][fastrand::usize(..7)];
        clients_killed += clients;
        for (count, of) in [(clients, true), (workers, false)] {
            let mut places = fleet.places(of);
            fastrand::shuffle(&mut places);
            places.truncate(count);
            // Replacing a client changes the indexes of the members behind it, so replace from the end.
            places.sort_unstable();
            for place in places.into_iter().rev() {
                if fastrand::bool() {
                    fleet.catch_at_work(place).await;
                }
                fleet.replace(place);
            }
        }
    }
    eprintln!("{} kills, {clients_killed} of clients, in {:?}", fleet.kills.len(), began.elapsed());
    fleet.dismiss_clients(PATIENCE).await;
    let scene = Scene {
        store: Arc::clone(&opened.store),
        client,
        ledger: told.ledger.clone(),
        kinds: told.manner().kinds,
        slack: SLACK.and(gauge.longest()),
        patience: PATIENCE,
        tidy: Tidy::Spotless,
        tidy_within: PATIENCE,
    };
    let (counted, answered) = scene.check(&fleet.kills).await;
    opened.embedded.unwrap().check_integrity().await.unwrap();
    eprintln!("all invariants hold after {:?}; longest disk stall {:?}", began.elapsed(), gauge.longest());
    assert!(counted.again > 10, "workers were killed within steps: {counted:?}");
    assert!(counted.held > 10, "and with leases: {counted:?}");
    assert!(answered.cut_off > 10, "clients were killed within requests: {answered:?}");
    assert!(answered.signals > 100 && answered.repeated > 5 && answered.timeouts > 5, "{answered:?}");
    assert!(answered.buffered > 5 && answered.never_consumed > 5, "{answered:?}");
    assert!(answered.cancels > 5 && answered.superseded > 0 && counted.undone > 10, "{answered:?} {counted:?}");
    fleet.kills.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_another_process_takes_over_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let told = told(folder.path());
    let client: Client = Engine::builder(told.open().store).client().await.unwrap();
    let gauge = Gauge::start(folder.path());
    let mut fleet = Fleet::start(told.clone(), WORKERS);
    let until = folder.path().join("until");
    let run = client.start(load::LONG, &until).id(load::LONG).await.unwrap();
    let mut spans = Vec::new();
    let mut owner = ledger::begun(&told.ledger, load::LONG_STEP, &[], PATIENCE).await.process;
    let mut owners = vec![owner];
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..300))).await;
        let killed = fleet.kill(owner);
        // The existing processes take over; a process that is starting scans the indexes anyway.
        let again = ledger::begun(&told.ledger, load::LONG_STEP, &owners, PATIENCE).await;
        fleet.add();
        owner = again.process;
        owners.push(owner);
        spans.push(Duration::from_micros(again.at.saturating_sub(killed)));
    }
    std::fs::write(&until, "").unwrap();
    run.wait_for(PATIENCE).await.unwrap();
    eprintln!("step restarted by another process after {spans:?}");
    let second = Duration::from_secs(1) + gauge.longest() * 2;
    assert!(spans.iter().all(|span| *span < second), "{spans:?}, longest disk stall {:?}", gauge.longest());
}

/// A process that samples the live processes only now and then would miss one that lived in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_a_worker_that_lived_for_a_moment_is_missed_too() {
    let folder = tempfile::tempdir().unwrap();
    let told = told(folder.path());
    let client = Engine::builder(told.open().store).client().await.unwrap();
    let gauge = Gauge::start(folder.path());
    let mut fleet = Fleet::start(told.clone(), 1);
    let first = fleet.processes()[0];
    tokio::time::sleep(Duration::from_millis(700)).await;
    fleet::signal(first, "STOP");
    let until = folder.path().join("until");
    let run = client.start(load::LONG, &until).id(load::LONG).await.unwrap();
    fleet.add();
    let second = ledger::begun(&told.ledger, load::LONG_STEP, &[], PATIENCE).await.process;
    fleet.kill(second);
    fleet::signal(first, "CONT");
    let since = ledger::wall();
    let again = ledger::begun(&told.ledger, load::LONG_STEP, &[second], PATIENCE).await;
    let span = Duration::from_micros(again.at.saturating_sub(since));
    eprintln!("step restarted after {span:?} by a process that never saw the other alive");
    assert!(span < Duration::from_secs(1) + gauge.longest() * 2, "{span:?}");
    std::fs::write(&until, "").unwrap();
    run.wait_for(PATIENCE).await.unwrap();
}
