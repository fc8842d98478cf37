//! Connecting, resuming and heartbeats of sessions.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::envelope::Text;
use crate::refusal::{self, Refusal};
use crate::rights::Access;
use crate::settings::Millis;
use crate::{PROTOCOL_VERSION, SessionId};

use super::session::State;
use super::{Close, Hub, Request};

/// A session's secret, and the name of the token that it belongs to.
#[derive(Clone, Copy)]
struct Identity<'a> {
    secret: [u8; 16],
    token: &'a str,
}

impl Identity<'_> {
    fn hash(self, purpose: &str) -> impl Iterator<Item = u8> {
        let Self { secret, token } = self;
        Sha256::new().chain_update(secret).chain_update(purpose).chain_update(token).finalize().into_iter()
    }

    /// The session id sent to the client: the secret and a checksum that binds it to the token.
    fn session_id(self) -> String {
        self.secret.into_iter().chain(self.sum()).map(|byte| format!("{byte:02x}")).collect()
    }

    fn sum(self) -> [u8; 4] {
        let mut hash = self.hash("sum");
        std::array::from_fn(|_| hash.next().unwrap_or_default())
    }

    /// The session's public address: a hash of secret and token name, so that it reveals neither and differs for each token.
    fn address(self) -> String {
        let short: String = self.hash("address").take(10).map(|byte| format!("{byte:02x}")).collect();
        format!("@(session/{short})")
    }
}

/// Parses a session id into secret and checksum.
fn parse_session_id(text: &str) -> Option<([u8; 16], [u8; 4])> {
    let mut bytes = [0; 20];
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    let (secret, sum) = bytes.split_at(16);
    Some((secret.try_into().ok()?, sum.try_into().ok()?))
}

fn major(version: &str) -> Option<u64> {
    let mut parts = version.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor_and_patch = parts.all(|part| part.parse::<u64>().is_ok());
    minor_and_patch.then_some(major)
}

/// A clock offset that changes by this much means that the clock was set; smaller changes are network delay.
const CLOCK_SET_MS: u64 = 5_000;

/// The client's clock offset according to one frame.
fn clock_offset(request: &Request<'_>) -> i64 {
    let offset = i128::from(request.now) - i128::from(request.envelope.timestamp);
    i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX })
}

/// Whether a client wants combined acknowledgements.
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

/// Reads the secret of the session to resume. It must belong to the same token.
fn resumed(request: &Request<'_>, token: &str) -> Result<Option<[u8; 16]>, Refusal> {
    let envelope = request.envelope;
    let resume = envelope.payload.object("resume")?.or(envelope.metadata.entries.object("resume")?);
    let Some(resume) = resume else { return Ok(None) };
    let parsed = resume.text("sessionId")?.and_then(|text| parse_session_id(text.as_str()));
    let Some((secret, sum)) = parsed else {
        return Err(refusal::invalid("`resume.sessionId` is not a session id from `hub:connected`"));
    };
    match (Identity { secret, token }.sum() == sum) {
        true => Ok(Some(secret)),
        false => Err(refusal::invalid("`resume.sessionId` belongs to a session of another token")),
    }
}

impl Hub {
    pub(super) fn connect(&mut self, request: &Request<'_>, access: Option<Access>) -> Result<(), Refusal> {
        let (id, now) = (request.session, request.now);
        if self.sessions[id].state != State::Fresh {
            return Err(refusal::invalid("this session is already connected"));
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
            let refusal = refusal::unauthorized("this hub requires a token", "send one in `hub:connect` as `token`");
            self.refuse(request, &refusal);
            self.end(id, Close::Token, now);
            return Ok(());
        }
        let acks_together = acks_together(request)?;
        let token = self.sessions[id].access.name().map(str::to_owned);
        let resumed = resumed(request, token.as_deref().unwrap_or_default())?;
        let secret = resumed.unwrap_or(self.sessions[id].secret);
        let identity = Identity { secret, token: token.as_deref().unwrap_or_default() };
        self.count_session(id, token.as_deref(), now)?;
        let own = self.actor(&identity.address(), now);
        if let Some(old) = self.actors[own].owner {
            self.end(old, Close::Duplicate, now);
        }
        self.actors[own].owner = Some(id);
        let session = &mut self.sessions[id];
        session.secret = secret;
        session.own = Some(own);
        session.state = State::Connected;
        session.acks_together = acks_together;
        session.offset = clock_offset(request);
        let mut welcome = self.welcome(identity, resumed.is_some(), now);
        welcome["acks"] = json!(if acks_together { "together" } else { "single" });
        self.respond(request, "hub:connected", &welcome);
        Ok(())
    }

    /// Counts a session towards the limit of its token.
    fn count_session(&mut self, id: SessionId, token: Option<&str>, now: Millis) -> Result<(), Refusal> {
        let Some(token) = token else { return Ok(()) };
        let Some(token) = self.tokens.join(token, &self.settings, now) else {
            self.counts.rate_limited += 1;
            return Err(refusal::too_many_sessions(self.settings.sessions_per_token_max));
        };
        self.sessions[id].token = Some(token);
        Ok(())
    }

    fn welcome(&self, identity: Identity<'_>, resumed: bool, now: Millis) -> Value {
        let settings = &self.settings;
        let rate = settings.rate.map(|rate| json!({"perSecond": rate.per_second, "burst": rate.burst}));
        json!({
            "sessionId": identity.session_id(),
            "address": identity.address(),
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
        self.correct_clock(request);
        let raw = request.envelope.payload.raw("timestamp");
        let theirs: Value = raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or(Value::Null);
        let theirs = if theirs.is_number() { theirs } else { json!(request.envelope.timestamp) };
        self.respond(request, "hub:heartbeat_ack", &json!({"timestamp": theirs, "serverTime": request.now}));
        Ok(())
    }

    /// Updates the clock offset from a heartbeat, in case the client's clock was set.
    fn correct_clock(&mut self, request: &Request<'_>) {
        let (measured, session) = (clock_offset(request), &mut self.sessions[request.session]);
        // Network delay only increases the measured offset, so the smallest one is the most accurate.
        if measured < session.offset || measured.abs_diff(session.offset) >= CLOCK_SET_MS {
            session.offset = measured;
        }
    }

    pub(super) fn disconnect(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        self.respond(request, "hub:disconnect", &json!({"acknowledged": true}));
        self.leave(request.session, Close::Asked, request.now);
        Ok(())
    }

    /// Counts a malformed frame; too many of them close the connection.
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
