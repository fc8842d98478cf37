//! Worker and client processes are killed under load, on one machine and on buckets; disks fill up and buckets become
//! unavailable. No acknowledged request is lost, no recorded step runs again, and no stale objects are left.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stderr, reason = "the tests print their measurements")]
#![expect(clippy::disallowed_methods, reason = "it times real processes")]

mod answers;
mod cases;
mod check;
mod clients;
mod crash;
mod disk;
mod faults;
mod fleet;
mod ledger;
mod load;
mod proxy;
mod s3;
mod server;
mod waits;

#[test]
#[ignore = "runs as a child process of the tests that kill"]
fn child_works_until_it_is_killed() {
    fleet::work();
}

/// Returns the amount of work: `cargo xtask test --long` sets `WIGWAG_LONG` for more.
fn how_many(short: usize, long: usize) -> usize {
    if std::env::var_os("WIGWAG_LONG").is_some() { long } else { short }
}
