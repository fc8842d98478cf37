//! `wigwag link`: a token that may send one signal to one run.
//!
//! The secret comes from the environment alone: a flag could be read by others in the list of processes.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::json;
use wigwag::{Client, Engine, ErrorKind, LinkSecret, Settings};

use super::inbox::signal_name;
use super::{not_found, open};
use crate::args::{Link, StoreArgs};
use crate::error::Failed;
use crate::output::{now, when};

const SECRET: &str = "WIGWAG_LINK_SECRET";
const MAKE: &str = "make one with `openssl rand -hex 32`; the server must have the same";

/// No token is longer.
const TOKEN_BYTES_MAX: u64 = 4_096;

pub(super) async fn run(args: &StoreArgs, wanted: Link, json: bool) -> Result<(), Failed> {
    if let Some(token) = wanted.verify {
        let token = given(token)?;
        return show(&client(args).await?, &token, json).await;
    }
    let new = New::of(wanted)?;
    let client = client(args).await?;
    check_running(&client, &new.run).await?;
    make(&client, &new, json).await
}

async fn client(args: &StoreArgs) -> Result<Client, Failed> {
    let mut settings = Settings::default();
    settings.link_secret = Some(link_secret()?.ok_or_else(|| {
        Failed::wrong("there is no secret to sign links with").hint(format!("set `{SECRET}`: {MAKE}"))
    })?);
    Ok(Engine::builder(open(args)?.store).settings(settings).client().await?)
}

/// The secret in the environment, if there is one.
pub(crate) fn link_secret() -> Result<Option<LinkSecret>, Failed> {
    let Some(secret) = std::env::var_os(SECRET).filter(|secret| !secret.is_empty()) else { return Ok(None) };
    let secret = LinkSecret::new(secret.into_encoded_bytes());
    secret.map(Some).map_err(|error| Failed::wrong(format!("`{SECRET}` is too short: {error}")).hint(MAKE))
}

/// A link starts nothing: one to a run that is not there, or has ended, could never be used.
async fn check_running(client: &Client, id: &str) -> Result<(), Failed> {
    let status = client.run(id).map_err(not_found)?.status().await.map_err(not_found)?;
    match status.is_final() {
        true => Err(Failed::not_now(format!("run `{id}` has already finished: `{status}`"))
            .hint(format!("a finished run takes no signals; let it begin again with `wigwag restart {id}`"))),
        false => Ok(()),
    }
}

/// A link to be made.
struct New {
    run: String,
    name: String,
    expires: Duration,
    once: bool,
    server: Option<String>,
}

impl New {
    fn of(wanted: Link) -> Result<Self, Failed> {
        let Link { run, name, expires, once, server, .. } = wanted;
        let (Some(run), Some(name), Some(expires)) = (run, name, expires) else {
            return Err(Failed::wrong("a link is for a run and a signal, and has an end")
                .hint("write `link RUN NAME --expires 2d`, or `link --verify TOKEN`"));
        };
        signal_name(&name)?;
        Ok(Self { run, name, expires, once, server })
    }
}

async fn make(client: &Client, new: &New, json: bool) -> Result<(), Failed> {
    let call = client.link(&new.run, &new.name, new.expires);
    let call = if new.once { call.once() } else { call };
    let made = match &new.server {
        Some(server) => call.url(server).await?,
        None => call.token().await?,
    };
    let mut stdout = std::io::stdout().lock();
    if !json {
        writeln!(stdout, "{made}")?;
        return Ok(());
    }
    let token = last_part(&made);
    let link = client.read_link(token).await?;
    let mut shown = json!({
        "token": token, "run": link.run, "name": link.name, "expires": link.expires, "once": link.once.is_some(),
    });
    if new.server.is_some() {
        shown["url"] = made.as_str().into();
    }
    writeln!(stdout, "{shown}")?;
    Ok(())
}

/// A token, from standard input if it is `-`: what stands in the call can be read by others.
fn given(token: String) -> Result<String, Failed> {
    if token != "-" {
        return Ok(token);
    }
    let mut text = String::new();
    std::io::stdin()
        .take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Failed::wrong(format!("standard input cannot be read: {error}")).hint("TOKEN is text"))?;
    Ok(text)
}

/// The token of a URL, or of itself.
fn last_part(text: &str) -> &str {
    let text = text.trim();
    text.rsplit_once('/').map_or(text, |(_, token)| token)
}

async fn show(client: &Client, token: &str, json: bool) -> Result<(), Failed> {
    let link = client.read_link(last_part(token)).await.map_err(|error| match error.kind() {
        ErrorKind::Invalid => Failed::from(error)
            .hint(format!("it was changed, or signed with another secret than the one in `{SECRET}`")),
        ErrorKind::Gone => Failed::from(error).hint("make another with `wigwag link RUN NAME --expires 2d`"),
        _ => error.into(),
    })?;
    let mut stdout = std::io::stdout().lock();
    if json {
        let shown = json!({"run": link.run, "name": link.name, "expires": link.expires, "once": link.once.is_some()});
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    let uses = if link.once.is_some() { "once" } else { "any number of times" };
    let lines = [
        ("run", link.run.to_string()),
        ("signal", link.name.to_string()),
        ("expires", when(link.expires, now())),
        ("may be used", uses.to_owned()),
    ];
    for (name, value) in lines {
        writeln!(stdout, "{name:<11}  {value}")?;
    }
    Ok(())
}
