//! Namespaces of a P4 VM, in which nothing of the host has a name.

use crate::{During as _, SandboxError, Step};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;
use std::os::fd::OwnedFd;
use std::{fs, io};

const NEEDS_USERNS: &str = "enable user namespaces (sysctl user.max_user_namespaces, \
                            kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; \
                            a chroot has none), or start as root with allow_missing = [\"user-namespace\"]";

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the flags below never contain FILES, the one that can pull descriptors away from other threads.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// The name that a process has for its user and group in its own user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameInside {
    /// The same as outside.
    Same,
    /// Root, for programs that do as such only what their capabilities allow.
    Root,
}

/// Creates a user namespace in which only this process's user and group exist.
///
/// # Errors
/// The kernel refuses it.
pub fn own_user_namespace(name: NameInside) -> Result<(), SandboxError> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let inside = |id: u32| if name == NameInside::Root { 0 } else { id };
    unshare(UnshareFlags::NEWUSER).during(Step("create a user namespace", NEEDS_USERNS))?;
    let step = Step("map its user into its user namespace", "/proc must be mounted");
    fs::write("/proc/self/setgroups", "deny").during(step)?;
    fs::write("/proc/self/uid_map", format!("{} {uid} 1", inside(uid))).during(step)?;
    fs::write("/proc/self/gid_map", format!("{} {gid} 1", inside(gid))).during(step)?;
    // No nested user namespace, in which the process would have every capability again. Where a container
    // mounts /proc/sys read-only, the seccomp filter alone prevents it.
    let _ = fs::write("/proc/sys/user/max_user_namespaces", "0");
    Ok(())
}

/// Creates a network namespace for this process, which has no interface but a loopback interface that is
/// down.
///
/// # Errors
/// The kernel refuses it.
pub fn own_network_namespace() -> Result<(), SandboxError> {
    unshare(UnshareFlags::NEWNET).during(Step("create a network namespace", NEEDS_USERNS))
}

/// Creates mount, IPC and UTS namespaces for this process and a PID namespace for its children.
/// `host_name`: what it sees as the host's name.
///
/// # Errors
/// The kernel refuses it.
pub fn own_namespaces(host_name: &str) -> Result<(), SandboxError> {
    unshare(UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWPID)
        .during(Step("create mount, IPC, UTS and PID namespaces", NEEDS_USERNS))?;
    rustix::system::sethostname(host_name.as_bytes()).during(Step("hide the host's name", NEEDS_USERNS))
}

/// Creates a network namespace for another process. It lasts as long as its descriptor and its processes.
///
/// # Errors
/// The process has no `CAP_SYS_ADMIN`, or a thread cannot be started.
pub fn new_network() -> io::Result<OwnedFd> {
    // The namespace of the calling thread stays as it is.
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            unshare(UnshareFlags::NEWNET)?;
            Ok(fs::File::open("/proc/thread-self/ns/net")?.into())
        });
        there.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    })
}

/// Creates a cgroup namespace with the process's present cgroup as root.
pub fn own_cgroup_namespace() -> Result<(), SandboxError> {
    unshare(UnshareFlags::NEWCGROUP)
        .during(Step("create a cgroup namespace", "waive it with --allow-missing cgroup-namespace"))
}

/// Continues as process 1 of the PID namespace, a child of this process's parent; this process ends.
pub fn continue_in_new_process() -> Result<(), SandboxError> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is fork(): the child gets its own copy of memory and returns here. The
    // process has one thread, so no lock can be held by a thread that the child lacks.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, flags as libc::c_long, 0_usize, 0_usize, 0_usize, 0_usize) };
    match child {
        0 => {}
        1.. => {
            // SAFETY: ends this process without running exit handlers, which belong to the child now.
            unsafe { libc::_exit(0) }
        }
        _ => {
            let e = io::Error::last_os_error();
            return Err(
                Step("start as process 1 of its PID namespace", "raise the limit of processes").failed(e)
            );
        }
    }
    // A session of its own, without access to the host's terminal and its signals.
    rustix::process::setsid().during(Step("leave the host's session", "report this as a bug")).map(drop)
}
