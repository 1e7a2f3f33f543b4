//! The system calls that a switch compartment is denied. The programs are the distribution's, so the list
//! names what they never need: it takes interfaces of the kernel away that a compromised switch could
//! attack.

use p4shield_sandbox::{SandboxError, Step};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};
use std::collections::BTreeMap;
use std::io::Error;

const DENIED: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    // Linux divides a core by sessions (`man 7 sched`, autogroups), and a compartment is one of them.
    libc::SYS_setsid,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vmsplice,
];

/// The flags of `clone` that make namespaces (`include/uapi/linux/sched.h`).
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u64;

/// Keeps a tap after its last user (`include/uapi/linux/if_tun.h`).
const TUNSETPERSIST: u64 = 0x4004_54cb;

/// The families of sockets that Open vSwitch uses. Each other one is a module of the kernel.
const FAMILIES: [i32; 5] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// The protocols of netlink that Open vSwitch and `ip` use. Behind others are packet filters and IPsec,
/// which `CAP_NET_ADMIN` opens to the compartment and which it never needs.
const NETLINK: [i32; 2] = [libc::NETLINK_ROUTE, libc::NETLINK_GENERIC];

/// Numbers from here on are calls of x86-64's x32 interface, where a kernel has it (`__X32_SYSCALL_BIT`).
/// They lead to the same calls past the list.
const X32: u32 = 0x4000_0000;

/// The flags of huge pages, by call and argument (`include/uapi/linux/mman.h`, `memfd.h`, `shm.h`). The host
/// has one pool of them, which any process may empty.
const HUGE_PAGES: [(i64, u8, u64); 3] = [
    (libc::SYS_mmap, 3, libc::MAP_HUGETLB as u64),
    (libc::SYS_memfd_create, 1, libc::MFD_HUGETLB as u64),
    (libc::SYS_shmget, 2, libc::SHM_HUGETLB as u64),
];

/// Denies this thread, and all threads and processes that it starts from now on, descriptors of other
/// processes.
pub(super) fn deny_descriptors() -> Result<(), SandboxError> {
    apply_all([filter([(libc::SYS_pidfd_getfd, vec![])].into(), libc::EPERM)])
}

/// Denies the calls to this process and to all that it starts: they fail with `EPERM`, and `clone3`, whose
/// flags no filter sees, with `ENOSYS`, after which libraries use `clone`. A switch that `has_huge_pages` may
/// take some; a cgroup limits them.
pub(super) fn apply(has_huge_pages: bool) -> Result<(), SandboxError> {
    apply_all([
        denied(has_huge_pages).and_then(|rules| filter(rules, libc::EPERM)),
        filter(unseen(), libc::ENOSYS),
        skipped().and_then(|rules| filter(rules, 0)),
    ])?;
    seccompiler::apply_filter(&without_x32()).map_err(|e| failed(&e))
}

fn failed(error: &dyn std::fmt::Display) -> SandboxError {
    let step = Step("deny system calls", "use a kernel with seccomp (CONFIG_SECCOMP_FILTER)");
    step.failed(Error::other(error.to_string()))
}

fn apply_all<const N: usize>(
    filters: [Result<SeccompFilter, seccompiler::BackendError>; N],
) -> Result<(), SandboxError> {
    for filter in filters {
        let program: BpfProgram = filter.map_err(|e| failed(&e))?.try_into().map_err(|e| {
            let e: seccompiler::BackendError = e;
            failed(&e)
        })?;
        seccompiler::apply_filter(&program).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// Returns a filter that denies all calls of x32.
fn without_x32() -> BpfProgram {
    let instruction = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let answer = |answer| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, answer);
    vec![
        // The number is the first member of `struct seccomp_data`.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn filter(rules: Rules, error: i32) -> Result<SeccompFilter, seccompiler::BackendError> {
    let denied = SeccompAction::Errno(error.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, denied, std::env::consts::ARCH.try_into()?)
}

/// A switch asks that its taps outlive it. They succeed without being executed: what a switch made ends with
/// it, also on the host.
fn skipped() -> Result<Rules, seccompiler::BackendError> {
    let persist = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, TUNSETPERSIST)?;
    Ok([(libc::SYS_ioctl, vec![SeccompRule::new(vec![persist])?])].into())
}

fn unseen() -> Rules {
    [(libc::SYS_clone3, vec![])].into()
}

fn denied(has_huge_pages: bool) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = DENIED.iter().map(|call| (*call, vec![])).collect();
    // One rule for each flag: a rule holds if all of its conditions do.
    let flags = (0..u64::BITS).map(|bit| 1 << bit).filter(|flag| NEW_NAMESPACES & flag != 0);
    let namespaces: Result<Vec<_>, _> = flags
        .map(|flag| {
            let masked = SeccompCmpOp::MaskedEq(flag);
            SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, masked, flag)?])
        })
        .collect();
    rules.insert(libc::SYS_clone, namespaces?);
    let [family, protocol] = [0, 2];
    let other = SeccompRule::new(none_of(family, &FAMILIES)?)?;
    let mut of_netlink = none_of(protocol, &NETLINK)?;
    let netlink = u64::from(libc::AF_NETLINK.unsigned_abs());
    of_netlink.push(SeccompCondition::new(family, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, netlink)?);
    let sockets = vec![other, SeccompRule::new(of_netlink)?];
    rules.insert(libc::SYS_socketpair, sockets.clone());
    rules.insert(libc::SYS_socket, sockets);
    for (call, argument, flag) in HUGE_PAGES.into_iter().filter(|_| !has_huge_pages) {
        let masked = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, flag)?;
        rules.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    Ok(rules)
}

/// Returns conditions that hold together if an argument is none of these numbers.
fn none_of(argument: u8, numbers: &[i32]) -> Result<Vec<SeccompCondition>, seccompiler::BackendError> {
    let is_not = |number: &i32| {
        let number = u64::from(number.unsigned_abs());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, number)
    };
    numbers.iter().map(is_not).collect()
}
