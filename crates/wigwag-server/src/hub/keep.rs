//! What the hub asks of the store.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use wigwag::store::limits::LIST_PAGE;
use wigwag::store::{Batch, Store};
use wigwag_hub::{Done, Op, Waiting, key};

/// Messages that are read at once.
const READ_AT_ONCE: usize = 16;

/// How often two registrations of one address at different servers may cross.
const TRIES: usize = 8;

/// What is kept of an address.
#[derive(Serialize, Deserialize)]
struct Actor {
    address: String,
    version: u64,
}

type Result<T> = std::result::Result<T, String>;

/// Carries out an operation.
pub(super) async fn perform(store: &dyn Store, op: Op) -> Done {
    let outcome = match op {
        Op::Look { address } => look(store, &address).await,
        Op::Raise { address } => raise(store, &address).await,
        Op::Put { address, messages } => put(store, &address, messages).await,
        Op::Load { address, waiting } => load(store, &address, waiting).await,
        Op::Remove { address, waiting } => remove(store, &address, &waiting).await,
    };
    outcome.unwrap_or_else(Done::Failed)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what errors are mapped with")]
fn failed(error: impl ToString) -> String {
    error.to_string()
}

async fn look(store: &dyn Store, address: &str) -> Result<Done> {
    let known = store.get(&key::actor(address)).await.map_err(failed)?.is_some();
    let waiting = if known { list(store, address).await? } else { Vec::new() };
    Ok(Done::Looked { known, waiting })
}

async fn raise(store: &dyn Store, address: &str) -> Result<Done> {
    let at = key::actor(address);
    for _ in 0..TRIES {
        let there = store.get(&at).await.map_err(failed)?;
        let last = match &there {
            Some(object) => serde_json::from_slice::<Actor>(&object.body).map_err(failed)?.version,
            None => 0,
        };
        let version = last + 1;
        let body = serde_json::to_vec(&Actor { address: address.to_owned(), version }).map_err(failed)?;
        let batch = match there {
            Some(object) if store.traits().update_if => Batch::new().update(&at, body, object.version),
            Some(_) => Batch::new().put(&at, body),
            None => Batch::new().create(&at, body),
        };
        match store.write(batch).await {
            Ok(_) => return Ok(Done::Raised { version, waiting: list(store, address).await? }),
            // Another server has raised it meanwhile.
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(String::from("others register the same address all the time"))
}

/// What waits for an address, in order.
async fn list(store: &dyn Store, address: &str) -> Result<Vec<(Waiting, usize)>> {
    let prefix = key::prefix(address);
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = store.list(&prefix, &after, LIST_PAGE).await.map_err(failed)?;
        for listed in &page.entries {
            let waiting = listed.key.strip_prefix(&prefix).and_then(Waiting::parse);
            found.extend(waiting.map(|waiting| (waiting, usize::try_from(listed.size).unwrap_or(usize::MAX))));
        }
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.key),
            _ => return Ok(found),
        }
    }
}

async fn put(store: &dyn Store, address: &str, messages: Vec<(Waiting, Bytes)>) -> Result<Done> {
    // Put once more they are the same: the key says which message it is.
    let batch = messages
        .into_iter()
        .fold(Batch::new(), |batch, (waiting, body)| batch.put(key::waiting(address, &waiting), body));
    store.write(batch).await.map_err(failed)?;
    Ok(Done::Stored)
}

async fn load(store: &dyn Store, address: &str, waiting: Vec<Waiting>) -> Result<Done> {
    let read = |waiting: Waiting| async move {
        let object = store.get(&key::waiting(address, &waiting)).await.map_err(failed)?;
        Ok((waiting, object.map(|object| object.body)))
    };
    let found: Vec<Result<_>> = stream::iter(waiting).map(read).buffered(READ_AT_ONCE).collect().await;
    Ok(Done::Loaded(found.into_iter().collect::<Result<_>>()?))
}

async fn remove(store: &dyn Store, address: &str, waiting: &Waiting) -> Result<Done> {
    store.write(Batch::new().delete(key::waiting(address, waiting))).await.map_err(failed)?;
    Ok(Done::Stored)
}
