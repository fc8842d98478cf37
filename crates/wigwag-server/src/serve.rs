//! Connections: accept, serve, close.
//!
//! Uses hyper directly, because slow heads must be cut off before a request is parsed, and sockets must
//! be upgradable later.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt as _;
use tracing::debug;
use wigwag_store::{Clock as _, System};

use crate::app::App;
use crate::credentials::{Credentials, Known};
use crate::error::Error;
use crate::fleet;
use crate::limits::READ_BUFFER_BYTES_MAX;
use crate::patience::Patience;
use crate::peer::{Peer, network};
use crate::shared::Shared;
use crate::tls::Tls;

/// A running server. Dropping it ends it immediately; [`Running::stop`] is graceful.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    app: App,
    tls: Option<Arc<Shared<Tls>>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Returns the address on which it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Replaces tokens, keys and certificates. Connections stay open and their requests are checked against the new credentials
    /// at once; new connections use the new certificate. Hub sessions and event streams whose token was removed or changed end.
    /// Changes nothing if the credentials are invalid or would open the server.
    pub fn reload(&self, credentials: Credentials) -> Result<(), Error> {
        let Credentials { auth, s3, tls } = credentials;
        if auth.is_empty() && !self.app.known.get().auth.is_empty() {
            let what = "the last token was removed: the server would be open";
            return Err(Error::new(what, "keep at least one token, or restart the server without authentication"));
        }
        let known = Known::new(auth, s3, &self.app.settings)?;
        match (&self.tls, tls) {
            (Some(current), Some(tls)) => current.set(tls),
            (None, None) => {}
            _ => return Err(Error::new("TLS cannot be enabled or disabled while the server runs", "start it again")),
        }
        self.app.known.set(known);
        self.app.hub.recheck(self.app.known.get());
        Ok(())
    }

    /// Stops gracefully: no new connections are accepted, event streams and long-polls get a final answer, and requests in progress may finish
    /// within the grace time.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn start(
    listener: TcpListener,
    router: Router,
    app: App,
    tls: Option<Tls>,
    stop: watch::Sender<bool>,
    stopping: watch::Receiver<bool>,
) -> Result<Running, Error> {
    let addr = listener.local_addr().map_err(|error| Error::new(format!("no address: {error}"), "start it again"))?;
    let tls = tls.map(|tls| Arc::new(Shared::new(tls)));
    let settings = &app.settings;
    let places = Places {
        all: Arc::new(Semaphore::new(settings.connections_max)),
        by_address: Arc::default(),
        address_max: settings.address_connections_max,
        exempt: settings.trusted_proxies.clone(),
    };
    let (header_timeout, write_timeout) = (settings.header_timeout, settings.write_timeout);
    let door = Door { router, tls: tls.clone(), header_timeout, write_timeout };
    let task = tokio::spawn(run(listener, door, app.clone(), places, stopping));
    Ok(Running { addr, app, tls, stop, task })
}

/// Open connections by client network.
type Counts = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// Connection limits: in total and per client address.
struct Places {
    all: Arc<Semaphore>,
    by_address: Counts,
    address_max: usize,
    /// Trusted proxies, which many clients share.
    exempt: Vec<IpAddr>,
}

/// A connection's slot; released on drop. An extension of each request, so that a connection that becomes a hub session keeps
/// it until that is authenticated.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    of: Option<(IpAddr, Counts)>,
}

impl Places {
    /// Returns a slot, unless the address has too many connections.
    fn take(&self, permit: OwnedSemaphorePermit, address: IpAddr) -> Option<Place> {
        if self.exempt.contains(&address) {
            return Some(Place { _permit: permit, of: None });
        }
        let address = network(address);
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= self.address_max {
            metrics::counter!("wigwag_http_connections_refused_total").increment(1);
            return None;
        }
        *count += 1;
        Some(Place { _permit: permit, of: Some((address, Arc::clone(&self.by_address))) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((address, counts)) = &self.of else { return };
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}

/// Shared state that serves every connection.
#[derive(Clone)]
struct Door {
    router: Router,
    tls: Option<Arc<Shared<Tls>>>,
    header_timeout: Duration,
    write_timeout: Duration,
}

async fn run(listener: TcpListener, door: Door, app: App, places: Places, mut stopping: watch::Receiver<bool>) {
    let (hub, client, grace) = (app.hub.clone(), app.client.clone(), app.settings.grace);
    drop(app);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let (door, stopping) = (door.clone(), stopping.clone());
        connections.spawn(door.serve(stream, Arc::new(place), stopping));
        while connections.try_join_next().is_some() {}
    }
    // From here on the port is free, and new connections are refused.
    drop(listener);
    fleet::withdraw(&client);
    tokio::select! {
        biased;
        () = async {
            hub.stop().await;
            while connections.join_next().await.is_some() {}
        } => {}
        () = System.sleep(grace) => debug!("the grace time is over"),
    }
    connections.shutdown().await;
    // Other processes no longer post to this server.
    client.flush().await;
}

/// Accepts the next connection, once there is a slot for it.
async fn accept(listener: &TcpListener, places: &Places) -> Option<((TcpStream, IpAddr), Place)> {
    let permit = Arc::clone(&places.all).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            let address = peer.ip().to_canonical();
            places.take(permit, address).map(|place| ((stream, address), place))
        }
        Err(error) => {
            // The usual cause is too many open files: other connections must close first.
            debug!(%error, "no connection");
            System.sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

impl Door {
    async fn serve(self, (stream, address): (TcpStream, IpAddr), place: Arc<Place>, stopping: watch::Receiver<bool>) {
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.talk(stream, address, place, stopping).await };
        let tls = tls.get();
        match tokio::time::timeout(self.header_timeout, tls.0.accept(stream)).await {
            Ok(Ok(stream)) => self.talk(stream, address, place, stopping).await,
            Ok(Err(error)) => debug!(%error, "no TLS"),
            Err(_) => debug!("a TLS handshake timed out"),
        }
    }

    async fn talk<S>(self, stream: S, address: IpAddr, place: Arc<Place>, mut stopping: watch::Receiver<bool>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.header_timeout).max_buf_size(READ_BUFFER_BYTES_MAX);
        let service = TowerToHyperService::new(self.router.map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(address));
            request.extensions_mut().insert(Arc::clone(&place));
            request
        }));
        let stream = TokioIo::new(Patience::new(stream, self.write_timeout));
        let mut connection = pin!(http.serve_connection(stream, service).with_upgrades());
        let stopped = tokio::select! {
            biased;
            ended = connection.as_mut() => return said(ended),
            stopped = stopping.wait_for(|stopping| *stopping) => stopped.is_ok(),
        };
        if stopped {
            // Requests in progress are answered; then the connection closes.
            connection.as_mut().graceful_shutdown();
        }
        said(connection.await);
    }
}

fn said(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        debug!(%error, "a connection ended");
    }
}
