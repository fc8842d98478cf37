//! What workers have acknowledged and promised, and what the hub must make of it.
//!
//! Checked at the hub's door, frame by frame: an ask whose target has acknowledged it, in time or late, is not forwarded
//! again when it is retried; a sender that was notified that its target has more time gets no timeout before that time; and no
//! queue counts as full on the word of an old listing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::CLIENTS;

/// Lower bound of the dedup window.
const REMEMBERED: u64 = 100_000;

/// A server lists a full queue again after this time.
const STALE_AFTER: u64 = 1_100;

/// A server and the number of its hub.
type Place = (usize, u64);

#[derive(Debug, Default)]
pub(super) struct Acks {
    /// The connection that was handed each message last, by the hub's id.
    handed: BTreeMap<String, usize>,
    /// The hub's id of each ask that was handed out.
    ids: BTreeMap<(Place, String), String>,
    /// How often a hub has received each ask.
    sends: BTreeMap<(Place, String), u32>,
    /// When messages were acknowledged, by the hub's id.
    acked: BTreeMap<(Place, String), u64>,
    /// Messages that were acknowledged and retried after that.
    over: BTreeSet<(Place, String)>,
    /// The connection that reported progress of each message: a message that goes to another has the time of a new one.
    progress: BTreeMap<(Place, String), usize>,
    /// For each ask: the time that its target has, and the connection of the target.
    promised: BTreeMap<(Place, String), (u64, usize)>,
    /// The time since which a server has had no operation on an address with a full queue.
    quiet_since: BTreeMap<(usize, usize), u64>,
}

impl Acks {
    /// Records a frame that a hub receives on an open session.
    pub(super) fn received(&mut self, text: &str, link: usize, place: Place, now: u64) {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        let id = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match frame["type"].as_str() {
            Some("hub:ack") => {
                let message = id(&frame["payload"]["messageId"]);
                if self.handed.get(&message) == Some(&link) {
                    self.acked.entry((place, message)).or_insert(now);
                }
            }
            Some("hub:progress") => {
                let message = id(&frame["payload"]["messageId"]);
                if self.handed.get(&message) == Some(&link) {
                    self.progress.insert((place, message), link);
                }
            }
            Some("hub:send") => {
                let key = (place, id(&frame["id"]));
                let sends = self.sends.entry(key.clone()).or_default();
                *sends += 1;
                let Some(message) = self.ids.get(&key) else { return };
                let message = (place, message.clone());
                // A second copy may be on its way if it was sent twice before.
                let is_first_retry = *sends == 2;
                if is_first_retry && self.acked.get(&message).is_some_and(|at| now < at + REMEMBERED) {
                    self.over.insert(message);
                }
            }
            _ => {}
        }
    }

    /// Records a frame that is handed to a connection. `links` are the open connections that clients use. Returns a breach.
    pub(super) fn handed_out(
        &mut self,
        text: &str,
        link: usize,
        place: Place,
        links: &[Option<usize>; CLIENTS],
    ) -> Option<String> {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        let id = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = (place, id(&frame["correlationId"]));
        match frame["type"].as_str()? {
            "note" => {
                let message = id(&frame["id"]);
                self.handed.insert(message.clone(), link);
                self.ids.insert((place, id(&frame["metadata"]["originalMessageId"])), message.clone());
                let again = self.over.contains(&(place, message));
                again.then(|| format!("acknowledged, retried, and forwarded again: {text}"))
            }
            "hub:progress" => {
                let until = frame["payload"]["until"].as_u64()?;
                let holder = *self.progress.get(&(place, self.ids.get(&of)?.clone()))?;
                self.promised.insert(of, (until, holder));
                None
            }
            "hub:error" if frame["payload"]["code"] == "timeout" => {
                let (until, holder) = *self.promised.get(&of)?;
                // A message that an earlier hub stored keeps its id, and its reply is awaited under no other.
                let hub_of = |id: &str| id.rsplit_once('-').map(|(hub, _)| hub.to_owned());
                if hub_of(self.ids.get(&of)?) != hub_of(&id(&frame["id"])) {
                    return None;
                }
                let is_early = frame["timestamp"].as_u64()? < until && links.contains(&Some(holder));
                is_early.then(|| format!("the target had time until {until}: {text}"))
            }
            "hub:error" if frame["payload"]["code"] == "queue_full" => self.check_full(&frame, place),
            _ => None,
        }
    }

    /// Records whether a server uses an address, or its queue is full.
    pub(super) fn observe(&mut self, server: usize, client: usize, is_quiet: bool, now: u64) {
        let key = (server, client);
        match is_quiet {
            true => _ = self.quiet_since.entry(key).or_insert(now),
            false => _ = self.quiet_since.remove(&key),
        }
    }

    /// Ends the check of full queues: servers are not observed any more.
    pub(super) fn end_observation(&mut self) {
        self.quiet_since.clear();
    }

    /// Checks a rejection for a full queue: the server must have listed it lately.
    fn check_full(&self, frame: &Value, (server, _): Place) -> Option<String> {
        let payload = &frame["payload"];
        payload["message"].as_str().filter(|message| message.starts_with("the queue of this actor is full"))?;
        let target = payload["details"]["targetAddress"].as_str()?;
        let client = (0..CLIENTS).find(|client| super::client::address(*client) == target)?;
        let since = *self.quiet_since.get(&(server, client))?;
        let is_stale = since + STALE_AFTER < frame["timestamp"].as_u64()?;
        is_stale.then(|| format!("the queue has had room since {since}: {frame}"))
    }
}
