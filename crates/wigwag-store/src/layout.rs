//! `wigwag.json`: what a store is laid out as, written once.

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result, Stamp};

/// The key that holds the layout.
pub const LAYOUT_KEY: &str = "wigwag.json";

/// The version of the layout of keys that this code reads and writes.
const VERSION: u32 = 1;

/// Layout of a store. Created once, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The version of the layout of keys.
    pub layout: u32,
    /// Over how many prefixes hot keys are spread.
    pub shards: u16,
    /// Result of the trials before the first write; absent if the store needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// Observed behaviour of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Whether creating an existing key was rejected, also in races. A bucket without this is not used.
    pub create_if_absent: bool,
    /// Whether updating a key at another version was rejected.
    pub update_if_version: bool,
    /// Time of the proof, by the store's clock.
    pub at: String,
    /// Number of racing writers and of races.
    pub races: String,
}

impl Layout {
    /// The layout of a store on one machine: nothing to spread, nothing to prove.
    #[must_use]
    pub fn embedded() -> Self {
        Self { layout: VERSION, shards: 1, proof: None }
    }

    /// The layout of a bucket that was proven.
    #[must_use]
    pub fn bucket(update_if_version: bool, at: Stamp, races: String) -> Self {
        let proof = Proof { create_if_absent: true, update_if_version, at: at.to_string(), races };
        Self { layout: VERSION, shards: 4, proof: Some(proof) }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a layout is numbers, strings and flags");
        json.push(b'\n');
        json
    }

    /// Decodes the object at [`LAYOUT_KEY`].
    pub fn read(body: &[u8]) -> Result<Self> {
        let layout: Self = serde_json::from_slice(body).map_err(|error| {
            Error::new(ErrorKind::Damaged, format!("`{LAYOUT_KEY}` is not what wigwag writes: {error}"))
                .hint("this is not a wigwag store, or its mark was overwritten; nothing was changed")
        })?;
        if layout.layout != VERSION {
            let what = format!("the store has layout {}; this version of wigwag reads layout {VERSION}", layout.layout);
            return Err(Error::new(ErrorKind::Damaged, what).hint("use the version of wigwag that made it"));
        }
        Ok(layout)
    }
}
