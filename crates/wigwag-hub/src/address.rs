//! Addresses, topics and patterns: their syntax and reserved names.

use std::fmt;

/// The hub's own address.
pub const HUB: &str = "@(hub)";

/// Alias of [`HUB`], which older clients still send.
pub const HUB_ALIAS: &str = "@(cloudflare/signal-hub)";

/// The target of a broadcast.
pub const BROADCAST: &str = "@(broadcast)";

/// Maximum length of an address or topic, since each is part of a store key and is shown on screens.
pub const ADDRESS_BYTES_MAX: usize = 256;

const RESERVED: [&str; 5] = ["hub", "session", "workflow", "topic", "broadcast"];

/// Why a text is not an address, topic or pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    what: &'static str,
    got: String,
    why: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {} ({}): `{}`", self.what, self.why, self.got)
    }
}

impl std::error::Error for Malformed {}

fn malformed(what: &'static str, got: &str, why: &'static str) -> Malformed {
    Malformed { what, got: got.chars().take(80).flat_map(char::escape_debug).collect(), why }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b':' | b'-')
}

/// Returns the syntax rule that the segments break, if any; `extra` is one more allowed character.
fn broken_rule(text: &str, extra: Option<u8>) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.len() > ADDRESS_BYTES_MAX {
        return Some("it has at most 256 bytes");
    }
    let mut last = b'/';
    for byte in text.bytes() {
        match byte {
            b'/' if last == b'/' => return Some("a segment is empty"),
            b'/' => {}
            _ if is_letter(byte) || Some(byte) == extra => {}
            _ => return Some("segments have A-Z a-z 0-9 . _ ~ : - and a / between them"),
        }
        last = byte;
    }
    (last == b'/').then_some("a segment is empty")
}

/// Returns the text between the parentheses of an address.
#[must_use]
pub fn inside(address: &str) -> Option<&str> {
    address.strip_prefix("@(")?.strip_suffix(')')
}

/// Checks the syntax of an address.
pub fn check_address(text: &str) -> Result<(), Malformed> {
    let what = "an address";
    let Some(inner) = inside(text) else {
        return Err(malformed(what, text, "want `@(segment/segment)`"));
    };
    if text.len() > ADDRESS_BYTES_MAX {
        return Err(malformed(what, text, "it has at most 256 bytes"));
    }
    broken_rule(inner, None).map_or(Ok(()), |why| Err(malformed(what, text, why)))
}

/// Checks the syntax of a topic.
pub fn check_topic(text: &str) -> Result<(), Malformed> {
    broken_rule(text, None).map_or(Ok(()), |why| Err(malformed("a topic", text, why)))
}

/// Checks the syntax of a pattern of addresses or topics.
pub fn check_pattern(text: &str) -> Result<(), Malformed> {
    let what = "a pattern";
    if text.is_empty() || text.len() > ADDRESS_BYTES_MAX {
        return Err(malformed(what, text, "it has 1 to 256 bytes"));
    }
    let fits = |byte: u8| is_letter(byte) || matches!(byte, b'/' | b'*' | b'@' | b'(' | b')');
    let why = "letters of an address, and `*` for any number of any of them";
    if text.bytes().all(fits) { Ok(()) } else { Err(malformed(what, text, why)) }
}

/// Whether this address is reserved, so that no actor can register it.
#[must_use]
pub fn is_reserved(address: &str) -> bool {
    let first = inside(address).and_then(|inner| inner.split('/').next());
    address == HUB_ALIAS || first.is_some_and(|first| RESERVED.contains(&first))
}

/// Returns the id of the run that an address names.
#[must_use]
pub fn run_of(address: &str) -> Option<&str> {
    inside(address)?.strip_prefix("workflow/")
}

/// The run whose events a topic carries.
#[must_use]
pub fn run_of_topic(topic: &str) -> Option<&str> {
    topic.strip_prefix("run/")
}

/// Whether only the hub itself publishes to this topic.
#[must_use]
pub fn is_hubs_own(topic: &str) -> bool {
    matches!(topic, "runs" | "tasks" | "nudges" | "waiting" | "board" | "run") || topic.starts_with("run/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_segments_in_parentheses() {
        for good in ["@(hub)", "@(a/b/c)", "@(browser/widget-7)", "@(A.z_~:-9)"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        let long = format!("@({})", "a".repeat(254));
        for bad in
            ["", "a", "@()", "@(a", "(a)", "@(a/)", "@(/a)", "@(a//b)", "@(a b)", "@(a*)", "@(ä)", "@(a\n)", &long]
        {
            assert!(check_address(bad).is_err(), "{bad}");
        }
        assert_eq!(check_address(&format!("@({})", "a".repeat(253))), Ok(()));
    }

    #[test]
    fn a_topic_has_the_syntax_of_an_address_without_parentheses() {
        for good in ["runs", "run/order-17", "a.b:c"] {
            assert_eq!(check_topic(good), Ok(()), "{good}");
        }
        for bad in ["", "/", "a/", "@(a)", "a b"] {
            assert!(check_topic(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_hubs_own_addresses_are_reserved() {
        for reserved in [
            "@(hub)",
            "@(hub/x)",
            "@(cloudflare/signal-hub)",
            "@(session/1)",
            "@(workflow/a)",
            "@(topic/a)",
            "@(broadcast)",
        ] {
            assert!(is_reserved(reserved), "{reserved}");
        }
        for free in ["@(hubs)", "@(cloudflare/other)", "@(browser/hub)"] {
            assert!(!is_reserved(free), "{free}");
        }
    }
}
