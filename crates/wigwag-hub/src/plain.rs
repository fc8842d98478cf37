//! Where a JSON text's parts are, for texts as nearly all clients write them: on one line, no key escaped, not deep.
//!
//! Holds: what is found here is JSON, and `serde_json` would find the same. `None` says nothing about a text but that it is to be
//! read by `serde_json`, which also knows what to say of it if it is wrong.

/// What is nested deeper is not read here.
const DEPTH_MAX: u32 = 32;

/// A text of which a part was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Plain<'a> {
    /// A text that has no characters in it that a string may not have: whoever finds a string's end has found it right.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let controls = text.bytes().fold(false, |any, byte| any | (byte < 0x20));
        (!controls).then_some(Self { text, at: 0 })
    }

    /// Whether everything was read.
    pub(crate) fn is_over(mut self) -> bool {
        self.at = spaces(self.text.as_bytes(), self.at);
        self.at == self.text.len()
    }

    /// Goes over this character and the spaces around it, if it is next.
    pub(crate) fn skip(&mut self, wanted: u8) -> bool {
        let bytes = self.text.as_bytes();
        let at = spaces(bytes, self.at);
        let is_next = bytes.get(at) == Some(&wanted);
        self.at = if is_next { spaces(bytes, at + 1) } else { at };
        is_next
    }

    /// The same; nothing else may be next.
    fn wanted(&mut self, wanted: u8) -> Option<()> {
        self.skip(wanted).then_some(())
    }

    /// Goes over this text and the spaces after it, if it is next.
    #[inline(always)]
    pub(crate) fn next_is(&mut self, wanted: &str) -> bool {
        let bytes = self.text.as_bytes();
        let is_next = bytes.get(self.at..).is_some_and(|rest| rest.starts_with(wanted.as_bytes()));
        if is_next {
            self.at = spaces(bytes, self.at + wanted.len());
        }
        is_next
    }

    /// Reads a string that has no escapes.
    pub(crate) fn string(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        let begin = self.at + 1;
        if bytes.get(self.at) != Some(&b'"') {
            return None;
        }
        let end = quote_or_escape(bytes, begin)?;
        if bytes[end] != b'"' {
            return None;
        }
        self.at = end + 1;
        self.text.get(begin..end)
    }

    /// Reads a key and goes to its value.
    pub(crate) fn key(&mut self) -> Option<&'a str> {
        let key = self.string()?;
        self.wanted(b':')?;
        Some(key)
    }

    /// Reads a value as it is written.
    pub(crate) fn value(&mut self) -> Option<&'a str> {
        let begin = self.at;
        self.at = value(self.text.as_bytes(), begin, DEPTH_MAX)?;
        self.text.get(begin..self.at)
    }

    /// Reads a whole number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let raw = self.value()?;
        // No sign, no fraction; what is longer may not fit.
        let is_whole = raw.len() <= 19 && raw.bytes().all(|byte| byte.is_ascii_digit());
        is_whole.then(|| raw.bytes().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    }

    /// Reads an object, each field of it by `field`.
    pub(crate) fn object(&mut self, mut field: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.wanted(b'{')?;
        if self.skip(b'}') {
            return Some(());
        }
        loop {
            field(self)?;
            if !self.skip(b',') {
                return self.wanted(b'}');
            }
        }
    }
}

fn spaces(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}

const ONES: u64 = u64::from_le_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
const ESCAPES: u64 = u64::from_le_bytes([b'\\'; 8]);

/// Has the highest bit of each byte set that is zero, unless one below it is; nothing else if none is.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Whether a text is written in JSON as it is.
pub(crate) fn is_plain(text: &str) -> bool {
    // Nothing is below a space if nothing is zero without its five lower bits.
    const UPPER: u64 = u64::from_le_bytes([0xE0; 8]);
    let special = |word: u64| zeros(word & UPPER) | zeros(word ^ QUOTES) | zeros(word ^ ESCAPES);
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let any = words.iter().fold(0, |any, word| any | special(u64::from_le_bytes(*word)));
    any == 0 && rest.iter().all(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\')
}

/// Where the next `"` or `\` is, eight bytes at a time.
fn quote_or_escape(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut rest = bytes.get(at..)?;
    while let Some((chunk, others)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let found = zeros(word ^ QUOTES) | zeros(word ^ ESCAPES);
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
        rest = others;
    }
    rest.iter().position(|byte| *byte == b'"' || *byte == b'\\').map(|place| at + place)
}

/// Where the value ends that begins here.
fn value(bytes: &[u8], at: usize, depth: u32) -> Option<usize> {
    match *bytes.get(at)? {
        b'"' => string(bytes, at + 1),
        b'{' => object(bytes, at + 1, depth.checked_sub(1)?),
        b'[' => array(bytes, at + 1, depth.checked_sub(1)?),
        b't' => word(bytes, at, b"true"),
        b'f' => word(bytes, at, b"false"),
        b'n' => word(bytes, at, b"null"),
        _ => number(bytes, at),
    }
}

fn word(bytes: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    bytes.get(at..)?.starts_with(word).then_some(at + word.len())
}

fn string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = quote_or_escape(bytes, at)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += match bytes.get(at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
            b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => 6,
            _ => return None,
        };
    }
}

fn object(bytes: &[u8], at: usize, depth: u32) -> Option<usize> {
    let mut at = spaces(bytes, at);
    if bytes.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        if *bytes.get(at)? != b'"' {
            return None;
        }
        at = spaces(bytes, string(bytes, at + 1)?);
        if *bytes.get(at)? != b':' {
            return None;
        }
        at = value(bytes, spaces(bytes, at + 1), depth)?;
        at = spaces(bytes, at);
        match bytes.get(at)? {
            b',' => at = spaces(bytes, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

fn array(bytes: &[u8], at: usize, depth: u32) -> Option<usize> {
    let mut at = spaces(bytes, at);
    if bytes.get(at) == Some(&b']') {
        return Some(at + 1);
    }
    loop {
        at = spaces(bytes, value(bytes, at, depth)?);
        match bytes.get(at)? {
            b',' => at = spaces(bytes, at + 1),
            b']' => return Some(at + 1),
            _ => return None,
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + usize::from(bytes.get(at) == Some(&b'-'));
    at = match bytes.get(at)? {
        b'0' => at + 1,
        b'1'..=b'9' => digits(bytes, at + 1),
        _ => return None,
    };
    if bytes.get(at) == Some(&b'.') {
        at = some_digits(bytes, at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        at = some_digits(bytes, at)?;
    }
    Some(at)
}

fn digits(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

fn some_digits(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at)?.is_ascii_digit().then(|| digits(bytes, at + 1))
}
