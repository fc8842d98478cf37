//! Bytes by key, in key order, with one conditional write.
//!
//! A [`Store`] is independent of its content. There are three: [`Memory`] (the executable specification), [`Embedded`]
//! (a directory shared by several processes of one machine) and [`Bucket`] (S3 and compatible services). The layers
//! [`Retry`], [`Meter`], [`Prefix`], [`Proven`] and [`Announced`] wrap any of them; [`open()`] adds the usual ones
//! around the store that a URL names.
//!
//! ```
//! use wigwag_store::{Batch, Memory, Store};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = Memory::new();
//! store.write(Batch::new().create("greeting", "hello")).await?;
//!
//! let refused = store.write(Batch::new().create("greeting", "goodbye")).await.unwrap_err();
//! assert!(refused.is_exists());
//! assert_eq!(store.get("greeting").await?.unwrap().body, "hello");
//! # Ok::<(), wigwag_store::Error>(()) }).unwrap();
//! ```
//!
//! Guarantees of every store, tested by `conformance`:
//!
//! - **Durable on return.** `write` returns when the batch survives a power cut.
//! - **Strong consistency.** A read or list that starts after a write returned sees it.
//! - **A batch is atomic if the store can do that** ([`Traits::atomic`]). Otherwise it is executed in order and stops
//!   at the first failure, so callers order it such that every prefix of it is harmless.
//! - **Time is the store's**, never the caller's wall clock, and never goes back.

mod batch;
mod changes;
mod clock;
mod error;
#[cfg(feature = "_bucket")]
mod events;
pub mod limits;
mod stamp;

#[cfg(feature = "_bucket")]
mod bucket;
#[cfg(feature = "embedded")]
mod embedded;
mod memory;

#[cfg(feature = "testing")]
mod faulty;
#[cfg(feature = "_bucket")]
mod fleet;
mod meter;
mod notices;
#[cfg(feature = "remote")]
mod nudged;
mod prefix;
mod proven;
mod retry;

#[cfg(feature = "testing")]
pub mod conformance;
pub mod doctor;
mod layout;
mod open;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use batch::{Batch, Clear, Delete, Operation, Put, When, check_key};
#[cfg(feature = "_bucket")]
pub use bucket::{Bucket, BucketSettings};
pub use changes::{Change, Changes};
pub use clock::{Clock, System};
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, EmbeddedSettings, Vacuumed, lock_descriptors};
pub use error::{Action, Error, ErrorKind, Result};
#[cfg(feature = "testing")]
pub use faulty::{Faults, Faulty};
#[cfg(feature = "_bucket")]
pub use fleet::{Fleet, FleetSettings, flush_notifications};
pub use layout::{LAYOUT_KEY, Layout, Proof};
pub use memory::Memory;
pub use meter::{Cost, Meter, Usage};
pub use notices::{Advertisement, Announced, Notices, Notifier, WeakNotices};
#[cfg(feature = "remote")]
pub use nudged::{COVERAGE_HEADER, Nudged};
pub use open::{OpenSettings, Opened, open};
pub use prefix::Prefix;
pub use proven::Proven;
pub use retry::{Retry, RetrySettings};
pub use stamp::{STAMP, Stamp};

/// Bytes by key, in key order, with one conditional write.
///
/// No method has a default: a wrapper that forgot one would silently bypass the store inside it.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reads one object; `None` when there is none.
    async fn get(&self, key: &str) -> Result<Option<Object>>;

    /// Executes a batch and returns when it is durable.
    async fn write(&self, batch: Batch) -> Result<Receipt>;

    /// Lists keys that start with `prefix` and sort after `after` (empty: from the start), in byte order.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page>;

    /// Returns the store's time and its maximum error.
    async fn now(&self) -> Result<Now>;

    /// Follows puts under a prefix by notifications, which may be dropped or never sent ([`Traits::notifications`]).
    fn changes(&self, prefix: &str) -> Changes;

    /// Returns the optional capabilities of this store.
    fn traits(&self) -> Traits;

    /// The processes that share this store, where they can prove that they live.
    fn peers(&self) -> Option<Arc<dyn Peers>>;
}

/// Processes of one machine that share a store and prove by an OS lock that they live.
///
/// The lock is released when the process ends for any reason, so that its end is known at once and not after a lease.
pub trait Peers: fmt::Debug + Send + Sync + 'static {
    /// The name of this process among its peers.
    fn me(&self) -> &str;

    /// Whether the process of that name still holds its lock.
    fn is_alive(&self, peer: &str) -> bool;

    /// The names of all processes that hold theirs, in order.
    fn living(&self) -> Vec<String>;
}

/// An object with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Body of the object.
    pub body: Bytes,
    /// Version for [`When::Version`].
    pub version: Version,
    /// Time of the write, by the store's clock; to the second on some buckets.
    pub modified: Stamp,
}

/// Marks one state of one key. Only equality has a meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub(crate) VersionForm);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VersionForm {
    /// The stamp of the put: memory and embedded.
    Stamp(Stamp),
    /// The entity tag and version of a bucket.
    Tag { e_tag: Option<String>, version: Option<String> },
}

impl Version {
    pub(crate) fn stamp(stamp: Stamp) -> Self {
        Self(VersionForm::Stamp(stamp))
    }

    /// Represents an unknown version. It matches no object.
    pub(crate) fn lost() -> Self {
        Self(VersionForm::Tag { e_tag: None, version: None })
    }

    /// The version as a text of letters, digits and dots, for wire formats.
    #[must_use]
    pub fn to_tag(&self) -> String {
        let hex = |part: &Option<String>| -> String {
            part.iter().flat_map(|text| text.bytes()).map(|byte| format!("{byte:02x}")).collect()
        };
        match &self.0 {
            VersionForm::Stamp(stamp) => format!("s{:x}", stamp.micros()),
            VersionForm::Tag { e_tag, version } => format!("t{}.{}", hex(e_tag), hex(version)),
        }
    }

    /// Reads what [`Version::to_tag`] wrote; `None` if it was written by something else.
    #[must_use]
    pub fn from_tag(tag: &str) -> Option<Self> {
        if !tag.bytes().all(|byte| byte == b'.' || byte.is_ascii_alphanumeric()) {
            return None;
        }
        if let Some(micros) = tag.strip_prefix('s') {
            return u64::from_str_radix(micros, 16).ok().map(|micros| Self::stamp(Stamp::from_micros(micros)));
        }
        let (e_tag, version) = tag.strip_prefix('t')?.split_once('.')?;
        let text = |hex: &str| -> Option<Option<String>> {
            let bytes = hex.as_bytes().chunks(2).map(|pair| {
                let digits = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
                u8::from_str_radix(digits, 16).ok()
            });
            let text = String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()?;
            Some(Some(text).filter(|text| !text.is_empty()))
        };
        Some(Self(VersionForm::Tag { e_tag: text(e_tag)?, version: text(version)? }))
    }
}

/// Result of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Receipt {
    /// Value of the placeholder [`STAMP`], if a key of the batch contained it.
    pub stamp: Option<Stamp>,
    /// The new version of each put, in the order of the puts.
    pub versions: Vec<Version>,
}

/// A page of keys, in order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Page {
    /// The keys, in byte order.
    pub entries: Vec<Listed>,
    /// Whether there may be more after the last one.
    pub more: bool,
}

/// A key of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Key of the object.
    pub key: String,
    /// The size of its body in bytes.
    pub size: u64,
    /// Time of the write, by the store's clock; to the second on some buckets.
    pub modified: Stamp,
}

/// The store's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The estimate; it never decreases for one handle.
    pub at: Stamp,
    /// The true time is at most this far from the estimate, either way.
    pub uncertainty: Duration,
}

/// Optional capabilities of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Kind of the store, in one word.
    pub kind: &'static str,
    /// A batch lands whole or not at all.
    pub atomic: bool,
    /// [`STAMP`] is filled inside the commit, so that stamps order as acknowledgements do.
    pub stamps_at_commit: bool,
    /// [`When::Version`] works.
    pub update_if: bool,
    /// Puts that [`Store::changes`] announces at present.
    pub notifications: Notifications,
}

/// Puts that a store announces, from none to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notifications {
    /// No notifications: poll.
    Silent,
    /// Writes of this process. Poll for writes of other processes.
    Process,
    /// Writes of this process, and of other processes through servers; some may be lost unnoticed. Poll rarely.
    Fleet,
    /// Writes of all processes; a gap is reported. Poll only as a safety net.
    Complete,
}

impl Notifications {
    /// Whether all puts are announced, or a gap reported.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self == Self::Complete
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        (**self).get(key).await
    }
    async fn write(&self, batch: Batch) -> Result<Receipt> {
        (**self).write(batch).await
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        (**self).list(prefix, after, limit).await
    }
    async fn now(&self) -> Result<Now> {
        (**self).now().await
    }
    fn changes(&self, prefix: &str) -> Changes {
        (**self).changes(prefix)
    }
    fn traits(&self) -> Traits {
        (**self).traits()
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        (**self).peers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_parses_from_its_tag_and_from_no_other_text() {
        let tag = |e_tag: Option<&str>, version: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            Version(VersionForm::Tag { e_tag: owned(e_tag), version: owned(version) })
        };
        let versions = [
            Version::stamp(Stamp::from_micros(1_769_600_000_000_001)),
            Version::lost(),
            tag(Some("\"9b2c-1\""), None),
            tag(Some("\"é\""), Some("17")),
        ];
        for version in versions {
            assert_eq!(Version::from_tag(&version.to_tag()), Some(version));
        }
        for wrong in ["", "s", "sxyz", "t", "t6", "t6.", "tzz.", "\"s1\"", "t+1.", "1769600000000001"] {
            assert_eq!(Version::from_tag(wrong), None, "{wrong}");
        }
    }
}
