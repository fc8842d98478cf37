//! Where a program keeps its runs.

use tempfile::TempDir;

/// A store: the one that the first argument names, or a folder that is removed at the end.
#[derive(Debug)]
pub struct Place {
    url: String,
    _folder: Option<TempDir>,
}

impl Place {
    /// Reads the program's first argument.
    pub fn from_args() -> std::io::Result<Self> {
        match std::env::args().nth(1) {
            Some(url) => Ok(Self { url, _folder: None }),
            None => {
                let folder = tempfile::tempdir()?;
                Ok(Self { url: folder.path().display().to_string(), _folder: Some(folder) })
            }
        }
    }

    /// The store's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}
