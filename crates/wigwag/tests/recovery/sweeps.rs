//! Indexes that contradict the runs.

use std::time::Duration;

use wigwag::{Ctx, Failure, Filter, Status};
use wigwag_store::{Batch, Store as _};

use super::seat::{World, settle};

async fn wait(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.wait::<()>("go").await
}

#[tokio::test]
async fn a_run_that_no_index_names_is_found_by_a_sweep() {
    let world = World::new().await;
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    // Two other runs: a finished run, and a run with more objects than a page of a listing.
    let done = world.client.start("f", &()).id("a").await.unwrap();
    let long = world.client.start("f", &()).id("b").await.unwrap();
    let run = world.client.start("f", &()).id("c").await.unwrap();
    settle(&kit).await;
    for number in 0..1_100 {
        long.signal("other", &number).await.unwrap();
    }
    done.signal("go", &()).await.unwrap();
    settle(&kit).await;
    kit.clock().advance(Duration::from_secs(7_200));
    for prefix in ["due/", "live/", "waiting/"] {
        let all = world.keys(prefix).await.into_iter();
        world.delete(all.filter(|key| key.contains("~c~") || key.contains("/c"))).await;
    }
    let swept = world.client.sweep(false).await.unwrap();
    assert_eq!((swept.lost_live, swept.lost_runs, swept.lost_waits), (1, 1, 1), "{swept:?}");
    settle(&kit).await;
    assert_eq!(world.client.sweep(true).await.unwrap().repaired(), 0);
    run.signal("go", &()).await.unwrap();
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}

#[tokio::test]
async fn a_run_that_is_missing_from_the_index_of_unfinished_ones_is_put_back() {
    let world = World::new().await;
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    kit.clock().advance(Duration::from_secs(7_200));
    world.delete(["live/f/r".to_owned()]).await;
    assert_eq!(world.client.sweep(false).await.unwrap().lost_live, 1);
    assert_eq!(world.keys("live/").await, ["live/f/r"]);
}

#[tokio::test]
async fn a_wake_up_that_the_sweeper_put_is_followed_by_another() {
    let world = World::new().await;
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    kit.clock().advance(Duration::from_secs(7_200));
    world.delete(world.keys("due/").await).await;
    assert_eq!(world.client.sweep(false).await.unwrap().lost_runs, 1);
    settle(&kit).await;
    assert_eq!(world.keys("due/").await.len(), 1, "the run has nothing to do, and is still checked one day");
    assert_eq!(world.client.sweep(false).await.unwrap().repaired(), 0);
}

/// Two callers start the same id with different types: the loser has added its key to the index.
#[tokio::test]
async fn a_run_is_listed_once_and_the_key_of_another_type_goes() {
    let world = World::new().await;
    let kit = world.worker(|engine| engine.function("f", 1, wait)).await;
    world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    world.memory.write(Batch::new().put("live/other/r", "{}")).await.unwrap();
    assert_eq!(world.client.list(&Filter::default()).await.unwrap().runs.len(), 1);
    kit.clock().advance(Duration::from_secs(7_200));
    assert_eq!(world.client.sweep(false).await.unwrap().stale_live, 1);
    assert_eq!(world.keys("live/").await, ["live/f/r"]);
}
