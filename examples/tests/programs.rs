//! Each program prints exactly the expected output; and onboarding takes two weeks at the real length of a day.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use wigwag::testing::Kit;
use wigwag::{Engine, Status, permanent, retryable};
use wigwag_examples::World;
use wigwag_examples::approval::{self, Decision, Order};
use wigwag_examples::onboarding::{Customer, DAY, NAME, onboard};

fn says(program: &str, name: &str, store: Option<&Path>) {
    let mut command = Command::new(program);
    // These variables belong to the servers of other tests.
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        command.env_remove(name);
    }
    let ran = command.args(store).output().unwrap();
    let (said, complained) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success() && complained.is_empty(), "{name}: {complained}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected").join(format!("{name}.txt"));
    assert_eq!(said, std::fs::read_to_string(path).unwrap(), "{name} says something else");
}

#[test]
fn order_fulfilment_prints_the_expected_output_every_time() {
    let folder = tempfile::tempdir().unwrap();
    for store in [None, Some(folder.path()), Some(folder.path())] {
        says(env!("CARGO_BIN_EXE_order_fulfilment"), "order_fulfilment", store);
    }
}

#[test]
fn onboarding_prints_the_expected_output_every_time() {
    let folder = tempfile::tempdir().unwrap();
    for store in [None, Some(folder.path()), Some(folder.path())] {
        says(env!("CARGO_BIN_EXE_onboarding"), "onboarding", store);
    }
}

#[test]
fn fan_out_prints_the_expected_output_for_ten_thousand() {
    says(env!("CARGO_BIN_EXE_fan_out"), "fan_out", None);
}

#[test]
fn hub_prints_the_expected_output() {
    says(env!("CARGO_BIN_EXE_hub"), "hub", None);
}

#[test]
fn remote_worker_prints_the_expected_output() {
    says(env!("CARGO_BIN_EXE_remote_worker"), "remote_worker", None);
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
async fn onboarding_that_fails_compensates_its_welcome() {
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

#[test]
fn approval_approves_its_own_order_without_a_store() {
    says(env!("CARGO_BIN_EXE_approval"), "approval", None);
}

#[tokio::test]
async fn approval_waits_for_a_signal_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_approval"))
        .arg(folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let client = Engine::open(folder.path().to_str().unwrap()).unwrap().client().await.unwrap();
    let run = client.run("order-1").unwrap();
    while run.status().await.ok() != Some(Status::WaitingSignal) {
        tokio::task::yield_now().await;
    }
    let refused = client.signal("order-1", approval::SIGNAL, "yes").await.unwrap_err();
    assert!(refused.to_string().contains("is not of type \"object\""), "{refused}");
    let no = Decision { approved: false, by: "bob".into() };
    client.signal("order-1", approval::SIGNAL, &no).await.unwrap();
    let said = std::io::read_to_string(program.stdout.take().unwrap()).unwrap();
    assert!(said.ends_with("run `order-1` failed: bob said no\n"), "{said}");
    assert!(program.wait().unwrap().success());
}

async fn approvals() -> Kit {
    let code = |ctx, order| approval::approve(World::default(), ctx, order);
    Kit::start(|engine| engine.function(approval::NAME, 1, code)).await.unwrap()
}

#[tokio::test]
async fn an_approval_within_the_first_day_needs_no_reminder() {
    let kit = approvals().await;
    let run = kit.client().start(approval::NAME, &Order::expensive()).await.unwrap();
    kit.advance(DAY / 2).await.unwrap();
    run.signal(approval::SIGNAL, &Decision { approved: true, by: "ada".into() }).await.unwrap();
    kit.settle().await.unwrap();
    assert!(run.result::<String>().await.unwrap().contains("approved by ada"));
    assert!(!run.steps().await.unwrap().keys().any(|path| path.as_str() == "remind"));
}

#[tokio::test]
async fn an_approval_on_the_second_day_follows_a_reminder() {
    let kit = approvals().await;
    let run = kit.client().start(approval::NAME, &Order::expensive()).await.unwrap();
    kit.advance(DAY + DAY / 2).await.unwrap();
    let waiting = run.waiting().await.unwrap();
    assert_eq!(waiting[0].point.as_str(), "approval#2");
    run.signal(approval::SIGNAL, &Decision { approved: true, by: "ada".into() }).await.unwrap();
    kit.settle().await.unwrap();
    assert!(run.result::<String>().await.unwrap().contains("approved by ada"));
    assert!(run.steps().await.unwrap().keys().any(|path| path.as_str() == "remind"));
}

#[tokio::test]
async fn an_order_without_approval_fails_after_two_days_and_is_compensated() {
    let kit = approvals().await;
    let run = kit.client().start(approval::NAME, &Order::expensive()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert!(run.result::<String>().await.unwrap_err().to_string().contains("nobody decided within two days"));
    assert!(kit.elapsed() >= DAY * 2 && kit.elapsed() < DAY * 2 + Duration::from_secs(60), "{:?}", kit.elapsed());
    let history = run.history(1, 100).await.unwrap();
    let events = history.iter().flat_map(|entry| &entry.events);
    assert_eq!(events.filter(|event| event.name() == "compensation.completed").count(), 1);
}
