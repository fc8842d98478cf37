//! Names and ids: validated once where text enters, then trusted.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::limits::{ID_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, TASK_TYPE_BYTES_MAX};

/// Error of a failed validation: the violated rule and the given value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// A validation error with this message.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(80).collect();
    cut.escape_debug().to_string()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn is_word(text: &str, max: usize, allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty()
        && text.len() <= max
        && !text.starts_with('.')
        && !text.ends_with(".json")
        && text.bytes().all(allowed)
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:expr, $rule:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates a text.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Refusal> {
                let text = text.as_ref();
                let good: fn(&str) -> bool = $check;
                if good(text) { Ok(Self(text.into())) } else { Err(Refusal(format!("{}: `{}`", $rule, shown(text)))) }
            }

            /// The text of the name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", self.0)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                Self::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                Self::new(&*text).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_type!(
    /// The name of a run, unique among workflows or among tasks.
    RunId,
    |text| is_word(text, ID_BYTES_MAX, |byte| is_plain(byte) || byte == b':'),
    "not an id (want 1 to 100 of `A-Za-z0-9._-:`, not starting with `.` nor ending in `.json`)"
);

text_type!(
    /// The name of a step, signal, queue or workflow type.
    Name,
    |text| is_word(text, NAME_BYTES_MAX, is_plain),
    "not a name (want 1 to 64 of `A-Za-z0-9._-`, not starting with `.` nor ending in `.json`)"
);

text_type!(
    /// Name of a run's workflow or task (a task's may contain `:`).
    TypeName,
    |text| is_word(text, TASK_TYPE_BYTES_MAX, |byte| is_plain(byte) || byte == b':'),
    "not a type (want 1 to 190 of `A-Za-z0-9._-:`, not starting with `.` nor ending in `.json`)"
);

text_type!(
    /// Position of a record in a run: names joined by `/`, a repeated one with `#2`, `#3`.
    Path,
    is_path,
    "not a point (want names joined by `/`, each perhaps with `#2`, 512 bytes in all)"
);

/// Whether a text consists of names, or of the reserved `.delay` that records a step's delay.
fn is_path(text: &str) -> bool {
    text.len() <= PATH_BYTES_MAX
        && text.split('/').all(|segment| {
            let (name, count) = segment.split_once('#').map_or((segment, None), |(name, count)| (name, Some(count)));
            (is_word(name, NAME_BYTES_MAX, is_plain) || name == ".delay") && count.is_none_or(is_repetition)
        })
}

/// Whether a text is a repetition number without leading zeros: each number has one text.
fn is_repetition(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|number| number >= 2 && number.to_string() == text)
}

/// Digits of generated ids, without letters that are easily confused.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl RunId {
    /// An id that starts with its creation time, so that ids of similar age are adjacent in the store.
    #[must_use]
    pub fn at(time: crate::Time, chance: u128) -> Self {
        let mut bits = (u128::from(time.micros() / 1_000) << 80) | (chance >> 48);
        let mut text = [0_u8; 26];
        for place in text.iter_mut().rev() {
            *place = DIGITS[(bits & 31) as usize];
            bits >>= 5;
        }
        Self(std::str::from_utf8(&text).expect("the digits are ASCII").into())
    }

    /// An id that starts with random digits, so that the keys of many runs spread over the partitions of a bucket. The
    /// rest is as in [`RunId::at`].
    ///
    /// ```
    /// let (time, chance) = ("2026-01-28T12:00:00.000000Z".parse()?, 7_u128);
    /// let (timed, scattered) = (wigwag_core::RunId::at(time, chance), wigwag_core::RunId::scattered(time, chance));
    /// assert!(scattered.as_str().ends_with(timed.as_str()));
    /// # Ok::<(), wigwag_core::Refusal>(())
    /// ```
    #[must_use]
    pub fn scattered(time: crate::Time, chance: u128) -> Self {
        // `at` uses the upper bits of `chance`.
        let lead: String = (0..4).map(|place| char::from(DIGITS[(chance >> (place * 5) & 31) as usize])).collect();
        Self(format!("{lead}{}", Self::at(time, chance)).into())
    }

    /// Derives the id of a step's child; the result is the same on every call.
    ///
    /// A restarted run gives its children new ids, because the old children have ended.
    #[must_use]
    pub fn child(&self, point: &Path, restarts: u32) -> Self {
        let place = point.as_str().replace('#', "::").replace('/', ":");
        let again = if restarts == 0 { String::new() } else { format!("::r{restarts}") };
        Self::new(format!("{self}:{place}{again}"))
            .unwrap_or_else(|_| Self::hashed(&[self.as_str(), point.as_str(), &again]))
    }

    /// Derives an id from its parts.
    #[must_use]
    pub fn hashed(parts: &[&str]) -> Self {
        Self(sha256_hex(parts)[..40].into())
    }
}

impl TypeName {
    /// The type of the task that runs one step of a workflow on another worker.
    pub fn of_step(workflow: &Self, step: &Path) -> Result<Self, Refusal> {
        Self::new(format!("workflow.step:{workflow}:{}", step.as_str().replace('/', ":")))
    }
}

impl From<Name> for TypeName {
    fn from(name: Name) -> Self {
        Self(name.0)
    }
}

impl From<&Name> for Path {
    fn from(name: &Name) -> Self {
        Self(Arc::clone(&name.0))
    }
}

impl Path {
    /// The path of an element below this one.
    pub fn join(&self, below: &str) -> Result<Self, Refusal> {
        let joined = Self::new(format!("{self}/{below}"))?;
        // Reserves space for a repetition number and for `.delay`.
        match joined.as_str().len() > PATH_BYTES_MAX - 32 {
            true => {
                Err(Refusal(format!("a point has at most {} bytes: `{}`", PATH_BYTES_MAX - 32, shown(joined.as_str()))))
            }
            false => Ok(joined),
        }
    }

    /// The path of the nth use of this name.
    #[must_use]
    pub fn repeated(&self, count: u32) -> Self {
        if count < 2 { self.clone() } else { Self(format!("{self}#{count}").into()) }
    }

    /// The path that records this step's delay.
    #[must_use]
    pub fn delay(&self) -> Self {
        Self(format!("{self}/.delay").into())
    }

    /// Whether this path equals `other` or is below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.strip_prefix(&*other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Encodes the path as one segment of a key: short, and different for different paths.
    #[must_use]
    pub fn as_segment(&self) -> String {
        let flat = self.0.replace('/', "~").replace('#', "=");
        if flat.len() <= 100 { flat } else { format!("{}~{}", &flat[..60], &sha256_hex(&[self.as_str()])[..24]) }
    }
}

/// SHA-256 over the parts, each preceded by its length, in hexadecimal.
#[must_use]
pub fn sha256_hex(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first four bytes of SHA-256 of a text, as a number.
#[must_use]
pub fn sha256_u32(text: &str) -> u32 {
    let hash = Sha256::digest(text.as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}
