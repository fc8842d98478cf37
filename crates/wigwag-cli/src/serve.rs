//! `wigwag serve` and `wigwag dev`: a server process with the API, the sweeper and retention.
//!
//! Shutdown order: stop accepting connections, finish open requests, then park and release runs. Acknowledged data is already durable.

mod config;
mod demo;
mod files;
mod logs;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};
use wigwag::{Engine, LinkSecret, RunHandle, Settings};
use wigwag_server::{Metrics, Rate as ServerRate, Running, Server, Settings as ServerSettings};
use wigwag_store::{Opened, RetrySettings};

use crate::args::{Dev, Serve, StoreArgs};
use crate::commands::token::random_hex;
use crate::commands::{command, link_secret, no_server, settings};
use crate::error::Failed;
use crate::input::Rate;
use crate::output::{line, talk};
use config::Config;
#[cfg(test)]
pub(crate) use config::check_settings;

const DEFAULT_BIND: &str = "127.0.0.1:7070";

/// File in the embedded store's directory with the link secret of a development server.
const SECRET_FILE: &str = "link-secret";

/// Runs `wigwag serve`.
pub(crate) async fn serve(args: &StoreArgs, wanted: Serve) -> Result<(), Failed> {
    no_server(args)?;
    let telemetry = logs::start()?;
    let config = Config::read(wanted.config.as_deref())?;
    let mut stop = Stop::listen()?;
    files::raise_limit();
    let args = with_file(args, &config);
    let mut store = settings(&args);
    store.retry = RetrySettings::default();
    let opened = wigwag_store::open(&args.store, &store)?;
    let mut engine = Settings::default();
    let link_secret = config.link_secret()?;
    engine.link_secret.clone_from(&link_secret);
    engine.keep = wanted.keep.or(config.keep()?);
    let counted = opened.clone();
    let engine = Engine::on(opened).settings(engine).start().await?;

    let mut server = ServerSettings::default();
    server.store_url = Some(args.store.clone());
    server.insecure = wanted.insecure || config.insecure;
    server.public_url = wanted.public_url.clone().or_else(|| config.public_url.clone());
    server.advertise = wanted.advertise.clone().or_else(|| config.advertise.clone());
    server.origins = if wanted.origin.is_empty() { config.origins.clone() } else { wanted.origin.clone() };
    server.s3_write = wanted.s3_write || config.s3_write;
    server.trusted_proxies =
        if wanted.trusted_proxy.is_empty() { config.trusted_proxies.clone() } else { wanted.trusted_proxy.clone() };
    if let Some(rate) = wanted.address_rate.or(config.address_rate()?) {
        // A rate that is set applies to every address.
        (server.address_rate, server.address_rate_on_loopback) = (server_rate(rate), true);
    }
    if let Some(rate) = wanted.token_rate.or(config.token_rate()?) {
        server.token_rate = server_rate(rate);
    }
    if let Some(rate) = wanted.hub_rate.or(config.hub_rate()?) {
        server.hub.rate = server_rate(rate);
    }
    if let Some(rate) = wanted.hub_token_rate.or(config.hub_token_rate()?) {
        server.hub.token_rate = server_rate(rate);
    }
    let bind = wanted.bind.as_deref().or(config.bind.as_deref()).unwrap_or(DEFAULT_BIND);
    let credentials = config.credentials(&wanted)?;
    let scheme = if credentials.tls.is_some() { "https" } else { "http" };
    let builder = Server::builder(engine.client())
        .bind(address(bind)?)
        .settings(server)
        .metrics(Metrics::install()?)
        .usage_of(counted);
    let running = builder.credentials(credentials).start().await?;
    talk(&format!("Listening on {scheme}://{} (store: {})", running.addr(), args.store));
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
            let what = "adding or removing the link secret requires a restart";
            return Err(Failed::wrong(what).hint("replace the secret instead, or restart the server"));
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

/// Runs `wigwag dev`.
pub(crate) async fn dev(args: &StoreArgs, wanted: &Dev) -> Result<(), Failed> {
    no_server(args)?;
    let telemetry = logs::start()?;
    let mut stop = Stop::listen()?;
    let mut store = settings(args);
    store.retry = RetrySettings::default();
    let opened = wigwag_store::open(&args.store, &store)?;
    let mut tuned = Settings::default();
    tuned.link_secret = Some(dev_secret(args, &opened)?);
    let counted = opened.clone();
    let mut engine = Engine::on(opened).settings(tuned);
    if wanted.demo {
        engine = demo::gallery::register(engine.workflow(demo::workflow()));
    }
    let engine = engine.start().await?;
    files::raise_limit();
    let mut settings = ServerSettings::default();
    settings.s3_write = wanted.s3_write;
    settings.store_url = Some(args.store.clone());
    let server = Server::builder(engine.client())
        .usage_of(counted)
        .bind(address(wanted.bind.as_deref().unwrap_or(DEFAULT_BIND))?)
        .settings(settings)
        .metrics(Metrics::install()?);
    let running = server.start().await?;
    let url = format!("http://{}", running.addr());
    let hub = format!("ws://{}/hub", running.addr());
    talk(&format!(
        "Listening on {url} (data in {})\n  Dashboard   {url}/\n  API docs    {url}/v1/docs\n  S3 API      {url}/s3\n  \
         Hub         {hub}\n  \
         Metrics     {url}/metrics\n\
         Press Ctrl-C to stop; your data is kept.",
        args.store
    ));
    if wanted.open {
        open_browser(&format!("{url}/"));
    }
    // Nothing to reload: SIGHUP means that the terminal was closed.
    if wanted.demo {
        let run = demo::waiting_order(&engine.client()).await?;
        demo::gallery::start(&engine.client()).await?;
        talk(&invitation(args, &run, &url));
        tokio::select! {
            _ = stop.or_reload() => {}
            told = tell_end(args, run) => {
                told?;
                stop.or_reload().await;
            }
        }
    } else {
        stop.or_reload().await;
    }
    finish(running, engine).await;
    telemetry.stop();
    Ok(())
}

/// Opens a URL in the default browser.
fn open_browser(url: &str) {
    let programs: &[&[&str]] = if cfg!(target_os = "macos") { &[&["open"]] } else { &[&["xdg-open"], &["wslview"]] };
    for program in programs {
        let Some((name, rest)) = program.split_first() else { continue };
        let quiet = std::process::Stdio::null;
        let started = std::process::Command::new(name).args(rest).arg(url).stdout(quiet()).stderr(quiet()).spawn();
        if started.is_ok() {
            return;
        }
    }
    talk(&format!("could not start a browser; open {url}"));
}

async fn finish(running: Running, engine: Engine) {
    talk("Shutting down: waiting for open requests and steps. Press Ctrl-C again to stop immediately.");
    let stopped = async {
        running.stop().await;
        engine.stop().await;
    };
    // A second Ctrl-C skips the wait. Acknowledged data is already durable.
    let Ok(mut again) = Stop::listen() else { return stopped.await };
    tokio::select! {
        () = stopped => {}
        () = again.wait() => {}
    }
}

/// The commands that resume the sample order.
fn invitation(args: &StoreArgs, run: &RunHandle, url: &str) -> String {
    let (id, name, yes) = (run.id(), demo::SIGNAL, demo::YES);
    let (signal, status) =
        (runnable(args, &format!("signal {id} {name} '{yes}'")), runnable(args, &format!("status {id}")));
    format!(
        "\nRun `{id}` waits for signal `{name}`. Approve it in the dashboard, or from another terminal with one of these commands:\n\n  \
         {signal}\n\n  curl -X POST {url}/v1/runs/{id}/signals/{name} \\\n    \
         -H 'content-type: application/json' -d '{{\"payload\": {yes}}}'\n\n\
         Check its status:\n\n  {status}\n"
    )
}

/// Formats a command with the path by which this program was called.
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
    talk(&format!("Run `{}` {}: {result}\nShow its history with `{history}`.", run.id(), ended.status()));
    Ok(())
}

/// Applies the store settings of the file that no flag or variable overrides.
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
        Failed::wrong(format!("invalid listen address: `{}`", line(text)))
            .hint("use `127.0.0.1:7070`, or `0.0.0.0:7070` for all interfaces; port 0 picks a free port")
    })
}

/// Returns the link secret of the environment, or one stored with the embedded store, so that links outlive the process.
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
    let wrong = |error: std::io::Error| Failed::new(format!("cannot use `{}`: {error}", path.display()));
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let text = random_hex()?;
            file.write_all(text.as_bytes()).map_err(wrong)?;
            Ok(text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            crate::input::warn_if_others_may_read(path);
            std::fs::read_to_string(path).map_err(wrong)
        }
        Err(error) => Err(wrong(error)),
    }
}

/// Shutdown and reload signals of the process.
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
