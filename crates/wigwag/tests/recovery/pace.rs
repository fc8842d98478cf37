//! The rate of store requests, and the number of concurrent requests.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Notify;
use wigwag::{Ctx, Failure, Status};
use wigwag_core::{Key, Time};
use wigwag_store::{Batch, Store as _};

use super::seat::{Seat, World, settle};

/// Sequential puts would take longer than the lease on a slow link.
#[tokio::test]
async fn large_results_of_one_entry_are_put_at_the_same_time_on_a_bucket() {
    let code = |ctx: Ctx, (): ()| async move {
        let steps = (0..100).map(|number| {
            let step = ctx.step(&format!("s{number}"), || async { Ok::<_, Failure>("x".repeat(20_000)) });
            step.into_future()
        });
        try_join_all(steps).await.map(drop)
    };
    let world = World::bucket().await;
    let seat = Arc::new(Seat::new(&world.memory));
    let kit = world.worker_on(Arc::clone(&seat) as _, |engine| engine.function("f", 1, code)).await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    kit.clock().advance(Duration::from_secs(3));
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Completed);
    let most = seat.most_writing.load(Ordering::SeqCst);
    assert!(most >= 32, "100 large results, at most {most} puts at the same time");
}

#[tokio::test]
async fn a_page_of_wake_ups_in_the_hands_of_one_turn_is_not_listed_without_a_pause() {
    let (begun, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (Arc::clone(&begun), Arc::clone(&done));
    let code = move |ctx: Ctx, (): ()| {
        let (begins, ends) = (Arc::clone(&begins), Arc::clone(&ends));
        async move {
            let work = move || {
                let (begins, ends) = (Arc::clone(&begins), Arc::clone(&ends));
                async move {
                    begins.notify_one();
                    ends.notified().await;
                    Ok::<_, Failure>(())
                }
            };
            ctx.step("slow", work).await
        }
    };
    let world = World::new().await;
    let seat = Arc::new(Seat::new(&world.memory));
    let kit = world.worker_on(Arc::clone(&seat) as _, |engine| engine.function("f", 1, code)).await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    begun.notified().await;
    // More than a page of them, all due.
    let listed = world.keys("due/").await.into_iter().find(|key| key.contains("~r~")).unwrap();
    let body = world.memory.get(&listed).await.unwrap().unwrap().body;
    let Ok(Key::Due(mut hint)) = listed.parse::<Key>() else { panic!("{listed}") };
    hint.due = Time::from_micros(1_767_225_600_000_000);
    let mut batch = Batch::new();
    for number in 0..1_500 {
        hint.nonce = format!("test.{number}");
        batch = batch.put(Key::Due(hint.clone()).to_string(), body.clone());
    }
    seat.hangs.store(true, Ordering::SeqCst);
    world.memory.write(batch).await.unwrap();
    let before = seat.due_lists.load(Ordering::SeqCst);
    for _ in 0..20_000 {
        tokio::task::yield_now().await;
    }
    let lists = seat.due_lists.load(Ordering::SeqCst) - before;
    assert!(lists < 100, "{lists} listings at one moment");
    seat.hangs.store(false, Ordering::SeqCst);
    done.notify_one();
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}
