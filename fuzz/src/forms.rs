//! Stored forms used as seeds: the golden files, by kind.

use std::path::Path;
use std::time::Duration;

use wigwag_core::Time;

/// The run of the golden files.
pub const RUN: &str = "workflow/order-1";

/// The kind of a stored body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A log entry, or the tombstone in place of the first.
    Entry,
    /// A run folded up to some entry.
    Snapshot,
    /// Steps that were moved out of the snapshot.
    Chunk,
    /// A control request.
    Control,
    /// A signal to a run.
    Signal,
    /// The definition of a workflow.
    Definition,
}

impl Form {
    /// All kinds of stored bodies.
    pub const ALL: [Self; 6] =
        [Self::Entry, Self::Snapshot, Self::Chunk, Self::Control, Self::Signal, Self::Definition];

    fn is_file(self, name: &str) -> bool {
        let begins = match self {
            Self::Entry => ["entry", "tombstone"].as_slice(),
            Self::Snapshot => &["snapshot"],
            Self::Chunk => &["chunk"],
            Self::Control => &["control"],
            Self::Signal => &["signal"],
            Self::Definition => &["definition"],
        };
        begins.iter().any(|begin| name.starts_with(begin))
    }
}

/// Returns names and bodies of all golden files, sorted by name.
///
/// # Panics
///
/// If the files are missing.
#[must_use]
pub fn golden() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/wigwag-core/tests/golden");
    let files = std::fs::read_dir(folder).expect("the golden files are in the repository").flatten();
    let read = |file: std::fs::DirEntry| {
        let body = std::fs::read(file.path()).expect("a golden file can be read");
        (file.file_name().to_string_lossy().into_owned(), body)
    };
    let mut bodies: Vec<_> = files.map(read).collect();
    bodies.sort();
    bodies
}

/// Returns the golden bodies of a form.
#[must_use]
pub fn of_form(form: Form) -> Vec<Vec<u8>> {
    golden().into_iter().filter(|(name, _)| form.is_file(name)).map(|(_, body)| body).collect()
}

/// Returns a time this many seconds after a fixed one.
#[must_use]
pub fn at(seconds: u64) -> Time {
    Time::from_micros(1_769_601_600_000_000).after(Duration::from_secs(seconds))
}
