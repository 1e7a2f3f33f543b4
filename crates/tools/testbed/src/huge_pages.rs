//! Huge pages that the machine reserves for a test.

use std::fs::{self, File};
use std::path::PathBuf;

/// The number of the machine's huge pages of the default size.
const FILE: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages that the machine reserves while this exists. One process at a time has some: each restores the
/// number that was before.
#[derive(Debug)]
pub struct HugePages {
    before: String,
    /// Its lock ends with it.
    _lock: File,
}

impl HugePages {
    /// Reserves so many pages beside those that are in use, after all others that hold some are gone. `None`:
    /// the kernel does not reserve them.
    #[must_use]
    pub fn reserve(count: u64) -> Option<Self> {
        let lock = File::create(lock()).ok()?;
        lock.lock().ok()?;
        let before = fs::read_to_string(FILE).ok()?;
        let has = before.trim().parse::<u64>().ok()?;
        let pages = Self { before, _lock: lock };
        fs::write(FILE, (has + count).to_string()).ok()?;
        let now = fs::read_to_string(FILE).ok()?.trim().parse::<u64>().ok()?;
        (now >= has + count).then_some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(FILE, &self.before);
    }
}

/// Returns the file whose lock a process has that reserves pages.
fn lock() -> PathBuf {
    std::env::temp_dir().join("p4shield-test-huge-pages.lock")
}
