//! The memory and processor time of users, as the kernel says.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// The memory and processor time of all processes of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Bytes of memory, each page divided by the number of its users.
    pub(super) pss: u64,
    /// Bytes of memory.
    pub(super) rss: u64,
    /// Processor time of the threads that run.
    pub(super) processor: Duration,
}

/// Returns what the processes of each of these users take; users without a process are left out.
pub(super) fn of_users(users: &Range<u32>) -> anyhow::Result<BTreeMap<u32, Usage>> {
    let mut found: BTreeMap<u32, Usage> = BTreeMap::new();
    for process in std::fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        // A process may end meanwhile.
        let Some((user, usage)) = of_process(&process.path(), users) else { continue };
        let all = found.entry(user).or_default();
        all.pss += usage.pss;
        all.rss += usage.rss;
        all.processor += usage.processor;
    }
    Ok(found)
}

/// Returns a process's user and usage, if it runs and its user is one of these.
fn of_process(folder: &Path, users: &Range<u32>) -> Option<(u32, Usage)> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let user = field(&read("status")?, "Uid:")?.try_into().ok().filter(|user| users.contains(user))?;
    // Empty once the process has ended.
    let memory = read("smaps_rollup")?;
    let threads = std::fs::read_dir(folder.join("task")).ok()?.flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    let processor = Duration::from_nanos(nanoseconds.sum());
    let usage = Usage { pss: field(&memory, "Pss:")? * 1024, rss: field(&memory, "Rss:")? * 1024, processor };
    Some((user, usage))
}

/// Returns the first number of a line that begins with this name.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_this_users_processes_is_found() {
        let own = rustix::process::geteuid().as_raw();
        let usage = of_users(&(own..own + 1)).unwrap()[&own];
        assert!(usage.pss > 0 && usage.rss >= usage.pss && usage.processor > Duration::ZERO, "{usage:?}");
        assert!(of_users(&(u32::MAX - 9..u32::MAX - 1)).unwrap().is_empty());
    }
}
