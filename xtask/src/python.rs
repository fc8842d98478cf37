//! The Python package: a wheel, a fresh environment without Rust, and the tests there.
//!
//! The native library is built with the workspace, in the development profile and with its features, so that nothing is
//! compiled twice. The release builds it with maturin (`.github/workflows/wheels.yml`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::Tools;
use crate::{cargo, step};

/// Packages that build the wheel, and packages that its tests need.
const PACKAGES: &str = include_str!("../python.txt");

/// Packages that the tests need with further interpreters, in the newest version that each supports: a version in
/// `python.txt` may need a newer interpreter.
const TEST_PACKAGES: [&str; 6] = ["pytest", "pydantic", "msgspec", "fastapi", "httpx", "django"];

/// Minor versions of Python 3 that the package supports.
const MINORS: std::ops::RangeInclusive<u32> = 10..=14;

const HOME: &str = "target/python";

/// Builds the wheel, installs it, and runs its tests.
pub(crate) fn python(tools: &mut Tools) -> Result<(), String> {
    let Some(python) = tools.python(&Path::new(HOME).join("tools"), PACKAGES) else { return Ok(()) };
    step("the Python package: library", cargo(["build", "--workspace", "--all-features", "--lib", "--tests"]))?;
    let wheel = wheel(&python)?;
    test(Path::new("python3"), "tests", &wheel, &["-r", "xtask/python.txt"], &[])?;
    let own = minor(Path::new("python3"));
    for other in MINORS.filter(|other| Some(*other) != own) {
        match interpreter(other) {
            // Types and docs are checked once.
            Some(program) => {
                let skipped = ["--ignore", "tests/test_typing.py", "--ignore", "tests/test_docs.py"];
                test(&program, &format!("tests-3.{other}"), &wheel, &TEST_PACKAGES, &skipped)?;
            }
            None => tools.skipped.push(format!("no Python 3.{other} here: the Python package is not tried with it")),
        }
    }
    Ok(())
}

/// Installs the wheel into a fresh environment without Rust, and runs its tests there.
fn test(python: &Path, name: &str, wheel: &Path, packages: &[&str], args: &[&str]) -> Result<(), String> {
    let fresh = Path::new(HOME).join(name);
    let _ = std::fs::remove_dir_all(&fresh);
    let pip = |program: &Path, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(args);
        command
    };
    let mut venv = Command::new(python);
    venv.args(["-m", "venv"]).arg(&fresh);
    step(&format!("the Python package: a fresh environment, {}", python.display()), venv)?;
    let program = std::path::absolute(fresh.join("bin/python")).map_err(|error| error.to_string())?;
    step("the Python package: what its tests need", pip(&program, packages))?;
    step("the Python package: installed", pip(&program, &["--no-index", &wheel.display().to_string()]))?;
    let mut tests = Command::new(&program);
    tests.args(["-m", "pytest", "-q", "--durations=5"]).args(args).current_dir("bindings/python");
    tests.env("PATH", format!("{}:/usr/bin:/bin", program.with_file_name("").display()));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO") || name.starts_with("RUST")) {
        tests.env_remove(name);
    }
    step("the Python package: tests", tests)
}

/// The minor version of an interpreter that starts.
fn minor(python: &Path) -> Option<u32> {
    let said = Command::new(python).args(["-c", "import sys, venv; print(sys.version_info.minor)"]).output().ok()?;
    String::from_utf8(said.stdout).ok()?.trim().parse().ok().filter(|_| said.status.success())
}

/// Finds an interpreter: on the path, or among those of pyenv.
fn interpreter(wanted: u32) -> Option<PathBuf> {
    let versions = std::env::home_dir().map(|home| home.join(".pyenv/versions")).and_then(|all| all.read_dir().ok());
    let installed = versions.into_iter().flatten().flatten().map(|version| version.path().join("bin/python"));
    let mut all = std::iter::once(PathBuf::from(format!("python3.{wanted}"))).chain(installed);
    all.find(|python| minor(python) == Some(wanted))
}

/// Packs the library and the package into a wheel, with the metadata that maturin writes.
fn wheel(python: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("the wheel cannot be made: {error}");
    let (tree, dist) = (Path::new(HOME).join("wheel"), Path::new(HOME).join("dist"));
    let _ = (std::fs::remove_dir_all(&tree), std::fs::remove_dir_all(&dist));
    copy(Path::new("bindings/python/python/wigwag"), &tree.join("wigwag")).map_err(failed)?;
    std::fs::create_dir_all(&dist).map_err(failed)?;
    let own = std::env::current_exe().map_err(failed)?;
    let library = ["lib_native.so", "lib_native.dylib"].map(|name| own.with_file_name(name));
    let library = library.iter().find(|path| path.exists()).ok_or("the native library was not built")?;
    std::fs::copy(library, tree.join("wigwag/_native.abi3.so")).map_err(failed)?;
    let (tree, dist) = (std::path::absolute(&tree).map_err(failed)?, std::path::absolute(&dist).map_err(failed)?);
    let mut metadata = Command::new(python.with_file_name("maturin"));
    metadata.args(["pep517", "write-dist-info", "--metadata-directory"]).arg(&tree).current_dir("bindings/python");
    step("the Python package: metadata", metadata)?;
    let mut pack = Command::new(python);
    pack.args(["-m", "wheel", "pack", "--dest-dir"]).arg(&dist).arg(&tree);
    step("the Python package: wheel", pack)?;
    let packed = std::fs::read_dir(&dist).map_err(failed)?.flatten().next();
    packed.map(|entry| entry.path()).ok_or_else(|| "no wheel was packed".into())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        match entry.file_type()?.is_dir() {
            true if name == "__pycache__" => {}
            true => copy(&path, &to.join(name))?,
            false if path.extension().is_some_and(|extension| extension == "so") => {}
            false => _ = std::fs::copy(&path, to.join(name))?,
        }
    }
    Ok(())
}
