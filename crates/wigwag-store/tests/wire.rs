//! Interpretation of a bucket's responses, over a real socket: a small server that misbehaves as scripted.
//!
//! No server to be had here ever answers S3's 409, loses an answer on request, or lies about the time.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use wigwag_store::{
    Batch, Bucket, BucketSettings, Clock as _, ErrorKind, Retry, RetrySettings, STAMP, Stamp, Store, System,
};

/// Handling of one request; requests without a script are served.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Serve,
    /// Responds with this error, without executing the request.
    Say(u16, &'static str),
    /// Rejects with a retry delay of this many seconds.
    Busy(u32),
    /// Closes the connection without executing the request.
    LoseRequest,
    /// Executes the request, then closes the connection.
    LoseAnswer,
    /// Responds with this status, then closes the connection in the middle of the body.
    BreakOff(u16),
    /// Never sends a response.
    Hang,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    script: VecDeque<Fate>,
    requests: Vec<String>,
    /// Seconds that the server's clock is ahead; `None`: it sends no date.
    ahead: Option<i64>,
}

#[derive(Clone, Debug)]
struct Server {
    state: Arc<Mutex<State>>,
    endpoint: String,
}

impl Server {
    async fn start(script: &[Fate]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = State { script: script.iter().copied().collect(), ahead: Some(0), ..State::default() };
        let server = Self { state: Arc::new(Mutex::new(state)), endpoint };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().converse(stream));
            }
        });
        server
    }

    async fn converse(self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let (head, body) = read_request(&mut stream).await?;
            let fate = {
                let mut state = self.state.lock().unwrap();
                state.requests.push(head[0].split(' ').take(2).collect::<Vec<_>>().join(" "));
                state.script.pop_front().unwrap_or(Fate::Serve)
            };
            let answer = match fate {
                Fate::Serve => self.serve(&head, body),
                Fate::Say(status, code) => (status, String::new(), error_body(code)),
                Fate::Busy(seconds) => (503, format!("Retry-After: {seconds}\r\n"), error_body("SlowDown")),
                Fate::LoseRequest => return None,
                Fate::LoseAnswer => {
                    self.serve(&head, body);
                    return None;
                }
                Fate::BreakOff(status) => {
                    let line = format!("HTTP/1.1 {status} X\r\n");
                    stream.write_all(line.as_bytes()).await.ok()?;
                    stream.write_all(b"ETag: \"x\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 99\r\n\r\nhalf").await.ok()?;
                    return None;
                }
                Fate::Hang => std::future::pending().await,
            };
            let text = self.render(answer);
            stream.write_all(&text).await.ok()?;
        }
    }

    fn serve(&self, head: &[String], body: Vec<u8>) -> (u16, String, Vec<u8>) {
        let mut words = head[0].split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
        let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let objects = &mut self.state.lock().unwrap().objects;
        match (method, objects.contains_key(&path)) {
            ("PUT", true) if header("if-none-match:") == Some("*") => {
                (412, String::new(), error_body("PreconditionFailed"))
            }
            ("PUT", _) => {
                objects.insert(path, body);
                (200, "ETag: \"x\"\r\n".into(), Vec::new())
            }
            ("GET", true) => {
                let dates = "ETag: \"x\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
                (200, dates.into(), objects[&path].clone())
            }
            ("POST", _) if path.contains("?delete") => {
                // The answer names every key of the request.
                let (text, mut answer) = (String::from_utf8(body).unwrap(), String::new());
                for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
                    answer += &format!("<Deleted><Key>{key}</Key></Deleted>");
                }
                (200, String::new(), format!("<DeleteResult>{answer}</DeleteResult>").into_bytes())
            }
            _ => (404, String::new(), error_body("NoSuchKey")),
        }
    }

    fn render(&self, (status, headers, body): (u16, String, Vec<u8>)) -> Vec<u8> {
        let date = self.state.lock().unwrap().ahead.map_or(String::new(), |ahead| {
            let seconds = (System.wall().micros() / 1_000_000).saturating_add_signed(ahead);
            let date = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
            format!("Date: {}\r\n", httpdate::fmt_http_date(date))
        });
        let head = format!("HTTP/1.1 {status} X\r\n{date}{headers}Content-Length: {}\r\n\r\n", body.len());
        [head.into_bytes(), body].concat()
    }

    fn bucket(&self) -> Bucket {
        let mut settings = BucketSettings::default();
        settings.endpoint = Some(self.endpoint.clone());
        settings.keys = Some(("id".into(), "secret".into()));
        settings.request_max = Duration::from_millis(500);
        Bucket::open("s3://b", &settings).unwrap()
    }

    fn retrying(&self) -> Retry<Bucket> {
        Retry::new(self.bucket(), RetrySettings::new(5, Duration::from_millis(1)))
    }

    fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    fn stored(&self, key: &str) -> Option<Vec<u8>> {
        self.state.lock().unwrap().objects.get(&format!("/b/{key}")).cloned()
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(Vec<String>, Vec<u8>)> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        // Header names are case-insensitive.
        let plain = match line.split_once(':') {
            Some((name, value)) if !head.is_empty() => format!("{}:{value}", name.to_lowercase()),
            _ => line.to_owned(),
        };
        head.push(plain);
    }
    let length =
        head.iter().find_map(|line| line.strip_prefix("content-length:")).map_or(0, |n| n.trim().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

fn error_body(code: &str) -> Vec<u8> {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as told</Message></Error>").into_bytes()
}

fn create() -> Batch {
    Batch::new().create("key", "mine")
}

#[tokio::test]
async fn each_response_to_a_write_maps_to_its_error() {
    use ErrorKind::{Denied, Exists, Full, Invalid, Unavailable, Unknown};
    let cases = [
        (Fate::Say(412, "PreconditionFailed"), Exists, ""),
        (Fate::Say(409, "ConditionalRequestConflict"), Unavailable, ""),
        (Fate::Say(503, "SlowDown"), Unavailable, ""),
        (Fate::Say(429, "TooManyRequests"), Unavailable, ""),
        (Fate::Say(500, "InternalError"), Unknown, ""),
        (Fate::Say(502, ""), Unknown, ""),
        (Fate::Say(504, ""), Unknown, ""),
        (Fate::LoseRequest, Unknown, ""),
        (Fate::LoseAnswer, Unknown, ""),
        (Fate::Hang, Unknown, ""),
        (Fate::BreakOff(412), Unknown, "check, or repeat it"),
        (Fate::Say(507, "InsufficientStorage"), Full, "free space in the bucket"),
        (Fate::Say(403, "AccessDenied"), Denied, "may get, put, delete and list"),
        (Fate::Say(403, "InvalidAccessKeyId"), Denied, "AWS_ACCESS_KEY_ID"),
        (Fate::Say(403, "SignatureDoesNotMatch"), Denied, "AWS_SECRET_ACCESS_KEY"),
        (Fate::Say(403, "RequestTimeTooSkewed"), Denied, "clock is off"),
        (Fate::Say(400, "ExpiredToken"), Denied, "expired"),
        (Fate::Say(400, "AuthorizationHeaderMalformed"), Denied, "region"),
        (Fate::Say(400, "InvalidArgument"), Invalid, ""),
        (Fate::Say(404, "NoSuchBucket"), Invalid, "create the bucket"),
        (Fate::Say(400, "EntityTooLarge"), Invalid, ""),
    ];
    for (fate, kind, advice) in cases {
        let server = Server::start(&[fate]).await;
        let error = server.bucket().write(create()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{fate:?}: {error:?}");
        let is_of_object = matches!(fate, Fate::Say(_, "EntityTooLarge"));
        assert_eq!(error.concerns_settings(), kind == Invalid && !is_of_object, "{fate:?}: {error:?}");
        assert!(error.advice().unwrap_or_default().contains(advice), "{fate:?}: {:?}", error.advice());
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        assert_eq!(server.requests().len(), 1, "{fate:?} is not repeated below the retry layer");
    }
}

#[tokio::test]
async fn each_response_to_a_read_maps_to_its_error() {
    use ErrorKind::{Denied, Invalid, Unavailable};
    let cases = [
        (Fate::Say(503, "SlowDown"), Unavailable),
        (Fate::Say(500, "InternalError"), Unavailable),
        (Fate::LoseAnswer, Unavailable),
        (Fate::BreakOff(200), Unavailable),
        // Whether the object is not there or the bucket, the rest would have said.
        (Fate::BreakOff(404), Unavailable),
        (Fate::Say(403, "AccessDenied"), Denied),
        (Fate::Say(404, "NoSuchBucket"), Invalid),
    ];
    for (fate, kind) in cases {
        let server = Server::start(&[fate]).await;
        let error = server.bucket().get("key").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{fate:?}: {error:?}");
    }
    let server = Server::start(&[Fate::Say(404, "NoSuchKey")]).await;
    assert_eq!(server.bucket().get("key").await.unwrap(), None);
}

#[tokio::test]
async fn a_409_is_not_a_lost_race_and_is_tried_again() {
    let server = Server::start(&[Fate::Say(409, "ConditionalRequestConflict"); 2]).await;
    server.retrying().write(create()).await.unwrap();
    assert_eq!(server.stored("key").unwrap(), b"mine");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_meets_its_own_write_and_has_won() {
    for lost in [Fate::LoseAnswer, Fate::LoseRequest, Fate::Say(500, "InternalError")] {
        let server = Server::start(&[lost]).await;
        server.retrying().write(create()).await.unwrap();
        assert_eq!(server.stored("key").unwrap(), b"mine", "{lost:?}");
    }
}

#[tokio::test]
async fn a_create_whose_request_was_lost_meets_anothers_write_and_has_lost() {
    let server = Server::start(&[Fate::LoseRequest]).await;
    server.state.lock().unwrap().objects.insert("/b/key".into(), b"theirs".to_vec());
    let error = server.retrying().write(create()).await.unwrap_err();
    assert!(error.is_exists(), "{error:?}");
    assert_eq!(server.stored("key").unwrap(), b"theirs");
}

#[tokio::test]
async fn a_create_that_may_have_landed_and_been_deleted_since_is_unknown() {
    // The put lands and its response is lost; the retry gets `PreconditionFailed`; the read
    // back finds nothing.
    let script = [Fate::LoseAnswer, Fate::Say(412, "PreconditionFailed"), Fate::Say(404, "NoSuchKey")];
    let server = Server::start(&script).await;
    assert_eq!(server.retrying().write(create()).await.unwrap_err().kind(), ErrorKind::Unknown);
}

#[tokio::test]
async fn an_update_that_may_have_landed_under_anothers_is_unknown() {
    let server =
        Server::start(&[Fate::Serve, Fate::Serve, Fate::LoseRequest, Fate::Say(412, "PreconditionFailed")]).await;
    let store = server.retrying();
    store.write(Batch::new().put("key", "theirs")).await.unwrap();
    let version = store.get("key").await.unwrap().unwrap().version;
    let error = store.write(Batch::new().update("key", "mine", version)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}");
}

#[tokio::test]
async fn a_partly_landed_batch_is_never_reported_as_not_landed() {
    let script = [&[Fate::Serve][..], &[Fate::Say(503, "SlowDown"); 20]].concat();
    let server = Server::start(&script).await;
    let error = server.retrying().write(create().put("after", "a")).await.unwrap_err();
    assert_eq!((error.kind(), error.landed()), (ErrorKind::Unknown, 1), "{error:?}");

    let denied = Server::start(&[Fate::LoseAnswer, Fate::Say(403, "AccessDenied")]).await;
    let error = denied.retrying().write(create()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "the first may have landed: {error:?}");
}

#[tokio::test]
async fn a_server_that_asks_for_a_day_is_not_waited_for() {
    let server = Server::start(&[Fate::Busy(86_400)]).await;
    let error = server.retrying().get("key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_refusal_after_a_clean_failure_is_believed_without_reading_back() {
    let server = Server::start(&[Fate::Say(503, "SlowDown")]).await;
    server.state.lock().unwrap().objects.insert("/b/key".into(), b"theirs".to_vec());
    assert!(server.retrying().write(create()).await.unwrap_err().is_exists());
    assert_eq!(server.requests(), ["PUT /b/key", "PUT /b/key"]);
}

#[tokio::test]
async fn when_patience_ends_doubt_stays_doubt() {
    let all_lost = Server::start(&[Fate::LoseRequest; 20]).await;
    assert_eq!(all_lost.retrying().write(create()).await.unwrap_err().kind(), ErrorKind::Unknown);
    let one_lost = [&[Fate::LoseRequest][..], &[Fate::Say(503, "SlowDown"); 20]].concat();
    let one_lost = Server::start(&one_lost).await;
    assert_eq!(one_lost.retrying().write(create()).await.unwrap_err().kind(), ErrorKind::Unknown);
    let none_lost = Server::start(&[Fate::Say(503, "SlowDown"); 20]).await;
    assert_eq!(none_lost.retrying().write(create()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_batch_is_retried_from_the_failed_operation() {
    let server = Server::start(&[Fate::Serve, Fate::Say(503, "SlowDown"), Fate::Serve, Fate::LoseAnswer]).await;
    let receipt = server.retrying().write(Batch::new().put("hint", "h").create("key", "mine").put("after", "a")).await;
    assert_eq!(receipt.unwrap().versions.len(), 3);
    assert_eq!(server.requests(), ["PUT /b/hint", "PUT /b/key", "PUT /b/key", "PUT /b/after", "PUT /b/after"]);
}

#[tokio::test]
async fn a_stamped_key_is_the_same_in_every_try() {
    let server = Server::start(&[Fate::Serve, Fate::LoseAnswer]).await;
    let receipt = server.retrying().write(Batch::new().create(format!("in/{STAMP}_1"), "x")).await.unwrap();
    let puts: Vec<_> = server.requests().into_iter().filter(|request| request.starts_with("PUT")).collect();
    assert_eq!(puts.len(), 2);
    assert_eq!(puts[0], puts[1]);
    let filled = format!("in/{}_1", receipt.stamp.unwrap());
    assert_eq!(server.bucket().get(&filled).await.unwrap().unwrap().body, "x");
}

#[tokio::test]
async fn time_is_the_servers_and_not_the_machines() {
    let server = Server::start(&[]).await;
    server.state.lock().unwrap().ahead = Some(3_600);
    let now = server.bucket().now().await.unwrap();
    let ahead = now.at.since(System.wall());
    assert!(ahead.abs_diff(Duration::from_secs(3_600)) <= now.uncertainty + Duration::from_millis(50), "{ahead:?}");
    assert!(now.uncertainty < Duration::from_secs(1), "{:?}", now.uncertainty);
    assert!(now.at > Stamp::default());
}

#[tokio::test]
async fn a_server_without_a_date_is_rejected_as_a_clock() {
    let server = Server::start(&[]).await;
    server.state.lock().unwrap().ahead = None;
    let error = server.bucket().now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("Date"), "{error}");
}

#[tokio::test]
async fn a_server_in_trouble_says_how_long_it_wants_to_be_left_alone() {
    let server = Server::start(&[Fate::Busy(7)]).await;
    let error = server.bucket().get("key").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Unavailable, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn many_deletes_in_a_row_are_one_request() {
    let server = Server::start(&[]).await;
    let deletes = (0..900).fold(Batch::new().put("first", "x"), |batch, number| batch.delete(format!("old/{number}")));
    server.bucket().write(deletes).await.unwrap();
    assert_eq!(server.requests(), ["PUT /b/first", "POST /b?delete"]);
}
