//! Paged lists of the hub's actors and topics.

use std::fmt::Write as _;
use std::ops::Bound;

use serde_json::json;

use crate::envelope::Text;
use crate::frame::{self, Head};
use crate::glob::Glob;
use crate::refusal::{self, Refusal};
use crate::topic::Topic;

use super::actor::{Actor, Registration};
use super::{Hub, Request};

const PAGE: u64 = 100;
const PAGE_MAX: u64 = 1_000;

/// Maximum size of a page. Pages are built under the lock and wait in the outbox of the client.
const PAGE_BYTES_MAX: usize = 64 * 1_024;

/// Maximum number of actors or topics examined for one page, which is built under the lock: each may be compared with
/// the patterns of a token and of the request.
const LOOKED_AT_MAX: usize = 256;

/// Bytes of a topic in a page, without its name: fixed keys and three numbers.
const TOPIC_BYTES: usize = 96;

/// Returns the page size that a request asks for.
fn limit(request: &Request<'_>) -> Result<usize, Refusal> {
    let limit = request.envelope.payload.of("limit", "a number")?.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(refusal::invalid(&format!("`limit` is 1 to {PAGE_MAX}, got: {limit}")));
    }
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Writes the JSON of an actor.
fn write_actor(out: &mut String, actor: &Actor, registration: &Registration) {
    let Registration { shown, version, registered_at, expires_at, .. } = registration;
    let comma = if out.is_empty() { "" } else { "," };
    let _ = write!(
        out,
        "{comma}{{\"actorAddress\":\"{}\",{shown},\"version\":{version},\"registeredAt\":{registered_at},\"expiresAt\":{expires_at}}}",
        actor.address
    );
}

impl Hub {
    pub(super) fn discover(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let payload = &request.envelope.payload;
        let pattern = payload.needed("hub:discover", "pattern")?;
        let glob = Glob::new(pattern.as_str()).map_err(|malformed| refusal::invalid(&malformed.to_string()))?;
        let page = self.page(request, Some(&glob))?;
        self.respond_text(request, "hub:discovered", &page);
        Ok(())
    }

    pub(super) fn list_actors(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let page = self.page(request, None)?;
        self.respond_text(request, "hub:actor_list", &page);
        Ok(())
    }

    /// Lists the topics that the session may read: name, subscribers, epoch and last sequence number.
    pub(super) fn list_topics(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let limit = limit(request)?;
        let after = request.envelope.payload.text("after")?;
        let from = after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let access = &self.sessions[request.session].access;
        let (mut topics, mut next, mut bytes) = (Vec::new(), None, 0);
        for (looked_at, (name, topic)) in self.topics.range::<str, _>((from, Bound::Unbounded)).enumerate() {
            if topics.len() == limit || looked_at == LOOKED_AT_MAX || bytes >= PAGE_BYTES_MAX {
                break;
            }
            next = Some(name);
            self.visits.count(1);
            if access.may_read(name) {
                bytes += name.len() + TOPIC_BYTES;
                let Topic { epoch, seq, subscribers, .. } = topic;
                topics.push(json!({"topic": &**name, "subscribers": subscribers.len(), "epoch": epoch, "seq": seq}));
            }
        }
        let has_more = next.is_some_and(|last| {
            self.topics.range::<str, _>((Bound::Excluded(&**last), Bound::Unbounded)).next().is_some()
        });
        let next = next.filter(|_| has_more);
        let payload = json!({"topics": topics, "hasMore": has_more, "next": next.map(|name| &**name)});
        self.respond(request, "hub:topic_list", &payload);
        Ok(())
    }

    /// Answers a request with a payload that is already serialised.
    fn respond_text(&mut self, request: &Request<'_>, kind: &str, payload: &str) {
        let number = self.next_number();
        let id = self.id_of(number);
        let envelope = request.envelope;
        let (to, correlation) = (envelope.from.as_str(), Some(envelope.id.as_str()));
        let head = Head { correlation, ..Head::from_hub(&id, to, kind, request.now) };
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(payload.as_bytes());
        let trace = request.trace.as_bytes();
        self.write(request.session, request.now, |out| frame::write(out, &head, payload, |out| out.extend(trace)));
    }

    /// Returns a page of actors as JSON.
    fn page(&self, request: &Request<'_>, glob: Option<&Glob>) -> Result<String, Refusal> {
        let payload = &request.envelope.payload;
        let limit = limit(request)?;
        let after = payload.text("after")?;
        let capability = payload.text("capability")?;
        let capability = capability.as_ref().map(Text::as_str);
        let session = &self.sessions[request.session];
        let prefix = glob.map_or("", Glob::literal_prefix);
        let from = match &after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        let (mut actors, mut count, mut looked_at) = (String::new(), 0, 0);
        let mut last: Option<&str> = None;
        for (address, id) in self.names.range::<str, _>((from, Bound::Unbounded)) {
            if !address.starts_with(prefix) {
                break;
            }
            if count == limit || looked_at == LOOKED_AT_MAX || actors.len() >= PAGE_BYTES_MAX {
                let next = last.unwrap_or_default();
                return Ok(format!("{{\"actors\":[{actors}],\"hasMore\":true,\"next\":\"{next}\"}}"));
            }
            looked_at += 1;
            self.visits.count(1);
            last = Some(address);
            let actor = &self.actors[*id];
            let Some(registration) = &actor.registration else { continue };
            let able = capability.is_none_or(|wanted| registration.capabilities.iter().any(|one| &**one == wanted));
            let visible = actor.owner == Some(request.session) || session.access.may_send(address);
            if able && visible && glob.is_none_or(|glob| glob.matches(address)) {
                write_actor(&mut actors, actor, registration);
                count += 1;
            }
        }
        Ok(format!("{{\"actors\":[{actors}],\"hasMore\":false,\"next\":null}}"))
    }
}
