//! The way into the namespaces of a process that is in its sandbox already.
//!
//! The host starts a program among the processes of the sandbox ([`spawn_among`]), which then enters the
//! other namespaces by itself ([`join_first_process`]): process 1 is the sandbox's own there, whatever
//! becomes of other numbers meanwhile.

use crate::credentials::shed_root;
use crate::{During as _, SandboxError, Step};
use rustix::process::{DumpableBehavior, Gid, Pid, PidfdFlags, Uid, getpid, pidfd_open};
use rustix::thread::{self, ThreadNameSpaceType, move_into_thread_name_spaces};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{Child, Command};

const STEP: Step =
    Step("enter the namespaces of its compartment", "the compartment must run; start this command as root");

/// Starts a program of the host as a process of the PID namespace that `process`, a pidfd, has. This process
/// stays where it is.
///
/// # Errors
/// The process has ended, this one has no `CAP_SYS_ADMIN`, or the program does not start.
pub fn spawn_among(process: BorrowedFd<'_>, command: &mut Command) -> Result<Child, SandboxError> {
    let numbers = ThreadNameSpaceType::PROCESS_ID;
    let own = pidfd_open(getpid(), PidfdFlags::empty()).during(STEP)?;
    move_into_thread_name_spaces(process, numbers).during(STEP)?;
    let child = command.spawn();
    // Only then can this process start threads again.
    move_into_thread_name_spaces(own.as_fd(), numbers).during(STEP)?;
    child.during(Step("start a process in its compartment", "raise the limit of processes"))
}

/// The user that a process becomes in the namespaces of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Become {
    /// Root of the other's user namespace, with all capabilities there and none outside. The network
    /// namespace is the other's, too.
    RootInside,
    /// This user of the host, whose user and network namespaces the other has. It keeps its capabilities,
    /// which it has to give up next.
    UserOfHost(u32),
}

/// Enters all other namespaces of process 1 of this process's PID namespace. No process inside can trace this
/// one before it executes another program, if system calls for that are denied to them or they are others'.
/// Must be called while the process has one thread and no descriptor but those for the program.
///
/// # Errors
/// Process 1 has no namespaces of its own, or this process is not root outside.
pub fn join_first_process(user: Become) -> Result<(), SandboxError> {
    let hide = || rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).during(STEP);
    hide()?;
    // User namespaces of sandboxes forbid it.
    thread::set_thread_groups(&[]).during(STEP)?;
    let first = pidfd_open(Pid::INIT, PidfdFlags::empty()).during(STEP)?;
    type Kind = ThreadNameSpaceType;
    let own = match user {
        Become::RootInside => Kind::USER | Kind::NETWORK,
        Become::UserOfHost(_) => Kind::empty(),
    };
    let all = own
        | Kind::MOUNT
        | Kind::INTER_PROCESS_COMMUNICATION
        | Kind::HOST_NAME_AND_NIS_DOMAIN_NAME
        | Kind::CONTROL_GROUP;
    // The kernel enters all of them or none, and refuses a user namespace that is this process's own.
    move_into_thread_name_spaces(first.as_fd(), all).during(STEP)?;
    drop(first);
    match user {
        Become::RootInside => {
            thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).during(STEP)?;
            thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).during(STEP)?;
        }
        Become::UserOfHost(uid) => shed_root(uid, &[])?,
    }
    // The change of user may have undone it.
    hide()?;
    // No access to the host's terminal and its signals.
    rustix::process::setsid().during(STEP).map(drop)
}

/// Ends this process when the one that started it ends. The change of user or capabilities would undo it.
///
/// # Errors
/// The kernel refuses it.
pub fn end_with_parent() -> Result<(), SandboxError> {
    let step = Step("tie its end to that of this command", "report this as a bug");
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).during(step)
}
