//! The source tree: its folders, files and parsed Rust modules.

use std::path::{Path, PathBuf};

/// Root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Every file below `folder` whose name ends in `suffix`, sorted. Build output and hidden folders are skipped.
///
/// # Panics
/// A folder cannot be read.
#[must_use]
pub fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the entry can be read").path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The folder of each crate of the workspace, sorted.
#[must_use]
pub fn crates() -> Vec<PathBuf> {
    let manifests = files(&root().join("crates"), "Cargo.toml");
    manifests.iter().filter_map(|m| m.parent().map(Path::to_owned)).collect()
}

/// Text of a file.
///
/// # Panics
/// It is not UTF-8 or cannot be read.
#[must_use]
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
