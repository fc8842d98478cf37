//! Settings, credentials, proxies, keys, rates and limits fail closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use wigwag::Time;
use wigwag_server::{Auth, BodyBounds, Credentials, Rate, S3Keys, Scope, Server, Settings, Tls};
use wigwag_store::{Batch, Clock as _, ErrorKind, OpenSettings, Store, System, open};

use crate::jwt::jwt;
use crate::kit::{Kit, answer, with, writable};

const TOKEN: &str = "a-token-of-the-tests-0123456789";
const SECRET: &str = "a secret of the tests, long enough";
const HS256: &[u8] = b"a secret of thirty-two bytes, at least";

fn admin() -> Auth {
    Auth::new().token("ada", TOKEN, [Scope::Admin]).unwrap()
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

/// A connection to a server from another address of this machine.
async fn from(address: [u8; 4], server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    socket.connect(server).await.unwrap()
}

/// Reads until the peer closes, or for ten seconds.
async fn all(socket: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut said)).await;
    assert!(read.is_ok(), "it is still open: {}", String::from_utf8_lossy(&said));
    String::from_utf8_lossy(&said).into_owned()
}

/// Reads the head of one response and the data that arrived with it.
async fn some(socket: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let reading = async {
        while !said.windows(4).any(|part| part == b"\r\n\r\n") {
            let mut buffer = [0; 4_096];
            match socket.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(read) => said.extend_from_slice(&buffer[..read]),
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), reading).await.is_ok(), "no answer");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn settings_that_would_leave_a_door_open_do_not_start() {
    let engine = wigwag::Engine::open("memory:").unwrap().start().await.unwrap();
    let builder = || Server::builder(engine.client()).bind(([127, 0, 0, 1], 0).into());
    let public = |insecure| {
        settings(|settings| {
            settings.public_url = Some("https://wigwag.example.com".into());
            settings.insecure = insecure;
        })
    };
    let proxied = settings(|settings| settings.trusted_proxies = vec![[127, 0, 0, 1].into()]);
    let keys = || S3Keys::new().full("worker", SECRET).unwrap();
    let by_jwt = || Auth::new().jwt_hs256(HS256).unwrap();
    for (builder, wants) in [
        (builder().settings(public(false)), "`public_url` is `https://wigwag.example.com`, and there are no tokens"),
        (builder().settings(proxied), "`trusted_proxies` is set, and there are no tokens"),
        (builder().s3(keys()), "`/s3` has access keys, and there are no tokens"),
        (builder().auth(Auth::new().issuer("https://id.example.com")), "without a key to verify tokens with"),
        (builder().auth(Auth::new().audience("wigwag")), "without a key to verify tokens with"),
        (builder().auth(Auth::new().any_audience()), "without a key to verify tokens with"),
        (builder().auth(by_jwt()), "JWT `audience` is missing"),
        (builder().auth(by_jwt().audience("wigwag").any_audience()), "`any_audience` are both set"),
    ] {
        let error = builder.start().await.unwrap_err();
        assert!(error.to_string().contains(wants), "want: {wants}, got: {error}");
        assert!(!error.advice().is_empty(), "{error}");
    }
    let local = settings(|settings| settings.public_url = Some("http://localhost:7070".into()));
    for builder in [
        builder().settings(public(true)),
        builder().settings(public(false)).auth(admin()),
        builder().settings(local),
        builder().s3(keys()).auth(admin()),
        builder().auth(by_jwt().audience("wigwag")),
        builder().auth(by_jwt().any_audience()),
    ] {
        builder.start().await.unwrap().stop().await;
    }
}

#[test]
fn a_token_that_anybody_knows_is_refused() {
    for word in ["", "\n", "test", "password", "wigwag"] {
        let error = Auth::new().token_hash("ci", &Auth::hash(word), [Scope::Admin]).unwrap_err();
        assert!(error.to_string().contains("well-known word"), "{word}: {error}");
        assert!(error.advice().contains("wigwag token"), "{}", error.advice());
    }
    let error = admin().token("bob", TOKEN, [Scope::RunsRead]).unwrap_err();
    assert!(error.to_string().contains("`ada` and `bob` have the same hash"), "{error}");
    assert!(Auth::new().token("", TOKEN, [Scope::Admin]).is_err());
}

#[tokio::test]
async fn a_server_without_tokens_takes_no_request_through_a_proxy() {
    let kit = Kit::new().await;
    for header in ["x-forwarded-for", "x-forwarded-host", "x-forwarded-ssl", "forwarded", "x-real-ip", "via"] {
        for path in ["/v1/runs", "/v1/health", "/s3/wigwag", "/hub"] {
            let request = kit.request(Method::GET, path).header(header, "127.0.0.1");
            answer(request).await.problem("proxy_not_allowed");
        }
    }
    let mut socket = TcpStream::connect(kit.server.addr()).await.unwrap();
    socket.write_all(b"GET /v1/runs HTTP/1.0\r\nhost: localhost\r\n\r\n").await.unwrap();
    let said = all(&mut socket).await;
    assert!(said.contains("403 Forbidden") && said.contains("proxy_not_allowed"), "{said}");
    kit.get("/v1/runs").await.ok(200);
    let kit = Kit::with(|server| server.auth(admin())).await;
    let request = kit.request(Method::GET, "/v1/runs").header("x-forwarded-for", "9.9.9.9").bearer_auth(TOKEN);
    answer(request).await.ok(200);
}

fn bucket(kit: &Kit, id: &str) -> Arc<dyn Store> {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint = Some(kit.url("/s3"));
    settings.bucket.keys = Some((id.to_owned(), SECRET.to_owned()));
    settings.unproven = true;
    open("s3://wigwag", &settings).unwrap().store
}

#[tokio::test]
async fn without_tokens_the_store_can_be_read_and_not_written() {
    let kit = Kit::new().await;
    kit.store.write(Batch::new().put("a", "1")).await.unwrap();
    let ask = |method: Method, body: &'static str| answer(kit.request(method, "/s3/wigwag/a").body(body));
    assert_eq!(ask(Method::GET, "").await.text, "1");
    for method in [Method::PUT, Method::DELETE] {
        let refused = ask(method, "2").await;
        assert_eq!(refused.status.as_u16(), 403, "{}", refused.text);
        assert!(refused.text.contains("--s3-write"), "{}", refused.text);
    }
    assert_eq!(kit.store.get("a").await.unwrap().unwrap().body, "1");
    let kit = Kit::with(|server| server.settings(writable())).await;
    assert_eq!(answer(kit.request(Method::PUT, "/s3/wigwag/a").body("2")).await.status.as_u16(), 200);
}

#[tokio::test]
async fn an_access_key_reaches_its_prefixes_and_nothing_else() {
    let prefixes = ["logs/".to_owned(), "out/".to_owned()];
    let keys = S3Keys::new().limited("limited", SECRET, true, &prefixes).unwrap();
    let kit = Kit::with(|server| server.auth(admin()).s3(keys)).await;
    kit.store.write(Batch::new().put("logs/a", "1").put("runs/a", "1")).await.unwrap();
    let limited = bucket(&kit, "limited");
    assert_eq!(limited.get("logs/a").await.unwrap().unwrap().body, "1");
    limited.write(Batch::new().put("out/b", "2").delete("logs/a")).await.unwrap();
    assert_eq!(limited.list("out/", "", 10).await.unwrap().entries.len(), 1);
    let denied = |outcome: wigwag_store::Error| assert_eq!(outcome.kind(), ErrorKind::Denied, "{outcome:?}");
    denied(limited.get("runs/a").await.unwrap_err());
    denied(limited.write(Batch::new().put("runs/a", "2")).await.unwrap_err());
    denied(limited.write(Batch::new().delete("runs/a")).await.unwrap_err());
    denied(limited.write(Batch::new().delete("out/b").delete("runs/a")).await.unwrap_err());
    for prefix in ["", "runs/", "log", "ou"] {
        denied(limited.list(prefix, "", 10).await.unwrap_err());
    }
    assert_eq!(kit.store.get("runs/a").await.unwrap().unwrap().body, "1");
    let follow = |prefix: &str| {
        let path = format!("/v1/changes?prefix={prefix}");
        answer(kit.request(Method::GET, &path).basic_auth("limited", Some(SECRET)))
    };
    follow("runs/").await.problem("not_allowed");
    follow("").await.problem("not_allowed");
    assert_eq!(follow("logs/").await.status.as_u16(), 200);
}

#[tokio::test]
async fn a_link_is_checked_before_anything_of_its_body_is_taken() {
    let kit = Kit::new().await;
    let mut socket = TcpStream::connect(kit.server.addr()).await.unwrap();
    let head = "POST /v1/links/not.signed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 1000000\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let said = some(&mut socket).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("this link is not valid"), "{said}");
}

/// Sends the head of a request and part of its body, and keeps the connection open.
async fn held(mut socket: TcpStream, path: &str, method: &str, length: usize, sent: usize) -> TcpStream {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&vec![b' '; sent]).await.unwrap();
    socket
}

#[tokio::test]
async fn bodies_are_bounded_in_total_and_for_each_address() {
    let settings = settings(|settings| settings.bodies = BodyBounds::new(400_000, 250_000, 250_000));
    let kit = Kit::with(|server| server.settings(settings)).await;
    let server = kit.server.addr();
    let mut sockets = Vec::new();
    for address in [[127, 0, 0, 2], [127, 0, 0, 2], [127, 0, 0, 3]] {
        sockets.push(held(from(address, server).await, "/v1/runs", "POST", 200_000, 100_000).await);
    }
    let body = || format!("{{\"type\": \"echo\", \"input\": \"{}\"}}", "x".repeat(60_000));
    let post = |address| async move {
        let body = body();
        let mut socket = from(address, server).await;
        let head = format!(
            "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let _ = socket.write_all(body.as_bytes()).await;
        all(&mut socket).await
    };
    let refused = post([127, 0, 0, 2]).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("of this address"), "{refused}");
    assert!(refused.contains("\"overloaded\"") && refused.contains("retry-after: 1"), "{refused}");
    let taken = post([127, 0, 0, 4]).await;
    assert!(taken.starts_with("HTTP/1.1 201"), "another address has room: {taken}");
    sockets.push(held(from([127, 0, 0, 3], server).await, "/v1/runs", "POST", 200_000, 90_000).await);
    let problem =
        kit.post("/v1/runs", json!({"type": "echo", "input": "x".repeat(60_000)})).await.problem("overloaded");
    assert!(
        problem["detail"].as_str().unwrap().ends_with("the memory budget for request bodies is exhausted"),
        "{problem}"
    );
    // Closed connections release their share.
    drop(sockets);
    for _ in 0..500 {
        if post([127, 0, 0, 2]).await.starts_with("HTTP/1.1 201") {
            return;
        }
    }
    panic!("the room never comes back");
}

#[tokio::test]
async fn puts_that_drip_keep_nobody_from_writing() {
    let kit = Kit::with(|server| server.settings(writable())).await;
    let mut dripping = Vec::new();
    for number in 0..8 {
        let socket = TcpStream::connect(kit.server.addr()).await.unwrap();
        let path = format!("/s3/wigwag/drip/{number}");
        dripping.push(held(socket, &path, "PUT", 64 * 1024 * 1024, 1_000).await);
    }
    for number in 0..8 {
        let put = kit.request(Method::PUT, &format!("/s3/wigwag/real/{number}")).body(vec![b'x'; 1024 * 1024]);
        let put = tokio::time::timeout(Duration::from_secs(10), answer(put)).await;
        assert_eq!(put.expect("it is kept waiting").status.as_u16(), 200);
    }
}

#[tokio::test]
async fn a_body_that_drips_is_cut_off_however_steadily() {
    let settings = settings(|settings| {
        settings.body_timeout = Duration::from_millis(300);
        settings.body_rate_min = 1024 * 1024;
        settings.s3_write = true;
    });
    let kit = Kit::with(|server| server.settings(settings)).await;
    for (method, path, code) in [("PUT", "/s3/wigwag/a", "RequestTimeout"), ("POST", "/v1/runs", "body_timeout")] {
        let socket = TcpStream::connect(kit.server.addr()).await.unwrap();
        let (mut read, mut write) = held(socket, path, method, 1_000_000, 10).await.into_split();
        let drip = tokio::spawn(async move {
            while write.write_all(b" ").await.is_ok() {
                System.sleep(Duration::from_millis(20)).await;
            }
        });
        let mut said = vec![0; 64 * 1024];
        let got = tokio::time::timeout(Duration::from_secs(10), read.read(&mut said)).await;
        let got = got.expect("it is read for ever").unwrap();
        let said = String::from_utf8_lossy(&said[..got]).into_owned();
        drip.abort();
        assert!(said.contains(code), "{path}: {said}");
    }
}

#[tokio::test]
async fn failed_authentications_are_slowed_down_and_good_ones_are_not() {
    let settings = settings(|settings| settings.failed_auth_rate = Some(Rate { per_second: 5, burst: 5 }));
    let kit = Kit::with(|server| server.auth(admin()).settings(settings)).await;
    let began = System.boot();
    for _ in 0..10 {
        with(&kit, "a-wrong-token-0123456789", Method::GET, "/v1/runs", None).await.problem("not_authenticated");
    }
    let took = System.boot() - began;
    assert!(took >= Duration::from_millis(900), "five at once, five at five a second: {took:?}");
    // More concurrent requests than fit into the longest delay.
    let requests: Vec<_> =
        (0..60).map(|_| kit.request(Method::GET, "/v1/runs").bearer_auth("a-wrong-token-0123456789")).collect();
    let mut wrong = tokio::spawn(async move { futures_util::future::join_all(requests.into_iter().map(answer)).await });
    with(&kit, TOKEN, Method::GET, "/v1/runs", None).await.ok(200);
    assert!(!wrong.is_finished(), "while they wait, who knows the token does not");
    let answers = (&mut wrong).await.unwrap();
    let (refused, late): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 429);
    assert!(refused.len() > 10 && late.len() > 10, "{} and {}", refused.len(), late.len());
    for answer in refused {
        answer.problem("too_many_attempts");
    }
}

#[tokio::test]
async fn addresses_and_tokens_have_their_rates() {
    let rate = Some(Rate { per_second: 1, burst: 3 });
    let limited = settings(|settings| (settings.address_rate, settings.address_rate_on_loopback) = (rate, true));
    let kit = Kit::with(|server| server.settings(limited)).await;
    for _ in 0..3 {
        kit.get("/v1/runs").await.ok(200);
    }
    let refused = kit.get("/v1/runs").await;
    assert_eq!(refused.header("retry-after"), "1");
    refused.problem("rate_limited");
    kit.get("/v1/health").await.ok(200);
    let mut other = from([127, 0, 0, 9], kit.server.addr()).await;
    other.write_all(b"GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(all(&mut other).await.starts_with("HTTP/1.1 200"));

    let second = "another-token-of-the-tests-0123456789";
    let auth = admin().token("bob", second, [Scope::RunsRead]).unwrap();
    let settings = settings(|settings| settings.token_rate = rate);
    let kit = Kit::with(|server| server.auth(auth).settings(settings)).await;
    for _ in 0..3 {
        with(&kit, TOKEN, Method::GET, "/v1/runs", None).await.ok(200);
    }
    with(&kit, TOKEN, Method::GET, "/v1/runs", None).await.problem("rate_limited");
    with(&kit, second, Method::GET, "/v1/runs", None).await.ok(200);
}

#[tokio::test]
async fn the_rate_of_an_address_applies_to_this_machine_only_if_that_is_set() {
    let limited = settings(|settings| {
        settings.address_rate = Some(Rate { per_second: 1, burst: 3 });
        settings.trusted_proxies = vec![[127, 0, 0, 1].into()];
    });
    let kit = Kit::with(|server| server.auth(admin()).settings(limited)).await;
    for _ in 0..20 {
        with(&kit, TOKEN, Method::GET, "/v1/runs", None).await.ok(200);
    }
    let ask = |path: &str, client: &'static str| {
        let request = kit.request(Method::GET, path).bearer_auth(TOKEN).header("x-forwarded-for", client);
        answer(request)
    };
    for _ in 0..3 {
        ask("/v1/runs", "9.9.9.9").await.ok(200);
    }
    ask("/v1/runs", "9.9.9.9").await.problem("rate_limited");
    // Clients of a bucket know this response and repeat the request.
    let refused = ask("/s3/wigwag/a", "9.9.9.9").await;
    assert!(refused.status == 503 && refused.text.contains("<Code>SlowDown</Code>"), "{}", refused.text);
    // A forged address does not make a client of the proxy local.
    ask("/v1/runs", "127.0.0.1, 9.9.9.9").await.problem("rate_limited");
    ask("/v1/runs", "8.8.8.8").await.ok(200);
}

#[tokio::test]
async fn an_access_key_has_its_rate() {
    let settings = settings(|settings| settings.token_rate = Some(Rate { per_second: 2, burst: 2 }));
    let keys = S3Keys::new().read_only("worker", SECRET).unwrap();
    let kit = Kit::with(|server| server.auth(admin()).s3(keys).settings(settings)).await;
    let store = bucket(&kit, "worker");
    let began = System.boot();
    for _ in 0..5 {
        // The client retries after a `SlowDown`.
        assert!(store.get("nothing").await.unwrap().is_none());
    }
    let took = System.boot() - began;
    assert!(took >= Duration::from_secs(1), "two at once, three at two a second: {took:?}");
}

#[tokio::test]
async fn one_address_never_has_all_connections() {
    let kit = Kit::with(|server| server.settings(settings(|settings| settings.address_connections_max = 4))).await;
    let server = kit.server.addr();
    let ask = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut socket = from([127, 0, 0, 2], server).await;
        socket.write_all(ask).await.unwrap();
        assert!(some(&mut socket).await.starts_with("HTTP/1.1 200"));
        open.push(socket);
    }
    let mut fifth = from([127, 0, 0, 2], server).await;
    let _ = fifth.write_all(ask).await;
    let mut buffer = [0; 16];
    let read = tokio::time::timeout(Duration::from_secs(10), fifth.read(&mut buffer)).await;
    assert!(matches!(read.expect("it is neither served nor closed"), Ok(0) | Err(_)));
    kit.get("/v1/health").await.ok(200);
    drop(open);
    for _ in 0..500 {
        let mut socket = from([127, 0, 0, 2], server).await;
        let _ = socket.write_all(ask).await;
        if matches!(socket.read(&mut buffer).await, Ok(1..)) {
            return;
        }
        System.sleep(Duration::from_millis(10)).await;
    }
    panic!("the places never come back");
}

fn with_auth(auth: Auth) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.auth = auth;
    credentials
}

#[tokio::test]
async fn tokens_are_replaced_under_connections_that_stay() {
    let kit = Kit::with(|server| server.auth(admin())).await;
    let mut socket = TcpStream::connect(kit.server.addr()).await.unwrap();
    let ask =
        |token: &str| format!("GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
    socket.write_all(ask(TOKEN).as_bytes()).await.unwrap();
    assert!(some(&mut socket).await.starts_with("HTTP/1.1 200"));
    let error = kit.server.reload(with_auth(Auth::new())).unwrap_err();
    assert!(error.to_string().contains("would be open"), "{error}");
    socket.write_all(ask(TOKEN).as_bytes()).await.unwrap();
    assert!(some(&mut socket).await.starts_with("HTTP/1.1 200"), "a refused reload changes nothing");
    let second = "another-token-of-the-tests-0123456789";
    kit.server.reload(with_auth(Auth::new().token("bob", second, [Scope::RunsRead]).unwrap())).unwrap();
    socket.write_all(ask(TOKEN).as_bytes()).await.unwrap();
    assert!(some(&mut socket).await.starts_with("HTTP/1.1 401"));
    socket.write_all(ask(second).as_bytes()).await.unwrap();
    assert!(some(&mut socket).await.starts_with("HTTP/1.1 200"), "on the same connection");
}

fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn https(root: &str, identity: Option<&str>) -> reqwest::Client {
    let root = reqwest::Certificate::from_pem(root.as_bytes()).unwrap();
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([root]);
    let builder = match identity {
        Some(pem) => builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap()),
        None => builder,
    };
    builder.build().unwrap()
}

#[tokio::test]
async fn a_certificate_is_replaced_under_connections_that_stay() {
    let ((old, old_key), (new, new_key)) = (certificate(), certificate());
    let tls = |pem: &str, key: &str| Tls::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
    let kit = Kit::with(|server| server.tls(tls(&old, &old_key))).await;
    let url = format!("https://localhost:{}/v1/health", kit.server.addr().port());
    let connected = https(&old, None);
    answer(connected.get(&url)).await.ok(200);
    let mut credentials = Credentials::default();
    credentials.tls = Some(tls(&new, &new_key));
    kit.server.reload(credentials).unwrap();
    answer(connected.get(&url)).await.ok(200);
    answer(https(&new, None).get(&url)).await.ok(200);
    assert!(https(&old, None).get(&url).send().await.is_err(), "new connections get the new one");
    assert!(kit.server.reload(Credentials::default()).is_err(), "TLS is not turned off");
}

#[tokio::test]
async fn clients_without_a_certificate_of_the_authority_are_not_served() {
    let (pem, key) = certificate();
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(params, authority_key);
    let client_key = rcgen::KeyPair::generate().unwrap();
    let client =
        rcgen::CertificateParams::new(vec!["worker".to_owned()]).unwrap().signed_by(&client_key, &issuer).unwrap();
    let tls = Tls::with_client_authority(pem.as_bytes(), key.as_bytes(), authority.pem().as_bytes()).unwrap();
    let kit = Kit::with(|server| server.tls(tls)).await;
    let url = format!("https://localhost:{}/v1/health", kit.server.addr().port());
    let identity = format!("{}{}", client.pem(), client_key.serialize_pem());
    answer(https(&pem, Some(&identity)).get(&url)).await.ok(200);
    assert!(https(&pem, None).get(&url).send().await.is_err(), "without a certificate");
    let (stranger, stranger_key) = certificate();
    let identity = format!("{stranger}{stranger_key}");
    assert!(https(&pem, Some(&identity)).get(&url).send().await.is_err(), "with a certificate of another authority");
    assert!(Tls::with_client_authority(pem.as_bytes(), key.as_bytes(), b"").is_err());
}

fn seconds_from_now(seconds: i64) -> i64 {
    i64::try_from(System.wall().micros() / 1_000_000).unwrap() + seconds
}

#[tokio::test]
async fn a_jwt_is_five_seconds_off_at_most_and_meant_for_this_server() {
    let kit = Kit::with(|server| server.auth(Auth::new().jwt_hs256(HS256).unwrap().audience("wigwag"))).await;
    let token = |claims: Value| jwt("HS256", HS256, &claims);
    let claims = |exp: i64| json!({"sub": "ada", "exp": seconds_from_now(exp), "aud": "wigwag", "scope": "runs:read"});
    with(&kit, &token(claims(60)), Method::GET, "/v1/runs", None).await.ok(200);
    with(&kit, &token(claims(-2)), Method::GET, "/v1/runs", None).await.ok(200);
    with(&kit, &token(claims(-30)), Method::GET, "/v1/runs", None).await.problem("not_authenticated");
    let mut other = claims(60);
    other["aud"] = json!("another-service");
    with(&kit, &token(other), Method::GET, "/v1/runs", None).await.problem("not_authenticated");
    let mut none = claims(60);
    none.as_object_mut().unwrap().remove("aud");
    with(&kit, &token(none), Method::GET, "/v1/runs", None).await.problem("not_authenticated");
    let soon = seconds_from_now(30);
    let early = json!({"sub": "ada", "exp": seconds_from_now(60), "nbf": soon, "aud": "wigwag", "scope": "runs:read"});
    with(&kit, &token(early), Method::GET, "/v1/runs", None).await.problem("not_authenticated");
}

#[tokio::test]
async fn a_token_ends_when_it_expires() {
    let now = System.wall().micros();
    let expiring = |micros: u64| {
        let hash = Auth::hash(TOKEN);
        Auth::new().token_hash_until("ada", &hash, [Scope::RunsRead], Time::from_micros(micros)).unwrap()
    };
    let kit = Kit::with(|server| server.auth(expiring(now + 3_600_000_000))).await;
    with(&kit, TOKEN, Method::GET, "/v1/runs", None).await.ok(200);
    kit.server.reload(with_auth(expiring(now - 1))).unwrap();
    with(&kit, TOKEN, Method::GET, "/v1/runs", None).await.problem("not_authenticated");
}

#[tokio::test]
async fn control_is_recorded_in_the_run_with_the_callers_name() {
    let kit = Kit::with(|server| server.auth(admin())).await;
    let post = |path: &'static str, body| with(&kit, TOKEN, Method::POST, path, Some(body));
    post("/v1/runs", json!({"type": "nap", "id": "n"})).await.ok(201);
    post("/v1/runs/n/pause", json!({})).await.ok(202);
    let history = || async { with(&kit, TOKEN, Method::GET, "/v1/runs/n/history", None).await.ok(200).to_string() };
    let recorded = |kind: &'static str| async move {
        for _ in 0..500 {
            let text = history().await;
            if text.contains(kind) {
                return text;
            }
            System.sleep(Duration::from_millis(10)).await;
        }
        panic!("no {kind}: {}", history().await);
    };
    let paused = recorded("run.paused").await;
    assert!(paused.contains("\"by\":\"ada\""), "{paused}");
    post("/v1/runs/n/resume", json!({})).await.ok(202);
    recorded("run.resumed").await;
    post("/v1/runs/n/cancel", json!({"reason": "enough"})).await.ok(202);
    let cancelled = recorded("run.cancel_requested").await;
    assert_eq!(cancelled.matches("\"by\":\"ada\"").count(), 3, "{cancelled}");
}

/// Returns the callers that a log names for events of a kind.
fn callers(history: &Value, kind: &str) -> Vec<Value> {
    let entries = history["items"].as_array().into_iter().flatten();
    let events = entries.flat_map(|entry| entry["events"].as_array().into_iter().flatten());
    events.filter(|event| event["type"] == kind).map(|event| event["by"].clone()).collect()
}

#[tokio::test]
async fn restarts_migrations_and_control_of_tasks_are_recorded_with_the_callers_name() {
    let kit = Kit::with(|server| server.auth(admin())).await;
    let post = |path: &'static str, body| with(&kit, TOKEN, Method::POST, path, Some(body));
    let recorded = |path: String, kind: &'static str| {
        let kit = &kit;
        async move {
            let mut history = Value::Null;
            for _ in 0..500 {
                history = with(kit, TOKEN, Method::GET, &path, None).await.ok(200);
                let by = callers(&history, kind);
                if !by.is_empty() {
                    return by;
                }
                System.sleep(Duration::from_millis(10)).await;
            }
            panic!("no {kind}: {history}")
        }
    };
    post("/v1/runs", json!({"type": "echo", "id": "e", "input": 1})).await.ok(201);
    with(&kit, TOKEN, Method::GET, "/v1/runs/e/result?timeout=20s", None).await.ok(200);
    post("/v1/runs/e/restart", json!({})).await.ok(202);
    assert_eq!(recorded("/v1/runs/e/history".into(), "run.restarted").await, ["ada"]);
    post("/v1/runs", json!({"type": "nap", "id": "n"})).await.ok(201);
    post("/v1/runs/n/pause", json!({})).await.ok(202);
    recorded("/v1/runs/n/history".into(), "run.paused").await;
    post("/v1/runs/n/migrate", json!({})).await.ok(202);
    assert_eq!(recorded("/v1/runs/n/history".into(), "run.migrated").await, ["ada"]);
    let task = post("/v1/tasks", json!({"type": "hopeless", "input": 1})).await.ok(201);
    let task = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    recorded(format!("{task}/history"), "run.failed").await;
    with(&kit, TOKEN, Method::POST, &format!("{task}/restart"), Some(json!({}))).await.ok(202);
    assert_eq!(recorded(format!("{task}/history"), "run.restarted").await, ["ada"]);
}

/// Settings that end like bounds and are times, or parts of a bound.
const NO_BOUNDS: [&str; 5] = ["wait_max", "seen_for_max", "total_bytes_max", "address_bytes_max", "caller_bytes_max"];

#[test]
fn the_table_of_limits_has_every_bound_of_the_settings() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let limits = page.split("## Limits").nth(1).unwrap().split("\n## ").next().unwrap();
    let shown = format!("{:?}", Settings::default());
    let (before, hub) = shown.split_once(" hub: Settings {").unwrap();
    let is_bound = |name: &&str| {
        let ends = ["_max", "_rate", "bodies", "_frames", "_above"];
        (*name == "rate" || ends.iter().any(|end| name.ends_with(end))) && !NO_BOUNDS.contains(name)
    };
    let names = |text: &str| -> Vec<String> {
        let words = text.split([' ', '{']).filter_map(|word| word.strip_suffix(':'));
        words.filter(is_bound).map(str::to_owned).collect()
    };
    let of_hub = |name: String| if name == "hub_connections_max" { name } else { format!("hub.{name}") };
    let all: Vec<String> = names(before).into_iter().chain(names(hub).into_iter().map(of_hub)).collect();
    assert!(all.len() > 25, "{all:?}");
    for name in all {
        assert!(limits.contains(&format!("`{name}`")), "docs/security.md has no row for `{name}`");
    }
}
