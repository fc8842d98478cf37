//! Proves that a store keeps its word, from outside, through the same trait that everything else uses.
//!
//! All objects are written under `proof/{nonce}/` and removed again.

use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;

use crate::{Action, Batch, Error, ErrorKind, LAYOUT_KEY, Layout, Result, Store};

/// Number of writers that race for one key, and number of races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Races {
    /// Writers in each race.
    pub writers: usize,
    /// Number of races.
    pub rounds: usize,
}

impl Races {
    /// Enough to catch a server that ignores the condition, cheap enough for every new bucket ($0.0004 on S3).
    pub const AT_FIRST_USE: Self = Self { writers: 16, rounds: 5 };
    /// Enough to detect a store that checks first and acts later.
    pub const THOROUGH: Self = Self { writers: 32, rounds: 25 };
}

impl fmt::Display for Races {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} races of {} writers, one winner each", self.rounds, self.writers)
    }
}

/// Result of one trial.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Short name of the trial.
    pub name: &'static str,
    /// Outcome of the trial.
    pub outcome: Outcome,
    /// Observations of the trial.
    pub detail: String,
    /// How to fix the problem, if known.
    pub hint: Option<String>,
}

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store keeps this promise.
    Proven,
    /// Not optimal, but sufficient for wigwag.
    Note,
    /// The store does not keep this promise; wigwag will not work on it.
    Failed,
}

/// Results of all trials.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Results, in the order of the trials.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether wigwag can work on this store.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.outcome != Outcome::Failed)
    }

    fn add(&mut self, name: &'static str, outcome: Outcome, detail: impl Into<String>) {
        self.findings.push(Finding { name, outcome, detail: detail.into(), hint: None });
    }

    /// Judges a trial: an error of the store itself is returned as an error; a disproved guarantee
    /// becomes a finding.
    fn judge(&mut self, name: &'static str, trial: Result<String>) -> Result<()> {
        match trial {
            Ok(detail) => self.add(name, Outcome::Proven, detail),
            Err(error) if error.action() == Action::Prove => {
                let (detail, hint) = (error.to_string(), error.advice().map(str::to_owned));
                self.findings.push(Finding { name, outcome: Outcome::Failed, detail, hint });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Tests every guarantee of the store; `progress` is called with the name of each trial at its start.
///
/// An error means that the trials could not run: the store is unreachable, or denies access.
pub async fn examine(store: &dyn Store, races: Races, mut progress: impl FnMut(&'static str)) -> Result<Report> {
    let mut report = Report::default();
    progress("read and write");
    report.judge("read and write", prove_read_after_write(store).await)?;
    progress("create if absent");
    report.judge("create if absent", prove_create_if_absent(store, races).await.map(|()| races.to_string()))?;
    if !report.is_good() {
        return Ok(report);
    }
    progress("update if unchanged");
    match proves_update_if(store).await? {
        true => report.add("update if unchanged", Outcome::Proven, "a put at an old version was refused"),
        false => report.add("update if unchanged", Outcome::Note, "not supported; wigwag does not need it"),
    }
    progress("list");
    report.judge("list", prove_list(store).await)?;
    let order = lists_in_byte_order(store).await?;
    match order {
        true => report.add("list order", Outcome::Proven, "byte order"),
        false => report.add(
            "list order",
            Outcome::Note,
            "directory order; wigwag lists flat prefixes, where that is the same",
        ),
    }
    progress("clock");
    examine_clock(store, &mut report).await?;
    progress("layout");
    examine_layout(store, &mut report).await?;
    Ok(report)
}

/// Lets writers race for the same new keys; exactly one must win each race, and its bytes must be stored.
pub async fn prove_create_if_absent(store: &dyn Store, races: Races) -> Result<()> {
    let bench = Bench::new(store);
    for round in 0..races.rounds {
        let key = bench.key(&format!("race-{round:04}"));
        let bodies: Vec<String> = (0..races.writers).map(|writer| format!("{}-{writer}", bench.nonce)).collect();
        let answers = join_all(bodies.iter().map(|body| store.write(Batch::new().create(&key, body.clone())))).await;
        let mut winners = Vec::new();
        for (body, answer) in bodies.iter().zip(answers) {
            match answer {
                Ok(_) => winners.push(body),
                Err(error) if error.is_exists() => {}
                Err(error) => return Err(error),
            }
        }
        let stored = store.get(&key).await?;
        bench.clear([key]).await?;
        let [winner] = winners[..] else {
            let what = format!(
                "{} of {} racing writers all got a success response for the same key",
                winners.len(),
                races.writers
            );
            return Err(disproved(what).hint(
                "this server accepts `If-None-Match: *` and ignores it, so that two workers could both own a run; use one that keeps it \
                 (AWS S3, R2, GCS, MinIO, SeaweedFS, Ceph, RustFS …)",
            ));
        };
        if stored.is_none_or(|object| object.body != winner.as_bytes()) {
            return Err(disproved("the stored bytes differ from those of the writer that won a race"));
        }
    }
    Ok(())
}

/// Checks that a put at an old version is rejected, and one at the current version is accepted.
pub async fn proves_update_if(store: &dyn Store) -> Result<bool> {
    if !store.traits().update_if {
        return Ok(false);
    }
    let bench = Bench::new(store);
    let key = bench.key("update");
    let refused = |answer: Result<_>| match answer {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::Changed => Ok(true),
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(true),
        Err(error) => Err(error),
    };
    store.write(Batch::new().put(&key, "one")).await?;
    let Some(first) = store.get(&key).await? else {
        return Err(disproved("a put that was acknowledged cannot be read"));
    };
    let accepted = !refused(store.write(Batch::new().update(&key, "two", first.version.clone())).await)?;
    let held = accepted && refused(store.write(Batch::new().update(&key, "three", first.version)).await)?;
    bench.clear([key]).await?;
    Ok(held)
}

async fn prove_read_after_write(store: &dyn Store) -> Result<String> {
    let bench = Bench::new(store);
    let keys: Vec<String> = (0..10).map(|number| bench.key(&format!("read-{number:02}"))).collect();
    for key in &keys {
        for body in [&b"first"[..], b"", &[0xFF; 70_000]] {
            store.write(Batch::new().put(key, body)).await?;
            let read = store.get(key).await?;
            if read.is_none_or(|object| object.body != body) {
                return Err(disproved("a read after an acknowledged write did not see it"));
            }
        }
    }
    bench.clear(keys.clone()).await?;
    for key in &keys {
        if store.get(key).await?.is_some() {
            return Err(disproved("a read after an acknowledged delete still saw the object"));
        }
    }
    Ok("a read after a write, an overwrite or a delete sees it".into())
}

async fn prove_list(store: &dyn Store) -> Result<String> {
    let bench = Bench::new(store);
    let keys: Vec<String> = (0..25).map(|number| bench.key(&format!("list/{number:010}.json"))).collect();
    for key in keys.iter().rev() {
        store.write(Batch::new().put(key, "x")).await?;
        let page = store.list(key, "", 1).await?;
        if page.entries.first().is_none_or(|entry| entry.key != *key) {
            return Err(disproved("a list after an acknowledged write did not see it"));
        }
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = store.list(&bench.key("list/"), &after, 10).await?;
        seen.extend(page.entries.into_iter().map(|entry| entry.key));
        match seen.last() {
            Some(last) if page.more => after.clone_from(last),
            _ => break,
        }
    }
    bench.clear(keys.clone()).await?;
    if seen != keys {
        return Err(disproved("a flat prefix was not listed whole and in order, page by page"));
    }
    Ok("a list after a write sees it; pages are whole and in order".into())
}

/// Tests keys whose byte order and directory order differ.
async fn lists_in_byte_order(store: &dyn Store) -> Result<bool> {
    let bench = Bench::new(store);
    let keys: Vec<String> = ["order/a-b/1", "order/a/1", "order/a0"].iter().map(|key| bench.key(key)).collect();
    for key in &keys {
        store.write(Batch::new().put(key, "x")).await?;
    }
    let page = store.list(&bench.key("order/"), "", 10).await?;
    let mut in_order = page.entries.iter().map(|entry| &entry.key).eq(&keys);
    for (position, key) in keys.iter().enumerate() {
        let page = store.list(&bench.key("order/"), key, 10).await?;
        in_order &= page.entries.iter().map(|entry| &entry.key).eq(&keys[position + 1..]);
    }
    bench.clear(keys).await?;
    Ok(in_order)
}

async fn examine_clock(store: &dyn Store, report: &mut Report) -> Result<()> {
    const MAX: Duration = Duration::from_millis(2_500);
    let (first, second) = (store.now().await?, store.now().await?);
    let detail = format!("{} ± {} ms", second.at, second.uncertainty.as_millis());
    if second.at < first.at {
        report.add("clock", Outcome::Failed, format!("the store's time went back, from {} to {}", first.at, second.at));
    } else if second.uncertainty > MAX {
        report.add("clock", Outcome::Failed, format!("{detail}: too uncertain to order signals by (at most {MAX:?})"));
    } else {
        report.add("clock", Outcome::Proven, detail);
    }
    Ok(())
}

async fn examine_layout(store: &dyn Store, report: &mut Report) -> Result<()> {
    let Some(object) = store.get(LAYOUT_KEY).await? else {
        report.add("layout", Outcome::Note, "a new store; `wigwag.json` will be made at the first write");
        return Ok(());
    };
    match Layout::read(&object.body) {
        Ok(Layout { layout, shards, .. }) => {
            let plural = if shards == 1 { "" } else { "s" };
            report.add("layout", Outcome::Proven, format!("version {layout}, {shards} shard{plural}"));
        }
        Err(error) => report.add("layout", Outcome::Failed, error.to_string()),
    }
    Ok(())
}

fn disproved(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what).on(Action::Prove, "")
}

/// A corner of the store for one trial.
struct Bench<'a> {
    store: &'a dyn Store,
    nonce: String,
}

impl<'a> Bench<'a> {
    fn new(store: &'a dyn Store) -> Self {
        Self { store, nonce: format!("{:016x}", fastrand::u64(..)) }
    }

    fn key(&self, name: &str) -> String {
        format!("proof/{}/{name}", self.nonce)
    }

    async fn clear(&self, keys: impl IntoIterator<Item = String>) -> Result<()> {
        let batch = keys.into_iter().fold(Batch::new(), Batch::delete);
        self.store.write(batch).await.map(drop)
    }
}
