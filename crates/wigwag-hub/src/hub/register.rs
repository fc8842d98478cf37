//! Registration: which session owns which address.
//!
//! Order of writes: the version is incremented in the store, then the address changes owner, then the new owner gets
//! its answer. What if we die here? After the first, a version has no owner, which is harmless: versions only have to
//! grow. A rejected registration changes nothing. The queue of the address is read after its last put completes and
//! before newer messages are delivered.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::address::{check_address, is_reserved};
use crate::refusal::{self, Refusal};
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::actor::{Past, Phase, Registration};
use super::queue::Job;
use super::{Close, Hub, Kept, Op, Request};

const TTL_SECONDS: u64 = 300;
const TTL_SECONDS_MIN: u64 = 10;
const TTL_SECONDS_MAX: u64 = 3_600;
const CAPABILITIES_MAX: usize = 32;
const CAPABILITY_BYTES_MAX: usize = 64;
const METADATA_BYTES_MAX: usize = 4 * 1024;

/// A registration in progress.
#[derive(Debug)]
pub(super) struct Registering {
    session: SessionId,
    id: String,
    from: String,
    trace: String,
    wanted: Wanted,
}

/// The properties of a registration request.
#[derive(Debug)]
struct Wanted {
    capabilities: Vec<Box<str>>,
    metadata: Box<str>,
    ttl: Millis,
}

fn wanted(request: &Request<'_>) -> Result<Wanted, Refusal> {
    let payload = &request.envelope.payload;
    let ttl = payload.of("ttlSeconds", "a number of seconds")?.unwrap_or(TTL_SECONDS);
    if !(TTL_SECONDS_MIN..=TTL_SECONDS_MAX).contains(&ttl) {
        let what = format!("`ttlSeconds` is {TTL_SECONDS_MIN} to {TTL_SECONDS_MAX}, got: {ttl}");
        return Err(refusal::invalid(&what));
    }
    let named: Vec<String> = payload.of("capabilities", "a list of texts")?.unwrap_or_default();
    let fits = |one: &String| (1..=CAPABILITY_BYTES_MAX).contains(&one.len());
    if named.len() > CAPABILITIES_MAX || !named.iter().all(fits) {
        let what = format!("there are at most {CAPABILITIES_MAX} `capabilities` of 1 to {CAPABILITY_BYTES_MAX} bytes");
        return Err(refusal::invalid(&what));
    }
    let metadata = payload.raw("metadata").unwrap_or("{}");
    if !metadata.starts_with('{') || metadata.len() > METADATA_BYTES_MAX {
        let what = format!("`metadata` of an actor is an object of at most {METADATA_BYTES_MAX} bytes");
        return Err(refusal::invalid(&what));
    }
    let capabilities = named.into_iter().map(String::into_boxed_str).collect();
    Ok(Wanted { capabilities, metadata: metadata.into(), ttl: ttl * 1_000 })
}

impl Registration {
    fn new(version: u64, wanted: Wanted, now: Millis) -> Self {
        let Wanted { capabilities, metadata, ttl } = wanted;
        let shown = format!("\"capabilities\":{},\"metadata\":{metadata}", json!(capabilities)).into_boxed_str();
        Self { version, capabilities, shown, ttl, registered_at: now, expires_at: now + ttl }
    }
}

impl Hub {
    pub(super) fn register(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let (id, now) = (request.session, request.now);
        let address = request.envelope.payload.needed("hub:register", "actorAddress")?;
        let address = address.as_str();
        check_address(address).map_err(|malformed| refusal::invalid(&malformed.to_string()))?;
        if is_reserved(address) {
            let what = format!("`{address}` is reserved for the hub");
            return Err(refusal::unauthorized(&what, "choose another"));
        }
        let session = &self.sessions[id];
        if !session.access.may_own(address) {
            let what = format!("this token may not own `{address}`");
            return Err(refusal::unauthorized(&what, "use a token with a scope `hub:own:…` that matches it"));
        }
        let wanted = wanted(request)?;
        if let Some(&actor) = self.names.get(address)
            && self.actors[actor].owner == Some(id)
        {
            return self.register_again(request, actor, wanted);
        }
        if session.addresses.len() >= self.settings.addresses_max {
            let what = format!("a session has at most {} addresses", self.settings.addresses_max);
            return Err(refusal::invalid(&what));
        }
        let actor = self.actor(address, now);
        let envelope = request.envelope;
        self.actors[actor].registering.push_back(Registering {
            session: id,
            id: envelope.id.as_str().to_owned(),
            from: envelope.from.as_str().to_owned(),
            trace: request.trace.clone(),
            wanted,
        });
        self.go_on(actor, now);
        Ok(())
    }

    /// Renews the registration of a session's own address, with new properties.
    fn register_again(&mut self, request: &Request<'_>, actor: ActorId, wanted: Wanted) -> Result<(), Refusal> {
        if let Some(registration) = &mut self.actors[actor].registration {
            let registered_at = registration.registered_at;
            *registration = Registration::new(registration.version, wanted, request.now);
            registration.registered_at = registered_at;
        }
        let payload = self.registered(actor);
        self.respond(request, "hub:registered", &payload);
        Ok(())
    }

    fn registered(&self, actor: ActorId) -> Value {
        let actor = &self.actors[actor];
        let registration = actor.registration.as_ref();
        let version = registration.map_or(0, |registration| registration.version);
        json!({
            "actorAddress": &*actor.address,
            "expiresAt": registration.map(|registration| registration.expires_at),
            "renewalToken": self.renewal_token(&actor.address, version),
            "version": version,
        })
    }

    fn renewal_token(&self, address: &str, version: u64) -> String {
        let hash = Sha256::new().chain_update(self.seed).chain_update(version.to_be_bytes()).chain_update(address);
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Starts the next store operation of an actor that has none in progress.
    pub(super) fn go_on(&mut self, id: ActorId, now: Millis) {
        let actor = &mut self.actors[id];
        let storing = actor.storing && !deliberate_bug!(LoadDuringPuts);
        if actor.phase != Phase::Idle || storing {
            return;
        }
        while actor
            .registering
            .front()
            .is_some_and(|next| self.sessions.get(next.session).is_none_or(|session| session.is_closing()))
        {
            actor.registering.pop_front();
        }
        if !actor.registering.is_empty() {
            actor.phase = Phase::Raising;
            let address = Arc::clone(&actor.address);
            return self.store(Job::Raise(id), Op::Raise { address });
        }
        self.flush_held(id, now);
    }

    /// Completes a registration: the version was incremented, and the address changes owner.
    pub(super) fn raised(&mut self, id: ActorId, version: u64, kept: Kept, now: Millis) {
        let Some(next) = self.actors[id].registering.pop_front() else { return };
        self.set_kept(id, kept, now);
        self.actors[id].past = Past::Registered;
        self.actors[id].looked_at = now;
        let alive = self.sessions.get(next.session).is_some_and(|session| !session.is_closing());
        if alive {
            if let Some(old) = self.actors[id].owner.filter(|old| *old != next.session) {
                self.end(old, Close::Duplicate, now);
            }
            let actor = &mut self.actors[id];
            actor.owner = Some(next.session);
            let before = actor.registration.replace(Registration::new(version, next.wanted, now));
            self.counts.registered += usize::from(before.is_none());
            let addresses = &mut self.sessions[next.session].addresses;
            if !addresses.contains(&id) {
                addresses.push(id);
            }
            let payload = self.registered(id);
            self.say(next.session, Some(&next.from), "hub:registered", Some(&next.id), &payload, &next.trace, now);
            if self.load(id) {
                return;
            }
        }
        self.actors[id].phase = Phase::Idle;
        self.flush_held(id, now);
        self.go_on(id, now);
    }

    /// Rejects a registration whose version could not be incremented.
    pub(super) fn not_raised(&mut self, id: ActorId, why: &str, now: Millis) {
        let actor = &mut self.actors[id];
        actor.phase = Phase::Idle;
        if let Some(next) = actor.registering.pop_front() {
            let refusal = refusal::internal(&format!("the registration could not be stored: {why}"));
            let (kind, payload) = (refusal.kind, &refusal.payload);
            self.say(next.session, Some(&next.from), kind, Some(&next.id), payload, &next.trace, now);
        }
        self.flush_held(id, now);
        self.go_on(id, now);
    }

    pub(super) fn renew(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let token = request.envelope.payload.needed("hub:renew", "renewalToken")?;
        let token = token.as_str();
        let is_meant = |id: &&ActorId| {
            let actor = &self.actors[**id];
            let version = actor.registration.as_ref().map_or(0, |registration| registration.version);
            self.renewal_token(&actor.address, version) == token
        };
        let found = self.sessions[request.session].addresses.iter().find(is_meant).copied();
        let Some(id) = found else {
            return Err(refusal::unauthorized("this token renews no address of this session", "register it again"));
        };
        if let Some(registration) = &mut self.actors[id].registration {
            registration.expires_at = request.now + registration.ttl;
        }
        let mut payload = self.registered(id);
        if let Some(fields) = payload.as_object_mut() {
            fields.remove("renewalToken");
        }
        self.respond(request, "hub:renewed", &payload);
        Ok(())
    }

    pub(super) fn unregister(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let address = request.envelope.payload.needed("hub:unregister", "actorAddress")?;
        let address = address.as_str();
        let session = &self.sessions[request.session];
        let found = session.addresses.iter().find(|id| &*self.actors[**id].address == address).copied();
        let Some(id) = found else {
            let what = format!("`{}` is not an address of this session", refusal::shown(address));
            return Err(refusal::unauthorized(&what, "only the owner can unregister an address"));
        };
        self.release(id, request.session, request.now);
        if request.is_ask() {
            self.respond(request, "hub:unregistered", &json!({"actorAddress": address}));
        }
        Ok(())
    }

    /// Removes an address from its session.
    pub(super) fn release(&mut self, id: ActorId, session: SessionId, now: Millis) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.addresses.retain(|address| *address != id);
        }
        self.vacate(id, session, now);
    }
}
