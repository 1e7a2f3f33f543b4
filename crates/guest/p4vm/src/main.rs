//! The one program in a virtual machine that is a P4 VM.
//!
//! As the machine's first process it makes the file systems, opens the serial lines to the host, starts
//! the runtime as a process of its own in the same sandbox as on a host, carries messages and rings
//! between the lines and the runtime, and collects evidence of the machine's TEE for it. It holds no key and
//! reads no packet. When the runtime ends, the machine powers off.
#![forbid(unsafe_code)]

mod attachment;
mod evidence;
mod init;
mod messages;
mod terminal;

use clap::Parser;
use p4shield_runtime::p4vm;
use p4shield_runtime::sandbox::Limits;
use std::process::ExitCode;
use std::time::Duration;

/// A P4 VM in a virtual machine: the kernel of the image starts this program, never a user.
#[derive(Debug, Parser)]
#[command(name = "p4vm", version)]
struct Options {
    /// Serve as the runtime, with the control socket as standard input
    #[arg(long, hide = true)]
    runtime: bool,
    /// Poll without sleeping
    #[arg(long)]
    busy: bool,
    /// Ask the first process for evidence, at the socket with this number
    #[arg(long, hide = true)]
    evidence_fd: Option<i32>,
    /// Nanoseconds to add to each packet, to measure the cost of slow programs
    #[arg(long, default_value_t = 0)]
    delay_ns: u64,
}

/// The runtime's user. No other process of the machine has it.
const USER: u32 = 1000;
/// The runtime's address space in bytes: the memory of the machine is its limit, and regions take
/// addresses only.
const ADDRESS_SPACE: u64 = 1 << 38;

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.runtime { runtime(&options) } else { init::run(&options) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs the runtime.
fn runtime(options: &Options) -> anyhow::Result<()> {
    p4vm::run(&p4vm::Options {
        control_fd: 0,
        evidence_fd: options.evidence_fd,
        uid: USER,
        allow_missing: Vec::new(),
        limits: Limits { address_space: ADDRESS_SPACE, ..Limits::default() },
        busy: options.busy,
        cpu: None,
        delay: Duration::from_nanos(options.delay_ns),
    })?;
    Ok(())
}

/// Writes an error to the console, whose last lines the daemon keeps.
fn report(error: &anyhow::Error) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "p4vm: {error:#}");
}
