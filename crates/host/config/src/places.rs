//! Where the configuration names files.

use super::error::Problem;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Line and column where each path is written first, for problems that show only when the file is opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(HashMap<PathBuf, (usize, usize)>);

/// All are equal: configurations that differ only in their lines are the same.
impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Places {}

impl Places {
    pub(super) fn insert(&mut self, path: &Path, place: &Problem) {
        self.0.entry(path.to_owned()).or_insert((place.line, place.column));
    }

    /// Returns a problem with the file at `path`. A path that is nowhere in the configuration, such as a
    /// default, has the place of the configuration's beginning.
    pub(super) fn problem(&self, path: &Path, message: String) -> Problem {
        let &(line, column) = self.0.get(path).unwrap_or(&(1, 1));
        Problem { line, column, message }
    }
}
