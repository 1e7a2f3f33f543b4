//! The system calls of a zygote and its children, and what their arguments may be.

/// System calls of a zygote and its children after the closure of `Isolated::spawn_with` has returned.
/// A filter may refuse all others, and arguments that [`ARGUMENTS`] does not contain.
pub const SYSCALLS: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clone,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_kill,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pipe2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_set_robust_list,
    libc::SYS_tgkill,
    libc::SYS_wait4,
    libc::SYS_write,
    libc::SYS_writev,
];

/// A limit of an argument of a system call: the bits in `mask` equal those of one of `values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentLimit {
    /// The system call.
    pub call: libc::c_long,
    /// Number of the argument, from 0.
    pub argument: u8,
    /// The bits that count. The kernel reads no more of an `int` than these 32.
    pub mask: u64,
    /// What they may be.
    pub values: &'static [u64],
}

impl ArgumentLimit {
    /// Limits an argument of type `int` to `values`.
    #[must_use]
    pub const fn int(call: libc::c_long, argument: u8, values: &'static [u64]) -> Self {
        Self { call, argument, mask: u32::MAX as u64, values }
    }

    /// Limits the bits of `mask` in an argument of type `long` to `values`.
    #[must_use]
    pub const fn bits(call: libc::c_long, argument: u8, mask: u64, values: &'static [u64]) -> Self {
        Self { call, argument, mask, values }
    }
}

const NEW_NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_PTRACE
    | libc::CLONE_PARENT;

const PRIVATE_MEMORY: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;

/// Arguments of [`SYSCALLS`]. Memory is private, new and never executable. Futexes are private, too, and
/// have the operations of locks. Advice concerns the process's own memory: it releases pages of an allocator,
/// and none of a file.
pub const ARGUMENTS: &[ArgumentLimit] = &[
    ArgumentLimit::bits(libc::SYS_clone, 0, NEW_NAMESPACES as u64, &[0]),
    ArgumentLimit::int(
        libc::SYS_fcntl,
        1,
        &[
            libc::F_GETFD as u64,
            libc::F_GETFL as u64,
            libc::F_DUPFD_CLOEXEC as u64,
            libc::F_SETFD as u64,
            libc::F_SETFL as u64,
        ],
    ),
    ArgumentLimit::int(
        libc::SYS_futex,
        1,
        &[
            (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64,
            (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64,
            (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG) as u64,
        ],
    ),
    ArgumentLimit::int(libc::SYS_madvise, 2, &[libc::MADV_DONTNEED as u64, libc::MADV_FREE as u64]),
    ArgumentLimit::bits(libc::SYS_mmap, 2, libc::PROT_EXEC as u64, &[0]),
    ArgumentLimit::bits(libc::SYS_mmap, 3, !(libc::MAP_NORESERVE as u64), &[PRIVATE_MEMORY]),
    ArgumentLimit::bits(libc::SYS_mprotect, 2, libc::PROT_EXEC as u64, &[0]),
    ArgumentLimit::bits(libc::SYS_mremap, 3, u64::MAX, &[libc::MREMAP_MAYMOVE as u64]),
    ArgumentLimit::int(libc::SYS_prctl, 0, &[libc::PR_SET_PDEATHSIG as u64]),
];
