//! Senders: which of them a wait accepts signals from, and who owns an idempotency key.
//!
//! Holds: a sender cannot use up the idempotency key of another. Keys of authenticated senders are separate from keys of
//! senders that only claim the name.

use wigwag_core::{Definition, Run, SenderMisfit, sha256_hex};

use super::message::Message;
use crate::error::{Error, ErrorKind, Result};

impl Message {
    /// Why no open wait takes signals of this sender, if none does; while none is open the definition counts.
    fn sender_misfit(&self, run: &Run, definition: Option<&Definition>) -> Option<SenderMisfit> {
        let open = self.waits(run);
        if !open.is_empty() {
            // `None` is the minimum: one accepting wait is enough.
            return open.iter().map(|(_, _, wait)| wait.rejects_sender(&self.source)).min().flatten();
        }
        let declared =
            definition.into_iter().flat_map(|definition| &definition.steps).filter_map(|node| node.signal.as_ref());
        let declared = declared.filter(|signal| signal.name == self.name);
        declared.map(|signal| SenderMisfit::of(signal.quorum, signal.authenticated, &self.source)).min().flatten()
    }

    /// Rejects an unauthenticated sender if a wait demands an authenticated one.
    pub(super) fn check_sender(&self, run: &Run, definition: Option<&Definition>) -> Result<()> {
        match self.sender_misfit(run, definition) {
            Some(misfit @ SenderMisfit::Unauthenticated) => {
                let what =
                    format!("run `{}` rejects this signal at its wait for `{}`: {misfit}", run.run.id, self.name);
                Err(Error::new(ErrorKind::RejectedSender, what)
                    .hint("send it over HTTP or the hub with a token, or use a signed link"))
            }
            Some(SenderMisfit::Nameless) | None => Ok(()),
        }
    }

    /// Warns that a signal without a sender does not count towards a quorum. It is kept: a plain wait may
    /// consume it later.
    pub(super) fn sender_warning(&self, run: &Run, definition: Option<&Definition>) -> Option<String> {
        let misfit = self.sender_misfit(run, definition).filter(|misfit| *misfit == SenderMisfit::Nameless)?;
        Some(format!("{misfit}; name it with `by`, or use a token"))
    }

    /// Hash of an idempotency key of this sender.
    pub(super) fn hash_of_key(&self, key: &str) -> String {
        match (&self.source.by, self.source.authenticated) {
            (None, _) => sha256_hex(&[key]),
            (Some(by), false) => sha256_hex(&[key, by]),
            (Some(by), true) => sha256_hex(&[key, by, "authenticated"]),
        }
    }
}
