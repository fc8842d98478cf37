//! Access keys of `/s3` and their permissions.
//!
//! Holds: a secret is never shown. It is kept in plain text, because verifying a signature requires it.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::auth::{Caller, Credential};
use crate::error::Error;

/// A secret shorter than this could be guessed.
const SECRET_BYTES_MIN: usize = 16;
const ID_BYTES_MAX: usize = 128;

/// Id and secret of the well-known key on a server without tokens, which is open anyway.
const OPEN: &str = "wigwag";

/// Maximum number of prefixes of one key.
const PREFIXES_MAX: usize = 32;

/// Access keys of `/s3` with their secrets.
///
/// A key with write access outranks every scope, because objects are the state of all runs.
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

/// Permissions of a key.
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
    /// Formats the key without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("access", &self.access).finish_non_exhaustive()
    }
}

impl Key {
    /// Identifies the key with its secret and its limits.
    fn credential(&self) -> Credential {
        let limits = format!("{:?} {:?}", self.id, self.access);
        Sha256::new().chain_update(limits).chain_update(&self.secret).finalize().into()
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }
}

impl S3Keys {
    /// Creates an empty set of keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key that may read and write. The secret has at least 16 bytes.
    pub fn full(self, id: &str, secret: &str) -> Result<Self, Error> {
        self.add(id, secret, Access::all(true))
    }

    /// Adds a read-only key. The secret has at least 16 bytes.
    pub fn read_only(self, id: &str, secret: &str) -> Result<Self, Error> {
        self.add(id, secret, Access::all(false))
    }

    /// Adds a key that is limited to objects under these prefixes, read-only or with write access.
    pub fn limited(self, id: &str, secret: &str, write: bool, prefixes: &[String]) -> Result<Self, Error> {
        let fits = |prefix: &String| !prefix.is_empty() && prefix.len() <= wigwag_store::limits::KEY_BYTES_MAX;
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
            return Err(Error::new(what, "use another id"));
        }
        if secret.len() < SECRET_BYTES_MIN {
            let what =
                format!("the secret of access key `{id}` has at least {SECRET_BYTES_MIN} bytes, got: {}", secret.len());
            return Err(Error::new(what, "generate one with `openssl rand -hex 32`"));
        }
        if self.find(id).is_some() {
            return Err(Error::new(format!("access key `{id}` is configured twice"), "remove one of them"));
        }
        self.keys.push(Key { id: id.to_owned(), secret: secret.to_owned(), access });
        Ok(self)
    }

    /// Adds the well-known key, for a server without authentication.
    pub(crate) fn opened(mut self, write: bool) -> Self {
        if self.find(OPEN).is_none() {
            self.keys.push(Key { id: OPEN.to_owned(), secret: OPEN.to_owned(), access: Access::all(write) });
        }
        self
    }

    /// Returns the caller that has the key with that id and secret.
    pub(crate) fn identify(&self, id: &str, secret: &str) -> Option<Caller> {
        let known = self.find(id).filter(|key| bool::from(key.secret.as_bytes().ct_eq(secret.as_bytes())));
        known.map(|key| Caller::key(id.to_owned(), key.access.prefixes.clone(), key.credential()))
    }

    /// Whether a key with this credential still exists unchanged.
    pub(crate) fn still_has(&self, credential: &Credential) -> bool {
        self.keys.iter().any(|key| key.credential() == *credential)
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
