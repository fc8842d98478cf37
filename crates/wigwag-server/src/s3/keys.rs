//! Access keys: who may use `/s3`, and for what.
//!
//! Holds: a secret is shown nowhere. It is kept as it was given, because a signature can be checked with nothing less.

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use crate::error::Error;

/// A secret shorter than this could be guessed.
const SECRET_BYTES_MIN: usize = 16;
const ID_BYTES_MAX: usize = 128;

/// What a server without tokens lets in, as it lets in everybody.
const OPEN: &str = "wigwag";

/// Maximum number of prefixes of one key.
const PREFIXES_MAX: usize = 32;

/// Who may use `/s3`: access keys with their secrets.
///
/// A key with write access is above every scope, because objects are the state of all runs.
#[derive(Clone, Debug, Default)]
pub struct S3Keys {
    keys: Vec<Key>,
}

#[derive(Clone)]
pub(crate) struct Key {
    id: String,
    secret: String,
    access: Access,
}

/// What a key may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) write: bool,
    /// Limits access to objects under these prefixes; all objects if `None`.
    pub(crate) prefixes: Option<Arc<[String]>>,
}

impl Access {
    /// Access to all objects.
    pub(crate) fn all(write: bool) -> Self {
        Self { write, prefixes: None }
    }

    /// Whether a key, or a listing's prefix, is within the limits.
    pub(crate) fn covers(&self, key: &str) -> bool {
        self.prefixes.as_ref().is_none_or(|prefixes| prefixes.iter().any(|prefix| key.starts_with(prefix.as_str())))
    }
}

impl fmt::Debug for Key {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("access", &self.access).finish_non_exhaustive()
    }
}

impl Key {
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }
}

impl S3Keys {
    /// No key yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A key that may read and write. The secret has at least 16 bytes.
    pub fn full(self, id: &str, secret: &str) -> Result<Self, Error> {
        self.add(id, secret, Access::all(true))
    }

    /// A key that may only read. The secret has at least 16 bytes.
    pub fn read_only(self, id: &str, secret: &str) -> Result<Self, Error> {
        self.add(id, secret, Access::all(false))
    }

    /// A key limited to objects under these prefixes, read-only or with write access.
    pub fn limited(self, id: &str, secret: &str, write: bool, prefixes: &[String]) -> Result<Self, Error> {
        let fits = |prefix: &String| !prefix.is_empty() && prefix.len() <= wigwag::store::limits::KEY_BYTES_MAX;
        if prefixes.is_empty() || prefixes.len() > PREFIXES_MAX || !prefixes.iter().all(fits) {
            let what = format!("access key `{id}` is limited to 1 to {PREFIXES_MAX} prefixes, none of them empty");
            return Err(Error::new(what, "write them like `prefixes = [\"workflow/\"]`, or leave them out"));
        }
        self.add(id, secret, Access { write, prefixes: Some(prefixes.into()) })
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn add(mut self, id: &str, secret: &str, access: Access) -> Result<Self, Error> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(fits) {
            let shown: String = id.escape_debug().take(80).collect();
            let what = format!("an access key id has 1 to {ID_BYTES_MAX} of `A-Za-z0-9-_.`, got: `{shown}`");
            return Err(Error::new(what, "choose another id"));
        }
        if secret.len() < SECRET_BYTES_MIN {
            let what =
                format!("the secret of access key `{id}` has at least {SECRET_BYTES_MIN} bytes, got: {}", secret.len());
            return Err(Error::new(what, "make one with `openssl rand -hex 32`"));
        }
        if self.find(id).is_some() {
            return Err(Error::new(format!("access key `{id}` is given twice"), "leave one of them out"));
        }
        self.keys.push(Key { id: id.to_owned(), secret: secret.to_owned(), access });
        Ok(self)
    }

    /// The same, and what everybody knows: for a server that lets everybody in anyway.
    pub(crate) fn opened(mut self, write: bool) -> Self {
        if self.find(OPEN).is_none() {
            self.keys.push(Key { id: OPEN.to_owned(), secret: OPEN.to_owned(), access: Access::all(write) });
        }
        self
    }

    /// Returns the prefixes of the key with that id and secret.
    pub(crate) fn identify(&self, id: &str, secret: &str) -> Option<Option<Arc<[String]>>> {
        let known = self.find(id).filter(|key| bool::from(key.secret.as_bytes().ct_eq(secret.as_bytes())));
        known.map(|key| key.access.prefixes.clone())
    }

    pub(super) fn find(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_refused_by_the_rule_it_breaks_and_never_shown() {
        let good = "0123456789abcdef";
        let cases = [("", good, "1 to 128"), ("a/b", good, "1 to 128"), ("a", "short", "at least 16")];
        for (id, secret, rule) in cases {
            let error = S3Keys::new().full(id, secret).unwrap_err();
            assert!(error.to_string().contains(rule), "{error}");
            assert!(!error.to_string().contains("short"), "{error}");
        }
        let keys = S3Keys::new().full("a", good).unwrap();
        assert!(keys.clone().read_only("a", good).unwrap_err().to_string().contains("twice"));
        assert!(!format!("{keys:?}").contains(good), "{keys:?}");
        let knows = |keys: &S3Keys, id: &str, secret: &str| keys.identify(id, secret).is_some();
        assert!(knows(&keys, "a", good) && !knows(&keys, "a", "0123456789abcdeF") && !knows(&keys, "b", good));
        assert!(!knows(&keys, "wigwag", "wigwag") && knows(&keys.opened(false), "wigwag", "wigwag"));
    }

    #[test]
    fn a_key_is_limited_to_its_prefixes() {
        let good = "0123456789abcdef";
        let limited = |prefixes: &[&str]| {
            let prefixes: Vec<String> = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
            S3Keys::new().limited("a", good, false, &prefixes)
        };
        for wrong in [&[][..], &[""], &["x/", ""]] {
            assert!(limited(wrong).is_err(), "{wrong:?}");
        }
        let keys = limited(&["workflow/", "done/"]).unwrap();
        let access = keys.find("a").unwrap().access();
        for inside in ["workflow/", "workflow/a/state.json", "done/x"] {
            assert!(access.covers(inside), "{inside}");
        }
        for outside in ["", "workflow", "task/a", "x/workflow/"] {
            assert!(!access.covers(outside), "{outside}");
        }
    }
}
