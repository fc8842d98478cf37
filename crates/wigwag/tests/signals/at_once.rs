//! Inline delivery: the commit that stores a signal also lets the run consume it, if the signal is the
//! next in order.

use serde_json::{Value, json};
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Client, Ctx, Failure, Graph, Receipt, RunHandle, SignalState, Status, StepCtx};
use wigwag_store::Store as _;
use wigwag_store::{Memory, Meter};

use super::world::{Gate, Hold, Kind, World, count, result, within};
use std::sync::Arc;

async fn two_numbers(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let first: u32 = ctx.wait("number").await?;
    Ok(json!([first, ctx.wait::<u32>("number").await?]))
}

/// Returns a waiting run, a gate that holds the commit of a signal to it, and a client without a worker.
async fn held() -> (World, RunHandle, Arc<Gate>, Client) {
    let world = World::start(Kind::Atomic, |engine| engine.function("f", 1, two_numbers)).await;
    let run = world.begin("f", "r").await;
    let gate = world.hold(Hold::BeforeWrite, "workflow/r/log/");
    let stranger = world.stranger().await;
    (world, run, gate, stranger)
}

/// Sends a signal, and runs another future when the signal's commit is about to land.
async fn while_it_is_brought<T>(
    gate: &Gate,
    signal: impl Future<Output = wigwag::Result<Receipt>>,
    meanwhile: impl Future<Output = T>,
) -> Receipt {
    let meanwhile = async {
        gate.reached().await;
        meanwhile.await;
        gate.open();
    };
    within(async { tokio::join!(signal, meanwhile) }).await.0.unwrap()
}

#[tokio::test]
async fn one_commit_stores_a_signal_consumes_it_and_ends_the_run() {
    let (clock, meter) = (ManualClock::default(), Meter::new(Memory::new()));
    let graph = Graph::<Value>::new("g").signal("number");
    let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("number").await };
    let kit = Kit::on(Arc::new(meter.clone()), clock, |engine| engine.function("f", 1, code).workflow(graph)).await;
    let kit = kit.unwrap();
    for (of, input) in [("f", json!(null)), ("g", json!({}))] {
        let run = kit.client().start(of, &input).await.unwrap();
        within(kit.settle()).await.unwrap();
        let before = meter.usage();
        let receipt = run.signal("number", &7).await.unwrap();
        let used = meter.usage().since(&before);
        assert_eq!(receipt.state, SignalState::Waiting);
        assert_eq!(run.status().await.unwrap(), Status::Completed, "{of} had ended when its sender got the response");
        // The signal, the entry, the snapshot, and the key in the index of ended runs.
        assert_eq!((used.puts, used.lists), (4, 0), "{of}: {used:?}");
    }
    kit.crash(|engine| engine).await.unwrap();
}

#[tokio::test]
async fn code_that_changes_data_is_called_after_the_claim_is_durable() {
    let (clock, memory) = (ManualClock::default(), Memory::new());
    let claimed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let graph = {
        let (memory, claimed) = (memory.clone(), Arc::clone(&claimed));
        Graph::<Value>::new("g").signal("number").on_receive(move |_: &mut Value, _: u32| {
            let entries = futures_util::FutureExt::now_or_never(memory.list("workflow/r/log/", "", 100));
            claimed.lock().unwrap().push(entries.unwrap().unwrap().entries.len());
            Ok::<_, Failure>(())
        })
    };
    let kit = Kit::on(Arc::new(memory), clock, |engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("g", &json!({})).id("r").await.unwrap();
    within(kit.settle()).await.unwrap();
    run.signal("number", &7).await.unwrap();
    within(kit.settle()).await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
    assert_eq!(*claimed.lock().unwrap(), [2], "the entry that claims the run is there, and it is called once");
    kit.crash(|engine| engine).await.unwrap();
}

#[tokio::test]
async fn a_signal_that_was_acknowledged_first_is_consumed_first() {
    let (world, run, gate, stranger) = held().await;
    let other = stranger.signal("r", "number", &2);
    while_it_is_brought(&gate, run.signal("number", &1).into_future(), other.into_future()).await;
    world.settle().await;
    assert_eq!(result(&run).await, json!([2, 1]));
    assert_eq!(count(&run, "signal.received").await, 2);
    world.end().await;
}

#[tokio::test]
async fn an_earlier_control_request_takes_effect_before_the_signal() {
    let (world, run, gate, stranger) = held().await;
    let asked = stranger.run("r").unwrap();
    while_it_is_brought(&gate, run.signal("number", &1).into_future(), asked.pause().into_future()).await;
    world.settle().await;
    assert_eq!(run.status().await.unwrap(), Status::Paused);
    assert_eq!(count(&run, "signal.received").await, 0, "a run that is paused takes nothing");
    run.resume().await.unwrap();
    run.signal("number", &2).await.unwrap();
    world.settle().await;
    assert_eq!(result(&run).await, json!([1, 2]), "and the signal sent in between was kept");
    world.end().await;
}

#[tokio::test]
async fn a_signal_whose_key_came_in_before_is_the_same_signal() {
    let (world, run, gate, stranger) = held().await;
    let first = stranger.signal("r", "number", &1).key("once");
    let receipt = while_it_is_brought(&gate, run.signal("number", &1).key("once").into_future(), first.into_future());
    assert!(receipt.await.repeated);
    world.settle().await;
    assert_eq!(count(&run, "signal.received").await, 1);
    // Its inbox contains only the signal consumed now: the idempotency key alone prevents inline delivery.
    assert!(run.signal("number", &1).key("once").await.unwrap().repeated, "and once more");
    run.signal("number", &2).key("another").await.unwrap();
    world.settle().await;
    assert_eq!(result(&run).await, json!([1, 2]));
    world.end().await;
}

#[tokio::test]
async fn a_run_that_another_worker_continues_gets_the_signal_in_the_normal_way() {
    let (world, run, gate, stranger) = held().await;
    let other = async {
        let clock = world.kit().clock().clone();
        let store = Arc::new(world.store.clone());
        let other = Kit::on(store, clock, |engine| engine.function("f", 1, two_numbers)).await.unwrap();
        other.client().signal("r", "number", &5).await.unwrap();
    };
    while_it_is_brought(&gate, run.signal("number", &6).into_future(), other).await;
    world.settle().await;
    assert_eq!(result(&run).await, json!([5, 6]));
    drop(stranger);
    world.end().await;
}

#[tokio::test]
async fn a_sender_that_goes_away_does_not_take_the_turn_with_it() {
    let (world, run, gate, _stranger) = held().await;
    let sending = tokio::spawn(run.signal("number", &1).into_future());
    gate.reached().await;
    sending.abort();
    gate.open();
    world.settle().await;
    assert_eq!(count(&run, "signal.received").await, 1);
    run.signal("number", &2).await.unwrap();
    assert_eq!(result(&run).await, json!([1, 2]));
    world.end().await;
}

#[tokio::test]
async fn signals_in_latest_mode_are_delivered_inline_repeatedly() {
    let meter = Meter::new(Memory::new());
    let code = |ctx: Ctx, (): ()| async move {
        let mut got = Vec::new();
        while got.len() < 3 {
            got.push(ctx.wait::<u32>("price").latest().await?);
        }
        Ok::<_, Failure>(got)
    };
    let kit = Kit::on(Arc::new(meter.clone()), ManualClock::default(), |engine| engine.function("f", 1, code)).await;
    let kit = kit.unwrap();
    let run = kit.client().start("f", &()).id("r").await.unwrap();
    for number in 0..3 {
        within(kit.settle()).await.unwrap();
        run.signal("price", &number).await.unwrap();
        let suffixes = meter.list("workflow/r/log/", "", 100).await.unwrap().entries.len();
        assert_eq!(suffixes, 2 + number as usize, "one entry each, durable when the sender gets the response");
    }
    assert_eq!(run.result::<Vec<u32>>().await.unwrap(), [0, 1, 2]);
    kit.crash(|engine| engine).await.unwrap();
}

#[tokio::test]
async fn a_task_that_follows_from_a_signal_is_not_there_before_the_signal_is() {
    let code = |ctx: Ctx, (): ()| async move {
        let number: u32 = ctx.wait("number").await?;
        let id = ctx.submit("quick", &number).await?;
        ctx.wait_for_tasks(vec![id], None).await?;
        Ok::<_, Failure>(number)
    };
    let task = |_: StepCtx<u32>| async { Ok::<_, Failure>(()) };
    let world = World::start(Kind::Atomic, |engine| engine.function("f", 1, code).task("quick", task)).await;
    let (run, stranger) = (world.begin("f", "r").await, world.stranger().await);
    let gate = world.hold(Hold::BeforeWrite, "workflow/r/log/");
    let other = async {
        assert!(world.keys("task/").await.is_empty(), "the task follows from an undurable signal");
        stranger.signal("r", "number", &2).await.unwrap();
    };
    while_it_is_brought(&gate, run.signal("number", &1).into_future(), other).await;
    world.run_until_idle().await;
    assert_eq!(result(&run).await, json!(2), "the other came first, and the task is that of the other");
    world.end().await;
}

#[tokio::test]
async fn a_run_that_ended_and_was_removed_is_not_written_to() {
    let (world, run, gate, stranger) = held().await;
    let removed = async {
        for number in [5, 6] {
            let clock = world.kit().clock().clone();
            let other = Kit::on(Arc::new(world.store.clone()), clock, |engine| engine.function("f", 1, two_numbers));
            let other = other.await.unwrap();
            other.client().signal("r", "number", &number).await.unwrap();
            within(other.settle()).await.unwrap();
        }
        assert_eq!(run.status().await.unwrap(), Status::Completed);
        // As after a later retention pass: the entries between the first and the last are gone; the last is the fence.
        world.move_clock(std::time::Duration::from_secs(120));
        let log = world.keys("workflow/r/log/").await;
        let (last, middle) = log[1..].split_last().unwrap();
        for key in middle {
            world.store.write(wigwag_store::Batch::new().delete(key)).await.unwrap();
        }
        assert!(last > &middle[0]);
    };
    let signal = run.signal("number", &1).into_future();
    let meanwhile = async {
        gate.reached().await;
        removed.await;
        gate.open();
    };
    let (sent, ()) = within(async { tokio::join!(signal, meanwhile) }).await;
    assert!(sent.is_err(), "{sent:?}");
    let log = world.keys("workflow/r/log/").await;
    assert_eq!(log.len(), 2, "nothing was added to the remaining log: {log:?}");
    drop(stranger);
}
