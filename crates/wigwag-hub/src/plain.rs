//! Fast JSON scanner for texts in the form that nearly all clients send: one line, no escaped keys, shallow nesting.
//!
//! Holds: everything accepted here is valid JSON, and `serde_json` parses it to the same values. `None` says nothing
//! about validity: the caller then uses `serde_json`, which also reports errors.

/// Maximum nesting depth of this scanner.
const DEPTH_MAX: u32 = 32;

/// A text and the position up to which it is parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    text: &'a str,
    at: usize,
    /// The text contains escapes.
    has_escapes: bool,
}

impl<'a> Plain<'a> {
    /// Accepts a text without control characters, so that finding the end of a string also validates it.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let least = text.bytes().fold(u8::MAX, u8::min);
        let has_escapes = memchr::memchr(b'\\', text.as_bytes()).is_some();
        (least >= b' ').then_some(Self { text, at: 0, has_escapes })
    }

    /// Whether the whole text is parsed.
    pub(crate) fn is_over(mut self) -> bool {
        self.at = spaces(self.text.as_bytes(), self.at);
        self.at == self.text.len()
    }

    /// Returns the byte `count` positions ahead.
    pub(crate) fn ahead(&self, count: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + count).copied()
    }

    /// Skips this character and the spaces around it, if it is next.
    #[inline(always)]
    pub(crate) fn skip(&mut self, wanted: u8) -> bool {
        let bytes = self.text.as_bytes();
        let at = spaces(bytes, self.at);
        let is_next = bytes.get(at) == Some(&wanted);
        self.at = if is_next { spaces(bytes, at + 1) } else { at };
        is_next
    }

    /// Like `skip`, but fails if another character is next.
    fn wanted(&mut self, wanted: u8) -> Option<()> {
        self.skip(wanted).then_some(())
    }

    /// Skips this text and the spaces after it, if it is next.
    #[inline(always)]
    pub(crate) fn next_is(&mut self, wanted: &str) -> bool {
        let bytes = self.text.as_bytes();
        let is_next = bytes.get(self.at..).is_some_and(|rest| rest.starts_with(wanted.as_bytes()));
        if is_next {
            self.at = spaces(bytes, self.at + wanted.len());
        }
        is_next
    }

    /// Reads a string without escapes.
    pub(crate) fn string(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        let begin = self.at + 1;
        if bytes.get(self.at) != Some(&b'"') {
            return None;
        }
        let end = next_quote(bytes, begin)?;
        let text = self.text.get(begin..end)?;
        if self.has_escapes && text.contains('\\') {
            return None;
        }
        self.at = end + 1;
        Some(text)
    }

    /// Reads a key and moves to its value.
    pub(crate) fn key(&mut self) -> Option<&'a str> {
        let key = self.string()?;
        self.wanted(b':')?;
        Some(key)
    }

    /// Reads a value as raw JSON.
    pub(crate) fn value(&mut self) -> Option<&'a str> {
        let begin = self.at;
        let scan = Scan { bytes: self.text.as_bytes(), has_escapes: self.has_escapes };
        self.at = scan.value(begin)?;
        self.text.get(begin..self.at)
    }

    /// Reads a whole number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        // Longer numbers may overflow.
        const DIGITS_MAX: usize = 19;
        let bytes = self.text.as_bytes();
        let (begin, mut number) = (self.at, 0_u64);
        while let Some(digit @ b'0'..=b'9') = bytes.get(self.at) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let is_whole = !matches!(bytes.get(self.at), Some(b'.' | b'e' | b'E'));
        let is_plain = match self.at - begin {
            0 => false,
            1 => true,
            // Only 0 itself may start with 0.
            count => count <= DIGITS_MAX && bytes[begin] != b'0',
        };
        (is_whole && is_plain).then_some(number)
    }

    /// Reads an object by calling `field` for each of its fields.
    #[inline(always)]
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

#[inline(always)]
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

/// Sets the highest bit of the lowest zero byte, and possibly of bytes above it; returns 0 if no byte is zero.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Whether a string can be written to JSON without escapes.
pub(crate) fn is_plain(text: &str) -> bool {
    // A byte below a space is zero without its five lower bits.
    const UPPER: u64 = u64::from_le_bytes([0xE0; 8]);
    let special = |word: u64| zeros(word & UPPER) | zeros(word ^ QUOTES) | zeros(word ^ ESCAPES);
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let any = words.iter().fold(0, |any, word| any | special(u64::from_le_bytes(*word)));
    // The remaining bytes are checked in a word that overlaps the previous one.
    any == 0
        && match text.as_bytes().last_chunk::<8>() {
            Some(last) => special(u64::from_le_bytes(*last)) == 0,
            None => rest.iter().all(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\'),
        }
}

/// Returns the position of the next `"`: eight bytes at a time, since most strings are short, then with SIMD.
#[inline(always)]
fn next_quote(bytes: &[u8], begin: usize) -> Option<usize> {
    const SHORT: usize = 32;
    let rest = bytes.get(begin..)?;
    let (words, tail) = rest.as_chunks::<8>();
    for (place, word) in words.iter().take(SHORT / 8).enumerate() {
        let found = zeros(u64::from_le_bytes(*word) ^ QUOTES);
        if found != 0 {
            return Some(begin + place * 8 + (found.trailing_zeros() / 8) as usize);
        }
    }
    let (seen, unseen) = match words.len() {
        ..4 => (begin + rest.len() - tail.len(), tail),
        _ => (begin + SHORT, &rest[SHORT..]),
    };
    memchr::memchr(b'"', unseen).map(|place| seen + place)
}

/// A text in which the ends of values are searched.
#[derive(Clone, Copy)]
struct Scan<'a> {
    bytes: &'a [u8],
    has_escapes: bool,
}

impl Scan<'_> {
    /// Returns the end of the value that starts at `at`.
    fn value(self, mut at: usize) -> Option<usize> {
        let bytes = self.bytes;
        // A bit for each open container (1: an object), the innermost lowest; and the number of open containers.
        let (mut objects, mut depth) = (0_u32, 0);
        loop {
            at = match *bytes.get(at)? {
                b'"' => self.string(at + 1)?,
                open @ (b'{' | b'[') if depth < DEPTH_MAX => {
                    let is_object = open == b'{';
                    depth += 1;
                    objects = objects << 1 | u32::from(is_object);
                    let first = spaces(bytes, at + 1);
                    // An empty container is closed by the loop below.
                    match *bytes.get(first)? {
                        b'}' | b']' => first,
                        _ if is_object => {
                            at = self.key(first)?;
                            continue;
                        }
                        _ => {
                            at = first;
                            continue;
                        }
                    }
                }
                b't' => word(bytes, at, b"true")?,
                b'f' => word(bytes, at, b"false")?,
                b'n' => word(bytes, at, b"null")?,
                _ => number(bytes, at)?,
            };
            // Closes all containers that end here.
            while depth > 0 {
                let is_object = objects & 1 == 1;
                match *bytes.get(at)? {
                    b',' if is_object => {
                        at = self.key(spaces(bytes, at + 1))?;
                        break;
                    }
                    b',' => {
                        at = spaces(bytes, at + 1);
                        break;
                    }
                    b' ' => at += 1,
                    end if end == if is_object { b'}' } else { b']' } => {
                        at += 1;
                        depth -= 1;
                        objects >>= 1;
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                    _ => return None,
                }
            }
            if depth == 0 {
                return Some(at);
            }
        }
    }

    /// Returns the start of the value whose key starts at `at`.
    #[inline(always)]
    fn key(self, at: usize) -> Option<usize> {
        if *self.bytes.get(at)? != b'"' {
            return None;
        }
        let at = spaces(self.bytes, self.string(at + 1)?);
        (*self.bytes.get(at)? == b':').then(|| spaces(self.bytes, at + 1))
    }

    /// Returns the end of the string that starts at `at`.
    #[inline(always)]
    fn string(self, at: usize) -> Option<usize> {
        if self.has_escapes { escaped_string(self.bytes, at) } else { next_quote(self.bytes, at).map(|end| end + 1) }
    }
}

fn escaped_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
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

#[inline(always)]
fn word(bytes: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    bytes.get(at..)?.starts_with(word).then_some(at + word.len())
}

#[inline(always)]
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

#[inline(always)]
fn digits(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

fn some_digits(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at)?.is_ascii_digit().then(|| digits(bytes, at + 1))
}
