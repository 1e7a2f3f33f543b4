//! The compartment `process`: what a P4 VM gives up before it touches a byte of a tenant.
//!
//! [`enter`] takes everything away that a process has besides memory, a few descriptors and the processor: user,
//! mount, network, IPC, PID, UTS and cgroup namespaces of its own, a read-only root with nothing in it, no
//! capability in any set, no way to gain one, Landlock with no rule, resource limits, no core dumps. The last
//! layer, system calls, differs by thread and is therefore applied by each thread itself ([`seccomp::apply`]).
//!
//! Every layer holds alone: the tests attack each one with the others left out. What the kernel lacks is an error,
//! unless the operator waived that [`Measure`] by name; what was waived and missing is part of [`Report`].

mod credentials;
mod landlock;
mod limits;
mod namespaces;
mod root;
pub mod seccomp;

pub use limits::Limits;

use std::fmt;
use std::os::fd::RawFd;
use std::str::FromStr;

/// A layer that an operator may do without on a kernel that lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// An own user namespace. Without it the P4 VM has to be started as root, to be able to give everything up.
    UserNamespace,
    /// An own cgroup namespace: hides the names of the host's cgroups.
    CgroupNamespace,
    /// Landlock: no access to files, TCP ports, abstract sockets and foreign processes, whatever else fails.
    Landlock,
    /// System call allow-lists.
    Seccomp,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::UserNamespace, Self::CgroupNamespace, Self::Landlock, Self::Seccomp];

    /// Its name on the command line and in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user-namespace",
            Self::CgroupNamespace => "cgroup-namespace",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|m| m.name()).collect();
            format!("no measure is named {name:?}; those that may be missing are {}", names.join(", "))
        })
    }
}

/// How to lock down.
#[derive(Clone, Debug)]
pub struct Options {
    /// User and group to become if started as root; nobody else should use it, so that per-user limits and signals
    /// are the P4 VM's own. Ignored when not root.
    pub uid: u32,
    /// Measures whose lack is accepted.
    pub allow_missing: Vec<Measure>,
    /// Descriptors to keep, besides standard error; all others are closed.
    pub keep: Vec<RawFd>,
    /// Resource limits.
    pub limits: Limits,
}

/// What holds after [`enter`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Measures that the kernel lacks and that were waived.
    pub missing: Vec<Measure>,
    /// Version of Landlock in force, 0 if none: network rules came with 4, scopes with 6.
    pub landlock_abi: i32,
    /// User that the P4 VM runs as, as the host sees it.
    pub uid: u32,
}

/// Why a P4 VM could not lock itself down.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox cannot {step}: {advice}")]
pub struct SandboxError {
    /// What was tried.
    pub step: &'static str,
    /// What to do about it.
    pub advice: &'static str,
    /// What the kernel said.
    #[source]
    pub source: std::io::Error,
}

/// A step of the lock-down, and what to do when it fails.
#[derive(Clone, Copy)]
struct Step(&'static str, &'static str);

impl Step {
    fn failed(self, source: impl Into<std::io::Error>) -> SandboxError {
        SandboxError { step: self.0, advice: self.1, source: source.into() }
    }
}

/// Names the step that a result belongs to.
trait During<T> {
    fn during(self, step: Step) -> Result<T, SandboxError>;
}

impl<T, E: Into<std::io::Error>> During<T> for Result<T, E> {
    fn during(self, step: Step) -> Result<T, SandboxError> {
        self.map_err(|e| step.failed(e))
    }
}

impl Report {
    /// Accepts a failed step if `measure` was waived.
    fn waive(
        &mut self,
        options: &Options,
        measure: Measure,
        result: Result<(), SandboxError>,
    ) -> Result<(), SandboxError> {
        match result {
            Err(e) if !options.allow_missing.contains(&measure) => Err(e),
            Err(_) => {
                self.missing.push(measure);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Locks the calling process down, except for system calls. Has to be called while it has one thread.
///
/// A process cannot change its own PID namespace, so this continues in a *new* process, first of its PID namespace,
/// whose parent is the caller's parent; the calling process exits with status 0. The new process is killed when
/// the thread that started the caller ends.
///
/// # Errors
/// The first layer that could not be put in place, with what to do. The process must not go on then.
pub fn enter(options: &Options) -> Result<Report, SandboxError> {
    let mut report = Report::default();
    limits::close_all_but(&options.keep)?;
    credentials::shed_root(options.uid)?;
    report.uid = rustix::process::geteuid().as_raw();
    let user = namespaces::own_user_namespace();
    report.waive(options, Measure::UserNamespace, user)?;
    namespaces::own_namespaces()?;
    let cgroup = namespaces::own_cgroup_namespace();
    report.waive(options, Measure::CgroupNamespace, cgroup)?;
    namespaces::continue_in_new_process()?;
    root::empty()?;
    limits::apply(&options.limits)?;
    let landlock = landlock::restrict().map(|abi| report.landlock_abi = abi);
    report.waive(options, Measure::Landlock, landlock)?;
    credentials::drop_capabilities()?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_have_the_names_that_status_shows() {
        for m in Measure::ALL {
            assert_eq!(m.name().parse(), Ok(m));
        }
        let error = "apparmor".parse::<Measure>().unwrap_err();
        assert!(error.contains("landlock"), "{error}");
    }

    #[test]
    fn only_a_waived_measure_may_be_missing() {
        let options = Options {
            uid: 1,
            allow_missing: vec![Measure::Landlock],
            keep: vec![],
            limits: Limits::default(),
        };
        let failed = || Err(Step("x", "y").failed(rustix::io::Errno::NOSYS));
        let mut report = Report::default();
        assert!(report.waive(&options, Measure::Seccomp, failed()).is_err());
        assert!(report.missing.is_empty());
        assert!(report.waive(&options, Measure::Landlock, failed()).is_ok());
        assert_eq!(report.missing, [Measure::Landlock]);
    }
}
