//! Resume links: a token that may send one signal to one run, until a moment.
//!
//! The token says what it is for and is signed (HMAC-SHA-256); nothing of it is stored. Whoever has it may send that
//! signal, so it is as secret as what it does. A link for single use sends under an idempotency key of its own: what was
//! sent once cannot be sent again.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use wigwag_core::{Name, Payload, RunId, Time, limits};

use crate::client::{Client, Receipt, signal_name};
use crate::error::{Error, ErrorKind, Result};

/// A secret shorter than this could be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// What signs resume links. It never stands in the store, and is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkSecret(Vec<u8>);

impl LinkSecret {
    /// At least 16 bytes that nobody can guess, such as the output of `openssl rand -hex 32`.
    pub fn new(secret: impl Into<Vec<u8>>) -> Result<Self> {
        let secret = secret.into();
        if secret.len() < SECRET_BYTES_MIN {
            let what = format!("a link secret has at least {SECRET_BYTES_MIN} bytes, got: {}", secret.len());
            return Err(Error::invalid(what).hint("make one with `openssl rand -hex 32`"));
        }
        Ok(Self(secret))
    }

    fn sign(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a secret of any length will do");
        mac.update(text.as_bytes());
        mac
    }
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret")
    }
}

/// What a link may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Link {
    /// To which run.
    pub run: RunId,
    /// Which signal.
    pub name: Name,
    /// Until when.
    pub expires: Time,
    /// It can be used once; the text makes it different from every other link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
}

/// A link about to be made.
#[derive(Debug)]
#[must_use = "a link is made by `token` or `url`"]
pub struct NewLink {
    client: Client,
    run: String,
    name: String,
    expires_in: Duration,
    once: bool,
}

impl Client {
    /// Makes a link that may send this signal to this run for that long: for an approval by mail.
    ///
    /// The engine must have a secret ([`crate::Settings::link_secret`]).
    pub fn link(&self, run: impl Into<String>, name: impl Into<String>, expires_in: Duration) -> NewLink {
        NewLink { client: self.clone(), run: run.into(), name: name.into(), expires_in, once: false }
    }

    /// What a token may do, if it is one of ours and its time is not over. Nothing is sent.
    pub async fn read_link(&self, token: &str) -> Result<Link> {
        let secret = self.secret()?;
        let refused =
            || Error::new(ErrorKind::Invalid, "this link is not valid").hint("ask whoever sent it for another");
        let (body, signature) = token.split_once('.').ok_or_else(refused)?;
        let signature = BASE64.decode(signature).map_err(|_| refused())?;
        // Compares in a time that tells nothing.
        secret.sign(body).verify_slice(&signature).map_err(|_| refused())?;
        let body = BASE64.decode(body).map_err(|_| refused())?;
        let link: Link = serde_json::from_slice(&body).map_err(|_| refused())?;
        if link.expires < self.inner.now().await?.at {
            let what = format!("this link could be used until {}", link.expires);
            return Err(Error::new(ErrorKind::Gone, what).hint("ask whoever sent it for another"));
        }
        Ok(link)
    }

    /// Sends what a link may send.
    pub async fn use_link<P: Serialize + ?Sized>(&self, token: &str, payload: &P) -> Result<Receipt> {
        let link = self.read_link(token).await?;
        let payload = Payload::of(payload)?;
        let mut call = self.signal(&link.run, link.name.as_str(), &payload).via("link");
        if let Some(once) = &link.once {
            call = call.key(format!("link:{once}"));
        }
        let used = || Error::new(ErrorKind::Conflict, "this link was used before").hint("it can be used once");
        match call.await {
            Ok(receipt) if receipt.repeated => Err(used()),
            Err(error) if error.kind() == ErrorKind::Conflict && link.once.is_some() => Err(used()),
            outcome => outcome,
        }
    }

    fn secret(&self) -> Result<&LinkSecret> {
        self.inner.settings.link_secret.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "there is no secret to sign links with")
                .hint("set `WIGWAG_LINK_SECRET`, or `Settings::link_secret`")
        })
    }
}

impl NewLink {
    /// It can be used once.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The token.
    pub async fn token(self) -> Result<String> {
        let secret = self.client.secret()?.clone();
        let (run, name) = (RunId::new(&self.run)?, signal_name(&self.name)?);
        let expires = self.client.inner.now().await?.at.after(self.expires_in.min(limits::SPAN_MAX));
        let once = self.once.then(|| format!("{:032x}", fastrand::u128(..)));
        let link = Link { run, name, expires, once };
        let body = BASE64.encode(serde_json::to_vec(&link).expect("a link is text and a time"));
        let signature = BASE64.encode(secret.sign(&body).finalize().into_bytes());
        Ok(format!("{body}.{signature}"))
    }

    /// The token as a URL below that of a server, such as `https://wigwag.example.com`.
    pub async fn url(self, server: &str) -> Result<String> {
        let server = server.trim_end_matches('/').to_owned();
        Ok(format!("{server}/v1/links/{}", self.token().await?))
    }
}
