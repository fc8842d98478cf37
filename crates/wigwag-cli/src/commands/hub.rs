//! `wigwag hub`: exchanges messages through a server's hub.

mod actors;
mod listen;
mod publish;
mod send;

use std::time::Duration;

use reqwest::Url;
use wigwag_hub_client::{Client, Connect, Error, ErrorKind};

use crate::args::{Hub, StoreArgs};
use crate::error::Failed;
use crate::remote::Token;

/// Server used without `--server`.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";

pub(super) async fn run(args: &StoreArgs, wanted: Hub, json: bool) -> Result<(), Failed> {
    let door = Door::of(args)?;
    match wanted {
        Hub::Listen(wanted) => listen::run(&door, &wanted, json).await,
        Hub::Send(wanted) => send::run(&door, &wanted, json).await,
        Hub::Publish(wanted) => publish::run(&door, &wanted, json).await,
        Hub::Actors(wanted) => actors::run(&door, args, &wanted, json).await,
    }
}

/// The URL of the hub and the token for it.
struct Door {
    server: String,
    url: String,
    token: Option<Token>,
}

impl Door {
    fn of(args: &StoreArgs) -> Result<Self, Failed> {
        let server = args.server.as_deref().unwrap_or(DEFAULT_SERVER);
        let server = server.trim_end_matches('/').to_owned();
        let token = Token::read(args, &server)?;
        Ok(Self { url: hub_url(&server)?, server, token })
    }

    fn connect(&self) -> Connect {
        let connect = Client::connect(&self.url);
        match &self.token {
            Some(token) => connect.token(token.secret()),
            None => connect,
        }
    }

    /// Converts a hub error to a command failure.
    fn failed(&self, error: &Error) -> Failed {
        let server = &self.server;
        let what = error.to_string();
        let hint = error.advice().map(str::to_owned);
        let failed = match (error.kind(), &self.token) {
            (ErrorKind::Invalid | ErrorKind::TooLarge, _) => Failed::wrong(what),
            (ErrorKind::UnknownActor, _) => Failed::not_found(what),
            (ErrorKind::TakenOver, _) => Failed::conflict(what),
            (ErrorKind::Unauthorized, None) => {
                return Failed::new(format!("`{server}` requires a token: {what}"))
                    .hint("set `WIGWAG_TOKEN`, or use `--token-file FILE`");
            }
            (ErrorKind::Unauthorized, Some(token)) => {
                let check = format!("check the token in {}", token.origin());
                let hint = hint.map_or_else(|| check.clone(), |hint| format!("{check}: {hint}"));
                return Failed::new(format!("`{server}` denied the request: {what}")).hint(hint);
            }
            (ErrorKind::Unreachable, _) => {
                return Failed::new(what).hint("check that the server is running and that `--server` is correct");
            }
            _ => Failed::new(what),
        };
        match hint {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }
}

/// Returns the WebSocket URL of a server's hub.
fn hub_url(server: &str) -> Result<String, Failed> {
    let wrong = || {
        Failed::wrong(format!("invalid server URL: `{server}`"))
            .hint("use a URL such as `http://127.0.0.1:7070` or `https://wigwag.example.com`")
    };
    let mut url = server.parse::<Url>().map_err(|_| wrong())?;
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    if !url.username().is_empty() || url.password().is_some() || url.set_scheme(scheme).is_err() {
        return Err(wrong());
    }
    url.set_query(None);
    url.set_fragment(None);
    url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().push("hub");
    Ok(url.into())
}

/// Formats milliseconds since 1970.
fn moment(millis: u64) -> String {
    crate::output::moment(wigwag::Time::from_micros(millis.saturating_mul(1_000)))
}

/// Formats a delay; zero is `now`.
fn soon(span: Duration) -> String {
    match span.is_zero() {
        true => "now".into(),
        false => format!("in {}", crate::output::span(span)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_is_below_the_server() {
        let table = [
            ("http://127.0.0.1:7070", "ws://127.0.0.1:7070/hub"),
            ("http://127.0.0.1:7070/", "ws://127.0.0.1:7070/hub"),
            ("https://example.com/wigwag/", "wss://example.com/wigwag/hub"),
            ("https://example.com?a=b#c", "wss://example.com/hub"),
        ];
        for (server, want) in table {
            assert_eq!(hub_url(server).unwrap(), want);
        }
        for wrong in ["", "nothing", "http://", "http://ada:secret@example.com"] {
            assert!(hub_url(wrong).unwrap_err().advice().is_some(), "{wrong}");
        }
    }
}
