//! What was asked, answered and delivered, and whether that is what was promised.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wigwag_hub::testing::World as Model;

/// One ask.
#[derive(Debug)]
struct Asked {
    sender: u64,
    target: usize,
    number: u64,
    /// Its target acknowledges it: without, it may be lost on the wire, and come again once its sender asks a hub that has died since.
    requires_ack: bool,
    /// It must arrive if it was acknowledged.
    must_arrive: bool,
    answer: Option<Value>,
    /// In which life of the hub it was answered.
    answered_in: u64,
    refusals: u64,
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) broken: Vec<String>,
    pub(super) acknowledged: u64,
    pub(super) deaths: u64,
    queue_max: usize,
    /// Puts that were said to have failed and may be there.
    doubtful: usize,
    asked: BTreeMap<String, Asked>,
    ids: BTreeMap<(u64, usize, u64), String>,
    /// By sender and target: what was dealt with, in order.
    dealt_with: BTreeMap<(u64, usize), Vec<u64>>,
    /// Ids by which one message was delivered.
    forwarded: BTreeMap<(u64, usize, u64), BTreeSet<String>>,
}

impl Ledger {
    pub(super) fn new(queue_max: usize) -> Self {
        Self {
            broken: Vec::new(),
            acknowledged: 0,
            deaths: 0,
            queue_max,
            doubtful: 0,
            asked: BTreeMap::new(),
            ids: BTreeMap::new(),
            dealt_with: BTreeMap::new(),
            forwarded: BTreeMap::new(),
        }
    }

    pub(super) fn breach(&mut self, what: String) {
        self.broken.push(what);
    }

    pub(super) fn asked(&mut self, frame: &Value, sender: usize, target: usize, number: u64, requires_ack: bool) {
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        let sender = sender as u64;
        let must_arrive = requires_ack && frame["ttl"].is_null();
        let asked =
            Asked { sender, target, number, requires_ack, must_arrive, answer: None, answered_in: 0, refusals: 0 };
        self.ids.insert((sender, target, number), id.clone());
        self.asked.insert(id, asked);
    }

    /// A repeat is answered the same, as long as the hub lives.
    pub(super) fn answered(&mut self, id: &str, payload: &Value) {
        let deaths = self.deaths;
        let Some(asked) = self.asked.get_mut(id) else { return };
        match &asked.answer {
            None => {
                self.acknowledged += 1;
                asked.answer = Some(payload.clone());
                asked.answered_in = deaths;
            }
            Some(first) if first == payload || asked.answered_in != deaths => {}
            Some(first) => {
                let what = format!("`{id}` was answered {first}, and again {payload}");
                self.breach(what);
            }
        }
    }

    /// The hub did not take it, whether its sender heard of that or not: a repeat is tried anew.
    pub(super) fn refused(&mut self, id: &str) {
        if let Some(asked) = self.asked.get_mut(id) {
            asked.refusals += 1;
        }
    }

    /// A frame goes to a connection: not after its time.
    pub(super) fn handed_out(&mut self, text: &str, now: u64) {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        let (timestamp, ttl) = (frame["timestamp"].as_u64(), frame["ttl"].as_u64());
        if let (Some(timestamp), Some(ttl)) = (timestamp, ttl)
            && timestamp + ttl < now
        {
            self.breach(format!("delivered {} ms after its time: {text}", now - timestamp - ttl));
        }
    }

    /// Within one life of the hub, a message has one id, unless its sender was told to try anew.
    pub(super) fn delivered(&mut self, id: &str, sender: u64, target: usize, number: u64) {
        let key = (sender, target, number);
        let forwarded = self.forwarded.entry(key).or_default();
        forwarded.insert(id.to_owned());
        let count = forwarded.len() as u64;
        let refusals = self.ids.get(&key).and_then(|id| self.asked.get(id)).map_or(0, |asked| asked.refusals);
        if count > 1 + self.deaths + refusals {
            self.breach(format!("{sender} to {target}, number {number}, was forwarded {count} times"));
        }
    }

    /// In order, but for what was refused once.
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

    /// No more wait for an address than may, but for those that were said to have failed; and none twice, as long as one hub
    /// has stored them.
    pub(super) fn stored(&mut self, store: &Model, failed: bool) {
        self.doubtful += usize::from(failed);
        for client in 0..super::CLIENTS {
            let waiting = store.waiting(&format!("@(client/{client})"));
            let count = waiting.len();
            let hashes: BTreeSet<&str> = waiting.iter().map(|(waiting, _)| waiting.hash.as_str()).collect();
            if self.deaths == 0 && hashes.len() < count {
                self.breach(format!("a message waits twice for client {client}"));
            }
            if count > self.queue_max + self.doubtful + 16 * usize::try_from(self.deaths).unwrap_or_default() {
                self.breach(format!("{count} messages wait for client {client}, and {} may", self.queue_max));
            }
        }
    }

    /// In the end, what was acknowledged was dealt with.
    pub(super) fn check_end(&mut self) {
        let mut lost = Vec::new();
        for (id, asked) in &self.asked {
            let arrived =
                self.dealt_with.get(&(asked.sender, asked.target)).is_some_and(|all| all.contains(&asked.number));
            if asked.must_arrive && asked.answer.is_some() && !arrived {
                lost.push(format!("`{id}` from {} to {} was answered and never arrived", asked.sender, asked.target));
            }
        }
        self.broken.extend(lost);
    }
}
