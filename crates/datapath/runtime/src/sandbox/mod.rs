//! The compartment `process`: a P4 VM enters this sandbox before it reads a byte of a tenant.
//!
//! [`enter`] leaves the process memory, a few descriptors and CPU time only: user, mount, network, IPC, PID,
//! UTS and cgroup namespaces of its own, an empty read-only root, no capability in any set and no way to gain
//! one, Landlock without rules, resource limits, no core dumps. The last layer, the system call filter,
//! differs by thread; each thread applies its own ([`seccomp::apply`]).
//!
//! Every layer holds alone: the tests attack each one without the others. A layer that the kernel lacks is an
//! error, unless the operator waives that [`Measure`] by name; [`SandboxReport`] lists the missing ones.

mod limits;
pub mod seccomp;

pub use limits::Limits;
pub use p4shield_sandbox::{SandboxError, new_network};

use p4shield_control::{Measure, SandboxReport};
use p4shield_sandbox::{self as layers, NameInside};
use std::os::fd::RawFd;

/// How to enter the sandbox.
#[derive(Clone, Debug)]
pub struct Options {
    /// User and group to change to if started as root. No other process should use them, so that per-user
    /// limits and signals concern the P4 VM only. Ignored if not started as root.
    pub uid: u32,
    /// Measures that may be missing.
    pub allow_missing: Vec<Measure>,
    /// Descriptors to keep, besides standard error; all others are closed.
    pub keep: Vec<RawFd>,
    /// Resource limits.
    pub limits: Limits,
}

/// Accepts a failed step if the operator waived `measure`, and reports the measure as missing.
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

/// Enters the sandbox, except for the system call filter. Must be called while the process has one thread.
///
/// A process cannot change its own PID namespace. The function therefore returns in a *new* process, the
/// first of its PID namespace, whose parent is the caller's parent; the calling process exits with status 0.
/// The new process outlives the caller's parent: a P4 VM may go on without its daemon.
///
/// # Errors
/// The first layer that failed, with a remedy. The process must not continue then.
pub fn enter(options: &Options) -> Result<SandboxReport, SandboxError> {
    let mut report = SandboxReport::default();
    layers::read_no_files();
    layers::close_all_but(&options.keep)?;
    layers::shed_root(options.uid, &[])?;
    report.uid = rustix::process::geteuid().as_raw();
    let user = layers::own_user_namespace(NameInside::Same);
    waive(&mut report, options, Measure::UserNamespace, user)?;
    layers::own_network_namespace()?;
    layers::own_namespaces("p4vm")?;
    let cgroup = layers::own_cgroup_namespace();
    waive(&mut report, options, Measure::CgroupNamespace, cgroup)?;
    layers::continue_in_new_process()?;
    layers::empty_root()?;
    limits::apply(&options.limits)?;
    let landlock = layers::deny_everything().map(|abi| report.landlock_abi = abi);
    waive(&mut report, options, Measure::Landlock, landlock)?;
    layers::drop_capabilities()?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_sandbox::Step;

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
