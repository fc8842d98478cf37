//! Installs the tools that the tests need and a fresh machine lacks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The Python packages with the S3 servers and other test tools; changing it rebuilds the environment.
const SERVERS: &str = include_str!("../servers.txt");

/// Paths of a browser, also used by the browser test.
const BROWSERS: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// Paths of nginx, also used by the tests.
const NGINX: [&str; 3] = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"];

#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// Tools that could not be installed, and the tests skipped for each.
    pub(crate) skipped: Vec<String>,
}

impl Tools {
    /// Whether `cargo nextest` is available; `cargo test` works too, without killing tests that hang.
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
        // Not optimised: it runs for seconds, and an optimised build of it takes minutes more.
        let installed =
            loud("cargo", &["install", package, "--locked", "--debug"]) && quiet("cargo", &[command, "--version"]);
        if !installed {
            self.skipped.push(format!("{package} could not be installed: {otherwise}"));
        }
        installed
    }

    /// Whether mdBook can be used, which builds the documentation site.
    pub(crate) fn mdbook(&mut self) -> bool {
        let works = || quiet("mdbook", &["--version"]);
        if works() {
            return true;
        }
        say("installing mdbook (once)");
        let installed =
            loud("cargo", &["install", "mdbook", "--locked", "--debug", "--no-default-features"]) && works();
        if !installed {
            self.skipped.push("mdbook could not be installed: the documentation site is not built".into());
        }
        installed
    }

    /// Installs strace, to observe the order of system calls.
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

    /// Installs nginx, to test the server behind a proxy; the test reports when it is missing.
    pub(crate) fn nginx(&mut self) {
        if NGINX.iter().any(|path| Path::new(path).exists()) {
            return;
        }
        say("installing nginx (once)");
        if !apt_install("nginx-light") && !apt_install("nginx") {
            self.skipped.push("nginx could not be installed: the server is not tried behind a proxy".into());
        }
    }

    /// Whether the TypeScript client can be tested; without a browser, in Node only.
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
        let has_browser = || chromium().is_some();
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

    /// Returns the interpreter of an environment with these packages; a change of them makes a new one.
    pub(crate) fn python(&mut self, home: &Path, packages: &str) -> Option<PathBuf> {
        let (program, mark) = (home.join("bin/python"), home.join("installed.txt"));
        if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == packages) {
            return std::path::absolute(program).ok();
        }
        say("installing the tools of the Python package (once)");
        let is_new_enough = quiet("python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]);
        let installed = match is_new_enough {
            true => install_packages(home, "xtask/python.txt"),
            false => Err("Python 3.10 or newer is needed".into()),
        };
        match installed {
            Ok(()) => {
                let _ = std::fs::write(mark, packages);
                std::path::absolute(program).ok()
            }
            Err(error) => {
                self.skipped.push(format!("the Python package is not tried: {error}"));
                None
            }
        }
    }

    /// Returns the folder with the programs of the servers and the other tools.
    pub(crate) fn servers(&mut self) -> Option<PathBuf> {
        let home = Path::new("target/test-servers");
        let (bin, mark) = (home.join("bin"), home.join("installed.txt"));
        if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == SERVERS) {
            return Some(bin);
        }
        say("installing the S3 servers and test tools (once)");
        match install_packages(home, "xtask/servers.txt") {
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

/// Returns the path of the browser: `CHROMIUM`, or else an installed one.
pub(crate) fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    named.or_else(|| BROWSERS.iter().map(PathBuf::from).find(|path| path.exists()))
}

fn install_packages(home: &Path, packages: &str) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(home);
    let shown = home.display().to_string();
    let made = quiet("python3", &["-m", "venv", &shown])
        || (apt_install("python3-venv") && quiet("python3", &["-m", "venv", &shown]));
    if !made {
        return Err("no Python environment could be made".into());
    }
    let pip = home.join("bin/pip").display().to_string();
    match loud(&pip, &["install", "--quiet", "--disable-pip-version-check", "-r", packages]) {
        true => Ok(()),
        false => Err("pip failed".into()),
    }
}

/// Whether Node has a WebSocket, which is so from 20.10 on behind a flag.
fn has_node() -> bool {
    let fits = "const [major, minor] = process.versions.node.split('.'); process.exit(major > 20 || (major == 20 && minor >= 10) ? 0 : 1)";
    quiet("node", &["-e", fits]) && quiet("npm", &["--version"])
}

/// Installs a Debian package; retries after updating the package list, which is missing or old on a fresh machine.
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
