//! Membership: the running servers, at `servers/{id}.json`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::Shared;
use crate::limits::LIST_PAGE;
use crate::{Advertisement, Batch, Result};

pub(super) const PREFIX: &str = "servers/";

/// Number of intervals after which an expired record is deleted.
const DELETED_AFTER: u32 = 10;

/// Records that are read concurrently.
const RECORD_READS_CONCURRENT: usize = 16;

/// The stored form of a server.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    id: String,
    url: String,
    /// Permits notifications only. Its readers can list the bucket anyway.
    key: String,
    at: String,
}

pub(super) fn key(id: &str) -> String {
    format!("{PREFIX}{id}.json")
}

fn id_of(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)?.strip_suffix(".json")
}

impl Shared {
    /// Writes this server's record.
    pub(super) async fn write_record(&self, own: &Advertisement) -> Result<()> {
        let at = self.store.now().await?.at.to_string();
        let Advertisement { id, url, key: token } = own.clone();
        let record = Record { id, url, key: token, at };
        let mut body = serde_json::to_vec(&record).map_err(|error| crate::Error::invalid(error.to_string()))?;
        body.push(b'\n');
        self.store.write(Batch::new().put(key(&own.id), body)).await?;
        Ok(())
    }

    pub(super) async fn remove_record(&self, id: &str) {
        if let Err(error) = self.store.write(Batch::new().delete(key(id))).await {
            debug!(%error, "the record of this server could not be removed; it expires");
        }
    }

    /// The servers whose records have not expired. Only unknown records are read: a server keeps its address.
    pub(super) async fn running(&self, own: Option<&Advertisement>) -> Result<Vec<Advertisement>> {
        let page = self.store.list(PREFIX, "", LIST_PAGE).await?;
        let now = self.store.now().await?;
        let expiry = self.settings.interval * 5 / 4 + now.uncertainty + Duration::from_secs(1);
        let (mut running, mut unknown, mut old) = (Vec::new(), Vec::new(), Batch::new());
        for listed in page.entries {
            let Some(id) = id_of(&listed.key) else { continue };
            let age = now.at.since(listed.modified);
            if age > expiry {
                old = if age > expiry * DELETED_AFTER { old.delete(&listed.key) } else { old };
                continue;
            }
            let known = own.filter(|own| own.id == id).cloned();
            match known.or_else(|| self.state().links.get(id).map(|link| link.server().clone())) {
                Some(server) => running.push(server),
                None => unknown.push(listed.key),
            }
        }
        // At the same time: a short program waits for this before it ends.
        let read = unknown.into_iter().map(|key| async move { self.read_record(&key).await });
        let read: Vec<_> = stream::iter(read).buffered(RECORD_READS_CONCURRENT).try_collect().await?;
        running.extend(read.into_iter().flatten());
        if !old.operations().is_empty() {
            self.store.write(old).await?;
        }
        Ok(running)
    }

    /// Reads a record; a damaged one counts as missing, so that it does not hide the others.
    async fn read_record(&self, key: &str) -> Result<Option<Advertisement>> {
        let Some(object) = self.store.get(key).await? else { return Ok(None) };
        let record = serde_json::from_slice::<Record>(&object.body);
        let record = record.inspect_err(|error| debug!(%error, key, "the record of a server is damaged")).ok();
        let is_usable = |record: &Record| id_of(key) == Some(&*record.id) && is_url(&record.url);
        Ok(record.filter(is_usable).map(|Record { id, url, key, .. }| Advertisement { id, url, key }))
    }
}

/// Whether requests can be made to an address.
fn is_url(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
}

/// The servers to connect to: all of them, or those with the highest rank. All processes compute the same ranks.
pub(super) fn chosen(
    running: Vec<Advertisement>,
    own: Option<&Advertisement>,
    max: usize,
) -> BTreeMap<String, Advertisement> {
    let mut all: BTreeMap<String, Advertisement> =
        running.into_iter().chain(own.cloned()).map(|server| (server.id.clone(), server)).collect();
    let mut ranked: Vec<(u64, String)> = all.keys().map(|id| (rank(id), id.clone())).collect();
    ranked.sort_unstable();
    for (_, id) in ranked.iter().rev().skip(max) {
        all.remove(id);
    }
    all
}

/// A hash of the id (FNV-1a), so that the prefix of its id does not favour a server.
fn rank(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: &str) -> Advertisement {
        Advertisement { id: id.to_owned(), url: format!("http://{id}:1"), key: "k".to_owned() }
    }

    #[test]
    fn all_processes_choose_the_same_servers_whatever_order_they_see_them_in() {
        let all: Vec<Advertisement> = (0..50).map(|number| server(&format!("s{number}"))).collect();
        let one = chosen(all.clone(), None, 32);
        let own = all[7].clone();
        let other = chosen(all.into_iter().rev().collect(), Some(&own), 32);
        assert_eq!(one.len(), 32);
        assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
        let few = chosen(vec![server("a")], Some(&server("b")), 32);
        assert_eq!(few.keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn an_address_is_http_and_has_a_host() {
        for (url, usable) in [
            ("http://10.0.0.7:7070", true),
            ("https://wigwag.example.com", true),
            ("ftp://x", false),
            ("file:///etc/passwd", false),
            ("", false),
        ] {
            assert_eq!(is_url(url), usable, "{url}");
        }
    }

    #[test]
    fn a_record_is_found_by_its_key() {
        assert_eq!(id_of(&key("a1")), Some("a1"));
        for wrong in ["servers/a1", "workers/a1.json", "servers.json"] {
            assert_eq!(id_of(wrong), None, "{wrong}");
        }
    }
}
