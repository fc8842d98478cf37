//! The hub's store operations.
//!
//! What if we die here? A registration raises the version first and then notifies the former server. Without the
//! notification the former holder stays connected there, and nothing is lost. A message for an actor that turns out to be at another server is stored
//! and removed again before its sender is answered: dying in between leaves a message that the actor gets at its next registration. A
//! message that is set aside is copied before it is removed from its queue: dying in between leaves it in the queue, and it is set aside
//! again, under the same key.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tracing::{error, warn};
use wigwag_hub::key::{ActorRecord, Delivered, FLOOR, FloorRecord, TakenRecord};
use wigwag_hub::{Done, Kept, Op, Place, Waiting, key};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Batch, Store};

use super::peers::Peers;

/// Messages that are read concurrently.
const READ_AT_ONCE: usize = 16;

/// Maximum number of retries if servers register one address concurrently.
const TRIES: usize = 8;

pub(super) type Result<T> = std::result::Result<T, String>;

/// Access to the store for one server's hub.
#[derive(Clone, Copy)]
pub(super) struct Keeper<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) peers: &'a Peers,
}

#[expect(clippy::needless_pass_by_value, reason = "it is what errors are mapped with")]
pub(super) fn failed(error: impl ToString) -> String {
    error.to_string()
}

/// Reads a record, or returns `None` if it does not exist.
pub(super) async fn record<T: serde::de::DeserializeOwned>(store: &dyn Store, key: &str) -> Result<Option<T>> {
    let object = store.get(key).await.map_err(failed)?;
    object.map(|object| serde_json::from_slice(&object.body).map_err(failed)).transpose()
}

impl Keeper<'_> {
    /// Carries out an operation.
    pub(super) async fn perform(self, op: Op) -> Done {
        let outcome = match op {
            Op::Look { address } => self.look(&address).await,
            Op::Raise { address } => self.raise(&address).await,
            Op::Put { address, messages } => self.put(&address, messages).await,
            Op::Load { address, waiting } => self.load(&address, waiting).await,
            Op::Remove { address, waiting, delivered } => self.remove(&address, &waiting, delivered).await,
            Op::SetAside { address, waiting, body, reason } => self.set_aside(&address, &waiting, body, &reason).await,
            Op::Forget { address, delivered } => self.forget(&address, &delivered).await,
        };
        outcome.unwrap_or_else(Done::Failed)
    }

    async fn look(self, address: &str) -> Result<Done> {
        self.peers.known().await;
        let found: Option<ActorRecord> = record(self.store, &key::actor(address)).await?;
        let elsewhere = found.as_ref().and_then(|found| self.peers.place_of(found));
        let kept = if found.is_some() { self.list(address).await? } else { Kept::default() };
        Ok(Done::Looked { known: found.is_some(), elsewhere, kept })
    }

    async fn raise(self, address: &str) -> Result<Done> {
        self.peers.settled().await;
        let at = key::actor(address);
        for _ in 0..TRIES {
            let there = self.store.get(&at).await.map_err(failed)?;
            let last: Option<ActorRecord> = match &there {
                Some(object) => Some(serde_json::from_slice(&object.body).map_err(failed)?),
                None => None,
            };
            let version = self.next_version(last.as_ref()).await?;
            let record =
                ActorRecord { address: address.to_owned(), version, server: Some(self.peers.server().to_owned()) };
            let body = serde_json::to_vec(&record).map_err(failed)?;
            let batch = match there {
                Some(object) if self.store.traits().update_if => Batch::new().update(&at, body, object.version),
                Some(_) => Batch::new().put(&at, body),
                None => Batch::new().create(&at, body),
            };
            match self.store.write(batch).await {
                Ok(_) => {
                    self.tell_holder(last.as_ref(), version).await;
                    return Ok(Done::Raised { version, kept: self.list(address).await? });
                }
                // Another server was first.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(String::from("other servers keep registering the same address"))
    }

    /// Returns the version of the next registration: above that of the last one, and of all removed addresses.
    async fn next_version(self, last: Option<&ActorRecord>) -> Result<u64> {
        match last {
            Some(last) => Ok(last.version + 1),
            None => {
                let floor: Option<FloorRecord> = record(self.store, FLOOR).await?;
                Ok(floor.map_or(0, |floor| floor.version) + 1)
            }
        }
    }

    /// Notifies the server of the previous registration.
    async fn tell_holder(self, last: Option<&ActorRecord>, version: u64) {
        let Some(last) = last.filter(|last| self.peers.place_of(last).is_some()) else { return };
        let Some(server) = &last.server else { return };
        let taken = TakenRecord { address: last.address.clone(), version, url: self.peers.url() };
        let body = serde_json::to_vec(&taken).unwrap_or_default();
        let told = self.store.write(Batch::new().put(key::taken(server, &last.address), body)).await;
        if let Err(error) = told {
            warn!(%error, address = last.address, "the former holder of an address could not be notified");
        }
    }

    /// Lists messages and dedup markers of an address, in order.
    async fn list(self, address: &str) -> Result<Kept> {
        let prefix = key::prefix(address);
        let (mut kept, mut after) = (Kept::default(), String::new());
        loop {
            let page = self.store.list(&prefix, &after, LIST_PAGE).await.map_err(failed)?;
            for listed in &page.entries {
                let Some(segment) = listed.key.strip_prefix(&prefix) else { continue };
                let size = usize::try_from(listed.size).unwrap_or(usize::MAX);
                kept.waiting.extend(Waiting::parse(segment).map(|waiting| (waiting, size)));
                kept.delivered.extend(Delivered::parse(segment));
            }
            match page.entries.last() {
                Some(last) if page.more => after.clone_from(&last.key),
                _ => return Ok(kept),
            }
        }
    }

    async fn put(self, address: &str, messages: Vec<(Waiting, Bytes)>) -> Result<Done> {
        self.peers.known().await;
        let keys: Vec<String> = messages.iter().map(|(waiting, _)| key::waiting(address, waiting)).collect();
        // Writing them again is idempotent: the key identifies the message.
        let batch = keys.iter().zip(messages).fold(Batch::new(), |batch, (key, (_, body))| batch.put(key, body));
        self.store.write(batch).await.map_err(failed)?;
        // Read after the write: a registration after this read finds the messages.
        match self.place(address).await? {
            None => Ok(Done::Stored),
            Some(place) => {
                let batch = keys.iter().fold(Batch::new(), |batch, key| batch.delete(key));
                self.store.write(batch).await.map_err(failed)?;
                Ok(Done::Elsewhere(place))
            }
        }
    }

    /// Returns the other server that an address is registered at, if any.
    async fn place(self, address: &str) -> Result<Option<Place>> {
        if !self.peers.has_others() {
            return Ok(None);
        }
        let found: Option<ActorRecord> = record(self.store, &key::actor(address)).await?;
        Ok(found.and_then(|found| self.peers.place_of(&found)))
    }

    async fn load(self, address: &str, waiting: Vec<Waiting>) -> Result<Done> {
        let read = |waiting: Waiting| async move {
            let object = self.store.get(&key::waiting(address, &waiting)).await.map_err(failed)?;
            Ok((waiting, object.map(|object| object.body)))
        };
        let found: Vec<Result<_>> = stream::iter(waiting).map(read).buffered(READ_AT_ONCE).collect().await;
        Ok(Done::Loaded(found.into_iter().collect::<Result<_>>()?))
    }

    async fn remove(self, address: &str, waiting: &Waiting, delivered: Option<Delivered>) -> Result<Done> {
        let mut batch = Batch::new();
        if let Some(delivered) = delivered {
            batch = batch.put(key::delivered(address, &delivered), Bytes::from_static(b"{}"));
        }
        self.store.write(batch.delete(key::waiting(address, waiting))).await.map_err(failed)?;
        Ok(Done::Stored)
    }

    /// Moves a message that cannot be read out of its queue, and logs it.
    async fn set_aside(self, address: &str, waiting: &Waiting, body: Bytes, reason: &str) -> Result<Done> {
        let key = key::unreadable(address, waiting);
        let batch = Batch::new().put(&key, body).delete(key::waiting(address, waiting));
        self.store.write(batch).await.map_err(failed)?;
        error!(key, address, reason, "a queued message cannot be read: it is set aside under this key");
        Ok(Done::Stored)
    }

    async fn forget(self, address: &str, delivered: &[Delivered]) -> Result<Done> {
        for some in delivered.chunks(LIST_PAGE) {
            let batch = some.iter().fold(Batch::new(), |batch, one| batch.delete(key::delivered(address, one)));
            self.store.write(batch).await.map_err(failed)?;
        }
        Ok(Done::Stored)
    }
}
