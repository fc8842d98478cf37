//! One piece of users' code that runs in Python: a function, a step of a graph, or what undoes one.
//!
//! Its future on this side owns its points. It holds the engine's guard while Python has something to do for it, and lets
//! go when Python's loop has been quiet for it.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt as _};
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::mpsc;
use wigwag::{Ctx, Elsewhere, Failure, Payload, StepCtx};

use crate::failures::Outcome;
use crate::mailbox::{BEGIN, CANCELLED, Post, REPLY};
use crate::points::Point;

/// What Python says to one scope.
#[derive(Debug)]
pub(crate) enum Command {
    /// Asks for a point.
    Ask { future: u64, point: Result<Box<Point>, String> },
    /// Drops that point.
    Drop { future: u64 },
    /// The loop has been quiet since this many items were delivered.
    Ack { seen: u64 },
    /// The code has returned.
    Return { outcome: Outcome, data: Option<String> },
}

/// The context of the code.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Function(Ctx),
    Step(StepCtx<Value>),
}

impl Held {
    pub(crate) fn ctx(&self) -> &Ctx {
        match self {
            Self::Function(ctx) => ctx,
            Self::Step(ctx) => ctx,
        }
    }
}

type Asked = BoxFuture<'static, (u64, Option<Result<Payload, Failure>>)>;

/// Tells Python that the code is gone, whether it returned or was dropped.
struct Open {
    post: Arc<Post>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.post.close_scope(self.number);
    }
}

struct Scope {
    held: Held,
    open: Open,
    points: FuturesUnordered<Asked>,
    aborts: HashMap<u64, AbortHandle>,
    busy: Option<Elsewhere>,
    told: u64,
}

/// Runs code that Python keeps under a number. `text` describes the call.
pub(crate) async fn run(post: Arc<Post>, held: Held, handler: u64, text: String) -> Result<Payload, Failure> {
    let (number, commands) = post.open_scope();
    let ctx = held.ctx().clone();
    let busy = Some(ctx.elsewhere());
    let open = Open { post: Arc::clone(&post), number };
    post.put((BEGIN, number, handler, u64::from(ctx.is_replaying()), ctx.now().micros(), Some(text)));
    let scope = Scope { held, open, points: FuturesUnordered::new(), aborts: HashMap::new(), busy, told: 1 };
    scope.drive(commands).await
}

impl Scope {
    async fn drive(mut self, mut commands: mpsc::UnboundedReceiver<Vec<Command>>) -> Result<Payload, Failure> {
        let ctx = self.held.ctx().clone();
        let mut cancelled = async move { ctx.cancelled().await }.boxed().fuse();
        loop {
            tokio::select! {
                biased;
                said = commands.recv() => {
                    for command in said.unwrap_or_default() {
                        if let Some(outcome) = self.obey(command) {
                            return outcome;
                        }
                    }
                }
                Some((future, outcome)) = self.points.next(), if !self.points.is_empty() => {
                    self.aborts.remove(&future);
                    if let Some(outcome) = outcome {
                        self.reply(future, Outcome::of_point(outcome));
                    }
                }
                () = &mut cancelled => {
                    self.told += 1;
                    self.open.post.put((CANCELLED, self.open.number, 0, 0, 0, None));
                }
            }
        }
    }

    /// Does what Python says; returns the outcome once the code has returned.
    fn obey(&mut self, command: Command) -> Option<Result<Payload, Failure>> {
        match command {
            Command::Ask { future, point: Ok(point) } => {
                // The name is counted here, in the order in which the code came to its points.
                let asked = point.ask(&self.held, &self.open.post);
                let (abort, registration) = AbortHandle::new_pair();
                self.aborts.insert(future, abort);
                let asked = Abortable::new(asked, registration);
                self.points.push(async move { (future, asked.await.ok()) }.boxed());
            }
            Command::Ask { future, point: Err(refused) } => self.reply(future, Outcome::refused(&refused)),
            Command::Drop { future } => {
                if let Some(abort) = self.aborts.remove(&future) {
                    abort.abort();
                }
            }
            Command::Ack { seen } if seen == self.told => self.busy = None,
            Command::Ack { .. } => {}
            Command::Return { outcome, data } => {
                if let (Held::Step(ctx), Some(data)) = (&self.held, data) {
                    match serde_json::from_str(&data) {
                        Ok(data) => ctx.change_data(|map| *map = data),
                        Err(error) => return Some(Err(wigwag::permanent(format!("`data` is no object: {error}")))),
                    }
                }
                return Some(outcome.into_result());
            }
        }
        None
    }

    fn reply(&mut self, future: u64, outcome: Outcome) {
        let ctx = self.held.ctx();
        // From here on Python's loop has something to do, which the engine does not see.
        let busy = self.busy.take().unwrap_or_else(|| ctx.elsewhere());
        self.busy = Some(busy);
        self.told += 1;
        let (is_ok, text) = outcome.into_parts();
        let flags = u64::from(is_ok) | u64::from(ctx.is_replaying()) << 1;
        self.open.post.put((REPLY, self.open.number, future, flags, ctx.now().micros(), Some(text)));
    }
}
