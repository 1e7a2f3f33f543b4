//! The archive of a kernel's initial root file system: cpio in the `newc` format
//! (`Documentation/driver-api/early-userspace/buffer-format.rst` of Linux).
//!
//! The same entries give the same bytes: no times, no owners, numbers in order.

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that grows.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: std::collections::BTreeSet<String>,
}

impl Archive {
    /// Adds a folder and its parents, once. `path` has no leading slash.
    pub fn folder(&mut self, path: &str) {
        for end in path.match_indices('/').map(|(i, _)| i).chain([path.len()]) {
            if end > 0 && self.folders.insert(path[..end].to_owned()) {
                self.entry(&path[..end], DIRECTORY, &[], (0, 0));
            }
        }
    }

    /// Adds an executable file and its parent folders.
    ///
    /// # Panics
    /// The file has 4 GiB or more.
    pub fn file(&mut self, path: &str, data: &[u8]) {
        self.above(path);
        self.entry(path, FILE, data, (0, 0));
    }

    /// Adds a symbolic link and its parent folders.
    pub fn link(&mut self, path: &str, target: &str) {
        self.above(path);
        self.entry(path, LINK, target.as_bytes(), (0, 0));
    }

    /// Adds a character device with these numbers, and its parent folders.
    pub fn character_device(&mut self, path: &str, numbers: (u32, u32)) {
        self.above(path);
        self.entry(path, CHARACTER_DEVICE, &[], numbers);
    }

    /// Returns the finished archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn above(&mut self, path: &str) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8], (major, minor): (u32, u32)) {
        self.entries += 1;
        let links = 1;
        let size = u32::try_from(data.len()).expect("a guest's file is below 4 GiB");
        let name_size = name.len() as u32 + 1;
        // Number, mode, user, group, links, time, size, device and its own device, name, checksum.
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn another_reader_finds_every_entry() {
        let mut archive = Archive::default();
        archive.file("etc/deep/name", b"some words");
        archive.file("etc/deep/other", b"");
        archive.link("bin/sh", "busybox");
        archive.character_device("dev/console", (5, 1));
        let bytes = archive.finish();
        let list = ["cpio", "-t", "--quiet"];
        let Ok(mut child) =
            Command::new("busybox").args(&list[..2]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        else {
            p4shield_need::skip("qemu", "busybox (package busybox-static) is missing");
            return;
        };
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let listed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let names: Vec<&str> = listed.lines().collect();
        assert_eq!(
            names,
            ["etc", "etc/deep", "etc/deep/name", "etc/deep/other", "bin", "bin/sh", "dev", "dev/console"]
        );
    }
}
