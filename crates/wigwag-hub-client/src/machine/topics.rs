//! Subscriptions: what of a topic is given, what is missed, and from where on it is asked for again.
//!
//! Holds: a subscriber sees numbers that only grow; what lies between two of them and was not given is told as a gap.

use serde::{Deserialize, Serialize};

use crate::frame::Incoming;

/// A place in a topic: everything up to `seq` is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Which life of the topic: another one if its numbers began anew.
    pub epoch: u64,
    /// The number of a message in it, from 1; 0 is before the first.
    pub seq: u64,
}

/// Messages of a topic that are missed, and cannot be had any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The epoch in which it goes on.
    pub epoch: u64,
    /// The first message that is missed; `None` if the topic began anew, and nobody knows how many are.
    pub from: Option<u64>,
    /// The last message that is missed.
    pub to: u64,
}

/// What a subscriber is given.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Message(Incoming, Position),
    Gap(Gap),
    /// The hub ended the subscription; why.
    End(String),
}

/// How far a subscription is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is to be asked for as soon as that can be.
    Wanted,
    /// It was asked for. What comes before the answer is of the subscription before it, and will be sent again.
    Asked,
    Live,
    /// The subscriber did not keep up: what comes is dropped, and asked for again once there is room.
    Behind,
}

#[derive(Debug)]
pub(super) struct Topic<W> {
    pub(super) name: String,
    /// The last that was given, or from where on it was asked for.
    pub(super) position: Option<Position>,
    /// Where it was when it was last asked for: what is missed right after that cannot be had.
    asked_from: Option<Position>,
    pub(super) state: State,
    /// The hub's name for the subscription.
    pub(super) id: Option<String>,
    /// Who waits for the first answer.
    pub(super) waiter: Option<W>,
}

/// What is given, and where the subscriber was before.
pub(super) type Given = (Item, Option<Position>);

impl<W> Topic<W> {
    pub(super) fn new(name: String, after: Option<Position>, waiter: W) -> Self {
        Self { name, position: after, asked_from: after, state: State::Wanted, id: None, waiter: Some(waiter) }
    }

    /// It is asked for, from where it is.
    pub(super) fn ask(&mut self) -> Option<Position> {
        (self.state, self.asked_from) = (State::Asked, self.position);
        self.position
    }

    /// The hub has answered. A run's log comes from its beginning, anything else from now on.
    pub(super) fn subscribed(&mut self, now: Position) {
        self.state = State::Live;
        if self.position.is_none() && !self.name.starts_with("run/") {
            (self.position, self.asked_from) = (Some(now), Some(now));
        }
    }

    /// A message of the topic: nothing if it is not for now or came before, a gap first if some are missed.
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

    /// Some are missed. They are asked for once; if they are missed again, they are gone, and the subscriber is told.
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

    /// There was no room for what was given when the subscriber was here.
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

    /// What a message of that number leads to: numbers as they are, gaps as texts.
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
        assert!(come(&mut topic, 1, 5).is_empty(), "it was there before the subscription");
        assert_eq!(come(&mut topic, 1, 6), ["1:6"]);
        assert_eq!(come(&mut topic, 1, 7), ["1:7"]);
        assert!(come(&mut topic, 1, 7).is_empty());
        topic.ask();
        assert!(come(&mut topic, 1, 8).is_empty(), "it comes again after the answer");
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
            "the hub has it no more"
        );
        assert_eq!(come(&mut topic, 1, 5), ["1:5"]);
        assert!(topic.gap(Gap { epoch: 1, from: Some(6), to: 8 }).is_none());
        assert_eq!(topic.state, State::Wanted, "a slow reader asks again");
        assert!(come(&mut topic, 1, 9).is_empty(), "until then nothing is given");
        assert_eq!(topic.ask(), Some(at(1, 5)));
        topic.subscribed(at(1, 9));
        assert_eq!(come(&mut topic, 1, 6), ["1:6"]);
        assert!(come(&mut topic, 1, 9).is_empty(), "a hole that nobody told of is a gap too");
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
