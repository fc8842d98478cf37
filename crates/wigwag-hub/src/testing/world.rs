//! A hub, its store and its clients in one place, in one thread.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{Access, Came, Done, Effect, Hub, Millis, Op, SessionId, Settings, SignalRefusal, Ticket, Waiting, key};

/// A client, by the frames it got.
#[derive(Debug)]
struct Peer {
    session: SessionId,
    got: VecDeque<String>,
    closed: Option<u16>,
    /// It takes what is there for it.
    reads: bool,
    /// Frames that the connection has, if it does not say that it wrote them.
    taken: usize,
}

/// A hub and everything around it.
#[derive(Debug)]
pub struct World {
    /// The hub.
    pub hub: Hub,
    /// The time.
    pub now: Millis,
    /// What is stored.
    pub store: BTreeMap<String, Bytes>,
    /// Store operations wait until [`World::release`].
    pub hold: bool,
    /// The next store operations fail.
    pub broken: bool,
    /// Runs that wait for a signal (`true`) or do not.
    pub runs: BTreeMap<String, bool>,
    /// Signals that were sent: run, name, payload, key, by.
    pub signals: Vec<(String, String, String, String, String)>,
    /// Other effects, in order.
    pub effects: Vec<Effect>,
    peers: BTreeMap<String, Peer>,
    held: VecDeque<(Ticket, Op)>,
    settings: Settings,
    count: u64,
}

impl World {
    /// A hub that nobody is connected to.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let now = 1_763_251_200_000;
        Self {
            hub: Hub::new(settings.clone(), [7; 32], now),
            now,
            store: BTreeMap::new(),
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

    /// The process dies and another takes its place: what is stored is all that is left.
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

    /// Opens a socket and connects; gives the session's address.
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

    /// The session of a socket.
    #[must_use]
    pub fn session(&self, name: &str) -> SessionId {
        self.peers[name].session
    }

    /// Whether a client takes what is there for it.
    pub fn reads(&mut self, name: &str, reads: bool) {
        if let Some(peer) = self.peers.get_mut(name) {
            peer.reads = reads;
        }
        self.settle();
    }

    /// An envelope with a fresh id.
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

    /// Sends a text.
    pub fn text(&mut self, name: &str, text: &str) {
        let session = self.peers[name].session;
        let max = self.settings.message_bytes_max;
        let came = if text.len() > max { Came::TooLarge(text.len()) } else { Came::Frame(crate::read(text), None) };
        self.hub.receive(session, vec![came], self.now);
        self.settle();
    }

    /// Tells the hub something; gives the message's id.
    pub fn tell(&mut self, name: &str, from: &str, kind: &str, payload: Value) -> String {
        let frame = self.envelope(from, kind, "tell", payload);
        self.send(name, &frame);
        frame["id"].as_str().unwrap_or_default().to_owned()
    }

    /// Asks the hub something and takes the answer out of what came.
    pub fn ask(&mut self, name: &str, from: &str, kind: &str, payload: Value) -> Value {
        let frame = self.envelope(from, kind, "ask", payload);
        self.ask_frame(name, &frame)
    }

    /// The same with a frame of one's own.
    pub fn ask_frame(&mut self, name: &str, frame: &Value) -> Value {
        self.send(name, frame);
        self.answer(name, frame)
    }

    /// The first answer to a frame, taken out of what came; null if there is none.
    pub fn answer(&mut self, name: &str, frame: &Value) -> Value {
        let got = &mut self.peers.get_mut(name).expect("a socket of that name").got;
        let parsed = |text: &String| serde_json::from_str::<Value>(text).unwrap_or_default();
        let place = got.iter().position(|text| parsed(text)["correlationId"] == frame["id"]);
        place.and_then(|place| got.remove(place)).map_or(Value::Null, |text| parsed(&text))
    }

    /// The next frame that came.
    pub fn next(&mut self, name: &str) -> Option<Value> {
        self.next_text(name).map(|text| serde_json::from_str(&text).unwrap_or_default())
    }

    /// The same as text.
    pub fn next_text(&mut self, name: &str) -> Option<String> {
        self.peers.get_mut(name).and_then(|peer| peer.got.pop_front())
    }

    /// All frames that came.
    pub fn all(&mut self, name: &str) -> Vec<Value> {
        std::iter::from_fn(|| self.next(name)).collect()
    }

    /// How a socket was closed.
    #[must_use]
    pub fn closed(&self, name: &str) -> Option<u16> {
        self.peers[name].closed
    }

    /// A client goes away, or its connection breaks.
    pub fn close(&mut self, name: &str) {
        if let Some(peer) = self.peers.get_mut(name).filter(|peer| peer.closed.is_none()) {
            peer.closed = Some(1006);
            let session = peer.session;
            self.hub.close(session, self.now);
        }
        self.settle();
    }

    /// Time passes, and the hub is told.
    pub fn pass(&mut self, span: Millis) {
        self.now += span;
        self.hub.tick(self.now);
        self.settle();
    }

    /// Store operations that were held are done, in their order.
    pub fn release(&mut self) {
        self.hold = false;
        self.settle();
    }

    /// Does the next store operation alone.
    pub fn settle_one(&mut self) {
        for effect in self.hub.effects() {
            self.perform(effect);
        }
        if let Some((ticket, op)) = self.held.pop_front() {
            let done = self.done(op);
            self.hub.done(ticket, done, self.now);
        }
    }

    /// Does all that is to be done.
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
            // What a frame that was dropped made the hub say is for somebody else.
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
                    None => Err(SignalRefusal::Unknown(format!("there is no run `{run}`"))),
                };
                if outcome.is_ok() {
                    self.signals.push((run, name, payload, key, by));
                }
                self.hub.done(ticket, Done::Signalled(outcome), self.now);
            }
            other => self.effects.push(other),
        }
    }

    /// What a store does.
    pub fn done(&mut self, op: Op) -> Done {
        match op {
            Op::Look { address } => {
                let known = self.store.contains_key(&key::actor(&address));
                Done::Looked { known, waiting: self.waiting(&address) }
            }
            Op::Raise { address } => {
                let at = key::actor(&address);
                let last = self.store.get(&at).and_then(|body| serde_json::from_slice::<u64>(body).ok());
                let version = last.unwrap_or_default() + 1;
                self.store.insert(at, Bytes::from(version.to_string()));
                Done::Raised { version, waiting: self.waiting(&address) }
            }
            Op::Put { address, messages } => {
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
            Op::Remove { address, waiting } => {
                self.store.remove(&key::waiting(&address, &waiting));
                Done::Stored
            }
        }
    }

    /// What waits for an address in the store.
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
