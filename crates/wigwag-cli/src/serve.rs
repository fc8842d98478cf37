//! `wigwag serve` and `wigwag dev`: one process with the API, and services that keep the store tidy.
//!
//! It stops in this order: nothing more is accepted and requests under way are answered; then runs are parked and given
//! back. What was acknowledged is in the store long before.

mod config;
mod demo;
mod files;
mod logs;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};
use wigwag::{Engine, LinkSecret, RunHandle, Settings};
use wigwag_server::{Metrics, Rate as ServerRate, Running, Server, Settings as ServerSettings};
use wigwag_store::Opened;

use crate::args::{Dev, Serve, StoreArgs};
use crate::commands::token::random_hex;
use crate::commands::{command, link_secret, no_server, settings};
use crate::error::Failed;
use crate::input::Rate;
use crate::output::{line, talk};
use config::Config;

const DEFAULT_BIND: &str = "127.0.0.1:7070";

/// The file beside the store that holds the secret of a development server's links.
const SECRET_FILE: &str = "link-secret";

/// Serves a store for production.
pub(crate) async fn serve(args: &StoreArgs, wanted: Serve) -> Result<(), Failed> {
    no_server(args)?;
    let telemetry = logs::start()?;
    let config = Config::read(wanted.config.as_deref())?;
    let mut stop = Stop::listen()?;
    files::raise_limit();
    let args = with_file(args, &config);
    let opened = wigwag_store::open(&args.store, &settings(&args))?;
    let mut engine = Settings::default();
    let link_secret = config.link_secret()?;
    engine.link_secret.clone_from(&link_secret);
    engine.keep = wanted.keep.or(config.keep()?);
    let engine = Engine::builder(opened.store).settings(engine).start().await?;

    let mut server = ServerSettings::default();
    server.insecure = wanted.insecure || config.insecure;
    server.public_url = wanted.public_url.clone().or_else(|| config.public_url.clone());
    server.origins = if wanted.origin.is_empty() { config.origins.clone() } else { wanted.origin.clone() };
    server.s3_write = wanted.s3_write || config.s3_write;
    server.trusted_proxies =
        if wanted.trusted_proxy.is_empty() { config.trusted_proxies.clone() } else { wanted.trusted_proxy.clone() };
    server.address_rate = wanted.address_rate.or(config.address_rate()?).and_then(server_rate);
    server.token_rate = wanted.token_rate.or(config.token_rate()?).and_then(server_rate);
    if let Some(rate) = wanted.hub_rate.or(config.hub_rate()?) {
        server.hub.rate = server_rate(rate);
    }
    let bind = wanted.bind.as_deref().or(config.bind.as_deref()).unwrap_or(DEFAULT_BIND);
    let credentials = config.credentials(&wanted)?;
    let scheme = if credentials.tls.is_some() { "https" } else { "http" };
    let builder = Server::builder(engine.client()).bind(address(bind)?).settings(server).metrics(Metrics::install()?);
    let running = builder.credentials(credentials).start().await?;
    talk(&format!("wigwag serves `{}` at {scheme}://{}", args.store, running.addr()));
    while stop.or_reload().await {
        reload(&wanted, &running, link_secret.as_ref());
    }
    finish(running, engine).await;
    telemetry.stop();
    Ok(())
}

/// Returns a rate with a burst of twice the rate.
fn server_rate(rate: Rate) -> Option<ServerRate> {
    rate.0.map(|per_second| ServerRate { per_second, burst: per_second.saturating_mul(2) })
}

/// Reloads tokens, keys, certificates and link secrets from the file. Changes nothing if any of them is invalid.
fn reload(wanted: &Serve, running: &Running, link_secret: Option<&LinkSecret>) {
    let reloaded = || -> Result<(), Failed> {
        let config = Config::read(wanted.config.as_deref())?;
        let secrets = config.link_secret()?;
        if secrets.is_some() != link_secret.is_some() {
            let what = "the link secret was added or removed, which takes a restart";
            return Err(Failed::wrong(what).hint("replace it while the server runs, or start it again"));
        }
        running.reload(config.credentials(wanted)?)?;
        if let (Some(current), Some(new)) = (link_secret, &secrets) {
            current.replace(new);
        }
        Ok(())
    };
    match reloaded() {
        Ok(()) => tracing::info!(target: "wigwag::audit", action = "reload", outcome = "done"),
        Err(failed) => {
            let (reason, hint) = (failed.what(), failed.advice().unwrap_or_default());
            tracing::error!(target: "wigwag::audit", action = "reload", outcome = "refused", reason, hint);
        }
    }
}

/// Serves an embedded store on this machine, for those who try or develop something.
pub(crate) async fn dev(args: &StoreArgs, wanted: &Dev) -> Result<(), Failed> {
    no_server(args)?;
    let telemetry = logs::start()?;
    let mut stop = Stop::listen()?;
    let opened = wigwag_store::open(&args.store, &settings(args))?;
    let mut tuned = Settings::default();
    tuned.link_secret = Some(dev_secret(args, &opened)?);
    let mut engine = Engine::builder(opened.store).settings(tuned);
    if wanted.demo {
        engine = engine.workflow(demo::workflow());
    }
    let engine = engine.start().await?;
    files::raise_limit();
    let mut settings = ServerSettings::default();
    settings.s3_write = wanted.s3_write;
    let server = Server::builder(engine.client())
        .bind(address(wanted.bind.as_deref().unwrap_or(DEFAULT_BIND))?)
        .settings(settings)
        .metrics(Metrics::install()?);
    let running = server.start().await?;
    let url = format!("http://{}", running.addr());
    let hub = format!("ws://{}/hub", running.addr());
    talk(&format!(
        "wigwag serves `{}` at {url}\n  try the API    {url}/v1/docs\n  as a bucket    {url}/s3\n  \
         the hub        {hub}\n  \
         metrics        {url}/metrics\n\
         Ctrl-C stops it; what is stored stays.",
        args.store
    ));
    if wanted.demo {
        let run = demo::waiting_order(&engine.client()).await?;
        talk(&invitation(args, &run, &url));
        tokio::select! {
            () = stop.wait() => {}
            told = tell_end(args, run) => {
                told?;
                stop.wait().await;
            }
        }
    } else {
        stop.wait().await;
    }
    finish(running, engine).await;
    telemetry.stop();
    Ok(())
}

async fn finish(running: Running, engine: Engine) {
    talk("stopping: requests and steps under way may finish; Ctrl-C again ends it at once");
    let stopped = async {
        running.stop().await;
        engine.stop().await;
    };
    // Whoever asks twice does not want to wait. Nothing that was acknowledged is lost by it.
    let Ok(mut again) = Stop::listen() else { return stopped.await };
    tokio::select! {
        () = stopped => {}
        () = again.wait() => {}
    }
}

/// The lines that let the sample order go on.
fn invitation(args: &StoreArgs, run: &RunHandle, url: &str) -> String {
    let (id, name, yes) = (run.id(), demo::SIGNAL, demo::YES);
    let (signal, status) =
        (runnable(args, &format!("signal {id} {name} '{yes}'")), runnable(args, &format!("status {id}")));
    format!(
        "\nThe run `{id}` waits for the signal `{name}`. Let it go on with either of these, from another terminal:\n\n  \
         {signal}\n\n  curl -X POST {url}/v1/runs/{id}/signals/{name} \\\n    \
         -H 'content-type: application/json' -d '{{\"payload\": {yes}}}'\n\n\
         See how it is with\n\n  {status}\n"
    )
}

/// A command as it works where this program was started.
fn runnable(args: &StoreArgs, rest: &str) -> String {
    let called = std::env::args().next().filter(|name| name.contains('/'));
    let program = called.map_or_else(|| "wigwag".into(), |name| crate::output::quoted(&name));
    command(args, rest).replacen("wigwag", &program, 1)
}

async fn tell_end(args: &StoreArgs, run: RunHandle) -> Result<(), Failed> {
    let ended = run.wait().await?;
    let result = match ended.run().error.as_ref() {
        Some(error) => line(&error.message),
        None => run.result_payload().await.map(|result| line(result.text())).unwrap_or_default(),
    };
    let history = runnable(args, &format!("history {}", run.id()));
    talk(&format!("`{}` is {}: {result}\nSee all that happened with `{history}`.", run.id(), ended.status()));
    Ok(())
}

/// What the file says of the store, where neither flag nor environment does.
fn with_file(args: &StoreArgs, config: &Config) -> StoreArgs {
    let mut args = args.clone();
    if let Some(store) = config.store.as_ref().filter(|_| !args.is_given) {
        args.store.clone_from(store);
    }
    args.endpoint = args.endpoint.or_else(|| config.endpoint.clone());
    args.region = args.region.or_else(|| config.region.clone());
    args
}

fn address(text: &str) -> Result<SocketAddr, Failed> {
    text.parse().map_err(|_| {
        Failed::wrong(format!("not an address to listen on: `{}`", line(text))).hint(
            "write it like `127.0.0.1:7070`, or `0.0.0.0:7070` for all that this machine has; port 0 is any free one",
        )
    })
}

/// A secret from the environment; else one that is made once and kept beside the embedded store, so that links outlive
/// the process.
fn dev_secret(args: &StoreArgs, opened: &Opened) -> Result<LinkSecret, Failed> {
    if let Some(secret) = link_secret()? {
        return Ok(secret);
    }
    let text = match &opened.embedded {
        Some(_) => kept_secret(&folder(&args.store).join(SECRET_FILE))?,
        None => random_hex()?,
    };
    LinkSecret::new(text.trim()).map_err(|error| Failed::new(error.to_string()))
}

fn folder(store: &str) -> PathBuf {
    let path = store.strip_prefix("file://").or_else(|| store.strip_prefix("file:")).unwrap_or(store);
    PathBuf::from(path)
}

fn kept_secret(path: &Path) -> Result<String, Failed> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let wrong = |error: std::io::Error| Failed::new(format!("`{}` cannot be used: {error}", path.display()));
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let text = random_hex()?;
            file.write_all(text.as_bytes()).map_err(wrong)?;
            Ok(text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => std::fs::read_to_string(path).map_err(wrong),
        Err(error) => Err(wrong(error)),
    }
}

/// Ctrl-C, and what a supervisor sends.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    reload: Signal,
}

impl Stop {
    fn listen() -> Result<Self, Failed> {
        let [interrupt, terminate, reload] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate?, reload: reload? })
    }

    /// Waits for a signal. Returns `true` for SIGHUP, which requests a reload.
    async fn or_reload(&mut self) -> bool {
        tokio::select! {
            _ = self.interrupt.recv() => false,
            _ = self.terminate.recv() => false,
            _ = self.reload.recv() => true,
        }
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
