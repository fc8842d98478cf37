//! A topic: its numbers, who hears it, and its last messages.
//!
//! Holds: numbers of one epoch have no holes. Whoever asks for what came after a number gets all of it, or is told from
//! where to where it does not.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::SessionId;
use crate::settings::{Millis, Settings};

/// Which numbers are missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// `None`: the topic began anew, nobody knows how many.
    pub(crate) from: Option<u64>,
    pub(crate) to: u64,
}

/// After which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct After {
    /// Of which numbering.
    pub epoch: u64,
    /// The last one that was heard.
    pub seq: u64,
}

#[derive(Debug)]
struct Kept {
    seq: u64,
    at: Millis,
    bytes: Bytes,
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    pub(crate) subscribers: Vec<SessionId>,
    history: VecDeque<Kept>,
    bytes: usize,
}

impl Topic {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, seq: 0, subscribers: Vec::new(), history: VecDeque::new(), bytes: 0 }
    }

    /// Keeps a message that has the next number.
    pub(crate) fn keep(&mut self, bytes: Bytes, now: Millis, settings: &Settings) {
        self.seq += 1;
        self.bytes += bytes.len();
        self.history.push_back(Kept { seq: self.seq, at: now, bytes });
        self.tidy(now, settings);
    }

    /// Lets go of what is too old or too much; says whether nothing is left.
    pub(crate) fn tidy(&mut self, now: Millis, settings: &Settings) -> bool {
        let too_old = |kept: &Kept| kept.at.saturating_add(settings.history_for) < now;
        while self.history.len() > settings.history_max
            || self.bytes > settings.history_bytes_max
            || self.history.front().is_some_and(too_old)
        {
            let Some(kept) = self.history.pop_front() else { break };
            self.bytes -= kept.bytes.len();
        }
        self.history.is_empty()
    }

    /// What came after, and what is missing of it.
    pub(crate) fn since(&self, after: After) -> (Option<Gap>, Vec<(u64, Bytes)>) {
        let first = self.history.front().map_or(self.seq + 1, |kept| kept.seq);
        let (gap, from) = if after.epoch != self.epoch || after.seq > self.seq {
            // Also if nothing of this epoch is missing: of the other nobody knows.
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
        let mut topic = Topic::new(7);
        for number in 1..=count {
            topic.keep(Bytes::from(number.to_string()), number, settings);
        }
        topic
    }

    fn seqs(topic: &Topic, epoch: u64, seq: u64) -> (Option<Gap>, Vec<u64>) {
        let (gap, later) = topic.since(After { epoch, seq });
        (gap, later.into_iter().map(|(seq, _)| seq).collect())
    }

    #[test]
    fn what_came_after_is_replayed_or_announced_as_missing() {
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
        assert!(!by_age.tidy(600_009, &Settings::default()));
        assert_eq!(by_age.history.len(), 1);
        assert!(by_age.tidy(600_010, &Settings::default()));
        assert_eq!(seqs(&by_age, 7, 4), (Some(Gap { from: Some(5), to: 9 }), vec![]));
    }
}
