//! What must hold of the repository itself.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What the pure crates may depend on, and nothing else: no clock, no I/O, no async gets in by the back door.
const PURE: [(&str, &[&str]); 2] = [
    ("wigwag-core", &["jiff", "serde", "serde_json", "sha2", "bytes"]),
    ("wigwag-hub", &["serde", "serde_json", "sha2", "bytes", "itoa", "memchr", "siphasher", "slotmap"]),
];

/// A file longer than this wants splitting by subject.
const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file below the root that git would take, as (path, text).
fn files(ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root(), &mut found);
    let named = found.into_iter().filter(|path| path.to_string_lossy().ends_with(ending));
    let mut files: Vec<_> = named
        .map(|path| (path.strip_prefix(root()).unwrap().display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no file ends in `{ending}`");
    files
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.is_dir() {
            true if ["target", ".git", "node_modules", "dist", "build", ".wigwag"].contains(&name.as_str()) => {}
            true => collect(&path, found),
            false => found.push(path),
        }
    }
}

/// The manifests of all crates, by name.
fn manifests() -> BTreeMap<String, String> {
    let named = files("Cargo.toml").into_iter().filter_map(|(_, text)| {
        let name = text.lines().find_map(|line| line.strip_prefix("name = \""))?.trim_end_matches('"').to_owned();
        Some((name, text))
    });
    named.collect()
}

/// The names under `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
    let lines = section.lines().skip(1).filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(['.', ' ', '=']).next().unwrap().to_owned()).collect()
}

#[test]
fn the_pure_crates_depend_only_on_what_is_allowed() {
    let manifests = manifests();
    for (name, allowed) in PURE {
        for dependency in manifests.get(name).map(|manifest| dependencies(manifest)).unwrap_or_default() {
            assert!(allowed.contains(&dependency.as_str()), "`{name}` is pure and may not depend on `{dependency}`");
        }
    }
}

#[test]
fn the_leaves_do_not_know_each_other() {
    let leaves = ["wigwag-core", "wigwag-hub", "wigwag-store"];
    for (name, manifest) in manifests().iter().filter(|(name, _)| leaves.contains(&name.as_str())) {
        for dependency in dependencies(manifest) {
            assert!(!dependency.starts_with("wigwag"), "`{name}` is a leaf and may not depend on `{dependency}`");
        }
    }
}

#[test]
fn every_crate_says_why_it_exists() {
    for (path, text) in files("Cargo.toml").iter().filter(|(_, text)| text.contains("[package]")) {
        assert!(text.starts_with("# Reason to exist: "), "`{path}` does not say on its first line why it exists");
    }
}

#[test]
fn every_crate_is_named_in_the_architecture() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for name in manifests().keys() {
        assert!(architecture.contains(&format!("`{name}`")), "ARCHITECTURE.md does not name `{name}`");
    }
}

#[test]
fn every_module_opens_with_what_it_is() {
    for (path, text) in files(".rs") {
        assert!(text.starts_with("//! "), "`{path}` does not open with `//! ` and what it is");
    }
    for (path, text) in files(".ts") {
        assert!(text.starts_with("/**"), "`{path}` does not open with `/**` and what it is");
    }
}

#[test]
fn no_file_is_longer_than_an_evening() {
    for (path, text) in files(".rs").into_iter().chain(files(".ts")) {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "`{path}` has {lines} lines; split it by subject");
    }
}

#[test]
fn tls_is_not_openssl_and_no_address_of_a_machine_is_locked() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    assert!(!lock.contains("name = \"openssl-sys\""));
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    for source in sources {
        assert!(source.contains("registry+https://github.com/rust-lang/crates.io-index"), "{source}");
    }
    for (path, text) in files("package-lock.json") {
        assert!(!text.contains("\"resolved\""), "`{path}` says where its packages came from");
    }
}

#[test]
fn links_between_our_pages_lead_somewhere() {
    for (path, text) in files(".md") {
        let folder = root().join(&path).parent().unwrap().to_owned();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = target.split('#').next().unwrap();
            assert!(folder.join(file).exists(), "`{path}` links to `{target}`, which is not there");
        }
    }
}
