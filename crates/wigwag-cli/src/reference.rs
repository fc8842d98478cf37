//! Generates the page `docs/reference/cli.md` from the definitions of the arguments.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory as _};

use crate::args::Args;

const MADE: &str = "<!-- Made from the code: `WIGWAG_BLESS=1 cargo test -p wigwag-cli` writes it. -->\n";

/// Returns every executable command with its full name.
fn commands() -> Vec<(String, Command)> {
    let mut all = Args::command();
    // Generates usages and adds global arguments.
    all.build();
    let mut found = Vec::new();
    collect(&all, "wigwag", &mut found);
    found
}

fn collect(command: &Command, name: &str, found: &mut Vec<(String, Command)>) {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let name = format!("{name} {}", below.get_name());
        found.push((name.clone(), below.clone()));
        collect(below, &name, found);
    }
}

fn page() -> String {
    let mut root = Args::command();
    root.build();
    let shared: Vec<&Arg> = root.get_arguments().filter(|arg| arg.is_global_set() && !arg.is_hide_set()).collect();
    let mut page = format!(
        "{MADE}# CLI reference\n\n{}. Examples with output are in [the guide](../cli.md).\n\n## Global options\n\n",
        text(root.get_about())
    );
    table(&mut page, &shared);
    let _ = writeln!(page, "\n{}", text(root.get_after_help()).replace('\n', "\n\n"));
    for (name, mut command) in commands() {
        describe(&mut page, &name, &mut command);
    }
    page
}

fn describe(page: &mut String, name: &str, command: &mut Command) {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace("\n       ", "\n");
    let about = text(command.get_long_about().or(command.get_about()));
    let _ = write!(page, "\n## `{name}`\n\n{}\n\n```text\n{usage}\n```\n", paragraphs(&about));
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_global_set() && !is_help(arg)).collect();
    if !own.is_empty() {
        page.push('\n');
        table(page, &own);
    }
    let example = text(command.get_after_help());
    let lines = example.trim_start_matches("Example:\n").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let _ = write!(page, "\n```sh\n{lines}\n```\n");
}

fn is_help(arg: &Arg) -> bool {
    matches!(arg.get_id().as_str(), "help" | "version")
}

fn table(page: &mut String, args: &[&Arg]) {
    page.push_str("| | |\n|---|---|\n");
    for arg in args.iter().filter(|arg| !is_help(arg)) {
        let mut facts = vec![text(arg.get_help()).replace('\n', " ")];
        let possible: Vec<_> =
            arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        if !possible.is_empty() && arg.get_action().takes_values() {
            facts.push(format!("one of {}", possible.join(", ")));
        }
        if let Some(name) = arg.get_env() {
            facts.push(format!("env: `{}`", name.to_string_lossy()));
        }
        let default =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(" ");
        if !default.is_empty() && arg.get_action().takes_values() {
            facts.push(format!("else `{default}`"));
        }
        let _ = writeln!(page, "| {} | {} |", shown(arg), facts.join("; ").replace('|', "\\|"));
    }
}

/// Returns the notation of an argument.
fn shown(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default().iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let value = names.join(" ");
    if arg.is_positional() {
        return if arg.is_required_set() { format!("`{value}`") } else { format!("`[{value}]`") };
    }
    let long = arg.get_long().map(|long| format!("--{long}")).unwrap_or_default();
    let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    let value = match (arg.get_action().takes_values(), is_optional) {
        (false, _) => String::new(),
        (true, true) => format!(" [{value}]"),
        (true, false) => format!(" {value}"),
    };
    let short = arg.get_short().map(|short| format!(", `-{short}`")).unwrap_or_default();
    format!("`{long}{value}`{short}")
}

fn text(styled: Option<&clap::builder::StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default()
}

/// Returns the paragraphs of a description, without the full stop of the first line.
fn paragraphs(about: &str) -> String {
    match about.split_once("\n\n") {
        Some((first, rest)) => format!("{first}.\n\n{rest}"),
        None => format!("{about}."),
    }
}

#[test]
fn the_reference_page_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let want = page();
    if std::env::var_os("WIGWAG_BLESS").is_some() {
        std::fs::write(&path, &want).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == want,
        "docs/reference/cli.md is out of date: make it with `WIGWAG_BLESS=1 cargo test -p wigwag-cli`"
    );
}

#[test]
fn every_command_has_an_example_that_is_a_call_of_it() {
    let found = commands();
    assert!(found.len() > 20, "{}", found.len());
    for (name, command) in found {
        let example = text(command.get_after_help());
        let mut lines = example.lines();
        assert_eq!(lines.next(), Some("Example:"), "`{name}`: {example}");
        for line in lines {
            assert!(line.starts_with(&format!("  {name}")), "`{name}`: {line}");
            let words = words(line.split(" > ").next().unwrap());
            // An example that does not parse would mislead readers.
            Args::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}

/// Splits a line into words like a shell, with single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (place, part) in line.trim().split('\'').enumerate() {
        match place % 2 {
            1 => words.push(part.to_owned()),
            _ => words.extend(part.split_whitespace().map(str::to_owned)),
        }
    }
    words
}
