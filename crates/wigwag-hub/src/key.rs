//! Where the hub keeps what must survive: the only file that builds and reads its keys.
//!
//! ```text
//! hub/{address}/actor.json                               the last version of the address, and the server that gave it
//! hub/{address}/{received}_{expires}_{sha256}.json       a message that waits for it, as it will be delivered
//! hub/{address}/seen/{until}_{received}_{sha256}.json    dedup marker of a delivered message
//! hub/~floor.json                                        the highest version of all forgotten addresses
//! hub/~servers/{server}/server.json                      a server that is running, and its URL
//! hub/~servers/{server}/taken/{address}.json             takeover notice: the address was registered at another server
//! ```
//! `{address}` has every byte that is not of `A-Za-z0-9._-` as `!XX`; one too long for a segment is `!!` and its SHA-256.
//! Times have 15 digits, so that keys sort as messages came. The hash is that of sender and id: the same message has the same.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::settings::Millis;
use crate::sweep::ACTOR;

/// As much of an address as a segment takes.
const SEGMENT_BYTES_MAX: usize = 200;

/// A message that waits: what its key says of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// When it was received; no two of one address have the same.
    pub received: Millis,
    /// When it is of no use any more.
    pub expires: Millis,
    /// Of sender and id.
    pub hash: String,
}

impl Waiting {
    /// The last segment of its key.
    #[must_use]
    pub fn segment(&self) -> String {
        format!("{:015}_{:015}_{}.json", self.received, self.expires, self.hash)
    }

    /// Reads the last segment of a key.
    #[must_use]
    pub fn parse(segment: &str) -> Option<Self> {
        let mut parts = segment.strip_suffix(".json")?.split('_');
        let (received, expires, hash) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str| {
            (text.len() == 15 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())
        };
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
        let whole = is_hash && parts.next().is_none();
        Some(Self { received: number(received)??, expires: number(expires)??, hash: whole.then(|| hash.to_owned())? })
    }
}

/// Dedup marker of a queued message that was delivered, so that a repeat is recognised after a restart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivered {
    /// Until when a repeat is known.
    pub until: Millis,
    /// When it was received.
    pub received: Millis,
    /// Of sender and id.
    pub hash: String,
}

impl Delivered {
    /// The end of its key.
    #[must_use]
    pub fn segment(&self) -> String {
        format!("{SEEN}{}", Waiting { received: self.until, expires: self.received, hash: self.hash.clone() }.segment())
    }

    /// Reads the end of a key.
    #[must_use]
    pub fn parse(segment: &str) -> Option<Self> {
        let Waiting { received: until, expires: received, hash } = Waiting::parse(segment.strip_prefix(SEEN)?)?;
        Some(Self { until, received, hash })
    }
}

const SEEN: &str = "seen/";

/// Record of an address.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ActorRecord {
    /// The address.
    pub address: String,
    /// The version of its last registration.
    pub version: u64,
    /// The server that the last registration was made at.
    #[serde(default)]
    pub server: Option<String>,
}

/// Record of a running server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ServerRecord {
    /// Where clients reach its hub, if it knows.
    pub url: Option<String>,
    /// Grows for as long as the server runs.
    pub beat: u64,
    /// Machine and listening address. A record with the same ones is from an earlier life of the server.
    #[serde(default)]
    pub instance: Option<String>,
}

/// Takeover notice: an address was registered at another server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TakenRecord {
    /// The address.
    pub address: String,
    /// Its version there.
    pub version: u64,
    /// Where it is now.
    pub url: Option<String>,
}

/// Lower bound for versions of new addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FloorRecord {
    /// The highest version of all forgotten addresses.
    pub version: u64,
}

/// The key of the lowest version that a new address may have.
pub const FLOOR: &str = "hub/~floor.json";

/// The prefix of everything that servers tell each other.
pub const SERVERS: &str = "hub/~servers/";

/// The key of a server's record.
#[must_use]
pub fn server(server: &str) -> String {
    format!("{SERVERS}{server}/server.json")
}

/// The server whose record has this key.
#[must_use]
pub fn server_of(key: &str) -> Option<&str> {
    key.strip_prefix(SERVERS)?.strip_suffix("/server.json").filter(|server| !server.contains('/'))
}

/// The prefix of takeover notices for a server.
#[must_use]
pub fn taken_from(server: &str) -> String {
    format!("{SERVERS}{server}/taken/")
}

/// The key of a takeover notice.
#[must_use]
pub fn taken(server: &str, address: &str) -> String {
    format!("{}{}.json", taken_from(server), segment(address))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What two messages share only if they are the same.
#[must_use]
pub fn message_hash(sender: &str, id: &str) -> String {
    hex(&Sha256::new().chain_update(sender).chain_update([0]).chain_update(id).finalize())
}

/// An address as one segment of a key.
fn segment(address: &str) -> String {
    let inner = crate::address::inside(address).unwrap_or(address);
    let mut segment = String::with_capacity(inner.len() + 8);
    for byte in inner.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => segment.push(char::from(byte)),
            _ => _ = write!(segment, "!{byte:02X}"),
        }
    }
    // A segment of dots alone means something else to file systems.
    let dots = segment.bytes().all(|byte| byte == b'.');
    if segment.len() > SEGMENT_BYTES_MAX || dots {
        segment = format!("!!{}", hex(&Sha256::digest(address)));
    }
    segment
}

/// The prefix of everything that is kept for an address.
#[must_use]
pub fn prefix(address: &str) -> String {
    format!("hub/{}/", segment(address))
}

/// Splits the key of something that is kept for an address into the prefix of all of it and the rest.
#[must_use]
pub fn split(key: &str) -> Option<(&str, &str)> {
    let inner = key.strip_prefix("hub/").filter(|rest| !rest.starts_with('~'))?;
    let end = "hub/".len() + inner.find('/')? + 1;
    Some(key.split_at(end))
}

/// The key of what is known of an address.
#[must_use]
pub fn actor(address: &str) -> String {
    format!("{}{ACTOR}", prefix(address))
}

/// The key of a message that waits.
#[must_use]
pub fn waiting(address: &str, waiting: &Waiting) -> String {
    format!("{}{}", prefix(address), waiting.segment())
}

/// The key of a message that waited and was delivered.
#[must_use]
pub fn delivered(address: &str, delivered: &Delivered) -> String {
    format!("{}{}", prefix(address), delivered.segment())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_becomes_one_segment() {
        assert_eq!(actor("@(browser/widget-7)"), "hub/browser!2Fwidget-7/actor.json");
        assert_eq!(prefix("@(a:b~c)"), "hub/a!3Ab!7Ec/");
        let long = format!("@({})", "a/".repeat(120) + "a");
        assert_eq!(prefix(&long).len(), "hub/!!/".len() + 64);
        assert!(prefix("@(..)").starts_with("hub/!!"));
    }

    #[test]
    fn keys_of_an_address_are_told_from_those_of_servers() {
        let one = Delivered { until: 5, received: 3, hash: message_hash("@(a)", "1") };
        let key = delivered("@(a/b)", &one);
        let (head, rest) = split(&key).unwrap();
        assert_eq!((head, Delivered::parse(rest)), ("hub/a!2Fb/", Some(one)));
        assert_eq!(Waiting::parse(rest), None);
        assert_eq!((split(FLOOR), split(&server("s1")), split(&taken("s1", "@(a)"))), (None, None, None));
        assert_eq!((server_of(&server("s1")), server_of(&taken("s1", "@(a)"))), (Some("s1"), None));
        assert_eq!(split(&actor("@(~servers)")).unwrap().0, "hub/!7Eservers/");
    }

    proptest! {
        #[test]
        fn a_key_is_read_as_it_was_written(received in 0..999_999_999_999_999_u64, expires in 0..999_999_999_999_999_u64) {
            let key = Waiting { received, expires, hash: message_hash("@(a)", "1") };
            prop_assert_eq!(Waiting::parse(&key.segment()), Some(key));
        }

        #[test]
        fn keys_sort_as_messages_came(one in 0..999_999_999_999_999_u64, other in 0..999_999_999_999_999_u64) {
            let key = |received| Waiting { received, expires: 7, hash: message_hash("@(a)", "1") }.segment();
            prop_assert_eq!(one.cmp(&other), key(one).cmp(&key(other)));
        }

        #[test]
        fn no_text_that_is_no_key_is_read(text in "\\PC{0,120}") {
            if let Some(key) = Waiting::parse(&text) {
                prop_assert_eq!(key.segment(), text);
            }
        }
    }
}
