//! Each program says exactly what is expected of it; and the onboarding takes two weeks where nobody shortens them.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use wigwag::testing::Kit;
use wigwag::{permanent, retryable};
use wigwag_examples::World;
use wigwag_examples::onboarding::{Customer, DAY, NAME, onboard};

fn says(program: &str, name: &str, store: Option<&Path>) {
    let ran = Command::new(program).args(store).output().unwrap();
    let (said, complained) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success() && complained.is_empty(), "{name}: {complained}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected").join(format!("{name}.txt"));
    assert_eq!(said, std::fs::read_to_string(path).unwrap(), "{name} says something else");
}

#[test]
fn order_fulfilment_says_what_is_expected_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    for store in [None, Some(folder.path()), Some(folder.path())] {
        says(env!("CARGO_BIN_EXE_order_fulfilment"), "order_fulfilment", store);
    }
}

#[test]
fn onboarding_says_what_is_expected_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    for store in [None, Some(folder.path()), Some(folder.path())] {
        says(env!("CARGO_BIN_EXE_onboarding"), "onboarding", store);
    }
}

#[test]
fn fan_out_says_what_is_expected_of_ten_thousand() {
    says(env!("CARGO_BIN_EXE_fan_out"), "fan_out", None);
}

async fn kit() -> Kit {
    Kit::start(|engine| engine.function(NAME, 1, |ctx, customer| onboard(World::default(), ctx, customer)))
        .await
        .unwrap()
}

#[tokio::test]
async fn onboarding_takes_two_weeks_by_the_clock_and_no_time_at_all() {
    let kit = kit().await;
    kit.fail("tips", [retryable("the mail server is down")]);
    let run = kit.client().start(NAME, &Customer::new("Ada", DAY)).await.unwrap();
    kit.advance(DAY / 8).await.unwrap();
    assert_eq!(run.steps().await.unwrap().len(), 2, "the welcome, and the sleep after it");
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<Vec<String>>().await.unwrap().len(), 4);
    let span = DAY * 13 + DAY / 4;
    assert!(kit.elapsed() >= span && kit.elapsed() < span + Duration::from_secs(60), "{:?}", kit.elapsed());
}

#[tokio::test]
async fn onboarding_that_fails_takes_back_its_welcome() {
    let kit = kit().await;
    kit.fail("check-in", [permanent("the customer is a machine")]);
    let run = kit.client().start(NAME, &Customer::new("Ada", DAY)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let error = run.result::<Vec<String>>().await.unwrap_err();
    assert!(error.to_string().contains("the customer is a machine"), "{error}");
    let history = run.history(1, 100).await.unwrap();
    let events = history.iter().flat_map(|entry| &entry.events);
    assert_eq!(events.filter(|event| event.name() == "compensation.completed").count(), 1);
}
