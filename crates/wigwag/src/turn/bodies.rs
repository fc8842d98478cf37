//! Bodies of a turn: users' code begins, and is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use wigwag_core::deliberate_bug;
use wigwag_core::turn::step::Attempt;
use wigwag_core::{Path, PointKind, Status};

use super::{Body, Turn, data_of, inbox};
use crate::context::Ctx;
use crate::mailbox::BodyId;
use crate::scope::{self, Made, Scope};
use crate::workflow::{Code, in_scope};

impl Turn {
    /// Starts the function, if this is one, and lets it come to its first points.
    pub(super) async fn begin_function(&mut self) {
        let needed = match (&self.log.run.cancel, &self.log.run.chain) {
            // The function runs only to register its compensations.
            (Some(_), _) | (_, Some(_)) => self.log.run.has_anything_to_undo(),
            _ => self.log.run.status != Status::Paused,
        };
        if needed && self.code.root.is_none() && matches!(self.workflow.code, Code::Function(_)) {
            self.spawn_root();
            self.first_poll().await;
        }
    }

    pub(super) async fn first_poll(&mut self) {
        let mut until = self.inner.clock.boot() + inbox::HEAR_OUT;
        while self.code.root.as_ref().is_some_and(|root| !root.link.is_idle()) {
            // The sender of an inline signal waits for this turn, so the turn waits for the code only for a limited time.
            if self.mail.queue.is_empty() && self.plan.brings.is_none() {
                self.mail.mailbox.changed().await;
                self.mail.queue.extend(self.mail.mailbox.take());
            } else if !self.hear(&mut until).await {
                return;
            }
        }
    }

    pub(super) fn spawn_root(&mut self) {
        let Code::Function(code) = &self.workflow.code else { return };
        let mut recorded = self.log.run.points.clone();
        if deliberate_bug!(RecordForgotten) {
            recorded.retain(|_, point| point.kind != PointKind::Step);
        }
        let made = self.made(BodyId::Root, 1, recorded);
        let scope = Scope::new(Arc::clone(&self.inner), made);
        let (code, ctx, input) = (Arc::clone(code), Ctx { scope: Arc::clone(&scope) }, self.code.input.clone());
        // Users' code is called inside the task, where its panic is a failure.
        let task = scope::spawn(&scope, Box::pin(async move { code.call(ctx, input).await }));
        self.code.root = Some(Arc::clone(&scope));
        self.code.bodies.insert(BodyId::Root, Body { scope, task, attempt: None });
    }

    pub(super) fn spawn_step(&mut self, path: &Path, attempt: u32) {
        let Some(code) = self.workflow.node_code(path).and_then(|code| code.run.clone()) else { return };
        let Some(node) = self.workflow.node(path, &self.log.run) else { return };
        self.code.spawned += 1;
        let id = BodyId::Step(path.clone(), self.code.spawned);
        let recorded = self.points_below(path);
        let made = self.made(id.clone(), attempt, recorded);
        let scope = Scope::new(Arc::clone(&self.inner), made);
        let code = match self.inner.injected(path) {
            Some(failure) => Box::pin(std::future::ready(Err(failure))) as BoxFuture<'static, _>,
            None => {
                let ctx = in_scope(&scope);
                Box::pin(async move { code.call(ctx).await }) as BoxFuture<'static, _>
            }
        };
        let task = scope::spawn(&scope, code);
        let attempt = Some(Attempt::new(attempt, self.now, node.timeout));
        self.code.bodies.insert(id, Body { scope, task, attempt });
    }

    pub(super) fn points_below(&self, path: &Path) -> BTreeMap<Path, wigwag_core::Point> {
        let below = self
            .log
            .run
            .points
            .range(path.clone()..)
            .take_while(|(other, _)| other.as_str().starts_with(path.as_str()));
        let inner = below.filter(|(other, _)| *other != path && other.is_within(path) && **other != path.delay());
        inner.map(|(path, point)| (path.clone(), point.clone())).collect()
    }

    pub(super) fn made(&self, body: BodyId, attempt: u32, recorded: BTreeMap<Path, wigwag_core::Point>) -> Made {
        let run = &self.log.run;
        Made {
            run: run.run.clone(),
            restarts: run.restarts,
            body,
            attempt,
            input: self.code.input.clone(),
            data: self.data(),
            outputs: Arc::clone(&self.code.outputs),
            mailbox: Arc::clone(&self.mail.mailbox),
            recorded,
            now: run.created_at,
            cancelled: self.code.cancel.subscribe(),
            landed: self.plan.brings.as_ref().map(|brought| brought.landed.subscribe()),
            tally: Arc::clone(&self.log.tally),
        }
    }

    pub(super) fn data(&self) -> Map<String, Value> {
        data_of(&self.log.run, &self.code.input)
    }

    pub(super) fn abort_bodies(&mut self) {
        for (_, body) in std::mem::take(&mut self.code.bodies) {
            body.task.abort();
        }
        self.steps.slots.clear();
        self.offers.clear();
    }
}
