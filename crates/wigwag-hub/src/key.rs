//! Where the hub keeps what must survive: the only file that builds and reads its keys.
//!
//! ```text
//! hub/{address}/actor.json                             the last version of the address; it was registered once
//! hub/{address}/{received}_{expires}_{sha256}.json     a message that waits for it, as it will be delivered
//! ```
//! `{address}` has every byte that is not of `A-Za-z0-9._-` as `!XX`; one too long for a segment is `!!` and its SHA-256.
//! Times have 15 digits, so that keys sort as messages came. The hash is that of sender and id: the same message has the same.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::settings::Millis;

/// As much of an address as a segment takes.
const SEGMENT_BYTES_MAX: usize = 200;

/// The last segment of the object that knows an address.
const ACTOR: &str = "actor.json";

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

/// The prefix of everything that is kept for an address.
#[must_use]
pub fn prefix(address: &str) -> String {
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
    format!("hub/{segment}/")
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
