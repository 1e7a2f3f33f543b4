//! Objects that a killed process left behind. Their names contain its process id; the next process removes
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::run;
use crate::{Error, Result};

/// Returns the prefix of the names of this process's namespaces and folders.
pub(crate) fn prefix() -> String {
    format!("p4s-{}-", std::process::id())
}

/// Creates a temporary folder that is removed on drop, or by [`sweep`] after its creator was killed.
///
/// # Errors
/// The folder cannot be created.
pub fn folder(purpose: &str) -> Result<TempDir> {
    TempDir::with_prefix(format!("{}{purpose}-", prefix())).map_err(Error::system("make a temporary folder"))
}

/// Removes namespaces and folders of processes that no longer run.
pub fn sweep() {
    remove(|maker| !Path::new(&format!("/proc/{maker}")).exists());
}

/// Removes this process's own namespaces and folders, for a process that ends without dropping them; its
/// children end with it. Folders that a child still writes to may remain until the next [`sweep`].
pub fn abandon() {
    remove(|maker| maker == std::process::id());
}

/// Removes the namespaces and folders of the processes that `of` selects.
fn remove(made_by: impl Fn(u32) -> bool) {
    for (name, _) in left(Path::new("/run/netns"), &made_by) {
        tracing::info!(name, "removing a network namespace that a process left");
        let _ = run(Command::new("ip").args(["netns", "del", &name]));
    }
    for (name, path) in left(&std::env::temp_dir(), &made_by) {
        tracing::info!(name, "removing a folder that a process left");
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Returns the entries of `folder` that these processes created.
fn left(folder: &Path, made_by: impl Fn(u32) -> bool) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.path())))
        .filter(|(name, _)| maker(name).is_some_and(&made_by))
        .collect()
}

/// Returns the process id in a name with the prefix of [`prefix`].
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix("p4s-")?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_processs_leftovers_are_removed() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = std::env::temp_dir().join(format!("p4s-{}-test", child.id()));
        std::fs::create_dir(&dead).unwrap();
        let mine = folder("test").unwrap();
        sweep();
        assert!(!dead.exists() && mine.path().exists());
    }

    #[test]
    fn an_interrupted_process_removes_its_own_objects_only() {
        let other = std::env::temp_dir().join("p4s-1-test");
        std::fs::create_dir_all(&other).unwrap();
        // Only this process name: other tests may have folders, too.
        let mine = std::env::temp_dir().join(format!("p4s-{}-test", u32::MAX));
        std::fs::create_dir_all(&mine).unwrap();
        remove(|maker| maker == u32::MAX);
        assert!(other.exists() && !mine.exists());
        std::fs::remove_dir(other).unwrap();
    }

    #[test]
    fn names_of_others_have_no_maker() {
        assert_eq!(maker("p4s-12-0-vm"), Some(12));
        for name in ["p4s-x-0", "other-12-0", "p4s", "p4s-"] {
            assert_eq!(maker(name), None, "{name}");
        }
    }
}
