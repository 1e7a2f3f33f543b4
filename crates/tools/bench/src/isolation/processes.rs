//! The processes of the adversary's users, as the kernel lists them. No other process has these users.

use std::path::Path;

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// The name of its program.
    pub(super) program: String,
    /// True of process 1 of a namespace.
    pub(super) is_first: bool,
}

/// Returns the processes of a user that have not ended.
pub(super) fn of(user: u32) -> anyhow::Result<Vec<Process>> {
    let entries = std::fs::read_dir("/proc").context("cannot list /proc")?.flatten();
    // A process may end meanwhile.
    Ok(entries.filter_map(|entry| read(&entry.path(), user)).collect())
}

fn read(folder: &Path, user: u32) -> Option<Process> {
    let pid = folder.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
    parse(pid, &std::fs::read_to_string(folder.join("status")).ok()?, user)
}

fn parse(pid: Pid, status: &str, user: u32) -> Option<Process> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_users = field("Uid:")?.split_whitespace().next()?.parse() == Ok(user);
    if !is_users || field("State:")?.starts_with('Z') {
        return None;
    }
    let numbers: Vec<_> = field("NSpid:")?.split_whitespace().collect();
    let is_first = numbers.len() > 1 && numbers.last() == Some(&"1");
    Some(Process { pid, program: field("Name:")?.to_owned(), is_first })
}

/// Sends a signal to a process, if it still is this user's. Returns whether it did.
pub(super) fn signal(process: Pid, user: u32, signal: Signal) -> bool {
    // The number may be another process's by now, so it is asked again after it was opened.
    let Ok(opened) = pidfd_open(process, PidfdFlags::empty()) else { return false };
    let folder = format!("/proc/{}", process.as_raw_pid());
    read(Path::new(&folder), user).is_some() && pidfd_send_signal(&opened, signal).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_processes_are_told_from_others() {
        let pid = Pid::from_raw(812).unwrap();
        let text = |state, numbers| {
            format!("Name:\tovs-vswitchd\nState:\t{state}\nUid:\t7\t7\t7\t7\nNSpid:\t{numbers}\n")
        };
        let parsed = |state, numbers, user| parse(pid, &text(state, numbers), user);
        assert_eq!(parsed("S (sleeping)", "812\t1", 7).map(|p| p.is_first), Some(true));
        assert_eq!(parsed("S (sleeping)", "812\t2", 7).map(|p| p.is_first), Some(false));
        assert_eq!(parsed("S (sleeping)", "1", 7).map(|p| p.is_first), Some(false));
        assert_eq!(parsed("Z (zombie)", "812\t1", 7), None, "it has ended");
        assert_eq!(parsed("S (sleeping)", "812\t1", 8), None);
    }

    #[test]
    fn a_process_of_another_user_gets_no_signal() {
        let own = rustix::process::geteuid().as_raw();
        assert!(of(own).unwrap().iter().any(|p| p.pid == rustix::process::getpid()));
        assert!(!signal(rustix::process::getpid(), own + 1, Signal::KILL));
    }
}
