//! API tokens and JWTs: identifies the caller of a bearer token.
//!
//! Holds: only the SHA-256 of a token is kept, and compared in constant time. A JWT's algorithm is that of the configured key,
//! never that of its header. Expiry is required, and an audience unless waived.

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use wigwag::Time;
use wigwag_store::{Clock as _, System};

use wigwag_hub::Access;

use super::{Caller, Credential, Scope};
use crate::error::Error;
use crate::limits::{JWT_LEEWAY_SECONDS, TOKEN_BYTES_MAX};

/// A token shorter than this could be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// Placeholders and guesses. Their hashes are rejected as tokens.
const WELL_KNOWN: [&str; 12] =
    ["", "\n", "test", "token", "secret", "password", "admin", "wigwag", "changeme", "change-me", "TOKEN", "example"];

/// API tokens and JWT keys that the server accepts. If empty, the server requires no authentication.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    tokens: Vec<Token>,
    keys: Vec<Key>,
    issuer: Option<String>,
    audience: Option<String>,
    any_audience: bool,
}

#[derive(Clone)]
struct Token {
    name: String,
    sha256: [u8; 32],
    scopes: Arc<[Scope]>,
    expires: Option<Time>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, scopes, expires, .. } = self;
        let mut shown = f.debug_struct("Token");
        shown.field("name", name).field("scopes", scopes).field("expires", expires).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Key {
    algorithm: Algorithm,
    key: DecodingKey,
    /// SHA-256 of the algorithm and the key.
    sha256: [u8; 32],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// Claims of a JWT. Each is parsed as its type: a string in place of a number is an error, not an absent claim.
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
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hashes a token for storage: SHA-256 as hexadecimal digits.
    #[must_use]
    pub fn hash(token: &str) -> String {
        Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Adds a token in plain text, of at least 16 unguessable bytes.
    pub fn token(self, name: &str, token: &str, scopes: impl IntoIterator<Item = Scope>) -> Result<Self, Error> {
        if token.len() < SECRET_BYTES_MIN {
            let what = format!("the token `{name}` has at least {SECRET_BYTES_MIN} bytes, got: {}", token.len());
            return Err(Error::new(what, "generate one with `wigwag token`"));
        }
        self.token_hash(name, &Self::hash(token), scopes)
    }

    /// Adds a token by its SHA-256; see [`Auth::hash`].
    pub fn token_hash(self, name: &str, sha256: &str, scopes: impl IntoIterator<Item = Scope>) -> Result<Self, Error> {
        self.add(name, sha256, scopes, None)
    }

    /// Adds a token by its SHA-256 with an expiry.
    pub fn token_hash_until(
        self,
        name: &str,
        sha256: &str,
        scopes: impl IntoIterator<Item = Scope>,
        expires: Time,
    ) -> Result<Self, Error> {
        self.add(name, sha256, scopes, Some(expires))
    }

    fn add(
        mut self,
        name: &str,
        sha256: &str,
        scopes: impl IntoIterator<Item = Scope>,
        expires: Option<Time>,
    ) -> Result<Self, Error> {
        let wrong = || {
            let what = format!("the hash of token `{name}` is not 64 hexadecimal digits");
            Error::new(what, "generate the token and its hash with `wigwag token`")
        };
        if name.is_empty() {
            return Err(Error::new("a token has no name", "name it after its holder, such as `ci`"));
        }
        let digits = sha256.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&sha256[2 * place..2 * place + 2], 16).map_err(|_| wrong())?;
        }
        if let Some(word) = WELL_KNOWN.iter().find(|word| Sha256::digest(word).as_slice() == bytes) {
            let what = format!("the hash of token `{name}` is that of the well-known word `{}`", word.escape_debug());
            return Err(Error::new(what, "generate the token and its hash with `wigwag token`"));
        }
        if let Some(other) = self.tokens.iter().find(|known| known.sha256 == bytes) {
            let what = format!("the tokens `{}` and `{name}` have the same hash", other.name);
            return Err(Error::new(what, "generate a token for each with `wigwag token`"));
        }
        self.tokens.push(Token { name: name.to_owned(), sha256: bytes, scopes: scopes.into_iter().collect(), expires });
        Ok(self)
    }

    /// Accepts JWTs signed with HS256 and this secret of at least 32 bytes.
    pub fn jwt_hs256(self, secret: &[u8]) -> Result<Self, Error> {
        if secret.len() < 32 {
            let what = format!("a secret for HS256 has at least 32 bytes, got: {}", secret.len());
            return Err(Error::new(what, "generate one with `openssl rand -hex 32`"));
        }
        Ok(self.key(Algorithm::HS256, DecodingKey::from_secret(secret), secret))
    }

    /// Accepts JWTs signed with EdDSA, verified by the public key in this PEM text.
    pub fn jwt_eddsa(self, pem: &[u8]) -> Result<Self, Error> {
        let key = DecodingKey::from_ed_pem(pem).map_err(|error| not_a_key("EdDSA", &error))?;
        Ok(self.key(Algorithm::EdDSA, key, pem))
    }

    /// Accepts JWTs signed with RS256, verified by the public key in this PEM text.
    pub fn jwt_rs256(self, pem: &[u8]) -> Result<Self, Error> {
        let key = DecodingKey::from_rsa_pem(pem).map_err(|error| not_a_key("RS256", &error))?;
        Ok(self.key(Algorithm::RS256, key, pem))
    }

    fn key(mut self, algorithm: Algorithm, key: DecodingKey, material: &[u8]) -> Self {
        super::verify::install();
        let sha256 = Sha256::new().chain_update(format!("{algorithm:?}:")).chain_update(material).finalize().into();
        self.keys.push(Key { algorithm, key, sha256 });
        self
    }

    /// Required issuer of JWTs.
    #[must_use]
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        Self { issuer: Some(issuer.into()), ..self }
    }

    /// Required audience of JWTs: an issuer signs for many services with one key.
    #[must_use]
    pub fn audience(self, audience: impl Into<String>) -> Self {
        Self { audience: Some(audience.into()), ..self }
    }

    /// Accepts JWTs of any audience: for an issuer that signs for this server alone.
    #[must_use]
    pub fn any_audience(self) -> Self {
        Self { any_audience: true, ..self }
    }

    /// Whether there is no token and no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.keys.is_empty()
    }

    /// Rejects incomplete JWT settings.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let has_rules = self.issuer.is_some() || self.audience.is_some() || self.any_audience;
        if self.keys.is_empty() && has_rules {
            let hint = "name a key: `hs256_secret`, `eddsa_key` or `rs256_key` in `[jwt]`, or leave `[jwt]` out";
            return Err(Error::new("JWT settings without a key to verify tokens with", hint));
        }
        if self.keys.is_empty() || self.any_audience != self.audience.is_some() {
            return Ok(());
        }
        match self.any_audience {
            true => Err(Error::new("JWT `audience` and `any_audience` are both set", "remove one of them")),
            false => Err(Error::new(
                "JWT `audience` is missing: tokens issued for other services would be accepted",
                "set `audience` in `[jwt]`, or `any_audience = true` if the issuer signs for this server alone",
            )),
        }
    }

    /// Returns the caller of a bearer token, if the token is valid.
    pub(crate) fn identify(&self, bearer: &str) -> Option<Caller> {
        if bearer.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash = Sha256::digest(bearer);
        // All tokens are compared, so that the time does not reveal which one matched.
        let found = self.tokens.iter().fold(None, |found, token| {
            if bool::from(token.sha256.as_slice().ct_eq(hash.as_slice())) { Some(token) } else { found }
        });
        match found {
            Some(token) => token.caller(System.wall().micros()),
            None => self.keys.iter().find_map(|key| self.read(key, bearer)),
        }
    }

    fn read(&self, key: &Key, bearer: &str) -> Option<Caller> {
        let mut rules = Validation::new(key.algorithm);
        rules.leeway = JWT_LEEWAY_SECONDS;
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
        // Scopes of other systems are ignored.
        let scopes = claims.scope.split_whitespace().filter_map(|scope| scope.parse().ok()).collect();
        // A quorum counts names, so the name must not be empty.
        if claims.sub.is_empty() {
            return None;
        }
        // An open connection ends when a new one would be rejected.
        let until = claims.exp.saturating_add(JWT_LEEWAY_SECONDS);
        Some(Caller::known(claims.sub, scopes, self.jwt_credential(key)).until(until))
    }

    /// Identifies a signing key together with the rules for its JWTs.
    fn jwt_credential(&self, key: &Key) -> Credential {
        let rules = format!("{:?} {:?} {}", self.issuer, self.audience, self.any_audience);
        Sha256::new().chain_update(key.sha256).chain_update(rules).finalize().into()
    }

    /// Whether a caller that was identified earlier would be identified the same way now.
    pub(crate) fn still_knows(&self, caller: &Caller) -> bool {
        let Some(credential) = caller.credential() else { return self.is_empty() };
        let now = System.wall().micros();
        if caller.expires().is_some_and(|until| until.saturating_mul(1_000_000) <= now) {
            return false;
        }
        let is_token = |token: &Token| token.sha256 == *credential && Some(token.scopes.as_ref()) == caller.scopes();
        self.tokens.iter().any(is_token) || self.keys.iter().any(|key| self.jwt_credential(key) == *credential)
    }

    /// Whether a hub session with this access would get the same access now. Expiry is up to the hub.
    pub(crate) fn still_grants(&self, access: &Access) -> bool {
        match access {
            Access::Nobody => true,
            Access::Open => self.is_empty(),
            Access::Known(rights) => {
                let is_token = |token: &Token| match token.identity().access() {
                    Access::Known(now) => token.sha256 == rights.credential && now == *rights,
                    _ => false,
                };
                self.tokens.iter().any(is_token)
                    || self.keys.iter().any(|key| self.jwt_credential(key) == rights.credential)
            }
        }
    }
}

impl Token {
    /// Returns the token's caller, unless the token has expired.
    fn caller(&self, now_micros: u64) -> Option<Caller> {
        let has_expired = self.expires.is_some_and(|expires| expires.micros() <= now_micros);
        (!has_expired).then(|| self.identity())
    }

    /// Returns the token's caller.
    fn identity(&self) -> Caller {
        let caller = Caller::known(self.name.clone(), Arc::clone(&self.scopes), self.sha256);
        match self.expires {
            None => caller,
            Some(expires) => caller.until(expires.micros() / 1_000_000),
        }
    }
}

fn not_a_key(what: &str, error: &jsonwebtoken::errors::Error) -> Error {
    Error::new(format!("not a public key for {what}: {error}"), "give the public key as PEM text")
}
