//! The directory: queries for registered actors.

use std::future::IntoFuture;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::client::Client;
use super::error::Result;

/// A query for registered actors; `await` it for one page.
#[must_use = "a query runs only when it is awaited"]
#[derive(Debug)]
pub struct Find<'a> {
    client: &'a Client,
    pattern: Option<String>,
    capability: Option<String>,
    limit: Option<u16>,
    after: Option<String>,
}

/// One page of actors, in the order of their addresses.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Actors {
    /// The actors of this page.
    pub actors: Vec<Actor>,
    /// Cursor of the next page; `None` on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// A registered actor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Actor {
    /// Address under which the actor receives messages.
    #[serde(rename = "actorAddress")]
    pub address: String,
    /// Capabilities that the actor declared when it registered.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Metadata that the actor declared when it registered.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Fencing token: it grows with each registration of the address by any client.
    pub version: u64,
    /// When the actor registered, in milliseconds since 1970.
    pub registered_at: u64,
    /// When the registration expires without renewal, in milliseconds since 1970.
    pub expires_at: u64,
}

impl<'a> Find<'a> {
    pub(super) fn new(client: &'a Client, pattern: Option<&str>) -> Self {
        let pattern = pattern.map(str::to_owned);
        Self { client, pattern, capability: None, limit: None, after: None }
    }

    /// Restricts the query to actors with this capability.
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.capability = Some(name.into());
        self
    }

    /// Sets the page size, from 1 to 1,000. The default is 100.
    pub fn limit(mut self, limit: u16) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Starts at a cursor, which an earlier page returned as [`Actors::next`].
    pub fn after(mut self, next: impl Into<String>) -> Self {
        self.after = Some(next.into());
        self
    }

    /// Returns the actors of all pages.
    ///
    /// # Errors
    ///
    /// Fails if the hub does not answer.
    pub async fn all(mut self) -> Result<Vec<Actor>> {
        let mut all = Vec::new();
        loop {
            let page = self.page().await?;
            all.extend(page.actors);
            match page.next {
                Some(next) => self.after = Some(next),
                None => return Ok(all),
            }
        }
    }

    async fn page(&self) -> Result<Actors> {
        let Self { client, pattern, capability, limit, after } = self;
        let mut payload = Map::new();
        // Only `hub:discover` filters by capability, so a query without a pattern discovers among all addresses.
        let pattern = pattern.as_deref().or(capability.as_ref().map(|_| "*"));
        let fields = [
            ("pattern", json!(pattern)),
            ("capability", json!(capability)),
            ("limit", json!(limit)),
            ("after", json!(after)),
        ];
        payload
            .extend(fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.into(), value)));
        let kind = if pattern.is_some() { "hub:discover" } else { "hub:list_actors" };
        client.page(kind, &Value::Object(payload)).await
    }
}

impl<'a> IntoFuture for Find<'a> {
    type Output = Result<Actors>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Actors>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.page().await })
    }
}
