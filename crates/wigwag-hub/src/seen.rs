//! What a sender asked before, and what it was answered.
//!
//! Holds: at most so many of each sender, the oldest go first; none longer than its time. An entry is 16 bytes of a hash
//! of the id: a sender who makes two ids that share them harms nobody but itself.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};

use hashbrown::HashTable;

use crate::settings::Millis;

/// Stands for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Print(u64, u64);

impl Print {
    pub(crate) fn of(id: &str) -> Self {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher.write(id.as_bytes());
            hasher.finish()
        };
        Self(half(0), half(1))
    }
}

/// What a message was answered; enough to say it again in the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The number of the message that was forwarded.
    pub(crate) number: u64,
    pub(crate) at: Millis,
    pub(crate) said: Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Delivered,
    Queued,
    Broadcast { delivered: u32, queued: u32, failed: u32 },
    Published { epoch: u64, seq: u64, subscribers: u32 },
}

/// What is known of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is being dealt with.
    Pending,
    Answered(Answer),
}

#[derive(Debug)]
struct Entry {
    print: Print,
    until: Millis,
    /// `None`: it was forgotten before its time.
    known: Option<Known>,
}

/// What one sender asked.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// In the order they came.
    entries: VecDeque<Entry>,
    /// How many have gone out at the front: an entry's number less this is its place.
    gone: u64,
    places: HashTable<u64>,
    /// The number after that of the last answer: answers mostly come in the order of what was asked.
    next_answer: u64,
}

impl Seen {
    fn place(&self, print: Print) -> Option<usize> {
        let found = self.places.find(print.0, |number| self.at(*number).print == print)?;
        usize::try_from(*found - self.gone).ok()
    }

    fn at(&self, number: u64) -> &Entry {
        &self.entries[usize::try_from(number - self.gone).unwrap_or_default()]
    }

    /// What is known of an id.
    pub(crate) fn get(&self, print: Print, now: Millis) -> Option<Known> {
        let entry = &self.entries[self.place(print)?];
        entry.known.filter(|known| *known == Known::Pending || now <= entry.until)
    }

    /// Remembers that an id is being dealt with.
    pub(crate) fn begin(&mut self, print: Print, now: Millis, span: Millis, max: usize) {
        self.forget(print);
        while self.entries.len() >= max || self.entries.front().is_some_and(|entry| is_over(entry, now)) {
            self.drop_oldest();
        }
        let number = self.gone + self.entries.len() as u64;
        self.entries.push_back(Entry { print, until: now.saturating_add(span), known: Some(Known::Pending) });
        let (entries, gone) = (&self.entries, self.gone);
        let hash = |number: &u64| entries[usize::try_from(number - gone).unwrap_or_default()].print.0;
        self.places.insert_unique(print.0, number, hash);
    }

    /// Remembers an answer.
    pub(crate) fn answer(&mut self, print: Print, answer: Answer) {
        let guess = usize::try_from(self.next_answer.wrapping_sub(self.gone)).unwrap_or(usize::MAX);
        let is_right = self.entries.get(guess).is_some_and(|entry| entry.print == print && entry.known.is_some());
        if let Some(place) = if is_right { Some(guess) } else { self.place(print) } {
            self.entries[place].known = Some(Known::Answered(answer));
            self.next_answer = self.gone + place as u64 + 1;
        }
    }

    /// Forgets an id, so that a repeat is tried anew.
    pub(crate) fn forget(&mut self, print: Print) {
        if let Some(place) = self.place(print) {
            self.entries[place].known = None;
            let number = self.gone + place as u64;
            if let Ok(found) = self.places.find_entry(print.0, |other| *other == number) {
                found.remove();
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.front() {
            let number = self.gone;
            if entry.known.is_some()
                && let Ok(found) = self.places.find_entry(entry.print.0, |other| *other == number)
            {
                found.remove();
            }
            self.entries.pop_front();
            self.gone += 1;
        }
    }

    /// Drops what is over; says whether nothing is left.
    pub(crate) fn tidy(&mut self, now: Millis) -> bool {
        while self.entries.front().is_some_and(|entry| is_over(entry, now)) {
            self.drop_oldest();
        }
        if self.entries.is_empty() {
            *self = Self { gone: self.gone, ..Self::default() };
        }
        self.entries.is_empty()
    }
}

fn is_over(entry: &Entry, now: Millis) -> bool {
    entry.until < now && entry.known != Some(Known::Pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Answer = Answer { number: 1, at: 5, said: Said::Delivered };

    fn seen(ids: &[&str], max: usize) -> Seen {
        let mut seen = Seen::default();
        for id in ids {
            seen.begin(Print::of(id), 0, 100, max);
            seen.answer(Print::of(id), ANSWER);
        }
        seen
    }

    #[test]
    fn an_answer_is_remembered_for_its_time() {
        let mut seen = seen(&["a"], 10);
        assert_eq!(seen.get(Print::of("a"), 100), Some(Known::Answered(ANSWER)));
        assert_eq!(seen.get(Print::of("a"), 101), None);
        assert_eq!(seen.get(Print::of("b"), 0), None);
        assert!(!seen.tidy(100));
        assert!(seen.tidy(101));
    }

    #[test]
    fn the_oldest_goes_first_when_there_are_too_many() {
        let mut seen = seen(&["a", "b", "c"], 3);
        seen.begin(Print::of("d"), 0, 100, 3);
        assert_eq!(seen.get(Print::of("a"), 0), None);
        for id in ["b", "c"] {
            assert_eq!(seen.get(Print::of(id), 0), Some(Known::Answered(ANSWER)), "{id}");
        }
        assert_eq!(seen.get(Print::of("d"), 0), Some(Known::Pending));
    }

    #[test]
    fn what_failed_is_forgotten_and_may_be_tried_again() {
        let mut seen = seen(&["a", "b"], 3);
        seen.forget(Print::of("a"));
        assert_eq!(seen.get(Print::of("a"), 0), None);
        seen.begin(Print::of("a"), 0, 100, 3);
        seen.answer(Print::of("a"), ANSWER);
        // The place of the forgotten one goes out without taking the new one along.
        seen.begin(Print::of("c"), 0, 100, 3);
        assert_eq!(seen.get(Print::of("a"), 0), Some(Known::Answered(ANSWER)));
        assert_eq!(seen.get(Print::of("b"), 0), Some(Known::Answered(ANSWER)));
    }

    #[test]
    fn many_come_and_go() {
        let mut seen = Seen::default();
        for number in 0..50_000_u64 {
            let id = number.to_string();
            seen.begin(Print::of(&id), number, 1_000_000, 10_000);
            seen.answer(Print::of(&id), Answer { number, ..ANSWER });
        }
        let known = |number: u64| seen.get(Print::of(&number.to_string()), 50_000);
        assert_eq!(known(39_999), None);
        for number in [40_000, 45_000, 49_999] {
            assert_eq!(known(number), Some(Known::Answered(Answer { number, ..ANSWER })));
        }
        assert_eq!(seen.places.len(), 10_000);
    }
}
