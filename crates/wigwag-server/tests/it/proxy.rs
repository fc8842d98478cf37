//! Behind nginx with the configuration of `docs/server.md`: the API works, and a server without tokens rejects it.

use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use wigwag_server::{Auth, Rate, S3Keys, Scope, Settings};
use wigwag_store::conformance;
use wigwag_store::{Batch, Clock as _, OpenSettings, System, open};

use crate::hub_socket::Socket;
use crate::kit::{Answer, Kit, answer};

const TOKEN: &str = "a-token-of-the-tests-0123456789";
const SECRET: &str = "a secret of the tests, long enough";

/// The guide whose nginx configuration is tested.
const GUIDE: &str = include_str!("../../../../docs/server.md");

/// Returns the directives of the guide's `location` for a server at that address.
fn documented(server: &str) -> String {
    let block = GUIDE.split("```nginx\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let location = block.split("location / {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    assert!(location.contains("http://127.0.0.1:7070"), "{location}");
    location.replace("http://127.0.0.1:7070", &format!("http://{server}"))
}

/// A running nginx.
struct Nginx {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// Starts nginx with these directives in `location /`. Skips loudly where nginx is not installed.
    async fn start(location: &str) -> Option<Self> {
        let programs = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"];
        let Some(program) = programs.into_iter().find(|path| Path::new(path).exists()) else {
            conformance::skip("nginx is not installed: the server is not tested behind a proxy");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let home = folder.path().display();
        let config = format!(
            "daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;\nevents {{ }}\n\
             http {{ access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;\n\
             fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;\n\
             server {{ listen {address}; location / {{ {location} }} }} }}\n"
        );
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(&path).arg("-p").arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        for _ in 0..1_000 {
            if tokio::net::TcpStream::connect(&address).await.is_ok() {
                return Some(Self { child, address, _folder: folder });
            }
            let log = std::fs::read_to_string(folder.path().join("error.log"));
            assert!(child.try_wait().unwrap().is_none(), "nginx ended: {log:?}");
            System.sleep(Duration::from_millis(10)).await;
        }
        panic!("nginx does not listen");
    }
}

async fn ask(kit: &Kit, nginx: &Nginx, path: &str, token: Option<&str>) -> Answer {
    let request = kit.http.get(format!("http://{}{path}", nginx.address));
    answer(match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    })
    .await
}

#[tokio::test]
async fn a_server_without_tokens_is_not_opened_by_a_proxy() {
    let kit = Kit::new().await;
    let server = kit.server.addr().to_string();
    // The default configuration of nginx: HTTP/1.0, the upstream's name as `Host`, and no extra header.
    let bare = format!("proxy_pass http://{server};");
    for location in [documented(&server), bare] {
        let Some(nginx) = Nginx::start(&location).await else { return };
        for path in ["/v1/runs", "/s3/wigwag", "/v1/health"] {
            let refused = ask(&kit, &nginx, path, None).await;
            let problem: Value = refused.problem("proxy_not_allowed");
            assert!(problem["hint"].as_str().unwrap().contains("tokens"), "{problem}");
        }
    }
}

/// A server with tokens behind nginx that trusts it.
async fn behind(change: impl FnOnce(&mut Settings)) -> Option<(Kit, Nginx)> {
    let auth = Auth::new().token("ada", TOKEN, [Scope::Admin]).unwrap();
    let keys = S3Keys::new().full("worker", SECRET).unwrap();
    let mut settings = Settings::default();
    settings.public_url = Some("https://wigwag.example.com".into());
    settings.trusted_proxies = vec![IpAddr::from([127, 0, 0, 1])];
    change(&mut settings);
    let kit = Kit::with(|server| server.auth(auth).s3(keys).settings(settings)).await;
    let nginx = Nginx::start(&documented(&kit.server.addr().to_string())).await?;
    Some((kit, nginx))
}

#[tokio::test]
async fn behind_nginx_everything_works_that_works_without_it() {
    let Some((kit, nginx)) = behind(|_| {}).await else { return };
    ask(&kit, &nginx, "/v1/runs", None).await.problem("not_authenticated");
    let post = |path: &str, body: Value| {
        answer(kit.http.post(format!("http://{}{path}", nginx.address)).bearer_auth(TOKEN).json(&body))
    };
    post("/v1/runs", json!({"type": "approve", "id": "a"})).await.ok(201);

    // Events arrive while the run is in progress: nothing buffers them.
    let url = format!("http://{}/v1/runs/a/events", nginx.address);
    let mut events = kit.http.get(url).bearer_auth(TOKEN).send().await.unwrap();
    let mut seen = String::new();
    while !seen.contains("signal.waiting") {
        let part = tokio::time::timeout(Duration::from_secs(20), events.chunk()).await.expect("events are held back");
        seen.push_str(&String::from_utf8_lossy(&part.unwrap().expect("the stream ended")));
    }

    // A link's address is the public one, and the link works through the proxy.
    let link = post("/v1/links", json!({"run": "a", "name": "approval"})).await.ok(201);
    assert!(link["url"].as_str().unwrap().starts_with("https://wigwag.example.com/v1/links/"), "{link}");
    let path = link["path"].as_str().unwrap();
    answer(kit.http.post(format!("http://{}{path}", nginx.address)).json(&json!({"payload": 1}))).await.ok(200);
    ask(&kit, &nginx, "/v1/runs/a/result", Some(TOKEN)).await.ok(200);

    // Signatures cover the host, which nginx passes on.
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint = Some(format!("http://{}/s3", nginx.address));
    settings.bucket.keys = Some(("worker".into(), SECRET.into()));
    let store = open("s3://wigwag", &settings).unwrap().store;
    store.write(Batch::new().put("through/nginx", vec![b'x'; 3 * 1024 * 1024])).await.unwrap();
    assert_eq!(kit.store.get("through/nginx").await.unwrap().unwrap().body.len(), 3 * 1024 * 1024);
}

#[tokio::test]
async fn the_hub_is_reached_through_nginx() {
    let Some((_kit, nginx)) = behind(|_| {}).await else { return };
    let mut socket = Socket::try_open(nginx.address.parse().unwrap(), &[]).await.unwrap();
    let got = socket.connect(json!({"protocolVersion": "0.1.0", "token": TOKEN})).await.unwrap();
    assert_eq!(got["type"], "hub:connected", "{got}");
    let got = socket.ask("hub:register", json!({"actorAddress": "@(worker/a)"})).await;
    assert_eq!(got["type"], "hub:registered", "{got}");
}

#[tokio::test]
async fn behind_nginx_each_client_has_its_own_rate() {
    let rate = Rate { per_second: 1, burst: 3 };
    let Some((kit, nginx)) = behind(|settings| settings.address_rate = Some(rate)).await else { return };
    let ask = |client: &str| {
        // Nginx appends its peer, 127.0.0.1, which is trusted; so the address before it counts.
        let request = kit.http.request(Method::GET, format!("http://{}/v1/runs", nginx.address));
        answer(request.bearer_auth(TOKEN).header("x-forwarded-for", client))
    };
    for _ in 0..3 {
        ask("9.9.9.9").await.ok(200);
    }
    ask("9.9.9.9").await.problem("rate_limited");
    ask("8.8.8.8").await.ok(200);
}
