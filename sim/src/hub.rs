//! The hub's core with a store and connections whose faults are drawn from a seed: guarantee 15.
//!
//! Connections are cut at any frame, in either direction, and frames in transit arrive up to some frame or not at all;
//! a client reconnects before the hub has noticed the loss of its old connection. Store operations are rejected, applied, applied with
//! their answer lost, or applied late, in any order. The hub dies in the middle of all this. In half of the worlds two servers share the
//! store, and clients move between them. Clients follow the protocol: they retry unanswered asks in order under the same
//! id, acknowledge messages, reply to requests, and process no message twice. Some also repeat answered asks, use one id for two
//! targets, and send malformed flags. At the end 40 days pass, and the store is swept.

mod acks;
mod client;
mod ledger;
mod link;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;
use wigwag_hub::mutation::{Mutation, mutate};
use wigwag_hub::testing::World as Model;
use wigwag_hub::{Access, Came, Done, Effect, Hub, Op, Settings, Ticket, sweep};

use acks::Acks;
use client::Client;
use ledger::Ledger;
use link::Link;

/// Number of steps with faults.
const TROUBLE: usize = 3_000;

/// Maximum number of steps without faults until everything is answered.
const CALM: usize = 60_000;

const CLIENTS: usize = 4;

/// Maximum number of servers on one store.
const SERVERS: usize = 2;

/// Time after which all stored objects have expired.
const AGES: u64 = 40 * 24 * 3_600_000;

/// Derives the seed of a hub.
fn seed_of(life: u64) -> [u8; 32] {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&life.to_be_bytes());
    seed
}

/// Returns the name of a server.
fn name_of(server: usize) -> String {
    format!("s{server}")
}

/// Timeout of acknowledgements and replies in worlds with slow workers.
const SLOW_ANSWER_WITHIN: u64 = 2_000;

/// Whether workers take long, report progress and acknowledge late in this world: in two of eleven. The other worlds are
/// as they would be without slow workers, so that their seeds keep finding what they found.
fn has_slow_workers(seed: u64) -> bool {
    seed % 11 >= 9
}

/// Outcome of a seed.
#[derive(Debug, Default)]
pub struct HubOutcome {
    /// Guarantees that the hub violated.
    pub broken: Vec<String>,
    /// Trace of all events.
    pub trace: String,
    /// Number of messages that were acknowledged.
    pub acknowledged: u64,
    /// Number of connections that were cut.
    pub cuts: u64,
    /// Number of times that the hub died.
    pub deaths: u64,
    /// Number of store operations.
    pub operations: u64,
}

/// A server with its current hub, and the number of that hub.
struct Server {
    hub: Hub,
    life: u64,
}

/// A store operation in progress.
struct Pending {
    server: usize,
    /// Number of the hub.
    life: u64,
    ticket: Ticket,
    op: Op,
}

struct World {
    rng: Rng,
    now: u64,
    settings: Settings,
    servers: Vec<Server>,
    /// Number of hubs so far, of all servers.
    lives: u64,
    store: Model,
    pending: Vec<Pending>,
    /// Operations that are applied some time after they were reported as failed, with their server.
    late: Vec<(usize, Op)>,
    links: Vec<Link>,
    clients: Vec<Client>,
    ledger: Ledger,
    acks: Acks,
    /// Whether the stored queue of each client has room.
    rooms: [bool; CLIENTS],
    calm: bool,
    outcome: HubOutcome,
}

/// Simulates one seed.
#[must_use]
pub fn simulate_hub(seed: u64, mutation: Option<Mutation>) -> HubOutcome {
    mutate(mutation);
    let outcome = simulate_world(World::new(seed));
    mutate(None);
    outcome
}

fn simulate_world(mut world: World) -> HubOutcome {
    for _ in 0..TROUBLE {
        world.step();
        if !world.ledger.broken.is_empty() {
            return world.end();
        }
    }
    world.calm = true;
    world.acks.end_observation();
    for client in &mut world.clients {
        client.server = 0;
    }
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
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut settings = Settings::default();
        settings.rate = None;
        settings.queue_max = rng.usize(4..30);
        settings.history_max = rng.usize(3..20);
        settings.pause_above = rng.usize(4..20);
        settings.resume_below = settings.pause_above / 2;
        settings.drop_above = settings.pause_above * 2;
        settings.work_slice = rng.usize(1..12);
        settings.fan_out = rng.usize(1..4);
        let slow = has_slow_workers(seed);
        if slow {
            settings.answer_within = SLOW_ANSWER_WITHIN;
        }
        let now = 1_763_251_200_000;
        let pace = |number: usize| slow.then(|| Rng::with_seed(seed ^ ((number as u64 + 1) << 32)));
        let clients = (0..CLIENTS).map(|number| Client::new(number, CLIENTS, pace(number))).collect();
        let store = Model::new(settings.clone());
        let count = rng.usize(1..=SERVERS);
        let server = |number: usize| Server {
            hub: Hub::new(settings.clone(), seed_of(number as u64), now),
            life: number as u64,
        };
        Self {
            servers: (0..count).map(server).collect(),
            lives: count as u64,
            ledger: Ledger::new(settings.queue_max),
            acks: Acks::default(),
            rooms: [true; CLIENTS],
            rng,
            now,
            settings,
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
            94 => self.hear_of_others(),
            95 | 96 => self.late_lands(),
            97 if !self.calm && self.rng.bool() => {
                if let Some(link) = self.any_link() {
                    self.cut(link);
                }
            }
            99 if !self.calm && self.rng.u32(0..12) == 0 => self.hub_dies(),
            _ => {
                for server in &mut self.servers {
                    server.hub.advance(self.now);
                }
            }
        }
        self.effects();
        if !self.calm {
            self.observe_queues();
        }
    }

    /// Records which servers have had no operation on an address whose queue has room.
    fn observe_queues(&mut self) {
        for client in 0..CLIENTS {
            let address = client::address(client);
            let has_room = self.rooms[client];
            for server in 0..self.servers.len() {
                let is_used = |pending: &Pending| pending.server == server && address_of(&pending.op) == address;
                let is_quiet = has_room && !self.pending.iter().any(is_used);
                self.acks.observe(server, client, is_quiet, self.now);
            }
        }
    }

    /// Delivers takeover notices to a server, and checks that it released those addresses.
    fn hear_of_others(&mut self) {
        let server = self.rng.usize(0..self.servers.len());
        let name = name_of(server);
        for taken in self.store.taken(&name) {
            self.trace(format_args!("{name}: {} was taken over", taken.address));
            self.servers[server].hub.taken_over(&taken.address, taken.version, taken.url.as_deref(), self.now);
        }
        for client in 0..CLIENTS {
            let address = client::address(client);
            let is_asked = |pending: &Pending| pending.server == server && address_of(&pending.op) == address;
            let is_elsewhere = self.store.record(&address).is_some_and(|record| record.server != Some(name.clone()));
            let holds = self.servers[server].hub.is_registered(&address);
            // A registration that waits until held messages are routed has not called the store yet.
            let is_busy = self.pending.iter().any(is_asked) || self.servers[server].hub.has_more();
            if is_elsewhere && holds && !is_busy {
                self.ledger.breach(format!("{address} was registered at another server, and {name} still has it"));
            }
        }
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
        self.store.now = self.now;
        for server in &mut self.servers {
            while server.hub.tick(self.now) {}
        }
    }

    /// A client connects, sends, or retries.
    fn client_acts(&mut self) {
        let number = self.rng.usize(0..CLIENTS);
        let reconnects = self.clients[number].link.is_none() || (!self.calm && self.rng.u32(0..150) == 0);
        if reconnects {
            let mut secret = [0; 16];
            secret[0] = u8::try_from(number).unwrap_or_default() + 1;
            secret[8..].copy_from_slice(&self.rng.u64(..).to_be_bytes());
            if !self.calm && self.rng.u32(0..4) == 0 {
                self.clients[number].server = self.rng.usize(0..self.servers.len());
            }
            let server = self.clients[number].server;
            let found = &mut self.servers[server];
            let session = found.hub.open(Access::Open, secret, self.now);
            self.links.push(Link::new(session, server, found.life));
            let link = self.links.len() - 1;
            self.trace(format_args!("client {number} opens {link}"));
            let frames = self.clients[number].connected(link, self.now);
            self.links[link].up.extend(frames);
            return;
        }
        let mut frames = self.clients[number].work(self.now);
        frames.extend(self.clients[number].act(&mut self.rng, self.now, self.calm, &mut self.ledger));
        if let Some(link) = self.clients[number].link {
            self.links[link].up.extend(frames);
        }
    }

    /// A client reads the next frame.
    fn client_reads(&mut self) {
        let number = self.rng.usize(0..CLIENTS);
        let Some(link) = self.clients[number].link else { return };
        match self.links[link].down.pop_front() {
            Some(text) => {
                self.trace(format_args!("client {number} < {text}"));
                let place = (self.links[link].server, self.links[link].life);
                let frames = self.clients[number].got(&text, place, self.now, &mut self.ledger);
                self.links[link].up.extend(frames);
                if std::mem::take(&mut self.clients[number].moves) {
                    self.clients[number].disconnected();
                    self.cut(link);
                }
            }
            None if !self.links[link].alive => self.clients[number].disconnected(),
            None => {}
        }
    }

    /// Delivers a frame to the hub.
    fn carry_up(&mut self) {
        let Some(link) = self.any_link() else { return };
        let found = &mut self.links[link];
        let server = &mut self.servers[found.server];
        if found.life != server.life || !server.hub.may_read(found.session) {
            return;
        }
        let (number, session, text) = (found.server, found.session, found.up.pop_front());
        if let Some(text) = text {
            self.trace(format_args!("hub {link} < {text}"));
            let place = (number, self.servers[number].life);
            if self.servers[number].hub.closing(session).is_none() {
                self.acks.received(&text, link, place, self.now);
            }
            self.servers[number].hub.receive(session, vec![Came::Frame(wigwag_hub::read(&text), None)], self.now);
        }
    }

    /// Moves the hub's frames to a connection, or reports frames as written.
    fn carry_down(&mut self) {
        let Some(link) = self.any_link() else { return };
        let links: [Option<usize>; CLIENTS] =
            std::array::from_fn(|client| self.clients[client].link.filter(|link| self.links[*link].alive));
        let found = &mut self.links[link];
        let server = &mut self.servers[found.server];
        if found.life != server.life {
            return;
        }
        let hub = &mut server.hub;
        let place = (found.server, found.life);
        if found.taken.is_empty() || self.rng.bool() {
            hub.take(found.session, self.rng.usize(1..6), self.now, |bytes| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                self.ledger.handed_out(&text, self.now);
                if let Some(breach) = self.acks.handed_out(&text, link, place, &links) {
                    self.ledger.breach(breach);
                }
                let is_stored = |sender: u64, target: usize, id: &str| {
                    let sender = client::address(usize::try_from(sender).unwrap_or_default());
                    let hash = wigwag_hub::key::message_hash(&sender, id);
                    self.store.waiting(&client::address(target)).iter().any(|(waiting, _)| waiting.hash == hash)
                };
                self.ledger.answer_handed_out(&text, is_stored, self.now);
                found.taken.push_back(text);
            });
        } else {
            let count = self.rng.usize(1..=found.taken.len());
            found.down.extend(found.taken.drain(..count));
            hub.written(found.session, count, self.now);
        }
        let over = hub.closing(found.session).is_some() && !hub.has_frames(found.session);
        if over && found.taken.is_empty() {
            found.alive = false;
            hub.close(found.session, self.now);
        }
    }

    /// Cuts a connection: frames in transit arrive up to some frame.
    fn cut(&mut self, link: usize) {
        let found = &mut self.links[link];
        if !found.alive {
            return;
        }
        self.outcome.cuts += 1;
        found.alive = false;
        let reached = self.rng.usize(0..=found.up.len());
        let sent: Vec<String> = found.up.drain(..).take(reached).collect();
        // The client may have received frames that were not reported as written.
        let seen = self.rng.usize(0..=found.taken.len());
        found.down.extend(found.taken.drain(..).take(seen).collect::<Vec<_>>());
        let kept = self.rng.usize(0..=found.down.len());
        found.down.truncate(kept);
        let server = &mut self.servers[found.server];
        if found.life == server.life {
            let is_open = server.hub.closing(found.session).is_none();
            for text in sent.iter().filter(|_| is_open) {
                self.acks.received(text, link, (found.server, found.life), self.now);
            }
            let all = sent.iter().map(|text| Came::Frame(wigwag_hub::read(text), None)).collect();
            server.hub.receive(found.session, all, self.now);
            server.hub.close(found.session, self.now);
        }
        self.trace(format_args!("cut {link}"));
    }

    /// A hub dies with all operations in progress; a new one replaces it.
    fn hub_dies(&mut self) {
        let server = self.rng.usize(0..self.servers.len());
        self.outcome.deaths += 1;
        self.ledger.deaths += 1;
        self.trace(format_args!("hub {server} dies"));
        let (own, others) = std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.server == server);
        self.pending = others;
        let own: Vec<Pending> = own;
        for pending in own {
            match self.rng.u32(0..3) {
                0 => {}
                1 => self.partly(server, pending.op),
                _ => self.land_late(server, pending.op),
            }
        }
        for link in 0..self.links.len() {
            if self.links[link].server == server {
                self.cut(link);
            }
        }
        self.effects();
        self.now += 1_000;
        self.store.now = self.now;
        self.lives += 1;
        let hub = Hub::new(self.settings.clone(), seed_of(self.lives), self.now);
        self.servers[server] = Server { hub, life: self.lives };
        // Its last operations are dropped.
        self.pending.retain(|pending| pending.server != server);
    }

    fn effects(&mut self) {
        for (number, server) in self.servers.iter_mut().enumerate() {
            for effect in server.hub.effects() {
                if let Effect::Store(ticket, op) = effect {
                    self.pending.push(Pending { server: number, life: server.life, ticket, op });
                }
            }
            server.hub.woken();
            for id in server.hub.refused() {
                self.ledger.refused(&id);
            }
        }
    }

    /// Applies a store operation for a server.
    fn perform(&mut self, server: usize, op: Op) -> Done {
        if let Op::Put { messages, .. } = &op {
            messages.iter().for_each(|(_, body)| self.ledger.put(body));
        }
        self.store.server = name_of(server);
        let others = (0..self.servers.len()).filter(|other| *other != server);
        self.store.others = others.map(|other| (name_of(other), name_of(other))).collect();
        let address = address_of(&op).to_owned();
        let done = self.store.done(op);
        if let Some(client) = (0..CLIENTS).find(|client| client::address(*client) == address) {
            self.rooms[client] = self.store.waiting(&address).len() < self.settings.queue_max;
        }
        done
    }

    /// Completes or fails a store operation.
    fn store_acts(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let Pending { server, life, ticket, op } = self.pending.remove(self.rng.usize(0..self.pending.len()));
        self.outcome.operations += 1;
        let fault = if self.calm { 9 } else { self.rng.u32(0..40) };
        let done = match fault {
            0 => Done::Failed("refused".into()),
            1 => {
                self.partly(server, op.clone());
                Done::Failed("its answer was lost".into())
            }
            2 => {
                self.land_late(server, op.clone());
                Done::Failed("it took too long".into())
            }
            _ => self.perform(server, op.clone()),
        };
        let failed = matches!(done, Done::Failed(_));
        self.trace(format_args!("store {} {} for {server}", if failed { "fails" } else { "does" }, shown(&op)));
        let in_doubt = match &op {
            _ if !failed => 0,
            Op::Put { messages, .. } => messages.len(),
            _ => 1,
        };
        self.ledger.stored(&self.store, self.servers.len(), in_doubt);
        if life == self.servers[server].life {
            if let (Op::Put { messages, .. }, Done::Stored) = (&op, &done) {
                messages.iter().for_each(|(_, body)| self.ledger.kept(body, self.now));
            }
            self.servers[server].hub.done(ticket, done, self.now);
        }
    }

    /// A put or removal may be applied after it was reported as failed; a version is raised atomically.
    fn land_late(&mut self, server: usize, op: Op) {
        if matches!(op, Op::Put { .. } | Op::Remove { .. } | Op::SetAside { .. } | Op::Forget { .. }) {
            self.late.push((server, op));
        }
    }

    /// Applies an operation, or the first part of it.
    fn partly(&mut self, server: usize, op: Op) {
        let op = match op {
            Op::Put { address, mut messages } => {
                messages.truncate(self.rng.usize(0..=messages.len()));
                Op::Put { address, messages }
            }
            whole => whole,
        };
        self.perform(server, op);
    }

    fn late_lands(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let (server, op) = self.late.remove(self.rng.usize(0..self.late.len()));
        self.trace(format_args!("late {}", shown(&op)));
        self.perform(server, op);
    }

    /// Whether all asks are answered and all messages delivered.
    fn is_over(&self) -> bool {
        let idle = self.clients.iter().all(|client| client.link.is_some() && client.is_idle());
        let quiet = |link: &Link| link.up.is_empty() && link.down.is_empty() && link.taken.is_empty();
        let hub = |link: &Link| &self.servers[link.server].hub;
        let mut links = self.links.iter().filter(|link| link.alive && link.life == self.servers[link.server].life);
        idle && self.pending.is_empty()
            && self.late.is_empty()
            && !self.servers.iter().any(|server| server.hub.has_more())
            && links.all(|link| quiet(link) && !hub(link).has_frames(link.session))
    }

    fn check_end(&mut self) {
        if !self.ledger.broken.is_empty() {
            return;
        }
        if !self.is_over() {
            let open: Vec<String> = self.clients.iter().map(Client::shown).collect();
            let pending: usize = self.servers.iter().map(|server| server.hub.pending()).sum();
            self.ledger.breach(format!("not everything came to an end: {}; {pending}", open.join("; ")));
            return;
        }
        self.ledger.check_end();
        self.check_swept();
    }

    /// After weeks without clients, a sweep leaves nothing in the store.
    fn check_swept(&mut self) {
        for link in 0..self.links.len() {
            self.cut(link);
        }
        self.now += AGES;
        self.store.now = self.now;
        for _ in 0..3 {
            self.sweep();
            for _ in 0..20 {
                self.now += 1_000;
                self.servers[0].hub.tick(self.now);
                while self.servers[0].hub.advance(self.now) || self.servers[0].hub.tick(self.now) {}
                self.effects();
                while !self.pending.is_empty() {
                    self.store_acts();
                    self.effects();
                }
            }
        }
        let left: Vec<&String> = self.store.store.keys().filter(|key| wigwag_hub::key::split(key).is_some()).collect();
        if !left.is_empty() {
            let what = format!("swept, and still in the store: {left:?}");
            self.ledger.breach(what);
        }
    }

    fn sweep(&mut self) {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for key in self.store.store.keys() {
            if let Some((prefix, segment)) = wigwag_hub::key::split(key) {
                all.entry(prefix.to_owned()).or_default().push(segment.to_owned());
            }
        }
        for client in 0..CLIENTS {
            let address = client::address(client);
            let prefix = wigwag_hub::key::prefix(&address);
            let Some(segments) = all.get(&prefix) else { continue };
            let stored = segments.iter().map(|segment| (segment.as_str(), self.now - AGES));
            let plan = sweep::plan(stored, self.now, &self.settings);
            for segment in &plan.delete {
                self.store.store.remove(&format!("{prefix}{segment}"));
            }
            if plan.has_expired {
                self.servers[0].hub.sweep(&address, self.now);
            }
            if plan.is_unused {
                self.store.store.remove(&wigwag_hub::key::actor(&address));
            }
        }
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
        Op::Remove { address, waiting, .. } => format!("remove {address} {}", waiting.received),
        Op::SetAside { address, waiting, reason, .. } => format!("set aside {address} {}: {reason}", waiting.received),
        Op::Forget { address, delivered } => format!("forget {address} {}", delivered.len()),
    }
}

fn address_of(op: &Op) -> &str {
    match op {
        Op::Look { address }
        | Op::Raise { address }
        | Op::Put { address, .. }
        | Op::Load { address, .. }
        | Op::Remove { address, .. }
        | Op::SetAside { address, .. }
        | Op::Forget { address, .. } => address,
    }
}

/// Totals of many seeds.
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
