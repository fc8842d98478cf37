//! A wire that can be cut: it carries bytes between a client and a server, or does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Carries bytes to one server.
pub(crate) struct Relay {
    here: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// How often the wire was cut; connections of before end.
    cuts: watch::Sender<u64>,
    /// What the server says on the wires that are there is lost.
    mute: AtomicBool,
    refuse: AtomicBool,
    /// How often something came from a client.
    heard: watch::Sender<u64>,
}

impl Relay {
    /// To the server of that `http://` address.
    pub(crate) async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let there: SocketAddr = server.trim_start_matches("http://").parse().unwrap();
        let state = Arc::new(State {
            cuts: watch::channel(0).0,
            mute: AtomicBool::new(false),
            refuse: AtomicBool::new(false),
            heard: watch::channel(0).0,
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if !shared.refuse.load(Ordering::SeqCst) {
                    tokio::spawn(carry(near, there, Arc::clone(&shared)));
                }
            }
        });
        Self { here, state }
    }

    /// Where a client finds the hub behind it.
    pub(crate) fn hub(&self) -> String {
        format!("ws://{}/hub", self.here)
    }

    /// Nothing that the server says arrives any more, until the wire is cut.
    pub(crate) fn mute(&self) {
        self.state.mute.store(true, Ordering::SeqCst);
    }

    /// All connections end at once.
    pub(crate) fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
        self.state.mute.store(false, Ordering::SeqCst);
    }

    /// Waits until clients have said something so many times more.
    pub(crate) async fn heard(&self, times: u64) {
        let mut heard = self.state.heard.subscribe();
        let until = *heard.borrow() + times;
        heard.wait_for(|count| *count >= until).await.unwrap();
    }

    /// Whether new connections end before anything is carried.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.state.refuse.store(refuse, Ordering::SeqCst);
    }
}

impl State {
    /// Counts, and loses nothing.
    fn hear(&self) -> bool {
        self.heard.send_modify(|heard| *heard += 1);
        false
    }
}

async fn carry(near: TcpStream, there: SocketAddr, state: Arc<State>) {
    let mut cuts = state.cuts.subscribe();
    let Ok(far) = TcpStream::connect(there).await else { return };
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::select! {
        _ = cuts.changed() => {}
        () = copy(near_read, far_write, || state.hear()) => {}
        () = copy(far_read, near_write, || state.mute.load(Ordering::SeqCst)) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_lost: impl Fn() -> bool) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        if !is_lost() && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
