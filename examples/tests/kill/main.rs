//! Worker processes are killed under load, on one machine and on buckets. Every run ends as it should, no recorded step
//! runs again, and nothing is left lying about.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stderr, reason = "what was measured is said aloud")]
#![expect(clippy::disallowed_methods, reason = "it times real processes")]

mod check;
mod crash;
mod fleet;
mod ledger;
mod load;
mod s3;

#[test]
#[ignore = "runs as a child process of the tests that kill"]
fn child_works_until_it_is_killed() {
    fleet::work();
}
