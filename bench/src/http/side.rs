//! The two servers as their clients see them: how a run is started, signalled and awaited over HTTP.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use wigwag_store::{Clock as _, System};

use super::Result;
use super::process::Process;
use super::wire::Connection;

/// Payload of a signal, and result of a run of three steps.
const PAYLOAD: &str = "42";

/// Work that a client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// W1: starts a run of three steps and awaits its result.
    Three,
    /// W2: starts a run that waits, signals it and awaits its result. The start is not timed.
    Signal,
    /// The same; verifies that the run is parked before it is signalled, if the server parks waiting runs.
    SignalParked,
}

/// A server to measure, with its processes and its folder.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) target: Arc<Target>,
    pub(crate) server: Process,
    /// The process of users' code, if it is separate.
    pub(crate) handlers: Option<Process>,
    pub(crate) folder: tempfile::TempDir,
}

impl Side {
    pub(crate) fn processes(&self) -> Vec<&Process> {
        std::iter::once(&self.server).chain(&self.handlers).collect()
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.server.stop().await?;
        drop(self.handlers);
        // Removes the files of the killed process; files that cannot be removed remain below `target`.
        let _ = self.folder.close();
        Ok(())
    }
}

/// Address and protocol of a server.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) addr: SocketAddr,
    /// Makes the keys of runs unique.
    next: AtomicU64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Wigwag,
    Restate { admin: SocketAddr, told: Told },
}

impl Target {
    pub(crate) fn wigwag(addr: SocketAddr) -> Self {
        Self { addr, next: AtomicU64::new(0), kind: Kind::Wigwag }
    }

    pub(crate) fn restate(addr: SocketAddr, admin: SocketAddr, told: Told) -> Self {
        Self { addr, next: AtomicU64::new(0), kind: Kind::Restate { admin, told } }
    }

    fn new_key(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts a run that waits for a signal, without awaiting it. Returns its key.
    pub(crate) async fn park(&self, on: &mut Connection) -> Result<u64> {
        let key = self.new_key();
        match &self.kind {
            Kind::Wigwag => {
                on.post("/v1/runs", &format!(r#"{{"type":"go","id":"p-{key}"}}"#)).await?.expect(201)?;
            }
            Kind::Restate { .. } => {
                on.post("/Bench/park/send", &key.to_string()).await?.expect(202)?;
            }
        }
        Ok(key)
    }

    /// Queries the server for the number of parked runs.
    pub(crate) async fn parked(&self) -> Result<u64> {
        match &self.kind {
            Kind::Wigwag => self.waiting().await,
            Kind::Restate { admin, .. } => {
                let query = r#"{"query":"SELECT count(*) AS n FROM sys_invocation WHERE status = 'suspended'"}"#;
                let body = Connection::open(*admin).await?.post("/query", query).await?.expect(200)?;
                let found: serde_json::Value = serde_json::from_slice(&body)?;
                Ok(found["rows"][0]["n"].as_u64().ok_or("no count")?)
            }
        }
    }

    async fn waiting(&self) -> Result<u64> {
        let (mut on, mut count, mut after) = (Connection::open(self.addr).await?, 0, String::new());
        loop {
            let body = on.get(&format!("/v1/waiting?name=go&limit=1000{after}")).await?.expect(200)?;
            let page: serde_json::Value = serde_json::from_slice(&body)?;
            count += page["items"].as_array().map_or(0, Vec::len) as u64;
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(count),
            }
        }
    }
}

/// A client with two connections: one for the awaited result, and one for requests in between.
#[derive(Debug)]
pub(crate) struct Worker {
    target: Arc<Target>,
    waits: Connection,
    tells: Connection,
}

impl Worker {
    pub(crate) async fn new(target: Arc<Target>) -> Result<Self> {
        let (waits, tells) = (Connection::open(target.addr).await?, Connection::open(target.addr).await?);
        Ok(Self { target, waits, tells })
    }

    /// Does the work once, and returns its duration.
    pub(crate) async fn work(&mut self, work: Work) -> Result<Duration> {
        let target = Arc::clone(&self.target);
        match (work, &target.kind) {
            (Work::Three, Kind::Wigwag) => self.call("/v1/runs", r#"{"type":"three","input":39,"wait":"50s"}"#).await,
            (Work::Three, Kind::Restate { .. }) => self.call("/Bench/three", "39").await,
            (_, Kind::Wigwag) => self.wigwag_signal(target.new_key(), work == Work::SignalParked).await,
            (_, Kind::Restate { told, .. }) => self.restate_signal(target.new_key(), told).await,
        }
    }

    async fn call(&mut self, path: &str, body: &str) -> Result<Duration> {
        let began = Instant::now();
        let body = self.waits.post(path, body).await?.expect(200)?;
        done(&body, began)
    }

    async fn wigwag_signal(&mut self, key: u64, seen: bool) -> Result<Duration> {
        let run = format!("/v1/runs/s-{key}");
        self.waits.post("/v1/runs", &format!(r#"{{"type":"go","id":"s-{key}"}}"#)).await?.expect(201)?;
        while seen && !self.tells.get(&run).await?.text().contains(r#""parked":true"#) {
            System.sleep(Duration::from_millis(1)).await;
        }
        self.waits.send("GET", &format!("{run}/result?timeout=50s"), "").await?;
        let began = Instant::now();
        self.tells.send("POST", &format!("{run}/signals/go"), &format!(r#"{{"payload":{PAYLOAD}}}"#)).await?;
        let took = done(&self.waits.receive().await?.expect(200)?, began)?;
        self.tells.receive().await?.expect(200)?;
        Ok(took)
    }

    async fn restate_signal(&mut self, key: u64, told: &Told) -> Result<Duration> {
        let awakeable = told.expect(key);
        self.waits.send("POST", "/Bench/go", &key.to_string()).await?;
        let path = format!("/restate/awakeables/{}/resolve", awakeable.await?);
        let began = Instant::now();
        self.tells.send("POST", &path, PAYLOAD).await?;
        let took = done(&self.waits.receive().await?.expect(200)?, began)?;
        self.tells.receive().await?.expect(202)?;
        Ok(took)
    }
}

fn done(body: &[u8], began: Instant) -> Result<Duration> {
    let took = began.elapsed();
    match body == PAYLOAD.as_bytes() {
        true => Ok(took),
        false => Err(format!("want {PAYLOAD}, got: {}", String::from_utf8_lossy(body)).into()),
    }
}

/// Awakeables as reported by their handlers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>);

impl Told {
    fn expect(&self, key: u64) -> oneshot::Receiver<String> {
        let (tell, told) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, tell);
        told
    }

    /// Reads lines `KEY ID`. An unexpected key belongs to a run that stays parked, or is a duplicate.
    pub(crate) async fn listen(self, stream: TcpStream) -> Result<()> {
        let mut lines = BufReader::new(stream).lines();
        while let Some(line) = lines.next_line().await? {
            let (key, id) = line.split_once(' ').ok_or("want `KEY ID`")?;
            let expected = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.parse()?);
            if let Some(tell) = expected {
                // The receiver may have given up.
                let _ = tell.send(id.to_owned());
            }
        }
        Ok(())
    }
}
