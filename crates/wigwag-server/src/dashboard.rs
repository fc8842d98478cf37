//! The dashboard: ES modules, style and page, embedded in the binary.
//!
//! Holds: the assets are public and the same for everyone; the page can do nothing that the API does not allow its token.
//! Modules have their hash in their address and are cached for good; the page itself is revalidated at each visit.

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::problem::{Code, Problem};

/// Paths of the page. They do not overlap `/v1`, `/s3`, `/hub` and `/metrics`.
const PAGES: [&str; 10] = [
    "/",
    "/runs",
    "/runs/{id}",
    "/tasks",
    "/tasks/{id}",
    "/workflows",
    "/workflows/{type}",
    "/actors",
    "/store",
    "/system",
];

const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! assets {
    ($($name:literal => $kind:expr),* $(,)?) => {
        /// Name, type and bytes of each file.
        const ASSETS: &[(&str, &str, &[u8])] = &[$(($name, $kind, include_bytes!(concat!("../dashboard/", $name)))),*];
    };
}

assets! {
    "style.css" => CSS, "mark.svg" => SVG,
    "app.js" => JS, "shell.js" => JS, "dom.js" => JS, "words.js" => JS, "api.js" => JS, "live.js" => JS, "graph.js" => JS,
    "form.js" => JS, "answer.js" => JS, "actions.js" => JS, "log.js" => JS, "embed.js" => JS,
    "screens/waiting.js" => JS, "screens/runs.js" => JS, "screens/run.js" => JS, "screens/workflows.js" => JS,
    "screens/system.js" => JS,
}

const INDEX: &str = include_str!("../dashboard/index.html");

/// Stands in the page for the address of its modules.
const BASE: &str = "{{ui}}";

/// Hash of all files: part of their address.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    hash.update(INDEX);
    for (name, _, bytes) in ASSETS {
        hash.update(name);
        hash.update(bytes);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
});

/// Bytes of each file as they are served, in the order of [`ASSETS`].
static SERVED: LazyLock<Vec<Cow<'static, [u8]>>> = LazyLock::new(|| {
    ASSETS.iter().map(|(_, kind, bytes)| if *kind == JS { without_comments(bytes) } else { (*bytes).into() }).collect()
});

/// Removes `/** … */` and lines that start with `//`: types and explanations are for readers of the source, not for browsers.
/// Spaces around operators go too. Line breaks stay, so that the line numbers of an error are those of the source. Modules write other comments nowhere, and
/// `/**` in no string.
fn without_comments(source: &[u8]) -> Cow<'static, [u8]> {
    let text = String::from_utf8_lossy(source);
    let (mut served, mut rest) = (String::with_capacity(text.len()), text.as_ref());
    while let Some((code, comment)) = rest.split_once("/**") {
        let (comment, after) = comment.split_once("*/").unwrap_or((comment, ""));
        served.push_str(code);
        served.extend(comment.matches('\n'));
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    served.push_str(rest);
    let lines = served.split('\n').map(str::trim);
    let lines = lines.map(|line| if line.starts_with("//") { String::new() } else { without_spaces(line) });
    lines.collect::<Vec<_>>().join("\n").into_bytes().into()
}

/// Spaces that no code needs, around operators.
const SPACED: [&str; 24] = [
    " + ", " - ", " < ", " > ", " <= ", " >= ", " += ", " % ", " => ", " = ", " === ", " !== ", " && ", " || ", " ?? ",
    " ? ", " : ", " * ", " {", "{ ", " }", ", ", "; ", ": ",
];

/// Removes spaces around operators from a line, outside its strings, templates and regular expressions. A literal that does not end on the
/// line is left unchanged with the rest of the line.
fn without_spaces(line: &str) -> String {
    let compressed =
        |code: &str| SPACED.iter().fold(code.to_owned(), |code, spaced| code.replace(spaced, spaced.trim()));
    let (mut served, mut rest, mut before) = (String::with_capacity(line.len()), line, None);
    while let Some(start) = literal_start(rest, before) {
        let (code, literal) = rest.split_at(start);
        let end = literal_end(literal).unwrap_or(literal.len());
        served.push_str(&compressed(code));
        served.push_str(&literal[..end]);
        (rest, before) = (&literal[end..], Some('"'));
    }
    served.push_str(&compressed(rest));
    served
}

/// Place of the first string, template or regular expression; `before` is the last character of the code before. A slash after a value divides.
fn literal_start(code: &str, mut before: Option<char>) -> Option<usize> {
    for (place, letter) in code.char_indices() {
        let begins_pattern = letter == '/' && before.is_none_or(|before| "(,=:[!&|?{};>".contains(before));
        if begins_pattern || ['"', '\'', '`'].contains(&letter) {
            return Some(place);
        }
        if letter != ' ' {
            before = Some(letter);
        }
    }
    None
}

/// Length of the literal that the text begins with; none if it does not end, or is a template within a template.
fn literal_end(text: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    let (_, quote) = letters.next()?;
    let (mut depth, mut is_class, mut before) = (0_usize, false, quote);
    while let Some((place, letter)) = letters.next() {
        match letter {
            '\\' => _ = letters.next(),
            '{' if quote == '`' && (before == '$' || depth > 0) => depth += 1,
            '}' if quote == '`' => depth = depth.saturating_sub(1),
            '`' if quote == '`' && depth > 0 => return None,
            '[' if quote == '/' => is_class = true,
            ']' if quote == '/' => is_class = false,
            _ if letter == quote && depth == 0 && !is_class => return Some(place + letter.len_utf8()),
            _ => {}
        }
        before = letter;
    }
    None
}

/// The browser itself refuses inline code, foreign addresses and markup made of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Version of the page that this server has.
pub(crate) fn version() -> &'static str {
    &VERSION
}

/// Routes of the page and its files.
pub(crate) fn routes() -> Router<App> {
    let pages = PAGES.iter().fold(Router::new(), |router, path| router.route(path, get(page)));
    pages.route("/ui/embed.js", get(entry)).route("/ui/{version}/{*file}", get(file))
}

async fn page(headers: HeaderMap) -> Response {
    let tag = format!("\"{}\"", version());
    let mut response = match headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()) {
        Some(known) if known.contains(&tag) => StatusCode::NOT_MODIFIED.into_response(),
        _ => {
            let base = format!("/ui/{}", version());
            ([(CONTENT_TYPE, "text/html; charset=utf-8")], INDEX.replace(BASE, &base)).into_response()
        }
    };
    let set = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        set.insert(ETAG, tag);
    }
    set.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    set.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    set.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    set.insert(OPENER, HeaderValue::from_static("same-origin"));
    response
}

/// A module with an address that does not change, for pages that embed parts of the dashboard.
async fn entry(State(_): State<App>) -> Response {
    let text = format!("export * from \"/ui/{}/embed.js\";\n", version());
    let headers = [(CONTENT_TYPE, JS), (CACHE_CONTROL, "no-cache"), (RESOURCE, "cross-origin")];
    (headers, text).into_response()
}

async fn file(Path((wanted, name)): Path<(String, String)>) -> Response {
    let mut files = ASSETS.iter().zip(SERVED.iter());
    let found = files.find(|((known, ..), _)| *known == name).filter(|_| wanted == version());
    let Some(((_, kind, _), bytes)) = found else {
        let what = format!("the dashboard of this server has no file `{}`", name.escape_debug());
        return Problem::new(Code::NotFound, what).hint("reload the page: the server was updated").into_response();
    };
    let headers =
        [(CONTENT_TYPE, *kind), (CACHE_CONTROL, "public, max-age=31536000, immutable"), (RESOURCE, "cross-origin")];
    match from_folder(&name) {
        Some(read) => (headers, read).into_response(),
        None => (headers, bytes.as_ref()).into_response(),
    }
}

/// In debug builds a file of the folder that `WIGWAG_DASHBOARD` names, so that a change needs no build.
#[cfg(debug_assertions)]
fn from_folder(name: &str) -> Option<Vec<u8>> {
    let folder = std::env::var_os("WIGWAG_DASHBOARD")?;
    std::fs::read(std::path::Path::new(&folder).join(name)).ok()
}

#[cfg(not(debug_assertions))]
fn from_folder(_: &str) -> Option<Vec<u8>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_embedded_and_small_enough_to_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard");
        let mut found = Vec::new();
        for part in ["", "screens"] {
            for entry in std::fs::read_dir(folder.join(part)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    found.push(path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        for name in found.iter().filter(|name| !["index.html", "jsconfig.json", "types.d.ts"].contains(&name.as_str()))
        {
            assert!(ASSETS.iter().any(|(known, ..)| known == name), "`{name}` is not embedded");
        }
        for (name, kind, bytes) in ASSETS {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            assert!(lines <= 350, "`{name}` has {lines} lines");
            let imports =
                std::str::from_utf8(bytes).unwrap().lines().filter_map(|line| line.split(" from \"./").nth(1));
            for import in imports.filter(|_| *kind == JS) {
                let import = import.trim_end_matches(['"', ';']);
                let below = name.rsplit_once('/').map_or(String::new(), |(below, _)| format!("{below}/"));
                let whole = format!("{below}{import}");
                assert!(ASSETS.iter().any(|(known, ..)| *known == whole), "`{name}` imports `{whole}`");
            }
        }
    }

    /// Bytes on the wire of all files with this ending.
    fn served(ending: &str) -> usize {
        let files = ASSETS.iter().zip(SERVED.iter()).filter(|((name, ..), _)| name.ends_with(ending));
        files.map(|(_, bytes)| bytes.len()).sum()
    }

    /// Returns the modules that `app.js` imports before it runs, itself included.
    fn modules_of_the_first_screen() -> Vec<&'static str> {
        let mut found = vec!["app.js"];
        let mut at = 0;
        while let Some(name) = found.get(at).copied() {
            at += 1;
            let (_, _, source) = ASSETS.iter().find(|(asset, ..)| *asset == name).unwrap();
            let source = std::str::from_utf8(source).unwrap();
            let imports =
                source.lines().filter(|line| line.starts_with("import ")).filter_map(|line| line.split('"').nth(1));
            for path in imports {
                let file = path.trim_start_matches("../").trim_start_matches("./");
                let (module, ..) = ASSETS.iter().find(|(asset, ..)| *asset == file).unwrap();
                if !found.contains(module) {
                    found.push(module);
                }
            }
        }
        found
    }

    #[test]
    fn the_page_is_within_its_budget() {
        let (js, css) = (served(".js"), served(".css"));
        assert!(js <= 160_000, "want at most 160,000 bytes of JavaScript, got: {js}");
        assert!(css <= 40_000, "want at most 40,000 bytes of style, got: {css}");
        let first = modules_of_the_first_screen();
        for (name, _, _) in ASSETS.iter().filter(|(name, ..)| name.ends_with(".js")) {
            let is_preloaded = INDEX.contains(&format!("modulepreload\" href=\"{BASE}/{name}"));
            assert_eq!(is_preloaded, first.contains(name), "`{name}`: want exactly the modules of the first screen");
        }
        // The page itself, and all files but the embedding module; what the API answers comes on top (browser tests).
        assert!(ASSETS.len() <= 25, "{}", ASSETS.len());
    }

    #[test]
    fn comments_are_not_served_and_lines_keep_their_numbers() {
        let source = "// head\n/**\n * Doc.\n * @param {string} a\n */\nconst x = /** @type {any} */ (a); // stays\n  // gone\ny(\"http://h\");\n";
        let want = "\n\n\n\n\nconst x=(a);// stays\n\ny(\"http://h\");\n";
        for (line, want) in [
            ("a = { b: \"c, d\" }; e ? f : g", "a={b:\"c, d\"};e?f:g"),
            ("const t = `a, ${b.map((c) => { d })}, e`, f;", "const t=`a, ${b.map((c) => { d })}, e`,f;"),
            ("const r = /a, [/\"]b/, c = d / e;", "const r=/a, [/\"]b/,c=d / e;"),
            ("x = 'a, b', c;", "x='a, b',c;"),
            ("y = \"\\\", \", z;", "y=\"\\\", \",z;"),
            ("t = `a${b ? `c, d` : e}`, f;", "t=`a${b ? `c, d` : e}`, f;"),
        ] {
            assert_eq!(without_spaces(line), want);
        }
        assert_eq!(String::from_utf8(without_comments(source.as_bytes()).into_owned()).unwrap(), want);
        for ((name, _, source), served) in ASSETS.iter().zip(SERVED.iter()).filter(|((_, kind, _), _)| *kind == JS) {
            let text = std::str::from_utf8(served).unwrap();
            assert!(
                !text.contains("*/ (") && !text.contains("@type") && !text.contains("@param"),
                "`{name}` has comments left"
            );
            assert!(
                !text.contains("+++") && !text.contains("---"),
                "`{name}` has a sign after an operator: use a variable"
            );
            let templates = text.lines().all(|line| line.matches('`').count() % 2 == 0);
            assert!(templates, "`{name}` has a template over several lines");
            let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines(served), lines(source), "`{name}`");
        }
    }
}
