//! Verification in a child process with limits on time and memory.
//!
//! ```text
//!  owner ──socket──► zygote ──fork──► child: verifies one program and exits
//!        ◄─answer──         ◄─pipe──  limited CPU time, memory, descriptors and processes
//! ```
//!
//! The owner forks the zygote while it has one thread and is not locked down yet ([`Isolated::spawn`]).
//! The zygote opens no file and executes no program, so it works in an empty root and under a system
//! call filter of [`SYSCALLS`] and [`ARGUMENTS`], which the owner may apply by a closure
//! ([`Isolated::spawn_with`]). An owner with several threads instead runs a command that calls
//! [`serve_stdio`] ([`Isolated::command`]).
//!
//! Whatever a hostile program does in the child, the result is a refusal: a panic becomes
//! [`Refusal::Program`], an exceeded limit [`Refusal::Resources`]. Zygote and children die with their
//! owner. The size of every message is limited.

mod process;
mod syscalls;
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
pub use syscalls::{ARGUMENTS, ArgumentLimit, SYSCALLS};
use wire::{Deadline, MAX_ANSWER, MAX_REQUEST, Request, decode, encode_frame, read_frame, write_all};
use zygote::{Answer, Ready};

/// Resource limits of one verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// CPU time, rounded up to seconds.
    pub cpu: Duration,
    /// Address space, including the memory that the owner had mapped when it forked the zygote.
    pub memory_bytes: u64,
    /// Elapsed time.
    pub wall: Duration,
}

impl Default for Budget {
    /// 30 seconds of CPU time, 60 seconds of elapsed time, 1 GiB.
    fn default() -> Self {
        Self { cpu: Duration::from_secs(30), memory_bytes: 1 << 30, wall: Duration::from_secs(60) }
    }
}

/// Time beyond [`Budget::wall`] after which the owner gives up on a zygote.
const GRACE: Duration = Duration::from_secs(5);

/// Reason why a zygote cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IsolatedError {
    /// The process has several threads: a forked copy may inherit locks that no thread will release.
    #[error(
        "cannot fork the verifier process: this process has several threads; spawn it earlier, or use \
         Isolated::command"
    )]
    Threads,
    /// The process cannot be started.
    #[error("cannot start the verifier process")]
    Start(#[source] io::Error),
    /// The process failed to lock itself down.
    #[error("the verifier process failed to lock itself down: {0}")]
    Lockdown(String),
    /// The process has another version.
    #[error(
        "the verifier process is \"{0}\", expected \"{VERIFIER_VERSION}\": install both from one release"
    )]
    Version(String),
}

/// The zygote process.
#[derive(Debug)]
enum Peer {
    Forked(Pid),
    Command(Child),
}

#[derive(Debug)]
enum Transport {
    Socket(UnixStream),
    Pipes(ChildStdin, ChildStdout),
}

impl Transport {
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

/// The owner's handle of a zygote. Dropping it ends the zygote.
#[derive(Debug)]
pub struct Isolated {
    peer: Peer,
    transport: Transport,
    /// An exchange failed: the next message would not be the answer to the next request.
    broken: bool,
}

impl Isolated {
    /// Forks a zygote. Call it before the process starts threads and before it blocks `fork`.
    ///
    /// # Errors
    /// If the process has several threads or cannot fork.
    pub fn spawn() -> Result<Self, IsolatedError> {
        Self::spawn_with(|| Ok(()))
    }

    /// Forks a zygote that runs `lockdown` before it reads any program. Only its own socket is open then.
    ///
    /// # Errors
    /// As [`Isolated::spawn`], and if `lockdown` fails.
    pub fn spawn_with(lockdown: impl FnOnce() -> io::Result<()>) -> Result<Self, IsolatedError> {
        if !process::is_single_threaded() {
            return Err(IsolatedError::Threads);
        }
        let (ours, theirs) = UnixStream::pair().map_err(IsolatedError::Start)?;
        let owner = getpid();
        let child = || i32::from(zygote::run(OwnedFd::from(theirs), Some(owner), lockdown).is_err());
        // SAFETY: the check above found one thread, and nothing has started another since.
        let pid = unsafe { process::fork(child) }.map_err(IsolatedError::Start)?;
        Self::handshake(Self { peer: Peer::Forked(pid), transport: Transport::Socket(ours), broken: false })
    }

    /// Starts a command that calls [`serve_stdio`] and uses its standard input and output for nothing else.
    ///
    /// # Errors
    /// If the command cannot be started or has another version.
    pub fn command(mut command: Command) -> Result<Self, IsolatedError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(IsolatedError::Start)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(IsolatedError::Start(io::Error::other("the verifier command has no pipes")));
        };
        Self::handshake(Self {
            peer: Peer::Command(child),
            transport: Transport::Pipes(stdin, stdout),
            broken: false,
        })
    }

    fn handshake(self) -> Result<Self, IsolatedError> {
        let receive = || -> io::Result<Ready> {
            // Non-blocking, so that an unresponsive zygote cannot block this process.
            rustix::io::ioctl_fionbio(self.transport.output(), true)?;
            rustix::io::ioctl_fionbio(self.transport.input(), true)?;
            let body = read_frame(self.transport.input(), MAX_ANSWER, Deadline::after(GRACE))?;
            decode(&body.ok_or(io::ErrorKind::UnexpectedEof)?)
        };
        match receive().map_err(IsolatedError::Start)? {
            Ok(version) if version == VERIFIER_VERSION => Ok(self),
            Ok(version) => Err(IsolatedError::Version(super::location::clip(&version))),
            Err(why) => Err(IsolatedError::Lockdown(super::location::clip(&why))),
        }
    }

    /// Process ID of the zygote.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match &self.peer {
            Peer::Forked(pid) => pid.as_raw_nonzero().get().unsigned_abs(),
            Peer::Command(child) => child.id(),
        }
    }

    /// Verifies a program in a child process.
    ///
    /// # Errors
    /// [`Refusal::Program`] if the program is not proven to be safe, [`Refusal::Resources`] if the proof
    /// exceeds `budget`, [`Refusal::Unavailable`] if the zygote failed; the caller then starts a new one.
    pub fn check(&mut self, linked: &Linked, limits: &Limits, budget: &Budget) -> Result<Report, Refusal> {
        // Cheap; it also covers the map entries, which the request leaves out, and bounds the message.
        structure::check(linked, limits)?;
        if self.broken {
            return Err(Refusal::Unavailable { cause: "the verifier process failed earlier".to_owned() });
        }
        match self.exchange(&Request::new(linked, *limits, *budget)) {
            Ok(answer) => answer.map_err(|refusal| refusal.located_in(linked)),
            Err(e) => {
                self.broken = true;
                Err(Refusal::Unavailable { cause: e.to_string() })
            }
        }
    }

    /// Like [`Isolated::check`]; also marks the program as verified.
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
        write_all(self.transport.output(), &encode_frame(request, MAX_REQUEST)?, deadline)?;
        let body = read_frame(self.transport.input(), MAX_ANSWER, deadline)?;
        decode(&body.ok_or(io::ErrorKind::UnexpectedEof)?)
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        match &mut self.peer {
            Peer::Forked(pid) => {
                // The child is not reaped yet, so no other process can have its ID.
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

/// Serves verifications for [`Isolated::command`] on standard input and output until the owner closes
/// them. The process must have one thread and should call this function first.
///
/// # Errors
/// If the process has several threads, or the owner violates the protocol.
pub fn serve_stdio() -> io::Result<()> {
    if !process::is_single_threaded() {
        return Err(io::Error::other(IsolatedError::Threads));
    }
    // SAFETY: the check above found one thread.
    unsafe { process::silence_panics() };
    let (input, output) = (io::stdin(), io::stdout());
    let ready: Ready = Ok(VERIFIER_VERSION.to_owned());
    write_all(&output, &encode_frame(&ready, MAX_ANSWER)?, Deadline::NEVER)?;
    zygote::serve(&input, &output)
}

/// Decodes any bytes as a message of either side; see [`crate::fuzz::verifier_message`].
pub(crate) fn decode_any_message(bytes: &[u8], linked: &Linked) {
    let _ready = decode::<Ready>(bytes);
    if let Ok(answer) = decode::<Answer>(bytes) {
        let room = bytes.len().max(MAX_ANSWER);
        assert!(encode_frame(&answer, room).is_ok(), "a zygote can forward every answer that it decodes");
        let _words = answer.map_err(|refusal| refusal.located_in(linked).to_string());
    }
    if let Ok(request) = decode::<Request>(bytes) {
        let _sound = structure::check(&request.linked(), &Limits::default());
    }
}

#[cfg(test)]
mod tests;
