//! `cargo xtask test`: installs everything that the tests need, and runs everything that CI runs.
//!
//! Parts that this machine cannot run are skipped, and listed at the end in capitals.
#![expect(clippy::print_stderr, reason = "it reports its progress")]
#![expect(clippy::disallowed_methods, reason = "it times real work and waits for real servers")]

mod python;
mod sbom;
mod servers;
mod site;
mod tools;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use servers::Servers;
use tools::Tools;

const USAGE: &str = "usage:
  cargo xtask test [--long]     everything that CI runs; with `--long` ten times as many kills
  cargo xtask test --quick      format, lints and the fast tests, for daily work: no servers, kills, simulated worlds or browsers
  cargo xtask python            builds the Python package, installs it into a fresh environment and runs its tests
  cargo xtask with-servers CMD  starts the S3 servers, runs CMD with their addresses in WIGWAG_TEST_*, and stops them
  cargo xtask sbom PACKAGE      the crates that PACKAGE is built of, as CycloneDX on standard output";

fn main() -> ExitCode {
    // Independent of the folder that it is called from.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    if let Err(error) = std::env::set_current_dir(root) {
        eprintln!("error: cannot go to `{}`: {error}", root.display());
        return ExitCode::FAILURE;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["test"] => test(false),
        ["test", "--long"] => test(true),
        ["test", "--quick"] => quick(),
        ["python"] => {
            let mut tools = Tools::default();
            let outcome = python::python(&mut tools);
            tools.skipped.iter().for_each(|skipped| eprintln!("SKIPPED: {skipped}"));
            outcome
        }
        ["with-servers", program, ref rest @ ..] => with_servers(program, rest),
        ["sbom", package] => sbom::print(package),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn test(long: bool) -> Result<(), String> {
    let began = Instant::now();
    let mut tools = Tools::default();
    let (nextest, deny, servers) = (tools.nextest(), tools.deny(), tools.servers());
    tools.strace();
    tools.nginx();
    let node = tools.node();

    step("format", cargo(["fmt", "--all", "--check"]))?;
    step("lints", cargo(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))?;
    if deny {
        step("dependencies", cargo(["deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))?;
    }
    let mut docs = cargo(["doc", "--workspace", "--no-deps", "--all-features"]);
    step("docs", docs.env("RUSTDOCFLAGS", "-D warnings"))?;
    site::site(&mut tools, node)?;

    let running = servers.map(|bin| Servers::start(&bin, &mut tools.skipped)).transpose()?;
    let mut tests = if nextest {
        cargo(["nextest", "run", "--workspace", "--all-features"])
    } else {
        cargo(["test", "--workspace", "--all-features", "--lib", "--bins", "--tests"])
    };
    if long {
        tests.env("WIGWAG_LONG", "1");
    }
    if long && nextest {
        tests.args(["--profile", "long"]);
    }
    let skips = std::env::temp_dir().join(format!("wigwag-skipped-{}", std::process::id()));
    tests.env("WIGWAG_TEST_SKIPPED", &skips);
    step("tests", in_test_environment(&mut tests, running.as_ref()))?;
    drop(running);
    let said = std::fs::read_to_string(&skips).unwrap_or_default();
    tools.skipped.extend(said.lines().map(|line| line.trim_start_matches("SKIPPED: ").to_owned()));
    let _ = std::fs::remove_file(&skips);
    step("doc tests", cargo(["test", "--workspace", "--all-features", "--doc"]))?;
    if node {
        typescript()?;
    }
    python::python(&mut tools)?;

    eprintln!("\nall passed in {} s", began.elapsed().as_secs());
    for skipped in &tools.skipped {
        eprintln!("SKIPPED: {skipped}");
    }
    Ok(())
}

/// Tests that take most of the time of the whole command: real kills, simulated worlds, races, fuzzing and other servers.
const SLOW: &str = "package(wigwag-sim) | package(wigwag-examples) | package(wigwag-fuzz) | package(wigwag-bench) \
    | binary(chaos) | binary(crash) | binary(load) | binary(schemathesis) | test(s3_) | test(crowd) | test(hub_cuts)";

/// Runs the format check, lints and the fast tests.
fn quick() -> Result<(), String> {
    let began = Instant::now();
    let mut tools = Tools::default();
    step("format", cargo(["fmt", "--all", "--check"]))?;
    step("lints", cargo(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))?;
    if !tools.nextest() {
        return Err("the quick form needs cargo-nextest, which could not be installed; use `cargo xtask test`".into());
    }
    let fast = format!("not ({SLOW})");
    let mut tests = cargo(["nextest", "run", "--workspace", "--all-features", "-E", &fast]);
    step("fast tests", in_test_environment(&mut tests, None))?;
    eprintln!("\nthe fast tests passed in {} s; `cargo xtask test` runs all of them", began.elapsed().as_secs());
    Ok(())
}

/// Tests the TypeScript client without a server, on a real server and in a real browser; then the
/// dashboard in a browser.
fn typescript() -> Result<(), String> {
    step(
        "the server for the TypeScript client",
        cargo(["build", "--workspace", "--all-features", "--bin", "wigwag", "--tests"]),
    )?;
    let own = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    step("TypeScript: packages", npm(&["ci", "--no-audit", "--no-fund", "--ignore-scripts"]))?;
    step("TypeScript: tests", npm(&["test"]).env("WIGWAG_BIN", own.with_file_name("wigwag")))?;
    let dashboard = |args: &[&str]| {
        let mut command = npm(args);
        command.current_dir("tests/dashboard").env("WIGWAG_BIN", own.with_file_name("wigwag"));
        command
    };
    step("dashboard: packages", dashboard(&["ci", "--no-audit", "--no-fund", "--ignore-scripts"]))?;
    step("dashboard: tests", dashboard(&["test"])).or_else(|error| {
        // Browser tests have time limits in real time, and a shared machine may take the processors away for half a minute.
        eprintln!("FLAKY OR BROKEN: {error}; the dashboard tests run once more");
        step("dashboard: tests, second run", dashboard(&["test"]))
    })
}

fn npm(args: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(args).current_dir("clients/typescript");
    command
}

fn with_servers(program: &str, rest: &[&str]) -> Result<(), String> {
    let mut tools = Tools::default();
    let bin = tools.servers().ok_or_else(|| tools.skipped.join("; "))?;
    let running = Servers::start(&bin, &mut tools.skipped)?;
    let mut command = Command::new(program);
    command.args(rest);
    step(program, in_test_environment(&mut command, Some(&running)))
}

/// Passes the servers' addresses, and keeps the tests from searching for credentials anywhere else.
fn in_test_environment<'a>(command: &'a mut Command, servers: Option<&Servers>) -> &'a mut Command {
    for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
        command.env_remove(name);
    }
    without_own_package(command);
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command.envs(servers.into_iter().flat_map(Servers::environment))
}

fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(args);
    without_own_package(&mut command);
    command
}

/// Removes the variables that `cargo run` sets for this package: build scripts watch them, so that builds with and without
/// them would rebuild each other's crates.
fn without_own_package(command: &mut Command) {
    let is_own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_own(name)) {
        command.env_remove(name);
    }
}

fn step<'a>(name: &str, command: impl Into<Step<'a>>) -> Result<(), String> {
    let began = Instant::now();
    eprintln!("\n== {name}");
    let status = match command.into() {
        Step::Own(mut command) => command.status(),
        Step::Lent(command) => command.status(),
    };
    match status {
        Ok(status) if status.success() => {
            eprintln!("== {name}: {} s", began.elapsed().as_secs());
            Ok(())
        }
        Ok(status) => Err(format!("{name} failed ({status})")),
        Err(error) => Err(format!("{name} could not be started: {error}")),
    }
}

enum Step<'a> {
    Own(Command),
    Lent(&'a mut Command),
}

impl From<Command> for Step<'_> {
    fn from(command: Command) -> Self {
        Self::Own(command)
    }
}

impl<'a> From<&'a mut Command> for Step<'a> {
    fn from(command: &'a mut Command) -> Self {
        Self::Lent(command)
    }
}
