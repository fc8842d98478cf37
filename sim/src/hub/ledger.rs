//! Records asks, answers and deliveries, and checks them against the guarantees.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wigwag_hub::testing::World as Model;

/// The record of one ask.
#[derive(Debug)]
struct Asked {
    sender: u64,
    target: usize,
    number: u64,
    /// Whether its target acknowledges it. Otherwise it may be lost on the wire, and be delivered again when its sender retries at a new hub.
    requires_ack: bool,
    /// Whether it must arrive once it is acknowledged.
    must_arrive: bool,
    answer: Option<Value>,
    /// Server and life of the hub that answered it.
    answered_at: (usize, u64),
    /// Time of the answer.
    answered_when: u64,
    /// Expiry, if it has one.
    expires: Option<u64>,
    refusals: u64,
}

/// By the id's hub: the id of a message, and the time of its first delivery.
type Forwarded = BTreeMap<String, (String, u64)>;

/// Lower bound of the dedup window.
const REMEMBERED: u64 = 110_000;

/// Time in which the hub may not have noticed an expiry: the longest jump of the clock, plus the time of answers in transit.
const EXPIRY_LAG: u64 = 20_000;

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) broken: Vec<String>,
    pub(super) acknowledged: u64,
    pub(super) deaths: u64,
    /// Ids of all messages that were written to the store, by sender and by hub.
    put: BTreeSet<String>,
    queue_max: usize,
    /// Number of puts that were reported as failed and may have been applied.
    doubtful: usize,
    asked: BTreeMap<String, Asked>,
    ids: BTreeMap<(u64, usize, u64), String>,
    /// Processed messages in order, by sender and target.
    dealt_with: BTreeMap<(u64, usize), Vec<u64>>,
    /// Ids under which each message was delivered, by the id's hub, with the time of the first delivery.
    forwarded: BTreeMap<(u64, usize, u64), Forwarded>,
    /// Time when each message was first handed to a connection, by the hub's id: the client may read it much later.
    handed_out: BTreeMap<String, u64>,
    /// Ids under which messages were stored, with the time.
    kept: BTreeMap<(u64, usize, u64), (String, u64)>,
    /// Expired messages that were in no queue when `queued` was sent to their sender.
    unbacked: BTreeSet<String>,
    /// Expired messages that were answered `queued`, and not `message_expired` later.
    expired_and_queued: BTreeSet<String>,
    /// Ids of asks with malformed flags.
    malformed: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn new(queue_max: usize) -> Self {
        Self {
            broken: Vec::new(),
            acknowledged: 0,
            deaths: 0,
            put: BTreeSet::new(),
            queue_max,
            doubtful: 0,
            asked: BTreeMap::new(),
            ids: BTreeMap::new(),
            dealt_with: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            handed_out: BTreeMap::new(),
            kept: BTreeMap::new(),
            unbacked: BTreeSet::new(),
            expired_and_queued: BTreeSet::new(),
            malformed: BTreeSet::new(),
        }
    }

    pub(super) fn breach(&mut self, what: String) {
        self.broken.push(what);
    }

    pub(super) fn asked(&mut self, frame: &Value, sender: usize, target: usize, number: u64, requires_ack: bool) {
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        let sender = sender as u64;
        let must_arrive = requires_ack && frame["ttl"].is_null();
        let expires = frame["ttl"].as_u64().zip(frame["timestamp"].as_u64()).map(|(ttl, at)| at + ttl);
        let asked = Asked {
            sender,
            target,
            number,
            requires_ack,
            must_arrive,
            answer: None,
            answered_at: (0, 0),
            answered_when: 0,
            expires,
            refusals: 0,
        };
        self.ids.insert((sender, target, number), id.clone());
        self.asked.insert(id, asked);
    }

    /// Records an ask with malformed flags.
    pub(super) fn malformed(&mut self, id: &str) {
        self.malformed.insert(id.to_owned());
    }

    /// Records an answer. A duplicate must get the same answer, as long as the hub lives.
    pub(super) fn answered(&mut self, id: &str, payload: &Value, place: (usize, u64), now: u64) {
        if self.malformed.contains(id) {
            return self.breach(format!("`{id}` was answered though its flags are none: {payload}"));
        }
        let Some(asked) = self.asked.get_mut(id) else { return };
        if payload["status"] == "queued" && asked.requires_ack && self.unbacked.contains(id) {
            self.expired_and_queued.insert(id.to_owned());
        }
        match &asked.answer {
            None => {
                self.acknowledged += 1;
                asked.answer = Some(payload.clone());
                (asked.answered_at, asked.answered_when) = (place, now);
            }
            Some(first) if first == payload || asked.answered_at != place => {}
            Some(first) => {
                let what = format!("`{id}` was answered {first}, and again {payload}");
                self.breach(what);
            }
        }
    }

    /// Records an answer that goes to a connection: `queued` for an expired message that is in no queue.
    pub(super) fn answer_handed_out(&mut self, text: &str, is_stored: impl FnOnce(u64, usize, &str) -> bool, now: u64) {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        if frame["payload"]["code"] == "message_expired" {
            // The connection may lose it; the client may have stopped retrying.
            let id = frame["correlationId"].as_str().unwrap_or_default();
            self.unbacked.remove(id);
            self.expired_and_queued.remove(id);
        }
        let id = frame["correlationId"].as_str().filter(|_| frame["payload"]["status"] == "queued");
        let Some((id, asked)) = id.and_then(|id| Some((id, self.asked.get(id)?))) else { return };
        let is_over = asked.expires.is_some_and(|expires| expires + EXPIRY_LAG < now);
        if is_over && !is_stored(asked.sender, asked.target, id) {
            self.unbacked.insert(id.to_owned());
        }
    }

    /// Checks that a delivered message is not reported as expired.
    pub(super) fn said_expired(&mut self, id: &str, place: (usize, u64), now: u64) {
        self.expired_and_queued.remove(id);
        let Some(asked) = self.asked.get(id) else { return };
        let is_delivered = asked.answer.as_ref().is_some_and(|answer| answer["status"] == "delivered");
        if is_delivered && asked.answered_at == place && now < asked.answered_when + REMEMBERED {
            self.breach(format!("`{id}` was answered `delivered`, and then that it expired"));
        }
    }

    /// Records a message that is written to the store, whether or not its sender gets an answer.
    pub(super) fn put(&mut self, body: &[u8]) {
        let frame: Value = serde_json::from_slice(body).unwrap_or_default();
        let ids = [&frame["id"], &frame["metadata"]["originalMessageId"]];
        self.put.extend(ids.into_iter().filter_map(Value::as_str).map(str::to_owned));
    }

    /// Checks that a reply answered `queued` was put into the store.
    pub(super) fn reply_queued(&mut self, id: &str) {
        if !self.put.contains(id) {
            self.breach(format!("the reply `{id}` was answered `queued`, and is not in the store"));
        }
    }

    /// Records a message that was stored successfully.
    pub(super) fn kept(&mut self, body: &[u8], now: u64) {
        let frame: Value = serde_json::from_slice(body).unwrap_or_default();
        let number = |name: &str| frame["payload"][name].as_u64();
        let target = frame["to"].as_str().and_then(|to| to.strip_prefix("@(client/")?.strip_suffix(')')?.parse().ok());
        if let (Some(sender), Some(target), Some(number), Some(id)) =
            (number("sender"), target, number("number"), frame["id"].as_str())
        {
            self.kept.entry((sender, target, number)).or_insert((id.to_owned(), now));
        }
    }

    /// Records that the hub rejected it, whether or not its sender got the answer: a retry is a new attempt.
    pub(super) fn refused(&mut self, id: &str) {
        if let Some(asked) = self.asked.get_mut(id) {
            asked.refusals += 1;
        }
    }

    /// Records a frame that is handed to a connection, which must not happen after its expiry.
    pub(super) fn handed_out(&mut self, text: &str, now: u64) {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        if let Some(id) = frame["id"].as_str().filter(|_| frame["type"] == "note") {
            self.handed_out.entry(id.to_owned()).or_insert(now);
        }
        let (timestamp, ttl) = (frame["timestamp"].as_u64(), frame["ttl"].as_u64());
        if let (Some(timestamp), Some(ttl)) = (timestamp, ttl)
            && timestamp + ttl < now
        {
            self.breach(format!("delivered {} ms after its time: {text}", now - timestamp - ttl));
        }
    }

    /// Checks that a message has one id in each life of a hub, and one id in total if it was queued.
    pub(super) fn delivered(&mut self, id: &str, sender: u64, target: usize, number: u64, now: u64) {
        let key = (sender, target, number);
        let hub = id.rsplit_once('-').map_or(id, |(hub, _)| hub).to_owned();
        let forwarded = self.forwarded.entry(key).or_default();
        let (first, at) = forwarded.entry(hub).or_insert_with(|| (id.to_owned(), now));
        if first != id && now < *at + REMEMBERED {
            let what = format!("{sender} to {target}, number {number}, was forwarded as `{first}` and as `{id}`");
            return self.breach(what);
        }
        let asked = self.ids.get(&key).and_then(|id| self.asked.get(id));
        let is_over = asked.and_then(|asked| asked.expires).is_some_and(|expires| expires < now);
        if let Some((kept, at)) = self.kept.get(&key)
            && kept != id
            // After its expiry, by the server's clock, it is a new message to a server that did not store it.
            && !is_over
            && now < at + REMEMBERED
            && !self.put.contains(id)
            && self.handed_out.get(id).is_some_and(|first| first > at)
        {
            let what = format!("{sender} to {target}, number {number}, was queued as `{kept}` and forwarded as `{id}`");
            self.breach(what);
        }
    }

    /// Records a processed message. The order must hold, except for messages that were rejected once.
    pub(super) fn dealt_with(&mut self, sender: u64, target: usize, number: u64) {
        let dealt_with = self.dealt_with.entry((sender, target)).or_default();
        let later = dealt_with.iter().filter(|other| **other > number).count();
        dealt_with.push(number);
        let key = (sender, target, number);
        let asked = self.ids.get(&key).and_then(|id| self.asked.get(id));
        if later > 0 && asked.is_some_and(|asked| asked.refusals == 0 && asked.requires_ack) {
            self.breach(format!("{sender} to {target}: number {number} came after {later} later ones"));
        }
    }

    /// Checks that a queue does not exceed its limit, except for puts that were reported as failed, and has no duplicates as long as one hub
    /// has stored them.
    pub(super) fn stored(&mut self, store: &Model, servers: usize, failed: usize) {
        self.doubtful += failed;
        for client in 0..super::CLIENTS {
            let waiting = store.waiting(&format!("@(client/{client})"));
            let count = waiting.len();
            let hashes: BTreeSet<&str> = waiting.iter().map(|(waiting, _)| waiting.hash.as_str()).collect();
            let is_one_hub = self.deaths == 0 && servers == 1;
            if is_one_hub && hashes.len() < count {
                self.breach(format!("a message waits twice for client {client}"));
            }
            // Each server counts the messages that it knows.
            let max = servers * self.queue_max + self.doubtful;
            if count > max + 16 * usize::try_from(self.deaths).unwrap_or_default() {
                self.breach(format!("{count} messages wait for client {client}, and {} may", self.queue_max));
            }
        }
    }

    /// Checks at the end that every acknowledged message was processed.
    pub(super) fn check_end(&mut self) {
        let mut lost = Vec::new();
        for (id, asked) in &self.asked {
            let arrived =
                self.dealt_with.get(&(asked.sender, asked.target)).is_some_and(|all| all.contains(&asked.number));
            if asked.must_arrive && asked.answer.is_some() && !arrived {
                lost.push(format!("`{id}` from {} to {} was answered and never arrived", asked.sender, asked.target));
            }
        }
        for id in &self.expired_and_queued {
            let Some(asked) = self.asked.get(id) else { continue };
            let all = self.dealt_with.get(&(asked.sender, asked.target));
            if !all.is_some_and(|all| all.contains(&asked.number)) {
                lost.push(format!("`{id}` expired, and a repeat of it was answered `queued`"));
            }
        }
        self.broken.extend(lost);
    }
}
