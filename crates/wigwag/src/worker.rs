//! Finding runs that are due: by nudges where the store gives them, else by looking as often as there is work.
//!
//! Holds: a hint is deleted only by whoever made sure that its run stands on another, or has ended. A hint that leads
//! to nothing for this worker is left where it is and passed over for a while.

mod visit;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;
use wigwag_core::{Family, Hint, Key, RunId, RunRef, Time, prefix, sha256_u32};
use wigwag_store::{Batch, Change, Changes, limits::LIST_PAGE};

use crate::error::{ErrorKind, Result};
use crate::inner::{Handle, Inner, Stop};
use crate::tally;

/// How often the processes of this machine are counted.
const CENSUS_EVERY: Duration = Duration::from_millis(200);

/// How old a hint is before a listing may begin after it: no put is so late that it would be missed.
const PLACE_AGE: Duration = Duration::from_secs(120);

/// How long a hint that was handed to the turn of its run is left to it: the turn deletes it after its next look. Until
/// then listings must not count it as new, or they would follow each other without a pause.
const HANDED_FOR: Duration = Duration::from_secs(5);

/// The hints that led to one run, the earliest first: one look at the run serves all of them.
type DueHints = Vec<(String, Hint)>;

/// Which run a hint leads to; runs and tasks of one id are told apart by what they are called in the index.
type Led = (RunId, String);

/// What others ask of the dispatcher.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Answer when nothing is due and nothing runs.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only test kits ask"))]
    Idle(oneshot::Sender<()>),
}

/// Finds runs that are due and starts their turns.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    inner: Arc<Inner>,
    shards: Vec<Shard>,
    /// Runs that are to be looked at.
    queue: VecDeque<Led>,
    /// The hints that led to them; and to runs that are being looked at, for the next look.
    pending: HashMap<Led, DueHints>,
    /// Hints that are in hand: pending, or being looked at.
    visits: HashSet<String>,
    /// Runs that are being looked at.
    looks: HashSet<Led>,
    /// Hints that lead to nothing for this worker until then.
    passed: HashMap<String, Time>,
    /// Lease hints of abandoned turns to check again, and when. A listing does not find them: they are not due yet.
    retries: Vec<(Duration, String)>,
    finished: mpsc::Receiver<Visited>,
    finish: mpsc::Sender<Visited>,
    asks: mpsc::Receiver<Ask>,
    idlers: Vec<oneshot::Sender<()>>,
    /// Runs that do not fit the code, and since when that is known.
    misfits: HashMap<RunRef, Duration>,
    census: Vec<String>,
    /// Processes that took a lease since: one may come and go between two counts.
    seen: BTreeSet<String>,
    census_at: Duration,
    others: Vec<String>,
    present_at: Duration,
}

/// One part of the due index.
#[derive(Debug)]
struct Shard {
    number: u16,
    /// When it is listed next, by the clock that never steps.
    list_at: Duration,
    pause: Duration,
    /// All hints up to here lead to nothing for this worker.
    place: String,
    /// When it was last listed from its beginning.
    whole_at: Duration,
    more: bool,
}

/// What came of looking at a run.
#[derive(Debug)]
struct Visited {
    led: Led,
    hints: DueHints,
    run: RunRef,
    outcome: Visit,
}

#[derive(Debug)]
enum Visit {
    /// Done with: it is gone, or its run is driven.
    Done,
    /// Nothing to do for this worker until then.
    Pass(Time),
    /// The code does not fit.
    Misfit(Time),
}

pub(crate) async fn run(inner: Arc<Inner>, asks: mpsc::Receiver<Ask>) {
    let changes = inner.store.changes("due/");
    let dispatcher = Dispatcher::new(inner, asks);
    dispatcher.run(changes).await;
}

impl Dispatcher {
    fn new(inner: Arc<Inner>, asks: mpsc::Receiver<Ask>) -> Self {
        let boot = inner.clock.boot();
        let pause = inner.settings.look_min;
        let shard = |number| Shard { number, list_at: boot, pause, place: String::new(), whole_at: boot, more: false };
        let shards = (0..inner.shards).map(shard).collect();
        let (finish, finished) = mpsc::channel(1_024);
        Self {
            inner,
            shards,
            queue: VecDeque::new(),
            pending: HashMap::new(),
            visits: HashSet::new(),
            looks: HashSet::new(),
            passed: HashMap::new(),
            retries: Vec::new(),
            finished,
            finish,
            asks,
            idlers: Vec::new(),
            misfits: HashMap::new(),
            census: Vec::new(),
            seen: BTreeSet::new(),
            census_at: boot,
            others: Vec::new(),
            present_at: boot,
        }
    }

    async fn run(mut self, mut changes: Changes) {
        let mut stopping = self.inner.stopping.subscribe();
        loop {
            if self.inner.stop() != Stop::No {
                break;
            }
            if let Err(error) = self.look_around().await {
                warn!(%error, "the due index could not be listed; again soon");
                self.inner.clock.sleep(Duration::from_millis(500)).await;
            }
            self.start_visits().await;
            self.answer_idlers();
            let span = self.until_next_look();
            if span.is_zero() {
                // More of the index is to be listed right now.
                tokio::task::yield_now().await;
                continue;
            }
            let clock = Arc::clone(&self.inner.clock);
            let permits = Arc::clone(&self.inner.permits);
            let busy = self.inner.permits.available_permits() == 0 && !self.queue.is_empty();
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop != Stop::No) => {}
                Some(visited) = self.finished.recv() => self.take_visited(visited),
                Some(Ask::Idle(answer)) = self.asks.recv() => {
                    self.idlers.push(answer);
                    self.list_all_soon();
                }
                change = changes.next() => {
                    self.take_change(change);
                    // All that is told at once is taken at once.
                    for _ in 0..1_000 {
                        let Some(change) = changes.next().now_or_never() else { break };
                        self.take_change(change);
                    }
                }
                () = self.inner.again.notified() => self.take_given_back(),
                _ = permits.acquire_owned(), if busy => {}
                () = self.inner.idle.notified(), if !self.idlers.is_empty() => {}
                () = clock.sleep(span) => {}
            }
        }
        self.leave().await;
    }

    /// What was nudged is in hand at once, without a listing.
    fn take_change(&mut self, change: Change) {
        let Change::Put(key) = change else {
            self.census.clear();
            return self.list_all_soon();
        };
        if self.is_own_lease(&key) {
            return;
        }
        let Ok(Key::Due(hint)) = key.parse::<Key>() else { return };
        if let Some(owner) = hint.owner().filter(|_| self.inner.peer.is_some())
            && !self.seen.contains(peer_of(owner))
        {
            self.seen.insert(peer_of(owner).to_owned());
        }
        let now = self.inner.about_now();
        if hint.due > now {
            let at = self.inner.clock.boot() + hint.due.since(now);
            if let Some(shard) = self.shards.get_mut(usize::from(hint.shard)) {
                shard.list_at = shard.list_at.min(at);
            }
        } else {
            self.enqueue(key, hint);
        }
    }

    /// The hints that guard this worker's own leases are its own business until it dies; they are most of all hints.
    fn is_own_lease(&self, key: &str) -> bool {
        let own = key.rsplit_once("~o.").and_then(|(_, nonce)| nonce.strip_prefix(self.inner.worker.as_str()));
        own.is_some_and(|rest| rest.starts_with('.'))
    }

    fn take_given_back(&mut self) {
        for key in self.inner.take_given_back() {
            if let Ok(Key::Due(hint)) = key.parse::<Key>() {
                self.passed.remove(&key);
                self.enqueue(key, hint);
            }
        }
    }

    fn enqueue(&mut self, key: String, hint: Hint) {
        if self.inner.registry.families(&hint.kind).is_empty() || self.visits.contains(&key) {
            return;
        }
        if self.passed.get(&key).is_some_and(|until| *until > self.inner.about_now()) {
            return;
        }
        self.visits.insert(key.clone());
        let led = (hint.run.clone(), hint.kind.clone());
        let pending = self.pending.entry(led.clone()).or_default();
        pending.push((key, hint));
        if pending.len() == 1 && !self.looks.contains(&led) {
            self.queue.push_back(led);
        }
    }

    fn take_visited(&mut self, visited: Visited) {
        let Visited { led, hints, run, outcome } = visited;
        self.looks.remove(&led);
        if self.pending.contains_key(&led) {
            self.queue.push_back(led);
        }
        hints.iter().for_each(|(key, _)| _ = self.visits.remove(key));
        let until = match outcome {
            Visit::Done => {
                hints.iter().for_each(|(key, _)| _ = self.passed.remove(key));
                self.misfits.remove(&run);
                hints.iter().for_each(|(key, _)| self.inner.forget_abandoned(key));
                return;
            }
            Visit::Pass(until) => until,
            Visit::Misfit(until) => {
                let boot = self.inner.clock.boot();
                self.misfits.entry(run).or_insert(boot);
                until
            }
        };
        let at = self.inner.clock.boot() + until.since(self.inner.about_now());
        for (key, hint) in hints {
            if let Some(shard) = self.shards.get_mut(usize::from(hint.shard)) {
                shard.list_at = shard.list_at.min(at);
            }
            match self.inner.is_abandoned(&key) {
                true => self.retries.push((at, key)),
                false => _ = self.passed.insert(key, until),
            }
        }
    }

    fn list_all_soon(&mut self) {
        let boot = self.inner.clock.boot();
        for shard in &mut self.shards {
            shard.list_at = boot;
        }
    }

    /// Lists what is to be listed now, says that this worker is present, and counts the processes of this machine.
    async fn look_around(&mut self) -> Result<()> {
        let boot = self.inner.clock.boot();
        if boot >= self.census_at {
            self.census_at = boot + CENSUS_EVERY;
            self.take_census().await?;
        }
        if boot >= self.present_at {
            self.present_at = boot + self.inner.settings.lease;
            self.be_present().await?;
        }
        for (_, key) in self.retries.extract_if(.., |(at, _)| *at <= boot).collect::<Vec<_>>() {
            if let Ok(Key::Due(hint)) = key.parse::<Key>() {
                self.enqueue(key, hint);
            }
        }
        for place in 0..self.shards.len() {
            if boot >= self.shards[place].list_at && self.queue.len() < LIST_PAGE {
                self.list_shard(place).await?;
            }
        }
        Ok(())
    }

    async fn list_shard(&mut self, place: usize) -> Result<()> {
        let now = self.inner.now().await?;
        let boot = self.inner.clock.boot();
        let settings = &self.inner.settings;
        let (lease, look_min, look_max) = (settings.lease, settings.look_min, settings.look_max);
        let own = self.is_own(self.shards[place].number);
        let nudges = self.inner.store.traits().nudges;
        let shard = &mut self.shards[place];
        if boot.saturating_sub(shard.whole_at) > lease {
            shard.place.clear();
            shard.whole_at = boot;
        }
        let prefix = prefix::due(shard.number);
        let page = self.inner.store.list(&prefix, &shard.place, LIST_PAGE).await?;
        let mut next = None;
        let (mut found, mut skipping, mut reached) = (0, true, shard.place.clone());
        let mut due = Vec::new();
        let mut again: Option<Time> = None;
        for listed in &page.entries {
            let Ok(Key::Due(hint)) = listed.key.parse::<Key>() else { continue };
            if let Some(until) = self.passed.get(&listed.key).filter(|until| **until > now.at) {
                again = Some(again.map_or(*until, |again| again.min(*until)));
            }
            if hint.due > now.at {
                next = Some(hint.due);
                break;
            }
            let known = !self.inner.registry.families(&hint.kind).is_empty();
            skipping &= !known && now.at.since(hint.due) > PLACE_AGE;
            if skipping {
                reached.clone_from(&listed.key);
            }
            found += usize::from(known && !self.visits.contains(&listed.key) && !self.passed.contains_key(&listed.key));
            due.push((listed.key.clone(), hint));
        }
        let shard = &mut self.shards[place];
        shard.place = reached;
        // A page of nothing but hints that are due: there is more behind it, also behind those that are passed over.
        shard.more = next.is_none() && page.more;
        shard.pause = if found > 0 { look_min } else { (shard.pause * 2).min(look_max) };
        let usual = match (nudges, own) {
            (true, _) | (false, false) => lease,
            (false, true) => shard.pause,
        };
        shard.list_at = boot + if shard.more && found > 0 { Duration::ZERO } else { usual };
        if let Some(next) = next {
            shard.list_at = shard.list_at.min(boot + next.since(now.at) + now.uncertainty);
        }
        // A bucket's time is an estimate, and may say that a hint is still passed over when it was to be looked at again.
        if let Some(again) = again.filter(|_| nudges) {
            shard.list_at = shard.list_at.min(boot + again.since(now.at) + Duration::from_millis(1));
        }
        if shard.more
            && found == 0
            && let Some(last) = page.entries.last()
        {
            // All of this page is passed over or in hand: go on behind it, and begin anew with the next whole listing.
            shard.place.clone_from(&last.key);
            shard.list_at = boot;
        }
        for (key, hint) in due {
            self.enqueue(key, hint);
        }
        let old = boot.saturating_sub(lease * 4);
        self.misfits.retain(|_, since| *since > old);
        let at = now.at;
        self.passed.retain(|_, until| *until > at);
        Ok(())
    }

    fn until_next_look(&self) -> Duration {
        let boot = self.inner.clock.boot();
        let mut at = self.retries.iter().map(|(at, _)| *at).fold(self.present_at, Duration::min);
        if self.queue.len() < LIST_PAGE {
            at = self.shards.iter().map(|shard| shard.list_at).fold(at, Duration::min);
        }
        if self.inner.peer.is_some() {
            at = at.min(self.census_at);
        }
        at.saturating_sub(boot)
    }

    /// Looks at runs as long as there is room for turns.
    async fn start_visits(&mut self) {
        while let Some(led) = self.queue.pop_front() {
            let Some(mut hints) = self.pending.remove(&led) else { continue };
            let families = self.inner.registry.families(&led.1).to_vec();
            let runs = families.iter().map(|family| RunRef { family: *family, id: led.0.clone() });
            if let Some(handle) = runs.clone().find_map(|run| self.inner.active(&run)) {
                self.hand_over(&handle, &mut hints);
            }
            if hints.is_empty() {
                continue;
            }
            let Ok(permit) = Arc::clone(&self.inner.permits).try_acquire_owned() else {
                self.pending.insert(led.clone(), hints);
                self.queue.push_front(led);
                return;
            };
            let patience = runs.clone().find_map(|run| self.misfits.get(&run).copied());
            let first = RunRef { family: families.first().copied().unwrap_or(Family::Workflow), id: led.0.clone() };
            hints.sort_by_key(|(_, hint)| hint.due);
            self.looks.insert(led.clone());
            let (inner, finish) = (Arc::clone(&self.inner), self.finish.clone());
            tokio::spawn(async move {
                // What it took to find out that a run is to be claimed is a part of its turn.
                let visit = tally::counted(visit::visit(&inner, &families, &hints, permit, patience));
                let outcome = std::panic::AssertUnwindSafe(visit).catch_unwind().await.unwrap_or_else(|_| {
                    let what = format!("looking at run `{}` panicked", first.id);
                    Err(crate::Error::new(ErrorKind::Damaged, what))
                });
                let outcome = outcome.unwrap_or_else(|error| {
                    // A run that cannot be read must not be tried in a circle.
                    let again = if error.kind() == ErrorKind::Damaged { 300 } else { 2 };
                    warn!(run = %first.id, %error, "a hint could not be followed; again in {again} s");
                    Visit::Pass(inner.about_now().after(Duration::from_secs(again)))
                });
                let _ = finish.send(Visited { led, hints, run: first, outcome }).await;
            });
        }
    }

    /// Hands hints to the turn of their run, which deletes them after its next look; leaves them if the turn just ended.
    fn hand_over(&mut self, handle: &Handle, hints: &mut DueHints) {
        let until = self.inner.about_now().after(HANDED_FOR);
        hints.retain(|(key, hint)| {
            // The hint that guards our own lease says nothing new.
            let own = hint.owner() == Some(self.inner.worker.as_str());
            let handed = own || handle.poke(Some(key));
            if handed {
                self.visits.remove(key);
                self.passed.insert(key.clone(), until);
            }
            !handed
        });
    }

    fn answer_idlers(&mut self) {
        let boot = self.inner.clock.boot();
        let looking = self.shards.iter().any(|shard| shard.list_at <= boot);
        if self.queue.is_empty() && self.visits.is_empty() && !looking && self.inner.active_count() == 0 {
            for idler in self.idlers.drain(..) {
                let _ = idler.send(());
            }
        }
    }

    /// The hints of workers whose process is gone count as due.
    async fn take_census(&mut self) -> Result<()> {
        let Some(peers) = self.inner.store.peers() else { return Ok(()) };
        let living = peers.living();
        if living == self.census && self.seen.iter().all(|peer| living.contains(peer)) {
            return Ok(());
        }
        let now = self.inner.now().await?;
        let until = Key::Due(
            self.inner.hint(&"x".parse()?, &"workflow/x".parse()?, now.at.after(self.inner.settings.lease * 2)).0,
        );
        let until = until.to_string();
        for number in 0..self.inner.shards {
            let prefix = prefix::due(number);
            let mut after = format!("{prefix}{}", now.at);
            loop {
                let page = self.inner.store.list(&prefix, &after, LIST_PAGE).await?;
                for listed in &page.entries {
                    if let Ok(Key::Due(hint)) = listed.key.parse::<Key>()
                        && hint.owner().is_some_and(|owner| !self.is_living(owner))
                    {
                        self.passed.remove(&listed.key);
                        self.enqueue(listed.key.clone(), hint);
                    }
                }
                match page.entries.last() {
                    Some(last) if page.more && last.key < until => after.clone_from(&last.key),
                    _ => break,
                }
            }
        }
        self.seen.retain(|peer| living.contains(peer));
        self.census = living;
        Ok(())
    }

    /// Whether the process of a worker lives.
    fn is_living(&self, owner: &str) -> bool {
        self.inner.peer_lives(peer_of(owner)) != Some(false)
    }

    /// Says that this worker is here, and sees who else is: parts of the index are shared among all.
    async fn be_present(&mut self) -> Result<()> {
        if self.inner.shards < 2 {
            return Ok(());
        }
        let now = self.inner.now().await?;
        let key = Key::Worker { id: self.inner.worker.clone() }.to_string();
        let body = format!("{{\"id\":\"{}\",\"at\":\"{}\"}}\n", self.inner.worker, now.at);
        self.inner.store.write(Batch::new().put(key, body)).await?;
        let page = self.inner.store.list("workers/", "", LIST_PAGE).await?;
        let lapsed = self.inner.settings.lease * 5 / 4 + now.uncertainty + Duration::from_secs(1);
        let (here, gone): (Vec<_>, Vec<_>) =
            page.entries.into_iter().partition(|listed| now.at.since(crate::inner::time(listed.modified)) <= lapsed);
        let id = |key: &str| key.trim_start_matches("workers/").trim_end_matches(".json").to_owned();
        self.others = here.iter().map(|listed| id(&listed.key)).filter(|id| *id != self.inner.worker).collect();
        let old = gone.iter().filter(|listed| now.at.since(crate::inner::time(listed.modified)) > lapsed * 10);
        let batch = old.fold(Batch::new(), |batch, listed| batch.delete(&listed.key));
        if !batch.operations().is_empty() {
            self.inner.store.write(batch).await?;
        }
        Ok(())
    }

    /// Whether this worker lists that part at the adaptive rate: of all workers its name and the part's hash highest.
    fn is_own(&self, shard: u16) -> bool {
        let weight = |worker: &str| sha256_u32(&format!("{worker}/{shard}"));
        let mine = weight(&self.inner.worker);
        self.others.iter().all(|other| weight(other) < mine)
    }

    async fn leave(self) {
        if self.inner.shards > 1 {
            let key = Key::Worker { id: self.inner.worker.clone() }.to_string();
            let _ = self.inner.store.write(Batch::new().delete(key)).await;
        }
    }
}

/// The process of a worker: the worker's name begins with it.
fn peer_of(owner: &str) -> &str {
    owner.rsplit_once('-').map_or(owner, |(peer, _)| peer)
}

/// Stores what this worker knows of its types, for those who look at runs without having the code.
pub(crate) async fn store_definitions(inner: &Inner) -> Result<()> {
    for workflow in inner.registry.workflows() {
        let definition = &workflow.definition;
        let key = Key::Definition { of: definition.of.clone(), hash: definition.hash.clone() }.to_string();
        let mut body = serde_json::to_vec_pretty(definition).expect("a definition is JSON");
        body.push(b'\n');
        match inner.store.write(Batch::new().create(key, body)).await {
            Ok(_) => {}
            Err(error) if error.is_exists() || error.kind() == wigwag_store::ErrorKind::Unknown => {}
            Err(error) => return Err(error.into()),
        }
    }
    inner.works.store(!inner.registry.is_empty(), Ordering::Release);
    Ok(())
}
