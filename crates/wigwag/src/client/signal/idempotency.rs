//! Idempotency keys: one signal for each key, however often it is sent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wigwag_core::{Bound, Run, Signal, Time, is_suffix, sha256_hex, stamp_of, suffix};
use wigwag_store::Batch;

use super::message::Message;
use super::send::StoredSignal;
use super::send::least_stamp;
use super::{Receipt, id_in, new_id};
use crate::engine_core::EngineCore;
use crate::error::{Error, ErrorKind, Result};
use crate::log;

/// The stored record of an idempotency key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyFacts {
    pub(crate) signal: String,
    pub(super) payload_sha256: String,
}

/// Returns the signal that was sent under this idempotency key before; another payload is rejected.
async fn sent_before(inner: &EngineCore, message: &Message) -> Result<Option<String>> {
    let Some(key) = &message.key else { return Ok(None) };
    let place = message.place_of_key(key);
    let Some(object) = inner.store.get(&place).await? else { return Ok(None) };
    let known: KeyFacts = serde_json::from_slice(&object.body).map_err(|error| Error::unreadable(&place, error))?;
    if !is_suffix(&known.signal) {
        // A signal stored there would be acknowledged and never found.
        return Err(Error::unreadable(&place, "it names no place in an inbox"));
    }
    if known.payload_sha256 != sha256_hex(&[message.payload.text()]) {
        let what = format!("idempotency key `{key}` was used for another payload of `{}`", message.name);
        return Err(Error::new(ErrorKind::Conflict, what).hint("a new message needs a new key"));
    }
    Ok(Some(known.signal))
}

/// Returns the receipt of a signal that was sent under this key and consumed, whatever the state of the run now.
pub(super) async fn first_receipt(inner: &EngineCore, message: &Message, run: &mut Run) -> Result<Option<Receipt>> {
    let Some(suffix) = sent_before(inner, message).await? else { return Ok(None) };
    log::make_whole(&*inner.store, run).await?;
    let taken = run.taker_of(&suffix).is_some()
        || run.restarts > 0 && log::is_taken_in_log(&*inner.store, &run.run, &message.name, &suffix).await?;
    Ok(taken.then(|| Receipt::of_consumed(suffix, true)))
}

pub(super) async fn put_with_key(
    inner: &Arc<EngineCore>,
    message: &Message,
    run: &Run,
    only: Option<Bound>,
    key: &str,
    now: Time,
) -> Result<StoredSignal> {
    let stamp = least_stamp(inner, message, run, now);
    let id = new_id();
    let own = suffix(stamp, &id);
    let (place, facts) = message.key_facts(key, &own);
    let signal = message.to_signal(id, stamp, only.clone());
    let mut batch = Batch::new().create(&place, facts);
    if inner.store.traits().atomic {
        batch = batch.put(message.signal_key(&own), signal.to_json());
    }
    let error = match inner.store.write(batch).await {
        Ok(_) if inner.store.traits().atomic => {
            return Ok(StoredSignal { suffix: own, repeated: false, only, hinted: false });
        }
        // Without atomic batches it is created conditionally, as in a repeated request: a sender that stalls in between
        // must not overwrite the object of a repeated request.
        Ok(_) => return put_again(inner, message, own.clone(), &own, only).await,
        Err(error) if error.is_exists() || error.kind() == wigwag_store::ErrorKind::Unknown => error,
        Err(error) => return Err(error.into()),
    };
    let Some(known) = sent_before(inner, message).await? else { return Err(error.into()) };
    put_again(inner, message, known, &own, only).await
}

/// Creates the signal of a key, unless it exists: the first attempt may have died before it wrote the signal.
async fn put_again(
    inner: &Arc<EngineCore>,
    message: &Message,
    known: String,
    own: &str,
    only: Option<Bound>,
) -> Result<StoredSignal> {
    let stamp = stamp_of(&known).unwrap_or_default();
    let again = message.to_signal(id_in(&known), stamp, only.clone());
    match inner.store.write(Batch::new().create(message.signal_key(&known), again.to_json())).await {
        Ok(_) => Ok(StoredSignal { repeated: false, suffix: known, only, hinted: false }),
        Err(error) if error.is_exists() || error.kind() == wigwag_store::ErrorKind::Unknown => {
            // Our own response may have been lost; otherwise another attempt has written it.
            let repeated = known != own || error.is_exists();
            let key = message.signal_key(&known);
            let stored = inner.store.get(&key).await?.ok_or(error)?;
            let first = Signal::read(&stored.body).map_err(|refusal| Error::unreadable(&key, refusal))?;
            Ok(StoredSignal { repeated, suffix: known, only: first.only, hinted: false })
        }
        Err(error) => Err(error.into()),
    }
}
