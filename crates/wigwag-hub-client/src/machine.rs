//! What a client does next: what to send and when, which answer belongs to whom, when to come back.
//!
//! Holds: no sockets, no clock, no chance but what is given. The loop around it opens the socket when the phase is
//! [`Phase::Dialing`], writes what [`Machine::next_frame`] gives when there is room, hands over what comes, and calls
//! [`Machine::tick`] at [`Machine::deadline`]. `W` is whoever waits for an answer.

mod answers;
mod calls;
mod leases;
mod seen;
mod sending;
#[cfg(test)]
mod tests;
mod topics;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use calls::Call;
use calls::{Calls, State, Who};
use leases::Lease;
pub(super) use leases::Registration;
use seen::Seen;
pub(super) use topics::Item;
use topics::Topic;
pub use topics::{Gap, Position};

use super::backoff::{ComeBack, come_back, delay};
use super::error::{Error, ErrorKind};
use super::event::Event;
use super::frame::{Incoming, PROTOCOL, Pattern};
use super::settings::Settings;
use crate::limits::{MOVES_MAX, MOVES_WITHIN, SETTLED_AFTER, SILENT_HEARTBEATS_MAX};

/// What the time is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// For spans: it never steps.
    pub(super) boot: Duration,
    /// For others to read, in milliseconds since 1970.
    pub(super) wall: u64,
}

/// How far the connection is.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Down {
        retry_at: Duration,
    },
    Dialing,
    Greeting {
        until: Duration,
    },
    /// Addresses are registered again before anything else is sent.
    Restoring,
    Up,
    Closing {
        until: Duration,
    },
    Ended(Error),
}

/// What the loop has to do.
#[derive(Debug)]
pub(super) enum Output<W> {
    Answer(W, Result<Incoming, Error>),
    /// A direct message.
    Direct(Incoming),
    /// For a subscription, and where it was before.
    Topic {
        key: u64,
        item: Item,
        before: Option<Position>,
    },
    Event(Event),
    /// The next connection is made to another server.
    Move(String),
}

/// Why a connection is no more.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) code: Option<u16>,
    pub(super) what: String,
}

/// What is known of the connection that is open.
#[derive(Debug)]
struct Link {
    up_since: Option<Duration>,
    heard_at: Duration,
    sent_at: Duration,
    is_paused: bool,
    interval: Duration,
    size_max: usize,
    /// Why the hub said that it will close.
    said: Option<String>,
}

impl Link {
    fn new(now: Now) -> Self {
        let interval = Duration::from_secs(30);
        let (heard_at, sent_at) = (now.boot, now.boot);
        Self { up_since: None, heard_at, sent_at, is_paused: false, interval, size_max: 1 << 20, said: None }
    }
}

/// Who the hub takes this client for.
#[derive(Clone, Debug)]
struct Session {
    id: String,
    address: String,
}

/// What waits to be sent.
#[derive(Debug)]
enum Waiting<W> {
    /// It is done once it is sent; until then it takes room in the buffer.
    Tell(Call, Option<W>),
    Ask(u64),
}

/// The client's side of the hub's protocol. It is one flat state, more than 15 fields: every input may change any of them.
#[derive(Debug)]
pub(super) struct Machine<W> {
    settings: Settings,
    chance: fastrand::Rng,
    /// Ids begin so; nobody else's do.
    prefix: String,
    made: u64,
    phase: Phase,
    link: Link,
    session: Option<Session>,
    was_up: bool,
    is_closing: bool,
    /// Tries to reconnect since the last good connection.
    tries: u32,
    token: Option<String>,
    /// A token that was refused, and in which words.
    refused: Option<(Option<String>, Error)>,
    greeting: Option<String>,
    calls: Calls<W>,
    /// Calls of the client's own, before those of its users.
    urgent: VecDeque<u64>,
    outbox: VecDeque<Waiting<W>>,
    /// Acknowledgements and progress notices to be sent: frame type and message id.
    acks: VecDeque<(&'static str, String)>,
    /// When this client moved to another server.
    moves: VecDeque<Duration>,
    /// The hub said that it is too much until then.
    hold_until: Duration,
    leases: Vec<Lease<W>>,
    topics: BTreeMap<u64, Topic<W>>,
    seen: Seen,
    outputs: VecDeque<Output<W>>,
}

impl<W> Machine<W> {
    pub(super) fn new(settings: Settings, mut chance: fastrand::Rng, now: Now) -> Self {
        Self {
            prefix: format!("c{:016x}", chance.u64(..)),
            seen: Seen::new(settings.seen),
            settings,
            chance,
            made: 0,
            phase: Phase::Dialing,
            link: Link::new(now),
            session: None,
            was_up: false,
            is_closing: false,
            tries: 0,
            token: None,
            refused: None,
            greeting: None,
            calls: Calls::new(),
            urgent: VecDeque::new(),
            outbox: VecDeque::new(),
            acks: VecDeque::new(),
            moves: VecDeque::new(),
            hold_until: Duration::ZERO,
            leases: Vec::new(),
            topics: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(super) fn next_output(&mut self) -> Option<Output<W>> {
        self.outputs.pop_front()
    }

    pub(super) fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Failed connections since the last good one.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Moves to another server. Returns false after too many moves.
    fn move_to(&mut self, url: &str, now: Now) -> bool {
        while self.moves.front().is_some_and(|at| *at + MOVES_WITHIN < now.boot) {
            self.moves.pop_front();
        }
        if self.moves.len() >= MOVES_MAX || self.is_closing {
            return false;
        }
        self.moves.push_back(now.boot);
        self.tries = 0;
        self.link.up_since = None;
        self.phase = Phase::Down { retry_at: now.boot };
        self.rewind();
        self.outputs.push_back(Output::Move(url.to_owned()));
        self.outputs.push_back(Output::Event(Event::Moved { url: url.to_owned() }));
        true
    }

    /// Somebody waits for an answer.
    pub(super) fn is_asked(&self) -> bool {
        self.calls.len() > 0
    }

    /// A socket is about to be opened with that token.
    pub(super) fn dial(&mut self, token: Option<String>) {
        match self.refused.take() {
            Some((refused, error)) if refused == token => self.end(&error),
            _ => self.token = token,
        }
    }

    /// A socket is open.
    pub(super) fn opened(&mut self, now: Now) {
        self.phase = Phase::Greeting { until: now.boot + self.settings.connect_timeout };
        self.link = Link::new(now);
        let mut payload = json!({"protocolVersion": PROTOCOL, "acks": "together"});
        if let Some(session) = &self.session {
            payload["resume"] = json!({"sessionId": session.id});
        }
        self.greeting = Some(self.own_frame("hub:connect", Pattern::Ask, &payload, now));
    }

    /// The socket is closed, or could not be opened.
    pub(super) fn broke(&mut self, lost: Lost, now: Now) {
        if matches!(self.phase, Phase::Down { .. } | Phase::Ended(_)) {
            return;
        }
        let error = self.error_of(lost.code, self.link.said.clone().unwrap_or(lost.what));
        if self.is_closing {
            return self.end(&closed());
        }
        if !self.was_up {
            return self.end(&error);
        }
        let mut come_back = come_back(lost.code);
        if self.link.up_since.take().is_some_and(|since| now.boot.saturating_sub(since) >= SETTLED_AFTER) {
            self.tries = 0;
        } else if come_back == ComeBack::AtOnce && self.tries > 0 {
            come_back = ComeBack::Later;
        }
        let retry_in = match come_back {
            ComeBack::Never => return self.end(&error),
            ComeBack::AtOnce => Duration::ZERO,
            ComeBack::Later | ComeBack::WithAnotherToken => delay(&self.settings, self.tries, self.chance.f64()),
        };
        if come_back == ComeBack::WithAnotherToken {
            self.refused = Some((self.token.clone(), error.clone()));
        }
        self.tries += 1;
        self.phase = Phase::Down { retry_at: now.boot + retry_in };
        self.rewind();
        self.outputs.push_back(Output::Event(Event::Disconnected { error, retry_in }));
    }

    fn error_of(&self, code: Option<u16>, what: String) -> Error {
        let kind = match code {
            Some(4000) => ErrorKind::TakenOver,
            Some(4001) => ErrorKind::Unauthorized,
            Some(1009) => ErrorKind::TooLarge,
            Some(1000) => ErrorKind::Closed,
            Some(4004) => ErrorKind::Invalid,
            _ => ErrorKind::Unreachable,
        };
        match kind {
            ErrorKind::TakenOver => {
                let names: Vec<_> = self.leases.iter().map(|lease| lease.registration.address.as_str()).collect();
                Error::new(kind, format!("another session has an address of this one ({}): `{what}`", names.join(", ")))
                    .hint("the newest registration wins; run one of the two, or give them different addresses")
            }
            ErrorKind::Unauthorized => Error::new(kind, format!("the hub does not let this client in: {what}"))
                .hint("use a token that is valid, and allows what is wanted"),
            ErrorKind::Unreachable => {
                Error::new(kind, what).hint("check that the server runs, and its address; a hub is at `/hub`")
            }
            _ => Error::new(kind, format!("the hub closed the connection: {what}")),
        }
    }

    /// Everything that was on its way waits to be sent again, in its order; the rest waits behind it.
    fn rewind(&mut self) {
        self.urgent.clear();
        for lease in &mut self.leases {
            lease.state = leases::State::Wanted;
        }
        for topic in self.topics.values_mut().filter(|topic| topic.state != topics::State::Behind) {
            topic.state = topics::State::Wanted;
        }
        let mut again = VecDeque::new();
        for key in self.calls.keys() {
            let Some(pending) = self.calls.get(key) else { continue };
            match (&pending.who, pending.state) {
                (Who::User(_), State::Held) => {}
                (Who::User(_), _) => {
                    again.push_back(Waiting::Ask(key));
                    self.calls.set(key, State::Held, None);
                }
                _ => drop(self.calls.remove(key)),
            }
        }
        again.append(&mut self.outbox);
        self.outbox = again;
    }

    /// The user wants no more.
    pub(super) fn close(&mut self) {
        match self.phase {
            Phase::Up | Phase::Restoring => self.is_closing = true,
            Phase::Closing { .. } | Phase::Ended(_) => {}
            _ => self.end(&closed()),
        }
    }

    /// Nothing will be sent any more.
    fn end(&mut self, error: &Error) {
        self.phase = Phase::Ended(error.clone());
        let calls = self.calls.keys();
        let asked = calls.into_iter().filter_map(|key| match self.calls.remove(key)?.who {
            Who::User(waiter) => Some(waiter),
            _ => None,
        });
        let mut waiters: Vec<W> = asked.collect();
        waiters.extend(self.leases.drain(..).filter_map(|lease| lease.waiter));
        waiters.extend(std::mem::take(&mut self.topics).into_values().filter_map(|topic| topic.waiter));
        self.outbox.clear();
        self.urgent.clear();
        self.outputs.extend(waiters.into_iter().map(|waiter| Output::Answer(waiter, Err(error.clone()))));
    }

    /// When something is due, if nothing comes before.
    pub(super) fn deadline(&self, now: Now) -> Option<Duration> {
        let of_phase = match self.phase {
            Phase::Down { retry_at } => Some(retry_at),
            Phase::Greeting { until } | Phase::Closing { until } => Some(until),
            Phase::Restoring | Phase::Up => Some(self.life_deadline()),
            Phase::Dialing | Phase::Ended(_) => None,
        };
        let held = Some(self.hold_until).filter(|until| *until > now.boot);
        [of_phase, held, self.calls.deadline()].into_iter().flatten().min()
    }

    fn life_deadline(&self) -> Duration {
        let beat = self.link.sent_at + self.link.interval;
        let silence = self.link.heard_at + self.link.interval * SILENT_HEARTBEATS_MAX;
        let leases = self.leases.iter().filter_map(Lease::renew_at);
        leases.chain([beat, silence]).min().unwrap_or(beat)
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Now) {
        match self.phase {
            Phase::Down { retry_at } if retry_at <= now.boot => self.phase = Phase::Dialing,
            Phase::Greeting { until } if until <= now.boot => {
                self.broke(Lost { code: None, what: "the server did not greet in time".into() }, now);
            }
            Phase::Closing { until } if until <= now.boot => self.end(&closed()),
            Phase::Restoring | Phase::Up => self.look_for_life(now),
            _ => {}
        }
        while let Some(key) = self.calls.next_due(now.boot) {
            self.call_due(key, now);
        }
        self.advance(now);
    }

    fn look_for_life(&mut self, now: Now) {
        if self.link.heard_at + self.link.interval * SILENT_HEARTBEATS_MAX <= now.boot {
            return self.broke(Lost { code: None, what: "nothing was heard of the server for too long".into() }, now);
        }
        self.renew_leases(now);
    }

    /// Asks for what is wanted, and goes on once all addresses are back.
    fn advance(&mut self, now: Now) {
        if !matches!(self.phase, Phase::Restoring | Phase::Up) {
            return;
        }
        self.ask_for_leases(now);
        let is_waiting = |lease: &Lease<W>| matches!(lease.state, leases::State::Wanted | leases::State::Asked);
        if matches!(self.phase, Phase::Restoring) && !self.leases.iter().any(is_waiting) {
            self.phase = Phase::Up;
        }
        if matches!(self.phase, Phase::Up) {
            self.ask_for_topics(now);
        }
    }

    /// A new id.
    fn new_id(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.prefix, self.made)
    }
}

/// The user closed the client.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client is closed").hint("make another with `Client::connect`")
}

/// What the hub says of a new session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Connected {
    session_id: String,
    address: String,
    #[serde(default)]
    resumed: bool,
    max_message_size: Option<usize>,
    /// In milliseconds.
    heartbeat_interval: Option<u64>,
}

/// An object of the protocol as the hub's own frames carry it.
fn reason_of(frame: &Incoming) -> Option<String> {
    let payload: Value = frame.payload().ok()?;
    Some(payload.get("reason")?.as_str()?.to_owned())
}
