//! Security from the operator's side: rejected settings, reloaded secrets, file permissions and limits.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
#[path = "common/process.rs"]
mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::{digest, hmac};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use common::{bad, command, good, text, wigwag};
use process::Serving;

/// Creates a token, and the lines of the server's configuration for it.
fn token(folder: &Path, name: &str, more: &[&str]) -> (String, String) {
    let made = wigwag(folder, &[&["token", name, "--scope", "admin"], more].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let lines = text(&made.stderr).split("[[token]]").nth(1).map(|rest| format!("[[token]]{rest}\n")).unwrap();
    (text(&made.stdout).trim().to_owned(), lines)
}

/// Sends a request on a connection that stays open; returns status and answer.
fn ask(socket: &mut (impl Read + Write), request: &str) -> (u16, String) {
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        assert_eq!(socket.read(&mut byte).unwrap(), 1, "closed after: {}", text(&answer));
        answer.push(byte[0]);
    }
    let head = text(&answer).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    socket.read_exact(&mut body).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text(&body))
}

fn runs(socket: &mut (impl Read + Write), token: &str) -> u16 {
    let head = format!("GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    ask(socket, &head).0
}

fn post(socket: &mut TcpStream, token: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let (status, body) = ask(socket, &head);
    (status, serde_json::from_str(&body).unwrap())
}

/// Sends SIGHUP to the server.
fn hang_up(serving: &Serving) {
    let id = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
}

fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn sighup_replaces_tokens_and_link_secrets_under_connections_that_stay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wigwag.toml");
    let ((old, old_lines), (new, new_lines)) = (token(folder.path(), "old", &[]), token(folder.path(), "new", &[]));
    private(&folder.path().join("first"), "the first secret of all links");
    private(&folder.path().join("second"), "the second secret of all links");
    let common = "store = \"./data\"\nbind = \"127.0.0.1:0\"\n";
    fs::write(&file, format!("{common}{old_lines}[links]\nsecret = \"first\"\n")).unwrap();
    let mut serving = Serving::start(folder.path(), &["serve"]);
    let address = serving.address();
    let mut socket = TcpStream::connect(&address).unwrap();
    assert_eq!((runs(&mut socket, &old), runs(&mut socket, &new)), (200, 401));
    assert_eq!(post(&mut socket, &old, "/v1/runs", r#"{"type": "order", "id": "o"}"#).0, 201);
    let (status, link) = post(&mut socket, &old, "/v1/links", r#"{"run": "o", "name": "ok"}"#);
    assert_eq!(status, 201, "{link}");
    let show = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", link["path"].as_str().unwrap());

    let links = "[links]\nsecret = \"second\"\nprevious = \"first\"\n";
    fs::write(&file, format!("{common}{new_lines}{links}")).unwrap();
    hang_up(&serving);
    serving.until("action=\"reload\" outcome=\"done\"");
    assert_eq!((runs(&mut socket, &old), runs(&mut socket, &new)), (401, 200), "on the same connection");
    assert_eq!(ask(&mut socket, &show).0, 200, "the previous secret is accepted");

    fs::write(&file, format!("{common}{new_lines}[links]\nsecret = \"second\"\n")).unwrap();
    hang_up(&serving);
    serving.until("action=\"reload\" outcome=\"done\"");
    assert_eq!(ask(&mut socket, &show).0, 400, "and then not");

    // An invalid file, or one that would disable authentication, changes nothing.
    for wrong in [common.to_owned(), format!("{common}{new_lines}[jwt]\n"), "bnid = 3".to_owned()] {
        fs::write(&file, wrong).unwrap();
        hang_up(&serving);
        serving.until("action=\"reload\" outcome=\"refused\"");
        assert_eq!((runs(&mut socket, &old), runs(&mut socket, &new)), (401, 200));
    }
    let (said, code) = serving.stop("-TERM");
    assert_eq!(code, Some(0), "{said}");
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Signs a token for the audience `wigwag`, which expires in 2100.
fn jwt(secret: &str) -> String {
    let claims = r#"{"sub":"ada","aud":"wigwag","scope":"admin","exp":4102444800}"#;
    let text = format!("{}.{}", BASE64.encode(r#"{"alg":"HS256","typ":"JWT"}"#), BASE64.encode(claims));
    format!("{text}.{}", BASE64.encode(mac(secret.as_bytes(), &text)))
}

/// Asks for a list of objects, signed with the access key `worker` and this secret.
fn signed_list(secret: &str) -> String {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let (day, names, hash) = (&now[..8], "host;x-amz-content-sha256;x-amz-date", "UNSIGNED-PAYLOAD");
    let headers = format!("host:localhost\nx-amz-content-sha256:{hash}\nx-amz-date:{now}\n");
    let canonical = format!("GET\n/s3/wigwag\nlist-type=2\n{headers}\n{names}\n{hash}");
    let scope = format!("{day}/us-east-1/s3/aws4_request");
    let canonical = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let first = mac(format!("AWS4{secret}").as_bytes(), day);
    let key = ["us-east-1", "s3", "aws4_request"].iter().fold(first, |key, part| mac(&key, part));
    let signature = hex(&mac(&key, &format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{canonical}")));
    format!(
        "GET /s3/wigwag?list-type=2 HTTP/1.1\r\nHost: localhost\r\nX-Amz-Date: {now}\r\nX-Amz-Content-Sha256: {hash}\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=worker/{scope},SignedHeaders={names},Signature={signature}\r\n\r\n"
    )
}

/// Writes a certificate and its key as the files of the server.
fn certificate(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    private(&folder.join("key.pem"), &made.signing_key.serialize_pem());
    made.cert.der().clone()
}

/// Connects, trusting only this certificate.
fn connect(address: &str, root: &CertificateDer<'static>) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

#[test]
fn sighup_replaces_certificate_jwt_key_and_access_keys_under_connections_that_stay() {
    const OLD: &str = "the first secret of thirty-two bytes";
    const NEW: &str = "the second secret of thirty-two bytes";
    let folder = tempfile::tempdir().unwrap();
    let old = certificate(folder.path());
    let secrets = |text| ["jwt", "s3"].iter().for_each(|name| private(&folder.path().join(name), text));
    secrets(OLD);
    let file = "store = \"./data\"\nbind = \"127.0.0.1:0\"\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n\
                [jwt]\nhs256_secret = \"jwt\"\naudience = \"wigwag\"\n[[s3_key]]\nid = \"worker\"\nsecret = \"s3\"\n";
    fs::write(folder.path().join("wigwag.toml"), file).unwrap();
    let mut serving = Serving::start(folder.path(), &["serve"]);
    let address = serving.address();
    let mut socket = connect(&address, &old).unwrap();
    let answers = |socket: &mut StreamOwned<ClientConnection, TcpStream>| {
        let tokens = [OLD, NEW].map(|secret| runs(socket, &jwt(secret)));
        (tokens, [OLD, NEW].map(|secret| ask(socket, &signed_list(secret)).0))
    };
    assert_eq!(answers(&mut socket), ([200, 401], [200, 403]));

    let new = certificate(folder.path());
    secrets(NEW);
    hang_up(&serving);
    serving.until("action=\"reload\" outcome=\"done\"");
    assert_eq!(answers(&mut socket), ([401, 200], [403, 200]), "on the same connection");
    assert_eq!(answers(&mut connect(&address, &new).unwrap()), ([401, 200], [403, 200]));
    assert!(connect(&address, &old).is_err(), "new connections get the new certificate");
    let (said, code) = serving.stop("-TERM");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn insecure_server_settings_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    private(&folder.path().join("secret"), "a secret of thirty-two bytes, at least");
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let of_test = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let token = |hash: &str| format!("[[token]]\nname = \"ci\"\nsha256 = \"{hash}\"\nscopes = [\"admin\"]\n");
    let table = [
        ("public_url = \"https://wigwag.example.com\"".to_owned(), "there are no tokens", "wigwag token"),
        ("trusted_proxies = [\"127.0.0.1\"]".to_owned(), "there are no tokens", "wigwag token"),
        ("[jwt]".to_owned(), "`[jwt]` has no verification key", "hs256_secret"),
        ("[jwt]\naudience = \"wigwag\"".to_owned(), "`[jwt]` has no verification key", "hs256_secret"),
        ("[jwt]\nhs256_secret = \"secret\"".to_owned(), "JWT `audience` is missing", "any_audience"),
        ("[[s3_key]]\nid = \"w\"\nsecret = \"secret\"".to_owned(), "no tokens: `/v1` would be public", "wigwag token"),
        (token(empty), "well-known word", "wigwag token"),
        (token(of_test), "is that of the well-known word `test`", "wigwag token"),
        (token("…"), "is not 64 hexadecimal digits", "wigwag token"),
    ];
    for (lines, error, hint) in table {
        fs::write(folder.path().join("w.toml"), format!("bind = \"127.0.0.1:0\"\n{lines}\n")).unwrap();
        bad(&wigwag(folder.path(), &["serve", "--config", "w.toml"]), 2, error, hint);
    }
}

#[test]
fn an_expiring_token_shows_its_expiry_and_is_rejected_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let (token, lines) = token(folder.path(), "ci", &["--expires", "1s"]);
    assert!(lines.contains("\nexpires = \"20"), "{lines}");
    let text = format!("store = \"./data\"\nbind = \"127.0.0.1:0\"\n{lines}");
    fs::write(folder.path().join("wigwag.toml"), text).unwrap();
    let mut serving = Serving::start(folder.path(), &["serve"]);
    let mut socket = TcpStream::connect(serving.address()).unwrap();
    let refused = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        runs(&mut socket, &token) == 401
    });
    assert!(refused, "it never ends");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_store_and_its_secrets_are_for_one_user() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
    serving.address();
    let store = folder.path().join(".wigwag");
    assert_eq!(mode(&store), 0o700);
    for name in ["wigwag.db", "wigwag.db-wal", "wigwag.db-shm", "link-secret", "locks/writer.lock"] {
        assert_eq!(mode(&store.join(name)), 0o600, "{name}");
    }
    for process in fs::read_dir(store.join("processes")).unwrap() {
        assert_eq!(mode(&process.unwrap().path()), 0o600);
    }
    let (said, _) = serving.stop("-TERM");
    assert!(!said.contains("can read"), "{said}");

    fs::set_permissions(store.join("wigwag.db"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(store.join("link-secret"), fs::Permissions::from_mode(0o640)).unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
    let warning = serving.until("other users of this machine can read the store");
    assert!(warning.contains("chmod 600"), "{warning}");
    serving.until("link-secret` (mode 640)");

    fs::write(folder.path().join("token"), "a-token-0123456789").unwrap();
    fs::set_permissions(folder.path().join("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let address = serving.address();
    let server = format!("http://{address}");
    let listed = wigwag(folder.path(), &["list", "--server", &server, "--token-file", "token"]);
    assert!(
        text(&listed.stderr).contains("warning: other users can read the secret in `token` (mode 644)"),
        "{listed:?}"
    );
}

#[test]
fn the_limit_on_open_files_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("ulimit -Sn 64; exec {} serve --bind 127.0.0.1:0", env!("CARGO_BIN_EXE_wigwag"));
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(folder.path()).stdin(Stdio::null());
    let mut serving = Serving::spawn(command);
    serving.address();
    let limits = fs::read_to_string(format!("/proc/{}/limits", serving.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = files.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert!(soft > 64 && soft == hard.min(1_048_576), "{files}");
}

#[test]
fn secrets_are_not_sent_over_plain_http_without_a_flag() {
    let folder = tempfile::tempdir().unwrap();
    // A documentation address: the command fails before it connects.
    let server = "http://192.0.2.1:7070";
    for args in [
        &["list", "--server", server][..],
        &["hub", "actors", "--server", server],
        &["hub", "send", "@(a)", "x", "--server", server],
    ] {
        let output = command(folder.path(), args).env("WIGWAG_TOKEN", "s3cret-token").output().unwrap();
        bad(
            &output,
            2,
            "unencrypted HTTP to `http://192.0.2.1:7070` would expose the token in `WIGWAG_TOKEN`",
            "--allow-http",
        );
        assert!(!text(&output.stderr).contains("s3cret"), "{output:?}");
    }
    let remote = |secret: &str| {
        let mut command = command(folder.path(), &["ls", "--store", "http://192.0.2.1:7070/s3"]);
        command.env("AWS_ACCESS_KEY_ID", "worker").env("AWS_SECRET_ACCESS_KEY", secret).output().unwrap()
    };
    bad(&remote("s3cret-of-the-key"), 1, "would expose the secret of access key `worker`", "WIGWAG_ALLOW_HTTP");
    // Loopback is allowed.
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
    let here = format!("http://{}", serving.address());
    let args = ["start", "order", "--id", "o-1", "--server", &here];
    let started = command(folder.path(), &args).env("WIGWAG_TOKEN", "s3cret-token").output().unwrap();
    assert_eq!(good(&started).trim(), "o-1");
}

#[test]
fn a_development_server_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
    serving.address();
    let (said, code) = serving.stop("-HUP");
    assert_eq!(code, Some(0), "{said}");
}
