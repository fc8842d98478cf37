//! Tokens in use: the sessions of each, and its rate.
//!
//! Holds: a token has one rate for all its sessions, and no new one by reconnecting: the rate is forgotten only when it
//! has fully recovered without a session.

use std::collections::{BTreeMap, VecDeque};

use slotmap::SlotMap;

use crate::TokenId;
use crate::rate::Bucket;
use crate::settings::{Millis, Settings};

/// All tokens with a session, or with a rate that has not recovered yet.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    by_name: BTreeMap<String, TokenId>,
    uses: SlotMap<TokenId, TokenUse>,
    /// Tokens without sessions, with the time when the last one ended.
    idle: VecDeque<(Millis, TokenId)>,
}

#[derive(Debug)]
struct TokenUse {
    name: String,
    sessions: usize,
    bucket: Option<Bucket>,
    idle_since: Option<Millis>,
}

impl Tokens {
    /// Counts a session of a token; returns `None` if it has too many.
    pub(super) fn join(&mut self, name: &str, settings: &Settings, now: Millis) -> Option<TokenId> {
        let id = match self.by_name.get(name) {
            Some(id) => *id,
            None => {
                let bucket = settings.token_rate.map(|rate| Bucket::full(rate, now));
                let id = self.uses.insert(TokenUse { name: name.to_owned(), sessions: 0, bucket, idle_since: None });
                self.by_name.insert(name.to_owned(), id);
                id
            }
        };
        let used = &mut self.uses[id];
        if used.sessions >= settings.sessions_per_token_max {
            return None;
        }
        used.sessions += 1;
        used.idle_since = None;
        Some(id)
    }

    /// Ends a session of a token.
    pub(super) fn leave(&mut self, id: TokenId, now: Millis) {
        let Some(used) = self.uses.get_mut(id) else { return };
        used.sessions = used.sessions.saturating_sub(1);
        if used.sessions == 0 {
            used.idle_since = Some(now);
            self.idle.push_back((now, id));
        }
    }

    /// Charges the rate of a token, or returns the milliseconds to wait.
    pub(super) fn charge(&mut self, id: TokenId, settings: &Settings, cost: u64, now: Millis) -> Result<(), Millis> {
        let bucket = self.uses.get_mut(id).and_then(|used| used.bucket.as_mut());
        match (bucket, settings.token_rate) {
            (Some(bucket), Some(rate)) => bucket.take(rate, cost, now),
            _ => Ok(()),
        }
    }

    /// Forgets a slice of the tokens without sessions whose rate has recovered.
    pub(super) fn forget_idle(&mut self, settings: &Settings, now: Millis) {
        let recovers = settings.token_rate.map_or(0, |rate| rate.full_after());
        for _ in 0..settings.work_slice {
            let Some((since, id)) = self.idle.pop_front_if(|(since, _)| since.saturating_add(recovers) <= now) else {
                return;
            };
            // A token that was used since then is listed again.
            let is_idle = self.uses.get(id).is_some_and(|used| used.idle_since == Some(since));
            if let Some(used) = is_idle.then(|| self.uses.remove(id)).flatten() {
                self.by_name.remove(&used.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Rate;

    fn settings() -> Settings {
        let token_rate = Some(Rate { per_second: 10, burst: 20 });
        Settings { token_rate, sessions_per_token_max: 2, ..Settings::default() }
    }

    #[test]
    fn sessions_of_a_token_share_its_rate_and_reconnecting_gives_no_new_one() {
        let (settings, mut tokens) = (settings(), Tokens::default());
        let first = tokens.join("ada", &settings, 0).unwrap();
        let second = tokens.join("ada", &settings, 0).unwrap();
        assert_eq!((first, tokens.join("ada", &settings, 0)), (second, None));
        let other = tokens.join("eve", &settings, 0).unwrap();
        assert_eq!(tokens.charge(first, &settings, 20, 0), Ok(()));
        assert_eq!(tokens.charge(second, &settings, 1, 0), Err(100));
        assert_eq!(tokens.charge(other, &settings, 1, 0), Ok(()));
        tokens.leave(first, 0);
        tokens.leave(second, 0);
        tokens.forget_idle(&settings, 1_999);
        let again = tokens.join("ada", &settings, 0).unwrap();
        assert_eq!(tokens.charge(again, &settings, 1, 0), Err(100), "its rate has not recovered");
    }

    #[test]
    fn a_token_is_forgotten_once_its_rate_has_recovered_without_a_session() {
        let (settings, mut tokens) = (settings(), Tokens::default());
        let id = tokens.join("ada", &settings, 0).unwrap();
        tokens.leave(id, 0);
        tokens.join("ada", &settings, 1_000);
        tokens.forget_idle(&settings, 2_000);
        assert_eq!(tokens.uses.len(), 1, "it has a session");
        tokens.leave(id, 2_500);
        tokens.forget_idle(&settings, 4_499);
        assert_eq!(tokens.uses.len(), 1);
        tokens.forget_idle(&settings, 4_500);
        assert_eq!((tokens.uses.len(), tokens.by_name.len(), tokens.idle.len()), (0, 0, 0));
    }
}
