//! A layer: nothing is written to a bucket before it was proven to keep its word.
//!
//! Some servers accept conditional headers and ignore them; on those every promise of wigwag would be void.
//! Before the first write the layer looks for `wigwag.json`. If it is absent, writers race for the same keys,
//! and only if exactly one wins each race the result is remembered in `wigwag.json`. Reading needs no proof.
//!
//! What if we die here? Before `wigwag.json` is created: the next writer proves again; what the races left
//! behind lies under `proof/` and disturbs nobody.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use crate::doctor::{self, Races};
use crate::{
    Action, Batch, Changes, Error, ErrorKind, LAYOUT_KEY, Layout, Now, Object, Page, Peers, Receipt, Result, Store,
    Traits,
};

/// A store that is written to only once it was proven.
#[derive(Debug)]
pub struct Proven<S> {
    inner: S,
    layout: OnceCell<Layout>,
    races: Races,
}

impl<S: Store> Proven<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S) -> Self {
        Self { inner, layout: OnceCell::new(), races: Races::AT_FIRST_USE }
    }

    /// The layout of the store, proving it first if that was never done.
    pub async fn layout(&self) -> Result<&Layout> {
        self.layout.get_or_try_init(|| self.prove()).await
    }

    async fn prove(&self) -> Result<Layout> {
        if let Some(object) = self.inner.get(LAYOUT_KEY).await? {
            return known(&object.body);
        }
        doctor::prove_create_if_absent(&self.inner, self.races).await?;
        let update_if = doctor::proves_update_if(&self.inner).await?;
        let layout = Layout::bucket(update_if, self.inner.now().await?.at, self.races.to_string());
        match self.inner.write(Batch::new().create(LAYOUT_KEY, layout.to_json())).await {
            Ok(_) => Ok(layout),
            Err(error) if error.is_lost() || error.is_unknown() => {
                let stored = self.inner.get(LAYOUT_KEY).await?;
                stored.map_or(Err(error), |object| known(&object.body))
            }
            Err(error) => Err(error),
        }
    }
}

fn known(body: &[u8]) -> Result<Layout> {
    let layout = Layout::read(body)?;
    match &layout.proof {
        Some(proof) if !proof.create_if_absent => {
            Err(Error::new(ErrorKind::Invalid, "the bucket was found not to keep create-if-absent")
                .on(Action::Prove, LAYOUT_KEY))
        }
        _ => Ok(layout),
    }
}

#[async_trait]
impl<S: Store> Store for Proven<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.inner.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        self.layout().await?;
        self.inner.write(batch).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.inner.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        self.inner.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.inner.changes(prefix)
    }

    /// Until the store was proven, `update_if` is not counted on.
    fn traits(&self) -> Traits {
        let proof = self.layout.get().and_then(|layout| layout.proof.as_ref());
        let update_if = self.inner.traits().update_if && proof.is_some_and(|proof| proof.update_if_version);
        Traits { update_if, ..self.inner.traits() }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}
