//! `cargo xtask test`: sets up all that the tests need, and runs everything that CI runs.
//!
//! What cannot be had on this machine is skipped, and said at the end in capitals.
#![expect(clippy::print_stderr, reason = "it talks to the one who runs it")]
#![expect(clippy::disallowed_methods, reason = "it times real work and waits for real servers")]

mod sbom;
mod servers;
mod tools;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use servers::Servers;
use tools::Tools;

const USAGE: &str = "usage:
  cargo xtask test [--long]     everything that CI runs; with `--long` ten times as many kills
  cargo xtask with-servers CMD  starts the S3 servers, runs CMD with their addresses in WIGWAG_TEST_*, and stops them
  cargo xtask sbom PACKAGE      the crates that PACKAGE is built of, as CycloneDX on standard output";

fn main() -> ExitCode {
    // Whatever folder it is called from.
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

    eprintln!("\nall passed in {} s", began.elapsed().as_secs());
    for skipped in &tools.skipped {
        eprintln!("SKIPPED: {skipped}");
    }
    Ok(())
}

/// The TypeScript client, alone, on the real server and in a real browser.
fn typescript() -> Result<(), String> {
    step("the server for the TypeScript client", cargo(["build", "--workspace", "--all-features", "--bin", "wigwag"]))?;
    let own = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    step("TypeScript: packages", npm(&["ci", "--no-audit", "--no-fund", "--ignore-scripts"]))?;
    step("TypeScript: tests", npm(&["test"]).env("WIGWAG_BIN", own.with_file_name("wigwag")))
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

/// Names the servers, and keeps the tests from looking for credentials anywhere else.
fn in_test_environment<'a>(command: &'a mut Command, servers: Option<&Servers>) -> &'a mut Command {
    for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
        command.env_remove(name);
    }
    // What `cargo run` tells about this package would make nested builds differ from plain ones, and build anew.
    for (name, _) in std::env::vars().filter(|(name, _)| {
        name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" || name == "CARGO_MANIFEST_PATH"
    }) {
        command.env_remove(name);
    }
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command.envs(servers.into_iter().flat_map(Servers::environment))
}

fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(args);
    command
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
