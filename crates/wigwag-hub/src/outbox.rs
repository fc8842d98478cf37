//! What waits to be written to one connection.
//!
//! Holds: frames leave in the order they came. A frame that was handed out is remembered until the connection says that it
//! was written, so that what a broken connection took along is known.
//!
//! A frame for this connection alone is written into its box's own text, one behind the other: nothing is allocated for it. One
//! that goes to many is shared.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::key::Waiting;
use crate::seen::Mark;
use crate::settings::{Millis, Settings};
use crate::{ActorId, SessionId};

/// What is remembered of a message until it has arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) sender: ActorId,
    /// The session it came from, which pauses if this is too much.
    pub(crate) feeder: SessionId,
    pub(crate) target: ActorId,
    /// The sender's id of it.
    pub(crate) id: String,
    /// Where it is remembered that its sender asked.
    pub(crate) mark: Mark,
    /// What is told back of its trace.
    pub(crate) trace: String,
    /// The hub's number of it.
    pub(crate) number: u64,
    pub(crate) received: Millis,
    pub(crate) ttl: Option<u64>,
    pub(crate) is_ask: bool,
    pub(crate) require_ack: bool,
    /// Stored if the target is away.
    pub(crate) queue: bool,
    /// The sender waits for a reply of the target.
    pub(crate) expects_reply: bool,
    /// Where it is stored, if it is.
    pub(crate) stored: Option<Waiting>,
    /// And the id it was forwarded with, which may be that of a hub before this one.
    pub(crate) stored_id: Option<Box<str>>,
}

/// A message that is in no box.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) bytes: Bytes,
    /// Not written after this.
    pub(crate) expires: Millis,
    pub(crate) carried: Box<Carried>,
}

/// Memory that was used and will be again, so that the allocator is not called for every message; and the bytes of all
/// outboxes together.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// Bytes that wait in all outboxes.
    pub(crate) outbox_bytes: usize,
    texts: Vec<Vec<u8>>,
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    carried: Vec<Box<Carried>>,
}

impl Spare {
    const TEXTS_MAX: usize = 64;
    const TEXT_BYTES_MAX: usize = 64 * 1_024;
    const CARRIED_MAX: usize = 8_192;
    const TRACE_BYTES_MAX: usize = 256;

    fn text(&mut self) -> Vec<u8> {
        self.texts.pop().unwrap_or_default()
    }

    fn keep_text(&mut self, mut text: Vec<u8>) {
        if self.texts.len() < Self::TEXTS_MAX && (1..=Self::TEXT_BYTES_MAX).contains(&text.capacity()) {
            text.clear();
            self.texts.push(text);
        }
    }

    pub(crate) fn carried(&mut self) -> Box<Carried> {
        self.carried.pop().unwrap_or_default()
    }

    pub(crate) fn keep_carried(&mut self, carried: Box<Carried>) {
        if self.carried.len() < Self::CARRIED_MAX && carried.trace.capacity() <= Self::TRACE_BYTES_MAX {
            self.carried.push(carried);
        }
    }
}

/// What an outbox may hold while all of them together hold too much: enough for a healthy connection.
const SHARE_BYTES: usize = 64 * 1_024;

/// A frame in a box.
#[derive(Debug)]
struct Entry {
    body: Body,
    expires: Millis,
    carried: Option<Box<Carried>>,
}

#[derive(Debug)]
enum Body {
    /// In the box's text, from here on.
    Own {
        begin: u64,
        length: usize,
    },
    Shared(Bytes),
    /// It was handed out, and nothing more is needed of it.
    Gone {
        length: usize,
    },
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::Own { length, .. } | Self::Gone { length } => *length,
            Self::Shared(bytes) => bytes.len(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    text: Vec<u8>,
    /// How much was in the text before what is in it now.
    base: u64,
    /// How much of it is still needed.
    own_bytes: usize,
    entries: VecDeque<Entry>,
    /// How many of them were handed out and may not be written.
    sent: usize,
    bytes: usize,
    /// Since when it is too full.
    pub(crate) over_since: Option<Millis>,
    /// When something was written last, or came into the empty box.
    pub(crate) moved_at: Millis,
}

impl Outbox {
    /// Puts a frame in that is for this box alone.
    pub(crate) fn write(
        &mut self,
        expires: Millis,
        carried: Option<Box<Carried>>,
        at: (Millis, &Settings, &mut Spare),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let (now, settings, spare) = at;
        if self.text.capacity() == 0 {
            self.text = spare.text();
        }
        let before = self.text.len();
        write(&mut self.text);
        let length = self.text.len() - before;
        self.own_bytes += length;
        let begin = self.base + before as u64;
        self.push_entry(Entry { body: Body::Own { begin, length }, expires, carried }, (now, settings, spare));
    }

    /// Puts a frame in that others may have too.
    pub(crate) fn push(
        &mut self,
        bytes: Bytes,
        expires: Millis,
        carried: Option<Box<Carried>>,
        at: (Millis, &Settings, &mut Spare),
    ) {
        self.push_entry(Entry { body: Body::Shared(bytes), expires, carried }, at);
    }

    fn push_entry(&mut self, entry: Entry, at: (Millis, &Settings, &mut Spare)) {
        let (now, settings, spare) = at;
        if self.is_empty() {
            self.moved_at = now;
        }
        self.bytes += entry.body.len();
        spare.outbox_bytes += entry.body.len();
        self.entries.push_back(entry);
        if self.over_since.is_none() && self.is_over(settings, spare) {
            self.over_since = Some(now);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.sent < self.entries.len()
    }

    /// Whether it is too full for more. While all outboxes together hold too much, each has a small share only.
    pub(crate) fn is_over(&self, settings: &Settings, spare: &Spare) -> bool {
        self.len() > settings.drop_above
            || self.bytes > settings.drop_bytes_above
            || (spare.outbox_bytes > settings.outboxes_bytes_max && self.bytes > SHARE_BYTES)
    }

    /// So full that those who feed it should wait.
    pub(crate) fn is_high(&self, settings: &Settings) -> bool {
        self.len() > settings.pause_above || self.bytes > settings.drop_bytes_above / 2
    }

    /// Empty enough for them to go on.
    pub(crate) fn is_low(&self, settings: &Settings) -> bool {
        self.len() < settings.resume_below && self.bytes <= settings.drop_bytes_above / 4
    }

    fn read<'a>(text: &'a [u8], base: u64, body: &'a Body) -> &'a [u8] {
        match body {
            Body::Own { begin, length } => {
                let begin = usize::try_from(begin - base).unwrap_or(usize::MAX);
                text.get(begin..).and_then(|rest| rest.get(..*length)).unwrap_or_default()
            }
            Body::Shared(bytes) => bytes,
            Body::Gone { .. } => &[],
        }
    }

    /// The next frame, unless it is too late for it: then what it carried.
    pub(crate) fn next(
        &mut self,
        is_late: impl FnOnce(Millis) -> bool,
        spare: &mut Spare,
    ) -> Option<Result<Next<'_>, Option<Box<Carried>>>> {
        let expires = self.entries.get(self.sent)?.expires;
        if is_late(expires) {
            let entry = self.entries.remove(self.sent)?;
            self.forget(&entry.body, spare);
            if self.own_bytes == 0 {
                self.base += self.text.len() as u64;
                self.text.clear();
            }
            return Some(Err(entry.carried));
        }
        let Self { text, base, entries, sent, .. } = self;
        let entry = entries.get_mut(*sent)?;
        *sent += 1;
        Some(Ok(Next { text, base: *base, entry }))
    }

    fn forget(&mut self, body: &Body, spare: &mut Spare) {
        self.bytes -= body.len();
        spare.outbox_bytes = spare.outbox_bytes.saturating_sub(body.len());
        if let Body::Own { length, .. } = body {
            self.own_bytes -= length;
        }
    }

    /// The oldest frame that was handed out was written; what it carried.
    pub(crate) fn written(&mut self, now: Millis, spare: &mut Spare) -> Option<Option<Box<Carried>>> {
        self.sent = self.sent.checked_sub(1)?;
        let entry = self.entries.pop_front()?;
        self.forget(&entry.body, spare);
        self.moved_at = now;
        self.trim(spare);
        Some(entry.carried)
    }

    /// Gives back the text that nobody needs any more.
    fn trim(&mut self, spare: &mut Spare) {
        const WORTH_IT: usize = 64 * 1_024;
        if self.own_bytes == 0 {
            self.base += self.text.len() as u64;
            spare.keep_text(std::mem::take(&mut self.text));
        } else if self.text.len() > WORTH_IT.max(2 * self.own_bytes) {
            let begin = self.entries.iter().find_map(|entry| match entry.body {
                Body::Own { begin, .. } => Some(begin),
                _ => None,
            });
            let over = begin.map_or(self.text.len(), |begin| usize::try_from(begin - self.base).unwrap_or_default());
            // What is late may be far behind what is not: then there is little to gain yet.
            if over >= self.text.len() / 2 {
                self.text.drain(..over);
                self.base += over as u64;
            }
        }
    }

    /// Takes out all messages of others, in order; what the hub itself says stays.
    pub(crate) fn abandon(&mut self, spare: &mut Spare) -> Vec<Out> {
        let before = self.bytes;
        let mut sent = std::mem::take(&mut self.entries);
        let waiting = sent.split_off(std::mem::take(&mut self.sent));
        // What was handed out may have arrived: an ask may come twice, a tell may not.
        let is_unsure = |entry: &Entry| entry.carried.as_ref().is_some_and(|carried| carried.is_ask);
        let unsure = sent.into_iter().filter(is_unsure);
        let (lost, kept) = waiting.into_iter().partition::<Vec<_>, _>(|entry| entry.carried.is_some());
        let bytes_of = |body: &Body| match body {
            Body::Shared(bytes) => bytes.clone(),
            own => Bytes::copy_from_slice(Self::read(&self.text, self.base, own)),
        };
        let out = |entry: Entry| {
            let bytes = bytes_of(&entry.body);
            entry.carried.map(|carried| Out { bytes, expires: entry.expires, carried })
        };
        let lost = unsure.chain(lost).filter_map(out).collect();
        self.bytes = kept.iter().map(|entry| entry.body.len()).sum();
        self.own_bytes =
            kept.iter().map(|entry| if let Body::Own { length, .. } = entry.body { length } else { 0 }).sum();
        self.entries = kept.into();
        spare.outbox_bytes = spare.outbox_bytes.saturating_sub(before - self.bytes);
        lost
    }
}

/// A frame that is handed out.
pub(crate) struct Next<'a> {
    text: &'a [u8],
    base: u64,
    entry: &'a mut Entry,
}

impl Next<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        Outbox::read(self.text, self.base, &self.entry.body)
    }

    pub(crate) fn carried(&self) -> Option<&Carried> {
        self.entry.carried.as_deref()
    }

    /// Takes out what it carries: that is remembered elsewhere.
    pub(crate) fn take(self) -> Option<Out> {
        let bytes = match &self.entry.body {
            Body::Shared(bytes) => bytes.clone(),
            _ => Bytes::copy_from_slice(self.bytes()),
        };
        let carried = self.entry.carried.take()?;
        Some(Out { bytes, expires: self.entry.expires, carried })
    }
}

impl Drop for Next<'_> {
    /// Of one that is shared and carries nothing its length is all that is still needed.
    fn drop(&mut self) {
        if let (Body::Shared(bytes), None) = (&self.entry.body, &self.entry.carried) {
            self.entry.body = Body::Gone { length: bytes.len() };
        }
    }
}

/// A message that its target's client has and did not acknowledge yet.
#[derive(Debug)]
struct Unacknowledged {
    out: Out,
    /// Deadline of the acknowledgement.
    deadline: Millis,
}

/// Messages that a client is still to acknowledge, by the id they were forwarded with.
#[derive(Debug, Default)]
pub(crate) struct Awaiting {
    all: BTreeMap<Box<str>, Unacknowledged>,
    bytes: usize,
    /// No deadline is before this.
    next_deadline: Millis,
    /// Messages that timed out; a late acknowledgement still counts.
    late: BTreeMap<Box<str>, Box<Carried>>,
}

impl Awaiting {
    pub(crate) fn insert(&mut self, id: Box<str>, out: Out, deadline: Millis) {
        self.late.remove(&id);
        self.bytes += out.bytes.len();
        self.next_deadline = if self.all.is_empty() { deadline } else { self.next_deadline.min(deadline) };
        if let Some(old) = self.all.insert(id, Unacknowledged { out, deadline }) {
            self.bytes -= old.out.bytes.len();
        }
    }

    /// Takes out a message that was acknowledged, in time or late.
    pub(crate) fn acknowledged(&mut self, id: &str) -> Option<Box<Carried>> {
        match self.remove(id) {
            Some(out) => Some(out.carried),
            None => self.late.remove(id),
        }
    }

    /// Sets a new deadline for an acknowledgement.
    pub(crate) fn extend(&mut self, id: &str, deadline: Millis) -> Option<&Carried> {
        let found = self.all.get_mut(id)?;
        // Messages of the queue have no deadline.
        if found.deadline != Millis::MAX {
            found.deadline = deadline;
        }
        Some(&found.out.carried)
    }

    fn remove(&mut self, id: &str) -> Option<Out> {
        let Unacknowledged { out, .. } = self.all.remove(id)?;
        self.bytes -= out.bytes.len();
        Some(out)
    }

    /// Removes and returns all unacknowledged messages, and drops those that timed out.
    pub(crate) fn take_all(&mut self) -> Vec<Out> {
        self.late.clear();
        self.bytes = 0;
        std::mem::take(&mut self.all).into_values().map(|one| one.out).collect()
    }

    /// Returns up to `max` messages whose deadline has passed. A late acknowledgement of them still counts.
    #[expect(clippy::vec_box, reason = "they are boxed already")]
    pub(crate) fn overdue(&mut self, now: Millis, max: usize) -> Vec<Box<Carried>> {
        if self.all.is_empty() || self.next_deadline >= now {
            return Vec::new();
        }
        let is_over = |one: &&Unacknowledged| one.deadline < now;
        let over: Vec<Box<str>> =
            self.all.iter().filter(|(_, one)| is_over(one)).take(max).map(|(id, _)| id.clone()).collect();
        let carried: Vec<Box<Carried>> = over.iter().filter_map(|id| self.remove(id)).map(|out| out.carried).collect();
        if over.len() < max {
            self.next_deadline = self.all.values().map(|one| one.deadline).min().unwrap_or_default();
        }
        for (id, carried) in over.into_iter().zip(&carried) {
            self.late.insert(id, carried.clone());
        }
        while self.late.len() > LATE_MAX {
            let oldest = self.late.iter().min_by_key(|(_, carried)| carried.number).map(|(id, _)| id.clone());
            oldest.and_then(|id| self.late.remove(&id));
        }
        carried
    }

    pub(crate) fn is_over(&self, settings: &Settings) -> bool {
        self.all.len() >= settings.drop_above || self.bytes > settings.drop_bytes_above
    }
}

/// Maximum number of timed-out messages remembered for each session.
const LATE_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(outbox: &mut Outbox, spare: &mut Spare, text: &str, carried: Option<Box<Carried>>) {
        let settings = Settings::default();
        outbox.write(Millis::MAX, carried, (0, &settings, spare), |out| out.extend_from_slice(text.as_bytes()));
    }

    fn take(outbox: &mut Outbox) -> Option<String> {
        let Ok(next) = outbox.next(|_| false, &mut Spare::default())? else { return None };
        Some(String::from_utf8_lossy(next.bytes()).into_owned())
    }

    #[test]
    fn frames_leave_in_order_whether_own_or_shared() {
        let (mut outbox, mut spare, settings) = (Outbox::default(), Spare::default(), Settings::default());
        for round in 0..3 {
            write(&mut outbox, &mut spare, "one", None);
            outbox.push(Bytes::from_static(b"two"), Millis::MAX, None, (0, &settings, &mut spare));
            write(&mut outbox, &mut spare, "three", None);
            assert_eq!((outbox.len(), outbox.bytes()), (3, 11));
            assert_eq!(take(&mut outbox).unwrap(), "one", "{round}");
            write(&mut outbox, &mut spare, "four", None);
            assert_eq!(
                [take(&mut outbox), take(&mut outbox), take(&mut outbox)].map(Option::unwrap),
                ["two", "three", "four"]
            );
            assert!(take(&mut outbox).is_none());
            while outbox.written(0, &mut spare).is_some() {}
            assert_eq!(spare.outbox_bytes, 0);
            assert_eq!((outbox.bytes(), outbox.own_bytes, outbox.text.capacity()), (0, 0, 0));
        }
        assert_eq!(spare.texts.len(), 1, "the text is used again");
    }

    #[test]
    fn what_is_too_late_leaves_the_others_readable() {
        let (mut outbox, mut spare) = (Outbox::default(), Spare::default());
        for text in ["a", "late", "b"] {
            write(&mut outbox, &mut spare, text, Some(Box::default()));
        }
        assert_eq!(take(&mut outbox).unwrap(), "a");
        assert!(matches!(outbox.next(|_| true, &mut spare), Some(Err(Some(_)))));
        assert!(matches!(outbox.written(0, &mut spare), Some(Some(_))));
        assert_eq!(take(&mut outbox).unwrap(), "b");
        outbox.written(0, &mut spare);
        assert_eq!((outbox.len(), outbox.bytes(), outbox.own_bytes), (0, 0, 0));
    }

    #[test]
    fn while_all_outboxes_hold_too_much_each_has_a_small_share() {
        let settings = Settings { outboxes_bytes_max: 200_000, ..Settings::default() };
        let (mut one, mut other, mut spare) = (Outbox::default(), Outbox::default(), Spare::default());
        write(&mut one, &mut spare, &"x".repeat(150_000), None);
        write(&mut other, &mut spare, "short", None);
        assert!(!one.is_over(&settings, &spare), "together they hold little");
        write(&mut one, &mut spare, &"x".repeat(60_000), None);
        assert!(one.is_over(&settings, &spare) && !other.is_over(&settings, &spare));
        one.abandon(&mut spare);
        assert_eq!(spare.outbox_bytes, 210_005, "what the hub itself says stays");
    }

    #[test]
    fn a_late_acknowledgement_counts_and_an_extended_one_is_not_late() {
        let (mut awaiting, bytes) = (Awaiting::default(), Bytes::from_static(b"x"));
        for (id, number) in [("a", 1), ("b", 2)] {
            let carried = Box::new(Carried { number, ..Carried::default() });
            awaiting.insert(id.into(), Out { bytes: bytes.clone(), expires: 0, carried }, 10);
        }
        assert!(awaiting.extend("b", 100).is_some() && awaiting.extend("c", 100).is_none());
        let over: Vec<u64> = awaiting.overdue(11, 10).iter().map(|carried| carried.number).collect();
        assert_eq!(over, [1]);
        assert!(awaiting.overdue(12, 10).is_empty());
        assert_eq!(awaiting.acknowledged("a").map(|carried| carried.number), Some(1), "late");
        assert!(awaiting.acknowledged("a").is_none());
        assert_eq!((awaiting.acknowledged("b").map(|carried| carried.number), awaiting.bytes), (Some(2), 0));
    }

    #[test]
    fn one_whose_frames_are_all_late_does_not_grow() {
        let (mut outbox, mut spare) = (Outbox::default(), Spare::default());
        for _ in 0..1_000 {
            write(&mut outbox, &mut spare, &"x".repeat(1_000), None);
            assert!(matches!(outbox.next(|_| true, &mut spare), Some(Err(None))));
        }
        assert!(outbox.text.capacity() < 10_000, "{}", outbox.text.capacity());
        write(&mut outbox, &mut spare, "in time", None);
        assert_eq!(take(&mut outbox).unwrap(), "in time");
    }

    #[test]
    fn one_that_is_never_empty_does_not_grow() {
        let (mut outbox, mut spare) = (Outbox::default(), Spare::default());
        write(&mut outbox, &mut spare, &"x".repeat(1_000), None);
        for round in 0..10_000 {
            write(&mut outbox, &mut spare, &format!("{round:01000}"), None);
            let text = take(&mut outbox).unwrap();
            assert!(round == 0 || text == format!("{:01000}", round - 1), "{round}: {text}");
            outbox.written(0, &mut spare);
        }
        assert!(outbox.text.capacity() < 300_000, "{}", outbox.text.capacity());
    }

    #[test]
    fn what_was_not_written_is_given_back_and_what_the_hub_says_stays() {
        let (mut outbox, mut spare) = (Outbox::default(), Spare::default());
        let ask = || Some(Box::new(Carried { is_ask: true, ..Carried::default() }));
        for (text, carried) in
            [("sent ask", ask()), ("sent tell", Some(Box::default())), ("said", None), ("ask", ask())]
        {
            write(&mut outbox, &mut spare, text, carried);
        }
        take(&mut outbox);
        take(&mut outbox);
        let lost: Vec<Bytes> = outbox.abandon(&mut spare).into_iter().map(|out| out.bytes).collect();
        assert_eq!(lost, ["sent ask", "ask"]);
        assert_eq!(take(&mut outbox).unwrap(), "said");
        outbox.written(0, &mut spare);
        assert_eq!((outbox.bytes(), outbox.own_bytes), (0, 0));
    }
}
