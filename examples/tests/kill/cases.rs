//! The cases: a run each, what clients do to it, and how it is to end.
//!
//! A case follows from its lane and its number alone, so that whoever comes after a client that was killed knows what
//! that one was about to do.

use serde::Serialize;
use serde_json::{Value, json};
use wigwag::Status;
use wigwag_examples::order_fulfilment::{self, Order};
use wigwag_examples::{fan_out, onboarding};

use super::load::{self, Family};
use super::waits;

/// What a case is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A graph with steps side by side.
    Order,
    /// The same, which fails at the end and is undone.
    Undeliverable,
    /// A function that sleeps.
    Onboarding,
    /// Steps side by side in a function.
    Inline,
    /// Tasks.
    Tasks,
    /// Children and tasks.
    Family,
    /// A loop of waits that takes as many signals as are sent.
    Inbox,
    /// The same with a signal too few, and one that it never waits for.
    Starved,
    /// Somebody says yes.
    Approved,
    /// Somebody says no, and what was done is undone.
    Refused,
    /// Nobody says anything in time.
    Undecided,
    /// Somebody says yes at about the time at which it is too late.
    JustInTime,
    /// Two signals race.
    Either,
    /// Only the newest counts.
    Latest,
    /// A graph that waits; its signal also starts it.
    Review,
    /// A run that waits and is cancelled.
    Cancelled,
}

impl Kind {
    /// Those that no client has to do anything for once they are started.
    pub(crate) const PLAIN: [Self; 6] =
        [Self::Order, Self::Undeliverable, Self::Onboarding, Self::Inline, Self::Tasks, Self::Family];

    /// All of them.
    pub(crate) const ALL: [Self; 16] = [
        Self::Order,
        Self::Inbox,
        Self::Approved,
        Self::Undeliverable,
        Self::Cancelled,
        Self::Either,
        Self::Onboarding,
        Self::Refused,
        Self::Latest,
        Self::Inline,
        Self::Undecided,
        Self::Review,
        Self::Tasks,
        Self::JustInTime,
        Self::Starved,
        Self::Family,
    ];

    /// Those that a slow server bears.
    pub(crate) const LIGHT: [Self; 13] = [
        Self::Inbox,
        Self::Order,
        Self::Approved,
        Self::Cancelled,
        Self::Either,
        Self::Undeliverable,
        Self::Refused,
        Self::Latest,
        Self::Undecided,
        Self::Review,
        Self::Onboarding,
        Self::JustInTime,
        Self::Starved,
    ];
}

/// Something that a client does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deed {
    Start,
    Signal { name: &'static str, payload: Value, keyed: bool },
    Cancel,
}

/// How a run is to end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// With this status and, if it is told, this result as JSON.
    So(Status, Option<String>),
    /// Well or not, whichever came first.
    Either,
    /// Not yet: it waits for a signal that nobody has sent.
    Waits { name: &'static str },
}

/// A run and what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) of: &'static str,
    pub(crate) input: Value,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) end: End,
}

/// The case with that number of a lane.
pub(crate) fn case(kinds: &[Kind], lane: &str, number: usize) -> Case {
    let kind = kinds[number % kinds.len()];
    let (of, input, end) = what(kind);
    let id = format!("{kind:?}-{lane}-{number}");
    Case { id, kind, of, input, deeds: deeds(kind, number), end }
}

fn what(kind: Kind) -> (&'static str, Value, End) {
    let gives = |result: &str| End::So(Status::Completed, Some(result.to_owned()));
    let ends = |status| End::So(status, None);
    match kind {
        Kind::Order => (order_fulfilment::NAME, value(&Order::good()), gives(r#""on its way to Utrecht""#)),
        Kind::Undeliverable => (order_fulfilment::NAME, value(&Order::undeliverable()), ends(Status::Failed)),
        Kind::Onboarding => {
            let customer = onboarding::Customer { name: "Ada".into(), day_micros: 8_000 };
            (onboarding::NAME, value(&customer), ends(Status::Completed))
        }
        Kind::Inline => (fan_out::INLINE, json!(8), gives(r#"{"count":8,"sum":140}"#)),
        Kind::Tasks => (fan_out::BY_TASKS, json!(6), gives(r#"{"count":6,"sum":55}"#)),
        Kind::Family => {
            let family = Family { tasks: 10, day_micros: 5_000 };
            (load::FAMILY, value(&family), gives(&load::family_result(family.tasks).to_string()))
        }
        Kind::Inbox => (waits::INBOX, json!({"wants": 4}), ends(Status::Completed)),
        Kind::Starved => (waits::INBOX, json!({"wants": 4}), End::Waits { name: waits::ITEM }),
        Kind::Approved => (waits::APPROVAL, json!({"patience_ms": 600_000}), ends(Status::Completed)),
        Kind::Refused => (waits::APPROVAL, json!({"patience_ms": 600_000}), ends(Status::Failed)),
        Kind::Undecided => (waits::APPROVAL, json!({"patience_ms": 40}), ends(Status::Failed)),
        Kind::JustInTime => (waits::APPROVAL, json!({"patience_ms": 15}), End::Either),
        Kind::Either => (waits::EITHER, json!(null), ends(Status::Completed)),
        Kind::Latest => (waits::LATEST, json!(null), ends(Status::Completed)),
        Kind::Review => (waits::REVIEW, json!({"text": "draft", "verdict": ""}), ends(Status::Completed)),
        Kind::Cancelled => (waits::APPROVAL, json!({"patience_ms": 600_000}), ends(Status::Cancelled)),
    }
}

/// Which of them have a key changes from case to case.
fn deeds(kind: Kind, number: usize) -> Vec<Deed> {
    let keyed = |place: usize| !(number / 3 + place).is_multiple_of(3);
    let signal = |place: usize, name: &'static str, payload: Value| Deed::Signal { name, payload, keyed: keyed(place) };
    let says = |approved: bool| signal(0, waits::DECISION, json!({"approved": approved, "by": "ada"}));
    let mut deeds = match kind {
        Kind::Inbox => (0..4).map(|place| signal(place, waits::ITEM, json!(place))).collect(),
        // These have keys, so that none of them arrives twice and is the one that is missing.
        Kind::Starved => {
            let sent = |place: usize| Deed::Signal { name: waits::ITEM, payload: json!(place), keyed: true };
            let unheard = Deed::Signal { name: waits::UNHEARD, payload: json!("hello"), keyed: keyed(0) };
            (0..3).map(sent).chain([unheard]).collect()
        }
        Kind::Approved | Kind::JustInTime => vec![says(true)],
        Kind::Refused => vec![says(false)],
        Kind::Either => vec![signal(0, waits::LEFT, json!("left")), signal(1, waits::RIGHT, json!("right"))],
        Kind::Latest => (0..3).map(|place| signal(place, waits::PRICE, json!(place))).collect(),
        // The signal starts the run.
        Kind::Review => return vec![signal(0, waits::VERDICT, json!("good"))],
        Kind::Cancelled => vec![Deed::Cancel],
        _ => Vec::new(),
    };
    deeds.insert(0, Deed::Start);
    deeds
}

fn value<T: Serialize>(what: &T) -> Value {
    serde_json::to_value(what).unwrap()
}
