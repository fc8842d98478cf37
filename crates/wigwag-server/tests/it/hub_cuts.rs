//! Connections that are cut at any byte, under load: no acknowledged message is lost, none is processed twice by a
//! client that acknowledges, and the order is kept.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wigwag_store::{Clock as _, System};

use crate::hub_socket::{Socket, now};
use crate::kit::Kit;

/// Default duration in seconds; set `WIGWAG_HUB_CUTS_SECONDS` to change it.
const SPAN: u64 = 60;

const PAIRS: usize = 4;

/// Maximum number of unanswered asks of a sender.
const WINDOW: usize = 8;

/// Maximum number of asks that are sent and not processed.
const BEHIND_MAX: u64 = 80;

/// Processed messages are queued again if their acknowledgements were lost, possibly several times: a full queue
/// rejects messages, which is correct and tested elsewhere.
const QUEUE_MAX: usize = 10_000;

/// Forwards a number of bytes, then closes both sides.
async fn proxy(listener: TcpListener, to: SocketAddr, calm: Arc<AtomicBool>, cuts: Arc<AtomicU64>) {
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        let Ok(far) = TcpStream::connect(to).await else { continue };
        let left = if calm.load(Ordering::SeqCst) { u64::MAX } else { fastrand::u64(500..200_000) };
        let (calm, cuts) = (Arc::clone(&calm), Arc::clone(&cuts));
        tokio::spawn(async move {
            if pass(near, far, left, &calm).await {
                cuts.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
}

/// Forwards bytes; returns whether the connection was cut here.
async fn pass(mut near: TcpStream, mut far: TcpStream, mut left: u64, calm: &AtomicBool) -> bool {
    let (mut one, mut other) = ([0; 4_096], [0; 4_096]);
    loop {
        let (count, out) = tokio::select! {
            read = near.read(&mut one) => (read, true),
            read = far.read(&mut other) => (read, false),
        };
        let Ok(count @ 1..) = count else { return false };
        let cut = u64::try_from(count).unwrap() >= left && !calm.load(Ordering::SeqCst);
        // Cuts at any byte of the received data.
        let count = if cut { usize::try_from(left).unwrap() } else { count };
        left = left.saturating_sub(u64::try_from(count).unwrap());
        let wrote = match out {
            true => far.write_all(&one[..count]).await,
            false => near.write_all(&other[..count]).await,
        };
        if cut || wrote.is_err() {
            return cut;
        }
    }
}

/// Reconnects a client as the same session.
async fn come_back(addr: SocketAddr, address: &str, session: &mut Option<String>) -> Socket {
    loop {
        let Ok(mut socket) = Socket::try_open(addr, &[]).await else { continue };
        let resume = session.as_ref().map(|id| json!({"sessionId": id}));
        let hello = json!({"protocolVersion": "0.1.0", "resume": resume});
        if !matches!(socket.connect(hello).await, Ok(got) if got["type"] == "hub:connected") {
            continue;
        }
        *session = Some(socket.session.clone());
        let frame = socket.frame("hub:register", "ask", json!({"actorAddress": address}));
        if socket.send(&frame).await.is_err() {
            continue;
        }
        // Queued messages arrive after the answer.
        if matches!(socket.next().await, Ok(got) if got["type"] == "hub:registered") {
            return socket;
        }
    }
}

/// Sends consecutive numbers as asks until stopped. Returns the number of acknowledged asks.
async fn send(addr: SocketAddr, pair: usize, stop: Arc<AtomicBool>, dealt_with: Arc<AtomicU64>) -> u64 {
    let (from, to) = (format!("@(sender/{pair})"), format!("@(receiver/{pair})"));
    let (mut next, mut acknowledged, mut session) = (0_u64, 0, None);
    let mut open: VecDeque<Value> = VecDeque::new();
    'connection: loop {
        let mut socket = come_back(addr, &from, &mut session).await;
        // Unanswered asks are retried in order, under the same ids.
        for frame in &open {
            if socket.send(frame).await.is_err() {
                continue 'connection;
            }
        }
        loop {
            let behind = |next: u64| next - dealt_with.load(Ordering::SeqCst) >= BEHIND_MAX;
            while open.len() < WINDOW && !stop.load(Ordering::SeqCst) && !behind(next) {
                let frame = json!({
                    "id": format!("{pair}-{next}"), "from": from, "to": "@(hub)", "type": "hub:send", "pattern": "ask",
                    "timestamp": now(), "payload": {"to": to, "type": "number", "data": next}, "metadata": {"requireAck": true},
                });
                next += 1;
                let sent = socket.send(&frame).await;
                open.push_back(frame);
                if sent.is_err() {
                    continue 'connection;
                }
            }
            if open.is_empty() && stop.load(Ordering::SeqCst) {
                return acknowledged;
            }
            if open.is_empty() {
                // The receiver is disconnected and has a backlog. A poll of a condition, not a fixed delay.
                System.sleep(Duration::from_millis(5)).await;
                continue;
            }
            let Ok(got) = socket.next().await else { continue 'connection };
            let answered = open.iter().position(|frame| frame["id"] == got["correlationId"]);
            match (answered, got["type"].as_str()) {
                (Some(place), Some("hub:delivery_ack")) => {
                    open.remove(place);
                    acknowledged += 1;
                }
                (Some(_), _) => panic!("refused: {got}"),
                (None, _) => {}
            }
        }
    }
}

/// Receives and acknowledges messages up to a count. Returns their numbers in the order in which they were processed.
async fn receive(addr: SocketAddr, pair: usize, all: Arc<AtomicU64>, count: Arc<AtomicU64>) -> Vec<u64> {
    let address = format!("@(receiver/{pair})");
    let (mut numbers, mut dealt_with, mut session) = (Vec::new(), BTreeSet::new(), None);
    loop {
        let mut socket = come_back(addr, &address, &mut session).await;
        loop {
            if u64::try_from(numbers.len()).unwrap() >= all.load(Ordering::SeqCst) {
                return numbers;
            }
            // With a timeout, because the total is known only at the end.
            let Ok(next) = tokio::time::timeout(Duration::from_millis(200), socket.next()).await else { continue };
            let Ok(got) = next else { break };
            if got["type"] != "number" {
                continue;
            }
            // A duplicate has the same id, and is only acknowledged again.
            if dealt_with.insert(got["id"].as_str().unwrap().to_owned()) {
                numbers.push(got["payload"].as_u64().unwrap());
                count.fetch_add(1, Ordering::SeqCst);
            }
            let ack = socket.frame("hub:ack", "tell", json!({"messageId": got["id"]}));
            if socket.send(&ack).await.is_err() {
                break;
            }
        }
    }
}

/// Drains the queues, which may only contain processed messages whose acknowledgements were lost.
async fn empty(addr: SocketAddr, counts: &[u64]) {
    for (pair, count) in counts.iter().copied().enumerate() {
        let address = format!("@(receiver/{pair})");
        let mut socket = come_back(addr, &address, &mut None).await;
        tokio::spawn(async move {
            while let Ok(got) = socket.next().await {
                assert!(got["type"] != "number" || got["payload"].as_u64().unwrap() < count, "{got}");
                let ack = socket.frame("hub:ack", "tell", json!({"messageId": got["id"]}));
                socket.send(&ack).await.unwrap();
            }
        });
    }
    let mut asker = Socket::join(addr).await;
    while asker.ask("hub:queue_stats", json!({})).await["payload"]["queues"]["messages"] != 0 {}
}

#[expect(clippy::print_stdout, reason = "the figures are useful for longer runs")]
fn tell(asks: u64, cuts: u64) {
    println!("{asks} asks, {cuts} cuts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_at_random_lose_double_and_reorder_nothing() {
    let span = std::env::var("WIGWAG_HUB_CUTS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SPAN);
    let kit = Kit::with(|server| {
        let mut settings = wigwag_server::Settings::default();
        settings.hub.rate = None;
        settings.hub.queue_max = QUEUE_MAX;
        server.settings(settings)
    })
    .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (calm, cuts, stop) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    tokio::spawn(proxy(listener, kit.server.addr(), Arc::clone(&calm), Arc::clone(&cuts)));
    let dealt_with: Vec<Arc<AtomicU64>> = (0..PAIRS).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let counts: Vec<Arc<AtomicU64>> = (0..PAIRS).map(|_| Arc::new(AtomicU64::new(u64::MAX))).collect();
    let receivers: Vec<_> = (0..PAIRS)
        .map(|pair| tokio::spawn(receive(addr, pair, Arc::clone(&counts[pair]), Arc::clone(&dealt_with[pair]))))
        .collect();
    // An address that was never registered has no queue.
    for pair in 0..PAIRS {
        let mut socket = Socket::join(kit.server.addr()).await;
        let address = format!("@(receiver/{pair})");
        while socket.ask("hub:discover", json!({"pattern": address})).await["payload"]["actors"] == json!([]) {}
    }
    let senders: Vec<_> = (0..PAIRS)
        .map(|pair| tokio::spawn(send(addr, pair, Arc::clone(&stop), Arc::clone(&dealt_with[pair]))))
        .collect();
    // The duration of the faults, not a wait for a condition.
    System.sleep(Duration::from_secs(span)).await;
    stop.store(true, Ordering::SeqCst);
    calm.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for (sender, count) in senders.into_iter().zip(&counts) {
        let asks = sender.await.unwrap();
        acknowledged.push(asks);
        count.store(asks, Ordering::SeqCst);
    }
    for (pair, receiver) in receivers.into_iter().enumerate() {
        let numbers = receiver.await.unwrap();
        let expected: Vec<u64> = (0..acknowledged[pair]).collect();
        assert_eq!(numbers, expected, "pair {pair}");
    }
    empty(kit.server.addr(), &acknowledged).await;
    let (total, cuts) = (acknowledged.iter().sum::<u64>(), cuts.load(Ordering::SeqCst));
    tell(total, cuts);
    assert!(cuts > span, "only {cuts} cuts");
    assert!(total > 100 * span, "only {total} asks");
}
