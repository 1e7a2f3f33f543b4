//! The compartment `process`: what a P4 VM gives up before it touches a byte of a tenant.
//!
//! [`enter`] takes everything away that a process has besides memory, a few descriptors and the processor: user,
//! mount, network, IPC, PID, UTS and cgroup namespaces of its own, a read-only root with nothing in it, no
//! capability in any set, no way to gain one, Landlock with no rule, resource limits, no core dumps. The last
//! layer, system calls, differs by thread and is therefore applied by each thread itself ([`seccomp::apply`]).
//!
//! Every layer holds alone: the tests attack each one with the others left out. What the kernel lacks is an error,
//! unless the operator waived that [`Measure`] by name; what was waived and missing is part of [`SandboxReport`].

mod credentials;
mod landlock;
mod limits;
mod namespaces;
mod root;
pub mod seccomp;

pub use limits::Limits;

use p4shield_control::{Measure, SandboxReport};
use std::os::fd::RawFd;

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

/// Accepts a failed step if the operator waived `measure`, and reports it as missing.
fn waive(
    report: &mut SandboxReport,
    options: &Options,
    measure: Measure,
    result: Result<(), SandboxError>,
) -> Result<(), SandboxError> {
    match result {
        Err(e) if !options.allow_missing.contains(&measure) => Err(e),
        Err(_) => {
            report.missing.push(measure);
            Ok(())
        }
        Ok(()) => Ok(()),
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
pub fn enter(options: &Options) -> Result<SandboxReport, SandboxError> {
    let mut report = SandboxReport::default();
    limits::close_all_but(&options.keep)?;
    credentials::shed_root(options.uid)?;
    report.uid = rustix::process::geteuid().as_raw();
    let user = namespaces::own_user_namespace();
    waive(&mut report, options, Measure::UserNamespace, user)?;
    namespaces::own_namespaces()?;
    let cgroup = namespaces::own_cgroup_namespace();
    waive(&mut report, options, Measure::CgroupNamespace, cgroup)?;
    namespaces::continue_in_new_process()?;
    root::empty()?;
    limits::apply(&options.limits)?;
    let landlock = landlock::restrict().map(|abi| report.landlock_abi = abi);
    waive(&mut report, options, Measure::Landlock, landlock)?;
    credentials::drop_capabilities()?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_waived_measure_may_be_missing() {
        let options = Options {
            uid: 1,
            allow_missing: vec![Measure::Landlock],
            keep: vec![],
            limits: Limits::default(),
        };
        let failed = || Err(Step("x", "y").failed(rustix::io::Errno::NOSYS));
        let mut report = SandboxReport::default();
        assert!(waive(&mut report, &options, Measure::Seccomp, failed()).is_err());
        assert!(report.missing.is_empty());
        assert!(waive(&mut report, &options, Measure::Landlock, failed()).is_ok());
        assert_eq!(report.missing, [Measure::Landlock]);
    }
}
