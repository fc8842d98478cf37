//! Who is here.

use std::ops::Bound;

use serde_json::{Value, json};

use crate::envelope::Text;
use crate::glob::Glob;
use crate::refusal::{self, Refusal};

use super::actor::Actor;
use super::{Hub, Request};

const PAGE: u64 = 100;
const PAGE_MAX: u64 = 1_000;

/// So many actors are looked at for one page: others wait meanwhile.
const LOOKED_AT_MAX: usize = 10_000;

fn shown(actor: &Actor) -> Option<Value> {
    let registration = actor.registration.as_ref()?;
    let metadata: Value = serde_json::from_str(&registration.metadata).unwrap_or(Value::Null);
    Some(json!({
        "actorAddress": &*actor.address,
        "capabilities": registration.capabilities,
        "metadata": metadata,
        "version": registration.version,
        "registeredAt": registration.registered_at,
        "expiresAt": registration.expires_at,
    }))
}

impl Hub {
    pub(super) fn discover(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let payload = &request.envelope.payload;
        let pattern = payload.needed("hub:discover", "pattern")?;
        let glob = Glob::new(pattern.as_str()).map_err(|malformed| refusal::invalid(&malformed.to_string()))?;
        let page = self.page(request, Some(&glob))?;
        self.respond(request, "hub:discovered", &page);
        Ok(())
    }

    pub(super) fn list_actors(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let page = self.page(request, None)?;
        self.respond(request, "hub:actor_list", &page);
        Ok(())
    }

    fn page(&self, request: &Request<'_>, glob: Option<&Glob>) -> Result<Value, Refusal> {
        let payload = &request.envelope.payload;
        let limit = payload.of("limit", "a number")?.unwrap_or(PAGE);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(refusal::invalid(&format!("`limit` is 1 to {PAGE_MAX}, got: {limit}")));
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let after = payload.text("after")?;
        let capability = payload.text("capability")?;
        let capability = capability.as_ref().map(Text::as_str);
        let session = &self.sessions[request.session];
        let prefix = glob.map_or("", Glob::literal_prefix);
        let from = match &after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        let (mut actors, mut last, mut looked_at) = (Vec::new(), None, 0);
        for (address, id) in self.names.range::<str, _>((from, Bound::Unbounded)) {
            if !address.starts_with(prefix) {
                break;
            }
            if actors.len() == limit || looked_at == LOOKED_AT_MAX {
                return Ok(json!({"actors": actors, "hasMore": true, "next": last}));
            }
            looked_at += 1;
            last = Some(&**address);
            let actor = &self.actors[*id];
            let Some(registration) = &actor.registration else { continue };
            let able = capability.is_none_or(|wanted| registration.capabilities.iter().any(|one| &**one == wanted));
            let visible = actor.owner == Some(request.session) || session.access.may_send(address);
            if able && visible && glob.is_none_or(|glob| glob.matches(address)) {
                actors.extend(shown(actor));
            }
        }
        Ok(json!({"actors": actors, "hasMore": false, "next": null}))
    }
}
