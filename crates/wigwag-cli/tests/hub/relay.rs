//! A proxy between a client and a server whose connections can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards bytes to one server.
pub(crate) struct Relay {
    here: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// Number of cuts; a cut ends all earlier connections.
    cuts: watch::Sender<u64>,
    /// Whether bytes from the server are dropped on the current connections.
    mute: AtomicBool,
    refuse: AtomicBool,
    /// Number of chunks received from clients.
    heard: watch::Sender<u64>,
}

impl Relay {
    /// Starts a relay to the server with this `http://` address.
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

    /// Returns the URL of the hub behind the relay.
    pub(crate) fn hub(&self) -> String {
        format!("ws://{}/hub", self.here)
    }

    /// Drops all bytes from the server until the next cut.
    pub(crate) fn mute(&self) {
        self.state.mute.store(true, Ordering::SeqCst);
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
        self.state.mute.store(false, Ordering::SeqCst);
    }

    /// Waits until clients have sent this many further chunks.
    pub(crate) async fn heard(&self, times: u64) {
        let mut heard = self.state.heard.subscribe();
        let until = *heard.borrow() + times;
        heard.wait_for(|count| *count >= until).await.unwrap();
    }

    /// Sets whether new connections are closed immediately.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.state.refuse.store(refuse, Ordering::SeqCst);
    }
}

impl State {
    /// Counts a chunk; never drops it.
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
