//! `wigwag link`: a token that may send one signal to one run.
//!
//! The secret comes from the environment alone: a flag could be read by others in the list of processes.

use std::io::{Read as _, Write as _};

use serde_json::json;
use wigwag::{Engine, LinkSecret, Settings};
use wigwag_server::Code;

use super::inbox::signal_name;
use super::{not_found, open, remote};
use crate::args::{Link, StoreArgs};
use crate::error::Failed;
use crate::output::{now, when};
use crate::target::{self, Local, NewLink, Target};

const SECRET: &str = "WIGWAG_LINK_SECRET";
/// The previous secret, still accepted during a rotation.
const PREVIOUS: &str = "WIGWAG_LINK_SECRET_PREVIOUS";
const MAKE: &str = "make one with `openssl rand -hex 32`; the server must have the same";

/// No token is longer.
const TOKEN_BYTES_MAX: u64 = 4_096;

pub(super) async fn run(args: &StoreArgs, wanted: Link, json: bool) -> Result<(), Failed> {
    if let Some(token) = wanted.verify {
        let token = given(token)?;
        return show(args, &*target(args).await?, &token, json).await;
    }
    if let Some(token) = wanted.revoke {
        return revoke(&*target(args).await?, &given(token)?, json).await;
    }
    let public_url = wanted.public_url.clone();
    let new = new_link(wanted)?;
    make(&*target(args).await?, &new, public_url, json).await
}

/// A server has a secret of its own.
async fn target(args: &StoreArgs) -> Result<Box<dyn Target>, Failed> {
    if let Some(server) = &args.server {
        return remote(args, server);
    }
    let mut settings = Settings::default();
    settings.link_secret = Some(link_secret()?.ok_or_else(|| {
        Failed::wrong("there is no secret to sign links with").hint(format!("set `{SECRET}`: {MAKE}"))
    })?);
    Ok(Box::new(Local(Engine::builder(open(args)?.store).settings(settings).client().await?)))
}

/// Reads the link secrets from the environment: the signing secret, and optionally the previous one.
pub(crate) fn link_secret() -> Result<Option<LinkSecret>, Failed> {
    let short = |name: &str, error: wigwag::Error| Failed::wrong(format!("`{name}` is too short: {error}")).hint(MAKE);
    let read = |name: &str| std::env::var_os(name).filter(|secret| !secret.is_empty());
    let Some(secret) = read(SECRET) else { return Ok(None) };
    let secret = LinkSecret::new(secret.into_encoded_bytes()).map_err(|error| short(SECRET, error))?;
    match read(PREVIOUS) {
        None => Ok(Some(secret)),
        Some(previous) => {
            secret.accepting(previous.into_encoded_bytes()).map(Some).map_err(|error| short(PREVIOUS, error))
        }
    }
}

fn new_link(wanted: Link) -> Result<NewLink, Failed> {
    let Link { run, name, expires, once, sender, .. } = wanted;
    let (Some(run), Some(name), Some(expires)) = (run, name, expires) else {
        return Err(Failed::wrong("a link is for a run and a signal, and has an end")
            .hint("write `link RUN NAME --expires 2d`, or `link --verify TOKEN`"));
    };
    signal_name(&name)?;
    Ok(NewLink { run, name, expires, once, sender })
}

async fn make(target: &dyn Target, new: &NewLink, public_url: Option<String>, json: bool) -> Result<(), Failed> {
    let made = target.make_link(new).await.map_err(|failed| match failed.code() {
        Some(Code::NotRunning) => failed
            .hint(format!("a finished run takes no signals; let it begin again with `wigwag restart {}`", new.run)),
        Some(Code::Invalid) if failed.advice().is_some() => failed,
        _ => not_found(failed),
    })?;
    let token = &made.token;
    let below = public_url.map(|server| format!("{}/v1/links/{token}", server.trim_end_matches('/')));
    let url = below.or(made.url);
    let mut stdout = std::io::stdout().lock();
    if !json {
        writeln!(stdout, "{}", url.as_ref().unwrap_or(token))?;
        return Ok(());
    }
    let link = &made.link;
    let mut shown = json!({
        "token": token, "run": link.run, "name": link.name, "expires": link.expires, "once": link.once,
    });
    if let Some(url) = url {
        shown["url"] = url.into();
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

async fn revoke(target: &dyn Target, token: &str, json: bool) -> Result<(), Failed> {
    let new = target.revoke_link(last_part(token)).await?;
    let mut stdout = std::io::stdout().lock();
    if json {
        let shown = json!({"revoked": true, "new": new});
        writeln!(stdout, "{shown}")?;
    } else if new {
        writeln!(stdout, "link revoked: it can no longer be used")?;
    } else {
        writeln!(stdout, "link already revoked")?;
    }
    Ok(())
}

async fn show(args: &StoreArgs, target: &dyn Target, token: &str, json: bool) -> Result<(), Failed> {
    let link = target.read_link(last_part(token)).await.map_err(|failed| match failed.code() {
        Some(Code::Invalid) if args.server.is_some() => {
            failed.hint("it was changed, or signed with another secret than the server's")
        }
        Some(Code::Invalid) => {
            failed.hint(format!("it was changed, or signed with another secret than the one in `{SECRET}`"))
        }
        Some(Code::Gone) => failed.hint("make another with `wigwag link RUN NAME --expires 2d`"),
        _ => failed,
    })?;
    let target::Link { run, name, expires, once } = link;
    let mut stdout = std::io::stdout().lock();
    if json {
        let shown = json!({"run": run, "name": name, "expires": expires, "once": once});
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    let uses = if once { "once" } else { "any number of times" };
    let lines = [("run", run), ("signal", name), ("expires", when(expires, now())), ("may be used", uses.to_owned())];
    for (name, value) in lines {
        writeln!(stdout, "{name:<11}  {value}")?;
    }
    Ok(())
}
