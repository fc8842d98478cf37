//! Real S3 servers on free loopback ports, for as long as the tests run.
//!
//! A server is ready when a signed put and get of a known object succeed, not when its port is open.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wigwag_store::{Batch, Bucket, BucketSettings, Store as _};

/// The bucket that every server has.
const BUCKET: &str = "wigwag";
/// Access key and secret of every server.
const KEY: &str = "test";
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Running servers; stopped on drop.
#[derive(Debug)]
pub(crate) struct Servers {
    running: Vec<Server>,
    folder: PathBuf,
    bin: PathBuf,
}

#[derive(Debug)]
struct Server {
    name: &'static str,
    endpoint: String,
    process: Child,
    start: fn(&Path, &Path, u16) -> Command,
}

impl Servers {
    pub(crate) fn start(bin: &Path, skipped: &mut Vec<String>) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("wigwag-servers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let bin = &bin.canonicalize().map_err(|error| error.to_string())?;
        let mut servers = Self { running: Vec::new(), folder: folder.clone(), bin: bin.clone() };
        for (name, start) in [
            ("SEAWEEDFS", seaweedfs as fn(&Path, &Path, u16) -> Command),
            ("MINISTACK", ministack),
            ("MOTO", moto),
            ("RCLONE", rclone),
        ] {
            let data = folder.join(name.to_lowercase());
            match Server::start(name, start, bin, &data) {
                Ok(server) => servers.running.push(server),
                Err(error) => skipped.push(format!("{name} did not start: {error}")),
            }
        }
        for server in &mut servers.running {
            let mut ready = server.wait_until_ready();
            // Another process may have bound the port since it was found free.
            if ready.is_err() && server.has_ended() {
                *server = Server::start(server.name, server.start, bin, &folder.join(server.name.to_lowercase()))
                    .map_err(|error| error.to_string())?;
                ready = server.wait_until_ready();
            }
            if let Err(error) = ready {
                let log =
                    std::fs::read_to_string(folder.join(server.name.to_lowercase()).join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(5).collect();
                return Err(format!("{} is not ready: {error}\n{}", server.name, tail.join("\n")));
            }
            eprintln!("== {} serves at {}", server.name, server.endpoint);
        }
        Ok(servers)
    }

    /// Returns the environment variables with the servers' addresses for the tests.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let addresses =
            self.running.iter().map(|server| (format!("WIGWAG_TEST_{}", server.name), server.endpoint.clone()));
        let line = seaweedfs_line(&self.bin).join("\n");
        // Third-party tools, such as rclone and a Python with boto3, are installed next to the servers.
        let tools = self.bin.display().to_string();
        let more = [("WIGWAG_TEST_SEAWEEDFS_LINE".to_owned(), line), ("WIGWAG_TEST_TOOLS".to_owned(), tools)];
        let addresses = addresses.chain(more);
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name.to_owned(), KEY.to_owned()));
        let tools = [("WIGWAG_TEST_TOOLS".to_owned(), self.bin.display().to_string())];
        addresses.chain(keys).chain(tools).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.running {
            let _ = server.process.kill();
            let _ = server.process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    fn start(
        name: &'static str,
        command: fn(&Path, &Path, u16) -> Command,
        bin: &Path,
        data: &Path,
    ) -> std::io::Result<Self> {
        std::fs::create_dir_all(data)?;
        let port = free_port()?;
        let log = File::create(data.join("log"))?;
        let process = command(&bin.canonicalize()?, data, port)
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self { name, endpoint: format!("http://127.0.0.1:{port}"), process, start: command })
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_some())
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let began = Instant::now();
        loop {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            make_bucket(&self.endpoint);
            match runtime.block_on(put_and_get(&self.endpoint)) {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > READY_WITHIN => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

async fn put_and_get(endpoint: &str) -> Result<(), String> {
    let mut settings = BucketSettings::default();
    settings.endpoint = Some(endpoint.to_owned());
    settings.keys = Some((KEY.to_owned(), KEY.to_owned()));
    let bucket = Bucket::open(&format!("s3://{BUCKET}"), &settings).map_err(|error| error.to_string())?;
    bucket.write(Batch::new().put("ready", "yes")).await.map_err(|error| error.to_string())?;
    match bucket.get("ready").await {
        Ok(Some(object)) if object.body == "yes" => Ok(()),
        other => Err(format!("the object that was put reads as {other:?}")),
    }
}

/// Test servers create a bucket for any client; the other servers were started with one.
fn make_bucket(endpoint: &str) {
    let Some(address) = endpoint.strip_prefix("http://") else {
        return;
    };
    let Ok(mut stream) = TcpStream::connect(address) else {
        return;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let _ =
        write!(stream, "PUT /{BUCKET} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let _ = stream.read(&mut [0; 1024]);
}

fn seaweedfs(bin: &Path, data: &Path, port: u16) -> Command {
    let folder = data.join("data");
    let _ = std::fs::create_dir_all(&folder);
    let free = || free_port().unwrap_or_default().to_string();
    let words = seaweedfs_line(bin).into_iter().map(|word| {
        let word = word.replace("{data}", &folder.display().to_string()).replace("{s3}", &port.to_string());
        if word.contains("{port}") { word.replace("{port}", &free()) } else { word }
    });
    let words: Vec<String> = words.collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Returns the command that starts SeaweedFS. `{data}` stands for its folder, `{s3}` for the port of its S3 API, and
/// each `{port}` for another free port. Tests that kill a server start their own with it.
fn seaweedfs_line(bin: &Path) -> Vec<String> {
    let mut words: Vec<String> = vec![bin.join("weed").display().to_string()];
    let flags = ["-logtostderr=true", "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"];
    let less = ["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"];
    words.extend(flags.into_iter().chain(less).map(str::to_owned));
    words.extend(["-dir={data}".to_owned(), format!("-bucket={BUCKET}"), "-s3.port={s3}".to_owned()]);
    for name in
        ["master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3.grpc", "admin", "admin.grpc"]
    {
        let (part, kind) = name.split_once('.').unwrap_or((name, ""));
        let dot = if kind.is_empty() { "" } else { "." };
        words.push(format!("-{part}.port{dot}{kind}={{port}}"));
    }
    words
}

fn ministack(bin: &Path, data: &Path, port: u16) -> Command {
    let mut command = Command::new(bin.join("ministack"));
    command.env("BIND_HOST", "127.0.0.1").env("GATEWAY_PORT", port.to_string());
    command.env("S3_PERSIST", "1").env("S3_DATA_DIR", data.join("data"));
    command
}

fn moto(bin: &Path, _: &Path, port: u16) -> Command {
    let mut command = Command::new(bin.join("moto_server"));
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
    command
}

/// Accepts conditional headers and ignores them: wigwag must reject such a server.
fn rclone(bin: &Path, data: &Path, port: u16) -> Command {
    let mut command = Command::new(bin.join("rclone"));
    let folder = data.join("data");
    let _ = std::fs::create_dir_all(folder.join(BUCKET));
    command.args(["serve", "s3", "--config", "/dev/null", "--addr", &format!("127.0.0.1:{port}")]);
    command.args(["--auth-key", &format!("{KEY},{KEY}")]).arg(folder);
    command
}

/// Returns a port that is currently free.
fn free_port() -> std::io::Result<u16> {
    TcpListener::bind("127.0.0.1:0")?.local_addr().map(|address| address.port())
}
