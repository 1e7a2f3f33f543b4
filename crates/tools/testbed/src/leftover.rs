//! What a killed process could not remove: found by the maker's process id in its name, removed by the next.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::run;
use crate::{Error, Result};

/// What the names of this process's namespaces and folders begin with.
pub(crate) fn prefix() -> String {
    format!("p4s-{}-", std::process::id())
}

/// A temporary folder, removed on drop, or swept after its maker was killed.
///
/// # Errors
/// If there is no room for one.
pub fn folder(purpose: &str) -> Result<TempDir> {
    TempDir::with_prefix(format!("{}{purpose}-", prefix()))
        .map_err(|source| Error::System { what: "make a temporary folder".into(), source })
}

/// Removes namespaces and folders of makers that no longer run.
pub fn sweep() {
    remove(|maker| !Path::new(&format!("/proc/{maker}")).exists());
}

/// Removes this process's own, for one that ends without dropping them: its children end with it. What those still write to
/// may stay, for the next [`sweep`].
pub fn abandon() {
    remove(|maker| maker == std::process::id());
}

/// Removes the namespaces and folders of these makers.
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

/// What lies in `folder` and was made by these.
fn left(folder: &Path, made_by: impl Fn(u32) -> bool) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.path())))
        .filter(|(name, _)| maker(name).is_some_and(&made_by))
        .collect()
}

/// The process id in a name that [`prefix`] begins.
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix("p4s-")?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_left_is_removed() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = std::env::temp_dir().join(format!("p4s-{}-test", child.id()));
        std::fs::create_dir(&dead).unwrap();
        let mine = folder("test").unwrap();
        sweep();
        assert!(!dead.exists() && mine.path().exists());
    }

    #[test]
    fn an_interrupted_process_removes_what_it_made_and_nothing_else() {
        let other = std::env::temp_dir().join("p4s-1-test");
        std::fs::create_dir_all(&other).unwrap();
        // By the process of this name alone: other tests of this one may have folders, too.
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
