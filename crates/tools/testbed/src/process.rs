//! Child processes that end with their parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::{Error, Result};

/// Returns the path of a command in `PATH` or in the system's administrative folders.
#[must_use]
pub fn find(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|d| d.join(command))
        .find(|p| p.is_file())
}

/// Returns the `p4shield` binary of this build: beside the running program, or one folder up from a test's.
///
/// # Errors
/// [`Error::System`]: the binary was not built.
pub fn product() -> Result<PathBuf> {
    let missing = Error::system("find the `p4shield` of this build");
    let own = std::env::current_exe().unwrap_or_default();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("p4shield")).find(|p| p.is_file());
    found.ok_or_else(|| missing(io::Error::other("run `cargo build -p p4shield` first, in the same profile")))
}

/// Returns a command's text for a message.
#[must_use]
pub fn describe(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|a| a.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the last lines of a log.
#[must_use]
pub fn last_lines(log: &str, count: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns the numbers of a process's children; none if it has ended.
#[must_use]
pub fn children(pid: i64) -> Vec<i64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default());
    lists.collect::<String>().split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// [`Error::Start`], or [`Error::Failed`] with its error output.
pub fn run(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let out = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { command: name.clone(), source })?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        Err(Error::failed(name, String::from_utf8_lossy(&out.stderr).trim()))
    }
}

/// A child process. Dropping it sends SIGTERM, and SIGKILL after two seconds. The kernel kills it when the
/// thread that started it dies.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    name: String,
}

impl Guarded {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Start`].
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let name = describe(command);
        // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)
            });
        }
        let child = command.spawn().map_err(|source| Error::Start { command: name.clone(), source })?;
        Ok(Self { child, name })
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns its exit status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns the process, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends SIGTERM and waits for the end; kills it after half a minute, which a busy machine may need.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.end_within(Duration::from_secs(30))
    }

    fn end_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        if self.ended().is_none() {
            let _ = rustix::process::kill_process(self.pid(), Signal::TERM);
            let end = Instant::now() + patience;
            while self.ended().is_none() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            if self.ended().is_none() {
                tracing::warn!(command = self.name, "did not end after SIGTERM, killing it");
                let _ = self.child.kill();
            }
        }
        self.child.wait().ok()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // No test reads how it ended.
        self.end_within(Duration::from_secs(2));
    }
}

/// Removes from a command's environment what cargo sets for a test: a cargo that the command starts would
/// build the dependencies anew.
pub fn forget_cargo(command: &mut Command) -> &mut Command {
    /// Variables that the user sets.
    const KEPT: [&str; 3] = ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_INCREMENTAL"];
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO") && !KEPT.iter().any(|kept| name == *kept) {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_says_why() {
        let Err(Error::Failed { stderr, .. }) = run(Command::new("sh").args(["-c", "echo no >&2; exit 3"]))
        else {
            panic!("not an error");
        };
        assert_eq!(stderr, "no");
    }

    #[test]
    fn a_guarded_child_ends_on_drop() {
        let child = Guarded::spawn(Command::new("sleep").arg("1000")).unwrap();
        let pid = child.pid();
        rustix::process::test_kill_process(pid).unwrap();
        drop(child);
        rustix::process::test_kill_process(pid).unwrap_err();
    }
}
