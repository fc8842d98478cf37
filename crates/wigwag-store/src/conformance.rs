//! The suite that every store and every layer passes.
//!
//! Each case is a sentence that must be true. It uses a separate prefix, so that all cases may run on one bucket,
//! even concurrently. A bug found in one store becomes a case for all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt as _, StreamExt as _};

use crate::limits::{CHANGES_WAITING_MAX, KEY_BYTES_MAX, SEGMENT_BYTES_MAX};
use crate::{Batch, Change, Clear, Error, ErrorKind, Notifications, Prefix, STAMP, Stamp, Store};

/// How a server may fall short of byte order and still serve: see [`Quirks::directory_order`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// Lists in directory order, so that keys are lost or misplaced where one segment is the start of another.
    pub directory_order: bool,
    /// Answers lists with errors while it is written to; the case that does both at once is left out.
    pub lists_fail_under_writes: bool,
    /// Loses requests, so that an update that is refused may be answered `Unknown`: an earlier attempt at it may
    /// have landed and been overwritten. The cases that want `Changed` are left out.
    pub loses_requests: bool,
    /// Notifications arrive some time after the write; the case that counts waiting ones is skipped.
    pub nudges_lag: bool,
}

/// A statement that every store must satisfy.
#[derive(Clone, Copy)]
pub struct Case {
    /// The sentence that must be true.
    pub name: &'static str,
    run: fn(Corner) -> BoxFuture<'static, ()>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A corner of the store for one case.
type Corner = Arc<dyn Store>;

macro_rules! cases {
    ($($name:ident),+ $(,)?) => { &[$(Case { name: stringify!($name), run: |store| $name(store).boxed() }),+] };
}

/// All conformance cases.
pub const CASES: &[Case] = cases![
    an_absent_object_reads_as_none,
    what_was_put_reads_back_whatever_its_size,
    a_put_replaces_what_was_there,
    a_create_is_refused_where_the_key_exists_and_changes_nothing,
    one_of_64_racing_creators_wins,
    an_update_at_the_present_version_lands_and_at_an_old_one_is_refused,
    an_update_of_an_absent_key_is_refused,
    one_of_16_racing_updates_wins,
    a_batch_lands_whole,
    a_refused_batch_leaves_nothing_or_what_stood_before_the_refusal,
    a_delete_removes_and_deleting_nothing_is_no_error,
    a_list_is_in_order_and_its_pages_are_whole,
    a_list_starts_after_any_key_also_one_that_is_not_there,
    a_list_keeps_to_its_prefix,
    keys_list_in_byte_order,
    unicode_and_long_keys_are_kept,
    a_read_and_a_list_see_every_acknowledged_write,
    time_never_goes_back,
    stamps_fill_the_key_and_follow_acknowledgements,
    a_stamp_is_no_less_than_asked_for_and_not_far_ahead,
    a_batch_that_wants_a_stretch_clear_lands_only_if_it_is,
    objects_are_dated_by_the_stores_clock,
    followers_are_nudged_under_their_prefix_only,
    a_follower_that_falls_behind_is_told_so,
    bad_keys_and_batches_are_refused_and_change_nothing,
];

/// Runs every case on the store and panics with the name of the first that fails.
pub async fn check(store: Arc<dyn Store>, quirks: Quirks) {
    for case in CASES {
        check_one(Arc::clone(&store), *case, quirks).await;
    }
}

/// Runs one case in a corner of the store.
pub async fn check_one(store: Arc<dyn Store>, case: Case, quirks: Quirks) {
    let wants_changed = [
        "a_batch_that_wants_a_stretch_clear_lands_only_if_it_is",
        "an_update_at_the_present_version_lands_and_at_an_old_one_is_refused",
        "an_update_of_an_absent_key_is_refused",
    ];
    let skip = (quirks.loses_requests && wants_changed.contains(&case.name))
        || (quirks.directory_order && case.name == "keys_list_in_byte_order")
        || (quirks.nudges_lag && case.name == "a_follower_that_falls_behind_is_told_so")
        || (quirks.lists_fail_under_writes && case.name == "a_read_and_a_list_see_every_acknowledged_write");
    if skip {
        return;
    }
    let corner = format!("conformance/{:016x}", fastrand::u64(..));
    let corner: Corner = Arc::new(Prefix::new(store, &corner).expect("the name of a corner is a key"));
    let outcome = std::panic::AssertUnwindSafe((case.run)(corner)).catch_unwind().await;
    if let Err(panic) = outcome {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        panic!("{}: {}", case.name, said.unwrap_or("panicked"));
    }
}

/// Reports that a test cannot run here, and why.
///
/// Test runners hide what a passing test prints, so it is also added to the file named by `WIGWAG_TEST_SKIPPED`,
/// which `cargo xtask test` shows at its end.
pub fn skip(reason: &str) {
    use std::io::Write as _;
    let line = format!("SKIPPED: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Ok(path) = std::env::var("WIGWAG_TEST_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// The value, or a panic with the error and the caller's location.
#[track_caller]
fn ok<T>(answer: Result<T, Error>) -> T {
    match answer {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}

async fn body(store: &Corner, key: &str) -> Option<Vec<u8>> {
    ok(store.get(key).await).map(|object| object.body.to_vec())
}

async fn put(store: &Corner, key: &str, body: &str) {
    ok(store.write(Batch::new().put(key, body.to_owned())).await);
}

async fn keys(store: &Corner, prefix: &str, after: &str, limit: usize) -> Vec<String> {
    ok(store.list(prefix, after, limit).await).entries.into_iter().map(|entry| entry.key).collect()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = answer.expect_err("it should have been refused");
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

async fn an_absent_object_reads_as_none(store: Corner) {
    assert_eq!(body(&store, "nothing").await, None);
    put(&store, "some/thing", "x").await;
    assert_eq!(body(&store, "some/other").await, None);
}

async fn what_was_put_reads_back_whatever_its_size(store: Corner) {
    for size in [0, 1, 4_095, 4_096, 70_000, 1024 * 1024, 8 * 1024 * 1024] {
        let bytes: Vec<u8> = (0..size).map(|place: usize| (place * 31 % 251) as u8).collect();
        let key = format!("size/{size}");
        ok(store.write(Batch::new().put(&key, bytes.clone())).await);
        assert!(body(&store, &key).await.is_some_and(|stored| stored == bytes), "{size} bytes");
        let page = ok(store.list(&key, "", 1).await);
        assert_eq!(page.entries[0].size, size as u64);
    }
}

async fn a_put_replaces_what_was_there(store: Corner) {
    put(&store, "key", "one").await;
    let first = ok(store.get("key").await).expect("it was put");
    put(&store, "key", "two").await;
    let second = ok(store.get("key").await).expect("it was put");
    assert_eq!(second.body, "two");
    assert_ne!(first.version, second.version);
    assert_eq!(keys(&store, "", "", 10).await, ["key"]);
}

async fn a_create_is_refused_where_the_key_exists_and_changes_nothing(store: Corner) {
    ok(store.write(Batch::new().create("key", "first")).await);
    let error = refused(store.write(Batch::new().create("key", "second")).await, ErrorKind::Exists);
    assert_eq!(error.key(), "key");
    assert_eq!(body(&store, "key").await.as_deref(), Some(&b"first"[..]));
}

async fn one_of_64_racing_creators_wins(store: Corner) {
    for round in 0..8 {
        let key = format!("race/{round}");
        let race = |writer: usize| {
            let (store, key) = (Arc::clone(&store), key.clone());
            async move { store.write(Batch::new().create(key, format!("writer {writer}"))).await }
        };
        let answers = join_all((0..64).map(race)).await;
        let mut winners = Vec::new();
        for (writer, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(_) => winners.push(writer),
                Err(error) => assert!(error.is_exists(), "{error:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: writers {winners:?} all won");
        assert_eq!(body(&store, &key).await, Some(format!("writer {}", winners[0]).into_bytes()));
    }
}

async fn an_update_at_the_present_version_lands_and_at_an_old_one_is_refused(store: Corner) {
    if !store.traits().update_if {
        return;
    }
    let receipt = ok(store.write(Batch::new().create("key", "one")).await);
    let first = ok(store.get("key").await).expect("it was created").version;
    assert_eq!(receipt.versions, std::slice::from_ref(&first), "the receipt and the object agree on the version");
    ok(store.write(Batch::new().update("key", "two", first.clone())).await);
    refused(store.write(Batch::new().update("key", "three", first)).await, ErrorKind::Changed);
    assert_eq!(body(&store, "key").await.as_deref(), Some(&b"two"[..]));
}

async fn an_update_of_an_absent_key_is_refused(store: Corner) {
    if !store.traits().update_if {
        return;
    }
    ok(store.write(Batch::new().put("key", "one")).await);
    let version = ok(store.get("key").await).expect("it was put").version;
    ok(store.write(Batch::new().delete("key")).await);
    refused(store.write(Batch::new().update("key", "two", version)).await, ErrorKind::Changed);
    assert_eq!(body(&store, "key").await, None);
}

async fn one_of_16_racing_updates_wins(store: Corner) {
    if !store.traits().update_if {
        return;
    }
    for round in 0..4 {
        put(&store, "key", &format!("round {round}")).await;
        let version = ok(store.get("key").await).expect("it was put").version;
        let race = |writer: usize| {
            let (store, version) = (Arc::clone(&store), version.clone());
            async move { store.write(Batch::new().update("key", format!("round {round} writer {writer}"), version)).await }
        };
        let answers = join_all((0..16).map(race)).await;
        let won = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(won, 1, "round {round}: {answers:?}");
    }
}

async fn a_batch_lands_whole(store: Corner) {
    put(&store, "old", "x").await;
    let batch = Batch::new().put("hint", "").create("entry", "1").put("state", "s").delete("old").put("more", "m");
    let receipt = ok(store.write(batch).await);
    assert_eq!(receipt.versions.len(), 4, "a version for each put");
    assert_eq!(keys(&store, "", "", 10).await, ["entry", "hint", "more", "state"]);
    assert!(ok(store.write(Batch::new()).await).versions.is_empty(), "an empty batch does nothing");
}

async fn a_refused_batch_leaves_nothing_or_what_stood_before_the_refusal(store: Corner) {
    put(&store, "entry", "mine").await;
    let batch = Batch::new().put("before", "b").create("entry", "theirs").put("after", "a").delete("entry2");
    let error = refused(store.write(batch).await, ErrorKind::Exists);
    assert_eq!(error.key(), "entry");
    let atomic = store.traits().atomic;
    assert_eq!(error.landed(), usize::from(!atomic));
    assert_eq!(body(&store, "before").await.is_some(), !atomic);
    assert_eq!(body(&store, "after").await, None);
    assert_eq!(body(&store, "entry").await.as_deref(), Some(&b"mine"[..]));
}

async fn a_delete_removes_and_deleting_nothing_is_no_error(store: Corner) {
    put(&store, "a", "1").await;
    put(&store, "b", "2").await;
    ok(store.write(Batch::new().delete("a").delete("never").delete("b")).await);
    assert_eq!(body(&store, "a").await, None);
    assert!(keys(&store, "", "", 10).await.is_empty());
    ok(store.write(Batch::new().create("a", "again")).await);
}

async fn a_list_is_in_order_and_its_pages_are_whole(store: Corner) {
    let all: Vec<String> = (0..25).map(|number| format!("due/{number:04}")).collect();
    for key in all.iter().rev() {
        put(&store, key, "x").await;
    }
    for limit in [1, 7, 24, 25, 26, 1_000] {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let after = seen.last().cloned().unwrap_or_default();
            let page = ok(store.list("due/", &after, limit).await);
            assert!(page.entries.len() <= limit);
            seen.extend(page.entries.into_iter().map(|entry| entry.key));
            if !page.more {
                break;
            }
            assert!(seen.len() <= all.len(), "pages without end");
        }
        assert_eq!(seen, all, "by {limit}");
    }
    assert!(ok(store.list("due/", "", 0).await).entries.is_empty());
}

async fn a_list_starts_after_any_key_also_one_that_is_not_there(store: Corner) {
    for key in ["p/1000", "p/2000", "p/3000"] {
        put(&store, key, "x").await;
    }
    for (after, found) in [
        ("", &["p/1000", "p/2000", "p/3000"][..]),
        ("a", &["p/1000", "p/2000", "p/3000"]),
        ("p/0999", &["p/1000", "p/2000", "p/3000"]),
        ("p/1000", &["p/2000", "p/3000"]),
        ("p/1500", &["p/2000", "p/3000"]),
        ("p/3000", &[]),
        ("p/9999", &[]),
        ("z", &[]),
    ] {
        assert_eq!(keys(&store, "p/", after, 10).await, found, "after `{after}`");
    }
}

async fn a_list_keeps_to_its_prefix(store: Corner) {
    for key in ["a/1", "a/2", "b", "ab/1"] {
        put(&store, key, "x").await;
    }
    assert_eq!(keys(&store, "a/", "", 10).await, ["a/1", "a/2"]);
    assert_eq!(keys(&store, "a/1", "", 10).await, ["a/1"], "a prefix may be a whole key");
    assert_eq!(keys(&store, "c", "", 10).await, [""; 0]);
    assert_eq!(keys(&store, "a/", "", 10).await.len(), 2);
    let all: BTreeSet<String> = keys(&store, "", "", 10).await.into_iter().collect();
    assert_eq!(all.len(), 4);
}

async fn keys_list_in_byte_order(store: Corner) {
    let mut all = ["a", "a-b/1", "a/1", "a/1/2", "a0", "a~", "aa", "B", "é", "日", "🦀"].map(str::to_owned);
    for key in &all {
        put(&store, key, "x").await;
    }
    all.sort_unstable();
    assert_eq!(keys(&store, "", "", 100).await, all);
    for (place, key) in all.iter().enumerate() {
        assert_eq!(keys(&store, "", key, 100).await, all[place + 1..], "after `{key}`");
    }
    assert_eq!(keys(&store, "a/", "", 100).await, ["a/1", "a/1/2"]);
    assert_eq!(keys(&store, "a", "", 100).await, ["a", "a-b/1", "a/1", "a/1/2", "a0", "aa", "a~"]);
}

async fn unicode_and_long_keys_are_kept(store: Corner) {
    // A layer around us may have used up some of a key's bytes; the longest segment is what servers stumble over.
    let long = "x".repeat(SEGMENT_BYTES_MAX.min(200));
    let deep = [long.as_str(); 3].join("/");
    assert!(deep.len() < KEY_BYTES_MAX);
    for key in ["naïve/日本/🦀", "with space/+plus&and=is", "per%20cent/%2e%2e", "tilde~colon:comma,/{x}", &deep] {
        put(&store, key, key).await;
        assert_eq!(body(&store, key).await.as_deref(), Some(key.as_bytes()), "{key}");
        assert_eq!(keys(&store, key, "", 2).await, [key]);
    }
}

async fn a_read_and_a_list_see_every_acknowledged_write(store: Corner) {
    let writer = |writer: usize| {
        let store = Arc::clone(&store);
        async move {
            for number in 0..10 {
                let key = format!("w{writer}/{number:04}");
                ok(store.write(Batch::new().create(&key, key.clone())).await);
                assert_eq!(body(&store, &key).await.as_deref(), Some(key.as_bytes()));
                assert_eq!(keys(&store, &format!("w{writer}/"), "", 100).await.len(), number + 1);
            }
        }
    };
    futures_util::stream::iter((0..8).map(writer)).buffer_unordered(8).collect::<Vec<()>>().await;
}

async fn time_never_goes_back(store: Corner) {
    let mut last = Stamp::default();
    for _ in 0..50 {
        let now = ok(store.now().await);
        assert!(now.at > last, "{} after {last}", now.at);
        assert!(now.uncertainty < Duration::from_millis(2_500), "{:?}", now.uncertainty);
        last = now.at;
    }
}

async fn stamps_fill_the_key_and_follow_acknowledgements(store: Corner) {
    let mut last = ok(store.now().await).at;
    for number in 0..20 {
        let key = format!("inbox/{STAMP}_{number}");
        let receipt = ok(store.write(Batch::new().create(&key, number.to_string())).await);
        let stamp = receipt.stamp.expect("a stamp was asked for");
        assert!(stamp > last, "{stamp} after {last}");
        let filled = key.replace(STAMP, &stamp.to_string());
        assert_eq!(body(&store, &filled).await, Some(number.to_string().into_bytes()));
        last = stamp;
    }
    let listed = keys(&store, "inbox/", "", 100).await;
    assert!(listed.iter().enumerate().all(|(number, key)| key.ends_with(&format!("_{number}"))), "{listed:?}");
    assert!(ok(store.now().await).at > last, "time is past every stamp that was given");
    assert_eq!(ok(store.write(Batch::new().put("plain", "x")).await).stamp, None);
}

async fn a_stamp_is_no_less_than_asked_for_and_not_far_ahead(store: Corner) {
    let soon = ok(store.now().await).at.after(Duration::from_secs(5));
    let receipt = ok(store.write(Batch::new().put(format!("s/{STAMP}"), "x").stamp_from(soon)).await);
    assert!(receipt.stamp.is_some_and(|stamp| stamp >= soon));
    let far = soon.after(Duration::from_secs(4_000));
    refused(store.write(Batch::new().put(format!("s/{STAMP}"), "x").stamp_from(far)).await, ErrorKind::Invalid);
    assert_eq!(keys(&store, "s/", "", 10).await.len(), 1);
}

async fn a_batch_that_wants_a_stretch_clear_lands_only_if_it_is(store: Corner) {
    let clear = |after: &str, known: &[&str]| Clear {
        prefix: "in/".into(),
        after: after.into(),
        known: known.iter().map(|key| (*key).to_owned()).collect(),
    };
    let taken = |number: usize, clear: Clear| {
        Batch::new().put(format!("in/{number}"), "x").create(format!("log/{number}"), "x").only_if_clear(clear)
    };
    if !store.traits().atomic {
        refused(store.write(taken(1, clear("", &[]))).await, ErrorKind::Invalid);
        assert!(keys(&store, "", "", 10).await.is_empty(), "nothing of it landed");
        return;
    }
    for (key, beside) in [("im/z", "before"), ("in", "above"), ("io/a", "behind")] {
        ok(store.write(Batch::new().put(key, beside)).await);
    }
    ok(store.write(taken(1, clear("", &[]))).await);
    let in_the_way = refused(store.write(taken(2, clear("", &[]))).await, ErrorKind::Changed);
    assert_eq!(in_the_way.key(), "in/1");
    ok(store.write(taken(2, clear("", &["in/1"]))).await);
    ok(store.write(taken(3, clear("in/2", &[]))).await);
    refused(store.write(taken(4, clear("in/1", &["in/2"]))).await, ErrorKind::Changed);
    refused(store.write(taken(4, clear("in/2", &["in/1", "in/2"]))).await, ErrorKind::Changed);
    ok(store.write(taken(4, clear("in/1", &["in/2", "in/3"])).only_if_clear(clear("in/9", &[]))).await);
    refused(store.write(taken(5, clear("in/9", &[])).only_if_clear(clear("", &[]))).await, ErrorKind::Changed);
    let landed_before = refused(store.write(taken(4, clear("", &[]))).await, ErrorKind::Exists);
    assert_eq!(landed_before.key(), "log/4", "a batch that landed is known by its own put");
    assert_eq!(keys(&store, "in/", "", 10).await, ["in/1", "in/2", "in/3", "in/4"]);
    assert_eq!(keys(&store, "log/", "", 10).await, ["log/1", "log/2", "log/3", "log/4"]);
}

async fn objects_are_dated_by_the_stores_clock(store: Corner) {
    let before = ok(store.now().await);
    put(&store, "key", "x").await;
    let after = ok(store.now().await);
    let object = ok(store.get("key").await).expect("it was put");
    let listed = ok(store.list("key", "", 1).await).entries.remove(0);
    // Some date objects to the second, some only when listing them.
    let slack = Duration::from_secs(1) + before.uncertainty.max(after.uncertainty);
    for modified in [object.modified, listed.modified] {
        assert!(modified >= before.at.before(slack), "{modified} < {}", before.at);
        assert!(modified <= after.at.after(slack), "{modified} > {}", after.at);
    }
}

/// The next notification, or `None` after a timeout.
async fn next(changes: &mut crate::Changes) -> Option<Change> {
    tokio::time::timeout(Duration::from_secs(10), changes.next()).await.ok()
}

async fn followers_are_nudged_under_their_prefix_only(store: Corner) {
    let mut due = store.changes("due/");
    let mut other = store.changes("other/");
    if store.traits().notifications == Notifications::Silent {
        put(&store, "due/1", "x").await;
        assert!(due.next().now_or_never().is_none(), "a silent store says nothing");
        return;
    }
    ok(store.write(Batch::new().put("elsewhere", "x").put("due/1", "x")).await);
    ok(store.write(Batch::new().delete("due/1").put("due/2", "x")).await);
    assert_eq!(next(&mut due).await, Some(Change::Put("due/1".into())));
    assert_eq!(next(&mut due).await, Some(Change::Put("due/2".into())));
    assert!(other.next().now_or_never().is_none());
    drop(due);
    put(&store, "due/3", "x").await;
    put(&store, "other/1", "x").await;
    assert_eq!(next(&mut other).await, Some(Change::Put("other/1".into())));
}

async fn a_follower_that_falls_behind_is_told_so(store: Corner) {
    if store.traits().notifications == Notifications::Silent {
        return;
    }
    let mut changes = store.changes("");
    let many = (0..=CHANGES_WAITING_MAX).fold(Batch::new(), |batch, number| batch.put(format!("k/{number:06}"), "x"));
    ok(store.write(many).await);
    assert_eq!(next(&mut changes).await, Some(Change::Missed));
    put(&store, "k/later", "x").await;
    assert_eq!(next(&mut changes).await, Some(Change::Put("k/later".into())));
}

async fn bad_keys_and_batches_are_refused_and_change_nothing(store: Corner) {
    put(&store, "good", "x").await;
    for key in ["", "/a", "a/", "a//b", "a/../b", ".", "a\0b", "a\nb"] {
        refused(store.write(Batch::new().put("good", "y").put(key, "x")).await, ErrorKind::Invalid);
        refused(store.get(key).await, ErrorKind::Invalid);
    }
    let long = "x".repeat(SEGMENT_BYTES_MAX + 1);
    refused(store.write(Batch::new().put(&long, "x")).await, ErrorKind::Invalid);
    refused(store.write(Batch::new().create("a", "x").create("b", "x")).await, ErrorKind::Invalid);
    refused(store.write(Batch::new().put("a", "x").delete("a")).await, ErrorKind::Invalid);
    assert_eq!(keys(&store, "", "", 10).await, ["good"]);
    assert_eq!(body(&store, "good").await.as_deref(), Some(&b"x"[..]));
}
