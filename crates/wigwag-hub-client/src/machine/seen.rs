//! Dedup window of direct messages: the ids that were delivered or acknowledged. Bounded: the oldest id is evicted.

use std::collections::{HashMap, VecDeque};

/// Delivery state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Given,
    Acknowledged,
}

#[derive(Debug)]
pub(super) struct Seen {
    most: usize,
    /// State of each id, with the number of its insertion: the eviction of an old entry must not remove an id that was
    /// forgotten and inserted again.
    fates: HashMap<String, (u64, Fate)>,
    order: VecDeque<(u64, String)>,
    turn: u64,
}

impl Seen {
    pub(super) fn new(most: usize) -> Self {
        Self { most, fates: HashMap::new(), order: VecDeque::new(), turn: 0 }
    }

    /// Returns the state of a known id, or inserts a new id as delivered.
    pub(super) fn note(&mut self, id: &str) -> Option<Fate> {
        if let Some((_, fate)) = self.fates.get(id) {
            return Some(*fate);
        }
        self.turn += 1;
        self.fates.insert(id.to_owned(), (self.turn, Fate::Given));
        self.order.push_back((self.turn, id.to_owned()));
        while self.order.len() > self.most {
            let Some((turn, oldest)) = self.order.pop_front() else { break };
            if self.fates.get(&oldest).is_some_and(|(known, _)| *known == turn) {
                self.fates.remove(&oldest);
            }
        }
        None
    }

    /// Marks a message as acknowledged.
    pub(super) fn acknowledge(&mut self, id: &str) {
        if let Some((_, fate)) = self.fates.get_mut(id) {
            *fate = Fate::Acknowledged;
        }
    }

    /// Forgets a message that was not acknowledged, so that a redelivery reaches the application.
    pub(super) fn forget(&mut self, id: &str) {
        if self.fates.get(id).is_some_and(|(_, fate)| *fate == Fate::Given) {
            self.fates.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_given_once_until_it_is_forgotten() {
        let mut seen = Seen::new(2);
        assert_eq!(seen.note("a"), None);
        assert_eq!(seen.note("a"), Some(Fate::Given));
        seen.acknowledge("a");
        assert_eq!(seen.note("a"), Some(Fate::Acknowledged));
        seen.forget("a");
        assert_eq!(seen.note("a"), Some(Fate::Acknowledged), "an acknowledged message stays acknowledged");
        assert_eq!(seen.note("b"), None);
        seen.forget("b");
        assert_eq!(seen.note("b"), None, "a forgotten message is delivered again");
        assert_eq!(seen.note("c"), None);
        assert_eq!(seen.note("a"), None, "the oldest id was evicted");
    }

    #[test]
    fn it_never_holds_more_than_its_bound() {
        let mut seen = Seen::new(10);
        for number in 0..1_000 {
            let id = format!("{}", number % 37);
            seen.note(&id);
            if number % 3 == 0 {
                seen.forget(&id);
            }
            assert!(seen.fates.len() <= 10 && seen.order.len() <= 10);
        }
    }
}
