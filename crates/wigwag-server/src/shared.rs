//! A value that can be replaced while requests read it.

use std::sync::{Arc, PoisonError, RwLock};

/// A replaceable value. Readers get the current one and keep it; replacing does not wait for them.
#[derive(Debug)]
pub(crate) struct Shared<T>(RwLock<Arc<T>>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}
