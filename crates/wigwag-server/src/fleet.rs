//! This server's membership among the processes that share its bucket: it relays notifications to its subscribers.

use std::fmt::Write as _;
use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use wigwag::Client;
use wigwag_store::Advertisement;

use crate::chance;
use crate::settings::Settings;

/// The token that processes of the fleet present, found in this server's record in the bucket. It grants only
/// the right to send notifications.
pub(crate) struct FleetKey {
    text: String,
    sha256: [u8; 32],
}

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetKey").finish_non_exhaustive()
    }
}

impl FleetKey {
    pub(crate) fn new() -> Self {
        let text = hex(&chance::bytes::<32>());
        Self { sha256: Sha256::digest(&text).into(), text }
    }

    /// Compares a token in constant time.
    pub(crate) fn matches(&self, token: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(token).into();
        given.ct_eq(&self.sha256).into()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Announces this server, if its store is a bucket and other machines can reach it.
pub(crate) fn advertise(client: &Client, key: &FleetKey, url: Option<String>) {
    let Some(notifier) = client.notices().and_then(|notices| notices.notifier()) else { return };
    let Some(url) = url else {
        tracing::info!("other processes on this bucket do not find this server: name its address with `--advertise`");
        return;
    };
    let id = hex(&chance::bytes::<8>());
    notifier.advertise(Advertisement { id, url, key: key.text.clone() });
}

/// Removes this server's record.
pub(crate) fn withdraw(client: &Client) {
    if let Some(notifier) = client.notices().and_then(|notices| notices.notifier()) {
        notifier.withdraw();
    }
}

/// Returns the URL at which other processes reach this server. A public URL may be that of a load balancer, so the server's address is better,
/// unless its certificate is for a name.
pub(crate) fn url(settings: &Settings, has_tls: bool, addr: Option<SocketAddr>) -> Option<String> {
    let is_own = |addr: &SocketAddr| !addr.ip().is_unspecified() && !addr.ip().is_loopback();
    let bound = addr.filter(is_own).map(|addr| format!("{}://{addr}", if has_tls { "https" } else { "http" }));
    let by_name = settings.public_url.clone();
    let usual = if has_tls { by_name.or(bound) } else { bound.or(by_name) };
    settings.advertise.clone().or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_is_advertised() {
        let advertised = url;
        let url = |advertise: Option<&str>, public: Option<&str>, tls: bool, bind: &str| {
            let (advertise, public_url) = (advertise.map(str::to_owned), public.map(str::to_owned));
            let settings = Settings { advertise, public_url, ..Settings::default() };
            advertised(&settings, tls, bind.parse().ok())
        };
        let public = Some("https://wigwag.example.com");
        assert_eq!(url(None, None, false, "127.0.0.1:7070"), None);
        assert_eq!(url(None, None, false, "0.0.0.0:7070"), None);
        assert_eq!(url(None, None, false, "10.0.0.7:7070").as_deref(), Some("http://10.0.0.7:7070"));
        assert_eq!(url(None, public, false, "10.0.0.7:7070").as_deref(), Some("http://10.0.0.7:7070"));
        assert_eq!(url(None, public, true, "10.0.0.7:7070").as_deref(), public);
        assert_eq!(url(None, public, false, "0.0.0.0:7070").as_deref(), public);
        assert_eq!(url(Some("http://a:1"), public, true, "10.0.0.7:1").as_deref(), Some("http://a:1"));
    }

    #[test]
    fn only_the_key_itself_matches() {
        let key = FleetKey::new();
        assert!(key.matches(&key.text.clone()));
        for wrong in ["", "x", &key.text[1..]] {
            assert!(!key.matches(wrong));
        }
        assert!(!format!("{key:?}").contains(&key.text));
    }
}
