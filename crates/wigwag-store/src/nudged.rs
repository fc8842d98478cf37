//! A layer: notifications of a wigwag server, for a store that is its bucket (`http://host:port/s3`).
//!
//! One connection follows the server's stream of changes (`/v1/changes`), for all handles of this process that reach
//! the server in the same way. While it is connected, [`Traits::notifications`] is complete. When it begins, and when
//! it breaks, every follower is notified of a possible gap; until it is connected again the store behaves like any
//! bucket, without notifications.
//!
//! Does not hold: that notifications are immediate. They arrive some time after the write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::changes::Followers;
use crate::events::Events;
use crate::limits::NUDGE_SILENCE_MAX;
use crate::{Batch, Changes, Clock, Notifications, Now, Object, Page, Peers, Receipt, Result, Store, Traits};

/// The delay before a broken stream is requested again; it doubles each time, with up to half of it random.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The delay after the server rejected the stream: it will most likely do so again.
const PAUSE_REFUSED: Duration = Duration::from_secs(60);

/// Header of a stream of changes: `complete`, or `partial` where writes of other processes may be missing.
pub const COVERAGE_HEADER: &str = "wigwag-notifications";

/// A bucket of a server, with the server's notifications.
#[derive(Clone, Debug)]
pub struct Nudged<S> {
    inner: S,
    stream: Arc<Stream>,
}

impl<S: Store> Nudged<S> {
    /// Adds the layer to the bucket of a server, whose stream of changes is at this address. It sends no request before
    /// the first follower.
    pub(crate) fn new(inner: S, source: Source) -> Self {
        Self { inner, stream: Stream::of(source) }
    }
}

#[async_trait]
impl<S: Store> Store for Nudged<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.inner.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        self.inner.write(batch).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.inner.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        self.inner.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.stream.follow(prefix)
    }

    fn traits(&self) -> Traits {
        let traits = self.inner.traits();
        match (self.stream.live.load(Ordering::Acquire), self.stream.partial.load(Ordering::Acquire)) {
            (false, _) => traits,
            (true, true) => Traits { notifications: Notifications::Fleet, ..traits },
            (true, false) => Traits { notifications: Notifications::Complete, ..traits },
        }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}

/// Address and settings of the stream.
#[derive(Clone)]
pub(crate) struct Source {
    /// The address of the changes.
    pub(crate) url: reqwest::Url,
    /// Access key and secret.
    pub(crate) keys: (String, String),
    pub(crate) connect_max: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Source {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("url", &self.url.as_str())
            .field("access_key_id", &self.keys.0)
            .finish_non_exhaustive()
    }
}

/// The stream, shared by all followers.
#[derive(Debug)]
struct Stream {
    source: Source,
    followers: Followers,
    /// Common prefix of all followers; `None` before the first.
    prefix: watch::Sender<Option<String>>,
    live: AtomicBool,
    /// The server's store is a bucket, so the server does not announce writes that bypass it.
    partial: AtomicBool,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The streams of this process. A stream ends when its last handle is dropped.
static STREAMS: Mutex<Vec<Weak<Stream>>> = Mutex::new(Vec::new());

impl Stream {
    fn of(source: Source) -> Arc<Self> {
        let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        let same = |known: &Arc<Self>| known.source.url == source.url && known.source.keys == source.keys;
        if let Some(known) = streams.iter().filter_map(Weak::upgrade).find(same) {
            return known;
        }
        let (prefix, _) = watch::channel(None);
        let (followers, live, partial, task) = Default::default();
        let made = Arc::new(Self { source, followers, prefix, live, partial, task });
        streams.push(Arc::downgrade(&made));
        made
    }

    fn follow(self: &Arc<Self>, prefix: &str) -> Changes {
        let changes = self.followers.follow(prefix);
        self.prefix.send_if_modified(|wanted| {
            let wider = wanted.as_deref().map_or(prefix, |wanted| common(wanted, prefix)).to_owned();
            let differs = wanted.as_deref() != Some(wider.as_str());
            *wanted = Some(wider);
            differs
        });
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // The task ended with the runtime that it was started on, or when the last follower left.
        if task.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let reader = Reader { stream: Arc::downgrade(self), prefix: self.prefix.subscribe() };
            *task = Some(runtime.spawn(reader.run(self.source.clone())));
        }
        drop(task);
        changes
    }

    /// Followers missed all notifications before the stream began or after it broke. A follower that sees a live stream
    /// got the gap report before, and a follower that gets the report of a break sees that the stream is not live.
    fn set_live(&self, live: bool) {
        if !live {
            self.live.store(false, Ordering::Release);
        }
        self.followers.tell_missed();
        self.live.store(live, Ordering::Release);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

/// Common prefix of two texts.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.char_indices().zip(other.chars()).find(|((_, one), other)| one != other);
    match same {
        Some(((end, _), _)) => &one[..end],
        None => &one[..one.len().min(other.len())],
    }
}

/// Reads the stream as long as there are followers.
struct Reader {
    stream: Weak<Stream>,
    prefix: watch::Receiver<Option<String>>,
}

/// Why a stream ended.
enum End {
    /// There are no followers any more.
    Unwanted,
    /// A follower needs keys outside the stream's prefix.
    Widened,
    /// The connected stream broke, or the server stopped.
    Broke,
    /// The stream could not be opened.
    Unreached(String),
    /// The server offers no stream.
    Refused(String),
}

/// Marks the stream as not live on drop, however the reader ends.
struct Live<'a>(&'a Weak<Stream>);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0.upgrade() {
            stream.set_live(false);
        }
    }
}

/// Whether the server announces only writes through it and writes reported to it.
pub(crate) fn is_partial(response: &reqwest::Response) -> bool {
    response.headers().get(COVERAGE_HEADER).is_some_and(|coverage| coverage == "partial")
}

impl Reader {
    async fn run(mut self, source: Source) {
        // Creating a client cannot fail: only timeouts are set.
        let http =
            reqwest::Client::builder().connect_timeout(source.connect_max).read_timeout(NUDGE_SILENCE_MAX).build();
        let http = match http {
            Ok(http) => http,
            Err(error) => return warn!(%error, "there will be no nudges: no HTTP client could be made"),
        };
        let (mut pause, mut told) = (PAUSE_FIRST, false);
        loop {
            let wait = match self.follow(&http, &source).await {
                End::Unwanted => return,
                End::Widened => continue,
                End::Broke => {
                    (pause, told) = (PAUSE_FIRST, false);
                    pause
                }
                End::Unreached(why) => {
                    debug!(url = %source.url, why, "no nudges for now; again soon");
                    pause
                }
                End::Refused(why) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(url = %source.url, why, "the server gives no nudges; the store is listed instead");
                    }
                    PAUSE_REFUSED
                }
            };
            pause = (pause * 2).min(PAUSE_MAX);
            source.clock.sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
    }

    /// Follows the stream from its beginning to its end.
    async fn follow(&mut self, http: &reqwest::Client, source: &Source) -> End {
        let prefix = self.prefix.borrow_and_update().clone().unwrap_or_default();
        let (id, secret) = &source.keys;
        let mut url = source.url.clone();
        url.query_pairs_mut().append_pair("prefix", &prefix).append_pair("partial", "true");
        let request = http.get(url).basic_auth(id, Some(secret));
        let mut response = match request.send().await {
            Ok(response) if response.status() == 200 => response,
            Ok(response) if response.status().is_server_error() => {
                return End::Unreached(format!("it answered {}", response.status()));
            }
            Ok(response) => return End::Refused(format!("it answered {}", response.status())),
            Err(error) => return End::Unreached(error.without_url().to_string()),
        };
        let weak = self.stream.clone();
        let Some(stream) = weak.upgrade() else { return End::Unwanted };
        let _live = Live(&weak);
        stream.partial.store(is_partial(&response), Ordering::Release);
        stream.set_live(true);
        drop(stream);
        let mut events = Events::default();
        loop {
            let more = tokio::select! {
                biased;
                changed = self.prefix.changed() => return if changed.is_ok() { End::Widened } else { End::Unwanted },
                more = response.chunk() => more,
            };
            let Some(stream) = self.stream.upgrade() else { return End::Unwanted };
            let Ok(Some(bytes)) = more else { return End::Broke };
            if events.take(&bytes, &stream.followers).is_err() {
                return End::Broke;
            }
            stream.followers.forget_the_gone();
            if !stream.followers.any() {
                return End::Unwanted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_prefix_is_cut_between_characters() {
        for (one, other, same) in
            [("due/", "due/00", "due/"), ("due/", "done/", "d"), ("é", "è", ""), ("", "a", ""), ("日本", "日中", "日")]
        {
            assert_eq!(common(one, other), same);
            assert_eq!(common(other, one), same);
        }
    }

    #[test]
    fn handles_with_equal_settings_for_a_server_share_one_stream() {
        let source = |secret: &str| Source {
            url: "http://127.0.0.1:1/v1/changes".parse().unwrap(),
            keys: ("id".into(), secret.into()),
            connect_max: Duration::from_secs(1),
            clock: Arc::new(crate::System),
        };
        let (one, same, other) = (Stream::of(source("a")), Stream::of(source("a")), Stream::of(source("b")));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    }
}
