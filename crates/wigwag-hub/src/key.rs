//! The hub's keys in the store. No other file builds or parses them.
//!
//! ```text
//! hub/{address}/actor.json                               the last version of the address, and the server that gave it
//! hub/{address}/{received}_{expires}_{sha256}.json       a message that waits for it, as it will be delivered
//! hub/{address}/seen/{until}_{received}_{sha256}.json    dedup marker of a delivered message
//! hub/~unreadable/{address}/{received}_{expires}_{sha256}.json    a stored message that the hub could not read
//! hub/~floor.json                                        the highest version of all forgotten addresses
//! hub/~servers/{server}/server.json                      a server that is running, and its URL
//! hub/~servers/{server}/taken/{address}.json             takeover notice: the address was registered at another server
//! ```
//! In `{address}`, every byte outside `A-Za-z0-9._-` is written as `!XX`; an address too long for a segment becomes
//! `!!` and its SHA-256. Times have 15 digits, so that keys sort in order of receipt. The hash covers sender and id,
//! so that the same message always has the same hash.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::settings::Millis;
use crate::sweep::ACTOR;

/// Maximum length of an address in a key segment.
const SEGMENT_BYTES_MAX: usize = 200;

/// A queued message, as described by its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Time of receipt, unique within an address.
    pub received: Millis,
    /// End of its time to live.
    pub expires: Millis,
    /// Hash of sender and id.
    pub hash: String,
}

impl Waiting {
    /// Returns the last segment of the key.
    #[must_use]
    pub fn segment(&self) -> String {
        format!("{:015}_{:015}_{}.json", self.received, self.expires, self.hash)
    }

    /// Parses the last segment of a key.
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
    /// End of the dedup window.
    pub until: Millis,
    /// Time of receipt.
    pub received: Millis,
    /// Hash of sender and id.
    pub hash: String,
}

impl Delivered {
    /// Returns the end of the key.
    #[must_use]
    pub fn segment(&self) -> String {
        format!("{SEEN}{}", Waiting { received: self.until, expires: self.received, hash: self.hash.clone() }.segment())
    }

    /// Parses the end of a key.
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
    /// The address of the actor.
    pub address: String,
    /// The version of its last registration.
    pub version: u64,
    /// The server of the last registration.
    #[serde(default)]
    pub server: Option<String>,
}

/// Record of a running server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ServerRecord {
    /// URL of its hub, if the server knows it.
    pub url: Option<String>,
    /// Heartbeat counter, which grows while the server runs.
    pub beat: u64,
    /// Machine and listening address. A record with the same value is from an earlier process of the server.
    #[serde(default)]
    pub instance: Option<String>,
}

/// Takeover notice: an address was registered at another server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TakenRecord {
    /// The address of the actor.
    pub address: String,
    /// The version of the new registration.
    pub version: u64,
    /// URL of the other server.
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

/// The prefix of all records that servers exchange.
pub const SERVERS: &str = "hub/~servers/";

/// The key of a server's record.
#[must_use]
pub fn server(server: &str) -> String {
    format!("{SERVERS}{server}/server.json")
}

/// Returns the id of the server whose record has this key.
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

/// Returns the hash that identifies a message, of its sender and id.
#[must_use]
pub fn message_hash(sender: &str, id: &str) -> String {
    hex(&Sha256::new().chain_update(sender).chain_update([0]).chain_update(id).finalize())
}

/// Returns an address as one key segment.
fn segment(address: &str) -> String {
    let inner = crate::address::inside(address).unwrap_or(address);
    let mut segment = String::with_capacity(inner.len() + 8);
    for byte in inner.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => segment.push(char::from(byte)),
            _ => _ = write!(segment, "!{byte:02X}"),
        }
    }
    // A segment of dots alone is special to file systems.
    let dots = segment.bytes().all(|byte| byte == b'.');
    if segment.len() > SEGMENT_BYTES_MAX || dots {
        segment = format!("!!{}", hex(&Sha256::digest(address)));
    }
    segment
}

/// Returns the prefix of all keys of an address.
#[must_use]
pub fn prefix(address: &str) -> String {
    format!("hub/{}/", segment(address))
}

/// Splits a key of an address into the prefix of the address and the rest.
#[must_use]
pub fn split(key: &str) -> Option<(&str, &str)> {
    let inner = key.strip_prefix("hub/").filter(|rest| !rest.starts_with('~'))?;
    let end = "hub/".len() + inner.find('/')? + 1;
    Some(key.split_at(end))
}

/// Returns the key of an address's record.
#[must_use]
pub fn actor(address: &str) -> String {
    format!("{}{ACTOR}", prefix(address))
}

/// Returns the key of a queued message.
#[must_use]
pub fn waiting(address: &str, waiting: &Waiting) -> String {
    format!("{}{}", prefix(address), waiting.segment())
}

/// The prefix of stored messages that the hub could not read. They are kept until an operator deletes them.
pub const UNREADABLE: &str = "hub/~unreadable/";

/// Returns the key under which an unreadable message is set aside.
#[must_use]
pub fn unreadable(address: &str, waiting: &Waiting) -> String {
    format!("{UNREADABLE}{}/{}", segment(address), waiting.segment())
}

/// Returns the key of a dedup marker.
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
    fn keys_of_addresses_and_of_servers_are_distinguished() {
        let one = Delivered { until: 5, received: 3, hash: message_hash("@(a)", "1") };
        let key = delivered("@(a/b)", &one);
        let (head, rest) = split(&key).unwrap();
        assert_eq!((head, Delivered::parse(rest)), ("hub/a!2Fb/", Some(one)));
        assert_eq!(Waiting::parse(rest), None);
        assert_eq!((split(FLOOR), split(&server("s1")), split(&taken("s1", "@(a)"))), (None, None, None));
        let message = Waiting { received: 3, expires: 5, hash: message_hash("@(a)", "1") };
        assert_eq!(split(&unreadable("@(a)", &message)), None, "the sweep deletes no unreadable message");
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
