//! S3 tools on a live server's `/s3`: boto3 and rclone, from the folder that `WIGWAG_TEST_TOOLS` names.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use wigwag_server::{Auth, S3Keys, Scope, Tls};
use wigwag_store::conformance;
use wigwag_store::{Batch, Embedded, Store as _};

use crate::kit::Kit;
use crate::s3::SECRET;

const ID: &str = "tools";

/// Returns the program, or prints that the test is skipped.
fn tool(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os("WIGWAG_TEST_TOOLS").map(|folder| PathBuf::from(folder).join(name));
    let found = found.filter(|path| path.exists());
    if found.is_none() {
        conformance::skip(&format!("`{name}` is not tried on `/s3`; `cargo xtask test` installs it"));
    }
    found
}

/// A server over an embedded store with a run that waits, and more keys than a page has.
struct World {
    kit: Kit,
    folder: TempDir,
    entry: String,
    state: String,
}

impl World {
    async fn new(tls: Option<Tls>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Embedded::open(folder.path().join("store")).unwrap());
        let keys = S3Keys::new().full(ID, SECRET).unwrap();
        let auth = Auth::new().token("ada", "a token of the tests", [Scope::Admin]).unwrap();
        let kit = Kit::on(store, |server| {
            let server = server.s3(keys).auth(auth);
            if let Some(tls) = tls { server.tls(tls) } else { server }
        })
        .await;
        let run = kit.client().start("approve", "a holiday").id("holiday").await.unwrap();
        while run.waiting().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let many = (0..1_100).fold(Batch::new(), |batch, number| batch.put(format!("many/{number:05}"), "x"));
        kit.store.write(many).await.unwrap();
        let log = kit.store.list("workflow/holiday/log/", "", 1).await.unwrap();
        let entry = log.entries[0].key.clone();
        Self { kit, folder, entry, state: "workflow/holiday/state.json".into() }
    }

    async fn hash(&self, key: &str) -> String {
        let object = self.kit.store.get(key).await.unwrap().unwrap();
        Sha256::digest(&object.body).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Runs the program while the server runs in this process.
async fn run(mut command: Command) -> Output {
    command.env_remove("AWS_SESSION_TOKEN").env_remove("AWS_PROFILE").env_remove("AWS_ENDPOINT_URL");
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command.env("NO_PROXY", "127.0.0.1,localhost");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn boto3(tls: bool) {
    let Some(python) = tool("python") else { return };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = made.cert.pem();
    let certificate = Tls::from_pem(pem.as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    let world = World::new(tls.then_some(certificate)).await;
    let trusted = world.folder.path().join("trusted.pem");
    std::fs::write(&trusted, pem).unwrap();
    let port = world.kit.server.addr().port();
    let scheme = if tls { "https" } else { "http" };
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools.py"));
    command.args([&format!("{scheme}://localhost:{port}/s3"), ID, SECRET]);
    command.arg(if tls { trusted.as_path() } else { "-".as_ref() });
    command.args([&world.entry, &world.state]);
    let ran = run(command).await;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let hashes: Vec<&str> = said.lines().collect();
    assert_eq!(hashes, [world.hash(&world.entry).await, world.hash(&world.state).await], "it read the stored objects");
    let run = world.kit.client().run("holiday").unwrap();
    run.signal("approval", "yes").await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "yes", "and the run went on");
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_lists_reads_puts_and_deletes() {
    boto3(false).await;
}

/// Over TLS boto3 sends its bodies in chunks, with a checksum behind them.
#[tokio::test(flavor = "multi_thread")]
async fn boto3_does_the_same_over_tls() {
    boto3(true).await;
}

/// rclone with a remote `w` that is the server.
async fn rclone(world: &World, secret: &str, args: &[&str]) -> Output {
    let mut command = Command::new(tool("rclone").unwrap());
    command.args(["--config", "/dev/null", "--retries", "1", "--low-level-retries", "1"]).args(args);
    for (name, value) in [
        ("TYPE", "s3"),
        ("PROVIDER", "Other"),
        ("ACCESS_KEY_ID", ID),
        ("SECRET_ACCESS_KEY", secret),
        ("FORCE_PATH_STYLE", "true"),
        ("ENDPOINT", &world.kit.url("/s3")),
    ] {
        command.env(format!("RCLONE_CONFIG_W_{name}"), value);
    }
    run(command).await
}

#[track_caller]
fn said(ran: &Output) -> String {
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_lists_reads_copies_and_deletes() {
    if tool("rclone").is_none() {
        return;
    }
    let world = World::new(None).await;
    let rclone = async |args: &[&str]| said(&rclone(&world, SECRET, args).await);
    assert!(rclone(&["lsd", "w:"]).await.contains("wigwag"));
    assert_eq!(rclone(&["lsf", "w:wigwag/many"]).await.lines().count(), 1_100);
    assert!(rclone(&["lsf", "w:wigwag"]).await.contains("workflow/"));
    let stored = world.kit.store.get(&world.state).await.unwrap().unwrap().body;
    assert_eq!(rclone(&["cat", &format!("w:wigwag/{}", world.state)]).await.as_bytes(), stored);
    let part = ["cat", "--offset", "2", "--count", "3", &format!("w:wigwag/{}", world.state)];
    assert_eq!(rclone(&part).await.as_bytes(), &stored[2..5]);

    let file = world.folder.path().join("some file");
    let bytes: Vec<u8> = (0..300_000_u32).map(|place| (place * 31 % 251) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    rclone(&["copyto", file.to_str().unwrap(), "w:wigwag/tool/some file"]).await;
    assert_eq!(world.kit.store.get("tool/some file").await.unwrap().unwrap().body, bytes);
    let back = world.folder.path().join("back");
    rclone(&["copyto", "w:wigwag/tool/some file", back.to_str().unwrap()]).await;
    assert_eq!(std::fs::read(back).unwrap(), bytes);
    rclone(&["deletefile", "w:wigwag/tool/some file"]).await;
    assert!(world.kit.store.get("tool/some file").await.unwrap().is_none());
    rclone(&["purge", "w:wigwag/many"]).await;
    assert!(world.kit.store.list("many/", "", 1).await.unwrap().entries.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_with_another_secret_is_refused() {
    if tool("rclone").is_none() {
        return;
    }
    let world = World::new(None).await;
    let ran = rclone(&world, "a secret of somebody else, as long", &["lsf", "w:wigwag"]).await;
    assert!(!ran.status.success());
    let complained = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(complained.contains("SignatureDoesNotMatch"), "{complained}");
    assert!(!complained.contains(SECRET), "{complained}");
}
