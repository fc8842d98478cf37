//! Subscriptions: the items to deliver, the gaps to report, and the positions to resume from.
//!
//! Holds: a subscriber sees growing sequence numbers; every message missing between two of them is reported in a gap.

use serde::{Deserialize, Serialize};

use crate::frame::Incoming;

/// A position in a topic, right after the message with number `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Epoch of the topic, which changes when the numbering restarts.
    pub epoch: u64,
    /// Sequence number of a message in the epoch, starting at 1; 0 is before the first message.
    pub seq: u64,
}

/// A range of messages that a subscriber missed and that the hub no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Epoch in which the subscription continues.
    pub epoch: u64,
    /// Number of the first missed message; `None` if a new epoch has started, so that the number
    /// of missed messages is unknown.
    pub from: Option<u64>,
    /// Number of the last missed message.
    pub to: u64,
}

/// An item for a subscriber.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Message(Incoming, Position),
    Gap(Gap),
    /// The hub ended the subscription for this reason.
    End(String),
}

/// State of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The topic is to be requested as soon as the connection allows.
    Wanted,
    /// The topic was requested. Messages before the answer belong to the previous subscription, and
    /// the hub sends them again.
    Asked,
    Live,
    /// The subscriber is slow: its messages are dropped, and requested again once it has caught up.
    Behind,
}

#[derive(Debug)]
pub(super) struct Topic<W> {
    pub(super) name: String,
    /// Position of the last delivered message, or the start of the subscription.
    pub(super) position: Option<Position>,
    /// Position of the last request: the hub no longer has messages that are missing right after it.
    asked_from: Option<Position>,
    pub(super) state: State,
    /// The hub's id of the subscription.
    pub(super) id: Option<String>,
    /// Receiver of the first answer.
    pub(super) waiter: Option<W>,
}

/// An item for the subscriber, and the subscriber's position before it.
pub(super) type Given = (Item, Option<Position>);

impl<W> Topic<W> {
    pub(super) fn new(name: String, after: Option<Position>, waiter: W) -> Self {
        Self { name, position: after, asked_from: after, state: State::Wanted, id: None, waiter: Some(waiter) }
    }

    /// Marks the topic as requested, and returns the position to resume from.
    pub(super) fn ask(&mut self) -> Option<Position> {
        (self.state, self.asked_from) = (State::Asked, self.position);
        self.position
    }

    /// Handles the hub's answer. A run's log starts at its beginning, any other topic at the hub's current position.
    pub(super) fn subscribed(&mut self, now: Position) {
        self.state = State::Live;
        if self.position.is_none() && !self.name.starts_with("run/") {
            (self.position, self.asked_from) = (Some(now), Some(now));
        }
    }

    /// Returns the items for a message: none if the topic is not live or the message is a duplicate, and a gap before
    /// the message if messages are missing.
    pub(super) fn message(&mut self, frame: Incoming, at: Position) -> Vec<Given> {
        let known = self.position.filter(|last| last.epoch == at.epoch);
        if self.state != State::Live || known.is_some_and(|last| at.seq <= last.seq) {
            return Vec::new();
        }
        let from = known.map(|last| last.seq + 1);
        let mut given = Vec::new();
        if self.position.is_some() && from != Some(at.seq) {
            given.extend(self.gap(Gap { epoch: at.epoch, from, to: at.seq.saturating_sub(1) }));
        }
        if self.state == State::Live {
            given.push((Item::Message(frame, at), self.position.replace(at)));
        }
        given
    }

    /// Handles missing messages: requests them once; if they are still missing, the hub has lost them and the
    /// subscriber gets a gap.
    pub(super) fn gap(&mut self, gap: Gap) -> Option<Given> {
        let is_old = self.position.is_some_and(|last| last.epoch == gap.epoch && gap.to <= last.seq);
        if self.state != State::Live || (is_old && gap.from.is_some()) {
            return None;
        }
        if gap.from.is_some() && self.position != self.asked_from {
            self.state = State::Wanted;
            return None;
        }
        Some((Item::Gap(gap), self.position.replace(Position { epoch: gap.epoch, seq: gap.to })))
    }

    /// Marks the subscriber as slow, and resets its position to that before the undelivered item.
    pub(super) fn behind(&mut self, before: Option<Position>) {
        if self.state == State::Live {
            (self.state, self.position) = (State::Behind, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, seq: u64) -> Position {
        Position { epoch, seq }
    }

    fn live(after: Option<Position>) -> Topic<()> {
        let mut topic = Topic::new("orders".into(), after, ());
        topic.ask();
        topic.subscribed(at(1, 5));
        topic
    }

    /// Receives a message and returns the resulting items as text.
    fn come(topic: &mut Topic<()>, epoch: u64, seq: u64) -> Vec<String> {
        let frame = Incoming::read(r#"{"type": "a"}"#).unwrap();
        topic.message(frame, at(epoch, seq)).into_iter().map(|(item, _)| shown(item)).collect()
    }

    fn shown(item: Item) -> String {
        match item {
            Item::Message(_, at) => format!("{}:{}", at.epoch, at.seq),
            Item::Gap(gap) => format!("gap {:?} to {}:{}", gap.from, gap.epoch, gap.to),
            Item::End(why) => why,
        }
    }

    #[test]
    fn each_message_is_given_once_and_in_order() {
        let mut topic = live(None);
        assert!(come(&mut topic, 1, 5).is_empty(), "the message is older than the subscription");
        assert_eq!(come(&mut topic, 1, 6), ["1:6"]);
        assert_eq!(come(&mut topic, 1, 7), ["1:7"]);
        assert!(come(&mut topic, 1, 7).is_empty());
        topic.ask();
        assert!(come(&mut topic, 1, 8).is_empty(), "the hub sends it again after its answer");
        topic.subscribed(at(1, 9));
        assert_eq!(come(&mut topic, 1, 8), ["1:8"]);
    }

    #[test]
    fn what_is_missed_is_asked_for_once_and_then_told() {
        let mut topic = live(Some(at(1, 2)));
        let gap = Gap { epoch: 1, from: Some(3), to: 4 };
        assert_eq!(
            topic.gap(gap).map(|(item, _)| shown(item)).unwrap(),
            "gap Some(3) to 1:4",
            "the hub no longer has the messages"
        );
        assert_eq!(come(&mut topic, 1, 5), ["1:5"]);
        assert!(topic.gap(Gap { epoch: 1, from: Some(6), to: 8 }).is_none());
        assert_eq!(topic.state, State::Wanted, "the topic is requested again");
        assert!(come(&mut topic, 1, 9).is_empty(), "nothing is delivered before the answer");
        assert_eq!(topic.ask(), Some(at(1, 5)));
        topic.subscribed(at(1, 9));
        assert_eq!(come(&mut topic, 1, 6), ["1:6"]);
        assert!(come(&mut topic, 1, 9).is_empty(), "a missing number without `hub:gap` is also a gap");
        assert_eq!((topic.state, topic.ask()), (State::Wanted, Some(at(1, 6))));
        topic.subscribed(at(1, 9));
        assert_eq!(come(&mut topic, 1, 9), ["gap Some(7) to 1:8", "1:9"]);
    }

    #[test]
    fn a_topic_that_began_anew_is_told_whether_the_hub_says_so_or_not() {
        let mut topic = live(Some(at(1, 7)));
        let gap = Gap { epoch: 2, from: None, to: 0 };
        assert_eq!(
            topic.gap(gap).map(|(item, before)| (shown(item), before)).unwrap(),
            ("gap None to 2:0".into(), Some(at(1, 7)))
        );
        assert_eq!(come(&mut topic, 2, 1), ["2:1"]);
        assert_eq!(come(&mut topic, 3, 4), ["gap None to 3:3", "3:4"]);
    }

    #[test]
    fn a_run_is_read_from_its_beginning() {
        let mut topic = Topic::new("run/order-17".into(), None, ());
        topic.ask();
        topic.subscribed(at(1, 9));
        assert_eq!(come(&mut topic, 1, 1), ["1:1"]);
    }

    #[test]
    fn who_did_not_keep_up_goes_on_where_it_was() {
        let mut topic = live(None);
        come(&mut topic, 1, 6);
        let frame = Incoming::read(r#"{"type": "a"}"#).unwrap();
        let (_, before) = topic.message(frame, at(1, 7)).remove(0);
        topic.behind(before);
        assert!(come(&mut topic, 1, 8).is_empty());
        assert_eq!((topic.state, topic.ask()), (State::Behind, Some(at(1, 6))));
    }
}
