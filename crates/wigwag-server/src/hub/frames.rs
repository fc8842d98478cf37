//! Parses frames as nearly all clients send them, one unfragmented masked text each, in place.
//!
//! Holds: the WebSocket library would parse these frames in the same way. All other frames (pings, fragments, close frames, binary
//! frames, invalid or too long ones) are left to the library.

use std::cell::Cell;
use std::ops::Range;

/// Size of the read buffer.
pub(super) const ROOM_BYTES: usize = 64 * 1024;

thread_local! {
    /// Connections of a thread read one at a time, so they share one buffer, and idle connections need none.
    static ROOM: Cell<Option<Room>> = const { Cell::new(None) };
}

/// A read buffer with the texts that were found in it.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) bytes: Vec<u8>,
    /// Ranges of the unmasked texts.
    texts: Vec<Range<usize>>,
}

/// The bytes after the parsed texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Offset of the first unparsed byte.
    pub(super) begin: usize,
    pub(super) next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An incomplete text, with the length of its frame if that is known.
    Part(Option<usize>),
    /// A frame that the library must read.
    Other,
}

impl Room {
    /// Takes the buffer of the thread.
    pub(super) fn take() -> Self {
        ROOM.take().unwrap_or_else(|| Self { bytes: vec![0; ROOM_BYTES], texts: Vec::new() })
    }

    /// Returns the buffer to the thread, unless it was enlarged for a long frame.
    pub(super) fn give_back(self) {
        if self.bytes.len() == ROOM_BYTES {
            ROOM.set(Some(self));
        }
    }

    /// Returns the texts that were found last. They are not validated as UTF-8.
    pub(super) fn texts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.texts.iter().map(|place| &self.bytes[place.clone()])
    }

    /// Finds the texts in the first `filled` bytes, none longer than `max`.
    pub(super) fn find(&mut self, filled: usize, max: usize) -> Rest {
        self.texts.clear();
        let mut begin = 0;
        loop {
            let next = match head(&self.bytes[begin..filled], max) {
                None => Next::Part(None),
                Some(Head::Other) => Next::Other,
                Some(Head::Text { key, head, length }) => {
                    let place = begin + head..begin + head + length;
                    if place.end <= filled {
                        unmask(&mut self.bytes[place.clone()], key);
                        begin = place.end;
                        self.texts.push(place);
                        continue;
                    }
                    Next::Part(Some(head + length))
                }
            };
            return Rest { begin, next };
        }
    }
}

/// The parsed head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Text {
        key: [u8; 4],
        /// Length of the head in bytes.
        head: usize,
        length: usize,
    },
    Other,
}

/// Parses the head of a frame (RFC 6455, 5.2), if it is complete.
fn head(bytes: &[u8], max: usize) -> Option<Head> {
    const FINAL_TEXT: u8 = 0x81;
    const MASKED: u8 = 0x80;
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    if first != FINAL_TEXT || second & MASKED == 0 {
        return Some(Head::Other);
    }
    let (at, length) = match second & !MASKED {
        126 => (4, u64::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?))),
        127 => (10, u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)),
        short => (2, u64::from(short)),
    };
    // A length must use its shortest encoding.
    let is_short = matches!((at, length), (2, _) | (4, 126..) | (10, 65_536..));
    match usize::try_from(length) {
        Ok(length) if is_short && length <= max => {
            let key = *bytes.get(at..)?.first_chunk()?;
            Some(Head::Text { key, head: at + key.len(), length })
        }
        _ => Some(Head::Other),
    }
}

fn unmask(payload: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.into_iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 100_000;

    /// A frame with this first byte, masked.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let key = [0x12, 0xFF, 0x00, 0x81];
        let mut bytes = vec![first];
        match payload.len() {
            short @ ..126 => bytes.push(0x80 | u8::try_from(short).unwrap()),
            long @ ..65_536 => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(long).unwrap().to_be_bytes());
            }
            long => {
                bytes.push(0x80 | 127);
                bytes.extend((long as u64).to_be_bytes());
            }
        }
        bytes.extend(key);
        bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        bytes
    }

    fn found(bytes: &[u8]) -> (Vec<String>, Rest) {
        let mut room = Room { bytes: bytes.to_vec(), texts: Vec::new() };
        let rest = room.find(bytes.len(), MAX);
        (room.texts().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect(), rest)
    }

    #[test]
    fn texts_of_all_lengths_are_found_in_order() {
        let texts: Vec<String> =
            [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, MAX].map(|length| "x".repeat(length)).into();
        let bytes: Vec<u8> = texts.iter().flat_map(|text| frame(0x81, text.as_bytes())).collect();
        let rest = Rest { begin: bytes.len(), next: Next::Part(None) };
        assert_eq!(found(&bytes), (texts, rest));
    }

    #[test]
    fn a_frame_that_is_not_all_there_waits_wherever_it_was_cut() {
        for length in [0, 5, 200, 70_000] {
            let (first, second) = (frame(0x81, b"first"), frame(0x81, "y".repeat(length).as_bytes()));
            let head = second.len() - length;
            for cut in (0..head).chain([head, head + length / 2]).filter(|cut| *cut < second.len()) {
                let bytes = [&first[..], &second[..cut]].concat();
                let known = (cut >= head).then_some(second.len());
                let rest = Rest { begin: first.len(), next: Next::Part(known) };
                assert_eq!(found(&bytes), (vec!["first".to_owned()], rest), "{length}, {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_plain_text_is_left_alone() {
        let too_long = frame(0x81, &vec![b'x'; MAX + 1]);
        let unmasked = [0x81, 0x01, b'x'];
        let padded_short = [0x81, 0xFE, 0x00, 0x01, 0, 0, 0, 0, b'x'];
        let padded_long = [0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, b'x'];
        let endless = [0x81, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
        let kinds = [0x01, 0x00, 0x80, 0x82, 0x88, 0x89, 0x8A, 0xC1, 0xA1, 0x91, 0x83].map(|first| frame(first, b"x"));
        let others = [&too_long[..], &unmasked, &padded_short, &padded_long, &endless];
        for other in others.into_iter().chain(kinds.iter().map(|kind| &kind[..])) {
            let first = frame(0x81, b"first");
            let bytes = [&first, other].concat();
            let rest = Rest { begin: first.len(), next: Next::Other };
            assert_eq!(found(&bytes), (vec!["first".to_owned()], rest), "{other:x?}");
        }
    }

    #[test]
    fn a_room_that_grew_is_not_kept() {
        let mut room = Room::take();
        room.bytes = vec![0; 2 * ROOM_BYTES];
        room.give_back();
        assert_eq!(Room::take().bytes.len(), ROOM_BYTES);
    }
}
