//! A minimal WebSocket client: a frame that is sent repeatedly is masked once, and received frames
//! are parsed in place.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::http::Result;

/// Placeholder in a text for the number of a message. It has the length of the number.
pub(crate) const NUMBER: &str = "################";

const DIGITS: usize = NUMBER.len();

/// Key and answer of the opening handshake, from an example of RFC 6455.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Maximum length of an answer to the opening handshake.
const ANSWER_MAX: usize = 8 * 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xA,
}

/// A complete frame from a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) payload: &'a [u8],
    /// Length in bytes, including its head.
    pub(crate) length: usize,
}

/// Parses the first frame of the data, if it is complete.
pub(crate) fn first_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>> {
    let &[head, size, ref rest @ ..] = bytes else { return Ok(None) };
    let (head_length, payload_length) = match (size, rest) {
        (0..=125, _) => (2, usize::from(size)),
        (126, &[a, b, ..]) => (4, usize::from(u16::from_be_bytes([a, b]))),
        (127, &[a, b, c, d, e, f, g, h, ..]) => (10, usize::try_from(u64::from_be_bytes([a, b, c, d, e, f, g, h]))?),
        (126 | 127, _) => return Ok(None),
        _ => return Err("a server does not mask".into()),
    };
    let opcode = match head {
        0x81 => Opcode::Text,
        0x82 => Opcode::Binary,
        0x88 => Opcode::Close,
        0x89 => Opcode::Ping,
        0x8A => Opcode::Pong,
        _ => return Err(format!("a frame that is not read here: {head:#x}").into()),
    };
    let length = head_length + payload_length;
    Ok(bytes.get(head_length..length).map(|payload| Frame { opcode, payload, length }))
}

/// A masked frame, which is sent repeatedly with a different number in its placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// Positions of the numbers, with their masks.
    places: Vec<(usize, u128)>,
}

impl Template {
    /// The masking key is the same each time, which a server cannot distinguish from a new one.
    pub(crate) fn new(opcode: Opcode, text: &str) -> Self {
        let key: [u8; 4] = fastrand::u32(1..).to_ne_bytes();
        let mut bytes = vec![0x80 | opcode as u8];
        match u16::try_from(text.len()).expect("messages are short") {
            short @ 0..=125 => bytes.push(0x80 | short as u8),
            long => {
                bytes.push(0x80 | 126);
                bytes.extend(long.to_be_bytes());
            }
        }
        bytes.extend(key);
        let head = bytes.len();
        bytes.extend(text.bytes().enumerate().map(|(at, byte)| byte ^ key[at % 4]));
        let mask = |at: usize| u128::from_ne_bytes(std::array::from_fn(|digit| key[(at + digit) % 4]));
        let places = text.match_indices(NUMBER).map(|(at, _)| (head + at, mask(at))).collect();
        Self { bytes, places }
    }

    pub(crate) fn write(&self, number: u64, to: &mut Vec<u8>) {
        let begin = to.len();
        to.extend_from_slice(&self.bytes);
        let digits = u128::from_ne_bytes(digits(number));
        for (at, mask) in &self.places {
            let place = begin + at;
            to[place..place + DIGITS].copy_from_slice(&(digits ^ mask).to_ne_bytes());
        }
    }
}

/// Writes a frame that is sent only once.
pub(crate) fn write_once(opcode: Opcode, text: &str, to: &mut Vec<u8>) {
    Template::new(opcode, text).write(0, to);
}

fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// Parses the number at the beginning.
pub(crate) fn number_of(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.get(..DIGITS)?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

/// Opens a WebSocket. Returns the data that arrived after the answer.
pub(crate) fn handshake(stream: &mut TcpStream, path: &str) -> Result<Vec<u8>> {
    let host = stream.peer_addr()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    )?;
    let (mut read, mut some) = (Vec::new(), [0; 1_024]);
    let end = loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        let count = stream.read(&mut some)?;
        if count == 0 || read.len() > ANSWER_MAX {
            return Err(format!("no answer to a handshake: {}", String::from_utf8_lossy(&read)).into());
        }
        read.extend_from_slice(&some[..count]);
    };
    let answer = String::from_utf8_lossy(&read[..end]);
    if !answer.starts_with("HTTP/1.1 101 ") || !answer.contains(ACCEPT) {
        return Err(format!("no WebSocket at `{path}`: {answer}").into());
    }
    Ok(read.split_off(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unmasks a client's frame, as a server does.
    fn unmasked(frame: &[u8]) -> (u8, Vec<u8>) {
        let head = if frame[1] == 0xFE { 4 } else { 2 };
        let key = &frame[head..head + 4];
        let payload = frame[head + 4..].iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]);
        (frame[0], payload.collect())
    }

    #[test]
    fn a_template_has_its_number_in_each_place() {
        for rest in ["", "-", "--", "---", &"x".repeat(200)] {
            let template = Template::new(Opcode::Text, &format!("{rest}{NUMBER}{rest}.{NUMBER}{rest}"));
            let mut frame = Vec::new();
            template.write(9_042, &mut frame);
            let want = format!("{rest}0000000000009042{rest}.0000000000009042{rest}");
            assert_eq!(unmasked(&frame), (0x81, want.into_bytes()));
        }
    }

    #[test]
    fn frames_are_read_once_they_are_whole() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let payload = vec![b'p'; length];
            let mut frame = match length {
                0..=125 => vec![0x82, length as u8],
                126..=65_535 => vec![0x82, 126, (length >> 8) as u8, length as u8],
                _ => vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0],
            };
            frame.extend(&payload);
            let want = Frame { opcode: Opcode::Binary, payload: &payload, length: frame.len() };
            assert_eq!(first_frame(&frame[..frame.len() - 1]).unwrap(), None);
            assert_eq!(first_frame(&[&frame[..], b"more"].concat()).unwrap(), Some(want));
        }
        assert!(first_frame(&[0x01, 0]).is_err(), "the first part of a message in parts");
    }

    #[test]
    fn a_number_is_read_as_it_is_written() {
        for number in [0, 7, 1_234_567_890_123_456] {
            assert_eq!(number_of(&[&digits(number)[..], b"\"}"].concat()), Some(number));
        }
        assert_eq!(number_of(b"123"), None);
        assert_eq!(number_of(NUMBER.as_bytes()), None);
    }
}
