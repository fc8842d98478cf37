//! Patterns with `*`, matched in linear time.
//!
//! Holds: matching a text of n bytes with a pattern of m takes at most 2 (n + m) byte comparisons, for any input: the
//! pieces between the stars are found in sequence, leftmost first, each with the Knuth-Morris-Pratt algorithm. A
//! piece is never retried further left, since the leftmost match leaves the longest text for the pieces after it.

use crate::address::{Malformed, check_pattern};

/// A pattern of addresses or topics: `*` matches any number of any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: Box<str>,
}

impl Glob {
    /// Checks a pattern and compiles it.
    pub fn new(text: &str) -> Result<Self, Malformed> {
        check_pattern(text)?;
        Ok(Self { text: text.into() })
    }

    /// Returns the pattern's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the literal text before the first `*`, with which every match starts.
    #[must_use]
    pub fn literal_prefix(&self) -> &str {
        self.text.split('*').next().unwrap_or_default()
    }

    /// Whether the pattern matches a text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        matches_counted(self.text.as_bytes(), text.as_bytes(), &mut 0)
    }

    /// Returns the number of byte comparisons that a match takes.
    #[must_use]
    pub fn comparisons(&self, text: &str) -> usize {
        let mut count = 0;
        matches_counted(self.text.as_bytes(), text.as_bytes(), &mut count);
        count
    }
}

fn matches_counted(pattern: &[u8], text: &[u8], count: &mut usize) -> bool {
    let mut pieces = pattern.split(|&byte| byte == b'*');
    let first = pieces.next().unwrap_or_default();
    if !begins(text, first, count) {
        return false;
    }
    let mut rest = &text[first.len()..];
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.len() >= piece.len() && begins(&rest[rest.len() - piece.len()..], piece, count);
        }
        let Some(end) = find_end(rest, piece, count) else { return false };
        rest = &rest[end..];
    }
    true
}

fn begins(text: &[u8], piece: &[u8], count: &mut usize) -> bool {
    if text.len() < piece.len() {
        return false;
    }
    text.iter().zip(piece).all(|(one, other)| {
        *count += 1;
        one == other
    })
}

/// Returns the end of the leftmost occurrence of a piece.
fn find_end(text: &[u8], piece: &[u8], count: &mut usize) -> Option<usize> {
    if piece.is_empty() {
        return Some(0);
    }
    let borders = borders(piece, count);
    let mut matched = 0;
    for (place, byte) in text.iter().enumerate() {
        loop {
            *count += 1;
            if *byte == piece[matched] {
                matched += 1;
                break;
            }
            if matched == 0 {
                break;
            }
            matched = borders[matched - 1];
        }
        if matched == piece.len() {
            return Some(place + 1);
        }
    }
    None
}

/// Returns the KMP failure function: for each prefix of the piece, the length of its longest proper prefix that is
/// also its suffix.
fn borders(piece: &[u8], count: &mut usize) -> Vec<usize> {
    let mut borders = vec![0; piece.len()];
    let mut length = 0;
    for place in 1..piece.len() {
        loop {
            *count += 1;
            if piece[place] == piece[length] {
                length += 1;
                break;
            }
            if length == 0 {
                break;
            }
            length = borders[length - 1];
        }
        borders[place] = length;
    }
    borders
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).unwrap().matches(text)
    }

    #[test]
    fn a_star_matches_anything() {
        for (pattern, text) in [
            ("*", "@(a)"),
            ("@(a)", "@(a)"),
            ("@(browser/*)", "@(browser/widget/7)"),
            ("@(*/a)", "@(x/y/a)"),
            ("@(*-7*)", "@(w-7)"),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
            ("a*a", "aa"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("@(a)", "@(b)"),
            ("@(a)", "@(a/b)"),
            ("@(browser/*)", "@(worker/1)"),
            ("a*a", "a"),
            ("a*b*c", "a-c-b"),
            ("@(a/*)", "@(a)"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_that_would_explode_a_regex_takes_linear_time() {
        let pattern = format!("{}b", "a*".repeat(100));
        let text = "a".repeat(256);
        let glob = Glob::new(&pattern).unwrap();
        assert!(!glob.matches(&text));
        assert!(glob.comparisons(&text) <= 2 * (pattern.len() + text.len()), "{}", glob.comparisons(&text));
        let nested = Glob::new(&format!("*{}b*", "a".repeat(100))).unwrap();
        assert!(nested.comparisons(&text) <= 2 * (103 + text.len()), "{}", nested.comparisons(&text));
    }

    /// Reference implementation that tries every alternative.
    fn by_trying(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|place| by_trying(rest, &text[place..])),
            Some((byte, rest)) => {
                text.split_first().is_some_and(|(first, more)| first == byte && by_trying(rest, more))
            }
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_trying_everything_matches(pattern in "[ab*]{1,10}", text in "[ab]{0,12}") {
            let glob = Glob::new(&pattern).unwrap();
            prop_assert_eq!(glob.matches(&text), by_trying(pattern.as_bytes(), text.as_bytes()));
            prop_assert!(glob.comparisons(&text) <= 2 * (pattern.len() + text.len()));
        }
    }
}
