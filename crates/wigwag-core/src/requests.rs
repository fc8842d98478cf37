//! Store requests of a run, counted as on a bucket.

use serde::{Deserialize, Serialize};

/// Requests to the store, by kind. The stored form omits zero counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Objects written, including rejected puts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub puts: u64,
    /// Objects read, found or not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gets: u64,
    /// Pages of keys listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lists: u64,
    /// Number of deleted objects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deletes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Requests {
    /// Whether nothing was counted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// These and those. Counts that were damaged stay at the end of their range.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self {
            puts: self.puts.saturating_add(more.puts),
            gets: self.gets.saturating_add(more.gets),
            lists: self.lists.saturating_add(more.lists),
            deletes: self.deletes.saturating_add(more.deletes),
        }
    }

    /// The difference to an earlier count.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            puts: self.puts.saturating_sub(earlier.puts),
            gets: self.gets.saturating_sub(earlier.gets),
            lists: self.lists.saturating_sub(earlier.lists),
            deletes: self.deletes.saturating_sub(earlier.deletes),
        }
    }
}
