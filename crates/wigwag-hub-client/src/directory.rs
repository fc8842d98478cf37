//! Who is registered.

use std::future::IntoFuture;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::client::Client;
use super::error::Result;

/// A question for actors; `await` it for a page.
#[must_use = "it asks when it is awaited"]
#[derive(Debug)]
pub struct Find<'a> {
    client: &'a Client,
    pattern: Option<String>,
    capability: Option<String>,
    limit: Option<u16>,
    after: Option<String>,
}

/// Some actors, in the order of their addresses.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Actors {
    /// Each of them.
    pub actors: Vec<Actor>,
    /// What the next page is asked for with; `None` on the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// A registered actor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Actor {
    /// Its address.
    #[serde(rename = "actorAddress")]
    pub address: String,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// What it says of itself.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// It grows with each registration of the address.
    pub version: u64,
    /// Since when, in milliseconds since 1970.
    pub registered_at: u64,
    /// Until when without renewal, in milliseconds since 1970.
    pub expires_at: u64,
}

impl<'a> Find<'a> {
    pub(super) fn new(client: &'a Client, pattern: Option<&str>) -> Self {
        let pattern = pattern.map(str::to_owned);
        Self { client, pattern, capability: None, limit: None, after: None }
    }

    /// Only those that name this capability.
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.capability = Some(name.into());
        self
    }

    /// At most so many on a page: 1 to 1,000, else 100.
    pub fn limit(mut self, limit: u16) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The page after the one that named this.
    pub fn after(mut self, next: impl Into<String>) -> Self {
        self.after = Some(next.into());
        self
    }

    /// All of them, page by page.
    ///
    /// # Errors
    ///
    /// If the hub does not answer.
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
        // A list knows no capabilities; whoever looks for one looks among all.
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
