//! `wigwag hub`: messages between named actors, through a server.

mod actors;
mod listen;
mod publish;
mod send;

use std::time::Duration;

use reqwest::Url;
use wigwag::hub::{Client, Connect, Error, ErrorKind};

use crate::args::{Hub, StoreArgs};
use crate::error::Failed;
use crate::remote::Token;

/// The server of those who name none.
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

/// Where the hub is, and what lets us in.
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

    /// What went wrong, in the words of a command.
    fn failed(&self, error: &Error) -> Failed {
        let server = &self.server;
        let what = error.to_string();
        let hint = error.advice().map(str::to_owned);
        let failed = match (error.kind(), &self.token) {
            (ErrorKind::Invalid | ErrorKind::TooLarge, _) => Failed::wrong(what),
            (ErrorKind::UnknownActor, _) => Failed::not_found(what),
            (ErrorKind::TakenOver, _) => Failed::conflict(what),
            (ErrorKind::Unauthorized, None) => {
                return Failed::new(format!("`{server}` wants a token: {what}"))
                    .hint("set `WIGWAG_TOKEN`, or name a file that holds it with `--token-file`");
            }
            (ErrorKind::Unauthorized, Some(token)) => {
                let check = format!("check the token in {}", token.origin());
                let hint = hint.map_or_else(|| check.clone(), |hint| format!("{check}: {hint}"));
                return Failed::new(format!("`{server}` does not allow this: {what}")).hint(hint);
            }
            (ErrorKind::Unreachable, _) => {
                return Failed::new(what).hint("check that the server runs, and name it with `--server`");
            }
            _ => Failed::new(what),
        };
        match hint {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }
}

/// `http` becomes `ws`, and what is behind it `/hub`.
fn hub_url(server: &str) -> Result<String, Failed> {
    let wrong = || {
        Failed::wrong(format!("`{server}` is not the address of a server"))
            .hint("write it like `http://127.0.0.1:7070` or `https://wigwag.example.com`")
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

/// Milliseconds since 1970 as a moment.
fn moment(millis: u64) -> String {
    crate::output::moment(wigwag::Time::from_micros(millis.saturating_mul(1_000)))
}

/// A span for people to read; a wait of nothing is none.
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
