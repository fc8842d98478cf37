//! Real processes write under load to one directory and are killed; nothing acknowledged is missing.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test is reported")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use wigwag_store::{Batch, Embedded, Store};

const ROUNDS: usize = 30;
const CHILDREN: usize = 2;
const TASKS: usize = 8;

/// Writes that a child process confirmed before it died: (task, number) of whole batches,
/// and races won.
#[derive(Debug, Default)]
struct Acknowledged {
    batches: BTreeSet<(usize, usize)>,
    races: BTreeSet<usize>,
}

#[test]
fn crash_nothing_acknowledged_is_lost_and_no_batch_is_torn_over_60_kills() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut kills = 0;
    let mut batches = 0;
    let mut written = [0; CHILDREN];
    let mut everything = Vec::new();
    for round in 0..ROUNDS {
        let mut children: Vec<Child> = (0..CHILDREN).map(|child| spawn(folder.path(), round, child)).collect();
        std::thread::sleep(Duration::from_millis(fastrand::u64(30..250)));
        let order = if fastrand::bool() { [0, 1] } else { [1, 0] };
        for child in order {
            assert_eq!(children[child].try_wait().unwrap(), None, "round {round}: child {child} ended by itself");
            children[child].kill().unwrap();
            kills += 1;
            std::thread::sleep(Duration::from_millis(fastrand::u64(0..20)));
        }
        let told: Vec<Acknowledged> = children.into_iter().map(read_acknowledged).collect();
        for (child, told) in told.iter().enumerate() {
            written[child] += told.batches.len();
        }
        batches += told.iter().map(|told| told.batches.len()).sum::<usize>();
        runtime.block_on(verify(folder.path(), round, &told));
        everything.push(told);
    }
    for (round, told) in everything.iter().enumerate() {
        runtime.block_on(verify(folder.path(), round, told));
    }
    let store = Embedded::open(folder.path()).unwrap();
    runtime.block_on(store.check_integrity()).unwrap();
    assert!(kills >= 50);
    assert!(written.iter().all(|count| *count > ROUNDS), "both children wrote: {written:?}");
    assert!(batches > ROUNDS * 10, "the children were killed under load, not before it: {batches} batches");
    eprintln!("{kills} kills, {batches} acknowledged batches, none lost, none torn");
}

fn spawn(folder: &Path, round: usize, child: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_writes_until_it_is_killed", "--nocapture"])
        .env("WIGWAG_CRASH", format!("{}\n{round}\n{child}", folder.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Reads what a dead child had said. Its last line may be cut short, and then was not said.
fn read_acknowledged(mut child: Child) -> Acknowledged {
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    let mut told = Acknowledged::default();
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    for line in whole.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["batch", task, number] => drop(told.batches.insert((task.parse().unwrap(), number.parse().unwrap()))),
            ["won", race] => drop(told.races.insert(race.parse().unwrap())),
            _ => {}
        }
    }
    told
}

async fn verify(folder: &Path, round: usize, told: &[Acknowledged]) {
    let store = Embedded::open(folder).unwrap();
    for (child, told) in told.iter().enumerate() {
        let prefix = format!("r{round:03}/c{child}/");
        let (pairs, latest) = read_batches(&store, &prefix).await;
        for (task, number) in &told.batches {
            assert!(pairs.contains_key(&(*task, *number)), "round {round}: batch {child}/{task}/{number} is lost");
        }
        for ((task, number), parts) in &pairs {
            assert_eq!(parts, "ab", "round {round}: batch {child}/{task}/{number} is torn");
        }
        for (task, numbers) in latest {
            let last = pairs.keys().filter(|(of, _)| *of == task).map(|(_, number)| *number).max();
            assert_eq!(numbers, [last.unwrap()], "round {round}: puts and deletes of {child}/{task} came apart");
        }
        for race in &told.races {
            let winner = store.get(&format!("r{round:03}/race/{race}")).await.unwrap().unwrap().body;
            assert_eq!(winner, format!("child {child}"), "round {round}: race {race} has two winners");
        }
    }
}

/// The halves of each batch that are there, and which numbers each task's `latest` objects have.
async fn read_batches(
    store: &Embedded,
    prefix: &str,
) -> (BTreeMap<(usize, usize), String>, BTreeMap<usize, Vec<usize>>) {
    let (mut pairs, mut latest) = (BTreeMap::<_, String>::new(), BTreeMap::<_, Vec<_>>::new());
    let mut after = String::new();
    loop {
        let page = store.list(prefix, &after, 10_000).await.unwrap();
        for entry in &page.entries {
            let parts: Vec<&str> = entry.key[prefix.len()..].split('/').collect();
            let (task, number) = (parts[0].parse().unwrap(), parts[1].parse().unwrap());
            match parts[2] {
                "latest" => latest.entry(task).or_default().push(number),
                half => pairs.entry((task, number)).or_default().push_str(half),
            }
        }
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.key),
            _ => return (pairs, latest),
        }
    }
}

#[test]
#[ignore = "runs as a child process of the crash test"]
fn child_writes_until_it_is_killed() {
    let told = std::env::var("WIGWAG_CRASH").expect("the crash test says where to write");
    let [folder, round, child] = told.split('\n').collect::<Vec<_>>()[..] else { panic!("three lines") };
    let (round, child): (usize, usize) = (round.parse().unwrap(), child.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = Embedded::open(folder).unwrap();
    runtime.block_on(async {
        let tasks = (0..TASKS).map(|task| tokio::spawn(write_batches(store.clone(), round, child, task)));
        let racer = tokio::spawn(race(store.clone(), round, child));
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        racer.await.unwrap();
    });
}

async fn write_batches(store: Embedded, round: usize, child: usize, task: usize) {
    for number in 0.. {
        let key = |number: usize, part: &str| format!("r{round:03}/c{child}/{task}/{number}/{part}");
        let body = vec![b'x'; 100 + number * 37 % 3_000];
        let mut batch = Batch::new().put(key(number, "a"), body.clone()).create(key(number, "b"), body);
        batch = batch.put(key(number, "latest"), "");
        if number > 0 {
            batch = batch.delete(key(number - 1, "latest"));
        }
        store.write(batch).await.unwrap();
        say(&format!("batch {task} {number}\n"));
    }
}

async fn race(store: Embedded, round: usize, child: usize) {
    for race in 0.. {
        match store.write(Batch::new().create(format!("r{round:03}/race/{race}"), format!("child {child}"))).await {
            Ok(_) => say(&format!("won {race}\n")),
            Err(error) => assert!(error.is_exists(), "{error:?}"),
        }
    }
}

/// One system call a line, so that a kill cuts at most the last.
fn say(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}
