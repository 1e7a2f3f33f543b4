//! Keeps QEMU from renouncing the signal that ends it with this process.
//!
//! The daemon ends a machine by killing this process, and QEMU is to end with it. `setpriv` asks the kernel
//! for that signal (`PR_SET_PDEATHSIG`), but a QEMU that an attacker took over could take the wish back, and
//! would stay, with all that it has mapped.

use crate::error::VmmError;
use rustix::process::Signal;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::io::Error;

/// Bit of the numbers of system calls of the x32 interface, which some x86-64 kernels have
/// (arch/x86/include/uapi/asm/unistd.h). Other architectures have no call with it.
const X32: i64 = 0x4000_0000;

/// Has the kernel refuse every other signal than `SIGKILL` at the end of the parent, to this process and to
/// those that it starts from now on.
pub(crate) fn keep() -> Result<(), VmmError> {
    let failed = |e: seccompiler::Error| VmmError::Filter(Error::other(e));
    let filter = filter().map_err(|e| failed(e.into()))?;
    seccompiler::apply_filter(&filter).map_err(failed)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let (kill, set) = (Signal::KILL.as_raw().unsigned_abs(), libc::PR_SET_PDEATHSIG.unsigned_abs());
    // The kernel reads 32 bits of the first argument, and all of the second.
    let is_set = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, set.into())?;
    let is_other = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, kill.into())?;
    let rules = vec![SeccompRule::new(vec![is_set, is_other])?];
    let calls = [libc::SYS_prctl, libc::SYS_prctl | X32];
    let rules = calls.map(|call| (call, rules.clone())).into();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::set_parent_process_death_signal as set;

    #[test]
    fn the_signal_at_the_end_of_the_parent_stays() {
        // The filter is this thread's only.
        let thread = std::thread::spawn(|| {
            keep().unwrap();
            set(Some(Signal::KILL)).unwrap();
            for other in [None, Some(Signal::TERM)] {
                assert_eq!(set(other), Err(rustix::io::Errno::PERM));
            }
            for call in [libc::SYS_prctl, libc::SYS_prctl | X32] {
                let set = format!("exit(syscall({call}, {}, 0) == -1 ? $! : 0)", libc::PR_SET_PDEATHSIG);
                let ended = std::process::Command::new("perl").args(["-e", &set]).status().unwrap();
                assert_eq!(ended.code(), Some(libc::EPERM), "{call:#x}");
            }
            rustix::process::parent_process_death_signal()
        });
        assert_eq!(thread.join().unwrap(), Ok(Some(Signal::KILL)));
    }
}
