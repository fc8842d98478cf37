//! The suite on real S3 servers, started by `cargo xtask test`; without them each test says that it was skipped.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::Arc;
use std::time::Duration;

use wigwag_store::conformance::{self, Quirks};
use wigwag_store::doctor::{self, Races};
use wigwag_store::{Batch, ErrorKind, OpenSettings, Store, open};

/// The server's address, or a loud word that the test is skipped.
fn endpoint(server: &str) -> Option<String> {
    let address = std::env::var(format!("WIGWAG_TEST_{server}")).ok();
    if address.is_none() {
        conformance::skip(&format!("{server} does not run; `cargo xtask test` starts it"));
    }
    address
}

fn settings(endpoint: &str) -> OpenSettings {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint = Some(endpoint.to_owned());
    settings
}

/// A corner of the server's bucket, with all layers.
fn corner(endpoint: &str) -> Arc<dyn Store> {
    let url = format!("s3://wigwag/test-{:016x}", fastrand::u64(..));
    open(&url, &settings(endpoint)).unwrap().store
}

async fn conforms(server: &str, quirks: Quirks) {
    let Some(endpoint) = endpoint(server) else {
        return;
    };
    conformance::check(corner(&endpoint), quirks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_seaweedfs_keeps_the_promises() {
    conforms("SEAWEEDFS", Quirks { directory_order: true, ..Quirks::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_ministack_keeps_the_promises() {
    conforms("MINISTACK", Quirks::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_moto_keeps_the_promises() {
    conforms("MOTO", Quirks { lists_fail_under_writes: true, ..Quirks::default() }).await;
}

#[tokio::test]
async fn s3_a_server_that_ignores_conditions_is_refused_at_the_first_write() {
    let Some(endpoint) = endpoint("RCLONE") else {
        return;
    };
    let store = corner(&endpoint);
    let error = store.write(Batch::new().put("key", "x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert!(error.to_string().contains("racing writers all got a success response"), "{error}");
    assert!(store.get("key").await.unwrap().is_none(), "nothing was entrusted to it");
}

#[tokio::test]
async fn s3_a_server_is_proven_once_and_that_is_remembered() {
    let Some(endpoint) = endpoint("SEAWEEDFS") else {
        return;
    };
    let url = format!("s3://wigwag/proof-{:016x}", fastrand::u64(..));
    let first = open(&url, &settings(&endpoint)).unwrap();
    first.store.write(Batch::new().put("a", "1")).await.unwrap();
    assert!(first.usage().puts > 80, "writers raced: {:?}", first.usage());
    assert!(first.store.traits().update_if);
    assert!(first.store.list("proof/", "", 10).await.unwrap().entries.is_empty(), "the races were cleared away");

    let second = open(&url, &settings(&endpoint)).unwrap();
    second.store.write(Batch::new().put("b", "2")).await.unwrap();
    assert_eq!((second.usage().puts, second.usage().gets), (1, 1), "one read of `wigwag.json` is enough");
}

#[tokio::test]
async fn s3_doctor_finds_good_servers_good() {
    for server in ["SEAWEEDFS", "MINISTACK"] {
        let Some(endpoint) = endpoint(server) else {
            continue;
        };
        let report = doctor::examine(&*corner(&endpoint), Races { writers: 16, rounds: 5 }, |_| ()).await.unwrap();
        assert!(report.is_good(), "{report:#?}");
    }
}

#[tokio::test]
async fn s3_wrong_credentials_and_a_missing_bucket_are_told_apart() {
    let Some(endpoint) = endpoint("SEAWEEDFS") else {
        return;
    };
    let with = |keys: Option<(&str, &str)>, url: &str| {
        let mut settings = settings(&endpoint);
        settings.bucket.keys = keys.map(|(id, secret)| (id.to_owned(), secret.to_owned()));
        open(url, &settings).unwrap().store
    };
    let cases = [
        (with(Some(("nobody", "test")), "s3://wigwag"), ErrorKind::Denied, "AWS_ACCESS_KEY_ID"),
        (with(Some(("test", "wrong")), "s3://wigwag"), ErrorKind::Denied, "AWS_SECRET_ACCESS_KEY"),
        (with(None, "s3://no-such-bucket"), ErrorKind::Invalid, "create the bucket"),
    ];
    for (store, kind, advice) in cases {
        for error in [
            store.get("key").await.unwrap_err(),
            store.write(Batch::new().put("key", "x")).await.unwrap_err(),
            store.list("", "", 1).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
            assert!(error.advice().is_some_and(|hint| hint.contains(advice)), "{error:?} {:?}", error.advice());
        }
    }
}

#[tokio::test]
async fn s3_a_server_that_is_away_is_unavailable_and_its_time_unknown() {
    let mut settings = settings("http://127.0.0.1:9");
    settings.bucket.keys = Some(("test".into(), "test".into()));
    settings.retry = wigwag_store::RetrySettings::new(2, Duration::from_millis(1));
    let store = open("s3://wigwag", &settings).unwrap().store;
    assert_eq!(store.get("key").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let error = store.write(Batch::new().put("key", "x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing landed: {error:?}");
    assert!(error.to_string().contains("cannot reach"), "{error}");
}
