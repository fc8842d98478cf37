//! Runs as actors: a message to one is a signal.

use crate::ActorId;
use crate::address::HUB;
use crate::outbox::Carried;
use crate::refusal::{self, Refusal};
use crate::seen::Said;
use crate::settings::Millis;

use super::queue::Job;
use super::send::Body;
use super::{Carry, Effect, Hub, Request, SignalRefusal};

/// A signal whose outcome is outstanding.
#[derive(Debug)]
pub(super) struct Signalling {
    carried: Box<Carried>,
    /// Size of its payload.
    size: usize,
    address: String,
}

/// Maximum number of signals in progress of one session.
const SIGNALS_MAX: usize = 1_000;

/// Maximum payload bytes of the signals in progress of one session.
const SIGNAL_BYTES_MAX: usize = 16 * 1_024 * 1_024;

impl Hub {
    pub(super) fn signal(
        &mut self,
        request: &Request<'_>,
        sender: ActorId,
        target: &str,
        run: &str,
        body: &Body<'_>,
    ) -> Result<(), Refusal> {
        let access = &self.sessions[request.session].access;
        if !access.may_signal(target, body.kind()) {
            let what = format!("this token may not send `{}` to `{target}`", refusal::shown(body.kind()));
            return Err(refusal::unauthorized(
                &what,
                "use a token with the scope `signals:NAME`, or `hub:send:…` of this run",
            ));
        }
        if request.envelope.payload.flag("expectReply")? {
            return Err(refusal::invalid("a run does not reply; follow its topic `run/…`"));
        }
        // The sender is the name of the token, not an address: one token may have many addresses, and
        // a quorum counts distinct senders.
        let is_authenticated = access.name().is_some();
        let by = access.name().map_or_else(|| self.actors[sender].address.to_string(), str::to_owned);
        let tag = self.tag(target);
        let Some(slot) = self.admit(request, sender, tag, None)? else { return Ok(()) };
        let carry = Carry { sender, target: ActorId::default(), slot, expects_reply: false };
        let carried = self.carried(request, carry);
        let (count, bytes) = &mut self.sessions[request.session].signals;
        if *count >= SIGNALS_MAX || *bytes >= SIGNAL_BYTES_MAX {
            self.fail(
                &carried,
                &refusal::queue_full(target, "too many signals of this session are in flight"),
                request.now,
            );
            return Ok(());
        }
        *count += 1;
        *bytes += body.payload.len();
        let size = body.payload.len();
        let ticket = self.begin(Job::Signal(Box::new(Signalling { carried, size, address: target.to_owned() })));
        self.effects.push(Effect::Signal {
            ticket,
            session: request.session,
            run: run.to_owned(),
            name: body.kind().to_owned(),
            payload: body.payload.to_owned(),
            key: request.envelope.id.as_str().to_owned(),
            by,
            is_authenticated,
        });
        Ok(())
    }

    pub(super) fn signalled(&mut self, signalling: Signalling, outcome: Result<bool, SignalRefusal>, now: Millis) {
        let Signalling { carried, size, address } = signalling;
        if let Some(session) = self.sessions.get_mut(carried.feeder) {
            let (count, bytes) = &mut session.signals;
            (*count, *bytes) = (count.saturating_sub(1), bytes.saturating_sub(size));
        }
        let refusal = match outcome {
            Ok(waiting) => {
                self.counts.signals += 1;
                let said = if waiting { Said::Delivered } else { Said::Queued };
                return self.answer(&carried, said, now, now);
            }
            Err(SignalRefusal::Unknown(what)) => {
                refusal::unknown_actor(&address, &what, "list runs with `wigwag list`", false)
            }
            Err(SignalRefusal::Invalid(what)) => refusal::invalid(&what),
            Err(SignalRefusal::Later(what)) => refusal::internal(&what),
        };
        self.fail(&carried, &refusal, now);
    }

    /// Publishes to a topic of the hub itself.
    pub fn tell_topic(&mut self, topic: &str, kind: &str, payload: &str, now: Millis) {
        self.publish_as(HUB, topic, kind, payload, now);
    }
}
