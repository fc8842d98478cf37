//! Builds the documentation site, and checks in a browser that its diagrams are drawn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::step;
use crate::tools::{Tools, chromium};

/// The renderer of the diagrams; it is downloaded, not kept in the repository.
const RENDERER: &str = "mermaid@11.17.2";

const SITE: &str = "target/book";

/// Builds the site into `target/book`; without a renderer or a browser the rest is skipped and said.
pub(crate) fn site(tools: &mut Tools, has_npm: bool) -> Result<(), String> {
    if !tools.mdbook() {
        return Ok(());
    }
    step("documentation site", Command::new("mdbook").arg("build"))?;
    if !has_npm || !install_renderer() {
        tools.skipped.push(format!("{RENDERER} could not be downloaded: the diagrams of the site stay text"));
        return Ok(());
    }
    let Some(browser) = chromium() else {
        tools.skipped.push("Chromium is missing: the diagrams of the site are not checked".into());
        return Ok(());
    };
    for (page, diagrams) in pages_with_diagrams()? {
        let drawn = drawn_diagrams(&browser, &page)?;
        if drawn != diagrams {
            return Err(format!("`{}` has {diagrams} diagrams, and the browser drew {drawn}", page.display()));
        }
    }
    Ok(())
}

/// Puts the renderer beside the pages; it stays in `target/renderer` for the next build.
fn install_renderer() -> bool {
    let (home, script) = (Path::new("target/renderer"), Path::new("target/renderer/package/dist/mermaid.min.js"));
    if !script.exists() {
        let archive = home.join("mermaid.tgz");
        let unpacked = std::fs::create_dir_all(home).is_ok()
            && download(home).is_some_and(|file| std::fs::rename(file, &archive).is_ok())
            && Command::new("tar")
                .arg("-xzf")
                .arg(&archive)
                .arg("-C")
                .arg(home)
                .status()
                .is_ok_and(|tar| tar.success());
        if !unpacked {
            return false;
        }
    }
    std::fs::copy(script, Path::new(SITE).join("mermaid.min.js")).is_ok()
}

/// Downloads the package, and returns the path of its archive.
fn download(home: &Path) -> Option<PathBuf> {
    let packed = Command::new("npm").args(["pack", "--silent", RENDERER]).current_dir(home).output().ok()?;
    let name = String::from_utf8(packed.stdout).ok()?;
    packed.status.success().then(|| home.join(name.trim()))
}

/// Returns the pages of the site that contain diagrams, with the number of diagrams.
fn pages_with_diagrams() -> Result<Vec<(PathBuf, usize)>, String> {
    let mut folders = vec![PathBuf::from(SITE)];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // The print page repeats all others.
            let is_page = path.extension().is_some_and(|ending| ending == "html") && !path.ends_with("print.html");
            let text = if is_page { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
            let diagrams = text.matches("language-mermaid").count();
            if diagrams > 0 {
                pages.push((path, diagrams));
            }
        }
    }
    match pages.is_empty() {
        true => Err(format!("no page in `{SITE}` has a diagram")),
        false => Ok(pages),
    }
}

/// Opens the page in a browser, and counts the diagrams that were drawn without an error.
fn drawn_diagrams(browser: &Path, page: &Path) -> Result<usize, String> {
    let path = std::path::absolute(page).map_err(|error| format!("`{}`: {error}", page.display()))?;
    let shown = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("file://{}", path.display()))
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("`{}` could not be started: {error}", browser.display()))?;
    let html = String::from_utf8_lossy(&shown.stdout);
    Ok(html.matches("aria-roledescription=\"").count() - html.matches("aria-roledescription=\"error\"").count())
}
