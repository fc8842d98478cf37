//! Tokens, access keys and certificates, validated at the start and at each reload.
//!
//! Holds: settings fail closed. A configuration that looks protected but is open is rejected with the reason.

use std::net::IpAddr;

use crate::auth::{Auth, Caller};
use crate::error::Error;
use crate::s3::S3Keys;
use crate::settings::Settings;
use crate::tls::Tls;

/// Tokens, access keys and the certificate of a server: everything that can be replaced while it runs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Credentials {
    /// API tokens and JWT keys.
    pub auth: Auth,
    /// Access keys of `/s3`.
    pub s3: S3Keys,
    /// Certificate and key.
    pub tls: Option<Tls>,
}

/// Validated credentials that requests are checked against.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) auth: Auth,
    pub(crate) s3: S3Keys,
    /// Whether `/s3` accepts unsigned requests.
    pub(crate) is_s3_open: bool,
}

impl Known {
    /// Validates credentials together with the settings.
    pub(crate) fn new(auth: Auth, s3: S3Keys, settings: &Settings) -> Result<Self, Error> {
        auth.check()?;
        let is_open = auth.is_empty();
        if is_open && !settings.insecure {
            check_open(&s3, settings)?;
        }
        let is_s3_open = is_open && s3.is_empty();
        let s3 = if is_s3_open { s3.opened(settings.s3_write) } else { s3 };
        Ok(Self { auth, s3, is_s3_open })
    }

    /// Whether a caller that was identified earlier still has its credentials, unchanged.
    pub(crate) fn still_knows(&self, caller: &Caller) -> bool {
        caller.is_fleet()
            || self.auth.still_knows(caller)
            || caller.credential().is_some_and(|credential| self.s3.still_has(credential))
    }
}

const FIX: &str =
    "add tokens (`wigwag token NAME --scope …` prints the lines), or disable authentication with `--insecure`";

/// Rejects settings that make no sense without authentication.
fn check_open(s3: &S3Keys, settings: &Settings) -> Result<(), Error> {
    if let Some(url) = settings.public_url.as_ref().filter(|url| !is_local_url(url)) {
        let what = format!("`public_url` is `{url}`, and there are no tokens: the API would be public");
        return Err(Error::new(what, FIX));
    }
    if !settings.trusted_proxies.is_empty() {
        let what = "`trusted_proxies` is set, and there are no tokens: the API would be public";
        return Err(Error::new(what, FIX));
    }
    if !s3.is_empty() {
        let what = "`/s3` has access keys, and there are no tokens: `/v1` would be public";
        return Err(Error::new(what, FIX));
    }
    Ok(())
}

fn is_local_url(url: &str) -> bool {
    let authority = url.split_once("://").and_then(|(_, rest)| rest.split('/').next());
    authority.is_some_and(is_local)
}

/// Whether a `Host` names this machine.
pub(crate) fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for local in ["localhost", "LOCALHOST:7070", "127.0.0.1:1", "127.9.9.9", "[::1]:7070", "[::1]"] {
            assert!(is_local(local), "{local}");
            assert!(is_local_url(&format!("https://{local}/below")), "{local}");
        }
        for foreign in ["", "example.com", "localhost.example.com", "10.0.0.1", "[fe80::1]:80", "127.0.0.1.example.com"]
        {
            assert!(!is_local(foreign), "{foreign}");
            assert!(!is_local_url(&format!("https://{foreign}/below")), "{foreign}");
        }
    }
}
