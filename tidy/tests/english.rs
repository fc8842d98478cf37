//! Plain English: counts phrases of an old dialect and comments of one or two words. The counts may only fall.
//!
//! Holds: no folder has more of them than `tidy/english.txt` allows. `WIGWAG_BLESS=1` lowers the limits, and never raises one.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Word sequences to avoid; `|` separates alternatives. STYLE.md says what to write instead.
const PHRASES: &[&[&str]] = &[
    &["what|whatever", "is|are|was|were|has|had|comes|came|goes|went|it|they|other|others|can|must|may"],
    &["what|whatever", "somebody|nobody|wait|waits|stand|stands|lies|follow|follows|became|becomes"],
    &["whoever|whomever|nobody|somebody|anybody|everybody|anew|meanwhile"],
    &["those", "that|who|whose|which"],
    &["one", "that|whose"],
    &["ones", "that"],
    &["go|goes|went|gone|going", "on"],
    &["mend|mends|mended|mending|heed|heeds|heeded"],
    &["dealt", "with"],
    &["passed", "over"],
    &["put", "off"],
    &["taken|take|takes", "up"],
    &["at", "hand"],
    &["told|heard|hear|hears|brought|bring|brings"],
    &["look|looks|looked", "at|into"],
    &["given", "back"],
    &["take|takes", "back"],
    &["for", "ever"],
    &["of", "its|their", "own"],
];

/// Words that count after "so", unless "as" or "that" follows.
const SO: &[&str] = &["many", "much", "long", "often", "late", "old", "badly"];

/// The page that lists the old words.
const GLOSSARY: &str = "docs/glossary.md";

/// Matches in one folder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    phrases: usize,
    short: usize,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Collects the files with prose, as paths below the root.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let skipped = ["target", ".git", "node_modules", "dist", "build", ".wigwag", "peers"].contains(&name.as_str());
        match path.is_dir() {
            true if skipped => {}
            true => collect(&path, found),
            false if [".rs", ".ts", ".js", ".py", ".md"].iter().any(|ending| name.ends_with(ending)) => {
                found.push(path);
            }
            false => {}
        }
    }
}

/// Returns the folder that a file counts for: a crate, or the first part of its path.
fn folder(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["crates", name, ..] => format!("crates/{name}"),
        [_] => ".".to_owned(),
        _ => parts[0].to_owned(),
    }
}

/// Returns the text that people read: prose outside of code blocks, comments, and string literals of several words.
fn prose(path: &str, text: &str) -> Vec<(bool, String)> {
    let is_page = path.ends_with(".md");
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let comment = ["///", "//!", "//", "*", "#"].iter().find_map(|mark| line.strip_prefix(mark));
        let words = match (is_page, comment) {
            (true, _) => Some(line),
            (false, Some(comment)) => Some(comment.trim()),
            (false, None) => None,
        };
        match words {
            Some(words) if words.starts_with("```") => fenced = !fenced,
            Some(words) if !fenced => lines.push((!is_page, words.to_owned())),
            Some(_) => {}
            None => lines.extend(literals(line).into_iter().map(|literal| (false, literal))),
        }
    }
    lines
}

/// Returns the string literals of at least four words.
fn literals(line: &str) -> Vec<String> {
    let parts = line.split('"').skip(1).step_by(2);
    parts.filter(|part| part.split_whitespace().count() >= 4).map(str::to_owned).collect()
}

fn words(line: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_alphanumeric() || "'_".contains(letter);
    line.split(|letter: char| !is_part(letter)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

fn matches(line: &str) -> usize {
    let words = words(line);
    let fits = |phrase: &[&str], at: usize| {
        phrase.iter().enumerate().all(|(offset, choices)| {
            words.get(at + offset).is_some_and(|word| choices.split('|').any(|choice| choice == word))
        })
    };
    let is_so = |at: usize| {
        let next = words.get(at + 2).map(String::as_str);
        words[at] == "so"
            && words.get(at + 1).is_some_and(|word| SO.contains(&word.as_str()))
            && next != Some("as")
            && next != Some("that")
    };
    let at = |at: usize| PHRASES.iter().filter(|phrase| fits(phrase, at)).count() + usize::from(is_so(at));
    (0..words.len()).map(at).sum()
}

/// Whether a comment has at most two words.
fn is_short(comment: &str) -> bool {
    comment.ends_with('.') && !comment.contains('`') && (1..=2).contains(&words(comment).len())
}

fn counts() -> BTreeMap<String, Count> {
    let (root, mut found) = (root(), Vec::new());
    collect(&root, &mut found);
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for path in found {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        if name == GLOSSARY || name == file!() {
            continue;
        }
        let count = counts.entry(folder(&name)).or_default();
        for (is_comment, line) in prose(&name, &fs::read_to_string(&path).unwrap()) {
            count.phrases += matches(&line);
            count.short += usize::from(is_comment && is_short(&line));
        }
    }
    counts
}

fn limits(text: &str) -> BTreeMap<String, Count> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let parsed = lines.map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [folder, phrases, short] => {
            (folder.to_owned(), Count { phrases: phrases.parse().unwrap(), short: short.parse().unwrap() })
        }
        _ => panic!("want `folder phrases short`, got: `{line}`"),
    });
    parsed.collect()
}

#[test]
fn no_folder_exceeds_its_limit_of_old_phrases() {
    let file = root().join("tidy/english.txt");
    let (counts, limits) = (counts(), limits(&fs::read_to_string(&file).unwrap()));
    for (folder, count) in &counts {
        let limit = limits.get(folder).copied().unwrap_or_default();
        let is_kept = count.phrases <= limit.phrases && count.short <= limit.short;
        assert!(is_kept, "`{folder}`: want at most {limit:?}, got: {count:?}; STYLE.md says how to write");
    }
    if std::env::var_os("WIGWAG_BLESS").is_some() {
        let head = "# Phrases of the old dialect and comments of one or two words by folder; they may only fall.\n";
        let lines = counts.iter().map(|(folder, count)| format!("{folder} {} {}\n", count.phrases, count.short));
        fs::write(file, head.to_owned() + &lines.collect::<String>()).unwrap();
    }
}

#[test]
fn phrases_and_short_comments_are_found() {
    for phrase in ["Whoever", "what is", "told", "goes on.", "so many", "So often."] {
        assert_eq!(matches(phrase), 1, "{phrase}");
    }
    for allowed in ["so many that", "so long as", "Returns the open waits of a run."] {
        assert_eq!(matches(allowed), 0, "{allowed}");
    }
    assert_eq!(matches("told, goes on"), 2);
    assert!(is_short("Which.") && is_short("The word.") && !is_short("Returns the name."));
    assert_eq!(literals(r#"say("a text of four words", "two words")"#), ["a text of four words"]);
}
