//! The machine's first process.

use crate::Options;
use crate::evidence;
use crate::messages::{Busy, Messages};
use crate::terminal;
use anyhow::Context;
use p4shield_control::Socket;
use p4shield_line::Rings;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Numbers of the serial lines: the first one, `ttyS0`, is the console.
const MESSAGES: u8 = 1;
const RINGS: u8 = 2;

/// Runs the machine, which ends with the runtime. Returns only an error.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    p4shield_boot::check_first()
        .context("`p4shield run` starts a machine for a tenant with compartment = \"vm\"")?;
    p4shield_boot::mount_all()?;
    let messages = terminal::open(MESSAGES)?;
    let rings = Rings::start(terminal::open(RINGS)?).context("cannot start a thread")?;
    let (runtime, theirs) = Socket::pair()?;
    start_runtime(options, theirs)?;
    let busy = Arc::new(Busy::default());
    let carried = Arc::clone(&busy);
    let messages = Messages { line: messages, runtime, rings };
    std::thread::Builder::new()
        .name("messages".to_owned())
        .spawn(move || {
            if let Err(error) = messages.carry(&carried) {
                crate::report(&error);
                power_off();
            }
        })
        .context("cannot start a thread")?;
    wait_for_children();
    let _last_reply = busy.lock();
    power_off();
    Ok(())
}

/// Starts a thread that collects evidence, if the machine has a TEE. Returns the runtime's end of its socket,
/// which the runtime inherits.
fn start_evidence() -> anyhow::Result<Option<OwnedFd>> {
    let Some(attester) = evidence::attester() else { return Ok(None) };
    let (ours, theirs) = Socket::pair()?;
    std::thread::Builder::new()
        .name("evidence".to_owned())
        .spawn(move || evidence::serve(&attester, ours))
        .context("cannot start a thread")?;
    let theirs = theirs.into_fd();
    fcntl_setfd(&theirs, FdFlags::empty()).context("cannot pass a socket on")?;
    Ok(Some(theirs))
}

/// Starts the runtime, which enters its sandbox as on a host: a program or a host that takes the runtime
/// over gains neither the lines nor the devices of the machine.
fn start_runtime(options: &Options, control: Socket) -> anyhow::Result<()> {
    let evidence = start_evidence()?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["--runtime", "--delay-ns", &options.delay_ns.to_string()]);
    if options.busy {
        command.arg("--busy");
    }
    if let Some(socket) = &evidence {
        command.args(["--evidence-fd", &socket.as_raw_fd().to_string()]);
    }
    command.env_clear().stdin(Stdio::from(control.into_fd()));
    command.spawn().context("cannot start the runtime")?;
    Ok(())
}

/// Waits until all processes have ended. The first one of the runtime ends when it has entered its sandbox.
fn wait_for_children() {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                if let Some(signal) = status.terminating_signal() {
                    crate::report(&anyhow::anyhow!("signal {signal} ended a process of the runtime"));
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Ends the machine.
fn power_off() {
    let error = p4shield_boot::power_off();
    crate::report(&anyhow::Error::new(error).context("cannot power off"));
}
