//! Messages split into frames in different ways, and frames split during transfer: the hub treats all of them alike.

use crate::hub_socket::Socket;
use crate::kit::Kit;

const PING: &str = r#"{"type":"ping"}"#;
const PONG: &str = r#"{"type":"pong"}"#;

/// A frame with this first byte, masked.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x9C, 0x01, 0x7F, 0xE2];
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

fn text(payload: &str) -> Vec<u8> {
    frame(0x81, payload.as_bytes())
}

/// Ways to send one message.
fn ways() -> Vec<(&'static str, Vec<u8>)> {
    let (first, last) = PING.as_bytes().split_at(5);
    let long = |length: usize| format!("{PING}{}", " ".repeat(length));
    vec![
        ("a text", text(PING)),
        ("one that is escaped", text(r#"{"type":"pin\u0067"}"#)),
        ("longer than a short length", text(&long(200))),
        ("longer than the limit of copied frames", text(&long(20_000))),
        ("longer than one read", text(&long(70_000))),
        ("much longer", text(&long(900_000))),
        ("a binary frame", frame(0x82, PING.as_bytes())),
        ("two parts", [frame(0x01, first), frame(0x80, last)].concat()),
        ("two parts with a ping between", [frame(0x01, first), frame(0x89, b"?"), frame(0x80, last)].concat()),
        ("after an unsolicited pong", [frame(0x8A, b""), text(PING)].concat()),
    ]
}

#[tokio::test]
async fn a_message_is_the_same_however_it_is_cut_into_frames() {
    let kit = Kit::new().await;
    // All of them in sequence: frames after another kind of frame are read as well.
    let mut all = Socket::join(kit.server.addr()).await;
    for (way, bytes) in ways() {
        let mut alone = Socket::join(kit.server.addr()).await;
        for socket in [&mut alone, &mut all] {
            for _ in 0..2 {
                socket.send_bytes(&[&bytes[..], &bytes, &text(PING)].concat()).await;
                for _ in 0..3 {
                    assert_eq!(socket.next_text().await.as_deref(), Ok(PONG), "{way}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_frame_is_the_same_however_it_comes() {
    let kit = Kit::new().await;
    for (way, bytes) in ways().into_iter().filter(|(_, bytes)| bytes.len() < 100_000) {
        let ping = text(PING);
        let two = [&ping[..], &bytes].concat();
        // Cut within the heads, and at some other places.
        for cut in [1, 2, 6, 7].into_iter().chain(20..36).chain([two.len() / 2, two.len() - 1]) {
            let mut socket = Socket::join(kit.server.addr()).await;
            let (first, rest) = two.split_at(cut.min(two.len() - 1));
            socket.send_bytes(first).await;
            let is_whole = first.len() >= ping.len();
            if is_whole {
                // The first frame was read; the rest arrives separately.
                assert_eq!(socket.next_text().await.as_deref(), Ok(PONG), "{way}, cut at {cut}");
            }
            socket.send_bytes(rest).await;
            for _ in 0..2 - usize::from(is_whole) {
                assert_eq!(socket.next_text().await.as_deref(), Ok(PONG), "{way}, cut at {cut}");
            }
        }
    }
    let mut slow = Socket::open(kit.server.addr()).await;
    for byte in [text(PING), frame(0x89, b"?"), text(PING)].concat() {
        slow.send_bytes(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(slow.next_text().await.as_deref(), Ok(PONG));
    assert_eq!(slow.next_text().await.as_deref(), Ok(PONG));
}

#[tokio::test]
async fn what_is_no_frame_closes_the_connection_and_says_why() {
    let kit = Kit::new().await;
    let not_utf8 = frame(0x81, b"{\"type\":\"\xFF\"}");
    let unmasked = [&[0x81, u8::try_from(PING.len()).unwrap()], PING.as_bytes()].concat();
    let too_long = [&[0x81, 0xFF][..], &5_000_000_u64.to_be_bytes(), &[0; 4]].concat();
    let padded = [&[0x81, 0xFE, 0, 5][..], &[0; 9]].concat();
    let reserved = frame(0xC1, PING.as_bytes());
    let last_part_first = frame(0x80, PING.as_bytes());
    let goodbye = frame(0x88, &1000_u16.to_be_bytes());
    for (what, bytes, code) in [
        ("not UTF-8", &not_utf8, 1007),
        ("not masked", &unmasked, 1002),
        ("too long", &too_long, 1009),
        ("a length that is longer than it must be", &padded, 1002),
        ("a bit that means nothing", &reserved, 1002),
        ("a part of nothing", &last_part_first, 1002),
        ("a goodbye", &goodbye, 1000),
    ] {
        for before in [0, 1, 40] {
            let mut socket = Socket::open(kit.server.addr()).await;
            let all: Vec<u8> = text(PING).repeat(before).into_iter().chain(bytes.iter().copied()).collect();
            socket.send_bytes(&all).await;
            // Earlier answers may be lost with the connection.
            assert_eq!(socket.closed().await, Ok(code), "{what}, after {before}");
        }
    }
}
