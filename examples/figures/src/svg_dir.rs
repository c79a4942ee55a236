//! The directory for plots.

use std::fs;
use std::path::{Path, PathBuf};

use tower::BoxError;

use crate::plot::Plot;

/// A directory that can be written to.
#[derive(Debug)]
pub(crate) struct SvgDir(PathBuf);

impl SvgDir {
    /// Makes the directory if it is missing, and tries whether a file can be made there.
    pub(crate) fn open(dir: &Path) -> Result<Self, BoxError> {
        let probe = dir.join(format!(".figures-{}", std::process::id()));
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&probe, ""))
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|error| format!("cannot write to {}: {error}", dir.display()))?;
        Ok(Self(dir.to_owned()))
    }

    /// Draws a plot into its file, and says where that is.
    pub(crate) fn write(&self, plot: &Plot) -> Result<PathBuf, BoxError> {
        let path = self.0.join(plot.name).with_extension("svg");
        fs::write(&path, plot.svg()?)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}
