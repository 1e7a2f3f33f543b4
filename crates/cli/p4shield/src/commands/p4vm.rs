//! `p4shield p4vm`: the host daemon starts it, never a user.

use p4shield_control::{Measure, PROTOCOL_VERSION};
use p4shield_runtime::p4vm::{Options, run};
use p4shield_runtime::sandbox::Limits;

use p4shield_console::{Exit, output};

/// The P4 VM of one tenant. `p4shield run` starts it and controls it over an inherited socket.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the version of the protocol between daemon and P4 VM, and exit
    #[arg(long, exclusive = true)]
    protocol: bool,
    /// Number of the inherited control socket
    #[arg(long, required_unless_present = "protocol")]
    control_fd: Option<i32>,
    /// User to change to when started as root
    #[arg(long, required_unless_present = "protocol")]
    uid: Option<u32>,
    /// Address space in bytes
    #[arg(long)]
    memory: Option<u64>,
    /// The core of the worker thread; default: any
    #[arg(long)]
    cpu: Option<usize>,
    /// Poll without sleeping, on a core of its own
    #[arg(long)]
    busy: bool,
    /// Nanoseconds to add to each packet, to measure the cost of slow programs
    #[arg(long, default_value_t = 0)]
    delay_ns: u64,
    /// A sandbox measure that the kernel may lack; may be repeated
    #[arg(long, value_name = "MEASURE", value_parser = measure)]
    allow_missing: Vec<Measure>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (Some(control_fd), Some(uid)) = (self.control_fd, self.uid) else {
            output::line(PROTOCOL_VERSION);
            return Ok(Exit::Done);
        };
        let mut limits = Limits::default();
        limits.address_space = self.memory.unwrap_or(limits.address_space);
        run(&Options {
            control_fd,
            evidence_fd: None,
            uid,
            allow_missing: self.allow_missing,
            limits,
            busy: self.busy,
            cpu: self.cpu,
            delay: std::time::Duration::from_nanos(self.delay_ns),
        })?;
        Ok(Exit::Done)
    }
}

/// Parses the name of a measure of the sandbox.
pub(super) fn measure(name: &str) -> Result<Measure, String> {
    Measure::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| {
        let known: Vec<&str> = Measure::ALL.iter().map(|m| m.name()).collect();
        format!("unknown measure; known are {}", known.join(", "))
    })
}
