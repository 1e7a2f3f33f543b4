//! The text of the configuration, and where it names files.

use super::error::Problem;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The text of a file, and line and column where each path is written first, for problems that show only
/// when the file at the path is opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    text: String,
    places: HashMap<PathBuf, (usize, usize)>,
}

/// All are equal: configurations that differ only in their text are the same.
impl PartialEq for Source {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Source {}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), places: HashMap::new() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn insert(&mut self, path: &Path, place: &Problem) {
        self.places.entry(path.to_owned()).or_insert((place.line, place.column));
    }

    /// Returns a problem with the file at `path`. A path that is nowhere in the configuration, such as a
    /// default, has the place of the configuration's beginning.
    pub(super) fn problem(&self, path: &Path, message: String) -> Problem {
        let &(line, column) = self.places.get(path).unwrap_or(&(1, 1));
        Problem { line, column, message }
    }

    /// Returns the text as TOML. It was parsed before, so it is valid.
    pub(super) fn document(&self) -> toml::Table {
        self.text.parse().unwrap_or_default()
    }
}
