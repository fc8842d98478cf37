//! Resume links: a token that may send one signal to one run, until a moment.
//!
//! A token carries its run, signal, expiry and sender, and is signed (HMAC-SHA-256). Only revocations are stored, beside the
//! run. A link is a bearer credential: keep it as secret as the signal it sends. A single-use link sends under an idempotency
//! key of the link.
//!
//! Holds: the sender of a link's signal is the one signed into it, so that links do not add distinct senders to a quorum.
//!
//! What if we die here? A revocation is a single create: it is durable or absent, and a retry is harmless.

use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use futures_util::future::{BoxFuture, FutureExt as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use wigwag_core::{Key, Name, Payload, RunId, RunRef, Time, limits};
use wigwag_store::Batch;

use crate::client::{Client, Receipt, signal_name};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{LINK_ID_BYTES, LINK_SECRET_BYTES_MIN};

/// Secrets of resume links: the current one signs, previous ones are still accepted. Never stored or shown.
///
/// Clones share the secrets, so that [`LinkSecret::replace`] reaches an engine that runs.
#[derive(Clone)]
pub struct LinkSecret(Arc<RwLock<Vec<Vec<u8>>>>);

impl LinkSecret {
    /// Sets the secret: at least 16 unpredictable bytes, such as the output of `openssl rand -hex 32`.
    pub fn new(secret: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(Self(Arc::new(RwLock::new(vec![checked(secret.into())?]))))
    }

    /// Also accepts links signed with this previous secret, for the time of a rotation.
    pub fn accepting(self, previous: impl Into<Vec<u8>>) -> Result<Self> {
        let previous = checked(previous.into())?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(previous);
        Ok(self)
    }

    /// Replaces the secrets, in every clone.
    pub fn replace(&self, secrets: &Self) {
        let secrets = secrets.all();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = secrets;
    }

    fn all(&self) -> Vec<Vec<u8>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn sign(&self, text: &str) -> String {
        let secrets = self.all();
        let current = secrets.first().expect("there is always the secret that signs");
        BASE64.encode(mac(current, text).finalize().into_bytes())
    }

    /// Whether one of the secrets signed this. Compares in constant time.
    fn verifies(&self, text: &str, signature: &[u8]) -> bool {
        self.all().iter().fold(false, |found, secret| found | mac(secret, text).verify_slice(signature).is_ok())
    }
}

fn checked(secret: Vec<u8>) -> Result<Vec<u8>> {
    if secret.len() < LINK_SECRET_BYTES_MIN {
        let what = format!("a link secret has at least {LINK_SECRET_BYTES_MIN} bytes, got: {}", secret.len());
        return Err(Error::invalid(what).hint("generate one with `openssl rand -hex 32`"));
    }
    Ok(secret)
}

fn mac(secret: &[u8], text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a secret of any length will do");
    mac.update(text.as_bytes());
    mac
}

impl PartialEq for LinkSecret {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Eq for LinkSecret {}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret")
    }
}

/// The content of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Link {
    /// The link's id, for revocation and audit logs. Not secret.
    pub id: String,
    /// The run that receives the signal.
    pub run: RunId,
    /// The signal's name.
    pub name: Name,
    /// Expiry of the link.
    pub expires: Time,
    /// Sender of the signal: the link's maker, or the recipient that the maker named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The sender's name is not verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
    /// Whether the link can be used only once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// A link about to be made.
#[derive(Debug)]
#[must_use = "a link is made by `token` or `url`"]
pub struct NewLink {
    client: Client,
    run: String,
    name: String,
    expires_in: Duration,
    sender: Option<String>,
    claimed: bool,
    once: bool,
}

impl Client {
    /// Makes a link that may send this signal to this run for that long: for an approval by mail.
    ///
    /// The engine must have a secret ([`crate::Settings::link_secret`]).
    pub fn link(&self, run: impl Into<String>, name: impl Into<String>, expires_in: Duration) -> NewLink {
        let (client, run, name) = (self.clone(), run.into(), name.into());
        NewLink { client, run, name, expires_in, sender: None, claimed: false, once: false }
    }

    /// Reads and verifies a link's token: its signature, its expiry, and that it was not revoked. Sends nothing.
    pub async fn read_link(&self, token: &str) -> Result<Link> {
        let link = self.verify_link(token)?;
        if link.expires < self.inner.now().await?.at {
            let what = format!("this link expired at {}", link.expires);
            return Err(Error::new(ErrorKind::Gone, what).hint("ask the sender for another"));
        }
        if self.inner.store.get(&revoked_key(&link.run, &link.id)).await?.is_some() {
            return Err(Error::new(ErrorKind::Gone, "this link was revoked").hint("ask the sender for another"));
        }
        Ok(link)
    }

    /// Checks a token's signature alone, without a store request.
    pub fn verify_link(&self, token: &str) -> Result<Link> {
        let secret = self.secret()?;
        let refused = || Error::new(ErrorKind::Invalid, "this link is not valid").hint("ask the sender for another");
        let (body, signature) = token.split_once('.').ok_or_else(refused)?;
        let signature = BASE64.decode(signature).map_err(|_| refused())?;
        if !secret.verifies(body, &signature) {
            return Err(refused());
        }
        let body = BASE64.decode(body).map_err(|_| refused())?;
        serde_json::from_slice(&body).map_err(|_| refused())
    }

    /// Sends what a link may send.
    pub async fn use_link<P: Serialize + ?Sized>(&self, token: &str, payload: &P) -> Result<Receipt> {
        let link = self.read_link(token).await?;
        let payload = Payload::of(payload)?;
        let mut call = self.signal(&link.run, link.name.as_str(), &payload).via("link");
        call = match link.sender {
            Some(sender) if link.claimed => call.by(sender),
            Some(sender) => call.authenticated_as(sender),
            None => call,
        };
        if link.once {
            call = call.key(format!("link:{}", link.id));
        }
        let used = || Error::new(ErrorKind::Conflict, "this link was used before").hint("it can be used once");
        match call.await {
            Ok(receipt) if receipt.repeated => Err(used()),
            Err(error) if error.kind() == ErrorKind::Conflict && link.once => Err(used()),
            outcome => outcome,
        }
    }

    /// Revokes a link. It cannot be used once this returns. Returns `false` if it was already revoked.
    ///
    /// Await it, or name the caller with [`RevokeLink::on_behalf_of`] first.
    pub fn revoke_link(&self, run: impl Into<String>, id: impl Into<String>) -> RevokeLink {
        RevokeLink { client: self.clone(), run: run.into(), id: id.into(), by: None }
    }

    fn secret(&self) -> Result<&LinkSecret> {
        self.inner.settings.link_secret.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "there is no secret to sign links with")
                .hint("set `WIGWAG_LINK_SECRET`, or `Settings::link_secret`")
        })
    }
}

fn revoked_key(run: &RunId, id: &str) -> String {
    Key::RevokedLink { run: RunRef::workflow(run.clone()), id: id.to_owned() }.to_string()
}

/// A revocation in preparation: see [`Client::revoke_link`].
#[derive(Debug)]
#[must_use = "nothing is revoked before it is awaited"]
pub struct RevokeLink {
    client: Client,
    run: String,
    id: String,
    by: Option<String>,
}

impl RevokeLink {
    /// Records who revokes the link, beside the run.
    pub fn on_behalf_of(mut self, caller: impl Into<String>) -> Self {
        self.by = Some(caller.into());
        self
    }

    async fn revoke(self) -> Result<bool> {
        let (run, id, inner) = (RunId::new(&self.run)?, self.id, &self.client.inner);
        if id.len() != 2 * LINK_ID_BYTES || !id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            let what = format!("a link's id has {} hexadecimal digits", 2 * LINK_ID_BYTES);
            return Err(Error::invalid(what).hint("`id` is in the answer that made the link, and in the audit log"));
        }
        // A key beside a run that does not exist would never be removed.
        self.client.run(&run)?.status().await?;
        let body = Revocation { revoked_at: inner.now().await?.at, by: self.by };
        let body = serde_json::to_vec(&body).expect("a time and a name have a form in JSON");
        match inner.store.write(Batch::new().create(revoked_key(&run, &id), body)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_exists() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl IntoFuture for RevokeLink {
    type Output = Result<bool>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.revoke().boxed()
    }
}

/// The stored form of a revocation.
#[derive(Serialize)]
struct Revocation {
    revoked_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// Returns a new id. It identifies the link and is not secret: a link is protected by its signature.
fn new_id() -> String {
    format!("{:0width$x}", fastrand::u128(..), width = 2 * LINK_ID_BYTES)
}

impl NewLink {
    /// Lets the link be used only once.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Signs the sender into the link: the creator of the link, or its recipient. A quorum counts that name, and every
    /// user of the link counts as authenticated: give the link to no other person.
    pub fn sender(mut self, name: impl Into<String>) -> Self {
        (self.sender, self.claimed) = (Some(name.into()), false);
        self
    }

    /// Signs an unverified sender name into the link: the sender does not count as authenticated.
    pub fn claimed_sender(mut self, name: impl Into<String>) -> Self {
        (self.sender, self.claimed) = (Some(name.into()), true);
        self
    }

    /// Makes the token.
    pub async fn token(self) -> Result<String> {
        let secret = self.client.secret()?.clone();
        let (run, name) = (RunId::new(&self.run)?, signal_name(&self.name)?);
        if self.sender.as_ref().is_some_and(|name| name.is_empty() || name.len() > limits::SENDER_BYTES_MAX) {
            let what = format!("a sender's name has 1 to {} bytes", limits::SENDER_BYTES_MAX);
            return Err(Error::invalid(what).hint("shorten the name"));
        }
        let expires = self.client.inner.now().await?.at.after(self.expires_in.min(limits::SPAN_MAX));
        let Self { sender, claimed, once, .. } = self;
        let link = Link { id: new_id(), run, name, expires, sender, claimed, once };
        let body = BASE64.encode(serde_json::to_vec(&link).expect("a link is text and a time"));
        let signature = secret.sign(&body);
        Ok(format!("{body}.{signature}"))
    }

    /// Makes the token as a URL below that of a server, such as `https://wigwag.example.com`.
    pub async fn url(self, server: &str) -> Result<String> {
        let server = server.trim_end_matches('/').to_owned();
        Ok(format!("{server}/v1/links/{}", self.token().await?))
    }
}
