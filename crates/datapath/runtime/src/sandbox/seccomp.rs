//! The system call filters of a P4 VM and of a P4 switch: one allow-list for each kind of thread. Any other
//! call, and any other argument, kills the process.
//!
//! No list allows memory that is writable and executable at once, opening a file, creating a socket, starting
//! a program or naming another process. Only the control thread, which compiles programs, may make memory
//! executable, at the addresses that were set aside for code ([`CODE_AREA`]), and only it maps what the host
//! sends: channels, pages and packet memory, which never are at those addresses. The worker, which runs a
//! tenant's programs, and the verifier, which reads a tenant's bytes, may not.
//!
//! Memory that the switch maps, too, stays as the host made it: no list allows `madvise` to punch holes into
//! it, or the futex operations that move sleepers, lock, or change a word.

use p4shield_bpf::verify::isolated::{self, ArgumentLimit};
use p4shield_bpf::{CODE_AREA, CODE_STARTS, MAX_CODE};
use p4shield_sandbox::{SandboxError, Step};
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
    /// All threads of a P4 switch: answers clients, loads programs, takes ports, starts threads.
    Desk,
    /// A packet thread of a P4 switch, in addition to [`Filter::Desk`]: receives and sends.
    Packets,
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
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
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
    libc::SYS_sendto,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// The system call that replaces standard error, as `rustix` chooses it.
#[cfg(target_arch = "x86_64")]
const REPLACE_STDERR: i64 = libc::SYS_dup2;
#[cfg(not(target_arch = "x86_64"))]
const REPLACE_STDERR: i64 = libc::SYS_dup3;

/// Receiving messages with descriptors, and reading the files behind them; accepting the next daemon, with
/// another standard error.
const CONTROL: &[i64] = &[
    libc::SYS_accept4,
    REPLACE_STDERR,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_pread64,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_newfstatat,
    libc::SYS_lseek,
];

/// Calls of a P4 switch alone: threads for clients, taking a port's rings, ending a thread that waits for
/// clients, their time limits.
const DESK: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_clone,
    // Another filter answers that there is none: see `apply`.
    libc::SYS_clone3,
    libc::SYS_eventfd2,
    libc::SYS_fstat,
    libc::SYS_getsockopt,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_prctl,
    libc::SYS_recvmsg,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    // A packet thread filters more.
    libc::SYS_seccomp,
    libc::SYS_sendmsg,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_writev,
];

/// The call by which the first packet thread ends the one that waits for clients.
const PACKETS: &[i64] = &[libc::SYS_shutdown];

const EXEC: u64 = libc::PROT_EXEC as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const PRIVATE_MEMORY: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
/// Zeros in place of a page file that was truncated.
const ZEROED_PAGE: u64 = PRIVATE_MEMORY | libc::MAP_FIXED as u64;
/// What the host sends.
const SHARED_MEMORY: u64 = (libc::MAP_SHARED | libc::MAP_POPULATE) as u64;

const WAIT: u64 = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
const WAIT_BITSET: u64 = (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG) as u64;
const WAKE: u64 = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
/// glibc joins a thread by waiting for the word that the kernel clears at its end, as shared.
const WAIT_FOR_THREAD: u64 = (libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME) as u64;

const GETFD: u64 = libc::F_GETFD as u64;
const GETFL: u64 = libc::F_GETFL as u64;

/// Arguments of [`COMMON`] system calls. Allocators release and move private memory; locks wait and wake.
const COMMON_ARGUMENTS: &[ArgumentLimit] = &[
    ArgumentLimit::int(libc::SYS_madvise, 2, &[libc::MADV_DONTNEED as u64, libc::MADV_FREE as u64]),
    ArgumentLimit::bits(libc::SYS_mmap, 2, EXEC, &[0]),
    ArgumentLimit::bits(libc::SYS_mprotect, 2, EXEC, &[0]),
    // Doorbells are connected sockets: no address is allowed.
    ArgumentLimit::bits(libc::SYS_sendto, 4, u64::MAX, &[0]),
];

/// Arguments of the worker's system calls, beside the common ones.
const WORKER_ARGUMENTS: &[ArgumentLimit] = &[
    ArgumentLimit::int(libc::SYS_fcntl, 1, &[GETFD, GETFL]),
    ArgumentLimit::int(libc::SYS_futex, 1, &[WAIT, WAIT_BITSET, WAKE]),
    ArgumentLimit::bits(libc::SYS_mmap, 3, NOT_RESERVED, &[PRIVATE_MEMORY, ZEROED_PAGE]),
];

/// Arguments of the control thread's system calls, beside the common ones.
const CONTROL_ARGUMENTS: &[ArgumentLimit] = &[
    // The door is the only listening socket; its peer's address is of no interest.
    ArgumentLimit::bits(libc::SYS_accept4, 1, u64::MAX, &[0]),
    ArgumentLimit::int(REPLACE_STDERR, 1, &[libc::STDERR_FILENO as u64]),
    ArgumentLimit::int(
        libc::SYS_fcntl,
        1,
        &[GETFD, GETFL, libc::F_DUPFD_CLOEXEC as u64, libc::F_GET_SEALS as u64],
    ),
    ArgumentLimit::int(libc::SYS_futex, 1, &[WAIT, WAIT_BITSET, WAKE, WAIT_FOR_THREAD]),
    ArgumentLimit::bits(libc::SYS_mmap, 3, NOT_RESERVED, &[PRIVATE_MEMORY, ZEROED_PAGE, SHARED_MEMORY]),
];

/// A thread's stack.
const STACK: u64 = PRIVATE_MEMORY | libc::MAP_STACK as u64;

/// The flags of a new thread: it shares everything, and is no process. The second value is musl's.
const THREAD: &[u64] = &[SAME_PROCESS, SAME_PROCESS | libc::CLONE_DETACHED as u64];
const SAME_PROCESS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID) as u64;

/// The options of clients' sockets: how long to wait for them.
const TIME_LIMITS: &[u64] = &[libc::SO_RCVTIMEO as u64, libc::SO_SNDTIMEO as u64];

/// The options of a port's sockets that are read: where the rings are, and what moves packets.
const RING_FACTS: &[u64] = &[libc::XDP_MMAP_OFFSETS as u64, libc::XDP_OPTIONS as u64];

/// Arguments of a P4 switch's system calls, beside the common ones.
const DESK_ARGUMENTS: &[ArgumentLimit] = &[
    ArgumentLimit::bits(libc::SYS_clone, 0, u64::MAX, THREAD),
    ArgumentLimit::int(libc::SYS_fcntl, 1, &[GETFD, GETFL, libc::F_DUPFD_CLOEXEC as u64]),
    ArgumentLimit::int(libc::SYS_futex, 1, &[WAIT, WAIT_BITSET, WAKE, WAIT_FOR_THREAD]),
    ArgumentLimit::int(libc::SYS_getsockopt, 1, &[libc::SOL_XDP as u64]),
    ArgumentLimit::int(libc::SYS_getsockopt, 2, RING_FACTS),
    ArgumentLimit::bits(
        libc::SYS_mmap,
        3,
        NOT_RESERVED,
        &[PRIVATE_MEMORY, ZEROED_PAGE, STACK, SHARED_MEMORY],
    ),
    ArgumentLimit::int(libc::SYS_prctl, 0, &[libc::PR_SET_NAME as u64, libc::PR_SET_NO_NEW_PRIVS as u64]),
    ArgumentLimit::int(libc::SYS_seccomp, 0, &[libc::SECCOMP_SET_MODE_FILTER as u64]),
    ArgumentLimit::int(libc::SYS_setsockopt, 1, &[libc::SOL_SOCKET as u64]),
    ArgumentLimit::int(libc::SYS_setsockopt, 2, TIME_LIMITS),
];

/// Arguments of a packet thread's system calls, beside the common ones: as the worker's, and the first one
/// waits for the end of the others.
const PACKETS_ARGUMENTS: &[ArgumentLimit] = &[
    ArgumentLimit::int(libc::SYS_fcntl, 1, &[GETFD, GETFL]),
    ArgumentLimit::int(libc::SYS_futex, 1, &[WAIT, WAIT_BITSET, WAKE, WAIT_FOR_THREAD]),
    ArgumentLimit::bits(libc::SYS_mmap, 3, NOT_RESERVED, &[PRIVATE_MEMORY, ZEROED_PAGE]),
];

/// All flags of `mmap` but the one by which an allocator sets addresses aside.
const NOT_RESERVED: u64 = !(libc::MAP_NORESERVE as u64);

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
    if matches!(thread, Filter::Verifier | Filter::Desk) {
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
    let (calls, arguments) = match thread {
        Filter::Control => ([COMMON, CONTROL], [COMMON_ARGUMENTS, CONTROL_ARGUMENTS]),
        Filter::Worker => ([COMMON, &[]], [COMMON_ARGUMENTS, WORKER_ARGUMENTS]),
        // Includes forking, limiting, watching and ending children.
        Filter::Verifier => ([isolated::SYSCALLS, &[]], [isolated::ARGUMENTS, &[]]),
        Filter::Desk => ([COMMON, DESK], [COMMON_ARGUMENTS, DESK_ARGUMENTS]),
        Filter::Packets => ([COMMON, PACKETS], [COMMON_ARGUMENTS, PACKETS_ARGUMENTS]),
    };
    let arguments = arguments.concat();
    // A system call with an empty list of rules matches with any arguments.
    let rules = calls.concat().into_iter().map(|call| Ok((call, alternatives(call, &arguments)?)));
    let mut rules = rules.collect::<Result<Rules, seccompiler::Error>>()?;
    if thread != Filter::Verifier {
        keep_code_area(&mut rules)?;
    }
    if matches!(thread, Filter::Control | Filter::Desk) {
        allow_code(&mut rules)?;
    }
    Ok(rules)
}

/// Forbids to unmap or move [`CODE_AREA`], so that nothing but private memory is ever there: a mapping
/// without `MAP_FIXED` finds no room, and with it is private.
fn keep_code_area(rules: &mut Rules) -> Result<(), seccompiler::Error> {
    let above = || compare(0, SeccompCmpOp::Ge, CODE_AREA.end);
    // The kernel may ignore an address's uppermost byte.
    let untagged = || compare(0, SeccompCmpOp::Lt, 1 << 55);
    rules.insert(libc::SYS_munmap, vec![SeccompRule::new(vec![above()?, untagged()?])?]);
    let moves = SeccompCmpOp::MaskedEq(u64::MAX);
    let moves = compare(3, moves, libc::MREMAP_MAYMOVE as usize)?;
    rules.insert(libc::SYS_mremap, vec![SeccompRule::new(vec![above()?, untagged()?, moves])?]);
    Ok(())
}

/// Allows to make memory of [`CODE_AREA`] executable, and no other.
fn allow_code(rules: &mut Rules) -> Result<(), seccompiler::Error> {
    let code = vec![
        compare(0, SeccompCmpOp::Ge, CODE_STARTS.start)?,
        compare(0, SeccompCmpOp::Lt, CODE_STARTS.end)?,
        compare(1, SeccompCmpOp::Le, MAX_CODE)?,
        compare(2, SeccompCmpOp::MaskedEq(EXEC | WRITE), libc::PROT_EXEC as usize)?,
    ];
    rules.entry(libc::SYS_mprotect).or_default().push(SeccompRule::new(code)?);
    Ok(())
}

fn compare(argument: u8, op: SeccompCmpOp, value: usize) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value as u64)?)
}

/// Returns the rules of which a call has to meet one: a value of each of its limited arguments.
fn alternatives(call: i64, arguments: &[ArgumentLimit]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let mut alternatives: Vec<Vec<SeccompCondition>> = vec![vec![]];
    for limit in arguments.iter().filter(|limit| limit.call == call) {
        let op = SeccompCmpOp::MaskedEq(limit.mask);
        let condition =
            |value| SeccompCondition::new(limit.argument, SeccompCmpArgLen::Qword, op.clone(), value);
        let mut longer = Vec::with_capacity(alternatives.len() * limit.values.len());
        for conditions in &alternatives {
            for value in limit.values {
                longer.push([conditions.as_slice(), &[condition(*value)?]].concat());
            }
        }
        alternatives = longer;
    }
    let limited = alternatives.into_iter().filter(|conditions| !conditions.is_empty());
    Ok(limited.map(SeccompRule::new).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Filter; 5] =
        [Filter::Control, Filter::Worker, Filter::Verifier, Filter::Desk, Filter::Packets];

    #[test]
    fn every_list_compiles_within_the_kernels_limit() {
        for thread in ALL {
            let filter =
                build(rules(thread).unwrap(), SeccompAction::KillProcess, SeccompAction::Allow).unwrap();
            assert!(filter.len() < 4096, "{thread:?}: {} instructions", filter.len());
        }
    }

    #[test]
    fn calls_with_dangerous_arguments_are_limited_in_every_list() {
        for thread in ALL {
            let rules = rules(thread).unwrap();
            for call in [
                libc::SYS_fcntl,
                libc::SYS_futex,
                libc::SYS_madvise,
                libc::SYS_mmap,
                libc::SYS_mprotect,
                libc::SYS_mremap,
            ] {
                assert!(!rules[&call].is_empty(), "{thread:?}: system call {call} takes any arguments");
            }
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
        let desk = rules(Filter::Desk).unwrap();
        let packets = rules(Filter::Packets).unwrap();
        assert!(!desk[&libc::SYS_clone].is_empty() && !packets.contains_key(&libc::SYS_clone));
        for rules in [worker, control, verifier, desk, packets] {
            for n in
                [libc::SYS_execve, libc::SYS_execveat, libc::SYS_openat, libc::SYS_socket, libc::SYS_ptrace]
            {
                assert!(!rules.contains_key(&n), "system call {n}");
            }
        }
    }
}
