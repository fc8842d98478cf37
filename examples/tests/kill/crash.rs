//! Worker processes that share one directory are killed under load; every run ends as it should, and no recorded step
//! runs again.

use std::time::{Duration, Instant};

use crate::check::{self, Slack};
use crate::fleet::{self, Fleet, Told};
use crate::{ledger, load};
use wigwag::{Client, Engine, Settings};

const WORKERS: usize = 3;
const KILLS: usize = 120;
/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
const SLACK: Slack = Slack { clocks: Duration::from_millis(5), commit: Duration::from_secs(2) };

fn told(folder: &std::path::Path) -> Told {
    Told {
        url: folder.join("store").display().to_string(),
        endpoint: String::new(),
        ledger: fleet::ledger_folder(folder),
        takes: Duration::from_millis(8),
        settings: Settings::default(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_no_run_is_lost_and_no_recorded_step_runs_again_over_120_kills() {
    let folder = tempfile::tempdir().unwrap();
    let told = told(folder.path());
    let store = told.open().store;
    let client = Engine::builder(std::sync::Arc::clone(&store)).client().await.unwrap();
    let mut fleet = Fleet::start(told.clone(), WORKERS);
    let began = Instant::now();
    let mut started = Vec::new();
    while fleet.kills.len() < KILLS {
        for _ in 0..4 {
            started.push(load::start(&client, started.len(), load::KINDS).await);
        }
        // Some die as soon as they are born.
        let span = if fastrand::u8(..4) == 0 { 0..60 } else { 60..400 };
        tokio::time::sleep(Duration::from_millis(fastrand::u64(span))).await;
        // And now and then all die at once.
        let together = [1, 1, 1, 1, 2, WORKERS][fastrand::usize(..6)];
        let first = fastrand::usize(..WORKERS);
        for place in 0..together {
            fleet.replace((first + place) % WORKERS);
        }
    }
    eprintln!("{} kills of {} runs in {:?}", fleet.kills.len(), started.len(), began.elapsed());
    check::ends(&*store, &client, &started, PATIENCE).await;
    eprintln!("all ended after {:?}", began.elapsed());
    check::nothing_is_left(&*store, &client, Duration::from_secs(3)).await;
    let evidence = check::evidence(&client, &ledger::read(&told.ledger)).await;
    let counted = evidence.check(&fleet.kills, SLACK);
    eprintln!("{counted:?} after {:?}", began.elapsed());
    assert!(fleet.kills.len() >= 100);
    assert!(counted.again > 10, "workers were killed within steps: {counted:?}");
    assert!(counted.runs > started.len(), "children and tasks too: {counted:?}");
    assert_eq!(counted.undone, started.iter().map(|run| run.undone).sum::<usize>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_another_process_takes_over_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let told = told(folder.path());
    let client: Client = Engine::builder(told.open().store).client().await.unwrap();
    let mut fleet = Fleet::start(told.clone(), WORKERS);
    let until = folder.path().join("until");
    let run = client.start(load::LONG, &until).id(load::LONG).await.unwrap();
    let mut spans = Vec::new();
    let mut owner = ledger::begun(&told.ledger, load::LONG_STEP, &[], PATIENCE).await.process;
    let mut owners = vec![owner];
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..300))).await;
        let killed = fleet.kill(owner);
        // Those who were there take over; one that is just starting would look around anyway.
        let again = ledger::begun(&told.ledger, load::LONG_STEP, &owners, PATIENCE).await;
        fleet.add();
        owner = again.process;
        owners.push(owner);
        spans.push(Duration::from_micros(again.at.saturating_sub(killed)));
    }
    std::fs::write(&until, "").unwrap();
    run.wait_for(PATIENCE).await.unwrap();
    eprintln!("begun again by another process after {spans:?}");
    assert!(spans.iter().all(|span| *span < Duration::from_secs(1)), "{spans:?}");
}

/// Who looks at the living only now and then would not miss one that came and went in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_a_worker_that_lived_for_a_moment_is_missed_too() {
    let folder = tempfile::tempdir().unwrap();
    let told = told(folder.path());
    let client = Engine::builder(told.open().store).client().await.unwrap();
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
    eprintln!("begun again by one that never saw the other alive after {span:?}");
    assert!(span < Duration::from_secs(1), "{span:?}");
    std::fs::write(&until, "").unwrap();
    run.wait_for(PATIENCE).await.unwrap();
}
