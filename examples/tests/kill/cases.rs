//! The cases: each is one run, the clients' requests to it, and its expected end.
//!
//! A case is determined by its lane and number alone, so that the successor of a killed client knows its requests.

use serde::Serialize;
use serde_json::{Value, json};
use wigwag::Status;
use wigwag_examples::order_fulfilment::{self, Order};
use wigwag_examples::{fan_out, onboarding};

use super::load::{self, Family};
use super::waits;

/// The kind of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A graph with concurrent steps.
    Order,
    /// The same graph with a failure at the end, which compensates it.
    Undeliverable,
    /// A function that sleeps.
    Onboarding,
    /// Concurrent steps in a function.
    Inline,
    /// A fan-out to tasks.
    Tasks,
    /// A run with children and tasks.
    Family,
    /// A loop of waits that consumes all signals sent.
    Inbox,
    /// Like `Inbox`, with one signal too few and another that no wait names.
    Starved,
    /// The order is approved.
    Approved,
    /// The order is rejected and compensated.
    Refused,
    /// The decision never arrives, and the wait times out.
    Undecided,
    /// The order is approved at about the deadline.
    JustInTime,
    /// Two signals race for one wait.
    Either,
    /// A wait that consumes only the newest signal.
    Latest,
    /// A graph with a wait, started by its signal.
    Review,
    /// A waiting run that is cancelled.
    Cancelled,
}

impl Kind {
    /// Kinds that need no request after the start.
    pub(crate) const PLAIN: [Self; 6] =
        [Self::Order, Self::Undeliverable, Self::Onboarding, Self::Inline, Self::Tasks, Self::Family];

    /// All kinds of cases.
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

    /// Kinds that a slow server can handle.
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

/// A request of a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deed {
    Start,
    Signal { name: &'static str, payload: Value, keyed: bool },
    Cancel,
}

/// The expected end of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// Ends with this status and, if given, this result as JSON.
    So(Status, Option<String>),
    /// Ends with either of two outcomes, by a race.
    Either,
    /// Keeps waiting for a signal that no client sends.
    Waits { name: &'static str },
}

/// A run and the requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) of: &'static str,
    pub(crate) input: Value,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) end: End,
}

/// Returns the case with this number of a lane.
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

/// Returns a case's requests. Which of them have an idempotency key varies with its number.
fn deeds(kind: Kind, number: usize) -> Vec<Deed> {
    let keyed = |place: usize| !(number / 3 + place).is_multiple_of(3);
    let signal = |place: usize, name: &'static str, payload: Value| Deed::Signal { name, payload, keyed: keyed(place) };
    let says = |approved: bool| signal(0, waits::DECISION, json!({"approved": approved, "by": "ada"}));
    let mut deeds = match kind {
        Kind::Inbox => (0..4).map(|place| signal(place, waits::ITEM, json!(place))).collect(),
        // All have keys: a duplicate of one would replace the missing signal.
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
