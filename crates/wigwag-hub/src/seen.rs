//! Dedup window: the asks of one sender and their answers.
//!
//! Holds: the number of entries per sender is bounded, the oldest are evicted first, and none outlives its window. An
//! entry holds a 16-byte hash of the id under a secret key.
//!
//! Every message reads this index, and the entries of a few dozen busy senders exceed a processor's cache. Therefore
//! an entry is small, a lookup reads one cache line, and evictions leave the index unchanged.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use siphasher::sip128::SipHasher13;

use crate::settings::Millis;

/// Hash of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Print(u64, u64);

impl Print {
    pub(crate) fn of(id: &str, key: &[u8; 16]) -> Self {
        let print = SipHasher13::new_with_key(key).hash(id.as_bytes());
        Self(print.h1, print.h2)
    }

    pub(crate) fn tag(self) -> Tag {
        // The lower half is as good a hash as the whole.
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or_default()
    }
}

/// The answer to a message, with everything needed to repeat it verbatim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Number of the forwarded message.
    pub(crate) number: u64,
    pub(crate) at: Millis,
    pub(crate) said: Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Delivered,
    Queued,
    /// The message was queued and expired there.
    Expired,
    Broadcast {
        delivered: u32,
        queued: u32,
        failed: u32,
    },
    Published {
        epoch: u64,
        seq: u64,
        subscribers: u32,
    },
}

/// The known state of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The ask is in progress.
    Pending,
    Answered(Answer),
    /// The id was used for another target, topic or kind of request.
    Conflict,
}

/// Identifies what an ask is about (its kind and target), so that one id is not taken for two messages.
pub(crate) type Tag = u32;

/// The tag of a message whose target is not known any more: a stored reply. It conflicts with no other.
pub(crate) const ANY_TAG: Tag = 0;

/// The dedup entry of an ask that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) mark: Mark,
    /// Number of the message: that of the first attempt if this is a retry, so that it keeps its id.
    pub(crate) number: u64,
}

/// Whether a recorded answer is new to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    First,
    /// The ask was already answered.
    Again,
    /// There is no entry, or it was evicted.
    Unknown,
}

/// Position of a dedup entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Default for Mark {
    fn default() -> Self {
        Self::NOWHERE
    }
}

impl Mark {
    /// The ask has no dedup entry.
    pub(crate) const NOWHERE: Self = Self(u64::MAX);
}

#[derive(Debug)]
struct Entry {
    print: Print,
    until: Millis,
    /// Number of the message.
    number: u64,
    /// Time of the answer.
    at: Millis,
    tag: Tag,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The entry was forgotten before the end of its window.
    Forgotten,
    Pending,
    /// The ask was rejected. A repeat is retried under the same number.
    Failed,
    Delivered,
    Queued,
    Expired,
    /// The answer is longer and stored in `more`.
    More,
}

/// Room for this many entries is not worth releasing.
const ROOM_MIN: usize = 64;

/// The dedup window of one sender.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// In order of arrival.
    entries: VecDeque<Entry>,
    /// Number of entries evicted from the front; an entry's mark minus this is its position.
    gone: u64,
    index: Index,
    more: BTreeMap<u64, Said>,
}

impl Seen {
    fn live(&self) -> Range<u64> {
        self.gone..self.gone + self.entries.len() as u64
    }

    fn place(&self, mark: u64) -> Option<usize> {
        usize::try_from(mark.checked_sub(self.gone)?).ok()
    }

    fn find(&self, print: Print) -> Option<u64> {
        let is_it = |mark: u64| {
            let entry = self.place(mark).and_then(|place| self.entries.get(place));
            entry.is_some_and(|entry| entry.print == print && entry.state != State::Forgotten)
        };
        self.index.find(print, self.live(), is_it)
    }

    /// Reads the bucket of an id, which loads it into the cache.
    pub(crate) fn fetch(&self, print: Print) -> u32 {
        self.index.buckets.get(self.index.bucket(print)).map_or(0, |bucket| bucket.0[0])
    }

    fn known(&self, mark: u64) -> Option<Known> {
        let entry = self.entries.get(self.place(mark)?)?;
        let said = match entry.state {
            State::Forgotten | State::Failed => return None,
            State::Pending => return Some(Known::Pending),
            State::Delivered => Said::Delivered,
            State::Queued => Said::Queued,
            State::Expired => Said::Expired,
            State::More => *self.more.get(&mark)?,
        };
        Some(Known::Answered(Answer { number: entry.number, at: entry.at, said }))
    }

    /// Looks up an ask. A new or previously rejected ask becomes pending; a new ask gets the `number`.
    pub(crate) fn meet(
        &mut self,
        print: Print,
        (tag, number): (Tag, u64),
        (now, span): (Millis, Millis),
        max: usize,
    ) -> Result<Slot, Known> {
        if let Some(mark) = self.find(print) {
            let place = self.place(mark);
            let entry = place.and_then(|place| self.entries.get_mut(place)).filter(|entry| !is_over(entry, now));
            match entry {
                Some(entry) if is_conflict(entry, tag) => return Err(Known::Conflict),
                Some(entry) if entry.state == State::Failed => {
                    entry.state = State::Pending;
                    entry.until = entry.until.max(now.saturating_add(span));
                    return Ok(Slot { mark: Mark(mark), number: entry.number });
                }
                Some(_) => {
                    if let Some(known) = self.known(mark) {
                        return Err(known);
                    }
                }
                None => self.forget(Mark(mark)),
            }
        }
        let max = max.clamp(1, Index::MAX);
        while self.entries.len() >= max || self.entries.front().is_some_and(|entry| is_over(entry, now)) {
            self.drop_oldest();
        }
        self.release_room(max);
        if self.entries.len() == self.entries.capacity() {
            // Reserves no more than the maximum.
            let room = (2 * self.entries.len()).max(4).min(max);
            self.entries.reserve_exact(room - self.entries.len());
        }
        let mark = self.live().end;
        self.entries.push_back(Entry {
            print,
            until: now.saturating_add(span),
            number,
            at: 0,
            tag,
            state: State::Pending,
        });
        if self.index.is_narrow(self.entries.len()) {
            let prints = self.entries.iter().map(|entry| entry.print);
            self.index = Index::new(prints, self.live());
        } else {
            self.index.insert(print, mark, self.live());
        }
        Ok(Slot { mark: Mark(mark), number })
    }

    /// Records an answer.
    pub(crate) fn answer(&mut self, mark: Mark, answer: Answer) -> Recorded {
        let Some(entry) = self.place(mark.0).and_then(|place| self.entries.get_mut(place)) else {
            return Recorded::Unknown;
        };
        let recorded = match entry.state {
            State::Forgotten => return Recorded::Unknown,
            State::Pending | State::Failed => Recorded::First,
            // A queued message may still expire later.
            State::Queued if answer.said == Said::Expired => Recorded::First,
            _ => return Recorded::Again,
        };
        (entry.number, entry.at) = (answer.number, answer.at);
        entry.state = match answer.said {
            Said::Delivered => State::Delivered,
            Said::Queued => State::Queued,
            Said::Expired => State::Expired,
            more @ (Said::Broadcast { .. } | Said::Published { .. }) => {
                self.more.insert(mark.0, more);
                State::More
            }
        };
        recorded
    }

    /// Records a rejection. A repeat is retried.
    pub(crate) fn fail(&mut self, mark: Mark) {
        let entry = self.place(mark.0).and_then(|place| self.entries.get_mut(place));
        if let Some(entry) = entry.filter(|entry| entry.state == State::Pending) {
            entry.state = State::Failed;
        }
    }

    /// Forgets an ask, so that a repeat is retried.
    pub(crate) fn forget(&mut self, mark: Mark) {
        if let Some(entry) = self.place(mark.0).and_then(|place| self.entries.get_mut(place)) {
            entry.state = State::Forgotten;
            self.more.remove(&mark.0);
        }
    }

    /// Records that a stored message of an id expired. Returns whether to notify the sender: not if the message was
    /// delivered, nor while a repeat is in progress, which gets a separate answer.
    pub(crate) fn expire_print(&mut self, print: Print, at: Millis) -> bool {
        let Some(mark) = self.find(print) else { return true };
        let entry = self.place(mark).and_then(|place| self.entries.get(place));
        let Some(number) = entry.filter(|entry| entry.state != State::Pending).map(|entry| entry.number) else {
            return false;
        };
        self.answer(Mark(mark), Answer { number, at, said: Said::Expired }) != Recorded::Again
    }

    /// Forgets that the message of an id was queued, so that a repeat reads the store.
    pub(crate) fn forget_queued(&mut self, print: Print) {
        let is_queued = |mark: u64| {
            let entry = self.place(mark).and_then(|place| self.entries.get(place));
            entry.is_some_and(|entry| entry.state == State::Queued)
        };
        if let Some(mark) = self.find(print).filter(|mark| is_queued(*mark)) {
            self.forget(Mark(mark));
        }
    }

    /// Forgets an ask by its hash.
    pub(crate) fn forget_print(&mut self, print: Print) {
        if let Some(mark) = self.find(print) {
            self.forget(Mark(mark));
        }
    }

    /// Releases memory after the maximum was reduced.
    fn release_room(&mut self, max: usize) {
        if self.entries.capacity() > 4 * max.max(ROOM_MIN) {
            self.entries.shrink_to(max);
            let prints = self.entries.iter().map(|entry| entry.print);
            self.index = Index::new(prints, self.live());
        }
    }

    fn drop_oldest(&mut self) {
        if self.entries.pop_front().is_some_and(|entry| entry.state == State::More) {
            self.more.remove(&self.gone);
        }
        self.gone += 1;
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops up to `max` expired entries. Returns whether none is left.
    pub(crate) fn tidy(&mut self, now: Millis, max: usize) -> bool {
        for _ in 0..max.min(self.entries.len()) {
            if self.entries.front().is_none_or(|entry| !is_over(entry, now)) {
                break;
            }
            self.drop_oldest();
        }
        if self.entries.is_empty() {
            *self = Self { gone: self.gone, ..Self::default() };
        }
        self.entries.is_empty()
    }
}

fn is_conflict(entry: &Entry, tag: Tag) -> bool {
    entry.tag != tag && entry.tag != ANY_TAG && tag != ANY_TAG && entry.state != State::Forgotten
}

fn is_over(entry: &Entry, now: Millis) -> bool {
    entry.until < now && entry.state != State::Pending
}

/// Maps hashes to the positions of their entries, in buckets of one cache line each.
///
/// A slot holds the lower bits of an entry's position, which show whether the entry was evicted, and some bits of its
/// hash. Both can match by chance or after a million entries, so the entry itself is always compared.
#[derive(Debug, Default)]
struct Index {
    buckets: Vec<Bucket>,
    /// Entries whose bucket was full.
    spilled: VecDeque<(Print, u64)>,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Bucket([u32; SLOTS]);

const SLOTS: usize = 16;

/// Average number of entries in a bucket, low enough that nearly all buckets have room.
const FILL: usize = 6;

/// Marks a slot that was ever used.
const USED: u32 = 1 << 31;

/// Mask of the lower bits of a position.
const LOWER: u32 = (1 << 20) - 1;

impl Index {
    /// Maximum number of entries that slots can distinguish.
    const MAX: usize = LOWER as usize;

    fn new(prints: impl ExactSizeIterator<Item = Print>, live: Range<u64>) -> Self {
        let count = (prints.len() / FILL + 1).next_power_of_two();
        let mut index = Self { buckets: vec![Bucket::default(); count], spilled: VecDeque::new() };
        for (print, mark) in prints.zip(live.clone()) {
            index.insert(print, mark, live.clone());
        }
        index
    }

    fn is_narrow(&self, count: usize) -> bool {
        count > self.buckets.len() * FILL
    }

    fn bucket(&self, print: Print) -> usize {
        usize::try_from(print.0).unwrap_or_default() & self.buckets.len().wrapping_sub(1)
    }

    /// Returns the bits of a hash that a slot holds.
    fn tag(print: Print) -> u32 {
        USED | (u32::try_from(print.1 >> 53).unwrap_or_default() << 20)
    }

    /// Returns the age of a slot's entry in entries; the next entry has age 0.
    fn age(slot: u32, live: &Range<u64>) -> u64 {
        live.end.wrapping_sub(u64::from(slot)) & u64::from(LOWER)
    }

    fn is_live(slot: u32, live: &Range<u64>) -> bool {
        slot != 0 && (1..=live.end - live.start).contains(&Self::age(slot, live))
    }

    fn find(&self, print: Print, live: Range<u64>, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        let bucket = self.buckets.get(self.bucket(print))?;
        let tag = Self::tag(print);
        for slot in bucket.0 {
            if slot & !LOWER == tag && Self::is_live(slot, &live) {
                let mark = live.end - Self::age(slot, &live);
                if is_it(mark) {
                    return Some(mark);
                }
            }
        }
        self.spilled.iter().find(|(other, mark)| *other == print && is_it(*mark)).map(|(_, mark)| *mark)
    }

    fn insert(&mut self, print: Print, mark: u64, live: Range<u64>) {
        let place = self.bucket(print);
        let slots = self.buckets.get_mut(place).map(|bucket| &mut bucket.0);
        match slots.and_then(|slots| slots.iter_mut().find(|slot| !Self::is_live(**slot, &live))) {
            Some(slot) => *slot = Self::tag(print) | u32::try_from(mark & u64::from(LOWER)).unwrap_or_default(),
            None => {
                while self.spilled.front().is_some_and(|(_, mark)| *mark < live.start) {
                    self.spilled.pop_front();
                }
                self.spilled.push_back((print, mark));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tag and number of a test ask.
    const ONE: (Tag, u64) = (7, 1);

    const ANSWER: Answer = Answer { number: 1, at: 5, said: Said::Delivered };

    fn print(id: &str) -> Print {
        Print::of(id, &[7; 16])
    }

    impl Seen {
        /// Returns the state of an id without recording an ask.
        fn get(&self, id: &str, now: Millis) -> Option<Known> {
            let mark = self.find(print(id))?;
            let is_over = is_over(&self.entries[self.place(mark)?], now);
            self.known(mark).filter(|_| !is_over)
        }
    }

    fn seen(ids: &[&str], max: usize) -> Seen {
        let mut seen = Seen::default();
        for id in ids {
            let mark = seen.meet(print(id), ONE, (0, 100), max).unwrap().mark;
            seen.answer(mark, ANSWER);
        }
        seen
    }

    #[test]
    fn a_window_that_must_shrink_drops_its_oldest_entries_and_releases_their_memory() {
        let mut seen = Seen::default();
        for number in 0..5_000_u64 {
            seen.meet(print(&number.to_string()), ONE, (0, 100), 10_000).unwrap();
        }
        seen.meet(print("new"), ONE, (0, 100), 20).unwrap();
        assert_eq!(seen.len(), 20);
        assert!(seen.entries.capacity() <= 64 && seen.index.buckets.len() <= 16, "{}", seen.entries.capacity());
        let known = |seen: &mut Seen, id: &str| seen.meet(print(id), ONE, (0, 100), 20) == Err(Known::Pending);
        assert!(known(&mut seen, "new") && known(&mut seen, "4999"));
        assert!(!known(&mut seen, "0"));
    }

    #[test]
    fn expired_entries_are_dropped_some_at_a_time() {
        let mut seen = Seen::default();
        for id in ["a", "b", "c"] {
            let mark = seen.meet(print(id), ONE, (0, 100), 10).unwrap().mark;
            seen.answer(mark, ANSWER);
        }
        assert!(!seen.tidy(101, 2));
        assert_eq!(seen.len(), 1);
        assert!(seen.tidy(101, 2));
    }

    #[test]
    fn an_answer_is_remembered_for_its_time() {
        let mut seen = seen(&["a"], 10);
        assert_eq!(seen.meet(print("a"), ONE, (100, 100), 10), Err(Known::Answered(ANSWER)));
        assert_eq!(seen.get("a", 101), None);
        assert_eq!(seen.get("b", 0), None);
        assert!(!seen.tidy(100, usize::MAX));
        assert!(seen.tidy(101, usize::MAX));
    }

    #[test]
    fn an_expired_id_is_new_again() {
        let mut seen = seen(&["a", "b"], 10);
        let pending = seen.meet(print("c"), ONE, (0, 100), 10).unwrap().mark;
        let again = seen.meet(print("b"), ONE, (101, 100), 10).unwrap().mark;
        seen.answer(again, Answer { number: 2, ..ANSWER });
        assert_eq!(seen.get("b", 150), Some(Known::Answered(Answer { number: 2, ..ANSWER })));
        // An ask in progress is never started a second time, even after the window.
        assert_eq!(seen.meet(print("c"), ONE, (1_000, 100), 10), Err(Known::Pending));
        seen.answer(pending, ANSWER);
        assert_eq!(seen.get("c", 100), Some(Known::Answered(ANSWER)));
    }

    #[test]
    fn the_oldest_entry_is_evicted_first() {
        let mut seen = seen(&["a", "b", "c"], 3);
        seen.meet(print("d"), ONE, (0, 100), 3).unwrap();
        assert_eq!(seen.get("a", 0), None);
        for id in ["b", "c"] {
            assert_eq!(seen.get(id, 0), Some(Known::Answered(ANSWER)), "{id}");
        }
        assert_eq!(seen.get("d", 0), Some(Known::Pending));
    }

    #[test]
    fn a_forgotten_ask_may_be_retried() {
        let mut seen = seen(&["b"], 3);
        let failed = seen.meet(print("a"), ONE, (0, 100), 3).unwrap().mark;
        seen.forget(failed);
        seen.answer(failed, ANSWER);
        assert_eq!(seen.get("a", 0), None, "a forgotten ask has no answer");
        let again = seen.meet(print("a"), ONE, (0, 100), 3).unwrap().mark;
        seen.answer(again, ANSWER);
        // Evicting the forgotten entry leaves the new one.
        for id in ["c", "d"] {
            assert!(seen.meet(print(id), ONE, (0, 100), 3).is_ok());
            assert_eq!(seen.get("a", 0), Some(Known::Answered(ANSWER)));
        }
        assert_eq!(seen.get("b", 0), None);
        seen.answer(failed, ANSWER);
        seen.forget(Mark::NOWHERE);
    }

    #[test]
    fn a_rejected_ask_is_retried_under_its_first_number() {
        let mut seen = Seen::default();
        let first = seen.meet(print("a"), (7, 1), (0, 100), 3).unwrap();
        seen.fail(first.mark);
        assert_eq!(seen.meet(print("a"), (7, 2), (1, 100), 3), Ok(first));
        assert_eq!(seen.meet(print("a"), (7, 3), (1, 100), 3), Err(Known::Pending));
        assert_eq!(seen.answer(first.mark, ANSWER), Recorded::First);
        assert_eq!(seen.answer(first.mark, ANSWER), Recorded::Again);
        seen.fail(first.mark);
        assert_eq!(seen.meet(print("a"), (7, 4), (1, 100), 3), Err(Known::Answered(ANSWER)), "an answer stays");
    }

    #[test]
    fn one_id_for_two_things_is_a_conflict_until_it_is_forgotten() {
        let mut seen = seen(&["a"], 10);
        assert_eq!(seen.meet(print("a"), (8, 2), (0, 100), 10), Err(Known::Conflict));
        assert!(seen.meet(print("a"), (8, 2), (101, 100), 10).is_ok());
    }

    #[test]
    fn repeats_of_an_expired_queued_message_get_the_expiry() {
        let mut seen = Seen::default();
        let mark = seen.meet(print("a"), ONE, (0, 100), 3).unwrap().mark;
        seen.answer(mark, Answer { said: Said::Queued, ..ANSWER });
        let expired = Answer { said: Said::Expired, ..ANSWER };
        assert_eq!(seen.answer(mark, expired), Recorded::First);
        assert_eq!(seen.meet(print("a"), ONE, (0, 100), 3), Err(Known::Answered(expired)));
    }

    #[test]
    fn long_answers_are_kept_and_expire() {
        let said = Said::Published { epoch: 1, seq: 2, subscribers: 3 };
        let mut seen = Seen::default();
        for id in ["a", "b", "c"] {
            let mark = seen.meet(print(id), ONE, (0, 100), 2).unwrap().mark;
            seen.answer(mark, Answer { said, ..ANSWER });
        }
        assert_eq!(seen.get("c", 0), Some(Known::Answered(Answer { said, ..ANSWER })));
        assert_eq!(seen.more.len(), 2);
    }

    #[test]
    fn many_entries_are_added_and_evicted() {
        let mut seen = Seen::default();
        for number in 0..50_000_u64 {
            let mark = seen.meet(print(&number.to_string()), ONE, (number, 1_000_000), 10_000).unwrap().mark;
            seen.answer(mark, Answer { number, ..ANSWER });
        }
        for number in 0..50_000 {
            let wanted = (number >= 40_000).then_some(Known::Answered(Answer { number, ..ANSWER }));
            assert_eq!(seen.get(&number.to_string(), 50_000), wanted, "{number}");
        }
        assert_eq!((seen.entries.len(), seen.entries.capacity()), (10_000, 10_000));
    }

    /// More entries than a slot can count, so that old slots look new.
    #[test]
    fn positions_wrap_around_in_slots() {
        let mut seen = Seen::default();
        let count = 3 * Index::MAX as u64 + 100;
        for number in 0..count {
            seen.meet(Print(number % 7, number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), ONE, (0, 100), 50).unwrap();
        }
        for number in 0..count {
            let is_known = seen.find(Print(number % 7, number.wrapping_mul(0x9E37_79B9_7F4A_7C15))).is_some();
            assert_eq!(is_known, number >= count - 50, "{number}");
        }
    }

    /// Hashes that all fall into one bucket spill over.
    #[test]
    fn a_full_bucket_loses_nothing() {
        let mut seen = Seen::default();
        for number in 0..1_000 {
            seen.meet(Print(0, number << 53 | number), ONE, (0, 100), 100).unwrap();
        }
        for number in 0..1_000 {
            assert_eq!(seen.find(Print(0, number << 53 | number)).is_some(), number >= 900, "{number}");
        }
        assert!(seen.index.spilled.len() <= 200, "{}", seen.index.spilled.len());
    }

    #[test]
    fn an_expiry_is_news_unless_the_message_was_delivered_or_a_repeat_is_in_progress() {
        let said = |said: Said| Answer { number: 1, at: 5, said };
        for (before, is_news) in [(Said::Delivered, false), (Said::Queued, true), (Said::Expired, false)] {
            let mut all = Seen::default();
            let slot = all.meet(print("a"), ONE, (0, 100), 10).unwrap();
            assert!(!all.expire_print(print("a"), 6), "a repeat is in progress");
            assert_eq!(all.get("a", 6), Some(Known::Pending));
            all.answer(slot.mark, said(before));
            assert_eq!(all.expire_print(print("a"), 6), is_news, "{before:?}");
            let after = if before == Said::Queued { Answer { at: 6, ..said(Said::Expired) } } else { said(before) };
            assert_eq!(all.get("a", 6), Some(Known::Answered(after)), "{before:?}");
        }
        assert!(Seen::default().expire_print(print("a"), 6), "the id is unknown");
    }
}
