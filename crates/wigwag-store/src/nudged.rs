//! A layer: the nudges of a wigwag server, for a store that is its bucket (`http://host:port/s3`).
//!
//! One connection follows the server's stream of changes (`/v1/changes`), for all of this process that reach the server in the
//! same way. While it stands, [`Traits::nudges`] is true. When it begins, and when it breaks, every follower is told that it
//! may have missed something; until it stands again the store is one like any bucket, without nudges.
//!
//! Does not hold: nudges come some time after the write that they tell of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::changes::Followers;
use crate::limits::{NUDGE_EVENT_BYTES_MAX, NUDGE_SILENCE_MAX};
use crate::{Batch, Changes, Clock, Error, Now, Object, Page, Peers, Receipt, Result, Store, Traits};

/// The pause before a broken stream is asked for again; it doubles each time, and up to half of it is chance.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The pause where the server said no: it will most likely say so again.
const PAUSE_REFUSED: Duration = Duration::from_secs(60);

/// A store that is nudged by the server whose bucket it is.
#[derive(Clone, Debug)]
pub struct Nudged<S> {
    inner: S,
    stream: Arc<Stream>,
}

impl<S: Store> Nudged<S> {
    /// Puts the layer around the bucket of a server, whose stream of changes is at this address. Nothing is asked of it before
    /// somebody follows.
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
        Traits { nudges: self.stream.live.load(Ordering::Acquire), ..self.inner.traits() }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}

/// Where the stream is, and how it is had.
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

/// The stream, shared by all who follow it.
#[derive(Debug)]
struct Stream {
    source: Source,
    followers: Followers,
    /// What all of them want begins so; `None` until somebody wants something.
    prefix: watch::Sender<Option<String>>,
    live: AtomicBool,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The streams of this process. One that nobody holds any more is gone.
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
        let (followers, live, task) = (Followers::default(), AtomicBool::new(false), Mutex::new(None));
        let made = Arc::new(Self { source, followers, prefix, live, task });
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
        // It ends with the runtime that it was begun on, or when nobody followed any more.
        if task.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let reader = Reader { stream: Arc::downgrade(self), prefix: self.prefix.subscribe() };
            *task = Some(runtime.spawn(reader.run(self.source.clone())));
        }
        drop(task);
        changes
    }

    /// What happened before the stream began, or since it broke, nobody was told of. Whoever sees that it stands has been
    /// told that, and whoever is told that it broke sees so.
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

/// What both begin with.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.char_indices().zip(other.chars()).find(|((_, one), other)| one != other);
    match same {
        Some(((end, _), _)) => &one[..end],
        None => &one[..one.len().min(other.len())],
    }
}

/// Reads the stream for those who follow, as long as there are any.
struct Reader {
    stream: Weak<Stream>,
    prefix: watch::Receiver<Option<String>>,
}

/// Why a stream came to its end.
enum End {
    /// Nobody follows any more.
    Unwanted,
    /// Somebody follows what it does not tell of.
    Widened,
    /// It was there and broke, or the server stopped.
    Broke,
    /// It could not be had.
    Unreached(String),
    /// The server gives none.
    Refused(String),
}

/// However the reader ends, nobody counts on it any more.
struct Live<'a>(&'a Weak<Stream>);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0.upgrade() {
            stream.set_live(false);
        }
    }
}

impl Reader {
    async fn run(mut self, source: Source) {
        // There is always a client to be made: all it is told is how long to wait.
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
        url.query_pairs_mut().append_pair("prefix", &prefix);
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

/// Server-sent events, put together from pieces.
#[derive(Debug, Default)]
struct Events {
    line: Vec<u8>,
    name: String,
    data: Vec<String>,
    bytes: usize,
}

impl Events {
    /// Takes in some bytes, and tells those who follow of what is whole by now. What is not such a stream is an error.
    fn take(&mut self, bytes: &[u8], followers: &Followers) -> Result<()> {
        for &byte in bytes {
            self.bytes += 1;
            if self.bytes > NUDGE_EVENT_BYTES_MAX {
                return Err(Error::invalid("an event of the stream of changes is too long"));
            }
            if byte == b'\n' {
                let line = String::from_utf8(std::mem::take(&mut self.line));
                let line = line.map_err(|_| Error::invalid("a line of the stream of changes is not text"))?;
                self.take_line(line.trim_end_matches('\r'), followers);
            } else {
                self.line.push(byte);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str, followers: &Followers) {
        if line.is_empty() {
            match self.name.as_str() {
                "put" => followers.tell(self.data.iter().map(String::as_str).filter(|key| !key.is_empty())),
                "missed" => followers.tell_missed(),
                // The end of the stream follows on its last word; what is not known yet is nothing to us.
                _ => {}
            }
            *self = Self::default();
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push(value.to_owned()),
            // A comment, which says that the stream lives.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    #[test]
    fn what_two_begin_with_is_cut_between_letters() {
        for (one, other, same) in
            [("due/", "due/00", "due/"), ("due/", "done/", "d"), ("é", "è", ""), ("", "a", ""), ("日本", "日中", "日")]
        {
            assert_eq!(common(one, other), same);
            assert_eq!(common(other, one), same);
        }
    }

    #[tokio::test]
    async fn events_are_put_together_however_they_come() {
        let text = ": lives\n\nevent: put\ndata: due/1\ndata: due/é\n\nevent: later\ndata: x\n\r\nevent: put\r\ndata:other\r\n\r\n\
                    event: put\ndata: due/3\n\nevent: missed\ndata:\n\n";
        for size in 1..=text.len() {
            let followers = Followers::default();
            let mut due = followers.follow("due/");
            let mut events = Events::default();
            let missed = text.find("event: missed").unwrap();
            for piece in text.as_bytes()[..missed].chunks(size) {
                events.take(piece, &followers).unwrap();
            }
            for key in ["due/1", "due/é", "due/3"] {
                assert_eq!(due.next().await, Change::Put(key.into()), "pieces of {size}");
            }
            for piece in text.as_bytes()[missed..].chunks(size) {
                events.take(piece, &followers).unwrap();
            }
            assert_eq!(due.next().await, Change::Missed);
        }
    }

    #[test]
    fn all_who_reach_a_server_in_the_same_way_share_one_stream() {
        let source = |secret: &str| Source {
            url: "http://127.0.0.1:1/v1/changes".parse().unwrap(),
            keys: ("id".into(), secret.into()),
            connect_max: Duration::from_secs(1),
            clock: Arc::new(crate::System),
        };
        let (one, same, other) = (Stream::of(source("a")), Stream::of(source("a")), Stream::of(source("b")));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn what_is_no_stream_of_events_is_not_kept_for_ever() {
        let followers = Followers::default();
        let long = vec![b'x'; NUDGE_EVENT_BYTES_MAX + 1];
        assert!(Events::default().take(&long, &followers).is_err());
        assert!(Events::default().take(b"event: \xff\n", &followers).is_err());
    }
}
