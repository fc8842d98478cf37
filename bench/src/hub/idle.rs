//! H4: memory of an idle connection on the server.

use serde::Serialize;

use super::crowd::Crowd;
use super::dialect::Who;
use super::start::Server;
use crate::http::Result;
use crate::http::process::{Memory, raise_files, rest};

/// Open files besides the connections.
const SPARE_FILES: u64 = 500;

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) connections: usize,
    /// Whether each connection registers an address.
    pub(crate) named: bool,
    pub(crate) before: Memory,
    pub(crate) with: Memory,
    pub(crate) kib_each: f64,
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
pub(crate) fn measure(server: &Server, connections: usize, named: bool) -> Result<Idle> {
    let files = raise_files()?;
    if files < connections as u64 + SPARE_FILES {
        return Err(format!("{connections} connections want more than {files} open files: raise `ulimit -Hn`").into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(rest(&[&server.process]))?;
    let before = server.process.memory()?;
    let mut crowd = Crowd::new(server.side, server.addr)?;
    for _ in 0..connections {
        let name = named.then(|| server.new_name());
        crowd.join(&Who { name, ..Who::default() })?;
    }
    runtime.block_on(rest(&[&server.process]))?;
    let with = server.process.memory()?;
    crowd.check_alive()?;
    let kib_each = (with.resident_mb - before.resident_mb) * 1e6 / 1_024.0 / connections as f64;
    Ok(Idle { connections, named, before, with, kib_each })
}
