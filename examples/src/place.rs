//! Where a program keeps its runs.

use tempfile::TempDir;

/// A store: the one that the first argument names, or a folder that is removed at the end.
#[derive(Debug)]
pub struct Place {
    url: String,
    folder: Option<TempDir>,
}

impl Place {
    /// Reads the program's first argument.
    pub fn from_args() -> std::io::Result<Self> {
        match std::env::args().nth(1) {
            Some(url) => Ok(Self { url, folder: None }),
            None => {
                let folder = tempfile::tempdir()?;
                Ok(Self { url: folder.path().display().to_string(), folder: Some(folder) })
            }
        }
    }

    /// Whether somebody named it, and may look for it.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.folder.is_none()
    }

    /// The store's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}
