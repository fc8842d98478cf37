//! `wigwag link`: creates, verifies and revokes signed links.
//!
//! The secret comes only from the environment, because other users can read flags in the process list.

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
const MAKE: &str = "generate one with `openssl rand -hex 32`, and configure the same on the server";

/// Maximum length of a token.
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

/// Opens the server, which has its own secret, or the store with the secret of the environment.
async fn target(args: &StoreArgs) -> Result<Box<dyn Target>, Failed> {
    if let Some(server) = &args.server {
        return remote(args, server);
    }
    let mut settings = Settings::default();
    settings.link_secret = Some(
        link_secret()?
            .ok_or_else(|| Failed::wrong("no link secret is configured").hint(format!("set `{SECRET}`: {MAKE}")))?,
    );
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
        return Err(Failed::wrong("missing RUN, NAME or `--expires`")
            .hint("use `link RUN NAME --expires 2d`, or `link --verify TOKEN`"));
    };
    signal_name(&name)?;
    Ok(NewLink { run, name, expires, once, sender })
}

async fn make(target: &dyn Target, new: &NewLink, public_url: Option<String>, json: bool) -> Result<(), Failed> {
    let made = target.make_link(new).await.map_err(|failed| match failed.code() {
        Some(Code::NotRunning) => {
            failed.hint(format!("a finished run accepts no signals; restart it with `wigwag restart {}`", new.run))
        }
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

/// Returns the token, read from standard input for `-`, because other users can read arguments.
fn given(token: String) -> Result<String, Failed> {
    if token != "-" {
        return Ok(token);
    }
    let mut text = String::new();
    std::io::stdin()
        .take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Failed::wrong(format!("cannot read standard input: {error}")).hint("TOKEN is text"))?;
    Ok(text)
}

/// Returns the token of a link URL or a bare token.
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
            failed.hint("the link was modified, or signed with a different secret than the server's")
        }
        Some(Code::Invalid) => {
            failed.hint(format!("the link was modified, or signed with a different secret than `{SECRET}`"))
        }
        Some(Code::Gone) => failed.hint("create another with `wigwag link RUN NAME --expires 2d`"),
        _ => failed,
    })?;
    let target::Link { run, name, expires, once } = link;
    let mut stdout = std::io::stdout().lock();
    if json {
        let shown = json!({"run": run, "name": name, "expires": expires, "once": once});
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    let uses = if once { "once" } else { "unlimited" };
    let lines = [("run", run), ("signal", name), ("expires", when(expires, now())), ("uses", uses.to_owned())];
    for (name, value) in lines {
        writeln!(stdout, "{name:<11}  {value}")?;
    }
    Ok(())
}
