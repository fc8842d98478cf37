//! Every store and every layer passes the suite, and agrees with the memory store on random operations.

use std::sync::Arc;
use std::time::Duration;

use wigwag_store::conformance::{self, Quirks};
use wigwag_store::{
    Batch, Clear, Embedded, Faults, Faulty, Memory, Meter, Prefix, Proven, Retry, RetrySettings, Store,
};

async fn check(store: impl Store) {
    conformance::check(Arc::new(store), Quirks::default()).await;
}

fn patient() -> RetrySettings {
    RetrySettings::new(200, Duration::from_micros(50))
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_promises() {
    check(Memory::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_as_a_bucket_keeps_the_promises() {
    check(Memory::bucket()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_keeps_the_promises() {
    let folder = tempfile::tempdir().unwrap();
    check(Embedded::open(folder.path()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_layer_alone_keeps_the_promises() {
    check(Meter::new(Memory::new())).await;
    check(Prefix::new(Memory::new(), "some/corner").unwrap()).await;
    check(Retry::new(Memory::new(), patient())).await;
    check(Proven::new(Memory::bucket())).await;
    check(Faulty::new(Memory::new(), Faults::default(), 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_together_keep_the_promises_over_an_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    check(Proven::new(Retry::new(Meter::new(Prefix::new(store, "corner").unwrap()), patient()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_keeps_the_promises_over_a_faulty_bucket() {
    let faults = Faults {
        refused: 0.2,
        answer_lost: 0.1,
        request_lost: 0.1,
        late: 0.0,
        slow: 0.05,
        slow_for: Duration::from_micros(300),
        ..Faults::default()
    };
    for seed in 0..10 {
        let faulty = Faulty::new(Memory::bucket(), faults, seed);
        conformance::check(
            Arc::new(Retry::new(faulty, patient())),
            Quirks { loses_requests: true, ..Quirks::default() },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_keep_their_promise_when_requests_arrive_late() {
    let faults = Faults { late: 0.3, answer_lost: 0.2, slow_for: Duration::from_micros(200), ..Faults::default() };
    for seed in 0..20 {
        let store: Arc<dyn Store> = Arc::new(Retry::new(Faulty::new(Memory::bucket(), faults, seed), patient()));
        for name in ["one_of_64_racing_creators_wins", "a_create_is_refused_where_the_key_exists_and_changes_nothing"] {
            let case = conformance::CASES.iter().find(|case| case.name == name).unwrap();
            conformance::check_one(Arc::clone(&store), *case, Quirks::default()).await;
        }
    }
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_not_in_its_own_way() {
    let faults = Faults { answer_lost: 0.5, ..Faults::default() };
    let store = Retry::new(Faulty::new(Memory::new(), faults, 7), patient());
    let mut known = std::collections::BTreeSet::new();
    for number in 0..100 {
        let (brought, entry) = (format!("in/{number:03}"), format!("log/{number}"));
        let clear = Clear { prefix: "in/".into(), after: String::new(), known: known.clone() };
        let batch = Batch::new().put(&brought, "x").create(entry, number.to_string()).only_if_clear(clear);
        store.write(batch).await.unwrap();
        known.insert(brought);
    }
    assert_eq!(store.list("in/", "", 1_000).await.unwrap().entries.len(), 100);
}
