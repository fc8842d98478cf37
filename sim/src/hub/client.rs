//! A client that follows the protocol.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;
use serde_json::{Value, json};

use super::ledger::Ledger;

const WINDOW: usize = 4;

/// Time after which a client retries an ask on the same connection.
const PATIENCE: u64 = 30_000;

/// The topic that all clients subscribe to and client 0 publishes to.
const TOPIC: &str = "t";

/// An unanswered ask.
#[derive(Debug)]
struct Open {
    frame: Value,
    sent_at: u64,
    /// Time of the next retry after a rejection.
    again_at: Option<u64>,
    /// Number of times it was sent.
    sends: u32,
}

/// Time that a client waits after a timeout before it retries, so that a late acknowledgement can arrive.
const AFTER_TIMEOUT: u64 = 8_000;

/// A message that a slow worker is working on.
#[derive(Debug)]
struct Job {
    /// The connection that it came on, and where its outcome goes.
    link: usize,
    id: String,
    /// Frames to send when it is done.
    outcome: Vec<String>,
    done_at: u64,
    /// Times at which it reports progress.
    reports: Vec<u64>,
}

/// Number of answered asks kept for repeats.
const CURIOSITY: usize = 8;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) number: usize,
    address: String,
    count: usize,
    /// The connection it uses.
    pub(super) link: Option<usize>,
    /// The server that it connects to.
    pub(super) server: usize,
    /// Whether the hub answered `elsewhere`.
    pub(super) moves: bool,
    /// Answered asks that may be repeated.
    answered: VecDeque<(Value, u32)>,
    /// Ids of answered asks that were repeated on this connection.
    repeated: BTreeSet<String>,
    /// Ids of asks that were finally rejected: no further answer may follow.
    refused: BTreeSet<String>,
    /// Ids that were reused for another target on this connection, without an answer yet.
    clashing: BTreeSet<String>,
    /// Whether it is connected and registered.
    ready: bool,
    open: VecDeque<Open>,
    next: BTreeMap<usize, u64>,
    asked: u64,
    paused: bool,
    /// Messages that it has received, by their id on the hub, and by sender and number.
    seen: BTreeSet<String>,
    /// Epoch and last number of the topic.
    place: Option<(u64, u64)>,
    /// Messages of the topic since the last `hub:subscribed`.
    since_subscribed: BTreeSet<(u64, u64)>,
    published: u64,
    /// The pace of a slow worker: a random stream of its own.
    pace: Option<Rng>,
    jobs: Vec<Job>,
}

impl Client {
    pub(super) fn new(number: usize, count: usize, pace: Option<Rng>) -> Self {
        Self {
            number,
            address: address(number),
            count,
            link: None,
            server: 0,
            moves: false,
            answered: VecDeque::new(),
            repeated: BTreeSet::new(),
            refused: BTreeSet::new(),
            clashing: BTreeSet::new(),
            ready: false,
            open: VecDeque::new(),
            next: BTreeMap::new(),
            asked: 0,
            paused: false,
            seen: BTreeSet::new(),
            place: None,
            since_subscribed: BTreeSet::new(),
            published: 0,
            pace,
            jobs: Vec::new(),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is made where it is used")]
    fn frame(&mut self, kind: &str, pattern: &str, payload: Value, now: u64) -> Value {
        self.asked += 1;
        json!({
            "id": format!("c{}-{}", self.number, self.asked), "from": self.address, "to": "@(hub)", "type": kind,
            "pattern": pattern, "timestamp": now, "payload": payload,
        })
    }

    /// Sends `hub:connect` over a new connection.
    pub(super) fn connected(&mut self, link: usize, now: u64) -> Vec<String> {
        self.link = Some(link);
        self.ready = false;
        self.paused = false;
        self.clashing.clear();
        self.repeated.clear();
        // Half of the clients request combined acknowledgements, alternating with each connection.
        let acks = if (self.number + link).is_multiple_of(2) { "together" } else { "single" };
        let connect = self.frame("hub:connect", "ask", json!({"protocolVersion": "0.1.0", "acks": acks}), now);
        let register = self.frame("hub:register", "ask", json!({"actorAddress": self.address}), now);
        vec![connect.to_string(), register.to_string()]
    }

    pub(super) fn disconnected(&mut self) {
        self.link = None;
        self.ready = false;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready && self.open.is_empty() && self.jobs.is_empty()
    }

    pub(super) fn shown(&self) -> String {
        format!("client {} ready {} open {} paused {}", self.number, self.ready, self.open.len(), self.paused)
    }

    /// Sends the outcome of jobs that are done, and the progress of others. An outcome belongs to the connection that the
    /// message came on: on another it comes again.
    pub(super) fn work(&mut self, now: u64) -> Vec<String> {
        let link = self.link;
        self.jobs.retain(|job| Some(job.link) == link);
        let mut frames = Vec::new();
        for job in self.jobs.extract_if(.., |job| job.done_at <= now) {
            frames.extend(job.outcome);
        }
        let mut reports = Vec::new();
        for job in &mut self.jobs {
            let due = job.reports.extract_if(.., |at| *at <= now).count();
            reports.extend((due > 0).then(|| job.id.clone()));
        }
        for id in reports {
            frames
                .push(self.frame("hub:progress", "tell", json!({"messageId": id, "extendMs": 5_000}), now).to_string());
        }
        frames
    }

    /// Gives a message to a slow worker: some are acknowledged in time, some after progress, and some too late.
    fn delay(&mut self, id: &str, outcome: Vec<String>, now: u64) -> Vec<String> {
        let (Some(pace), Some(link)) = (&mut self.pace, self.link) else { return outcome };
        let span = match pace.u32(0..4) {
            0 => return outcome,
            1 => pace.u64(0..2_000),
            _ => pace.u64(2_000..8_000),
        };
        let reports = if pace.bool() { vec![now, now + span / 2] } else { Vec::new() };
        self.jobs.push(Job { link, id: id.to_owned(), outcome, done_at: now + span, reports });
        Vec::new()
    }

    /// Sends a new ask, or retries.
    pub(super) fn act(&mut self, rng: &mut Rng, now: u64, calm: bool, ledger: &mut Ledger) -> Vec<String> {
        if !self.ready || self.paused {
            return Vec::new();
        }
        let due = |open: &Open| open.again_at.is_some_and(|at| at <= now) || open.sent_at + PATIENCE < now;
        if self.open.iter().any(due) {
            return self.repeat(now);
        }
        if calm || self.open.len() >= WINDOW {
            return Vec::new();
        }
        if rng.u32(0..6) == 0 && !self.answered.is_empty() {
            return self.be_curious(rng);
        }
        if self.place.is_some() && rng.u32(0..30) == 0 {
            return vec![self.subscribe(now)];
        }
        if self.number == 0 && rng.u32(0..3) == 0 {
            self.published += 1;
            let payload = json!({"topic": TOPIC, "type": "news", "data": self.published});
            return vec![self.frame("hub:publish", "tell", payload, now).to_string()];
        }
        vec![self.ask(rng, now, ledger)]
    }

    /// Repeats an answered ask, or reuses its id for another target.
    fn be_curious(&mut self, rng: &mut Rng) -> Vec<String> {
        let place = rng.usize(0..self.answered.len());
        let (mut frame, sends) = self.answered[place].clone();
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        if rng.u32(0..4) > 0 {
            self.repeated.insert(id);
            self.answered[place].1 += 1;
            return vec![frame.to_string()];
        }
        self.answered.remove(place);
        // An answer to an earlier copy may still be in transit.
        if sends > 1 || self.repeated.contains(&id) {
            return Vec::new();
        }
        let to = frame["payload"]["to"].as_str().unwrap_or_default().to_owned();
        let other = (0..self.count).map(address).find(|other| *other != to).unwrap_or_default();
        frame["payload"]["to"] = json!(other);
        frame["payload"]["data"] = json!({"clash": true});
        // A hub that does not know the id treats it as a new message.
        frame["ttl"] = json!(1);
        self.clashing.insert(id);
        vec![frame.to_string()]
    }

    fn ask(&mut self, rng: &mut Rng, now: u64, ledger: &mut Ledger) -> String {
        let target = rng.usize(0..self.count);
        let number = self.next.entry(target).or_default();
        *number += 1;
        let number = *number;
        let data = json!({"sender": self.number, "number": number});
        let payload = json!({"to": address(target), "type": "note", "data": data});
        let mut frame = self.frame("hub:send", "ask", payload, now);
        let requires_ack = rng.u32(0..4) > 0;
        frame["metadata"] = json!({"requireAck": requires_ack});
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        match rng.u32(0..40) {
            // Malformed flags, and a request to an unknown address: both are rejected.
            0 => {
                frame["metadata"] = if rng.bool() { json!({"requireAck": 1}) } else { json!({"requireAck": "true"}) };
                ledger.malformed(&id);
            }
            1 => {
                frame["payload"]["to"] = json!("@(nobody)");
                frame["payload"]["expectReply"] = json!(true);
            }
            2..12 => frame["payload"]["expectReply"] = json!(true),
            _ => {}
        }
        let mortal = rng.u32(0..5) == 0;
        if mortal {
            frame["ttl"] = json!(rng.u64(200..20_000));
        }
        ledger.asked(&frame, self.number, target, number, requires_ack);
        let text = frame.to_string();
        self.open.push_back(Open { frame, sent_at: now, again_at: None, sends: 1 });
        text
    }

    /// Resends all unanswered asks in order, under the same ids.
    fn repeat(&mut self, now: u64) -> Vec<String> {
        for open in &mut self.open {
            open.sent_at = now;
            open.again_at = None;
            open.sends += 1;
        }
        self.open.iter().map(|open| open.frame.to_string()).collect()
    }

    /// Handles a received frame.
    pub(super) fn got(&mut self, text: &str, place: (usize, u64), now: u64, ledger: &mut Ledger) -> Vec<String> {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        match frame["type"].as_str().unwrap_or_default() {
            "hub:registered" => {
                self.ready = true;
                let mut frames = vec![self.subscribe(now)];
                frames.extend(self.repeat(now));
                return frames;
            }
            "hub:subscribed" => {
                self.since_subscribed.clear();
                let of = |name: &str| frame["payload"][name].as_u64().unwrap_or_default();
                if self.place.is_none() {
                    self.place = Some((of("epoch"), of("seq")));
                }
            }
            "hub:gap" => self.gap(&frame["payload"], ledger),
            "hub:pause" => self.paused = true,
            "hub:resume" => self.paused = false,
            "news" => self.news(&frame["metadata"], ledger),
            "note" => return self.note(&frame, now, ledger),
            "hub:delivery_ack" => {
                let id = frame["correlationId"].as_str().unwrap_or_default();
                self.answered(id, &frame["payload"], place, now, ledger);
            }
            "hub:delivery_acks" => {
                let payload = &frame["payload"];
                for id in payload["messageIds"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    let one =
                        json!({"messageId": id, "deliveredAt": payload["deliveredAt"], "status": payload["status"]});
                    self.answered(id, &one, place, now, ledger);
                }
            }
            "hub:error" | "hub:unknown_actor" => self.refused(&frame, place, now, ledger),
            _ => {}
        }
        Vec::new()
    }

    /// Subscribes to the topic, from the last message on.
    fn subscribe(&mut self, now: u64) -> String {
        let after = self.place.map(|(epoch, seq)| json!({"epoch": epoch, "seq": seq}));
        self.frame("hub:subscribe", "ask", json!({"topic": TOPIC, "after": after}), now).to_string()
    }

    fn note(&mut self, frame: &Value, now: u64, ledger: &mut Ledger) -> Vec<String> {
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        if frame["payload"]["clash"] == json!(true) {
            return Vec::new();
        }
        let number = |name: &str| frame["payload"][name].as_u64().unwrap_or_default();
        let (sender, number) = (number("sender"), number("number"));
        ledger.delivered(&id, sender, self.number, number, now);
        // After the death of a hub a message may arrive under another id; it is recognised by its sender's number.
        let own = format!("{sender}:{number}");
        let mut frames = Vec::new();
        if self.seen.insert(id.clone()) && self.seen.insert(own) {
            ledger.dealt_with(sender, self.number, number);
            if frame["pattern"] == "ask" && self.open.len() < 2 * WINDOW {
                frames.push(self.reply(frame, sender, now));
            }
        }
        if frame["metadata"]["requireAck"] == json!(true) {
            frames.push(self.frame("hub:ack", "tell", json!({"messageId": id}), now).to_string());
        }
        if self.pace.is_some() && !frames.is_empty() { self.delay(&id, frames, now) } else { frames }
    }

    /// Replies to a request, until the reply is answered.
    fn reply(&mut self, question: &Value, sender: u64, now: u64) -> String {
        let asked = question["metadata"]["originalMessageId"].as_str().unwrap_or_default();
        let payload =
            json!({"inReplyTo": question["id"], "type": "answer", "data": {"of": format!("{sender} {asked}")}});
        let frame = self.frame("hub:reply", "ask", payload, now);
        let text = frame.to_string();
        self.open.push_back(Open { frame, sent_at: now, again_at: None, sends: 1 });
        text
    }

    fn answered(&mut self, id: &str, payload: &Value, place: (usize, u64), now: u64, ledger: &mut Ledger) {
        if self.clashing.remove(id) {
            ledger.breach(format!("`{id}` was used for another target, and answered {payload}"));
        }
        let found = self.open.iter().position(|open| open.frame["id"] == id);
        ledger.answered(id, payload, place, now);
        let Some(Open { frame, sends, .. }) = found.and_then(|found| self.open.remove(found)) else { return };
        if frame["type"] == "hub:reply" {
            if payload["status"] == "queued" {
                ledger.reply_queued(id);
            }
            return;
        }
        self.answered.push_back((frame, sends));
        if self.answered.len() > CURIOSITY {
            self.answered.pop_front();
        }
    }

    fn refused(&mut self, frame: &Value, place: (usize, u64), now: u64, ledger: &mut Ledger) {
        let (id, code) = (frame["correlationId"].as_str().unwrap_or_default(), frame["payload"]["code"].as_str());
        self.clashing.remove(id);
        match code {
            Some("message_expired") => ledger.said_expired(id, place, now),
            Some("timeout") if self.refused.contains(id) && frame["payload"]["retryable"] == json!(true) => {
                ledger.breach(format!("`{id}` was finally refused, and then timed out"));
            }
            _ => {}
        }
        let retryable = frame["payload"]["retryable"] == json!(true);
        let Some(found) = self.open.iter().position(|open| open.frame["id"] == id) else { return };
        let url = frame["payload"]["details"]["url"].as_str();
        if let Some(server) = url.and_then(|url| url.strip_prefix('s')?.parse().ok())
            && self.open[found].frame["type"] == "hub:send"
        {
            (self.server, self.moves) = (server, true);
        } else if retryable {
            let is_late = code == Some("timeout") && self.pace.is_some();
            self.open[found].again_at = Some(now + if is_late { AFTER_TIMEOUT } else { 500 });
        } else {
            // A duplicate may have been in transit, and is then admitted by the clock of its connection.
            if self.open.remove(found).is_some_and(|open| open.sends == 1) {
                self.refused.insert(id.to_owned());
            }
        }
    }

    fn gap(&mut self, gap: &Value, ledger: &mut Ledger) {
        let (epoch, from, to) = (gap["epoch"].as_u64(), gap["from"].as_u64(), gap["to"].as_u64());
        let (Some(epoch), Some(to)) = (epoch, to) else {
            return ledger.breach(format!("a gap that says nothing: {gap}"));
        };
        if let (Some(from), Some((known, seq))) = (from, self.place)
            && (known, seq + 1) < (epoch, from)
            && known == epoch
        {
            ledger.breach(format!("a gap from {from}, but the last that came was {seq}"));
        }
        self.place = Some((epoch, to));
    }

    fn news(&mut self, metadata: &Value, ledger: &mut Ledger) {
        let of = |name: &str| metadata[name].as_u64().unwrap_or_default();
        let (epoch, seq) = (of("epoch"), of("seq"));
        if !self.since_subscribed.insert((epoch, seq)) {
            return ledger
                .breach(format!("client {} got {seq} of epoch {epoch} twice for one subscription", self.number));
        }
        match self.place {
            Some((known, last)) if known == epoch && seq <= last => {}
            Some((known, last)) if known == epoch && seq == last + 1 => self.place = Some((epoch, seq)),
            None => self.place = Some((epoch, seq)),
            Some(known) => {
                ledger.breach(format!(
                    "client {} received {seq} of epoch {epoch} after {known:?} without a gap",
                    self.number
                ));
            }
        }
    }
}

pub(super) fn address(number: usize) -> String {
    format!("@(client/{number})")
}
