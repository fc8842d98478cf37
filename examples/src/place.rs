//! The store of a program.

use tempfile::TempDir;

/// A store: the one named by the first argument, or a temporary directory.
#[derive(Debug)]
pub struct Place {
    url: String,
    folder: Option<TempDir>,
}

impl Place {
    /// Opens the store named by the program's first argument.
    pub fn from_args() -> std::io::Result<Self> {
        match std::env::args().nth(1) {
            Some(url) => Ok(Self { url, folder: None }),
            None => {
                let folder = tempfile::tempdir()?;
                Ok(Self { url: folder.path().display().to_string(), folder: Some(folder) })
            }
        }
    }

    /// Whether the store was named on the command line and outlives the program.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.folder.is_none()
    }

    /// Returns the store's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}
