//! API tokens and JWTs: how a bearer is known.
//!
//! Holds: of a token only its SHA-256 is kept, and it is compared in a time that tells nothing. A JWT's algorithm is that
//! of the key it is checked with, never what it says of itself, and it has an end.

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Caller, Scope};
use crate::error::Error;
use crate::limits::TOKEN_BYTES_MAX;

/// A token shorter than this could be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// Whom the server knows. Empty, it knows nobody and lets everybody in.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    tokens: Vec<Token>,
    keys: Vec<Key>,
    issuer: Option<String>,
    audience: Option<String>,
}

#[derive(Clone)]
struct Token {
    name: String,
    sha256: [u8; 32],
    scopes: Arc<[Scope]>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Key {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// What a JWT must say. Each is read as its type: a text in place of a number does not pass for an absent one.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: u64,
    #[serde(default, rename = "nbf")]
    _nbf: Option<u64>,
    /// Scopes, with spaces between them.
    #[serde(default)]
    scope: String,
}

impl Auth {
    /// Nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is to be kept of a token: its SHA-256 as hexadecimal digits.
    #[must_use]
    pub fn hash(token: &str) -> String {
        Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Knows a token by itself: at least 16 bytes that nobody can guess.
    pub fn token(self, name: &str, token: &str, scopes: impl IntoIterator<Item = Scope>) -> Result<Self, Error> {
        if token.len() < SECRET_BYTES_MIN {
            let what = format!("the token `{name}` has at least {SECRET_BYTES_MIN} bytes, got: {}", token.len());
            return Err(Error::new(what, "make one with `openssl rand -hex 32`"));
        }
        self.token_hash(name, &Self::hash(token), scopes)
    }

    /// Knows a token by its SHA-256; see [`Auth::hash`].
    pub fn token_hash(
        mut self,
        name: &str,
        sha256: &str,
        scopes: impl IntoIterator<Item = Scope>,
    ) -> Result<Self, Error> {
        let wrong = || {
            let what = format!("the hash of token `{name}` is not 64 hexadecimal digits");
            Error::new(what, "make it with `printf %s TOKEN | sha256sum`")
        };
        let digits = sha256.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&sha256[2 * place..2 * place + 2], 16).map_err(|_| wrong())?;
        }
        self.tokens.push(Token { name: name.to_owned(), sha256: bytes, scopes: scopes.into_iter().collect() });
        Ok(self)
    }

    /// Knows JWTs signed with HS256 and this secret of at least 32 bytes.
    pub fn jwt_hs256(self, secret: &[u8]) -> Result<Self, Error> {
        if secret.len() < 32 {
            let what = format!("a secret for HS256 has at least 32 bytes, got: {}", secret.len());
            return Err(Error::new(what, "make one with `openssl rand -hex 32`"));
        }
        Ok(self.key(Algorithm::HS256, DecodingKey::from_secret(secret)))
    }

    /// Knows JWTs signed with EdDSA, by the public key in this PEM text.
    pub fn jwt_eddsa(self, pem: &[u8]) -> Result<Self, Error> {
        let key = DecodingKey::from_ed_pem(pem).map_err(|error| not_a_key("EdDSA", &error))?;
        Ok(self.key(Algorithm::EdDSA, key))
    }

    /// Knows JWTs signed with RS256, by the public key in this PEM text.
    pub fn jwt_rs256(self, pem: &[u8]) -> Result<Self, Error> {
        let key = DecodingKey::from_rsa_pem(pem).map_err(|error| not_a_key("RS256", &error))?;
        Ok(self.key(Algorithm::RS256, key))
    }

    fn key(mut self, algorithm: Algorithm, key: DecodingKey) -> Self {
        self.keys.push(Key { algorithm, key });
        self
    }

    /// Who must have issued a JWT.
    #[must_use]
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        Self { issuer: Some(issuer.into()), ..self }
    }

    /// For whom a JWT must be meant.
    #[must_use]
    pub fn audience(self, audience: impl Into<String>) -> Self {
        Self { audience: Some(audience.into()), ..self }
    }

    /// Whether it knows nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.keys.is_empty()
    }

    /// Who sends this, if it is somebody.
    pub(crate) fn identify(&self, bearer: &str) -> Option<Caller> {
        if bearer.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash = Sha256::digest(bearer);
        // All are compared, whichever fits, so that the time tells nothing.
        let found = self.tokens.iter().fold(None, |found, token| {
            if bool::from(token.sha256.as_slice().ct_eq(hash.as_slice())) { Some(token) } else { found }
        });
        match found {
            Some(token) => Some(Caller::known(token.name.clone(), Arc::clone(&token.scopes))),
            None => self.keys.iter().find_map(|key| self.read(key, bearer)),
        }
    }

    fn read(&self, key: &Key, bearer: &str) -> Option<Caller> {
        let mut rules = Validation::new(key.algorithm);
        rules.validate_nbf = true;
        rules.validate_aud = self.audience.is_some();
        let mut required = vec!["exp"];
        if let Some(issuer) = &self.issuer {
            rules.set_issuer(&[issuer]);
            required.push("iss");
        }
        if let Some(audience) = &self.audience {
            rules.set_audience(&[audience]);
            required.push("aud");
        }
        rules.set_required_spec_claims(&required);
        let claims = jsonwebtoken::decode::<Claims>(bearer, &key.key, &rules).ok()?.claims;
        // A scope of another system is not ours, and gives nothing.
        let scopes = claims.scope.split_whitespace().filter_map(|scope| scope.parse().ok()).collect();
        Some(Caller::known(claims.sub, scopes).until(claims.exp))
    }
}

fn not_a_key(what: &str, error: &jsonwebtoken::errors::Error) -> Error {
    Error::new(format!("not a public key for {what}: {error}"), "give the public key as PEM text")
}
