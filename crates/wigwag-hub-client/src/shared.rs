//! State shared by the handles and the driver: notes, events, and the reason why the client ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore, broadcast, mpsc, watch};

use super::error::Error;
use super::event::Event;
use super::frame::Incoming;
use super::settings::Settings;
use crate::limits::EVENTS_MAX;

/// Notes from handles to the driver, written without waiting. Each message and subscription writes at most one note of
/// a kind, except for progress.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) acknowledged: Vec<String>,
    pub(super) progressed: Vec<String>,
    pub(super) forgotten: Vec<String>,
    pub(super) caught_up: Vec<u64>,
    pub(super) dropped: Vec<u64>,
    pub(super) is_closing: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    notes: Mutex<Notes>,
    pub(super) attention: Notify,
    /// Permits of the send buffer, one for each message.
    pub(super) room: Arc<Semaphore>,
    pub(super) inbox: tokio::sync::Mutex<mpsc::Receiver<Incoming>>,
    /// Number of messages at which the driver stops reading, unless a call waits for its answer.
    pub(super) inbox_soft: usize,
    /// Whether the application receives messages.
    pub(super) is_taken: AtomicBool,
    pub(super) events: broadcast::Sender<Event>,
    /// The session's address once connected, and the error with which the client ended.
    session: watch::Sender<(Option<String>, Option<Error>)>,
    prefix: u64,
    count: AtomicU64,
}

impl Shared {
    pub(super) fn new(settings: Settings, inbox: mpsc::Receiver<Incoming>) -> Self {
        Self {
            room: Arc::new(Semaphore::new(settings.buffer)),
            inbox_soft: settings.inbox,
            settings,
            notes: Mutex::default(),
            attention: Notify::new(),
            inbox: tokio::sync::Mutex::new(inbox),
            is_taken: AtomicBool::new(false),
            events: broadcast::channel(EVENTS_MAX).0,
            session: watch::channel((None, None)).0,
            prefix: fastrand::u64(..),
            count: AtomicU64::new(0),
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        // A poisoned lock is harmless: each write is a single push or assignment, so the notes are always consistent.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, write: impl FnOnce(&mut Notes)) {
        write(&mut self.notes());
        self.attention.notify_one();
    }

    pub(super) fn take_notes(&self) -> Notes {
        std::mem::take(&mut *self.notes())
    }

    pub(super) fn next_number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns an id that no other message has.
    pub(super) fn new_id(&self) -> String {
        format!("m{:016x}-{}", self.prefix, self.next_number())
    }

    pub(super) fn connected(&self, address: &str) {
        self.session.send_modify(|session| session.0 = Some(address.to_owned()));
    }

    pub(super) fn address(&self) -> Option<String> {
        self.session.borrow().0.clone()
    }

    pub(super) fn end(&self, error: Error) {
        self.session.send_modify(|session| session.1 = Some(error.clone()));
        self.room.close();
        let _ = self.events.send(Event::Ended { error });
    }

    /// Returns the error with which the client ended.
    pub(super) fn error(&self) -> Error {
        self.session.borrow().1.clone().unwrap_or_else(super::machine::closed)
    }

    /// Waits for the first session; fails if the client ends before it.
    pub(super) async fn first_session(&self) -> Result<(), Error> {
        let mut session = self.session.subscribe();
        let seen = session.wait_for(|(address, error)| address.is_some() || error.is_some()).await;
        match seen.ok().and_then(|session| session.1.clone()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    pub(super) async fn ended(&self) -> Error {
        let mut session = self.session.subscribe();
        let _ = session.wait_for(|(_, error)| error.is_some()).await;
        self.error()
    }
}
