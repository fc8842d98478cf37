//! Control objects: none is lost, none is left behind.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use wigwag::{Ctx, Engine, Failure, Status};
use wigwag_core::{Control, Key, Order, RunRef, Time};
use wigwag_store::{Batch, Store as _};

use super::seat::{Fault, Seat, World, settle};

async fn wait(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.wait::<()>("never").await
}

#[tokio::test]
async fn control_objects_go_with_the_last_entry_of_a_run() {
    let world = World::new().await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    run.cancel().await.unwrap();
    let seat = Seat::with(&world.memory, "\"run.cancelled\"", Fault::DiesAfter);
    world.doomed(&seat, |engine| engine.function("f", 1, wait)).await;
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Cancelled);
    assert_eq!(world.keys("workflow/r/signals/").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_control_object_with_a_lost_response_takes_effect_at_once() {
    let world = World::new().await;
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    let seat = Seat::with(&world.memory, "\"order\":\"cancel\"", Fault::AnswerLost);
    let client = Engine::builder(seat).clock(Arc::new(world.clock.clone())).client().await.unwrap();
    client.run("r").unwrap().cancel().into_future().await.unwrap_err();
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Cancelled);
}

/// Puts a control object without a wake-up.
pub(crate) async fn put_control(world: &World, run: &str, number: u64, order: Order) -> String {
    let created_at = Time::from_micros(1_767_225_600_000_000 + number);
    let control = Control { id: format!("{number}"), created_at, by: None, order };
    let run = RunRef::workflow(run.parse().unwrap());
    let key = Key::Control { run, suffix: format!("{created_at}_{number:05}") }.to_string();
    world.memory.write(Batch::new().put(&key, control.to_json())).await.unwrap();
    key
}

/// The inboxes are listed again for the wait that the function opens: the control object, which the claim folds, is found
/// a second time before the claim is durable.
#[tokio::test]
async fn a_control_object_stays_until_the_entry_that_records_it_is_durable() {
    for world in [World::new().await, World::bucket().await] {
        world.client.start("f", &()).id("r").await.unwrap();
        let key = put_control(&world, "r", 1, Order::Resume).await;
        let seat = Seat::with(&world.memory, "\"run.resumed\"", Fault::DiesBefore);
        world.doomed(&seat, |engine| engine.function("f", 1, wait)).await;
        assert_eq!(world.keys("workflow/r/signals/").await, [key]);
        let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
        settle(&kit).await;
        assert!(world.log("r").await.contains("\"run.resumed\""), "{}", world.log("r").await);
        assert_eq!(world.keys("workflow/r/signals/").await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_control_request_beside_a_restart_has_an_event() {
    let world = World::new().await;
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    run.cancel().await.unwrap();
    settle(&kit).await;
    let seq = run.get().await.unwrap().run().seq;
    drop(kit);
    world.clock.advance(Duration::from_secs(120));
    put_control(&world, "r", 1, Order::Pause { reason: Some("beside".into()) }).await;
    put_control(&world, "r", 2, Order::Restart { from: None, expected_seq: seq }).await;
    put_control(&world, "r", 3, Order::Restart { from: None, expected_seq: seq }).await;
    // This request also writes a wake-up.
    run.restart().await.unwrap();
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    settle(&kit).await;
    let log = world.log("r").await;
    assert_eq!(log.matches("\"run.restarted\"").count(), 3, "{log}");
    assert!(log.contains("\"run.paused\"") && log.contains("\"beside\""), "{log}");
}
