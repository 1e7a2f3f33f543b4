//! A folder in place of `/`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Longest chain of symbolic links, as in the kernel.
const MAX_LINKS: usize = 40;
/// Longest text file that is read, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// The folder of the host's files: `/`, or the folder of an image. Its functions take absolute paths as the
/// host itself sees them; symbolic links, absolute ones too, do not lead out of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// Returns the host whose files are below `folder`.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Returns whether this is the running host.
    #[must_use]
    pub fn is_host(&self) -> bool {
        std::fs::canonicalize(&self.0).is_ok_and(|path| path == Path::new("/"))
    }

    /// Returns the real path of a host's file: no part of it below the root is a symbolic link.
    ///
    /// # Errors
    /// A part of the path other than the last is missing, or links form a circle.
    pub fn locate(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(self.outside(&self.resolve(path)?))
    }

    /// Returns the same path, as the host sees it.
    pub(crate) fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut left: VecDeque<OsString> = parts(path);
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = left.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            at.push(&part);
            match std::fs::symlink_metadata(self.outside(&at)) {
                Ok(meta) if meta.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(io::Error::from(rustix::io::Errno::LOOP));
                    }
                    let to = std::fs::read_link(self.outside(&at))?;
                    at.pop();
                    if to.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    for part in parts(&to).into_iter().rev() {
                        left.push_front(part);
                    }
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound && left.is_empty() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(at)
    }

    /// Returns whether the path is a regular file.
    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.locate(path).is_ok_and(|p| p.is_file())
    }

    /// Reads a text file up to the limit.
    pub(crate) fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(self.locate(path)?)?.take(MAX_TEXT).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Returns the sorted names in a folder; none if the folder is missing.
    pub(crate) fn names(&self, folder: &Path) -> Vec<String> {
        let Ok(entries) = self.locate(folder).and_then(std::fs::read_dir) else { return Vec::new() };
        let mut names: Vec<_> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn outside(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Returns the parts of a path, including `..`.
fn parts(path: &Path) -> VecDeque<OsString> {
    let leads = |c: &Component<'_>| matches!(c, Component::Normal(_) | Component::ParentDir);
    path.components().filter(leads).map(|c| c.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_within_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for made in ["usr/sbin", "usr/lib/ovs", "etc/alternatives"] {
            std::fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        std::fs::write(folder.path().join("usr/lib/ovs/vswitchd"), "x").unwrap();
        symlink("/etc/alternatives/vswitchd", folder.path().join("usr/sbin/vswitchd")).unwrap();
        symlink("/usr/lib/ovs/vswitchd", folder.path().join("etc/alternatives/vswitchd")).unwrap();
        symlink("usr/sbin", folder.path().join("sbin")).unwrap();
        symlink("../../../../../../usr/lib", folder.path().join("usr/out")).unwrap();
        let found = Path::new("/usr/lib/ovs/vswitchd");
        assert_eq!(root.resolve(Path::new("/sbin/vswitchd")).unwrap(), found);
        assert_eq!(root.resolve(Path::new("/usr/out/ovs/../ovs/vswitchd")).unwrap(), found);
        assert_eq!(root.read(Path::new("/sbin/vswitchd")).unwrap(), "x");
        assert!(root.locate(Path::new("/sbin/vswitchd")).unwrap().starts_with(folder.path()));
        assert!(!root.is_host() && Root::new("/").is_host());
    }

    #[test]
    fn a_circle_of_links_is_an_error_and_a_missing_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        symlink("/b", folder.path().join("a")).unwrap();
        symlink("/a", folder.path().join("b")).unwrap();
        root.resolve(Path::new("/a")).unwrap_err();
        assert_eq!(root.resolve(Path::new("/new")).unwrap(), Path::new("/new"));
        assert!(!root.is_file(Path::new("/new")) && root.names(Path::new("/none")).is_empty());
        root.resolve(Path::new("/none/new")).unwrap_err();
    }
}
