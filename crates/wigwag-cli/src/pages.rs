//! Checks the documentation: its commands parse, its settings files are valid, and its JSON is JSON.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::args::Args;
use crate::serve;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the path and text of README.md and of every page of the documentation.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![root().join("docs")];
    let mut paths = vec![root().join("README.md")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "md") => paths.push(path),
                false => {}
            }
        }
    }
    paths.into_iter().map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

/// Returns the fenced blocks of one language, with the path of their page.
fn blocks(language: &str) -> Vec<(String, String)> {
    let fence = format!("```{language}\n");
    let mut found = Vec::new();
    for (path, text) in pages() {
        for rest in text.split(&fence).skip(1) {
            found.push((path.clone(), rest.split("\n```").next().unwrap().to_owned()));
        }
    }
    assert!(!found.is_empty(), "no page has a block of `{language}`");
    found
}

/// Returns the arguments of a call of `wigwag` in a line of shell code, if it is one.
fn call(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("unbalanced quotes: {line}"));
    let is_setting = |word: &String| word.split_once('=').is_some_and(|(name, _)| !name.contains(['-', '/', '{']));
    let words: Vec<String> = words.into_iter().skip_while(is_setting).collect();
    let ends = |word: &String| ["|", "||", "&&", "&", ">", "2>", ";"].contains(&word.as_str());
    let is_call =
        words.first().is_some_and(|program| Path::new(program).file_name().is_some_and(|name| name == "wigwag"));
    is_call.then(|| words.into_iter().take_while(|word| !ends(word)).collect())
}

#[test]
fn every_command_in_a_shell_block_parses() {
    let mut calls = 0;
    for (path, block) in blocks("sh") {
        for line in block.replace("\\\n", " ").lines() {
            let Some(words) = call(line) else { continue };
            calls += 1;
            if let Err(error) = Args::try_parse_from(&words) {
                assert!(
                    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion),
                    "{path}: `{line}` is rejected: {error}"
                );
            }
        }
    }
    assert!(calls > 40, "the pages contain only {calls} commands");
}

#[test]
fn every_command_in_a_sentence_exists() {
    let mut calls = 0;
    for (path, text) in pages() {
        let prose: String = text.split("\n```").step_by(2).collect();
        let spans = prose
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|span| span.starts_with("wigwag ") && !span.contains(['\n', '…']) && !span.contains("COMMAND"));
        for span in spans {
            calls += 1;
            // Sentences leave out arguments, but the commands and flags that they name have to exist.
            let words = shlex::split(span).unwrap_or_else(|| panic!("{path}: unbalanced quotes: {span}"));
            if let Err(error) = Args::try_parse_from(words) {
                let is_unknown = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand].contains(&error.kind());
                assert!(!is_unknown, "{path}: `{span}` is rejected: {error}");
            }
        }
    }
    assert!(calls > 40, "the pages name only {calls} commands");
}

#[test]
fn every_settings_file_is_valid() {
    let mut files = 0;
    for (path, block) in blocks("toml").into_iter().filter(|(_, block)| !block.contains("[dev-dependencies]")) {
        files += 1;
        serve::check_settings(&block).unwrap_or_else(|error| panic!("{path}: {error}\n{block}"));
    }
    assert!(files > 3, "the pages contain only {files} settings files");
}

#[test]
fn every_json_block_is_json() {
    for (path, block) in blocks("json") {
        let shown_in_full = block.replace("{…}", "{}");
        for document in serde_json::Deserializer::from_str(&shown_in_full).into_iter::<serde_json::Value>() {
            assert!(document.is_ok(), "{path}: {}\n{block}", document.unwrap_err());
        }
    }
}
