//! Code that continues outside of the engine: a plain thread stands in for the event loop of another language.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc as words;
use wigwag::testing::Kit;
use wigwag::{
    Ctx, Engine, Failure, Graph, Payload, Retry, Status, StepCtx, StepInfo, TaskOptions, permanent, retryable,
};

/// A request of the thread.
enum Word {
    Step(u32, &'static str),
    Wait(u32, &'static str),
    Drop(u32),
    /// The thread is idle after this number of replies. An older number comes from a race, and is ignored.
    Quiet(u32),
    Return(Value),
}

/// The thread's end of the bridge.
struct Thread {
    says: words::Sender<Word>,
    hears: mpsc::Receiver<(u32, Value)>,
    heard: std::cell::Cell<u32>,
}

impl Thread {
    fn say(&self, word: Word) {
        let _ = self.says.blocking_send(word);
    }

    /// Returns the next reply, or `None` when the run has ended.
    fn hear(&self) -> Option<(u32, Value)> {
        self.say(Word::Quiet(self.heard.get()));
        self.heard.set(self.heard.get() + 1);
        self.hears.recv().ok()
    }
}

type Asked = BoxFuture<'static, (u32, Option<Result<Value, Failure>>)>;

/// The engine's end of the bridge: its future owns the steps, and holds the guard while the thread has work.
async fn bridge(ctx: Ctx, code: fn(&Thread) -> Option<()>) -> Result<Value, Failure> {
    let (says, mut said) = words::channel(64);
    let (tells, hears) = mpsc::channel();
    let (mut busy, mut told) = (Some(ctx.elsewhere()), 0);
    std::thread::spawn(move || code(&Thread { says, hears, heard: std::cell::Cell::new(0) }));
    let mut points: FuturesUnordered<Asked> = FuturesUnordered::new();
    let mut aborts: HashMap<u32, AbortHandle> = HashMap::new();
    loop {
        tokio::select! {
            biased;
            word = said.recv() => match word {
                Some(word @ (Word::Step(number, _) | Word::Wait(number, _))) => {
                    let asked: BoxFuture<'static, Result<Value, Failure>> = match word {
                        Word::Step(_, name) => {
                            let step = ctx.step(name, || async { Ok::<_, Failure>(json!(1)) });
                            async move { step.await }.boxed()
                        }
                        Word::Wait(_, name) => ctx.wait::<Value>(name).into_future(),
                        _ => unreachable!("it is one of the two"),
                    };
                    let (abort, registration) = AbortHandle::new_pair();
                    aborts.insert(number, abort);
                    let asked = Abortable::new(asked, registration);
                    points.push(async move { (number, asked.await.ok()) }.boxed());
                }
                Some(Word::Drop(number)) => aborts[&number].abort(),
                Some(Word::Quiet(heard)) if heard == told => busy = None,
                Some(Word::Quiet(_)) => {}
                Some(Word::Return(value)) => return Ok(value),
                None => std::future::pending().await,
            },
            Some((number, outcome)) = points.next(), if !points.is_empty() => {
                let Some(outcome) = outcome else { continue };
                let guard = busy.take().unwrap_or_else(|| ctx.elsewhere());
                busy = Some(guard);
                told += 1;
                let _ = tells.send((number, outcome?));
            }
        }
    }
}

/// Consumes the first of two signals, slowly drops the wait for the other, and then consumes that one too.
fn race(thread: &Thread) -> Option<()> {
    thread.say(Word::Wait(0, "left"));
    thread.say(Word::Wait(1, "right"));
    let (won, first) = thread.hear()?;
    // An event loop runs a few iterations before it cancels the loser.
    for _ in 0..20 {
        std::thread::yield_now();
    }
    thread.say(Word::Drop(1 - won));
    thread.say(Word::Wait(2, if won == 0 { "right" } else { "left" }));
    let (_, second) = thread.hear()?;
    thread.say(Word::Return(json!([first, second])));
    Some(())
}

fn three_steps(thread: &Thread) -> Option<()> {
    for (number, name) in [(0, "one"), (1, "two"), (2, "three")] {
        thread.say(Word::Step(number, name));
        thread.hear()?;
    }
    thread.say(Word::Return(json!("done")));
    Some(())
}

fn handler(code: fn(&Thread) -> Option<()>) -> Arc<dyn wigwag::dynamic::FunctionHandler> {
    Arc::new(move |ctx: Ctx, _: Payload| bridge(ctx, code).map(|value| Ok(Payload::of(&value?)?)).boxed())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_waits_that_race_on_another_thread_take_one_signal_each() {
    let engine = Engine::open("memory:").unwrap().function_dyn("race", 1, handler(race)).start().await.unwrap();
    let client = engine.client();
    let races = (0..200).map(|number| {
        let client = client.clone();
        async move {
            let run = client.start("race", &()).id(format!("race-{number}")).await.unwrap();
            let (left, right) = (run.signal("left", &"l"), run.signal("right", &"r"));
            let (left, right) = futures_util::future::join(left.into_future(), right.into_future()).await;
            left.and(right).unwrap();
            let ended = run.wait_for(Duration::from_secs(60)).await;
            let mut both: Vec<String> = run.result().await.unwrap_or_else(|error| panic!("{error}, {ended:?}"));
            both.sort_unstable();
            assert_eq!(both, ["l", "r"]);
        }
    });
    futures_util::stream::iter(races).buffer_unordered(16).collect::<()>().await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_thread_asks_for_next_shares_the_entry_of_what_it_was_told() {
    let entries = |function: fn(&Thread) -> Option<()>| async move {
        let engine = Engine::open("memory:").unwrap().function_dyn("f", 1, handler(function)).start().await.unwrap();
        let mut counts = Vec::new();
        for number in 0..5 {
            let run = engine.client().start("f", &()).id(format!("f-{number}")).await.unwrap();
            run.result::<String>().await.unwrap();
            counts.push(run.history(1, 100).await.unwrap().len());
        }
        engine.stop().await;
        counts
    };
    let counts = entries(three_steps).await;
    // On a busy machine the thread may respond after the engine's wait, but not every time.
    assert_eq!(counts.iter().min(), Some(&4), "{counts:?}");
}

#[tokio::test]
async fn conditions_and_receivers_may_be_answered_by_another_thread() {
    fn elsewhere<T: Send + 'static>(
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        let (done, answered) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || done.send(answer()));
        async move { answered.await.map_err(permanent) }.boxed()
    }
    async fn last(ctx: StepCtx<Value>) -> Result<Value, Failure> {
        ctx.data()
    }
    let graph = Graph::<Value>::new("order")
        .step("passed-over", |_: StepCtx<Value>| async { Ok::<_, Failure>(1) })
        .when_dyn(|data| elsewhere(move || data.value()["vip"] == true))
        .signal("approval")
        .on_receive_dyn(|data, signal| {
            elsewhere(move || {
                let mut data = data.value().as_object().cloned()?;
                data.insert("by".into(), signal.value());
                Some(data)
            })
        })
        .signal("never")
        .after("approval")
        .timeout(Duration::from_secs(60))
        .on_timeout_dyn(|data| {
            elsewhere(move || {
                let mut data = data.value().as_object().cloned()?;
                data.insert("late".into(), true.into());
                Some(data)
            })
        })
        .step("last", last)
        .after("never");
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("order", &json!({ "vip": false })).await.unwrap();
    kit.settle().await.unwrap();
    run.signal("approval", &"ada").await.unwrap();
    kit.run_until_idle().await.unwrap();
    let view = run.get().await.unwrap();
    assert_eq!(view.status(), Status::Completed, "{:?}", view.run().error);
    assert_eq!(view.run().data, *json!({ "vip": false, "by": "ada", "late": true }).as_object().unwrap());
    assert!(view.steps().values().any(|point| point.result.is_none()), "a step was skipped");
}

#[tokio::test]
async fn a_step_that_continues_elsewhere_submits_below_itself_and_by_key() {
    async fn twice(ctx: Ctx, (): ()) -> Result<Vec<u64>, Failure> {
        let ids = ctx
            .step_with("submit", |info: StepInfo| async move {
                // A spawned Tokio task has no link to the step, like a separate thread.
                let submitted = tokio::spawn(async move {
                    let mut keyed = TaskOptions::default();
                    keyed.key = Some("of-a-key".into());
                    let first = info.submit_with("double", &1, TaskOptions::default()).await?;
                    let second = info.submit_with("double", &2, TaskOptions::default()).await?;
                    let third = info.submit_with("double", &3, keyed.clone()).await?;
                    assert_eq!(third, info.submit_with("double", &3, keyed).await?);
                    match info.attempt() {
                        1 => Err(retryable("once more")),
                        _ => Ok(vec![first, second, third]),
                    }
                });
                submitted.await.map_err(permanent)?
            })
            .await?;
        ctx.wait_for_tasks(ids, None).await?.results()
    }
    async fn double(ctx: StepCtx<u64>) -> Result<u64, Failure> {
        Ok(ctx.input()? * 2)
    }
    let kit = Kit::start(|engine| engine.function("twice", 1, twice).task("double", double)).await.unwrap();
    let run = kit.client().start("twice", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<Vec<u64>>().await.unwrap(), [2, 4, 6]);
    let mut tasks = wigwag::Filter::default();
    (tasks.tasks, tasks.limit) = (true, 10);
    assert_eq!(kit.client().list(&tasks).await.unwrap().runs.len(), 3);
}

#[tokio::test]
async fn a_failure_says_when_the_next_attempt_begins() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    async fn busy(ctx: Ctx, (): ()) -> Result<bool, Failure> {
        assert!(!ctx.is_replaying() || CALLS.load(Ordering::SeqCst) > 0, "the first time nothing is recorded");
        ctx.step("ask", || async {
            match CALLS.fetch_add(1, Ordering::SeqCst) {
                0 => Err(retryable("429").retry_after(Duration::from_secs(3_600))),
                _ => Ok(()),
            }
        })
        .retry(Retry::times(1).first(Duration::from_secs(1)).jitter(0.0))
        .await?;
        Ok(true)
    }
    let kit = Kit::start(|engine| engine.function("busy", 1, busy)).await.unwrap();
    let run = kit.client().start("busy", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert!(run.result::<bool>().await.unwrap());
    let elapsed = kit.elapsed();
    assert!(elapsed >= Duration::from_secs(3_600) && elapsed < Duration::from_secs(3_700), "{elapsed:?}");
}
