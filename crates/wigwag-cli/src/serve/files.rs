//! The limit on open files and sockets.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for all connections of a server.
const WANTED: u64 = 1_048_576;

/// Raises the soft limit on open files to the hard limit: the usual 1,024 is less than the connection limit.
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => tracing::debug!(?current, wanted, "raised the limit on open files"),
        Err(error) => tracing::warn!(%error, ?current, wanted, "cannot raise the limit on open files"),
    }
}
