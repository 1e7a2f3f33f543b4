//! The kernel that the distribution installed.

use crate::error::{ImageError, Operation};
use std::path::{Path, PathBuf};

/// Start of the names of kernels, before the version.
const PREFIX: &str = "vmlinuz-";

/// Returns the newest kernel in a folder such as `/boot`.
///
/// # Errors
/// The folder cannot be read or has none.
pub fn installed_kernel(folder: &Path) -> Result<PathBuf, ImageError> {
    let entries = std::fs::read_dir(folder).map_err(ImageError::file(Operation::Read, folder))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let newest = names.filter(|name| name.starts_with(PREFIX)).max_by_key(|name| version(name));
    let none = || ImageError::NoKernel { folder: folder.to_owned() };
    newest.map(|name| folder.join(name)).ok_or_else(none)
}

/// Returns the numbers in a name, so that 6.10 follows 6.9, and the name.
fn version(name: &str) -> (Vec<u64>, String) {
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    (numbers.collect(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let error = installed_kernel(folder.path()).unwrap_err().to_string();
        assert!(error.contains("linux-image-amd64"), "{error}");
        for name in
            ["vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-40-amd64", "vmlinuz-5.10.0-99-amd64", "System.map-7"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = installed_kernel(folder.path()).unwrap();
        assert_eq!(found, folder.path().join("vmlinuz-6.1.0-40-amd64"));
    }
}
