//! Verification in a process of its own, with limits on time and memory.
//!
//! ```text
//!  owner ──socket──► zygote ──fork──► child: one verification, then it ends
//!        ◄─answer──         ◄─pipe──  CPU time, memory, descriptors, processes limited; no core dump
//! ```
//!
//! The zygote is forked while the owner has one thread and not locked down yet ([`Isolated::spawn`]). It needs no file
//! and executes nothing afterwards, so it works in an empty root under a system call filter of [`SYSCALLS`], which the
//! owner may apply by a closure ([`Isolated::spawn_with`]). An owner with several threads runs a command instead that
//! calls [`serve_stdio`] ([`Isolated::command`]).
//!
//! What a hostile program can bring about in the child is a refusal: a panic is [`Refusal::Program`], an exhausted
//! limit [`Refusal::Resources`]. Zygote and children die with their owner. Each message has a greatest length.

mod process;
mod wire;
mod zygote;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use serde::{Deserialize, Serialize};

use super::{Limits, Refusal, Report, VERIFIER_VERSION, structure};
use crate::linked::{Linked, Verified};
use wire::{Deadline, MAX_ANSWER, MAX_REQUEST, Request, decode, frame, read_frame, write_all};
use zygote::{Answer, Ready};

/// What one verification may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// CPU time, rounded up to seconds.
    pub cpu: Duration,
    /// Address space, of which the zygote itself takes what the owner had mapped when it was forked.
    pub memory_bytes: u64,
    /// Time on the clock.
    pub wall: Duration,
}

impl Default for Budget {
    /// 30 seconds of CPU time, 60 on the clock, 1 GiB.
    fn default() -> Self {
        Self { cpu: Duration::from_secs(30), memory_bytes: 1 << 30, wall: Duration::from_secs(60) }
    }
}

/// What the owner allows beyond [`Budget::wall`] before it gives a zygote up.
const GRACE: Duration = Duration::from_secs(5);

/// System calls that a zygote and its children make after the closure of [`Isolated::spawn_with`] has returned. All
/// others may be refused.
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

/// Why there is no zygote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IsolatedError {
    /// A forked copy of a process with several threads may find locks that nobody holds.
    #[error(
        "a zygote can only be forked while the process has one thread: spawn it first, or use Isolated::command"
    )]
    Threads,
    /// It cannot be started.
    #[error("the verifier's process cannot be started")]
    Start(#[source] io::Error),
    /// It did not lock itself down.
    #[error("the verifier's process cannot lock itself down: {0}")]
    Lockdown(String),
    /// It is another version.
    #[error("the verifier's process is \"{0}\", not \"{VERIFIER_VERSION}\": both have to be of one release")]
    Version(String),
}

/// The process at the other end.
#[derive(Debug)]
enum Peer {
    Forked(Pid),
    Command(Child),
}

#[derive(Debug)]
enum Ends {
    Socket(UnixStream),
    Pipes(ChildStdin, ChildStdout),
}

impl Ends {
    fn output(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(s) => s.as_fd(),
            Self::Pipes(stdin, _) => stdin.as_fd(),
        }
    }

    fn input(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(s) => s.as_fd(),
            Self::Pipes(_, stdout) => stdout.as_fd(),
        }
    }
}

/// A zygote, seen from its owner. Dropping it ends it.
#[derive(Debug)]
pub struct Isolated {
    peer: Peer,
    ends: Ends,
    /// An exchange was not finished: what comes next would not be the answer to the next request.
    broken: bool,
}

impl Isolated {
    /// Forks a zygote. Call it early: before the process starts threads, and before it forbids itself to fork.
    ///
    /// # Errors
    /// If the process has several threads, or cannot fork.
    pub fn spawn() -> Result<Self, IsolatedError> {
        Self::spawn_with(|| Ok(()))
    }

    /// Forks a zygote that runs `lockdown` before it looks at any program. It has no descriptor open then but its own.
    ///
    /// # Errors
    /// As [`Isolated::spawn`], or if `lockdown` fails.
    pub fn spawn_with(lockdown: impl FnOnce() -> io::Result<()>) -> Result<Self, IsolatedError> {
        if !process::is_single_threaded() {
            return Err(IsolatedError::Threads);
        }
        let (ours, theirs) = UnixStream::pair().map_err(IsolatedError::Start)?;
        let owner = getpid();
        let child = || i32::from(zygote::live(OwnedFd::from(theirs), Some(owner), lockdown).is_err());
        // SAFETY: one thread, as was just checked; nothing can have started another since.
        let pid = unsafe { process::fork(child) }.map_err(IsolatedError::Start)?;
        Self::greet(Self { peer: Peer::Forked(pid), ends: Ends::Socket(ours), broken: false })
    }

    /// Starts a command whose program calls [`serve_stdio`] and does nothing else with its standard input and output.
    ///
    /// # Errors
    /// If it cannot be started, or is of another version.
    pub fn command(mut command: Command) -> Result<Self, IsolatedError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(IsolatedError::Start)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(IsolatedError::Start(io::Error::other("no pipes to the command")));
        };
        Self::greet(Self { peer: Peer::Command(child), ends: Ends::Pipes(stdin, stdout), broken: false })
    }

    fn greet(self) -> Result<Self, IsolatedError> {
        let hear = || -> io::Result<Ready> {
            // So that a zygote that does not read cannot hold us up.
            rustix::io::ioctl_fionbio(self.ends.output(), true)?;
            rustix::io::ioctl_fionbio(self.ends.input(), true)?;
            let body = read_frame(self.ends.input(), MAX_ANSWER, Deadline::after(GRACE))?;
            decode(&body.ok_or(io::ErrorKind::UnexpectedEof)?)
        };
        match hear().map_err(IsolatedError::Start)? {
            Ok(version) if version == VERIFIER_VERSION => Ok(self),
            Ok(version) => Err(IsolatedError::Version(super::refusal::clip(&version))),
            Err(why) => Err(IsolatedError::Lockdown(super::refusal::clip(&why))),
        }
    }

    /// Process number of the zygote.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match &self.peer {
            Peer::Forked(pid) => pid.as_raw_nonzero().get().unsigned_abs(),
            Peer::Command(child) => child.id(),
        }
    }

    /// Judges a program in a process of its own.
    ///
    /// # Errors
    /// [`Refusal::Program`] if it is not proven to be safe, [`Refusal::Resources`] if the proof would take more than
    /// `budget`, [`Refusal::Unavailable`] if the zygote is gone. After that last one make a new one.
    pub fn check(&mut self, linked: &Linked, limits: &Limits, budget: &Budget) -> Result<Report, Refusal> {
        // It costs little, takes what the zygote is not told into account, and bounds the message.
        structure::check(linked, limits)?;
        if self.broken {
            return Err(Refusal::Unavailable {
                cause: "the verifier's process has failed before".to_owned(),
            });
        }
        match self.exchange(&Request::new(linked, *limits, *budget)) {
            Ok(answer) => answer.map_err(|refusal| refusal.placed_in(linked)),
            Err(e) => {
                self.broken = true;
                Err(Refusal::Unavailable { cause: e.to_string() })
            }
        }
    }

    /// Like [`Isolated::check`], and gives the program the right to run.
    ///
    /// # Errors
    /// As [`Isolated::check`].
    pub fn verify(
        &mut self,
        linked: Linked,
        limits: &Limits,
        budget: &Budget,
    ) -> Result<(Verified, Report), Refusal> {
        let report = self.check(&linked, limits, budget)?;
        Ok((Verified::proven(linked), report))
    }

    fn exchange(&self, request: &Request) -> io::Result<Answer> {
        let deadline = Deadline::after(request.budget.wall.saturating_add(GRACE));
        write_all(self.ends.output(), &frame(request, MAX_REQUEST)?, deadline)?;
        let body = read_frame(self.ends.input(), MAX_ANSWER, deadline)?;
        decode(&body.ok_or(io::ErrorKind::UnexpectedEof)?)
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        match &mut self.peer {
            Peer::Forked(pid) => {
                // Not reaped before, so the number is still its own.
                let _ = kill_process(*pid, Signal::KILL);
                let _ = waitpid(Some(*pid), WaitOptions::empty());
            }
            Peer::Command(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The whole life of a process that verifies for [`Isolated::command`]: serves on standard input and output until the
/// owner hangs up. The process has to have one thread, and should do this first of all.
///
/// # Errors
/// If the process has several threads, or the owner does not keep to the protocol.
pub fn serve_stdio() -> io::Result<()> {
    if !process::is_single_threaded() {
        return Err(io::Error::other(IsolatedError::Threads));
    }
    // SAFETY: one thread, as was just checked.
    unsafe { process::be_quiet() };
    let (input, output) = (io::stdin(), io::stdout());
    let ready: Ready = Ok(VERIFIER_VERSION.to_owned());
    write_all(&output, &frame(&ready, MAX_ANSWER)?, Deadline::NEVER)?;
    zygote::serve(&input, &output)
}

/// Any bytes as what either side says; see [`crate::fuzz::verifier_message`].
pub(crate) fn hear_anything(bytes: &[u8], linked: &Linked) {
    let _ready = decode::<Ready>(bytes);
    if let Ok(answer) = decode::<Answer>(bytes) {
        let room = bytes.len().max(MAX_ANSWER);
        assert!(frame(&answer, room).is_ok(), "what a zygote heard it can pass on");
        let _words = answer.map_err(|refusal| refusal.placed_in(linked).to_string());
    }
    if let Ok(request) = decode::<Request>(bytes) {
        let _sound = structure::check(&request.linked(), &Limits::default());
    }
}

#[cfg(test)]
mod tests;
