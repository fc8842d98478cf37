//! Plans the sweep of the store: expired messages, old dedup markers and unused addresses.
//!
//! Holds: an address is forgotten only if its queue is empty and its last registration is older than
//! [`address_retention`](Settings::address_retention). The shell first stores its version in
//! [`FLOOR`](crate::key::FLOOR), so that the next registration of it, or of any new address, gets a higher one.

use crate::key::{Delivered, Waiting};
use crate::settings::{Millis, Settings};

/// Last key segment of an address's record.
pub const ACTOR: &str = "actor.json";

/// Added to the version of a forgotten address, which may be registered while it is being forgotten.
pub const VERSIONS_AHEAD: u64 = 1_000;

/// The plan for one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Ends of keys to delete.
    pub delete: Vec<String>,
    /// Messages have expired: [`Hub::sweep`](crate::Hub::sweep) notifies their senders and removes them.
    pub has_expired: bool,
    /// The address can be forgotten, unless it is registered now.
    pub is_unused: bool,
}

/// Plans the sweep of one address; `stored` are the ends of all keys under its prefix, and when each was written.
#[must_use]
pub fn plan<'a>(stored: impl IntoIterator<Item = (&'a str, Millis)>, now: Millis, settings: &Settings) -> Plan {
    let (mut plan, mut is_empty, mut registered_at) = (Plan::default(), true, None);
    if deliberate_bug!(NeverSwept) {
        return plan;
    }
    let mut expired = Vec::new();
    for (segment, written) in stored {
        if segment == ACTOR {
            registered_at = Some(written);
        } else if let Some(waiting) = Waiting::parse(segment) {
            is_empty = false;
            if waiting.expires < now {
                expired.push(segment.to_owned());
            }
        } else if let Some(delivered) = Delivered::parse(segment) {
            if delivered.until < now {
                plan.delete.push(segment.to_owned());
            } else {
                is_empty = false;
            }
        }
    }
    match registered_at {
        Some(at) => {
            plan.has_expired = !expired.is_empty();
            plan.is_unused = is_empty && at.saturating_add(settings.address_retention) < now;
        }
        // Without a record, no actor can register this address again and receive these messages.
        None => plan.delete.append(&mut expired),
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::message_hash;

    #[test]
    fn expired_objects_are_deleted_and_the_rest_stays() {
        let settings = Settings { address_retention: 1_000, ..Settings::default() };
        let hash = message_hash("@(a)", "1");
        let waiting = |expires| Waiting { received: 5, expires, hash: hash.clone() }.segment();
        let seen = |until| Delivered { until, received: 5, hash: hash.clone() }.segment();
        let run = |stored: &[(&str, Millis)], now| plan(stored.iter().copied(), now, &settings);
        let (old, new) = (waiting(100), waiting(9_000));
        let (gone, known) = (seen(100), seen(9_000));
        assert_eq!(run(&[(ACTOR, 0)], 1_000), Plan::default(), "used a moment ago");
        assert_eq!(run(&[(ACTOR, 0)], 1_001), Plan { is_unused: true, ..Plan::default() });
        assert_eq!(run(&[(ACTOR, 0), (&new, 0)], 5_000), Plan::default(), "its actor may still register");
        assert_eq!(run(&[(ACTOR, 0), (&known, 0)], 5_000), Plan::default(), "a repeat may arrive");
        assert_eq!(run(&[(ACTOR, 0), (&old, 0)], 5_000), Plan { has_expired: true, ..Plan::default() });
        let delete = vec![gone.clone()];
        assert_eq!(run(&[(ACTOR, 0), (&gone, 0)], 5_000), Plan { delete, is_unused: true, ..Plan::default() });
        let delete = vec![gone.clone(), old.clone()];
        assert_eq!(run(&[(&gone, 0), (&new, 0), (&old, 0)], 5_000), Plan { delete, ..Plan::default() });
        assert_eq!(run(&[("foreign.txt", 0)], 5_000), Plan::default(), "foreign objects are kept");
    }
}
