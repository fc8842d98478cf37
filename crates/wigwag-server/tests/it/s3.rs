//! `/s3`: a server's store behaves like any bucket, for the ordinary bucket store and over a raw socket.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Method;
use tempfile::TempDir;
use wigwag_server::{Auth, Metrics, S3Keys, Scope, Settings};
use wigwag_store::conformance::{self, Quirks};
use wigwag_store::doctor::{self, Races};
use wigwag_store::{
    Batch, Changes, Embedded, Error, ErrorKind, Memory, Now, Object, OpenSettings, Page, Peers, Receipt, RetrySettings,
    Store, Traits, open,
};

use crate::kit::{Answer, Kit, answer, writable};

pub(crate) const SECRET: &str = "a secret of the tests, long enough";

/// A server over an embedded store with these keys, and with or without a token.
async fn embedded(keys: S3Keys, closed: bool) -> (TempDir, Kit) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(folder.path()).unwrap());
    let auth = Auth::new().token("ada", "a token of the tests", [Scope::Admin]).unwrap();
    let kit =
        Kit::on(store, |server| if closed { server.s3(keys).auth(auth) } else { server.settings(writable()).s3(keys) })
            .await;
    (folder, kit)
}

fn settings(kit: &Kit, keys: (&str, &str)) -> OpenSettings {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint = Some(kit.url("/s3"));
    settings.bucket.keys = Some((keys.0.to_owned(), keys.1.to_owned()));
    settings
}

/// The server's store with all layers, as a remote worker opens it.
fn bucket(kit: &Kit, keys: (&str, &str)) -> Arc<dyn Store> {
    open("s3://wigwag", &settings(kit, keys)).unwrap().store
}

const OPEN: (&str, &str) = ("wigwag", "wigwag");

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_store_keeps_the_promises_through_s3() {
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    conformance::check(bucket(&kit, OPEN), Quirks::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_in_memory_keeps_the_promises_through_s3() {
    let kit = Kit::on(Arc::new(Memory::bucket()), |server| server.settings(writable())).await;
    conformance::check(bucket(&kit, OPEN), Quirks::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_ids_are_ordered_by_time_through_an_embedded_server_and_scattered_through_a_bucket_server() {
    let (_folder, machine) = embedded(S3Keys::new(), false).await;
    let spread = Kit::on(Arc::new(Memory::bucket()), |server| server.settings(writable())).await;
    for (kit, length) in [(&machine, 26), (&spread, 30)] {
        // The second client finds the layout that the first one wrote.
        for _ in 0..2 {
            let mut settings = settings(kit, OPEN);
            settings.bucket.endpoint = None;
            let client = wigwag::Engine::on(open(&kit.url("/s3"), &settings).unwrap()).client().await.unwrap();
            let run = client.start("unknown", &()).await.unwrap();
            assert_eq!(run.id().as_str().len(), length, "{}", run.id());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_a_server_good() {
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    let mut settings = settings(&kit, OPEN);
    settings.unproven = true;
    let store = open("s3://wigwag", &settings).unwrap().store;
    let report = doctor::examine(&*store, Races::AT_FIRST_USE, |_| ()).await.unwrap();
    assert!(report.is_good(), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_writers_on_both_sides_exactly_one_creates_a_key() {
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    let (near, far) = (Arc::clone(&kit.store), bucket(&kit, OPEN));
    far.write(Batch::new().put("proven", "x")).await.unwrap();
    for round in 0..20 {
        let race = |writer: usize| {
            let store = Arc::clone(if writer.is_multiple_of(2) { &near } else { &far });
            tokio::spawn(async move {
                let batch = Batch::new().create(format!("race/{round}"), format!("writer {writer}"));
                store.write(batch).await
            })
        };
        let racers: Vec<_> = (0..16).map(race).collect();
        let mut winners = Vec::new();
        for (writer, racer) in racers.into_iter().enumerate() {
            match racer.await.unwrap() {
                Ok(_) => winners.push(format!("writer {writer}")),
                Err(error) => assert!(error.is_exists(), "{error:?}"),
            }
        }
        let stored = near.get(&format!("race/{round}")).await.unwrap().unwrap();
        assert_eq!(winners, [String::from_utf8(stored.body.to_vec()).unwrap()]);
    }
}

/// A store that fails every operation with one kind of error.
#[derive(Debug)]
struct Failing(ErrorKind);

#[async_trait]
impl Store for Failing {
    async fn get(&self, _: &str) -> wigwag_store::Result<Option<Object>> {
        Err(Error::of_kind(self.0))
    }
    async fn write(&self, _: Batch) -> wigwag_store::Result<Receipt> {
        Err(Error::of_kind(self.0))
    }
    async fn list(&self, _: &str, _: &str, _: usize) -> wigwag_store::Result<Page> {
        Err(Error::of_kind(self.0))
    }
    async fn now(&self) -> wigwag_store::Result<Now> {
        Memory::new().now().await
    }
    fn changes(&self, _: &str) -> Changes {
        Changes::silent()
    }
    fn traits(&self) -> Traits {
        Memory::new().traits()
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}

/// A store that works until it is switched to fail, because a server needs a working store to start.
#[derive(Debug)]
struct Turning(std::sync::RwLock<Arc<dyn Store>>);

impl Turning {
    fn now(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0.read().unwrap())
    }
}

#[async_trait]
impl Store for Turning {
    async fn get(&self, key: &str) -> wigwag_store::Result<Option<Object>> {
        Self::now(self).get(key).await
    }
    async fn write(&self, batch: Batch) -> wigwag_store::Result<Receipt> {
        Self::now(self).write(batch).await
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> wigwag_store::Result<Page> {
        Self::now(self).list(prefix, after, limit).await
    }
    async fn now(&self) -> wigwag_store::Result<Now> {
        Self::now(self).now().await
    }
    fn changes(&self, prefix: &str) -> Changes {
        Self::now(self).changes(prefix)
    }
    fn traits(&self) -> Traits {
        Self::now(self).traits()
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}

#[tokio::test]
async fn a_stores_error_is_of_the_same_kind_on_the_other_side() {
    use ErrorKind as K;
    let turning = Arc::new(Turning(std::sync::RwLock::new(Arc::new(Memory::new()))));
    let kit = Kit::on(Arc::clone(&turning) as Arc<dyn Store>, |server| server.settings(writable())).await;
    let mut settings = settings(&kit, OPEN);
    settings.unproven = true;
    settings.retry = RetrySettings::new(0, std::time::Duration::ZERO);
    let far = open("s3://wigwag", &settings).unwrap().store;
    for kind in [K::Exists, K::Changed, K::Unknown, K::Unavailable, K::Denied, K::Invalid, K::Full, K::Damaged] {
        *turning.0.write().unwrap() = Arc::new(Failing(kind));
        let batch = if kind == K::Exists { Batch::new().create("a", "x") } else { Batch::new().put("a", "x") };
        let error = far.write(batch).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        if ![K::Exists, K::Changed, K::Unknown].contains(&kind) {
            let error = far.get("a").await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error:?}");
            let error = far.list("", "", 10).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_version_read_on_one_side_can_be_updated_from_the_other() {
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    let far = bucket(&kit, OPEN);
    kit.store.write(Batch::new().put("k", "near")).await.unwrap();
    let seen = far.get("k").await.unwrap().unwrap();
    far.write(Batch::new().update("k", "far", seen.version.clone())).await.unwrap();
    let error = far.write(Batch::new().update("k", "again", seen.version)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert_eq!(kit.store.get("k").await.unwrap().unwrap().body, "far");
}

async fn ask(kit: &Kit, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = kit.request(Method::from_bytes(method.as_bytes()).unwrap(), path).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    answer(request).await
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
    assert!(answer.text.contains(&format!("<Code>{code}</Code>")), "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/xml");
    assert!(answer.text.contains(answer.header("x-amz-request-id")), "{}", answer.text);
}

/// Method, path and headers; status and code of the expected error.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16, &'a str);

#[tokio::test]
async fn what_is_not_there_is_refused_in_the_words_of_s3() {
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    let object = "/s3/wigwag/a";
    let cases: [Case<'_>; 22] = [
        ("GET", "/s3/other", &[], 404, "NoSuchBucket"),
        ("GET", "/s3/other/key", &[], 404, "NoSuchBucket"),
        ("PUT", "/s3/other", &[], 404, "NoSuchBucket"),
        ("PUT", "/s3/wigwag", &[], 409, "BucketAlreadyOwnedByYou"),
        ("DELETE", "/s3/wigwag", &[], 405, "MethodNotAllowed"),
        ("GET", object, &[], 404, "NoSuchKey"),
        ("GET", "/s3/wigwag/a//b", &[], 404, "NoSuchKey"),
        ("PUT", "/s3/wigwag/a//b", &[], 400, "InvalidArgument"),
        ("PUT", "/s3/wigwag/x%7Bstamp%7D", &[], 400, "InvalidArgument"),
        ("PUT", object, &[("x-amz-copy-source", "/wigwag/b")], 501, "NotImplemented"),
        ("PUT", object, &[("x-amz-server-side-encryption", "AES256")], 501, "NotImplemented"),
        ("PUT", object, &[("if-none-match", "\"x\"")], 501, "NotImplemented"),
        ("PUT", object, &[("if-match", "\"of-somebody-else\"")], 412, "PreconditionFailed"),
        ("PUT", object, &[("x-amz-checksum-crc32", "AAAAAA==")], 400, "BadDigest"),
        ("PUT", object, &[("x-amz-content-sha256", "nonsense")], 400, "InvalidArgument"),
        ("POST", "/s3/wigwag/a?uploads", &[], 501, "NotImplemented"),
        ("PUT", "/s3/wigwag/a?partNumber=1&uploadId=x", &[], 501, "NotImplemented"),
        ("GET", "/s3/wigwag/a?acl", &[], 501, "NotImplemented"),
        ("GET", "/s3/wigwag?policy", &[], 501, "NotImplemented"),
        ("GET", "/s3/wigwag?max-keys=many", &[], 400, "InvalidArgument"),
        ("GET", "/s3/wigwag?list-type=2&continuation-token=x", &[], 400, "InvalidArgument"),
        ("GET", "/s3/wigwag/%FF", &[], 400, "InvalidURI"),
    ];
    for (method, path, headers, status, code) in cases {
        refused(&ask(&kit, method, path, headers, "body").await, status, code);
    }
    assert!(kit.store.list("a", "", 10).await.unwrap().entries.is_empty(), "none of them wrote anything");
    // A URL with an empty path.
    for path in ["/s3", "/s3/"] {
        assert!(ask(&kit, "GET", path, &[], "").await.text.contains("<Name>wigwag</Name>"), "{path}");
    }
    let location = ask(&kit, "GET", "/s3/wigwag?location", &[], "").await;
    assert!(location.text.contains("<LocationConstraint"), "{}", location.text);
    assert_eq!(ask(&kit, "HEAD", "/s3/wigwag", &[], "").await.status, 200);
}

#[tokio::test]
async fn conditions_and_ranges_are_kept_when_reading() {
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    let object = "/s3/wigwag/a.json";
    let put = ask(&kit, "PUT", object, &[("if-none-match", "*")], "0123456789").await;
    assert_eq!(put.status, 200);
    let tag = put.header("etag").to_owned();
    refused(&ask(&kit, "PUT", object, &[("if-none-match", "*")], "x").await, 412, "PreconditionFailed");
    let got = ask(&kit, "GET", object, &[], "").await;
    assert_eq!((got.text.as_str(), got.header("etag"), got.header("content-length")), ("0123456789", &*tag, "10"));
    assert_eq!(got.header("content-type"), "application/json");
    let head = ask(&kit, "HEAD", object, &[], "").await;
    assert_eq!((head.text.as_str(), head.header("etag"), head.header("content-length")), ("", &*tag, "10"));
    let part = ask(&kit, "GET", object, &[("range", "bytes=2-4")], "").await;
    assert_eq!((part.status.as_u16(), part.text.as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), "bytes 2-4/10");
    let none = ask(&kit, "GET", object, &[("range", "bytes=10-")], "").await;
    refused(&none, 416, "InvalidRange");
    assert_eq!(none.header("content-range"), "bytes */10");
    let modified = got.header("last-modified").to_owned();
    for (name, value, status) in [
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", "\"other\"", 200),
        ("if-match", tag.as_str(), 200),
        ("if-match", "\"other\"", 412),
        ("if-modified-since", modified.as_str(), 304),
        ("if-unmodified-since", modified.as_str(), 200),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:01 GMT", 412),
    ] {
        assert_eq!(ask(&kit, "GET", object, &[(name, value)], "").await.status.as_u16(), status, "{name}: {value}");
    }
    assert_eq!(ask(&kit, "DELETE", object, &[], "").await.status, 204);
    assert_eq!(ask(&kit, "DELETE", object, &[], "").await.status, 204, "deleting nothing is no error");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    let address = kit.server.addr();
    for (length, code) in [("Content-Length: 68157441\r\n", "EntityTooLarge"), ("", "MissingContentLength")] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("PUT /s3/wigwag/a HTTP/1.1\r\nHost: {address}\r\n{length}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server responds although no byte of the body is sent.
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains("</Error>") {
            let mut some = [0; 1024];
            let read = stream.read(&mut some).await.unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&some[..read]);
        }
        assert!(String::from_utf8_lossy(&answer).contains(code), "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn a_server_with_tokens_lets_in_only_the_keys_it_knows() {
    let keys = S3Keys::new().full("worker", SECRET).unwrap().read_only("viewer", SECRET).unwrap();
    let (_folder, kit) = embedded(keys, true).await;
    let worker = bucket(&kit, ("worker", SECRET));
    worker.write(Batch::new().put("a", "1")).await.unwrap();
    let viewer = bucket(&kit, ("viewer", SECRET));
    assert_eq!(viewer.get("a").await.unwrap().unwrap().body, "1");
    assert!(!viewer.list("", "", 10).await.unwrap().entries.is_empty());
    for (keys, advice) in [
        (("viewer", SECRET), "may get, put"),
        (("worker", "another secret that is long enough"), "AWS_SECRET_ACCESS_KEY"),
        (("nobody", SECRET), "AWS_ACCESS_KEY_ID"),
        (OPEN, "AWS_ACCESS_KEY_ID"),
    ] {
        let mut settings = settings(&kit, keys);
        settings.unproven = true;
        let store = open("s3://wigwag", &settings).unwrap().store;
        for batch in [Batch::new().put("a", "2"), Batch::new().delete("a")] {
            let error = store.write(batch).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
            assert!(error.advice().is_some_and(|said| said.contains(advice)), "{keys:?}: {:?}", error.advice());
        }
    }
    refused(&ask(&kit, "GET", "/s3/wigwag/a", &[], "").await, 403, "AccessDenied");
    refused(
        &ask(&kit, "GET", "/s3/wigwag/a", &[("authorization", "Bearer a token of the tests")], "").await,
        400,
        "AuthorizationHeaderMalformed",
    );
    assert_eq!(kit.store.get("a").await.unwrap().unwrap().body, "1");

    let (_folder, locked) = embedded(S3Keys::new(), true).await;
    for path in ["/s3", "/s3/wigwag", "/s3/wigwag/wigwag.json"] {
        refused(&ask(&locked, "GET", path, &[], "").await, 403, "AccessDenied");
    }
    assert_eq!(bucket(&locked, OPEN).get("a").await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn the_rules_of_names_and_pages_hold_here_as_well() {
    let (_folder, kit) = embedded(S3Keys::new(), false).await;
    let foreign = ask(&kit, "GET", "/s3/wigwag", &[("host", "example.com")], "").await;
    foreign.problem("foreign_host");
    let page = ask(&kit, "PUT", "/s3/wigwag/a", &[("origin", "http://example.com")], "x").await;
    page.problem("foreign_origin");
    assert!(kit.store.get("a").await.unwrap().is_none());
}

#[tokio::test]
async fn requests_are_counted_by_operation_and_nothing_secret_is_among_the_figures() {
    let keys = S3Keys::new().full("counted-key-id", SECRET).unwrap();
    let mut settings = Settings::default();
    settings.insecure = true;
    let kit = Kit::with(|server| server.settings(settings).s3(keys).metrics(Metrics::install().unwrap())).await;
    let far = bucket(&kit, ("counted-key-id", SECRET));
    far.write(Batch::new().create("counted/object", "x")).await.unwrap();
    far.list("counted/", "", 10).await.unwrap();
    far.write(Batch::new().delete("counted/object")).await.unwrap();
    ask(&kit, "BREW", "/s3/wigwag/counted", &[], "").await;
    let text = kit.get("/metrics").await.text;
    for part in [
        "wigwag_s3_requests_total{operation=\"PutObject\",status=\"200\"}",
        "wigwag_s3_requests_total{operation=\"ListObjectsV2\",status=\"200\"}",
        "wigwag_s3_requests_total{operation=\"DeleteObjects\",status=\"200\"}",
        "wigwag_s3_requests_total{operation=\"other\",status=\"403\"}",
        "wigwag_http_requests_total{method=\"PUT\",route=\"/s3/{*key}\",status=\"200\"}",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    for secret in [SECRET, "counted-key-id", "counted/object", "BREW"] {
        assert!(!text.contains(secret), "{secret}");
    }
}
