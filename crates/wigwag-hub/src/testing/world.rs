//! A hub, its store and its clients in one process and thread.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::key::{ActorRecord, Delivered, FLOOR, FloorRecord, TakenRecord};
use crate::{
    Access, Came, Done, Effect, Hub, Kept, Millis, Op, Place, SessionId, Settings, SignalRefusal, Ticket, Waiting, key,
    sweep,
};

/// A client and the frames that it received.
#[derive(Debug)]
struct Peer {
    session: SessionId,
    got: VecDeque<String>,
    closed: Option<u16>,
    /// Whether it reads frames.
    reads: bool,
    /// Frames handed to the connection and not yet reported as written.
    taken: usize,
}

/// A hub and everything around it.
#[derive(Debug)]
pub struct World {
    /// The hub under test.
    pub hub: Hub,
    /// The time that the hub sees.
    pub now: Millis,
    /// Content of the store.
    pub store: BTreeMap<String, Bytes>,
    /// Time of the last registration of each address.
    pub registered_at: BTreeMap<String, Millis>,
    /// Id of this server.
    pub server: String,
    /// Other servers that are running, and their URLs.
    pub others: BTreeMap<String, String>,
    /// Store operations wait until [`World::release`].
    pub hold: bool,
    /// The next store operations fail.
    pub broken: bool,
    /// Runs, and whether each waits for a signal.
    pub runs: BTreeMap<String, bool>,
    /// Signals sent: run, name, payload, key, sender.
    pub signals: Vec<(String, String, String, String, String)>,
    /// Other effects, in order.
    pub effects: Vec<Effect>,
    peers: BTreeMap<String, Peer>,
    held: VecDeque<(Ticket, Op)>,
    settings: Settings,
    count: u64,
}

impl World {
    /// Creates a hub without connections.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let now = 1_763_251_200_000;
        Self {
            hub: Hub::new(settings.clone(), [7; 32], now),
            now,
            store: BTreeMap::new(),
            registered_at: BTreeMap::new(),
            server: String::from("s0"),
            others: BTreeMap::new(),
            hold: false,
            broken: false,
            runs: BTreeMap::new(),
            signals: Vec::new(),
            effects: Vec::new(),
            peers: BTreeMap::new(),
            held: VecDeque::new(),
            settings,
            count: 0,
        }
    }

    /// Simulates a crash and a new process: only the store survives.
    pub fn restart(&mut self) {
        self.now += 1_000;
        self.hub = Hub::new(self.settings.clone(), [8; 32], self.now);
        self.held.clear();
        for peer in self.peers.values_mut().filter(|peer| peer.closed.is_none()) {
            peer.closed = Some(1006);
        }
    }

    /// Opens a socket.
    pub fn open(&mut self, name: &str) {
        self.open_as(name, Access::Open);
    }

    /// Opens a socket with a token.
    pub fn open_as(&mut self, name: &str, access: Access) {
        self.count += 1;
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&self.count.to_be_bytes());
        let session = self.hub.open(access, secret, self.now);
        let peer = Peer { session, got: VecDeque::new(), closed: None, reads: true, taken: 0 };
        self.peers.insert(name.to_owned(), peer);
    }

    /// Opens a socket and connects. Returns the session's address.
    pub fn join(&mut self, name: &str) -> String {
        self.open(name);
        let got = self.ask(name, "@(x)", "hub:connect", json!({"protocolVersion": "0.1.0"}));
        got["payload"]["address"].as_str().unwrap_or_default().to_owned()
    }

    /// Opens a socket, connects and registers an address.
    pub fn join_as(&mut self, name: &str, address: &str) -> Value {
        let own = self.join(name);
        self.ask(name, &own, "hub:register", json!({"actorAddress": address}))
    }

    /// Returns the session of a socket.
    #[must_use]
    pub fn session(&self, name: &str) -> SessionId {
        self.peers[name].session
    }

    /// Sets whether a client reads its frames.
    pub fn reads(&mut self, name: &str, reads: bool) {
        if let Some(peer) = self.peers.get_mut(name) {
            peer.reads = reads;
        }
        self.settle();
    }

    /// Returns an envelope with a fresh id.
    #[expect(clippy::needless_pass_by_value, reason = "it is made where it is used")]
    pub fn envelope(&mut self, from: &str, kind: &str, pattern: &str, payload: Value) -> Value {
        self.count += 1;
        json!({
            "id": format!("m{}", self.count),
            "from": from,
            "to": "@(hub)",
            "type": kind,
            "pattern": pattern,
            "timestamp": self.now,
            "payload": payload,
        })
    }

    /// Sends a frame.
    pub fn send(&mut self, name: &str, frame: &Value) {
        self.text(name, &frame.to_string());
    }

    /// Sends a raw text frame.
    pub fn text(&mut self, name: &str, text: &str) {
        let session = self.peers[name].session;
        let max = self.settings.message_bytes_max;
        let came = if text.len() > max { Came::TooLarge(text.len()) } else { Came::Frame(crate::read(text), None) };
        self.hub.receive(session, vec![came], self.now);
        self.settle();
    }

    /// Sends a tell to the hub. Returns the message's id.
    pub fn tell(&mut self, name: &str, from: &str, kind: &str, payload: Value) -> String {
        let frame = self.envelope(from, kind, "tell", payload);
        self.send(name, &frame);
        frame["id"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends an ask to the hub, then removes and returns its answer.
    pub fn ask(&mut self, name: &str, from: &str, kind: &str, payload: Value) -> Value {
        let frame = self.envelope(from, kind, "ask", payload);
        self.ask_frame(name, &frame)
    }

    /// Like [`ask`](Self::ask), with a given frame.
    pub fn ask_frame(&mut self, name: &str, frame: &Value) -> Value {
        self.send(name, frame);
        self.answer(name, frame)
    }

    /// Removes and returns the first answer to a frame; null if there is none.
    pub fn answer(&mut self, name: &str, frame: &Value) -> Value {
        let got = &mut self.peers.get_mut(name).expect("a socket of that name").got;
        let parsed = |text: &String| serde_json::from_str::<Value>(text).unwrap_or_default();
        let place = got.iter().position(|text| parsed(text)["correlationId"] == frame["id"]);
        place.and_then(|place| got.remove(place)).map_or(Value::Null, |text| parsed(&text))
    }

    /// Removes and returns the next frame received.
    pub fn next(&mut self, name: &str) -> Option<Value> {
        self.next_text(name).map(|text| serde_json::from_str(&text).unwrap_or_default())
    }

    /// Like [`next`](Self::next), as text.
    pub fn next_text(&mut self, name: &str) -> Option<String> {
        self.peers.get_mut(name).and_then(|peer| peer.got.pop_front())
    }

    /// Removes and returns all frames received.
    pub fn all(&mut self, name: &str) -> Vec<Value> {
        std::iter::from_fn(|| self.next(name)).collect()
    }

    /// Returns the code that a socket was closed with.
    #[must_use]
    pub fn closed(&self, name: &str) -> Option<u16> {
        self.peers[name].closed
    }

    /// Closes a client's connection.
    pub fn close(&mut self, name: &str) {
        if let Some(peer) = self.peers.get_mut(name).filter(|peer| peer.closed.is_none()) {
            peer.closed = Some(1006);
            let session = peer.session;
            self.hub.close(session, self.now);
        }
        self.settle();
    }

    /// Advances the time and calls the hub's tick.
    pub fn pass(&mut self, span: Millis) {
        self.now += span;
        while self.hub.tick(self.now) {}
        self.settle();
    }

    /// Advances time in small steps, with heartbeats from all connections.
    pub fn pass_alive(&mut self, span: Millis) {
        let until = self.now + span;
        while self.now < until {
            let open: Vec<SessionId> =
                self.peers.values().filter(|peer| peer.closed.is_none()).map(|peer| peer.session).collect();
            for session in open {
                self.hub.receive(session, vec![Came::Sign], self.now);
            }
            self.pass((until - self.now).min(10_000));
        }
    }

    /// Carries out the store operations on hold, in order.
    pub fn release(&mut self) {
        self.hold = false;
        self.settle();
    }

    /// Carries out the next store operation alone.
    pub fn settle_one(&mut self) {
        for effect in self.hub.effects() {
            self.perform(effect);
        }
        if let Some((ticket, op)) = self.held.pop_front() {
            let done = self.done(op);
            self.hub.done(ticket, done, self.now);
        }
    }

    /// Carries out all outstanding work.
    pub fn settle(&mut self) {
        loop {
            let mut moved = self.hub.advance(self.now);
            for effect in self.hub.effects() {
                moved = true;
                self.perform(effect);
            }
            while !self.hold && !self.held.is_empty() {
                let Some((ticket, op)) = self.held.pop_front() else { break };
                moved = true;
                let done = if self.broken { Done::Failed("it is broken".into()) } else { self.done(op) };
                self.hub.done(ticket, done, self.now);
            }
            let names: Vec<String> = self.peers.keys().cloned().collect();
            for name in names {
                moved |= self.read(&name);
            }
            // Dropping an expired frame may produce frames for other sessions.
            moved |= !self.hub.woken().is_empty();
            if !moved {
                break;
            }
        }
    }

    fn read(&mut self, name: &str) -> bool {
        let Some(peer) = self.peers.get_mut(name).filter(|peer| peer.closed.is_none() && peer.reads) else {
            return false;
        };
        let put = |bytes: &[u8]| peer.got.push_back(String::from_utf8_lossy(bytes).into_owned());
        peer.taken += self.hub.take(peer.session, usize::MAX, self.now, put);
        let moved = peer.taken > 0;
        self.hub.written(peer.session, std::mem::take(&mut peer.taken), self.now);
        if let (Some(close), false) = (self.hub.closing(peer.session), self.hub.has_frames(peer.session)) {
            peer.closed = Some(close.code());
            self.hub.close(peer.session, self.now);
            return true;
        }
        moved
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Store(ticket, op) => self.held.push_back((ticket, op)),
            Effect::Signal { ticket, run, name, payload, key, by, .. } => {
                let outcome = match self.runs.get(&run) {
                    Some(waits) => Ok(*waits),
                    None => Err(SignalRefusal::Unknown(format!("run not found: `{run}`"))),
                };
                if outcome.is_ok() {
                    self.signals.push((run, name, payload, key, by));
                }
                self.hub.done(ticket, Done::Signalled(outcome), self.now);
            }
            other => self.effects.push(other),
        }
    }

    /// Carries out a store operation for this server.
    pub fn done(&mut self, op: Op) -> Done {
        match op {
            Op::Look { address } => {
                let record = self.record(&address);
                let elsewhere = record.as_ref().and_then(|record| self.place(record));
                Done::Looked { known: record.is_some(), elsewhere, kept: self.kept(&address) }
            }
            Op::Raise { address } => self.raise(&address),
            Op::Put { address, messages } => {
                if let Some(place) = self.record(&address).and_then(|record| self.place(&record)) {
                    return Done::Elsewhere(place);
                }
                for (waiting, body) in messages {
                    self.store.insert(key::waiting(&address, &waiting), body);
                }
                Done::Stored
            }
            Op::Load { address, waiting } => {
                let load = |waiting: Waiting| {
                    let body = self.store.get(&key::waiting(&address, &waiting)).cloned();
                    (waiting, body)
                };
                Done::Loaded(waiting.into_iter().map(load).collect())
            }
            Op::Remove { address, waiting, delivered } => {
                if let Some(delivered) = delivered {
                    self.store.insert(key::delivered(&address, &delivered), Bytes::from_static(b"{}"));
                }
                self.store.remove(&key::waiting(&address, &waiting));
                Done::Stored
            }
            Op::SetAside { address, waiting, body, .. } => {
                self.store.insert(key::unreadable(&address, &waiting), body);
                self.store.remove(&key::waiting(&address, &waiting));
                Done::Stored
            }
            Op::Forget { address, delivered } => {
                for delivered in delivered {
                    self.store.remove(&key::delivered(&address, &delivered));
                }
                Done::Stored
            }
        }
    }

    /// Returns the record of an address.
    #[must_use]
    pub fn record(&self, address: &str) -> Option<ActorRecord> {
        self.store.get(&key::actor(address)).and_then(|body| serde_json::from_slice(body).ok())
    }

    /// Returns the other server that an address is registered at.
    fn place(&self, record: &ActorRecord) -> Option<Place> {
        let server = record.server.as_ref().filter(|server| **server != self.server)?;
        self.others.get(server).map(|url| Place { url: Some(url.clone()) })
    }

    fn raise(&mut self, address: &str) -> Done {
        let last = self.record(address);
        let floor = self.store.get(FLOOR).and_then(|body| serde_json::from_slice::<FloorRecord>(body).ok());
        let floor = floor.map_or(0, |floor| floor.version);
        let version = last.as_ref().map_or(floor, |record| record.version) + 1;
        if let Some(server) =
            last.as_ref().filter(|last| self.place(last).is_some()).and_then(|last| last.server.as_ref())
        {
            let taken = TakenRecord { address: address.to_owned(), version, url: Some(self.server.clone()) };
            self.insert(&key::taken(server, address), &taken);
        }
        let record = ActorRecord { address: address.to_owned(), version, server: Some(self.server.clone()) };
        self.insert(&key::actor(address), &record);
        self.registered_at.insert(address.to_owned(), self.now);
        Done::Raised { version, kept: self.kept(address) }
    }

    fn insert(&mut self, key: &str, record: &impl serde::Serialize) {
        self.store.insert(key.to_owned(), serde_json::to_vec(record).unwrap_or_default().into());
    }

    /// Removes and returns the takeover notices of a server.
    pub fn taken(&mut self, server: &str) -> Vec<TakenRecord> {
        let prefix = key::taken_from(server);
        let keys: Vec<String> = self.store.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        let bodies = keys.iter().filter_map(|key| self.store.remove(key));
        bodies.filter_map(|body| serde_json::from_slice(&body).ok()).collect()
    }

    /// Delivers the takeover notices of this server.
    pub fn hear_of_others(&mut self) {
        for TakenRecord { address, version, url } in self.taken(&self.server.clone()) {
            self.hub.taken_over(&address, version, url.as_deref(), self.now);
        }
    }

    /// Sweeps the store once.
    pub fn sweep(&mut self) {
        let mut all: BTreeMap<String, Vec<(String, Millis)>> = BTreeMap::new();
        for key in self.store.keys() {
            let Some((prefix, segment)) = key::split(key) else { continue };
            let address = self.registered_at.keys().find(|address| key::prefix(address) == prefix);
            let written = address.and_then(|address| self.registered_at.get(address)).copied().unwrap_or(self.now);
            all.entry(prefix.to_owned()).or_default().push((segment.to_owned(), written));
        }
        for (prefix, stored) in all {
            let stored = stored.iter().map(|(segment, written)| (segment.as_str(), *written));
            let plan = sweep::plan(stored, self.now, &self.settings);
            for segment in &plan.delete {
                self.store.remove(&format!("{prefix}{segment}"));
            }
            let record = self.store.get(&format!("{prefix}{}", sweep::ACTOR));
            let Some(record) = record.and_then(|body| serde_json::from_slice::<ActorRecord>(body).ok()) else {
                continue;
            };
            if plan.has_expired {
                self.hub.sweep(&record.address, self.now);
            }
            if plan.is_unused && !self.hub.is_registered(&record.address) {
                self.insert(FLOOR, &FloorRecord { version: record.version + sweep::VERSIONS_AHEAD });
                self.store.remove(&key::actor(&record.address));
            }
        }
    }

    /// Returns the messages and dedup markers of an address.
    fn kept(&self, address: &str) -> Kept {
        let prefix = key::prefix(address);
        let segments = self.store.keys().filter_map(|key| key.strip_prefix(&prefix));
        Kept { waiting: self.waiting(address), delivered: segments.filter_map(Delivered::parse).collect() }
    }

    /// Returns the queued messages of an address in the store.
    #[must_use]
    pub fn waiting(&self, address: &str) -> Vec<(Waiting, usize)> {
        let prefix = key::prefix(address);
        let of = |(key, body): (&String, &Bytes)| {
            let waiting = Waiting::parse(key.strip_prefix(&prefix)?)?;
            Some((waiting, body.len()))
        };
        self.store.iter().filter_map(of).collect()
    }
}
