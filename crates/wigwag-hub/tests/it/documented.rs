//! The protocol page names every answer, error and close reason that the source can send.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Requests, which the hub receives and never sends under the same name.
const REQUESTS: [&str; 16] = [
    "ack",
    "broadcast",
    "connect",
    "discover",
    "heartbeat",
    "list_actors",
    "list_topics",
    "publish",
    "register",
    "renew",
    "reply",
    "send",
    "subscribe",
    "unregister",
    "unsubscribe",
    // Only the prefix of reserved types.
    "",
];

/// Returns the code of the crate without comments and tests.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("testing") {
            all.push_str(&sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            all.extend(
                code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")),
            );
        }
    }
    all
}

/// Returns the words that follow a prefix.
fn words_after(text: &str, prefix: &str) -> BTreeSet<String> {
    let is_part = |letter: &char| letter.is_ascii_lowercase() || *letter == '_';
    text.split(prefix).skip(1).map(|rest| rest.chars().take_while(is_part).collect()).collect()
}

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/hub.md")).unwrap()
}

fn code() -> String {
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

/// Returns the first column of the table below a heading.
fn first_column(page: &str, heading: &str) -> String {
    let section = page.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    rows.filter_map(|row| row.split('|').nth(1)).map(|cell| format!("{cell}\n")).collect()
}

#[test]
fn the_table_of_answers_has_every_answer_in_the_source() {
    let answers = first_column(&page(), "## What each answer guarantees");
    let sent: Vec<String> =
        words_after(&code(), "\"hub:").into_iter().filter(|kind| !REQUESTS.contains(&kind.as_str())).collect();
    assert!(sent.len() > 20, "{sent:?}");
    for kind in sent {
        assert!(answers.contains(&format!("`hub:{kind}`")), "the table of answers lacks `hub:{kind}`");
    }
}

#[test]
fn the_tables_have_every_error_code_in_the_source() {
    let (page, code) = (page(), code());
    let answers = first_column(&page, "## What each answer guarantees");
    let errors = page.split("## Errors").nth(1).unwrap();
    let one_line = code.replace("error(\n        \"", "error(\"");
    let codes = words_after(&one_line, " error(\"");
    assert!(codes.len() >= 8, "{codes:?}");
    for code in codes {
        assert!(answers.contains(&format!("`{code}`")), "the table of answers lacks the code `{code}`");
        assert!(errors.contains(&format!("`{code}`")), "the section on errors lacks the code `{code}`");
    }
}

#[test]
fn the_table_of_close_codes_has_every_code_in_the_source() {
    let (page, code) = (page(), code());
    let closes = code.split("pub enum Close").nth(1).unwrap().split("\n}").next().unwrap();
    let codes: Vec<&str> = closes.split(" = ").skip(1).filter_map(|rest| rest.split(',').next()).collect();
    assert!(codes.len() >= 7, "{codes:?}");
    for code in codes {
        assert!(page.contains(&format!("\n| {code} | ")), "the table of close codes lacks {code}");
    }
    let reasons = code.split("fn reason(").nth(1).unwrap().split("\n    }").next().unwrap();
    for reason in reasons.split('"').skip(1).step_by(2).filter(|reason| *reason != "asked") {
        assert!(page.contains(&format!("`{reason}`")), "the page lacks the reason `{reason}`");
    }
}
