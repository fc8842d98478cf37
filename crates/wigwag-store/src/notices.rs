//! Notifications beyond the store itself: writes of this process, and reports of other processes.
//!
//! Notifications replace polling; a slow poll stays as a safety net. [`Announced`] is a layer around a store without
//! notifications: it announces the keys of each successful write to the subscribers of this process, and
//! hands them to a [`Notifier`], which exchanges them with other processes. [`Notices`] is the handle that
//! layer, notifier and server share.
//!
//! Does not hold: that every write is announced. A notification may be lost or repeated, and silence proves nothing.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
#[cfg(any(feature = "_bucket", test))]
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::changes::Followers;
use crate::limits::NOTIFY_FLUSH_MAX;
use crate::{
    Batch, Changes, Clock, Notifications, Now, Object, Operation, Page, Peers, Receipt, Result, STAMP, Store, Traits,
};

/// Carries notifications between the processes that share a store.
///
/// Notifications are best-effort: a transport may drop, repeat, delay and reorder them. It passes received keys to
/// [`Notices::receive`], and each known gap to [`Notices::report_gap`].
#[async_trait]
pub trait Notifier: fmt::Debug + Send + Sync + 'static {
    /// Sends keys of objects that this process put. Returns at once.
    fn send(&self, keys: &[String]);

    /// Called when this process subscribes to something, so that a transport need not connect before.
    fn subscribed(&self);

    /// Whether notifications of other processes arrive at present, as far as is known.
    fn is_connected(&self) -> bool;

    /// Announces a server that relays notifications to its own subscribers. Transports with a broker ignore it.
    fn advertise(&self, server: Advertisement);

    /// Withdraws the advertisement.
    fn withdraw(&self);

    /// Waits until the keys sent so far are delivered or abandoned, and an advertisement is withdrawn. Never fails; may take
    /// long if a server does not answer.
    async fn flush(&self);
}

/// How other processes reach a server that relays notifications.
#[derive(Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// Unique id of the server process.
    pub id: String,
    /// Base URL, such as `http://10.0.0.7:7070`.
    pub url: String,
    /// Bearer token that the server accepts for notifications, and for nothing else.
    pub key: String,
}

impl fmt::Debug for Advertisement {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advertisement").field("id", &self.id).field("url", &self.url).finish_non_exhaustive()
    }
}

/// Subscribers of this process, and the transport to other processes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Subscribers to all notifications.
    all: Followers,
    /// Subscribers to writes of this process and to notifications posted to it. Notifications from another server's
    /// stream are excluded: two servers that follow each other would repeat them endlessly.
    direct: Followers,
    notifier: OnceLock<Arc<dyn Notifier>>,
}

/// A handle that does not keep [`Notices`] alive: for transports, which [`Notices`] owns.
#[derive(Clone, Debug)]
pub struct WeakNotices(Weak<Shared>);

impl WeakNotices {
    /// The handle, unless all handles were dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Notices> {
        self.0.upgrade().map(|shared| Notices { shared })
    }
}

/// Notices of this process by the address of their store, so that two handles to one bucket share notifications.
#[cfg(any(feature = "_bucket", test))]
static BY_ADDRESS: Mutex<Vec<(String, WeakNotices)>> = Mutex::new(Vec::new());

impl Notices {
    /// Subscribers of one store, without a transport.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns those of a store address, shared by all of this process that open it.
    #[cfg(any(feature = "_bucket", test))]
    pub(crate) fn of(address: &str) -> Self {
        let mut all = BY_ADDRESS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, notices)| notices.0.strong_count() > 0);
        let known = all.iter().filter(|(known, _)| known == address).find_map(|(_, notices)| notices.upgrade());
        known.unwrap_or_else(|| {
            let made = Self::new();
            all.push((address.to_owned(), made.downgrade()));
            made
        })
    }

    /// A handle that does not keep them alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakNotices {
        WeakNotices(Arc::downgrade(&self.shared))
    }

    /// Connects a transport; returns `false` if there is one already.
    pub fn connect(&self, notifier: Arc<dyn Notifier>) -> bool {
        self.shared.notifier.set(notifier).is_ok()
    }

    /// The transport to other processes.
    #[must_use]
    pub fn notifier(&self) -> Option<&Arc<dyn Notifier>> {
        self.shared.notifier.get()
    }

    /// Announces writes of this process.
    pub fn announce(&self, keys: &[String]) {
        self.post(keys);
        if let Some(notifier) = self.notifier() {
            notifier.send(keys);
        }
    }

    /// Delivers the pending notifications to other processes, for at most [`NOTIFY_FLUSH_MAX`]. Later ones are lost without
    /// an error: other processes find the writes when they poll.
    pub async fn flush(&self, clock: &dyn Clock) {
        let Some(notifier) = self.notifier() else { return };
        tokio::select! {
            biased;
            () = notifier.flush() => {}
            () = clock.sleep(NOTIFY_FLUSH_MAX) => {}
        }
    }

    /// Announces writes of other processes that were posted to this one, also to followers of this server.
    pub fn post(&self, keys: &[String]) {
        self.shared.all.tell(keys.iter().map(String::as_str));
        self.shared.direct.tell(keys.iter().map(String::as_str));
    }

    /// Announces writes that another server relayed.
    pub fn receive(&self, keys: &[String]) {
        self.shared.all.tell(keys.iter().map(String::as_str));
    }

    /// Notifies all subscribers of this process that notifications may be missing.
    pub fn report_gap(&self) {
        self.shared.all.tell_missed();
    }

    /// Reports a gap in the notifications, also to followers of this server.
    pub fn post_gap(&self) {
        self.report_gap();
        self.shared.direct.tell_missed();
    }

    /// Subscribes to all notifications under a prefix.
    #[must_use]
    pub fn changes(&self, prefix: &str) -> Changes {
        let changes = self.shared.all.follow(prefix);
        if let Some(notifier) = self.notifier() {
            notifier.subscribed();
        }
        changes
    }

    /// Subscribes to writes of this process and to notifications posted to it.
    #[must_use]
    pub fn direct_changes(&self, prefix: &str) -> Changes {
        self.shared.direct.follow(prefix)
    }

    /// Whether this process has subscribers.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.shared.all.forget_the_gone();
        self.shared.all.any()
    }

    /// Whether another process follows this server.
    #[must_use]
    pub fn has_direct_subscribers(&self) -> bool {
        self.shared.direct.forget_the_gone();
        self.shared.direct.any()
    }

    /// Writes that are announced at present.
    #[must_use]
    pub fn coverage(&self) -> Notifications {
        match self.notifier().is_some_and(|notifier| notifier.is_connected()) {
            true => Notifications::Fleet,
            false => Notifications::Process,
        }
    }
}

/// A layer: announces the keys of each write to subscribers of this process, and to other processes if a
/// transport is connected.
#[derive(Clone, Debug)]
pub struct Announced<S> {
    inner: S,
    notices: Notices,
}

impl<S: Store> Announced<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S, notices: Notices) -> Self {
        Self { inner, notices }
    }

    /// The subscribers and the transport.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }
}

#[async_trait]
impl<S: Store> Store for Announced<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.inner.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        // Shared, not copied: a batch keeps its operations behind an `Arc`.
        let kept = batch.clone();
        let written = self.inner.write(batch).await;
        let keys = match &written {
            Ok(receipt) => keys(kept.operations(), receipt.stamp.map(|stamp| stamp.to_string()).as_deref()),
            // Parts of it landed, and one more may have: a notification too many is harmless.
            Err(error) => {
                let landed = error.landed() + usize::from(error.is_unknown());
                keys(&kept.operations()[..landed.min(kept.operations().len())], None)
            }
        };
        if !keys.is_empty() && self.inner.traits().notifications != Notifications::Complete {
            self.notices.announce(&keys);
        }
        written
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.inner.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        self.inner.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.notices.changes(prefix).and(self.inner.changes(prefix))
    }

    fn traits(&self) -> Traits {
        let traits = self.inner.traits();
        Traits { notifications: traits.notifications.max(self.notices.coverage()), ..traits }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}

/// The keys of the puts, without those whose stamp is not known.
fn keys(operations: &[Operation], stamp: Option<&str>) -> Vec<String> {
    let puts = operations.iter().filter_map(Operation::as_put);
    let filled = puts.filter_map(|put| match (put.key.contains(STAMP), stamp) {
        (false, _) => Some(put.key.clone()),
        (true, Some(stamp)) => Some(put.key.replacen(STAMP, stamp, 1)),
        (true, None) => None,
    });
    filled.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::{Change, Memory};

    /// Records the sent keys.
    #[derive(Debug, Default)]
    struct Sent {
        keys: Mutex<Vec<String>>,
        connected: AtomicBool,
    }

    #[async_trait]
    impl Notifier for Sent {
        fn send(&self, keys: &[String]) {
            self.keys.lock().unwrap().extend_from_slice(keys);
        }
        fn subscribed(&self) {}
        fn is_connected(&self) -> bool {
            self.connected.load(Ordering::Relaxed)
        }
        fn advertise(&self, _: Advertisement) {}
        fn withdraw(&self) {}
        async fn flush(&self) {
            std::future::pending::<()>().await;
        }
    }

    /// Time that passes only by waiting.
    #[derive(Debug, Default)]
    struct Waited(Mutex<std::time::Duration>);

    #[async_trait]
    impl Clock for Waited {
        fn wall(&self) -> crate::Stamp {
            crate::Stamp::default()
        }
        fn boot(&self) -> std::time::Duration {
            *self.0.lock().unwrap()
        }
        async fn sleep(&self, span: std::time::Duration) {
            *self.0.lock().unwrap() += span;
        }
    }

    fn put(key: &str) -> Option<Change> {
        Some(Change::Put(key.to_owned()))
    }

    #[tokio::test]
    async fn a_process_is_notified_of_its_own_writes_on_a_store_that_sends_none() {
        let store = Announced::new(Memory::bucket(), Notices::new());
        assert_eq!(store.traits().notifications, Notifications::Process);
        let mut due = store.changes("due/");
        let receipt = store.write(Batch::new().put("other", "").put("due/{stamp}", "").delete("due/0")).await.unwrap();
        assert_eq!(due.next().now_or_never(), put(&format!("due/{}", receipt.stamp.unwrap())));
        assert_eq!(due.next().now_or_never(), None, "neither deletes nor other prefixes");
    }

    #[tokio::test]
    async fn the_landed_part_of_a_rejected_batch_is_announced_and_the_rest_is_not() {
        let store = Announced::new(Memory::bucket(), Notices::new());
        store.write(Batch::new().put("taken", "")).await.unwrap();
        let mut all = store.changes("");
        let batch = Batch::new().put("before", "").create("taken", "x").put("after", "");
        assert!(store.write(batch).await.unwrap_err().is_exists());
        assert_eq!(all.next().now_or_never(), put("before"));
        assert_eq!(all.next().now_or_never(), None);
    }

    #[tokio::test]
    async fn a_transport_gets_own_writes_only_and_received_keys_are_not_forwarded() {
        let (notices, sent) = (Notices::new(), Arc::new(Sent::default()));
        assert!(notices.connect(sent.clone()) && !notices.connect(sent.clone()));
        let store = Announced::new(Memory::bucket(), notices.clone());
        let (mut all, mut direct) = (store.changes(""), notices.direct_changes(""));
        store.write(Batch::new().put("own", "")).await.unwrap();
        notices.post(&["posted".to_owned()]);
        notices.receive(&["relayed".to_owned()]);
        assert_eq!(*sent.keys.lock().unwrap(), ["own"]);
        for key in ["own", "posted", "relayed"] {
            assert_eq!(all.next().now_or_never(), put(key));
        }
        for key in ["own", "posted"] {
            assert_eq!(direct.next().now_or_never(), put(key));
        }
        assert_eq!(direct.next().now_or_never(), None, "a relayed notification goes no further");
        notices.report_gap();
        assert_eq!(all.next().now_or_never(), Some(Change::Missed));
        assert_eq!(direct.next().now_or_never(), None);
    }

    #[test]
    fn coverage_follows_the_transport() {
        let (notices, sent) = (Notices::new(), Arc::new(Sent::default()));
        assert_eq!(notices.coverage(), Notifications::Process);
        notices.connect(sent.clone());
        assert_eq!(notices.coverage(), Notifications::Process, "not connected yet");
        sent.connected.store(true, Ordering::Relaxed);
        assert_eq!(notices.coverage(), Notifications::Fleet);
    }

    #[tokio::test]
    async fn a_transport_that_does_not_deliver_is_waited_for_a_bounded_time() {
        let (notices, clock) = (Notices::new(), Waited::default());
        notices.flush(&clock).await;
        assert_eq!(clock.boot(), std::time::Duration::ZERO, "no transport, no wait");
        notices.connect(Arc::new(Sent::default()));
        notices.flush(&clock).await;
        assert_eq!(clock.boot(), NOTIFY_FLUSH_MAX);
    }

    #[tokio::test]
    async fn two_handles_to_one_address_notify_each_other() {
        let memory = Memory::bucket();
        let [one, other] = [(); 2].map(|()| Announced::new(memory.clone(), Notices::of("s3://a/b@")));
        let elsewhere = Announced::new(memory.clone(), Notices::of("s3://a/c@"));
        let (mut heard, mut silent) = (other.changes(""), elsewhere.changes(""));
        one.write(Batch::new().put("k", "")).await.unwrap();
        assert_eq!(heard.next().now_or_never(), put("k"));
        assert_eq!(silent.next().now_or_never(), None);
    }

    #[tokio::test]
    async fn a_store_with_complete_notifications_keeps_its_own() {
        let store = Announced::new(Memory::new(), Notices::new());
        assert_eq!(store.traits().notifications, Notifications::Complete);
        let mut all = store.changes("");
        store.write(Batch::new().put("once", "")).await.unwrap();
        assert_eq!(all.next().now_or_never(), put("once"));
        assert_eq!(all.next().now_or_never(), None, "not announced twice");
    }
}
