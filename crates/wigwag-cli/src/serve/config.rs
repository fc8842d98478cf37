//! `wigwag.toml`, the configuration file. Flags and environment variables override it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use wigwag::{LinkSecret, Time};
use wigwag_server::{Auth, Credentials, S3Keys, Scope, Tls};

use crate::args::Serve;
use crate::commands::link_secret;
use crate::error::Failed;
use crate::input;

/// Default configuration file.
const USUAL: &str = "wigwag.toml";

/// All settings of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) store: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    pub(super) bind: Option<String>,
    pub(super) public_url: Option<String>,
    pub(super) advertise: Option<String>,
    #[serde(default)]
    pub(super) origins: Vec<String>,
    #[serde(default)]
    pub(super) insecure: bool,
    #[serde(default)]
    pub(super) s3_write: bool,
    #[serde(default)]
    pub(super) trusted_proxies: Vec<IpAddr>,
    pub(super) keep: Option<String>,
    hub_rate: Option<toml::Value>,
    hub_token_rate: Option<toml::Value>,
    address_rate: Option<toml::Value>,
    token_rate: Option<toml::Value>,
    tls: Option<TlsFiles>,
    jwt: Option<Jwt>,
    links: Option<Links>,
    #[serde(default, rename = "token")]
    tokens: Vec<Token>,
    #[serde(default, rename = "s3_key")]
    s3_keys: Vec<S3Key>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// Paths of the link secrets: the signing one, and the previous one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Links {
    secret: PathBuf,
    previous: Option<PathBuf>,
}

/// A token, identified by its hash.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    name: String,
    sha256: String,
    scopes: Vec<String>,
    #[serde(default, deserialize_with = "any_time")]
    expires: Option<Time>,
}

/// Reads a time in RFC 3339, as people write it: the offset and the fraction of a second are free.
fn any_time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
    let text = String::deserialize(from)?;
    input::time(&text).map(Some).map_err(|wrong| serde::de::Error::custom(wrong.replace("\nhint:", ":")))
}

/// An access key of `/s3`. Checking signatures needs the secret itself, so it lives in a separate file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct S3Key {
    id: String,
    secret: PathBuf,
    /// Allows writes; default: read-only.
    #[serde(default)]
    write: bool,
    /// Limits the key to objects under these prefixes.
    prefixes: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Jwt {
    hs256_secret: Option<PathBuf>,
    eddsa_key: Option<PathBuf>,
    rs256_key: Option<PathBuf>,
    issuer: Option<String>,
    audience: Option<String>,
    #[serde(default)]
    any_audience: bool,
}

impl Config {
    /// Reads the given file, or the default one if it exists. Relative paths start from its folder.
    pub(super) fn read(named: Option<&Path>) -> Result<Self, Failed> {
        let path = named.unwrap_or(Path::new(USUAL));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => return Ok(Self::default()),
            Err(error) => return Err(unreadable(path, &error)),
        };
        let mut config = Self::parse(&text).map_err(|error| {
            Failed::wrong(format!(
                "invalid configuration file `{}`: {}",
                path.display(),
                crate::output::line(error.message())
            ))
            .hint(format!("check line {}; the settings are documented in docs/server.md", line_of(&text, &error)))
        })?;
        config.start_from(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    fn start_from(&mut self, folder: &Path) {
        let from = |path: &mut PathBuf| *path = folder.join(&*path);
        if let Some(tls) = &mut self.tls {
            from(&mut tls.cert);
            from(&mut tls.key);
            tls.client_ca.iter_mut().for_each(from);
        }
        if let Some(links) = &mut self.links {
            from(&mut links.secret);
            links.previous.iter_mut().for_each(from);
        }
        if let Some(jwt) = &mut self.jwt {
            [&mut jwt.hs256_secret, &mut jwt.eddsa_key, &mut jwt.rs256_key].into_iter().flatten().for_each(from);
        }
        self.s3_keys.iter_mut().for_each(|key| from(&mut key.secret));
    }

    /// Whom the server knows.
    pub(super) fn auth(&self) -> Result<Auth, Failed> {
        let mut auth = Auth::new();
        for token in &self.tokens {
            let scopes = token.scopes.iter().map(|scope| scope.parse::<Scope>()).collect::<Result<Vec<_>, _>>();
            let scopes = scopes.map_err(|wrong| {
                Failed::wrong(format!("token `{}`: {wrong}", token.name)).hint("generate it with `wigwag token`")
            })?;
            auth = match token.expires {
                Some(expires) => auth.token_hash_until(&token.name, &token.sha256, scopes, expires)?,
                None => auth.token_hash(&token.name, &token.sha256, scopes)?,
            };
        }
        match &self.jwt {
            Some(jwt) => jwt.add_to(auth),
            None => Ok(auth),
        }
    }

    /// Returns everything that a reload replaces.
    pub(super) fn credentials(&self, wanted: &Serve) -> Result<Credentials, Failed> {
        let mut credentials = Credentials::default();
        credentials.auth = self.auth()?;
        credentials.s3 = self.s3_keys()?;
        credentials.tls = self.tls(wanted)?;
        Ok(credentials)
    }

    /// Returns the link secrets, from the environment or else from the files that `[links]` names.
    pub(super) fn link_secret(&self) -> Result<Option<LinkSecret>, Failed> {
        let by_environment = link_secret()?;
        let Some(links) = self.links.as_ref().filter(|_| by_environment.is_none()) else { return Ok(by_environment) };
        let secret = LinkSecret::new(read_secret(&links.secret)?.trim_ascii())?;
        let Some(previous) = &links.previous else { return Ok(Some(secret)) };
        Ok(Some(secret.accepting(read_secret(previous)?.trim_ascii())?))
    }

    /// Users with access to the store as a bucket.
    pub(super) fn s3_keys(&self) -> Result<S3Keys, Failed> {
        let mut keys = S3Keys::new();
        for key in &self.s3_keys {
            let secret = read_secret(&key.secret)?;
            let secret = std::str::from_utf8(secret.trim_ascii()).map_err(|_| {
                Failed::wrong(format!("`{}` is not valid UTF-8", key.secret.display()))
                    .hint("a secret is one line of text")
            })?;
            keys = match (&key.prefixes, key.write) {
                (Some(prefixes), write) => keys.limited(&key.id, secret, write, prefixes),
                (None, true) => keys.full(&key.id, secret),
                (None, false) => keys.read_only(&key.id, secret),
            }?;
        }
        Ok(keys)
    }

    /// A certificate, if one is given by flag or file.
    pub(super) fn tls(&self, wanted: &Serve) -> Result<Option<Tls>, Failed> {
        let by_file = self.tls.as_ref().map(|tls| (&tls.cert, &tls.key));
        let client_ca = wanted.tls_client_ca.as_ref().or(self.tls.as_ref().and_then(|tls| tls.client_ca.as_ref()));
        let tls = match (wanted.tls_cert.as_ref().zip(wanted.tls_key.as_ref()).or(by_file), client_ca) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                return Err(Failed::wrong("clients are to have certificates, and the server has none")
                    .hint("give it `--tls-cert` and `--tls-key`"));
            }
            (Some((cert, key)), None) => Tls::from_pem(&read(cert)?, &read_secret(key)?),
            (Some((cert, key)), Some(ca)) => Tls::with_client_authority(&read(cert)?, &read_secret(key)?, &read(ca)?),
        };
        Ok(Some(tls?))
    }

    /// How long finished runs are kept.
    pub(super) fn keep(&self) -> Result<Option<std::time::Duration>, Failed> {
        let wrong = |what: String| {
            let what = what.split('\n').next().unwrap_or_default().to_owned();
            Failed::wrong(format!("`keep` in the configuration file: {what}")).hint("write it like `30d`")
        };
        self.keep.as_deref().map(input::span).transpose().map_err(wrong)
    }

    /// Returns the hub's message rate: a number or `"off"`.
    pub(super) fn hub_rate(&self) -> Result<Option<input::Rate>, Failed> {
        rate("hub_rate", self.hub_rate.as_ref())
    }

    /// Returns the hub's message rate: a number or `"off"`.
    pub(super) fn hub_token_rate(&self) -> Result<Option<input::Rate>, Failed> {
        rate("hub_token_rate", self.hub_token_rate.as_ref())
    }

    /// Requests per second of one address.
    pub(super) fn address_rate(&self) -> Result<Option<input::Rate>, Failed> {
        rate("address_rate", self.address_rate.as_ref())
    }

    /// Requests per second of one token.
    pub(super) fn token_rate(&self) -> Result<Option<input::Rate>, Failed> {
        rate("token_rate", self.token_rate.as_ref())
    }
}

impl Jwt {
    /// Adds the keys and rules to `auth`.
    fn add_to(&self, mut auth: Auth) -> Result<Auth, Failed> {
        if self.hs256_secret.is_none() && self.eddsa_key.is_none() && self.rs256_key.is_none() {
            return Err(Failed::wrong("`[jwt]` has no verification key")
                .hint("set `hs256_secret`, `eddsa_key` or `rs256_key`, or remove `[jwt]`"));
        }
        if let Some(path) = &self.hs256_secret {
            auth = auth.jwt_hs256(read_secret(path)?.trim_ascii())?;
        }
        if let Some(path) = &self.eddsa_key {
            auth = auth.jwt_eddsa(&read(path)?)?;
        }
        if let Some(path) = &self.rs256_key {
            auth = auth.jwt_rs256(&read(path)?)?;
        }
        if let Some(issuer) = &self.issuer {
            auth = auth.issuer(issuer);
        }
        if let Some(audience) = &self.audience {
            auth = auth.audience(audience);
        }
        Ok(if self.any_audience { auth.any_audience() } else { auth })
    }
}

fn rate(name: &str, value: Option<&toml::Value>) -> Result<Option<input::Rate>, Failed> {
    let text = value.map(|value| match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        _ => String::new(),
    });
    let wrong =
        |_| Failed::wrong(format!("invalid rate `{name}` in the configuration file")).hint("use a number or \"off\"");
    text.as_deref().map(input::rate).transpose().map_err(wrong)
}

/// Reads a secret from a file, and warns if other users can read the file.
fn read_secret(path: &Path) -> Result<Vec<u8>, Failed> {
    input::warn_if_others_may_read(path);
    read(path)
}

fn read(path: &Path) -> Result<Vec<u8>, Failed> {
    std::fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failed {
    let what = format!("cannot read `{}`: {error}", path.display());
    Failed::wrong(what).hint("check the path and its permissions")
}

fn line_of(text: &str, error: &toml::de::Error) -> usize {
    let place = error.span().map_or(0, |span| span.start);
    text.get(..place).map_or(0, |before| before.matches('\n').count()) + 1
}

/// Whether this text is a settings file that a server accepts.
#[cfg(test)]
pub(crate) fn check_settings(text: &str) -> Result<(), String> {
    Config::parse(text).map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(Some(&path)).map_err(|failed| format!("{failed:?}"))
    }

    #[test]
    fn a_file_defines_tokens_and_their_scopes() {
        let hash = Auth::hash("a token of sixteen bytes");
        let text = format!("[[token]]\nname = \"ci\"\nsha256 = \"{hash}\"\nscopes = [\"runs:read\", \"signals:ok\"]\n");
        assert!(!read_text(&text).unwrap().auth().unwrap().is_empty());
        assert!(read_text("").unwrap().auth().unwrap().is_empty());
        let config = read_text("store = \"s3://orders\"\nkeep = \"30d\"\n").unwrap();
        assert_eq!(config.keep().unwrap().unwrap().as_secs(), 30 * 24 * 3_600);
    }

    #[test]
    fn errors_in_the_file_are_reported_with_their_line() {
        let check = |text: &str, wants: &str| {
            let said = match read_text(text) {
                Ok(config) => {
                    format!("{:?} {:?} {:?}", config.auth().err(), config.keep().err(), config.s3_keys().err())
                }
                Err(said) => said,
            };
            assert!(said.contains(wants), "{text}: {said}");
        };
        check("bnid = \"here\"", "unknown field `bnid`");
        check("\n\nbnid = \"here\"", "line 3");
        check("bind = 7070", "invalid type: integer");
        check("[[token]]\nname = \"ci\"\nsha256 = \"abc\"\nscopes = [\"all\"]", "not a scope");
        check("[[token]]\nname = \"ci\"\nsha256 = \"abc\"\nscopes = []", "64 hexadecimal digits");
        check("keep = \"soon\"", "`keep` in the configuration file: invalid duration");
        check("[jwt]\nhs256_secret = \"nowhere\"", "cannot read");
        check("[[s3_key]]\nid = \"w\"\nsecret = \"nowhere\"", "cannot read");
    }

    #[test]
    fn a_named_file_must_exist() {
        assert!(Config::read(Some(Path::new("/nowhere/w.toml"))).is_err());
    }
}
