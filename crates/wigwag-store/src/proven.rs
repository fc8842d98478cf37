//! A layer: nothing is written to a bucket before it was proven to keep its word.
//!
//! Some servers accept conditional headers and ignore them; on those every promise of wigwag would be void.
//! Before the first write the layer reads `wigwag.json`. If it is absent, writers race for the same keys,
//! and only if exactly one wins each race the result is remembered in `wigwag.json`. Reading needs no proof.
//!
//! What if we die here? Before `wigwag.json` is created: the next writer repeats the trials; the remaining
//! objects of the races are under `proof/` and harmless.

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
        let known = self.inner.get(LAYOUT_KEY).await?.map(|object| Layout::read(&object.body)).transpose()?;
        if let Some(known) = known.as_ref().filter(|known| known.proof.is_some()) {
            return accept(known.clone());
        }
        doctor::prove_create_if_absent(&self.inner, self.races).await?;
        let update_if = doctor::proves_update_if(&self.inner).await?;
        let layout = Layout::bucket(update_if, self.inner.now().await?.at, self.races.to_string());
        if let Some(known) = known {
            // Made by a store that had nothing to prove, and copied here: proven now, for as long as we run.
            return Ok(Layout { proof: layout.proof, ..known });
        }
        match self.inner.write(Batch::new().create(LAYOUT_KEY, layout.to_json())).await {
            Ok(_) => Ok(layout),
            Err(error) if error.is_lost() || error.is_unknown() => match self.inner.get(LAYOUT_KEY).await? {
                Some(object) => accept(Layout::read(&object.body)?),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

fn accept(layout: Layout) -> Result<Layout> {
    match &layout.proof {
        Some(proof) if !proof.create_if_absent => {
            let what = "the bucket was found not to keep create-if-absent";
            Err(Error::new(ErrorKind::Invalid, what).on(Action::Prove, LAYOUT_KEY))
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

    /// Until the store is proven, `update_if` is treated as absent.
    fn traits(&self) -> Traits {
        let proof = self.layout.get().and_then(|layout| layout.proof.as_ref());
        let update_if = self.inner.traits().update_if && proof.is_some_and(|proof| proof.update_if_version);
        Traits { update_if, ..self.inner.traits() }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}
