//! The connection to one server: its stream of changes, and the keys posted to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use reqwest::StatusCode;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::debug;

use super::{Outgoing, Shared, Undelivered, membership};
use crate::events::{Events, Sink};
use crate::limits::{FLEET_PENDING_KEYS_MAX, NOTIFY_BYTES_MAX, NUDGE_SILENCE_MAX};
use crate::{Advertisement, Clock};

/// Time for which keys are collected before they are posted together.
const GATHER: Duration = Duration::from_millis(2);

/// The delay before a lost stream is reopened; it doubles each time, with up to half of it random.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Timeout of a post.
const POST_MAX: Duration = Duration::from_secs(5);

/// Attempts to post a batch of keys.
const POST_TRIES: u32 = 3;

/// The connection to one server.
#[derive(Debug)]
pub(super) struct Link {
    server: Advertisement,
    is_live: Arc<AtomicBool>,
    posts: mpsc::Sender<Outgoing>,
    queue: Mutex<Option<mpsc::Receiver<Outgoing>>>,
    /// Keys were dropped since the last post.
    has_gap: Arc<AtomicBool>,
    stream: Option<JoinHandle<()>>,
    has_poster: bool,
}

impl Drop for Link {
    /// Closes the stream. The poster ends by itself once its queue is empty.
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            stream.abort();
        }
    }
}

impl Link {
    pub(super) fn new(server: Advertisement) -> Self {
        let (posts, queue) = mpsc::channel(FLEET_PENDING_KEYS_MAX);
        let (is_live, has_gap) = Default::default();
        Self { server, is_live, posts, queue: Mutex::new(Some(queue)), has_gap, stream: None, has_poster: false }
    }

    pub(super) fn server(&self) -> &Advertisement {
        &self.server
    }

    pub(super) fn is_to(&self, server: &Advertisement) -> bool {
        self.server == *server
    }

    /// Whether the stream is open.
    pub(super) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Acquire)
    }

    /// Enqueues keys. If the server is too slow they are dropped, and it is notified of the gap.
    pub(super) fn post(&self, keys: &[&String], undelivered: &Arc<Undelivered>) {
        for key in keys {
            if self.posts.try_send(Outgoing::new(key, undelivered)).is_err() {
                self.has_gap.store(true, Ordering::Release);
            }
        }
    }

    pub(super) fn start_posts(&mut self, shared: &Arc<Shared>) {
        if std::mem::replace(&mut self.has_poster, true) {
            return;
        }
        let Some(queue) = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let (http, server, has_gap) = (shared.http.clone(), self.server.clone(), Arc::clone(&self.has_gap));
        let clock = Arc::clone(&shared.settings.clock);
        tokio::spawn(Poster { http, server, has_gap, clock }.run(queue));
    }

    pub(super) fn open_stream(&mut self, shared: &Arc<Shared>) {
        if self.stream.as_ref().is_none_or(JoinHandle::is_finished) {
            let (server, is_live) = (self.server.clone(), Arc::clone(&self.is_live));
            self.stream = Some(tokio::spawn(follow(Arc::downgrade(shared), server, is_live)));
        }
    }
}

/// Keeps the stream of a server open.
async fn follow(weak: Weak<Shared>, server: Advertisement, is_live: Arc<AtomicBool>) {
    let mut pause = PAUSE_FIRST;
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let (http, clock) = (shared.http.clone(), Arc::clone(&shared.settings.clock));
        drop(shared);
        let request = http.get(format!("{}/v1/changes?partial=true", server.url.trim_end_matches('/')));
        let request = request.bearer_auth(&server.key);
        match tokio::time::timeout(POST_MAX, request.send()).await {
            Ok(Ok(response)) if response.status() == StatusCode::OK => {
                pause = PAUSE_FIRST;
                read(&weak, response, &is_live).await;
            }
            Ok(Ok(response)) => {
                debug!(url = server.url, status = %response.status(), "a server streams no changes");
                pause = PAUSE_MAX;
            }
            Ok(Err(error)) => debug!(url = server.url, error = %error.without_url(), "a server cannot be reached"),
            Err(_) => debug!(url = server.url, "a server does not answer"),
        }
        // The server may have stopped, or restarted with another key.
        let Some(shared) = weak.upgrade() else { return };
        shared.refresh();
        drop(shared);
        clock.sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Marks the stream as ended on drop, however it ends, so that no caller relies on it.
struct Live<'a> {
    is_live: &'a AtomicBool,
    weak: &'a Weak<Shared>,
}

impl Live<'_> {
    fn set(&self, live: bool) {
        self.is_live.store(live, Ordering::Release);
        // Subscribers that poll rarely because of this stream poll now, and return to
        // their normal interval.
        if let Some(notices) = self.weak.upgrade().and_then(|shared| shared.notices.upgrade()) {
            notices.report_gap();
        }
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

async fn read(weak: &Weak<Shared>, mut response: reqwest::Response, is_live: &AtomicBool) {
    let live = Live { is_live, weak };
    live.set(true);
    let mut events = Events::default();
    while let Ok(Ok(Some(bytes))) = tokio::time::timeout(NUDGE_SILENCE_MAX, response.chunk()).await {
        let Some(shared) = weak.upgrade() else { return };
        if events.take(&bytes, &*shared).is_err() {
            return;
        }
    }
}

impl Sink for Shared {
    fn put(&self, keys: &[String]) {
        if keys.iter().any(|key| key.starts_with(membership::PREFIX)) {
            self.refresh();
        }
        if let Some(notices) = self.notices.upgrade() {
            notices.receive(keys);
        }
    }

    fn missed(&self) {
        if let Some(notices) = self.notices.upgrade() {
            notices.report_gap();
        }
    }
}

/// Posts to one server.
struct Poster {
    http: reqwest::Client,
    server: Advertisement,
    has_gap: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
}

#[derive(Serialize)]
struct Post<'a> {
    keys: Vec<&'a str>,
    gap: bool,
}

impl Poster {
    /// Posts the queue, until the link is dropped and the queue is empty.
    async fn run(self, mut queue: mpsc::Receiver<Outgoing>) {
        let mut left: Option<Outgoing> = None;
        loop {
            let first = match left.take() {
                Some(outgoing) => outgoing,
                None => match queue.recv().await {
                    Some(outgoing) => outgoing,
                    None => return,
                },
            };
            self.clock.sleep(GATHER).await;
            // Quotes, comma, and JSON escapes: keys are almost always ASCII.
            let room = |outgoing: &Outgoing| outgoing.key.len() + 8;
            let mut bytes = 64 + room(&first);
            let mut batch = vec![first];
            while let Ok(outgoing) = queue.try_recv() {
                if bytes + room(&outgoing) > NOTIFY_BYTES_MAX {
                    left = Some(outgoing);
                    break;
                }
                bytes += room(&outgoing);
                batch.push(outgoing);
            }
            let is_posted = self.post(&batch).await;
            if !is_posted && queue.is_closed() {
                // The server is gone, or this process is done with the store: no further attempts.
                return;
            }
        }
    }

    /// Posts keys; reports a gap with the next post if that fails.
    async fn post(&self, batch: &[Outgoing]) -> bool {
        let gap = self.has_gap.swap(false, Ordering::AcqRel);
        let keys = batch.iter().map(|outgoing| outgoing.key.as_str()).collect();
        let body = serde_json::to_vec(&Post { keys, gap }).unwrap_or_default();
        let url = format!("{}/v1/notify", self.server.url.trim_end_matches('/'));
        for tried in 1..=POST_TRIES {
            let request = self.http.post(&url).bearer_auth(&self.server.key).timeout(POST_MAX);
            let request = request.header("content-type", "application/json").body(body.clone());
            match request.send().await {
                Ok(response) if response.status().is_success() => return true,
                Ok(response) => debug!(url, status = %response.status(), tried, "a notification was rejected"),
                Err(error) => debug!(url, error = %error.without_url(), tried, "a notification could not be sent"),
            }
            if tried < POST_TRIES {
                self.clock.sleep(PAUSE_FIRST * tried).await;
            }
        }
        self.has_gap.store(true, Ordering::Release);
        false
    }
}
