//! Results of client calls survive serialization: clients of an API use the same types.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wigwag::{
    Ctx, Engine, Failure, Fate, Filter, PruneOptions, Pruned, Receipt, SignalViews, Summary, Swept, WaitingRuns,
};
use wigwag_store::Memory;

/// Checks that a value is unchanged after it was written as JSON and read back.
#[track_caller]
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(what: &T) {
    let text = serde_json::to_string(what).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), what, "{text}");
}

async fn order(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    ctx.wait::<Value>("approval").schema(json!({"type": "object"})).await?;
    ctx.wait::<Value>("payment").latest().await
}

#[tokio::test]
async fn answers_of_a_client_survive_serialization() {
    let store = std::sync::Arc::new(Memory::new());
    let engine = Engine::builder(store).function("order", 1, order).start().await.unwrap();
    let client = engine.client();
    let run = client.start("order", &()).id("o").await.unwrap();
    client.start("nobody", &()).id("p").await.unwrap();
    while run.waiting().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let number = wigwag::Payload::parse("12345678901234567890123").unwrap();
    let receipt: Receipt = run.signal("other", &number).key("k").by("ada").await.unwrap();
    comes_back(&receipt);
    let waiting: WaitingRuns = client.waiting_runs(10, None).await.unwrap();
    assert_eq!(waiting.runs.len(), 1);
    comes_back(&waiting);
    let taken =
        run.signal("approval", &json!({"by": "ada"})).and_wait(std::time::Duration::from_secs(30)).await.unwrap();
    comes_back(&taken.receipt);
    comes_back(&taken.next);
    let signals: SignalViews = run.signals_page(None, 10, None).await.unwrap();
    assert!(signals.signals.iter().any(|signal| matches!(signal.fate, Fate::Consumed { .. })));
    assert!(
        signals.signals.iter().any(|signal| signal.payload.text() == "12345678901234567890123"),
        "numbers are kept"
    );
    comes_back(&signals);
    let runs: Vec<Summary> = client.list(&Filter::default()).await.unwrap().runs;
    assert_eq!(runs.len(), 2);
    comes_back(&runs);
    let swept: Swept = client.sweep(true).await.unwrap();
    comes_back(&swept);
    let pruned: Pruned = client.prune(&PruneOptions::older_than(std::time::Duration::ZERO)).await.unwrap();
    comes_back(&pruned);
    engine.stop().await;
}

#[test]
fn every_signal_outcome_survives_serialization() {
    let consumed = Fate::Consumed { point: "a/b".parse().unwrap(), at: wigwag::Time::from_micros(7) };
    let plain = [Fate::Unconsumed, Fate::Superseded, Fate::Void, Fate::NeverConsumed, Fate::Unacknowledged];
    for fate in plain.iter().chain([&consumed]) {
        comes_back(fate);
    }
}
