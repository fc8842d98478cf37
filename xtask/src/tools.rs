//! What the tests need and a fresh machine does not have, installed by name.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The Python packages with the S3 servers and other tools of the tests; a change of it makes the environment anew.
const SERVERS: &str = include_str!("../servers.txt");

/// Where the browser test looks, too.
const BROWSERS: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// Where the tests look for nginx, too.
const NGINX: [&str; 3] = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"];

#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// What could not be had, and what goes untested for it.
    pub(crate) skipped: Vec<String>,
}

impl Tools {
    /// Whether `cargo nextest` can be used; `cargo test` does as well, without killing tests that hang.
    pub(crate) fn nextest(&mut self) -> bool {
        self.cargo_tool("nextest", "cargo-nextest", "tests run with `cargo test`, without a limit on time")
    }

    pub(crate) fn deny(&mut self) -> bool {
        self.cargo_tool("deny", "cargo-deny", "licences, bans and sources of dependencies are not checked")
    }

    fn cargo_tool(&mut self, command: &str, package: &str, otherwise: &str) -> bool {
        if quiet("cargo", &[command, "--version"]) {
            return true;
        }
        say(&format!("installing {package} (once)"));
        let installed = loud("cargo", &["install", package, "--locked"]) && quiet("cargo", &[command, "--version"]);
        if !installed {
            self.skipped.push(format!("{package} could not be installed: {otherwise}"));
        }
        installed
    }

    /// Needed to see the order of system calls.
    pub(crate) fn strace(&mut self) {
        if quiet("strace", &["--version"]) {
            return;
        }
        say("installing strace (once)");
        if !apt_install("strace") {
            self.skipped
                .push("strace could not be installed: that a write is synced before its answer is not seen".into());
        }
    }

    /// Needed to try the server behind a proxy; a test that does not find it says so.
    pub(crate) fn nginx(&mut self) {
        if NGINX.iter().any(|path| Path::new(path).exists()) {
            return;
        }
        say("installing nginx (once)");
        if !apt_install("nginx-light") && !apt_install("nginx") {
            self.skipped.push("nginx could not be installed: the server is not tried behind a proxy".into());
        }
    }

    /// Whether the TypeScript client can be tried; without a browser in Node only.
    pub(crate) fn node(&mut self) -> bool {
        if !has_node() {
            say("installing Node (once)");
            apt_install("nodejs");
            apt_install("npm");
        }
        if !has_node() {
            self.skipped.push("Node 20.10 could not be installed: the TypeScript client is not tried".into());
            return false;
        }
        let has_browser =
            || BROWSERS.iter().any(|path| Path::new(path).exists()) || std::env::var_os("CHROMIUM").is_some();
        if !has_browser() {
            say("installing Chromium (once)");
            apt_install("chromium");
        }
        if !has_browser() {
            self.skipped
                .push("Chromium could not be installed: the TypeScript client is not tried in a browser".into());
        }
        true
    }

    /// The folder with the programs of the servers and the other tools.
    pub(crate) fn servers(&mut self) -> Option<PathBuf> {
        let home = Path::new("target/test-servers");
        let (bin, mark) = (home.join("bin"), home.join("installed.txt"));
        if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == SERVERS) {
            return Some(bin);
        }
        say("installing the S3 servers and test tools (once)");
        match install_servers(home) {
            Ok(()) => {
                let _ = std::fs::write(mark, SERVERS);
                Some(bin)
            }
            Err(error) => {
                self.skipped.push(format!(
                    "the S3 servers could not be installed ({error}): nothing is tried on a real bucket"
                ));
                None
            }
        }
    }
}

fn install_servers(home: &Path) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(home);
    let shown = home.display().to_string();
    let made = quiet("python3", &["-m", "venv", &shown])
        || (apt_install("python3-venv") && quiet("python3", &["-m", "venv", &shown]));
    if !made {
        return Err("no Python environment could be made".into());
    }
    let pip = home.join("bin/pip").display().to_string();
    match loud(&pip, &["install", "--quiet", "--disable-pip-version-check", "-r", "xtask/servers.txt"]) {
        true => Ok(()),
        false => Err("pip failed".into()),
    }
}

/// From 20.10 on it has a WebSocket, if it is asked to.
fn has_node() -> bool {
    let fits = "const [major, minor] = process.versions.node.split('.'); process.exit(major > 20 || (major == 20 && minor >= 10) ? 0 : 1)";
    quiet("node", &["-e", fits]) && quiet("npm", &["--version"])
}

/// A fresh machine has no list of packages, or an old one.
fn apt_install(package: &str) -> bool {
    let install = || quiet("apt-get", &["install", "-y", "-q", package]);
    install() || (quiet("apt-get", &["update", "-q"]) && install())
}

fn say(what: &str) {
    eprintln!("== {what}");
}

fn quiet(program: &str, args: &[&str]) -> bool {
    let status =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn loud(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}
