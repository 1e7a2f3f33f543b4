//! The system call filters of a P4 VM: one allow-list for each kind of thread. Any other call kills the
//! process.
//!
//! No list allows memory that is writable and executable at once, opening a file, creating a socket, starting
//! a program or naming another process. Only the control thread, which compiles programs, may make memory
//! executable. The worker, which runs a tenant's programs, and the verifier, which reads a tenant's bytes,
//! may not.

use super::{SandboxError, Step};
use p4shield_bpf::verify::isolated;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io::Error;

/// The thread that a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The control thread: communicates with the host daemon, links and compiles programs.
    Control,
    /// The worker: judges packets.
    Worker,
    /// The verifier's zygote and the processes that it forks, one for each verification.
    Verifier,
}

/// What control thread and worker need: memory that is not executable, waiting, the clock, reading and
/// writing open descriptors, ending. Doorbells are sockets.
const COMMON: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Receiving messages with descriptors, and reading the files behind them.
const CONTROL: &[i64] = &[
    libc::SYS_fstat,
    libc::SYS_pread64,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_newfstatat,
    libc::SYS_lseek,
];

const NEW_NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_PTRACE
    | libc::CLONE_PARENT;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Applies the list for `thread` to the calling thread, and to threads and processes that it starts later.
///
/// # Errors
/// The kernel lacks seccomp filters.
pub fn apply(thread: Filter) -> Result<(), SandboxError> {
    let failed = |e: seccompiler::Error| {
        Step(
            "filter its system calls",
            "the kernel needs CONFIG_SECCOMP_FILTER; or waive it with --allow-missing seccomp",
        )
        .failed(Error::other(e))
    };
    if thread == Filter::Verifier {
        // A filter cannot read the arguments of clone3, which are behind a pointer; libc falls back to clone.
        let absent = BTreeMap::from([(libc::SYS_clone3, vec![])]);
        let filter = build(absent, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32));
        seccompiler::apply_filter(&filter.map_err(failed)?).map_err(failed)?;
    }
    let filter = rules(thread).and_then(|r| build(r, SeccompAction::KillProcess, SeccompAction::Allow));
    seccompiler::apply_filter(&filter.map_err(failed)?).map_err(failed)
}

fn build(
    rules: Rules,
    otherwise: SeccompAction,
    on_match: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, otherwise, on_match, arch)?.try_into()?)
}

fn rules(thread: Filter) -> Result<Rules, seccompiler::Error> {
    let (list, more): (_, &[_]) = match thread {
        Filter::Control => (COMMON, CONTROL),
        Filter::Worker => (COMMON, &[]),
        // Includes forking, limiting, watching and ending children.
        Filter::Verifier => (isolated::SYSCALLS, &[]),
    };
    // A system call with an empty list of rules matches with any arguments.
    let mut rules: Rules = list.iter().chain(more).map(|n| (*n, vec![])).collect();

    let (exec, write) = (libc::PROT_EXEC as u64, libc::PROT_WRITE as u64);
    let not_executable = lacks(2, exec)?;
    rules.insert(libc::SYS_mmap, vec![not_executable.clone()]);
    let mprotect = match thread {
        Filter::Control => vec![not_executable, lacks(2, write)?],
        Filter::Worker | Filter::Verifier => vec![not_executable],
    };
    rules.insert(libc::SYS_mprotect, mprotect);
    if thread != Filter::Verifier {
        // Doorbells are connected sockets: no address is allowed.
        let unaddressed = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
        rules.insert(libc::SYS_sendto, vec![SeccompRule::new(vec![unaddressed])?]);
    }
    let mut commands = vec![libc::F_GETFD, libc::F_GETFL];
    match thread {
        Filter::Worker => {}
        Filter::Control => commands.extend([libc::F_DUPFD_CLOEXEC, libc::F_GET_SEALS]),
        Filter::Verifier => {
            commands.extend([libc::F_DUPFD_CLOEXEC, libc::F_SETFD, libc::F_SETFL]);
            rules.insert(libc::SYS_clone, vec![lacks(0, u64::from(NEW_NAMESPACES.unsigned_abs()))?]);
            rules.insert(libc::SYS_prctl, one_of(0, &[libc::PR_SET_PDEATHSIG])?);
        }
    }
    rules.insert(libc::SYS_fcntl, one_of(1, &commands)?);
    Ok(rules)
}

/// Returns the rule that argument `index` has none of `bits`.
fn lacks(index: u8, bits: u64) -> Result<SeccompRule, seccompiler::Error> {
    let op = SeccompCmpOp::MaskedEq(bits);
    Ok(SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Qword, op, 0)?])?)
}

/// Returns the rules that argument `index` is one of `values`.
fn one_of(index: u8, values: &[i32]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let rule = |v: &i32| {
        let v = u64::from(v.unsigned_abs());
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, v)?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    values.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_compiles_within_the_kernels_limit() {
        for thread in [Filter::Control, Filter::Worker, Filter::Verifier] {
            let filter =
                build(rules(thread).unwrap(), SeccompAction::KillProcess, SeccompAction::Allow).unwrap();
            assert!(filter.len() < 4096, "{thread:?}: {} instructions", filter.len());
        }
    }

    #[test]
    fn no_list_allows_exec_or_sockets_only_the_verifiers_fork() {
        let worker = rules(Filter::Worker).unwrap();
        let control = rules(Filter::Control).unwrap();
        let verifier = rules(Filter::Verifier).unwrap();
        for n in [libc::SYS_clone, libc::SYS_clone3, libc::SYS_kill] {
            assert!(!worker.contains_key(&n) && !control.contains_key(&n));
        }
        for rules in [worker, control, verifier] {
            for n in
                [libc::SYS_execve, libc::SYS_execveat, libc::SYS_openat, libc::SYS_socket, libc::SYS_ptrace]
            {
                assert!(!rules.contains_key(&n), "system call {n}");
            }
        }
    }
}
