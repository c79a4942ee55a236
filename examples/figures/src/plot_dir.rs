//! A directory for plots.

use std::fs;
use std::path::{Path, PathBuf};

use tower::BoxError;

/// A writable directory.
#[derive(Debug)]
pub(crate) struct PlotDir(PathBuf);

impl PlotDir {
    /// Creates the directory if it is missing. Fails if no file can be created there.
    pub(crate) fn open(dir: &Path) -> Result<Self, BoxError> {
        let probe = dir.join(format!(".figures-{}", std::process::id()));
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&probe, ""))
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|error| format!("cannot write to {}: {error}", dir.display()))?;
        Ok(Self(dir.to_owned()))
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, file: &str, contents: &[u8]) -> Result<PathBuf, BoxError> {
        let path = self.0.join(file);
        fs::write(&path, contents)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}
