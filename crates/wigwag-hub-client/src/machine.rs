//! The client's protocol as a state machine: frames to send, answers matched to calls, timeouts, and reconnects.
//!
//! Holds: no sockets and no clock; time and randomness are arguments. The driver opens a socket in the phase
//! [`Phase::Dialing`], writes the frames of [`Machine::next_frame`] while the socket has room, passes incoming frames
//! to [`Machine::frame`], and calls [`Machine::tick`] at [`Machine::deadline`]. `W` is the receiver of a call's answer.

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

/// The current time on two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Monotonic time, for durations and deadlines.
    pub(super) boot: Duration,
    /// Wall clock time in milliseconds since 1970, for timestamps in frames.
    pub(super) wall: u64,
}

/// Phase of the connection.
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

/// An action for the driver.
#[derive(Debug)]
pub(super) enum Output<W> {
    Answer(W, Result<Incoming, Error>),
    /// A direct message for the inbox.
    Direct(Incoming),
    /// An item for a subscription, and the subscription's position before it.
    Topic {
        key: u64,
        item: Item,
        before: Option<Position>,
    },
    Event(Event),
    /// The next connection goes to another server.
    Move(String),
}

/// The reason why a connection ended or could not be opened.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) code: Option<u16>,
    pub(super) what: String,
}

/// State of the open connection.
#[derive(Debug)]
struct Link {
    up_since: Option<Duration>,
    heard_at: Duration,
    sent_at: Duration,
    is_paused: bool,
    interval: Duration,
    size_max: usize,
    /// Reason for closing that the hub announced in `hub:disconnect`.
    said: Option<String>,
}

impl Link {
    fn new(now: Now) -> Self {
        let interval = Duration::from_secs(30);
        let (heard_at, sent_at) = (now.boot, now.boot);
        Self { up_since: None, heard_at, sent_at, is_paused: false, interval, size_max: 1 << 20, said: None }
    }
}

/// The session that the hub assigned to this client.
#[derive(Clone, Debug)]
struct Session {
    id: String,
    address: String,
}

/// An entry of the outbox.
#[derive(Debug)]
enum Waiting<W> {
    /// A message without an answer; it holds a permit of the send buffer until it is sent.
    Tell(Call, Option<W>),
    Ask(u64),
}

/// The client's side of the hub protocol. The state is flat, with more than 15 fields, because any
/// input may change any field.
#[derive(Debug)]
pub(super) struct Machine<W> {
    settings: Settings,
    chance: fastrand::Rng,
    /// Random prefix that makes this client's ids unique.
    prefix: String,
    made: u64,
    phase: Phase,
    link: Link,
    session: Option<Session>,
    was_up: bool,
    is_closing: bool,
    /// Reconnect attempts since the last good connection.
    tries: u32,
    token: Option<String>,
    /// The token that the hub rejected, and the error. The client does not try the same token again.
    refused: Option<(Option<String>, Error)>,
    greeting: Option<String>,
    calls: Calls<W>,
    /// Calls of the client itself, sent before the users' calls.
    urgent: VecDeque<u64>,
    outbox: VecDeque<Waiting<W>>,
    /// Acknowledgements and progress notices to be sent: frame type and message id.
    acks: VecDeque<(&'static str, String)>,
    /// Times of the recent moves to another server.
    moves: VecDeque<Duration>,
    /// End of the delay that the hub's rate limit imposed.
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

    /// Returns the number of reconnect attempts since the last good connection.
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

    /// Whether any call waits for its answer.
    pub(super) fn is_asked(&self) -> bool {
        self.calls.len() > 0
    }

    /// Prepares a connection with this token. Ends the client if the hub rejected the same token before.
    pub(super) fn dial(&mut self, token: Option<String>) {
        match self.refused.take() {
            Some((refused, error)) if refused == token => self.end(&error),
            _ => self.token = token,
        }
    }

    /// Starts the greeting on a newly opened socket.
    pub(super) fn opened(&mut self, now: Now) {
        self.phase = Phase::Greeting { until: now.boot + self.settings.connect_timeout };
        self.link = Link::new(now);
        let mut payload = json!({"protocolVersion": PROTOCOL, "acks": "together"});
        if let Some(session) = &self.session {
            payload["resume"] = json!({"sessionId": session.id});
        }
        self.greeting = Some(self.own_frame("hub:connect", Pattern::Ask, &payload, now));
    }

    /// Handles a connection that ended or could not be opened: schedules a reconnect, or ends the client.
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
                let names = names.join(", ");
                Error::new(kind, format!("another session registered an address of this client ({names}): {what}"))
                    .hint("the newest registration wins; run one of the two, or give them different addresses")
            }
            ErrorKind::Unauthorized => Error::new(kind, format!("the hub rejected this client: {what}"))
                .hint("use a valid token with the required scopes"),
            ErrorKind::Unreachable => {
                Error::new(kind, what).hint("check that the server runs, and the URL; a hub's path is `/hub`")
            }
            _ => Error::new(kind, format!("the hub closed the connection: {what}")),
        }
    }

    /// Requeues the users' unanswered calls in their order, before the messages that were not yet sent. Addresses and
    /// topics will be requested again.
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

    /// Closes the client: after the buffered messages if a session is open, else immediately.
    pub(super) fn close(&mut self) {
        match self.phase {
            Phase::Up | Phase::Restoring => self.is_closing = true,
            Phase::Closing { .. } | Phase::Ended(_) => {}
            _ => self.end(&closed()),
        }
    }

    /// Ends the client: all open calls fail with the error, and nothing more is sent.
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

    /// Returns the next time at which [`Machine::tick`] has work.
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

    /// Handles all deadlines that have passed.
    pub(super) fn tick(&mut self, now: Now) {
        match self.phase {
            Phase::Down { retry_at } if retry_at <= now.boot => self.phase = Phase::Dialing,
            Phase::Greeting { until } if until <= now.boot => {
                self.broke(Lost { code: None, what: "the server did not answer `hub:connect` in time".into() }, now);
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
            return self.broke(Lost { code: None, what: "the server stopped answering heartbeats".into() }, now);
        }
        self.renew_leases(now);
    }

    /// Requests missing registrations; once all addresses are registered, ends the phase
    /// `Restoring` and requests topics.
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

    /// Returns an id that this client has not used before.
    fn new_id(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.prefix, self.made)
    }
}

/// Returns the error of calls on a closed client.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client is closed").hint("connect again with `Client::connect`")
}

/// Payload of `hub:connected`, which starts a session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Connected {
    session_id: String,
    address: String,
    #[serde(default)]
    resumed: bool,
    max_message_size: Option<usize>,
    /// Interval of heartbeats in milliseconds.
    heartbeat_interval: Option<u64>,
}

/// Returns the `reason` field of a frame's payload.
fn reason_of(frame: &Incoming) -> Option<String> {
    let payload: Value = frame.payload().ok()?;
    Some(payload.get("reason")?.as_str()?.to_owned())
}
