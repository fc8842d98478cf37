//! Listing page by page.

use wigwag_store::{Listed, Store, limits::LIST_PAGE};

use crate::error::Result;

/// All keys below a prefix, in order, a page at a time.
pub(crate) struct Pages<'a> {
    store: &'a dyn Store,
    prefix: &'a str,
    /// Cursor of the next page; `None` when there are no more.
    after: Option<String>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(store: &'a dyn Store, prefix: &'a str) -> Self {
        Self { store, prefix, after: Some(String::new()) }
    }

    /// Only what sorts after this key.
    pub(crate) fn after(store: &'a dyn Store, prefix: &'a str, after: &str) -> Self {
        Self { store, prefix, after: Some(after.to_owned()) }
    }

    /// The next page; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Listed>>> {
        let Some(after) = self.after.take() else { return Ok(None) };
        let page = self.store.list(self.prefix, &after, LIST_PAGE).await?;
        self.after = page.entries.last().filter(|_| page.more).map(|last| last.key.clone());
        Ok(Some(page.entries))
    }
}
