//! Checks of the repository itself: dependencies, file sizes, links, pages and module headers.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Allowed dependencies of the pure crates, which must not gain a clock, I/O or async.
const PURE: [(&str, &[&str]); 2] = [
    ("wigwag-core", &["jiff", "serde", "serde_json", "sha2", "bytes"]),
    ("wigwag-hub", &["serde", "serde_json", "sha2", "bytes", "itoa", "memchr", "siphasher", "slotmap"]),
];

/// Maximum number of lines per file; longer files are split by subject.
const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the path and text of every source file with this ending.
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

/// Returns the manifests of all crates, by name.
fn manifests() -> BTreeMap<String, String> {
    let named = files("Cargo.toml").into_iter().filter_map(|(_, text)| {
        let name = text.lines().find_map(|line| line.strip_prefix("name = \""))?.trim_end_matches('"').to_owned();
        Some((name, text))
    });
    named.collect()
}

/// Returns the names under `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
    let lines = section.lines().skip(1).filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(['.', ' ', '=']).next().unwrap().to_owned()).collect()
}

/// Returns the section `[dev-dependencies]`.
fn dev_dependencies(manifest: &str) -> &str {
    manifest.split("\n[").find(|section| section.starts_with("dev-dependencies]")).unwrap_or_default()
}

#[test]
fn the_pure_crates_have_only_allowed_dependencies() {
    let manifests = manifests();
    for (name, allowed) in PURE {
        for dependency in manifests.get(name).map(|manifest| dependencies(manifest)).unwrap_or_default() {
            assert!(allowed.contains(&dependency.as_str()), "`{name}` is pure and may not depend on `{dependency}`");
        }
    }
}

#[test]
fn the_leaf_crates_do_not_depend_on_each_other() {
    let leaves = ["wigwag-core", "wigwag-hub", "wigwag-store"];
    for (name, manifest) in manifests().iter().filter(|(name, _)| leaves.contains(&name.as_str())) {
        for dependency in dependencies(manifest) {
            assert!(!dependency.starts_with("wigwag"), "`{name}` is a leaf and may not depend on `{dependency}`");
        }
    }
}

#[test]
fn deliberate_bugs_are_in_no_build_that_users_get() {
    // Allowed: the simulator, and the kill tests as a dev-dependency. The crates that define the
    // feature enable it nowhere.
    for (name, manifest) in manifests() {
        let enabling = manifest.lines().filter(|line| line.contains("deliberate-bugs") && !line.starts_with('#'));
        for line in enabling {
            let is_allowed = match name.as_str() {
                "wigwag-core" | "wigwag-hub" => line == "deliberate-bugs = []",
                "wigwag-sim" => true,
                "wigwag-examples" => dev_dependencies(&manifest).contains(line),
                _ => false,
            };
            assert!(is_allowed, "`{name}` enables deliberate bugs: `{line}`");
        }
    }
}

#[test]
fn every_crate_states_its_reason_to_exist() {
    for (path, text) in files("Cargo.toml").iter().filter(|(_, text)| text.contains("[package]")) {
        assert!(text.starts_with("# Reason to exist: "), "`{path}` has no reason to exist on its first line");
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
fn every_module_starts_with_a_header() {
    for (path, text) in files(".rs") {
        assert!(text.starts_with("//! "), "`{path}` does not start with a `//! ` header");
    }
    for (path, text) in files(".ts") {
        assert!(text.starts_with("/**"), "`{path}` does not start with a `/**` header");
    }
}

#[test]
fn no_file_exceeds_the_maximum_length() {
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
        assert!(!text.contains("\"resolved\""), "`{path}` contains the URLs of packages");
    }
}

#[test]
fn links_between_pages_resolve() {
    for (path, text) in files(".md") {
        let folder = root().join(&path).parent().unwrap().to_owned();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            assert!(linked.exists(), "`{path}` links to `{target}`, which does not exist");
            if !anchor.is_empty() && linked.extension().is_some_and(|ending| ending == "md") {
                let anchors = anchors(&fs::read_to_string(&linked).unwrap());
                assert!(
                    anchors.contains(&anchor.to_owned()),
                    "`{path}` links to `{target}`, which has no such heading"
                );
            }
        }
    }
}

/// Returns the anchors of a page's headings, as GitHub and mdBook generate them.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
    headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn every_page_is_in_the_contents_of_the_site() {
    let contents = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for (path, _) in files(".md").iter().filter(|(path, _)| path.starts_with("docs/") && path != "docs/SUMMARY.md") {
        let name = path.trim_start_matches("docs/");
        assert!(contents.contains(&format!("({name})")), "docs/SUMMARY.md does not list `{name}`");
    }
}

#[test]
fn every_error_code_is_in_troubleshooting() {
    let codes = fs::read_to_string(root().join("docs/reference/errors.md")).unwrap();
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let codes: Vec<&str> =
        codes.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(code, _)| code).collect();
    assert!(codes.len() > 30, "the reference has {} codes", codes.len());
    for code in codes {
        assert!(page.contains(&format!("`{code}`")), "docs/troubleshooting.md does not explain `{code}`");
    }
}

#[test]
fn every_rust_block_of_the_docs_is_a_doc_test() {
    let included = fs::read_to_string(root().join("examples/src/docs.rs")).unwrap();
    for (path, text) in files(".md").iter().filter(|(path, _)| path.starts_with("docs/") || path == "README.md") {
        let has_block = text.lines().any(|line| line.trim_start().starts_with("```rust"));
        let is_included = included.contains(&format!("\"../../{path}\""));
        assert!(!has_block || is_included, "`{path}` has Rust code, and examples/src/docs.rs does not include it");
        assert!(!text.contains("```rust,ignore"), "`{path}` has code that is not compiled");
    }
}

/// Whether a test named in a table exists: `module::test` is a function in a file of that name, other names are files.
fn leads_to_a_test(name: &str, sources: &[(String, String)]) -> bool {
    let is_called = |path: &str, file: &str| path.ends_with(file) || path.ends_with(&format!("/{file}.rs"));
    match name.rsplit_once("::") {
        None => sources.iter().any(|(path, _)| is_called(path, name)),
        Some((module, test)) => {
            let module = module.rsplit("::").next().unwrap_or(module);
            let function = format!("fn {test}(");
            sources.iter().any(|(path, text)| is_called(path, module) && text.contains(&function))
        }
    }
}

#[test]
fn every_attack_has_a_defence_and_a_test_that_exists() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let tables = page.split_once("## Attacks, defences and tests").unwrap().1;
    let sources = files(".rs");
    let rows: Vec<Vec<&str>> = tables
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| attack |"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 40, "the tables have {} rows", rows.len());
    for row in rows {
        let [attack, defence, tests] = row[..] else { panic!("want three columns, got: {row:?}") };
        assert!(!attack.is_empty() && !defence.is_empty(), "{row:?}");
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "`{attack}` has no test");
        for name in named {
            assert!(leads_to_a_test(name, &sources), "docs/security.md names `{name}`, which does not exist");
        }
    }
}
