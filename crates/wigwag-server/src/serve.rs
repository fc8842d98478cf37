//! Connections: accepted, served, and let go.
//!
//! Written on hyper itself, because slow heads must be cut off before anything is known of a request, and sockets must
//! be able to become something else later.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::debug;
use wigwag::store::{Clock as _, System};

use crate::error::Error;
use crate::hub::Shell;
use crate::patience::Patience;
use crate::settings::Settings;
use crate::tls::Tls;

/// A server that runs. Dropped, it ends at once; [`Running::stop`] is kinder.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops: nothing new is accepted, event streams and long-polls get a last word, and what is under way may finish
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
    hub: Shell,
    tls: Option<Tls>,
    settings: &Settings,
    stop: watch::Sender<bool>,
    stopping: watch::Receiver<bool>,
) -> Result<Running, Error> {
    let addr = listener.local_addr().map_err(|error| Error::new(format!("no address: {error}"), "start it again"))?;
    let door = Door { router, tls, header_timeout: settings.header_timeout, write_timeout: settings.write_timeout };
    let task = tokio::spawn(run(listener, door, hub, settings.connections_max, settings.grace, stopping));
    Ok(Running { addr, stop, task })
}

/// What every connection is served with.
#[derive(Clone)]
struct Door {
    router: Router,
    tls: Option<Tls>,
    header_timeout: Duration,
    write_timeout: Duration,
}

async fn run(
    listener: TcpListener,
    door: Door,
    hub: Shell,
    connections_max: usize,
    grace: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let (door, stopping) = (door.clone(), stopping.clone());
        connections.spawn(async move {
            door.serve(stream, stopping).await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
    // From here on the port is free, and whoever knocks is told so.
    drop(listener);
    tokio::select! {
        biased;
        () = async {
            hub.stop().await;
            while connections.join_next().await.is_some() {}
        } => {}
        () = System.sleep(grace) => debug!("the grace time is over"),
    }
    connections.shutdown().await;
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            // Most often there are too many open files: others must close first.
            debug!(%error, "no connection");
            System.sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

impl Door {
    async fn serve(self, stream: TcpStream, stopping: watch::Receiver<bool>) {
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.talk(stream, stopping).await };
        match tokio::time::timeout(self.header_timeout, tls.0.accept(stream)).await {
            Ok(Ok(stream)) => self.talk(stream, stopping).await,
            Ok(Err(error)) => debug!(%error, "no TLS"),
            Err(_) => debug!("a handshake took too long"),
        }
    }

    async fn talk<S>(self, stream: S, mut stopping: watch::Receiver<bool>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.header_timeout);
        let service = TowerToHyperService::new(self.router);
        let stream = TokioIo::new(Patience::new(stream, self.write_timeout));
        let mut connection = pin!(http.serve_connection(stream, service).with_upgrades());
        let stopped = tokio::select! {
            biased;
            ended = connection.as_mut() => return said(ended),
            stopped = stopping.wait_for(|stopping| *stopping) => stopped.is_ok(),
        };
        if stopped {
            // What is under way is answered; then the connection closes.
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
