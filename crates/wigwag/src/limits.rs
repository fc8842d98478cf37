//! Limits, intervals and delays of the engine, each with its reason. Limits of what a run may hold are in `wigwag_core::limits`;
//! settings that users may change are in [`Settings`](crate::Settings).

use std::time::Duration;

pub(crate) use wigwag_core::limits::UNCERTAINTY_MAX as CLAIM_UNCERTAINTY_MAX;

// The log of a run.

/// Objects that are written concurrently before an entry: this number needs two round trips for
/// `ENTRY_PUTS_MAX` of them.
pub(crate) const PUTS_CONCURRENT: usize = 64;

/// First delay before the retry of a write whose outcome is unknown or that the store rejected temporarily; it doubles.
pub(crate) const COMMIT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Longest delay between two attempts of a write: short compared with a lease.
pub(crate) const COMMIT_RETRY_DELAY_MAX: Duration = Duration::from_secs(2);

/// Delay at which a write without a lease is abandoned: the caller may retry.
pub(crate) const UNCLAIMED_RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// Age up to which a reading of the store's time is used again where a second does not matter.
pub(crate) const RECENT_NOW_AGE_MAX: Duration = Duration::from_secs(1);

// Limits of the dispatcher.

/// Factor by which the due index is polled less often while other processes notify this one: notifications may be lost.
pub(crate) const FLEET_POLL_STRETCH: u32 = 4;

/// Interval at which the processes of this machine are checked: a dead worker's runs are taken over this soon.
pub(crate) const MEMBERSHIP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Workflows and queues that an announcement names: it is written several times a minute.
pub(crate) const ANNOUNCED_NAMES_MAX: usize = 20;

/// Added to the lapse of announcements, whose times are read from the store's clock in whole seconds.
pub(crate) const ANNOUNCEMENT_SLACK: Duration = Duration::from_secs(1);

/// Least age of a wake-up after which a scan may start: no put is so late that the scan would miss it.
pub(crate) const SCAN_START_AGE_MIN: Duration = Duration::from_secs(120);

/// Time for which scans ignore a wake-up that was handed to the turn of its run, which deletes it after its next check. Until
/// then scans must not count it as new, or they would follow each other without a pause.
pub(crate) const HANDED_OVER_FOR: Duration = Duration::from_secs(5);

/// Delay before a scan that failed is repeated.
pub(crate) const SCAN_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Added to the time at which a skipped wake-up is scanned again, so that it counts as due by then.
pub(crate) const BUCKET_TIME_SLACK: Duration = Duration::from_millis(1);

/// Finished checks that wait for the dispatcher; beyond that, checks wait.
pub(crate) const FINISHED_CHECKS_MAX: usize = 1_024;

/// Notifications that are handled before the dispatcher starts checks.
pub(crate) const CHANGES_TAKEN_MAX: usize = 1_000;

/// Delay before a damaged run is checked again: a person has to repair it first.
pub(crate) const DAMAGED_RETRY_DELAY: Duration = Duration::from_secs(300);

/// Delay before a run is checked again that could not be read.
pub(crate) const FAILED_CHECK_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Delay before a check while the store's time is too uncertain to judge leases.
pub(crate) const UNCERTAIN_TIME_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Delay before a run is checked again that another worker claimed at the same moment.
pub(crate) const LOST_CLAIM_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Delay before the retry of a run that could not be stopped although its next entry can never be recorded.
pub(crate) const UNRECORDABLE_RETRY_DELAY: Duration = Duration::from_secs(600);

/// Restarts and migrations that are folded into one claim: all but one of them only record why they had no effect.
pub(crate) const EARLY_CONTROLS_MAX: usize = 100;

/// Age up to which a wake-up without a run belongs to a start that is under way.
pub(crate) const STARTING_RUN_AGE_MAX: Duration = Duration::from_secs(10);

/// Delay before the next check of a run whose start is under way.
pub(crate) const STARTING_RUN_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Age up to which a notified wake-up may precede entry 1 of its run: the check then reads the run again until it exists.
pub(crate) const ABOUT_TO_START_AGE_MAX: Duration = Duration::from_millis(250);

/// First delay before such a run is read again; each further delay is twice as long.
pub(crate) const ABOUT_TO_START_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Control objects that are read at the same time.
pub(crate) const CONTROLS_CONCURRENT: usize = 32;

/// Delay before the next check of a run whose starter probably died.
pub(crate) const UNSTARTED_RUN_RETRY_DELAY: Duration = Duration::from_secs(60);

// Limits of signals.

/// Signals of one `Client::signal_many` that are sent concurrently.
pub(crate) const SIGNALS_CONCURRENT: usize = 64;

/// Attempts to read a run whose reads were slow.
pub(crate) const SLOW_READ_TRIES_MAX: usize = 3;

/// Characters of a schema that an error shows.
pub(crate) const SHOWN_SCHEMA_CHARS_MAX: usize = 300;

/// Maximum lead of this process's last stamp over the store's time at which it still binds the next: clocks
/// differ by less.
pub(crate) const STAMP_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Steps of a run up to which inline delivery is attempted: the code of a longer run takes long to reach its wait
/// again, and its sender gets its response first.
pub(crate) const INLINE_POINTS_MAX: usize = 256;

/// Recently consumed signals of an inbox up to which inline delivery is attempted: a search among more takes long.
pub(crate) const INLINE_RECENT_SIGNALS_MAX: usize = 64;

/// Backoff of inline delivery for a workflow whose code did not consume its signal: it is slow, or waits elsewhere.
pub(crate) const INLINE_BACKOFF: Duration = Duration::from_secs(60);

/// First poll interval of a sender that waits until its signal is consumed, on a store without notifications; it grows by half.
pub(crate) const CONSUMED_POLL_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Longest poll interval of a sender that waits until its signal is consumed.
pub(crate) const CONSUMED_POLL_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Poll interval beside notifications, which may get lost.
pub(crate) const NOTIFIED_POLL_INTERVAL: Duration = Duration::from_secs(5);

// `wigwag doctor`.

/// Runs that are read concurrently.
pub(crate) const AUDIT_READS_CONCURRENT: usize = 8;

/// Age below which a change is not judged: a worker may be about to replace wake-ups and index objects.
pub(crate) const AUDIT_UNDER_WAY_AGE: Duration = Duration::from_secs(60);

/// Claims in a row that record nothing else, from which a run counts as stuck. Two workers may die by chance.
pub(crate) const CLAIMS_IN_VAIN_MAX: usize = 3;

// Limits of caches.

/// Compiled schemas that are cached; a process with more compiles some again.
pub(crate) const SCHEMAS_CACHED_MAX: usize = 256;

/// Signals in the cache of mismatches before it is cleared: some megabytes.
pub(crate) const MISFITS_CACHED_MAX: usize = 50_000;

// Limits of resume links.

/// Least length of a link secret: a shorter one could be guessed.
pub(crate) const LINK_SECRET_BYTES_MIN: usize = 16;

/// Bytes of a link's id.
pub(crate) const LINK_ID_BYTES: usize = 16;

// Limits of services.

/// How long a tombstone keeps an id from being reused: longer than any writer can stall.
pub(crate) const TOMBSTONE_AGE: Duration = Duration::from_secs(24 * 3_600);

/// Objects of a removed run that one batch deletes: a batch holds the writer of an embedded store up for some milliseconds.
pub(crate) const PRUNE_DELETES_MAX: usize = 500;

/// Runs that are removed concurrently: they share commits on an embedded store, and more would delay other writers.
pub(crate) const PRUNED_AT_ONCE: usize = 256;

/// Interval at which retention lists the runs that ended: retention is set in days.
pub(crate) const RETENTION_INTERVAL: Duration = Duration::from_secs(3_600);

/// Pause between two pages of the background sweep, which is slow on purpose.
pub(crate) const SWEEP_PAGE_PAUSE: Duration = Duration::from_secs(1);

/// Interval of the background sweep: it only repairs what a crash at a rare moment left.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(24 * 3_600);

/// Age below which a change of a run means that a worker drives it.
pub(crate) const SWEEP_MOVING_AGE: Duration = Duration::from_secs(60);

// Clients that read.

/// Entries that a follower returns at a time.
pub(crate) const FOLLOW_PAGE_ENTRIES: u64 = 64;

/// Entries that a follower reads concurrently, once it has found that there are any.
pub(crate) const FOLLOW_READS_AT_ONCE_MAX: u64 = 16;

/// Longest poll interval of a follower that is not notified of the writes of others: an open page costs a request in 15 s.
pub(crate) const FOLLOW_POLL_INTERVAL_MAX: Duration = Duration::from_secs(15);

/// Poll interval of waiters and followers that are notified through servers, where a notification may get lost unnoticed.
pub(crate) const FLEET_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// How long a waiter or follower tolerates an outage of the store: long waits must not fail for a short one.
pub(crate) const OUTAGE_PATIENCE: Duration = Duration::from_secs(600);

/// First interval at which a large result is read again during an outage; it doubles.
pub(crate) const OUTAGE_POLL_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Longest interval at which a large result is read again during an outage.
pub(crate) const OUTAGE_POLL_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Rows of the list of waits that are read concurrently.
pub(crate) const WAITING_ROWS_AT_ONCE: usize = 16;

/// Poll interval of a follower, in case a notification gets lost.
pub(crate) const FOLLOW_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// First poll interval of a caller that waits for a result and is notified of the end.
pub(crate) const RESULT_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Longest poll interval of such a caller: ten thousand that wait for days cause few requests.
pub(crate) const RESULT_POLL_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Attempts to create the first entry of a run while the outcome is unknown and the entry absent.
pub(crate) const START_TRIES_MAX: usize = 4;

/// Most runs that one page returns.
pub(crate) const LIST_PAGE_RUNS_MAX: usize = 1_000;

/// LIST requests of one page: 64,000 keys.
pub(crate) const LIST_REQUESTS_MAX: usize = 64;

/// Runs that one page reads: enough to fill the largest page if every second run fits the filter.
pub(crate) const LIST_READS_MAX: usize = 2 * LIST_PAGE_RUNS_MAX;

/// Runs that are read concurrently.
pub(crate) const LIST_READS_CONCURRENT: usize = 16;

/// Width of the first window: one request for a store with up to 16 ends a second, few for a busier one.
pub(crate) const LIST_WINDOW_MICROS_FIRST: u64 = 60 * 1_000_000;

/// Factor by which windows grow and shrink.
pub(crate) const LIST_WINDOW_FACTOR: u64 = 4;

/// Known names that a warning lists.
pub(crate) const SHOWN_NAMES_MAX: usize = 10;

/// LIST requests that collect the known workflows.
pub(crate) const NAME_LISTS_MAX: usize = 32;

/// Children of a run that `Client::diagnose` reads.
pub(crate) const SHOWN_CHILDREN_MAX: usize = 16;
