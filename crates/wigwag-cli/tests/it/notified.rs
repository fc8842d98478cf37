//! A command on a bucket delivers its notifications before it exits. The worker polls once a minute or less, so a result
//! within seconds is due to a notification.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Ctx, Engine, Settings, Status};
use wigwag_server::{Running, Server, Settings as ServerSettings};
use wigwag_store::{Batch, Clock as _, Memory, Notifications, OpenSettings, System, open};

use crate::common::{command, good};
use crate::process::Serving;

const STORE: &str = "s3://wigwag/fleet";

/// Shorter than the poll interval, and long for a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A bucket: `/s3` of a server on a store in memory.
async fn bucket() -> (Running, String) {
    bucket_at(([127, 0, 0, 1], 0).into()).await
}

async fn bucket_at(place: SocketAddr) -> (Running, String) {
    let client = Engine::builder(std::sync::Arc::new(Memory::bucket())).client().await.unwrap();
    let mut settings = ServerSettings::default();
    settings.s3_write = true;
    let running = Server::builder(client).bind(place).settings(settings).start().await.unwrap();
    let endpoint = format!("http://{}/s3", running.addr());
    (running, endpoint)
}

/// A command on the bucket.
fn on_bucket(folder: &Path, endpoint: &str, args: &[&str]) -> Command {
    let mut command = command(folder, args);
    command.args(["--store", STORE, "--endpoint", endpoint]);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        command.env(name, "wigwag");
    }
    command
}

/// Runs a command without blocking the bucket and the worker of this process.
async fn run(folder: &Path, endpoint: &str, args: &[&str]) -> Output {
    let mut command = on_bucket(folder, endpoint, args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn settings(endpoint: &str) -> OpenSettings {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint = Some(endpoint.to_owned());
    settings.bucket.keys = Some(("wigwag".to_owned(), "wigwag".to_owned()));
    settings.fleet.is_wanted = wigwag::concerns_others;
    settings
}

/// A worker that polls every ten minutes.
async fn worker(endpoint: &str) -> Engine {
    let mut slow = Settings::default();
    (slow.look_min, slow.look_max, slow.lease) =
        (Duration::from_secs(600), Duration::from_secs(600), Duration::from_secs(600));
    slow.grace = Duration::from_millis(200);
    let approve = |ctx: Ctx, _: Value| async move { ctx.wait::<Value>("approval").await };
    let engine = Engine::on(open(STORE, &settings(endpoint)).unwrap()).settings(slow);
    engine.function("approve", 1, approve).start().await.unwrap()
}

async fn until<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    for _ in 0..2_000 {
        if so().await {
            return;
        }
        System.sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_and_a_signal_by_commands_reach_a_worker_that_polls_every_ten_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let (_bucket, endpoint) = bucket().await;
    // Reserves a free port, because the address is advertised before the server binds.
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let advertised = format!("http://{place}");
    let args = ["serve", "--bind", &place, "--advertise", &advertised];
    let mut serving = Serving::spawn(on_bucket(folder.path(), &endpoint, &args));
    serving.address();

    // A worker that starts before the server has announced itself finds it only when it lists the servers again.
    let store = open(STORE, &settings(&endpoint)).unwrap().store;
    until("the server announces itself", || async {
        store.list("servers/", "", 10).await.is_ok_and(|page| !page.entries.is_empty())
    })
    .await;
    let engine = worker(&endpoint).await;
    let client = engine.client();
    until("the worker follows the server", || async { client.store().traits().notifications == Notifications::Fleet })
        .await;
    good(&run(folder.path(), &endpoint, &["start", "approve", "--id", "order-1"]).await);
    let run_handle = client.run("order-1").unwrap();
    until("the worker is notified of the start", || async {
        run_handle.status().await.is_ok_and(|status| status == Status::WaitingSignal)
    })
    .await;
    let result = tokio::spawn(async move { run_handle.result::<Value>().await });
    good(&run(folder.path(), &endpoint, &["signal", "order-1", "approval", "\"yes\""]).await);
    let result = tokio::time::timeout(SOON, result).await.expect("the worker is notified of the signal");
    assert_eq!(result.unwrap().unwrap(), json!("yes"));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_ends_in_time_and_without_a_word_although_an_announced_server_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (_bucket, endpoint) = bucket().await;
    // The system accepts its connections, and no program reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let record =
        json!({"id": "silent", "url": format!("http://{}", silent.local_addr().unwrap()), "key": "k", "at": ""});
    let store = open(STORE, &settings(&endpoint)).unwrap().store;
    store.write(Batch::new().put("servers/silent.json", record.to_string())).await.unwrap();
    let begun = System.boot();
    let output = run(folder.path(), &endpoint, &["start", "approve", "--id", "order-1"]).await;
    let took = System.boot() - begun;
    assert_eq!(good(&output), "order-1\n");
    // One attempt to post may take 5 s, and there are three.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_during_an_outage_of_its_bucket_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let outage = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = outage.local_addr().unwrap();
    let endpoint = format!("http://{place}/s3");
    let mut serving = Serving::spawn(on_bucket(folder.path(), &endpoint, &["serve", "--bind", "127.0.0.1:0"]));
    // Its first request is dropped, and the next ones are refused until the bucket is there.
    drop(tokio::task::spawn_blocking(move || outage.accept().unwrap()).await.unwrap());
    let (_bucket, _) = bucket_at(place).await;
    tokio::task::spawn_blocking(move || serving.address()).await.unwrap();
}
