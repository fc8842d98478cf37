//! Contents of a write, checked before they reach a store.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{BATCH_OPERATIONS_MAX, BODY_BYTES_MAX, KEY_BYTES_MAX, SEGMENT_BYTES_MAX, STAMP_AHEAD_MAX};
use crate::{Error, Result, STAMP, Stamp, Version};

/// Puts and deletes to be carried out in order.
///
/// At most one put is conditional, and the operations before it must be harmless if it is rejected: on a bucket they
/// have landed by then. The body of a conditional put must be unique to its writer (for instance by a nonce): after a
/// lost response the writer recognises its own write by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Shared by clones, so that a writer can keep one cheaply for a retry.
    pub(crate) operations: Arc<Vec<Operation>>,
    pub(crate) stamp_from: Stamp,
    pub(crate) clear: Arc<Vec<Clear>>,
}

/// A range of keys that must be empty when a batch lands, except for known keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clear {
    /// Prefix of the keys.
    pub prefix: String,
    /// The range starts after this key; at the prefix if it is empty.
    pub after: String,
    /// Keys that may exist in the range.
    pub known: BTreeSet<String>,
}

/// A single operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Writes an object.
    Put(Put),
    /// Removes an object, if it exists.
    Delete(Delete),
}

/// Writes an object whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Key of the object; may contain [`STAMP`] once.
    pub key: String,
    /// Body of the object.
    pub body: Bytes,
    /// Condition of the put.
    pub when: When,
}

/// Removes an object, if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Key of the object.
    pub key: String,
}

/// The condition of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// Replaces an existing object.
    Any,
    /// Only if the key does not exist.
    Absent,
    /// Only if the object is at this version.
    Version(Version),
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put that replaces an existing object.
    #[must_use]
    pub fn put(self, key: impl Into<String>, body: impl Into<Bytes>) -> Self {
        self.put_when(key, body, When::Any)
    }

    /// Adds a put that is rejected with `Exists` if the key exists.
    #[must_use]
    pub fn create(self, key: impl Into<String>, body: impl Into<Bytes>) -> Self {
        self.put_when(key, body, When::Absent)
    }

    /// Adds a put that is rejected with `Changed` unless the object has that version.
    #[must_use]
    pub fn update(self, key: impl Into<String>, body: impl Into<Bytes>, version: Version) -> Self {
        self.put_when(key, body, When::Version(version))
    }

    /// Adds a put on a condition.
    #[must_use]
    pub fn put_when(mut self, key: impl Into<String>, body: impl Into<Bytes>, when: When) -> Self {
        Arc::make_mut(&mut self.operations).push(Operation::Put(Put { key: key.into(), body: body.into(), when }));
        self
    }

    /// Adds a delete; deleting a missing object is no error.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.operations).push(Operation::Delete(Delete { key: key.into() }));
        self
    }

    /// Lets [`STAMP`] become no less than this.
    #[must_use]
    pub fn stamp_from(mut self, least: Stamp) -> Self {
        self.stamp_from = self.stamp_from.max(least);
        self
    }

    /// Rejects the batch with `Changed` if any other key is in the range when it lands.
    ///
    /// Requires an atomic store: elsewhere a batch does not land at one moment, and this is rejected as invalid. A
    /// failed condition of a put is reported first, so that a batch that landed before is recognised by it.
    #[must_use]
    pub fn only_if_clear(mut self, clear: Clear) -> Self {
        Arc::make_mut(&mut self.clear).push(clear);
        self
    }

    /// The operations, in order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The puts, in order.
    pub fn puts(&self) -> impl Iterator<Item = &Put> {
        self.operations.iter().filter_map(Operation::as_put)
    }

    /// The one conditional put, if there is one.
    #[must_use]
    pub fn conditional(&self) -> Option<&Put> {
        self.puts().find(|put| put.when != When::Any)
    }

    /// Total size of the bodies in bytes.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.puts().map(|put| put.body.len()).sum()
    }

    pub(crate) fn wants_stamp(&self) -> bool {
        self.puts().any(|put| has_stamp(&put.key))
    }

    /// The stamp of a batch that is written now.
    ///
    /// A stamp far ahead is rejected: the clock never goes back, and would stay there for all callers.
    pub(crate) fn stamp_at(&self, now: Stamp) -> Result<Stamp> {
        if self.stamp_from > now.after(STAMP_AHEAD_MAX) {
            let what = format!("a stamp is at most an hour ahead of the store's time {now}, got: {}", self.stamp_from);
            return Err(Error::invalid(what));
        }
        Ok(now.max(self.stamp_from))
    }

    /// Fills the placeholder in every key that has it.
    pub(crate) fn fill(&mut self, stamp: Stamp) {
        for operation in Arc::make_mut(&mut self.operations) {
            if let Operation::Put(put) = operation
                && has_stamp(&put.key)
            {
                put.key = put.key.replacen(STAMP, &stamp.to_string(), 1);
            }
        }
    }

    /// The rest of the batch after its first `landed` operations.
    pub(crate) fn rest(&self, landed: usize) -> Self {
        let operations = self.operations.get(landed..).unwrap_or_default().to_vec();
        // The precondition held when the first operation landed.
        let clear = if landed == 0 { Arc::clone(&self.clear) } else { Arc::default() };
        Self { operations: Arc::new(operations), stamp_from: self.stamp_from, clear }
    }

    /// Rejects operations that need an atomic store.
    pub(crate) fn check_parts(&self) -> Result<()> {
        match self.clear.first() {
            None => Ok(()),
            Some(clear) => {
                let what = "batches of this store do not land at one moment: nothing can be kept clear for one";
                Err(Error::invalid(format!("{what}, got: `{}`", clear.prefix)))
            }
        }
    }

    /// A batch of one operation of this batch.
    #[cfg(feature = "testing")]
    pub(crate) fn only(&self, position: usize) -> Self {
        Self { operations: Arc::new(self.operations[position..=position].to_vec()), ..self.clone() }
    }

    /// Rejects a batch that no store may accept, naming the rule.
    pub(crate) fn check(&self) -> Result<()> {
        if self.operations.len() > BATCH_OPERATIONS_MAX {
            let count = self.operations.len();
            return Err(Error::invalid(format!("a batch has at most {BATCH_OPERATIONS_MAX} operations, got: {count}")));
        }
        if self.puts().filter(|put| put.when != When::Any).count() > 1 {
            return Err(Error::invalid("a batch has at most one conditional put"));
        }
        for operation in &*self.operations {
            check_operation(operation)?;
        }
        self.check_keys_differ()
    }

    /// Rejects duplicate keys: stores that check conditions first would depend on the order inside a batch.
    fn check_keys_differ(&self) -> Result<()> {
        let twice = |key: &str| Err(Error::invalid(format!("a batch names a key once, got twice: `{key}`")));
        if self.operations.len() <= 8 {
            // A few compares are cheaper than making a list to sort.
            let pairs = self.operations.iter().enumerate();
            let found =
                pairs.flat_map(|(place, one)| self.operations[place + 1..].iter().map(move |other| (one, other)));
            return match found.map(|(one, other)| (one.key(), other.key())).find(|(one, other)| one == other) {
                Some((key, _)) => twice(key),
                None => Ok(()),
            };
        }
        let mut keys: Vec<&str> = self.operations.iter().map(Operation::key).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => twice(pair[0]),
            None => Ok(()),
        }
    }
}

impl Operation {
    /// The put, if the operation is one.
    #[must_use]
    pub fn as_put(&self) -> Option<&Put> {
        match self {
            Self::Put(put) => Some(put),
            Self::Delete(_) => None,
        }
    }

    /// Key of the operation.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put(put) => &put.key,
            Self::Delete(delete) => &delete.key,
        }
    }
}

impl Clear {
    /// Whether this key violates the precondition.
    pub(crate) fn forbids(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && *key > *self.after && !self.known.contains(key)
    }

    /// The key that those it forbids are not below.
    pub(crate) fn begin(&self) -> &str {
        (&*self.prefix).max(&*self.after)
    }
}

/// Searches for one byte first, which most keys do not contain.
fn has_stamp(key: &str) -> bool {
    key.contains('{') && key.contains(STAMP)
}

fn check_operation(operation: &Operation) -> Result<()> {
    match operation {
        Operation::Delete(delete) => check_key(&delete.key),
        Operation::Put(put) if has_stamp(&put.key) => {
            let filled = put.key.replacen(STAMP, &Stamp::MAX.to_string(), 1);
            if has_stamp(&filled) {
                return Err(Error::invalid(format!("a key holds `{STAMP}` once, got: `{}`", put.key)));
            }
            check_key(&filled)?;
            check_body(put)
        }
        Operation::Put(put) => {
            check_key(&put.key)?;
            check_body(put)
        }
    }
}

fn check_body(put: &Put) -> Result<()> {
    if put.body.len() <= BODY_BYTES_MAX {
        return Ok(());
    }
    let size = put.body.len();
    Err(Error::invalid(format!("a body of `{}` has at most {BODY_BYTES_MAX} bytes, got: {size}", put.key)))
}

/// Refuses a key that some store could not hold, with the rule in the message.
///
/// A key is one or more segments joined by `/`: 1 to 1,024 bytes in all, 1 to 255 each, no control
/// characters, no segment `.` or `..`.
pub fn check_key(key: &str) -> Result<()> {
    match broken_rule(key) {
        None => Ok(()),
        Some(rule) => {
            let shown: String = key.chars().take(80).collect();
            Err(Error::invalid(format!("a key {rule}, got: `{}`", shown.escape_debug())))
        }
    }
}

/// One pass over the bytes: this runs for every key of every write.
fn broken_rule(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("is not empty");
    }
    if key.len() > KEY_BYTES_MAX {
        return Some("has at most 1,024 bytes");
    }
    // U+0080 to U+009F are control characters too: 0xC2 and a byte below 0xA0.
    let bytes = key.as_bytes();
    let mut segment = 0;
    for (place, &byte) in bytes.iter().enumerate() {
        match byte {
            b'/' => {
                if let Some(rule) = broken_segment_rule(&bytes[segment..place]) {
                    return Some(rule);
                }
                segment = place + 1;
            }
            0..0x20 | 0x7F => return Some(NO_CONTROL),
            0xC2 if bytes.get(place + 1).is_some_and(|&next| next < 0xA0) => {
                return Some(NO_CONTROL);
            }
            _ => {}
        }
    }
    broken_segment_rule(&bytes[segment..])
}

const NO_CONTROL: &str = "has no control characters";

fn broken_segment_rule(segment: &[u8]) -> Option<&'static str> {
    match segment {
        [] => Some("has no empty segment, and no `/` at its ends"),
        b"." | b".." => Some("has no segment `.` or `..`"),
        long if long.len() > SEGMENT_BYTES_MAX => Some("has segments of at most 255 bytes"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules as they are written down, without regard to speed.
    fn is_good(key: &str) -> bool {
        let segments: Vec<&str> = key.split('/').collect();
        (1..=1_024).contains(&key.len())
            && !key.chars().any(char::is_control)
            && segments.iter().all(|segment| (1..=255).contains(&segment.len()) && *segment != "." && *segment != "..")
    }

    proptest! {
        #[test]
        fn the_quick_check_of_keys_agrees_with_the_rules(key in "[a.\\-/é\u{7f}\u{80}\u{9f}\u{a0}日\u{0}]{0,12}") {
            prop_assert_eq!(check_key(&key).is_ok(), is_good(&key), "{:?}", key);
        }

        #[test]
        fn any_text_is_accepted_or_rejected_by_the_rules(key in any::<String>()) {
            prop_assert_eq!(check_key(&key).is_ok(), is_good(&key), "{:?}", key);
        }

        #[test]
        fn the_rest_after_any_number_of_operations_contains_the_others(total in 0..20_usize, landed in 0..25_usize) {
            let batch = (0..total).fold(Batch::new(), |batch, number| batch.put(format!("k{number}"), "x"));
            let rest = batch.rest(landed);
            prop_assert_eq!(rest.operations(), &batch.operations()[landed.min(total)..]);
        }

        #[test]
        fn a_stamp_is_filled_once_and_elsewhere_nothing_changes(before in "[a-z/]{0,8}", after in "[a-z_]{0,8}", at in 0..1_u64 << 50) {
            let stamp = Stamp::from_micros(at);
            let key = format!("x{before}{STAMP}{after}");
            let mut batch = Batch::new().put(&key, STAMP).put("plain", "x").delete(&key);
            batch.fill(stamp);
            prop_assert_eq!(batch.operations()[0].key(), format!("x{before}{stamp}{after}"));
            prop_assert_eq!(&*batch.operations()[0].as_put().unwrap().body, STAMP.as_bytes(), "bodies are the caller's");
            prop_assert_eq!((batch.operations()[1].key(), batch.operations()[2].key()), ("plain", &*key));
        }
    }

    #[test]
    fn an_invalid_key_is_rejected_by_the_rule_it_breaks() {
        let long_segment = "x".repeat(256);
        let long_key = ["x"; 600].join("/");
        let cases = [
            ("", "not empty"),
            ("a\0b", "control"),
            ("a\nb", "control"),
            ("a\u{7f}b", "control"),
            ("a\u{85}b", "control"),
            ("/a", "empty segment"),
            ("a/", "empty segment"),
            ("a//b", "empty segment"),
            ("a/../b", "`..`"),
            (".", "`.`"),
            (&long_segment, "255"),
            (&long_key, "1,024"),
        ];
        for (key, rule) in cases {
            let error = check_key(key).unwrap_err().to_string();
            assert!(error.contains(rule), "{key:?}: {error}");
        }
    }

    #[test]
    fn a_good_key_is_accepted() {
        for key in ["a", "a/b", "¡\u{a0}", ".control", "a b", "naïve/日本/🦀", "a..b/...", "due/00/2026~x"] {
            check_key(key).unwrap();
        }
    }

    #[test]
    fn an_invalid_batch_is_rejected_by_the_rule_it_breaks() {
        let cases = [
            (Batch::new().create("a", "1").create("b", "2"), "one conditional"),
            (Batch::new().put("a", "1").delete("a"), "twice"),
            (Batch::new().put("a", vec![0; BODY_BYTES_MAX + 1]), "at most"),
            (Batch::new().put(format!("{STAMP}/{STAMP}"), "1"), "once"),
            (Batch::new().put(format!("{STAMP}{}", "x".repeat(229)), "1"), "255 bytes"),
            ((0..=BATCH_OPERATIONS_MAX).fold(Batch::new(), |b, i| b.delete(i.to_string())), "operations"),
        ];
        for (batch, rule) in cases {
            let error = batch.check().unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
    }
}
