//! Functions of random shape: a program is a list of acts, and the input of a run.

use std::future::IntoFuture as _;
use std::time::Duration;

use futures_util::future::{join, join_all};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wigwag::{Ctx, Failure, Retry, permanent, retryable};

use crate::ledger::Ledger;

/// The names of signals that programs wait for.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// Schema of some waits: most payloads have this field.
#[must_use]
pub fn schema() -> Value {
    json!({"type": "object", "required": ["fit"]})
}

/// One act of a program. Times are in milliseconds, names are positions in [`NAMES`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names of the fields explain them")]
pub enum Act {
    /// A step that fails a number of times before it succeeds.
    Step { fails: u32, undo: Undo },
    /// A step whose first attempt takes longer than its timeout.
    Late(u64),
    /// A step with a result of this size.
    Large(usize),
    /// A durable sleep.
    Sleep(u64),
    /// A wait, perhaps with a timeout.
    Wait { name: usize, timeout: Option<u64>, latest: bool, schema: bool },
    /// Several concurrent waits of one name: plain ones and a `latest` one, with and without schema.
    Several { name: usize, count: usize, latest: bool, schema: bool, timeout: u64 },
    /// A wait for the first signal of any name.
    Any { timeout: Option<u64> },
    /// Waits for all names, with a timeout.
    All { timeout: u64 },
    /// A wait for several senders of one name.
    Quorum { name: usize, senders: u32, timeout: u64 },
    /// A race of a wait against a sleep, by `select!`.
    Race { name: usize, millis: u64 },
    /// A race of a wait against a step of this duration.
    RaceStep { name: usize, millis: u64 },
    /// A wait and a step of this duration, both awaited.
    Beside { name: usize, timeout: u64, millis: u64 },
    /// A wait that races against a sleep; its future is kept while a step runs, and then dropped.
    Held { name: usize, millis: u64 },
    /// Sequential steps with results of this size.
    Many { count: u32, bytes: usize },
    /// Another program, as a child.
    Child(Vec<Self>),
    /// Children that end at the same time, some with errors, which the parent handles.
    Children(u32),
    /// Concurrent fan-outs, each with this number of tasks and results of this size.
    FanOuts { count: usize, tasks: u32, bytes: usize, timeout: Option<u64> },
    /// Tasks that a step submits and the program awaits by their ids, in several concurrent waits.
    Submit { waits: usize, tasks: u32 },
    /// A map over this number of items.
    Map(u32),
    /// A failure for good, with a message of this length.
    Fail(usize),
}

/// Behaviour of a step's compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undo {
    /// The step has none.
    Not,
    /// The compensation succeeds.
    Well,
    /// The compensation takes some seconds.
    Slowly,
    /// The compensation fails once and then succeeds.
    Again,
    /// The compensation fails permanently.
    Badly,
}

impl Undo {
    /// Draws a behaviour; most succeed.
    pub fn draw(chance: &mut fastrand::Rng) -> Self {
        match chance.u32(..12) {
            0..4 => Self::Not,
            4 => Self::Slowly,
            5 => Self::Again,
            6 => Self::Badly,
            _ => Self::Well,
        }
    }

    /// Runs the compensation for a number of attempts so far.
    pub async fn run(self, attempt: u32) -> Result<(), Failure> {
        match self {
            Self::Slowly => takes(Duration::from_secs(4)).await,
            Self::Again if attempt == 1 => return Err(retryable("not undone yet")),
            Self::Badly => return Err(permanent("it cannot be undone")),
            _ => {}
        }
        Ok(())
    }
}

/// Draws a program.
#[must_use]
pub fn program(chance: &mut fastrand::Rng, depth: u32) -> Vec<Act> {
    let count = chance.usize(1..8);
    (0..count).map(|_| act(chance, depth)).collect()
}

/// Draws a program that waits for the same name repeatedly, in all ways. It waits more often than its senders
/// send, so that signals arrive at open waits and close to cursors.
#[must_use]
pub fn busy_program(chance: &mut fastrand::Rng) -> Vec<Act> {
    let count = chance.usize(10..30);
    let act = |_| {
        let timeout = chance.u64(..8_000);
        match chance.u32(..18) {
            0 => Act::RaceStep { name: 0, millis: timeout / 4 },
            1 | 2 => Act::Beside { name: 0, timeout: timeout / 4, millis: timeout },
            3 => Act::Race { name: 0, millis: timeout },
            4 => Act::Wait { name: 0, timeout: Some(timeout), latest: false, schema: false },
            5 => Act::Any { timeout: Some(timeout) },
            6 if chance.bool() => Act::Sleep(timeout / 4),
            6 | 7 => Act::Held { name: 0, millis: timeout / 2 },
            8 if chance.bool() => several(chance, timeout),
            _ => Act::Wait { name: 0, timeout: None, latest: false, schema: false },
        }
    };
    (0..count).map(act).collect()
}

/// Draws a program with more of everything: more than one entry, page, batch or body can hold with small limits.
#[must_use]
pub fn wide_program(chance: &mut fastrand::Rng) -> Vec<Act> {
    let mut acts = Vec::new();
    for _ in 0..chance.usize(1..4) {
        acts.push(match chance.u32(..10) {
            0 | 1 => Act::Many { count: chance.u32(10..90), bytes: [4, 40, 120, 1_500][chance.usize(..4)] },
            2 => Act::Children(chance.u32(9..14)),
            3 | 4 => {
                let (count, tasks) = [(1, chance.u32(..40)), (chance.usize(8..16), 2)][chance.usize(..2)];
                let timeout = (chance.u32(..3) == 0).then(|| chance.u64(..5_000));
                Act::FanOuts { count, tasks, bytes: chance.usize(1..120), timeout }
            }
            5 => Act::Submit { waits: chance.usize(1..6), tasks: chance.u32(1..25) },
            6 => Act::Map(chance.u32(1..30)),
            7 => {
                let timeout = chance.u64(1_000..8_000);
                Act::Several { name: 0, count: chance.usize(4..12), latest: chance.bool(), schema: false, timeout }
            }
            8 => Act::Large(chance.usize(..40_000)),
            _ => act(chance, 0),
        });
        if chance.bool() {
            acts.push(act(chance, 0));
        }
    }
    acts
}

fn several(chance: &mut fastrand::Rng, timeout: u64) -> Act {
    let (count, latest, schema) = (chance.usize(2..4), chance.bool(), chance.bool());
    Act::Several { name: 0, count, latest, schema, timeout: timeout * 2 }
}

fn act(chance: &mut fastrand::Rng, depth: u32) -> Act {
    let name = if chance.bool() { 0 } else { chance.usize(..NAMES.len()) };
    let timeout = chance.u64(..8_000);
    match chance.u32(..22) {
        0..=4 => Act::Step { fails: chance.u32(..3), undo: Undo::draw(chance) },
        5..=7 => Act::Sleep(chance.u64(..5_000)),
        8..=11 => Act::Wait {
            name,
            timeout: chance.bool().then_some(timeout),
            latest: chance.u32(..5) == 0,
            schema: chance.u32(..4) == 0,
        },
        12 | 13 => Act::Any { timeout: chance.bool().then_some(timeout) },
        14 => Act::All { timeout },
        15 => Act::Quorum { name: 0, senders: chance.u32(2..6), timeout: timeout * 4 },
        16 if chance.bool() => Act::RaceStep { name: 0, millis: timeout / 4 },
        16 => Act::Race { name, millis: timeout },
        17 if chance.u32(..4) == 0 => Act::Many { count: chance.u32(10..50), bytes: 1_500 },
        17 if depth == 0 => Act::Child(program(chance, depth + 1)),
        18 if chance.bool() => Act::Beside { name: 0, timeout: timeout / 4, millis: timeout },
        18 if chance.bool() => Act::Held { name: 0, millis: timeout / 2 },
        18 => Act::FanOuts { count: 1, tasks: chance.u32(..4), bytes: 1, timeout: None },
        19 if chance.bool() => Act::Fail(chance.usize(1..600)),
        20 => several(chance, timeout),
        21 if chance.bool() => Act::Late(timeout / 4),
        _ => Act::Step { fails: 0, undo: Undo::Well },
    }
}

/// Runs a program.
pub async fn run(ctx: Ctx, ledger: Ledger, acts: Vec<Act>) -> Result<Value, Failure> {
    let id = ctx.workflow_id().to_string();
    let mut said = Vec::new();
    for (place, act) in acts.into_iter().enumerate() {
        said.push(perform(&ctx, &ledger, &id, place, act).await?);
    }
    Ok(json!(said))
}

async fn perform(ctx: &Ctx, ledger: &Ledger, id: &str, place: usize, act: Act) -> Result<Value, Failure> {
    let span = Duration::from_millis;
    Ok(match act {
        Act::Step { fails, undo } => step(ctx, ledger, id, place, fails, undo).await?,
        Act::Late(millis) => late(ctx, ledger, id, place, millis).await?,
        Act::Large(bytes) => json!(ctx.step("large", || async { Ok::<_, Failure>("x".repeat(bytes)) }).await?.len()),
        Act::Sleep(millis) => json!(ctx.sleep("sleep", span(millis)).await?),
        Act::Wait { name, timeout, latest, schema: with } => wait(ctx, name, timeout, latest, with).await?,
        Act::Several { name, count, latest, schema: with, timeout } => {
            let modes = (0..count).map(|place| (latest && place == 1, with && place == 0));
            let waits = modes.map(|(latest, with)| wait(ctx, name, Some(timeout), latest, with));
            json!(join_all(waits).await.into_iter().collect::<Result<Vec<_>, _>>()?)
        }
        Act::Any { timeout: Some(millis) } => json!(ctx.wait_any::<Value, _>(NAMES).timeout(span(millis)).await?),
        Act::Any { timeout: None } => json!(ctx.wait_any::<Value, _>(NAMES).await?),
        Act::All { timeout } => json!(ctx.wait_all::<Value, _>(NAMES).timeout(span(timeout)).await?),
        Act::Quorum { name, senders, timeout } => {
            json!(ctx.wait::<Value>(NAMES[name]).quorum(senders).timeout(span(timeout)).await?)
        }
        Act::Race { .. } | Act::RaceStep { .. } | Act::Beside { .. } | Act::Held { .. } => race(ctx, act).await?,
        Act::Many { count, bytes } => {
            // Names of realistic length: a list of all of them is large.
            let name = format!("many-{}", "results-".repeat(1 + place % 7));
            for number in 0..count {
                let text = number.to_string().repeat(bytes);
                ctx.step(&name, || async { Ok::<_, Failure>(text.clone()) }).await?;
            }
            json!(count)
        }
        Act::Child(acts) => ctx.child::<Value, _>("child", "script", &acts).await?,
        Act::Fail(length) => return Err(permanent("x".repeat(length))),
        other => fan(ctx, other).await?,
    })
}

async fn wait(ctx: &Ctx, name: usize, timeout: Option<u64>, latest: bool, with: bool) -> Result<Value, Failure> {
    let wait = ctx.wait::<Value>(NAMES[name]);
    let wait = if latest { wait.latest() } else { wait };
    let wait = if with { wait.schema(schema()) } else { wait };
    Ok(match timeout {
        Some(millis) => json!(wait.timeout(Duration::from_millis(millis)).await?),
        None => json!(wait.await?),
    })
}

/// Runs acts with children, tasks and concurrent steps.
async fn fan(ctx: &Ctx, act: Act) -> Result<Value, Failure> {
    let span = Duration::from_millis;
    Ok(match act {
        Act::Children(count) => {
            let acts = |place: u32| match place % 4 {
                0 => vec![Act::Sleep(500), Act::Fail(20)],
                _ => vec![Act::Sleep(500)],
            };
            let children = (0..count).map(|place| ctx.child::<Value, _>("kid", "script", &acts(place)));
            json!(join_all(children).await.into_iter().filter(Result::is_ok).count())
        }
        Act::FanOuts { count, tasks, bytes, timeout } => {
            let fan_outs = (0..count).map(|_| {
                let fan_out = ctx.fan_out("tasks", "weigh", (0..tasks).map(|task| (task, bytes)));
                match timeout {
                    Some(millis) => fan_out.timeout(span(millis)),
                    None => fan_out,
                }
                .into_future()
            });
            let ends = join_all(fan_outs).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            json!(ends.iter().map(wigwag::Joined::completed).sum::<usize>())
        }
        Act::Submit { waits, tasks } => {
            let submit = ctx.step("submit", || async {
                let mut ids = Vec::new();
                for task in 0..tasks {
                    ids.push(ctx.submit("weigh", &(task, 3)).await?);
                }
                Ok::<_, Failure>(ids)
            });
            let ids = submit.await?;
            let waits = (0..waits).map(|_| ctx.wait_for_tasks(ids.clone(), Some(span(20_000))));
            let ends = join_all(waits).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            json!(ends.iter().map(wigwag::Joined::completed).sum::<usize>())
        }
        Act::Map(count) => {
            json!(ctx.map("map", 0..count, |item: u32| async move { Ok::<_, Failure>(item * 2) }).await?)
        }
        _ => Value::Null,
    })
}

/// Runs acts that combine a wait with another step.
async fn race(ctx: &Ctx, act: Act) -> Result<Value, Failure> {
    let span = Duration::from_millis;
    Ok(match act {
        Act::Race { name, millis } => {
            let (wait, sleep) = (ctx.wait::<Value>(NAMES[name]).into_future(), ctx.sleep("race", span(millis)));
            tokio::select! {
                biased;
                slept = sleep => json!({"slept": slept?}),
                heard = wait => json!(heard?),
            }
        }
        Act::RaceStep { name, millis } => {
            let wait = ctx.wait::<Value>(NAMES[name]).into_future();
            let step = ctx.step("race-step", || async {
                takes(span(millis)).await;
                Ok::<_, Failure>(())
            });
            tokio::select! {
                biased;
                done = step.into_future() => json!({"done": done?}),
                heard = wait => json!(heard?),
            }
        }
        Act::Beside { name, timeout, millis } => {
            let wait = ctx.wait::<Value>(NAMES[name]).timeout(span(timeout)).into_future();
            let step = ctx.step("beside", || async {
                takes(span(millis)).await;
                Ok::<_, Failure>(())
            });
            let (heard, done) = join(wait, step.into_future()).await;
            done?;
            json!(heard?)
        }
        Act::Held { name, millis } => {
            let mut wait = ctx.wait::<Value>(NAMES[name]).into_future();
            let heard = tokio::select! {
                biased;
                slept = ctx.sleep("held", span(millis / 4)) => {
                    slept?;
                    None
                }
                heard = &mut wait => Some(heard?),
            };
            if heard.is_none() {
                let step = ctx.step("holding", || async {
                    takes(span(millis)).await;
                    Ok::<_, Failure>(())
                });
                step.await?;
            }
            drop(wait);
            json!(heard)
        }
        _ => Value::Null,
    })
}

/// Simulates the work of a step, during which other events may happen.
#[expect(clippy::disallowed_methods, reason = "it is the simulated time that passes")]
pub async fn takes(span: Duration) {
    tokio::time::sleep(span).await;
}

async fn step(ctx: &Ctx, ledger: &Ledger, id: &str, place: usize, fails: u32, undo: Undo) -> Result<Value, Failure> {
    let name = format!("step-{place}");
    let step = ctx
        .step_with(&name, |info| {
            let (ledger, name) = (ledger, &name);
            async move {
                ledger.begin(id, name);
                takes(Duration::from_millis(place as u64 * 70)).await;
                match info.attempt() <= fails {
                    true => Err(retryable("not yet")),
                    false => Ok(json!(place)),
                }
            }
        })
        .retry(Retry::times(4).first(Duration::from_millis(200)));
    if undo == Undo::Not {
        return step.await;
    }
    let (ledger, run, step_name) = (ledger.clone(), id.to_owned(), name.clone());
    step.compensate(move |_: Option<Value>| {
        let attempt = ledger.undo(&run, &step_name);
        undo.run(attempt)
    })
    .await
}

async fn late(ctx: &Ctx, ledger: &Ledger, id: &str, place: usize, millis: u64) -> Result<Value, Failure> {
    let name = format!("late-{place}");
    let step = ctx.step_with(&name, |info| {
        let name = &name;
        async move {
            ledger.begin(id, name);
            let longer = if info.attempt() == 1 { 3 } else { 0 };
            takes(Duration::from_millis(millis / 2 * longer)).await;
            Ok::<_, Failure>(json!(info.attempt()))
        }
    });
    let retry = Retry::times(4).first(Duration::from_millis(100));
    step.timeout(Duration::from_millis(millis.max(20))).retry(retry).await
}
