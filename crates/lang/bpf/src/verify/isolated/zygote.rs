//! The process that forks a child for each verification.

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
use super::process::{be_quiet, fork, keep_only};
use super::wire::{Deadline, MAX_ANSWER, MAX_REQUEST, Request, decode, frame, read_frame, write_all};
use crate::verify::{Limit, Refusal, Report, VERIFIER_VERSION, check};

/// What the zygote says first: its [`VERIFIER_VERSION`], or why it cannot serve.
pub(super) type Ready = Result<String, String>;
/// What it says to each request.
pub(super) type Answer = Result<Report, Refusal>;

/// Dies with its parent. `parent` is who that has to be.
fn die_with(parent: Option<Pid>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before the call.
    if getppid() == parent { Ok(()) } else { Err(io::Error::other("the parent is gone")) }
}

/// The life of a zygote that was forked: locks itself down, then serves.
pub(super) fn live(
    socket: OwnedFd,
    parent: Option<Pid>,
    lockdown: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    die_with(parent)?;
    // SAFETY: this process was made for serving, and serving uses this descriptor alone.
    let [socket] = unsafe { keep_only([socket]) }?;
    // SAFETY: forked from a process with one thread.
    unsafe { be_quiet() };
    let prepared =
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from).and_then(|()| {
            lockdown()?;
            // A change of credentials has undone it.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(())
        });
    let ready: Ready = prepared.as_ref().map(|()| VERIFIER_VERSION.to_owned()).map_err(ToString::to_string);
    write_all(&socket, &frame(&ready, MAX_ANSWER)?, Deadline::NEVER)?;
    prepared?;
    serve(&socket, &socket)
}

/// Serves on these descriptors until the owner hangs up. The process has one thread.
pub(super) fn serve(input: impl AsFd, output: impl AsFd) -> io::Result<()> {
    while let Some(body) = read_frame(&input, MAX_REQUEST, Deadline::NEVER)? {
        let request: Request = decode(&body)?;
        let answer = judge(&request, &input)?;
        write_all(&output, &frame(&answer, MAX_ANSWER)?, Deadline::NEVER)?;
    }
    Ok(())
}

fn judge(request: &Request, owner: impl AsFd) -> io::Result<Answer> {
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
    let told = listen(from_child.as_fd(), owner.as_fd(), &request.budget);
    if !matches!(told, Ok(Told::Answer(_))) {
        // It is ours and was not reaped: this is its number.
        let _ = kill_process(pid, Signal::KILL);
    }
    let status = reap(pid)?;
    Ok(match told? {
        Told::Answer(answer) => *answer,
        Told::Late => Err(Refusal::Resources { limit: Limit::Wall }),
        Told::Nothing => Err(cause_of_death(status)),
    })
}

/// What the zygote hears of a child.
enum Told {
    Answer(Box<Answer>),
    /// Nothing within the time.
    Late,
    /// It died without an answer.
    Nothing,
}

/// Waits for the child's answer, for its death, or for the owner to hang up (`Err`).
fn listen(child: impl AsFd, owner: impl AsFd, budget: &Budget) -> io::Result<Told> {
    let deadline = Deadline::after(budget.wall);
    loop {
        let Ok(left) = deadline.left() else { return Ok(Told::Late) };
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
                Ok(Some(body)) => decode(&body).map_or(Told::Nothing, |a| Told::Answer(Box::new(a))),
                Err(e) if e.kind() == io::ErrorKind::TimedOut => Told::Late,
                Ok(None) | Err(_) => Told::Nothing,
            });
        }
    }
}

fn reap(pid: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Ok(found) => return Ok(found.map(|(_, status)| status)),
            // The owner ignores its children, and the zygote inherited that.
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
        // Rust aborts when an allocation fails; a stack that cannot grow is a fault; the kernel kills when it has no
        // memory left.
        Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::KILL) => Limit::Memory,
        _ => {
            return Refusal::Unavailable {
                cause: "the verifier's process ended without an answer".to_owned(),
            };
        }
    };
    Refusal::Resources { limit }
}

/// One verification, in a process of its own.
fn child(request: &Request, to_zygote: OwnedFd, zygote: Pid) -> io::Result<()> {
    die_with(Some(zygote))?;
    // SAFETY: this process was made for one verification, which uses this descriptor alone.
    let [to_zygote] = unsafe { keep_only([to_zygote]) }?;
    limit(&request.budget)?;
    let answer: Answer = check(&request.linked(), &request.limits);
    // Not by poll, which does not work without a descriptor to spend.
    io::Write::write_all(&mut File::from(to_zygote), &frame(&answer, MAX_ANSWER)?)
}

fn limit(budget: &Budget) -> io::Result<()> {
    let both = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    let (soft, hard) = cpu_seconds(budget);
    setrlimit(Resource::Cpu, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    // The owner may have less than that itself, and nobody may raise what it has.
    let owners = getrlimit(Resource::As).maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::As, both(budget.memory_bytes.min(owners)))?;
    setrlimit(Resource::Core, both(0))?;
    setrlimit(Resource::Fsize, both(0))?;
    setrlimit(Resource::Nproc, both(0))?;
    // The one descriptor is open already.
    setrlimit(Resource::Nofile, both(0))?;
    Ok(())
}

/// Seconds after which the child is told, and after which it is killed.
pub(super) const fn cpu_seconds(budget: &Budget) -> (u64, u64) {
    let seconds = budget.cpu.as_secs().saturating_add((budget.cpu.subsec_nanos() > 0) as u64);
    let soft = if seconds == u64::MAX { u64::MAX - 1 } else { seconds };
    (soft, soft + 1)
}
