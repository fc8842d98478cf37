//! The client address of a request: that of the connection, or the one a trusted proxy forwards.
//!
//! Holds: only the part of `X-Forwarded-For` that trusted proxies wrote counts; a client can forge the rest.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderName, Version};

/// Peer address of a connection; an extension of each of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Address of the client that sent a request; absent if another program accepted the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientAddress(pub(crate) Option<IpAddr>);

impl std::fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

impl ClientAddress {
    /// Determines the client address of a request.
    pub(crate) fn of(peer: Option<Peer>, headers: &HeaderMap, trusted: &[IpAddr]) -> Self {
        let Some(Peer(peer)) = peer else { return Self(None) };
        let is_trusted = |address: &IpAddr| trusted.contains(address);
        if !is_trusted(&peer) {
            return Self(Some(peer));
        }
        // Each proxy appends the address of its peer, so the list is read from the right.
        let values: Vec<&str> = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
        let hops = values.iter().rev().flat_map(|value| value.rsplit(',')).map(|hop| hop.trim().parse::<IpAddr>());
        let mut client = peer;
        for hop in hops {
            match hop {
                Ok(address) => client = address.to_canonical(),
                Err(_) => break,
            }
            if !is_trusted(&client) {
                break;
            }
        }
        Self(Some(client))
    }
}

/// The network that one customer of a provider has: an IPv4 address, or an IPv6 /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers that proxies and content delivery networks add and clients do not send.
const OF_PROXIES: [&str; 7] =
    ["forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip"];

/// All headers that begin so are added by proxies: `x-forwarded-for`, `-host`, `-proto`, `-ssl` and many more.
const FORWARDED: &str = "x-forwarded-";

/// Returns the sign that a request was proxied, if there is one.
///
/// HTTP/1.0 is a sign: nginx uses it upstream by default, and then adds no header.
pub(crate) fn proxy_sign(version: Version, headers: &HeaderMap) -> Option<String> {
    let is_of_proxy = |name: &&HeaderName| name.as_str().starts_with(FORWARDED) || OF_PROXIES.contains(&name.as_str());
    if let Some(name) = headers.keys().find(is_of_proxy) {
        return Some(format!("header `{name}`"));
    }
    (version <= Version::HTTP_10).then(|| "HTTP/1.0, the default of nginx".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        let trusted: Vec<IpAddr> = trusted.iter().map(|address| address.parse().unwrap()).collect();
        ClientAddress::of(Some(Peer(peer.parse().unwrap())), &headers, &trusted).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_says_who_the_client_is() {
        let table = [
            ("9.9.9.9", &["1.1.1.1"][..], &[][..], "9.9.9.9"),
            ("9.9.9.9", &["1.1.1.1"], &["127.0.0.1"], "9.9.9.9"),
            ("127.0.0.1", &["1.1.1.1"], &["127.0.0.1"], "1.1.1.1"),
            ("127.0.0.1", &["6.6.6.6, 1.1.1.1"], &["127.0.0.1"], "1.1.1.1"),
            ("127.0.0.1", &["6.6.6.6", "1.1.1.1"], &["127.0.0.1"], "1.1.1.1"),
            ("127.0.0.1", &["1.1.1.1, 10.0.0.2"], &["127.0.0.1", "10.0.0.2"], "1.1.1.1"),
            ("127.0.0.1", &["nonsense"], &["127.0.0.1"], "127.0.0.1"),
            ("127.0.0.1", &[], &["127.0.0.1"], "127.0.0.1"),
            ("127.0.0.1", &["2001:db8::1"], &["127.0.0.1"], "2001:db8::1"),
        ];
        for (peer, forwarded, trusted, want) in table {
            assert_eq!(client(peer, forwarded, trusted), want, "{peer} {forwarded:?} {trusted:?}");
        }
        assert_eq!(ClientAddress::of(None, &HeaderMap::new(), &[]).to_string(), "unknown");
    }

    #[test]
    fn one_customer_has_one_network() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("1.2.3.4"), "1.2.3.4");
        assert_eq!(of("::ffff:1.2.3.4"), "1.2.3.4");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    #[test]
    fn a_proxy_shows_by_its_headers_or_its_version() {
        let with = |name: &'static str| HeaderMap::from_iter([(HeaderName::from_static(name), "x".parse().unwrap())]);
        let forwarded = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-ssl", "x-forwarded-anything"];
        for name in OF_PROXIES.into_iter().chain(forwarded) {
            assert!(proxy_sign(Version::HTTP_11, &with(name)).unwrap().contains(name));
        }
        assert!(proxy_sign(Version::HTTP_10, &HeaderMap::new()).is_some());
        assert_eq!(proxy_sign(Version::HTTP_11, &with("accept")), None);
    }
}
