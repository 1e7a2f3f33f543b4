//! The zygote: a process that forks a child for each verification.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getppid, getrlimit,
    kill_process, set_dumpable_behavior, set_parent_process_death_signal, setrlimit, waitpid,
};

use super::Budget;
use super::process::{fork, keep_only, silence_panics};
use super::wire::{Deadline, MAX_ANSWER, MAX_REQUEST, Request, decode, encode_frame, read_frame, write_all};
use crate::verify::{Limit, Refusal, Report, VERIFIER_VERSION, check};

/// The zygote's first message: its [`VERIFIER_VERSION`], or the reason why it cannot serve.
pub(super) type Ready = Result<String, String>;
/// The zygote's answer to a request.
pub(super) type Answer = Result<Report, Refusal>;

/// Makes this process die with `parent`.
fn die_with_parent(parent: Option<Pid>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the call.
    if getppid() == parent { Ok(()) } else { Err(io::Error::other("the parent process has exited")) }
}

/// Main function of a forked zygote: locks the process down, then serves.
pub(super) fn run(
    socket: OwnedFd,
    parent: Option<Pid>,
    lockdown: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    die_with_parent(parent)?;
    // SAFETY: this process only serves requests, and serving uses this descriptor alone.
    let [socket] = unsafe { keep_only([socket]) }?;
    // SAFETY: the process was forked from one thread.
    unsafe { silence_panics() };
    let prepared =
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from).and_then(|()| {
            lockdown()?;
            // A change of credentials resets the signal.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(())
        });
    let ready: Ready = prepared.as_ref().map(|()| VERIFIER_VERSION.to_owned()).map_err(ToString::to_string);
    write_all(&socket, &encode_frame(&ready, MAX_ANSWER)?, Deadline::NEVER)?;
    prepared?;
    serve(&socket, &socket)
}

/// Serves on these descriptors until the owner closes them. The process must have one thread.
pub(super) fn serve(input: impl AsFd, output: impl AsFd) -> io::Result<()> {
    while let Some(body) = read_frame(&input, MAX_REQUEST, Deadline::NEVER)? {
        let request: Request = decode(&body)?;
        let answer = verify_in_child(&request, &input)?;
        write_all(&output, &encode_frame(&answer, MAX_ANSWER)?, Deadline::NEVER)?;
    }
    Ok(())
}

fn verify_in_child(request: &Request, owner: impl AsFd) -> io::Result<Answer> {
    let (from_child, to_zygote) = pipe_with(PipeFlags::CLOEXEC)?;
    let zygote = rustix::process::getpid();
    // SAFETY: the zygote has one thread.
    let pid = unsafe {
        fork(|| match child(request, to_zygote, zygote) {
            Ok(()) => 0,
            Err(_) => 1,
        })
    };
    let Ok(pid) = pid else {
        return Ok(Err(Refusal::Unavailable { cause: "the zygote cannot fork".to_owned() }));
    };
    let report = wait_for_child(from_child.as_fd(), owner.as_fd(), &request.budget);
    if !matches!(report, Ok(ChildReport::Answer(_))) {
        // The child is not reaped yet, so no other process can have its ID.
        let _ = kill_process(pid, Signal::KILL);
    }
    let status = reap(pid)?;
    Ok(match report? {
        ChildReport::Answer(answer) => *answer,
        ChildReport::TimedOut => Err(Refusal::Resources { limit: Limit::Wall }),
        ChildReport::Died => Err(cause_of_death(status)),
    })
}

/// End of a child's verification.
enum ChildReport {
    Answer(Box<Answer>),
    /// The child sent no answer in time.
    TimedOut,
    /// The child died without an answer.
    Died,
}

/// Waits until the child answers, dies, or exceeds its time. An error if the owner closes the connection.
fn wait_for_child(child: impl AsFd, owner: impl AsFd, budget: &Budget) -> io::Result<ChildReport> {
    let deadline = Deadline::after(budget.wall);
    loop {
        let Ok(left) = deadline.left() else { return Ok(ChildReport::TimedOut) };
        let mut fds = [PollFd::new(&child, PollFlags::IN), PollFd::new(&owner, PollFlags::RDHUP)];
        match poll(&mut fds, left.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        if fds[1].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !fds[0].revents().is_empty() {
            return Ok(match read_frame(&child, MAX_ANSWER, deadline) {
                Ok(Some(body)) => {
                    decode(&body).map_or(ChildReport::Died, |a| ChildReport::Answer(Box::new(a)))
                }
                Err(e) if e.kind() == io::ErrorKind::TimedOut => ChildReport::TimedOut,
                Ok(None) | Err(_) => ChildReport::Died,
            });
        }
    }
}

fn reap(pid: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Ok(found) => return Ok(found.map(|(_, status)| status)),
            // The zygote inherited that the owner ignores its children.
            Err(Errno::CHILD) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn cause_of_death(status: Option<WaitStatus>) -> Refusal {
    let signal = status.and_then(WaitStatus::terminating_signal).and_then(Signal::from_named_raw);
    let limit = match signal {
        Some(Signal::XCPU) => Limit::Cpu,
        // Rust aborts when an allocation fails, a stack that cannot grow causes a fault, and the kernel
        // kills a process when memory runs out.
        Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::KILL) => Limit::Memory,
        _ => {
            return Refusal::Unavailable { cause: "the verifier process ended without an answer".to_owned() };
        }
    };
    Refusal::Resources { limit }
}

/// Main function of a child: verifies one program.
fn child(request: &Request, to_zygote: OwnedFd, zygote: Pid) -> io::Result<()> {
    die_with_parent(Some(zygote))?;
    // SAFETY: this process verifies one program, and uses this descriptor alone.
    let [to_zygote] = unsafe { keep_only([to_zygote]) }?;
    limit(&request.budget)?;
    let answer: Answer = check(&request.linked(), &request.limits);
    // `write_all` of `wire` would poll, which fails when the descriptor limit is zero.
    io::Write::write_all(&mut File::from(to_zygote), &encode_frame(&answer, MAX_ANSWER)?)
}

fn limit(budget: &Budget) -> io::Result<()> {
    let both = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    let (soft, hard) = cpu_seconds(budget);
    setrlimit(Resource::Cpu, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    // The owner's own limit may be lower, and no process may raise its hard limit.
    let owners = getrlimit(Resource::As).maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::As, both(budget.memory_bytes.min(owners)))?;
    setrlimit(Resource::Core, both(0))?;
    setrlimit(Resource::Fsize, both(0))?;
    setrlimit(Resource::Nproc, both(0))?;
    // The descriptor is already open.
    setrlimit(Resource::Nofile, both(0))?;
    Ok(())
}

/// Returns the CPU seconds after which the kernel signals the child, and after which it kills it.
pub(super) const fn cpu_seconds(budget: &Budget) -> (u64, u64) {
    let seconds = budget.cpu.as_secs().saturating_add((budget.cpu.subsec_nanos() > 0) as u64);
    let soft = if seconds == u64::MAX { u64::MAX - 1 } else { seconds };
    (soft, soft + 1)
}
