//! A topic: its numbering, its subscribers and its history.
//!
//! Holds: numbers of one epoch have no holes. A subscriber that resumes after a number gets all later messages, or
//! the range of the gap.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::SessionId;
use crate::settings::{Millis, Settings};

/// A range of missed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// `None`: the topic started a new epoch, so the number of missed messages is unknown.
    pub(crate) from: Option<u64>,
    pub(crate) to: u64,
}

/// A position in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct After {
    /// The epoch of its numbering.
    pub epoch: u64,
    /// Number of the last message received.
    pub seq: u64,
}

#[derive(Debug)]
struct Kept {
    seq: u64,
    /// Its number among all messages of the hub.
    number: u64,
    at: Millis,
    bytes: Bytes,
}

/// Index of the histories of all topics: their total size, and the topic with the oldest message.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    bytes: usize,
    /// Topics that have history, by the number of a message that is not newer than their oldest.
    oldest: BTreeMap<u64, Arc<str>>,
}

impl Histories {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes a topic from the index.
    pub(crate) fn forget(&mut self, topic: &Topic) {
        self.bytes -= topic.bytes;
        if let Some(number) = topic.indexed {
            self.oldest.remove(&number);
        }
    }

    /// Drops the oldest messages of all topics until no more than `max` bytes are left.
    pub(crate) fn shrink(&mut self, topics: &mut BTreeMap<Arc<str>, Topic>, max: usize) {
        while self.bytes > max {
            let Some((_, name)) = self.oldest.pop_first() else { return };
            let Some(topic) = topics.get_mut(&name) else { continue };
            topic.indexed = None;
            // The index may name a message that is already dropped.
            let next = self.oldest.first_key_value().map_or(u64::MAX, |(number, _)| *number);
            while self.bytes > max && topic.history.front().is_some_and(|kept| kept.number < next) {
                topic.drop_oldest(self);
            }
            topic.index(&name, self);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    /// Shared with the fan-outs in progress.
    pub(crate) subscribers: Arc<Vec<SessionId>>,
    history: VecDeque<Kept>,
    bytes: usize,
    /// Key of the topic in the index of histories.
    indexed: Option<u64>,
}

impl Topic {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, seq: 0, subscribers: Arc::default(), history: VecDeque::new(), bytes: 0, indexed: None }
    }

    /// Adds a message to the history, with the next number of the topic and `number` among all messages.
    pub(crate) fn keep(
        &mut self,
        name: &Arc<str>,
        (bytes, number): (Bytes, u64),
        now: Millis,
        settings: &Settings,
        histories: &mut Histories,
    ) {
        self.seq += 1;
        self.bytes += bytes.len();
        histories.bytes += bytes.len();
        self.history.push_back(Kept { seq: self.seq, number, at: now, bytes });
        self.tidy(now, settings, histories);
        self.index(name, histories);
    }

    fn index(&mut self, name: &Arc<str>, histories: &mut Histories) {
        if let (None, Some(oldest)) = (self.indexed, self.history.front()) {
            self.indexed = Some(oldest.number);
            histories.oldest.insert(oldest.number, Arc::clone(name));
        }
    }

    fn drop_oldest(&mut self, histories: &mut Histories) {
        if let Some(kept) = self.history.pop_front() {
            self.bytes -= kept.bytes.len();
            histories.bytes -= kept.bytes.len();
        }
    }

    /// Drops messages beyond the limits of age and size. Returns whether no message is left.
    pub(crate) fn tidy(&mut self, now: Millis, settings: &Settings, histories: &mut Histories) -> bool {
        let too_old = |kept: &Kept| kept.at.saturating_add(settings.history_for) < now;
        while self.history.len() > settings.history_max
            || self.bytes > settings.history_bytes_max
            || self.history.front().is_some_and(too_old)
        {
            self.drop_oldest(histories);
        }
        if self.history.is_empty() {
            self.history = VecDeque::new();
        }
        self.history.is_empty()
    }

    /// Returns the messages after a position, and the gap before them.
    pub(crate) fn since(&self, after: After) -> (Option<Gap>, Vec<(u64, Bytes)>) {
        let first = self.history.front().map_or(self.seq + 1, |kept| kept.seq);
        let (gap, from) = if after.epoch != self.epoch || after.seq > self.seq {
            // Always a gap, since the number of messages missed in the other epoch is unknown.
            (Some(Gap { from: None, to: first - 1 }), first)
        } else if after.seq + 1 < first {
            (Some(Gap { from: Some(after.seq + 1), to: first - 1 }), first)
        } else {
            (None, after.seq + 1)
        };
        let later = self.history.iter().filter(|kept| kept.seq >= from);
        (gap, later.map(|kept| (kept.seq, kept.bytes.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(count: u64, settings: &Settings) -> Topic {
        let (mut topic, mut histories, name) = (Topic::new(7), Histories::default(), Arc::from("t"));
        for number in 1..=count {
            let bytes = Bytes::from(number.to_string());
            topic.keep(&name, (bytes, number), number, settings, &mut histories);
        }
        topic
    }

    fn seqs(topic: &Topic, epoch: u64, seq: u64) -> (Option<Gap>, Vec<u64>) {
        let (gap, later) = topic.since(After { epoch, seq });
        (gap, later.into_iter().map(|(seq, _)| seq).collect())
    }

    #[test]
    fn later_messages_are_replayed_or_reported_as_a_gap() {
        let settings = Settings { history_max: 3, ..Settings::default() };
        let topic = topic(5, &settings);
        assert_eq!(seqs(&topic, 7, 5), (None, vec![]));
        assert_eq!(seqs(&topic, 7, 3), (None, vec![4, 5]));
        assert_eq!(seqs(&topic, 7, 2), (None, vec![3, 4, 5]));
        assert_eq!(seqs(&topic, 7, 0), (Some(Gap { from: Some(1), to: 2 }), vec![3, 4, 5]));
        assert_eq!(seqs(&topic, 6, 4), (Some(Gap { from: None, to: 2 }), vec![3, 4, 5]));
        assert_eq!(seqs(&topic, 7, 9), (Some(Gap { from: None, to: 2 }), vec![3, 4, 5]));
    }

    #[test]
    fn history_is_bounded_by_number_bytes_and_age() {
        let by_number = topic(2_000, &Settings::default());
        assert_eq!(by_number.history.len(), 1_024);
        let settings = Settings { history_bytes_max: 4, ..Settings::default() };
        assert_eq!(topic(9, &settings).history.len(), 4);
        let mut by_age = topic(9, &Settings::default());
        let mut histories = Histories { bytes: by_age.bytes, ..Histories::default() };
        assert!(!by_age.tidy(600_009, &Settings::default(), &mut histories));
        assert_eq!(by_age.history.len(), 1);
        assert!(by_age.tidy(600_010, &Settings::default(), &mut histories));
        assert_eq!(histories.bytes, 0);
        assert_eq!(seqs(&by_age, 7, 4), (Some(Gap { from: Some(5), to: 9 }), vec![]));
    }

    #[test]
    fn the_total_history_is_bounded_and_the_oldest_messages_are_dropped_first() {
        let (mut topics, mut histories) = (BTreeMap::new(), Histories::default());
        for number in 1..=100_u64 {
            let name: Arc<str> = Arc::from(format!("t{}", number % 10));
            let topic = topics.entry(Arc::clone(&name)).or_insert_with(|| Topic::new(7));
            topic.keep(&name, (Bytes::from(vec![0; 10]), number), 0, &Settings::default(), &mut histories);
            histories.shrink(&mut topics, 200);
            assert_eq!(histories.bytes, topics.values().map(|topic| topic.bytes).sum::<usize>());
            assert!(histories.bytes <= 200, "{number}: {}", histories.bytes);
        }
        let mut left: Vec<u64> =
            topics.values().flat_map(|topic| topic.history.iter().map(|kept| kept.number)).collect();
        left.sort_unstable();
        assert_eq!(left, (81..=100).collect::<Vec<_>>());
        assert_eq!(histories.oldest.len(), 10, "one entry for each topic");
    }
}
