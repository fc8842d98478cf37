//! Outbox: frames that wait to be written to one connection.
//!
//! Holds: frames leave in the order of arrival. A frame that was handed out is kept until the connection reports it
//! as written, so that the frames lost with a broken connection are known.
//!
//! Frames for this connection alone are appended to the outbox's own buffer, without an allocation each. Frames for
//! many connections are shared.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::key::Waiting;
use crate::seen::Mark;
use crate::settings::{Millis, Settings};
use crate::{ActorId, SessionId};

/// The record of a message until it is delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) sender: ActorId,
    /// The sending session, which is paused when the target's outbox is too full.
    pub(crate) feeder: SessionId,
    pub(crate) target: ActorId,
    /// The sender's id of the message.
    pub(crate) id: String,
    /// The sender's dedup entry.
    pub(crate) mark: Mark,
    /// Trace entries that the answer repeats.
    pub(crate) trace: String,
    /// The hub's number of the message.
    pub(crate) number: u64,
    pub(crate) received: Millis,
    pub(crate) ttl: Option<u64>,
    pub(crate) is_ask: bool,
    pub(crate) require_ack: bool,
    /// Whether to store the message if the target is away.
    pub(crate) queue: bool,
    /// Whether the sender waits for a reply of the target.
    pub(crate) expects_reply: bool,
    /// The key in the queue, if the message is stored.
    pub(crate) stored: Option<Waiting>,
    /// The id that a stored message was forwarded with, possibly by an earlier hub.
    pub(crate) stored_id: Option<Box<str>>,
}

/// A message that is in no outbox.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) bytes: Bytes,
    /// The message is not written after this time.
    pub(crate) expires: Millis,
    pub(crate) carried: Box<Carried>,
}

/// Buffers for reuse, so that not every message needs an allocation, and the total size of all outboxes.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// Bytes in all outboxes.
    pub(crate) outbox_bytes: usize,
    texts: Vec<Vec<u8>>,
    #[expect(clippy::vec_box, reason = "the boxes themselves are reused")]
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

/// Limit per outbox while the total limit is exceeded: enough for a healthy connection.
const SHARE_BYTES: usize = 64 * 1_024;

/// A frame in an outbox.
#[derive(Debug)]
struct Entry {
    body: Body,
    expires: Millis,
    carried: Option<Box<Carried>>,
}

#[derive(Debug)]
enum Body {
    /// A range of the outbox's own buffer.
    Own {
        begin: u64,
        length: usize,
    },
    Shared(Bytes),
    /// A frame that was handed out; only its length is still needed.
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
    /// Position of the buffer's first byte in the stream of all bytes ever appended.
    base: u64,
    /// Bytes of the buffer that are still needed.
    own_bytes: usize,
    entries: VecDeque<Entry>,
    /// Number of entries that were handed out but may not be written yet.
    sent: usize,
    bytes: usize,
    /// When the outbox became too full.
    pub(crate) over_since: Option<Millis>,
    /// Time of the last write, or when the first frame entered the empty outbox.
    pub(crate) moved_at: Millis,
}

impl Outbox {
    /// Appends a frame for this connection alone.
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

    /// Appends a frame that other connections may share.
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

    /// Whether the outbox rejects more frames. While all outboxes together exceed their limit, each has
    /// only a small share.
    pub(crate) fn is_over(&self, settings: &Settings, spare: &Spare) -> bool {
        self.len() > settings.drop_above
            || self.bytes > settings.drop_bytes_above
            || (spare.outbox_bytes > settings.outboxes_bytes_max && self.bytes > SHARE_BYTES)
    }

    /// Whether the outbox is so full that its feeders must pause.
    pub(crate) fn is_high(&self, settings: &Settings) -> bool {
        self.len() > settings.pause_above || self.bytes > settings.drop_bytes_above / 2
    }

    /// Whether the outbox is empty enough for its feeders to resume.
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

    /// Hands out the next frame, or returns the delivery record of a frame that has expired.
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

    /// Removes the oldest frame that was handed out, now written, and returns its delivery record.
    pub(crate) fn written(&mut self, now: Millis, spare: &mut Spare) -> Option<Option<Box<Carried>>> {
        self.sent = self.sent.checked_sub(1)?;
        let entry = self.entries.pop_front()?;
        self.forget(&entry.body, spare);
        self.moved_at = now;
        self.trim(spare);
        Some(entry.carried)
    }

    /// Frees the part of the buffer that is no longer needed.
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
            // An early entry may still need the start of the buffer; then trimming frees too little to
            // be worth the copy.
            if over >= self.text.len() / 2 {
                self.text.drain(..over);
                self.base += over as u64;
            }
        }
    }

    /// Removes and returns all messages from other senders, in order; the hub's own frames stay.
    pub(crate) fn abandon(&mut self, spare: &mut Spare) -> Vec<Out> {
        let before = self.bytes;
        let mut sent = std::mem::take(&mut self.entries);
        let waiting = sent.split_off(std::mem::take(&mut self.sent));
        // Frames that were handed out may have arrived: an ask may be sent twice, a tell may not.
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

/// A frame on its way to the connection.
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

    /// Removes the message, so that its record is kept elsewhere.
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
    /// Releases the bytes of a shared frame without a delivery record, since only its length is still needed.
    fn drop(&mut self) {
        if let (Body::Shared(bytes), None) = (&self.entry.body, &self.entry.carried) {
            self.entry.body = Body::Gone { length: bytes.len() };
        }
    }
}

/// A message that the target's client received but has not acknowledged.
#[derive(Debug)]
struct Unacknowledged {
    out: Out,
    /// Deadline of the acknowledgement.
    deadline: Millis,
}

/// Messages that wait for acknowledgement, by the id they were forwarded with.
#[derive(Debug, Default)]
pub(crate) struct Awaiting {
    all: BTreeMap<Box<str>, Unacknowledged>,
    bytes: usize,
    /// Lower bound of all deadlines.
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

    /// Removes and returns a message that was acknowledged, in time or late.
    pub(crate) fn acknowledged(&mut self, id: &str) -> Option<Box<Carried>> {
        match self.remove(id) {
            Some(out) => Some(out.carried),
            None => self.late.remove(id).filter(|_| !deliberate_bug!(LateAckIgnored)),
        }
    }

    /// Sets a new deadline for an acknowledgement, if there is one, and returns the message.
    pub(crate) fn extend(&mut self, id: &str, deadline: Option<Millis>) -> Option<&Carried> {
        let found = self.all.get_mut(id)?;
        // Queued messages have no deadline.
        if let Some(deadline) = deadline.filter(|_| found.deadline != Millis::MAX) {
            found.deadline = deadline;
        }
        Some(&found.out.carried)
    }

    fn remove(&mut self, id: &str) -> Option<Out> {
        let Unacknowledged { out, .. } = self.all.remove(id)?;
        self.bytes -= out.bytes.len();
        Some(out)
    }

    /// Removes and returns all unacknowledged messages, and drops timed out messages.
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
        assert_eq!(spare.texts.len(), 1, "the buffer is reused");
    }

    #[test]
    fn expired_frames_leave_the_others_readable() {
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
        assert!(!one.is_over(&settings, &spare), "the total is small");
        write(&mut one, &mut spare, &"x".repeat(60_000), None);
        assert!(one.is_over(&settings, &spare) && !other.is_over(&settings, &spare));
        one.abandon(&mut spare);
        assert_eq!(spare.outbox_bytes, 210_005, "the hub's own frames stay");
    }

    #[test]
    fn a_late_acknowledgement_counts_and_an_extended_one_is_not_late() {
        let (mut awaiting, bytes) = (Awaiting::default(), Bytes::from_static(b"x"));
        for (id, number) in [("a", 1), ("b", 2)] {
            let carried = Box::new(Carried { number, ..Carried::default() });
            awaiting.insert(id.into(), Out { bytes: bytes.clone(), expires: 0, carried }, 10);
        }
        assert!(awaiting.extend("b", Some(100)).is_some() && awaiting.extend("c", Some(100)).is_none());
        let over: Vec<u64> = awaiting.overdue(11, 10).iter().map(|carried| carried.number).collect();
        assert_eq!(over, [1]);
        assert!(awaiting.overdue(12, 10).is_empty());
        assert_eq!(awaiting.acknowledged("a").map(|carried| carried.number), Some(1), "late");
        assert!(awaiting.acknowledged("a").is_none());
        assert_eq!((awaiting.acknowledged("b").map(|carried| carried.number), awaiting.bytes), (Some(2), 0));
    }

    #[test]
    fn an_outbox_whose_frames_all_expire_does_not_grow() {
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
    fn an_outbox_that_is_never_empty_does_not_grow() {
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
    fn unwritten_messages_are_returned_and_frames_of_the_hub_stay() {
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
