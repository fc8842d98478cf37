//! A value that can be replaced while requests read it.

use std::sync::Arc;

use tokio::sync::watch;

/// A replaceable value. Readers get the current one and keep it; replacing does not wait for them.
#[derive(Debug)]
pub(crate) struct Shared<T>(watch::Sender<Arc<T>>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(watch::Sender::new(Arc::new(value)))
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.borrow())
    }

    /// Returns a receiver that is notified of each replacement from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<T>> {
        self.0.subscribe()
    }

    pub(crate) fn set(&self, value: T) {
        self.0.send_replace(Arc::new(value));
    }
}
