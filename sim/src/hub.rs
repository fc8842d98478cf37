//! The hub's core over a store and connections that fail by a seed: promise 15.
//!
//! Connections are cut at any frame, in either direction, and what was on its way arrives up to some frame or not at all;
//! a client comes back before its old connection is known to be gone. Store operations are refused, done, done with
//! their answer lost, or done late, in any order. The hub dies with all of that under way. Clients are as the
//! protocol wants them: they repeat what was not answered, in order, under the same id, acknowledge what they got, and
//! deal with nothing twice.

mod client;
mod ledger;
mod link;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;
use wigwag_hub::testing::World as Model;
use wigwag_hub::{Access, Came, Done, Effect, Hub, Mutation, Op, Settings, Ticket};

use client::Client;
use ledger::Ledger;
use link::Link;

/// So many steps things go wrong.
const TROUBLE: usize = 3_000;

/// After that everything must be answered within so many.
const CALM: usize = 60_000;

const CLIENTS: usize = 4;

/// What a seed came to.
#[derive(Debug, Default)]
pub struct HubOutcome {
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// What happened.
    pub trace: String,
    /// Messages that were acknowledged.
    pub acknowledged: u64,
    /// Connections that were cut.
    pub cuts: u64,
    /// Deaths of the hub.
    pub deaths: u64,
    /// Store operations.
    pub operations: u64,
}

/// A store operation that is under way.
struct Pending {
    /// Of which hub.
    life: u64,
    ticket: Ticket,
    op: Op,
}

struct World {
    rng: Rng,
    now: u64,
    settings: Settings,
    hub: Hub,
    /// Which hub it is, counted.
    life: u64,
    store: Model,
    pending: Vec<Pending>,
    /// Operations that are done some time after they were said to have failed.
    late: Vec<Op>,
    links: Vec<Link>,
    clients: Vec<Client>,
    ledger: Ledger,
    calm: bool,
    outcome: HubOutcome,
}

/// Simulates one seed.
#[must_use]
pub fn simulate_hub(seed: u64, mutation: Option<Mutation>) -> HubOutcome {
    let mut world = World::new(seed, mutation);
    for _ in 0..TROUBLE {
        world.step();
        if !world.ledger.broken.is_empty() {
            return world.end();
        }
    }
    world.calm = true;
    for link in 0..world.links.len() {
        world.cut(link);
    }
    for _ in 0..CALM {
        world.step();
        if !world.ledger.broken.is_empty() || world.is_over() {
            break;
        }
    }
    world.check_end();
    world.end()
}

impl World {
    fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut settings = Settings::default();
        settings.rate = None;
        settings.queue_max = rng.usize(4..30);
        settings.history_max = rng.usize(3..20);
        settings.pause_above = rng.usize(4..20);
        settings.resume_below = settings.pause_above / 2;
        settings.drop_above = settings.pause_above * 2;
        settings.mutation = mutation;
        let now = 1_763_251_200_000;
        let clients = (0..CLIENTS).map(|number| Client::new(number, CLIENTS)).collect();
        let store = Model::new(settings.clone());
        Self {
            hub: Hub::new(settings.clone(), [7; 32], now),
            ledger: Ledger::new(settings.queue_max),
            rng,
            now,
            settings,
            life: 0,
            store,
            pending: Vec::new(),
            late: Vec::new(),
            links: Vec::new(),
            clients,
            calm: false,
            outcome: HubOutcome::default(),
        }
    }

    fn end(mut self) -> HubOutcome {
        self.outcome.broken = self.ledger.broken;
        self.outcome.acknowledged = self.ledger.acknowledged;
        self.outcome
    }

    fn trace(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.outcome.trace, "{} {what}", self.now - 1_763_251_200_000);
    }

    fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..20 => self.client_acts(),
            20..40 => self.client_reads(),
            40..60 => self.carry_up(),
            60..78 => self.carry_down(),
            78..90 => self.store_acts(),
            90..94 => self.time_passes(),
            94..96 => _ = self.hub.advance(self.now),
            96 => self.late_lands(),
            97 if !self.calm && self.rng.bool() => {
                if let Some(link) = self.any_link() {
                    self.cut(link);
                }
            }
            99 if !self.calm && self.rng.u32(0..12) == 0 => self.hub_dies(),
            _ => {}
        }
        self.effects();
    }

    fn any_link(&mut self) -> Option<usize> {
        let alive: Vec<usize> = (0..self.links.len()).filter(|link| self.links[*link].alive).collect();
        (!alive.is_empty()).then(|| alive[self.rng.usize(0..alive.len())])
    }

    fn time_passes(&mut self) {
        let span = match self.rng.u32(0..40) {
            0 => self.rng.u64(5_000..15_000),
            _ => self.rng.u64(0..300),
        };
        self.now += span;
        self.hub.tick(self.now);
    }

    /// A client connects, sends something, or repeats.
    fn client_acts(&mut self) {
        let number = self.rng.usize(0..CLIENTS);
        let reconnects = self.clients[number].link.is_none() || (!self.calm && self.rng.u32(0..150) == 0);
        if reconnects {
            let mut secret = [0; 16];
            secret[0] = u8::try_from(number).unwrap_or_default() + 1;
            secret[8..].copy_from_slice(&self.rng.u64(..).to_be_bytes());
            let session = self.hub.open(Access::Open, secret, self.now);
            self.links.push(Link::new(session, self.life));
            let link = self.links.len() - 1;
            self.trace(format_args!("client {number} opens {link}"));
            let frames = self.clients[number].connected(link, self.now);
            self.links[link].up.extend(frames);
            return;
        }
        let frames = self.clients[number].act(&mut self.rng, self.now, self.calm, &mut self.ledger);
        if let Some(link) = self.clients[number].link {
            self.links[link].up.extend(frames);
        }
    }

    /// A client takes the next frame.
    fn client_reads(&mut self) {
        let number = self.rng.usize(0..CLIENTS);
        let Some(link) = self.clients[number].link else { return };
        match self.links[link].down.pop_front() {
            Some(text) => {
                self.trace(format_args!("client {number} < {text}"));
                let frames = self.clients[number].got(&text, self.now, &mut self.ledger);
                self.links[link].up.extend(frames);
            }
            None if !self.links[link].alive => self.clients[number].disconnected(),
            None => {}
        }
    }

    /// A frame reaches the hub.
    fn carry_up(&mut self) {
        let Some(link) = self.any_link() else { return };
        let found = &mut self.links[link];
        if found.life != self.life || !self.hub.may_read(found.session) {
            return;
        }
        let (session, text) = (found.session, found.up.pop_front());
        if let Some(text) = text {
            self.trace(format_args!("hub {link} < {text}"));
            self.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&text), None)], self.now);
        }
    }

    /// The hub's frames go to a connection, or a connection has written some.
    fn carry_down(&mut self) {
        let Some(link) = self.any_link() else { return };
        let found = &mut self.links[link];
        if found.life != self.life {
            return;
        }
        if found.taken.is_empty() || self.rng.bool() {
            self.hub.take(found.session, self.rng.usize(1..6), self.now, |bytes| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                self.ledger.handed_out(&text, self.now);
                found.taken.push_back(text);
            });
        } else {
            let count = self.rng.usize(1..=found.taken.len());
            found.down.extend(found.taken.drain(..count));
            self.hub.written(found.session, count, self.now);
        }
        let over = self.hub.closing(found.session).is_some() && !self.hub.has_frames(found.session);
        if over && found.taken.is_empty() {
            found.alive = false;
            self.hub.close(found.session, self.now);
        }
    }

    /// A connection breaks: what was on its way arrives up to some frame.
    fn cut(&mut self, link: usize) {
        let found = &mut self.links[link];
        if !found.alive {
            return;
        }
        self.outcome.cuts += 1;
        found.alive = false;
        let reached = self.rng.usize(0..=found.up.len());
        let sent: Vec<String> = found.up.drain(..).take(reached).collect();
        // The client may have got frames that nobody says were written.
        let seen = self.rng.usize(0..=found.taken.len());
        found.down.extend(found.taken.drain(..).take(seen).collect::<Vec<_>>());
        let kept = self.rng.usize(0..=found.down.len());
        found.down.truncate(kept);
        let (session, same) = (found.session, found.life == self.life);
        if same {
            let all = sent.iter().map(|text| Came::Frame(wigwag_hub::read(text), None)).collect();
            self.hub.receive(session, all, self.now);
            self.hub.close(session, self.now);
        }
        self.trace(format_args!("cut {link}"));
    }

    /// The hub dies with everything under way; another takes its place.
    fn hub_dies(&mut self) {
        self.outcome.deaths += 1;
        self.ledger.deaths += 1;
        self.trace(format_args!("the hub dies"));
        for pending in std::mem::take(&mut self.pending) {
            match self.rng.u32(0..3) {
                0 => {}
                1 => self.partly(pending.op),
                _ => self.late.push(pending.op),
            }
        }
        for link in 0..self.links.len() {
            self.cut(link);
        }
        for id in self.hub.refused() {
            self.ledger.refused(&id);
        }
        self.now += 1_000;
        self.life += 1;
        self.hub = Hub::new(self.settings.clone(), [7; 32], self.now);
    }

    fn effects(&mut self) {
        for effect in self.hub.effects() {
            if let Effect::Store(ticket, op) = effect {
                self.pending.push(Pending { life: self.life, ticket, op });
            }
        }
        self.hub.woken();
        for id in self.hub.refused() {
            self.ledger.refused(&id);
        }
    }

    /// A store operation is done, or not.
    fn store_acts(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let Pending { life, ticket, op } = self.pending.remove(self.rng.usize(0..self.pending.len()));
        self.outcome.operations += 1;
        let fault = if self.calm { 9 } else { self.rng.u32(0..40) };
        let done = match fault {
            0 => Done::Failed("refused".into()),
            1 => {
                self.partly(op.clone());
                Done::Failed("its answer was lost".into())
            }
            2 => {
                // A put or removal may land after everybody has given it up; a version is raised in one step.
                if matches!(op, Op::Put { .. } | Op::Remove { .. }) {
                    self.late.push(op.clone());
                }
                Done::Failed("it took too long".into())
            }
            _ => self.store.done(op.clone()),
        };
        let failed = matches!(done, Done::Failed(_));
        self.trace(format_args!("store {} {}", if failed { "fails" } else { "does" }, shown(&op)));
        self.ledger.stored(&self.store, failed);
        if life == self.life {
            self.hub.done(ticket, done, self.now);
        }
    }

    /// An operation is done, or the first part of it.
    fn partly(&mut self, op: Op) {
        let op = match op {
            Op::Put { address, mut messages } => {
                messages.truncate(self.rng.usize(0..=messages.len()));
                Op::Put { address, messages }
            }
            whole => whole,
        };
        self.store.done(op);
    }

    fn late_lands(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let op = self.late.remove(self.rng.usize(0..self.late.len()));
        self.trace(format_args!("late {}", shown(&op)));
        self.store.done(op);
    }

    /// Whether all is answered and delivered.
    fn is_over(&self) -> bool {
        let idle = self.clients.iter().all(|client| client.link.is_some() && client.is_idle());
        let quiet = |link: &Link| link.up.is_empty() && link.down.is_empty() && link.taken.is_empty();
        let links = self.links.iter().filter(|link| link.alive && link.life == self.life);
        idle && self.pending.is_empty()
            && self.late.is_empty()
            && !self.hub.has_more()
            && links.clone().all(|link| quiet(link) && !self.hub.has_frames(link.session))
    }

    fn check_end(&mut self) {
        if !self.ledger.broken.is_empty() {
            return;
        }
        if !self.is_over() {
            let open: Vec<String> = self.clients.iter().map(Client::shown).collect();
            self.ledger.breach(format!("not everything came to an end: {}; {}", open.join("; "), self.hub.pending()));
            return;
        }
        self.ledger.check_end();
    }
}

fn shown(op: &Op) -> String {
    match op {
        Op::Look { address } => format!("look {address}"),
        Op::Raise { address } => format!("raise {address}"),
        Op::Put { address, messages } => {
            format!("put {address} {:?}", messages.iter().map(|(waiting, _)| waiting.received).collect::<Vec<_>>())
        }
        Op::Load { address, waiting } => format!("load {address} {}", waiting.len()),
        Op::Remove { address, waiting } => format!("remove {address} {}", waiting.received),
    }
}

/// Figures of many seeds.
#[must_use]
pub fn hub_totals(outcomes: &[HubOutcome]) -> BTreeMap<&'static str, u64> {
    let sum = |of: fn(&HubOutcome) -> u64| outcomes.iter().map(of).sum();
    BTreeMap::from([
        ("acknowledged", sum(|outcome| outcome.acknowledged)),
        ("cuts", sum(|outcome| outcome.cuts)),
        ("deaths", sum(|outcome| outcome.deaths)),
        ("operations", sum(|outcome| outcome.operations)),
    ])
}
