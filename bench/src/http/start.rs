//! Starts a server: wigwag from this binary, Restate from npm and its handlers from `bench/peers/restate`.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wigwag_store::{Clock as _, System};

use super::Result;
use super::process::Process;
use super::side::{Side, Target, Told};
use super::wire::Connection;

/// Timeout until Restate responds.
const READY_MAX: Duration = Duration::from_secs(90);

pub(crate) fn wigwag(dir: &Path, metrics: bool) -> Result<Side> {
    let folder = tempfile::tempdir_in(dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("http-server").arg("--dir").arg(folder.path().join("store"));
    if metrics {
        command.arg("--metrics");
    }
    let (server, addr) = Process::listening(&mut command)?;
    Ok(Side { target: Arc::new(Target::wigwag(addr)), server, handlers: None, folder })
}

/// Paths of the installed Restate.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    server: PathBuf,
    handlers: PathBuf,
    pub(crate) version: String,
}

/// Installs and builds missing parts with `bench/peers/restate.sh`, whose last lines print the paths.
pub(crate) fn install() -> Result<Installed> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/restate.sh");
    let output = Command::new("bash").arg(&script).stderr(std::process::Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = |name: &str| -> Result<String> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.ok_or_else(|| format!("`{}` did not say `{name}…`", script.display()))?.to_owned())
    };
    if !output.status.success() {
        return Err(format!("`{}` failed", script.display()).into());
    }
    Ok(Installed { server: said("server ")?.into(), handlers: said("handlers ")?.into(), version: said("version ")? })
}

/// Starts Restate with its default settings, which are durable, on loopback, and registers the handlers.
pub(crate) async fn restate(dir: &Path, installed: &Installed) -> Result<Side> {
    let folder = tempfile::tempdir_in(dir)?;
    let [node, ingress, admin] = free_ports()?;
    let mut command = Command::new(&installed.server);
    command.args(["--no-logo", "--listen-mode", "tcp", "--bind-ip", "127.0.0.1", "--node-name", "bench"]);
    command.arg("--bind-port").arg(node.port().to_string()).arg("--base-dir").arg(folder.path().join("data"));
    command.env("RESTATE_INGRESS__BIND_PORT", ingress.port().to_string());
    command.env("RESTATE_ADMIN__BIND_PORT", admin.port().to_string());
    command.env("RESTATE_DISABLE_TELEMETRY", "true").env("DO_NOT_TRACK", "1");
    let log = std::fs::File::create(folder.path().join("log"))?;
    let server = Process::start(command.stdout(log.try_clone()?).stderr(log))?;
    let teller = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let (handlers, at) = Process::listening(Command::new(&installed.handlers).arg(teller.local_addr()?.to_string()))?;
    let told = Told::default();
    tokio::spawn(told.clone().listen(teller.accept().await?.0));
    register(admin, at).await?;
    ready(ingress).await?;
    let target = Arc::new(Target::restate(ingress, admin, told));
    Ok(Side { target, server, handlers: Some(handlers), folder })
}

/// Returns ports that were free just now.
fn free_ports() -> Result<[SocketAddr; 3]> {
    let open = || TcpListener::bind("127.0.0.1:0");
    let held = [open()?, open()?, open()?];
    Ok([held[0].local_addr()?, held[1].local_addr()?, held[2].local_addr()?])
}

/// Registers the handlers, with retries until Restate responds.
async fn register(admin: SocketAddr, handlers: SocketAddr) -> Result<()> {
    let body = format!(r#"{{"uri":"http://{handlers}"}}"#);
    until(|| async { Connection::open(admin).await?.post("/deployments", &body).await?.expect(201) }).await
}

/// Waits until a call succeeds end to end.
async fn ready(ingress: SocketAddr) -> Result<()> {
    until(|| async { Connection::open(ingress).await?.post("/Bench/three", "39").await?.expect(200) }).await
}

async fn until<F: Future<Output = Result<Vec<u8>>>>(once: impl Fn() -> F) -> Result<()> {
    let end = Instant::now() + READY_MAX;
    loop {
        match once().await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(format!("Restate does not answer: {error}").into()),
            Err(_) => System.sleep(Duration::from_millis(100)).await,
        }
    }
}
