//! How a session begins and shows that it lives.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::envelope::Text;
use crate::refusal::{self, Refusal};
use crate::rights::Access;
use crate::settings::Millis;
use crate::{PROTOCOL_VERSION, SessionId};

use super::session::State;
use super::{Close, Hub, Request};

/// A session's secret as its client keeps it.
fn secret_text(secret: [u8; 16]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_secret(text: &str) -> Option<[u8; 16]> {
    let mut secret = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(secret)
}

/// What others see of a session: nobody finds the secret from it.
fn session_address(secret: [u8; 16]) -> String {
    let hash = Sha256::digest(secret);
    let short: String = hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("@(session/{short})")
}

fn major(version: &str) -> Option<u64> {
    let mut parts = version.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor_and_patch = parts.all(|part| part.parse::<u64>().is_ok());
    minor_and_patch.then_some(major)
}

/// Whether a client wants to be told of several messages at once.
fn acks_together(request: &Request<'_>) -> Result<bool, Refusal> {
    let envelope = request.envelope;
    let acks = envelope.payload.text("acks")?.or(envelope.metadata.entries.text("acks")?);
    match acks.as_ref().map(Text::as_str) {
        None | Some("single") => Ok(false),
        Some("together") => Ok(true),
        Some(other) => {
            Err(refusal::invalid(&format!("`acks` is `single` or `together`, got: {}", refusal::shown(other))))
        }
    }
}

impl Hub {
    pub(super) fn connect(&mut self, request: &Request<'_>, access: Option<Access>) -> Result<(), Refusal> {
        let (id, now) = (request.session, request.now);
        if self.sessions[id].state != State::Fresh {
            return Err(refusal::invalid("this session is connected already"));
        }
        let (payload, metadata) = (&request.envelope.payload, &request.envelope.metadata);
        let version = payload.text("protocolVersion")?.or(metadata.entries.text("protocolVersion")?);
        let version = version.as_ref().map_or(PROTOCOL_VERSION, Text::as_str);
        if major(version) != major(PROTOCOL_VERSION) {
            return Err(refusal::version_mismatch(&refusal::shown(version)));
        }
        if let Some(access) = access {
            self.sessions[id].access = access;
        }
        if self.sessions[id].access.is_nobody() {
            let refusal = refusal::unauthorized("this hub wants a token", "give one in `hub:connect`, as `token`");
            self.refuse(request, &refusal);
            self.end(id, Close::Token, now);
            return Ok(());
        }
        let acks_together = acks_together(request)?;
        let secret = self.resumed(request)?;
        let resumed = secret.is_some();
        let secret = secret.unwrap_or(self.sessions[id].secret);
        let own = self.actor(&session_address(secret), now);
        if let Some(old) = self.actors[own].owner {
            self.end(old, Close::Duplicate, now);
        }
        self.actors[own].owner = Some(id);
        let session = &mut self.sessions[id];
        session.secret = secret;
        session.own = Some(own);
        session.state = State::Connected;
        session.acks_together = acks_together;
        let offset = i128::from(now) - i128::from(request.envelope.timestamp);
        session.offset = i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX });
        let mut welcome = self.welcome(secret, resumed, now);
        welcome["acks"] = json!(if acks_together { "together" } else { "single" });
        self.respond(request, "hub:connected", &welcome);
        Ok(())
    }

    /// Which session to go on with.
    fn resumed(&self, request: &Request<'_>) -> Result<Option<[u8; 16]>, Refusal> {
        let envelope = request.envelope;
        let resume = envelope.payload.object("resume")?.or(envelope.metadata.entries.object("resume")?);
        let Some(resume) = resume else { return Ok(None) };
        let secret = resume.text("sessionId")?.and_then(|text| parse_secret(text.as_str()));
        secret.map(Some).ok_or_else(|| refusal::invalid("`resume.sessionId` is not one that `hub:connected` gave"))
    }

    fn welcome(&self, secret: [u8; 16], resumed: bool, now: Millis) -> Value {
        let settings = &self.settings;
        let rate = settings.rate.map(|rate| json!({"perSecond": rate.per_second, "burst": rate.burst}));
        json!({
            "sessionId": secret_text(secret),
            "address": session_address(secret),
            "resumed": resumed,
            "serverVersion": settings.server_version,
            "protocolVersion": PROTOCOL_VERSION,
            "serverTime": now,
            "maxMessageSize": settings.message_bytes_max,
            "heartbeatInterval": settings.heartbeat,
            "limits": {
                "rate": rate,
                "queue": settings.queue_max,
                "pauseAbove": settings.pause_above,
                "resumeBelow": settings.resume_below,
                "dropAbove": settings.drop_above,
                "addresses": settings.addresses_max,
                "subscriptions": settings.subscriptions_max,
            },
        })
    }

    pub(super) fn heartbeat(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let raw = request.envelope.payload.raw("timestamp");
        let theirs: Value = raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or(Value::Null);
        let theirs = if theirs.is_number() { theirs } else { json!(request.envelope.timestamp) };
        self.respond(request, "hub:heartbeat_ack", &json!({"timestamp": theirs, "serverTime": request.now}));
        Ok(())
    }

    pub(super) fn disconnect(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        self.respond(request, "hub:disconnect", &json!({"acknowledged": true}));
        self.leave(request.session, Close::Asked, request.now);
        Ok(())
    }

    /// A malformed frame came; too many of them end it.
    pub(super) fn abused(&mut self, id: SessionId, now: Millis) {
        let (max, within) = (self.settings.abuse_max, self.settings.abuse_within);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let (count, since) = &mut session.malformed;
        if since.saturating_add(within) < now {
            (*count, *since) = (0, now);
        }
        *count += 1;
        if *count >= max {
            self.end(id, Close::Abuse, now);
        }
    }
}
