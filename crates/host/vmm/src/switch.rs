//! The machine of a P4 switch: network devices, and one line to the host.

use crate::command::{Machine, switch_arguments};
use crate::error::VmmError;
use crate::finish;
use crate::launch::{inherit, pair, spawn};
use crate::nic::Nic;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

/// A machine that is a P4 switch, beside this process.
#[derive(Debug)]
pub struct SwitchMachine {
    child: Child,
}

impl SwitchMachine {
    /// Starts a machine with these network devices, in the network namespace of their taps. Returns the line
    /// to its program, and its console, too. QEMU runs as user `uid`, if this process is root's. Called while
    /// the process has one thread.
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub fn start(
        machine: &Machine,
        uid: u32,
        network: BorrowedFd<'_>,
        nics: Vec<Nic>,
    ) -> Result<(Self, UnixStream, UnixStream), VmmError> {
        let [console, line] = [pair()?, pair()?];
        let inherited: Vec<_> =
            nics.iter().map(|nic| Ok((inherit(&nic.tap)?, nic))).collect::<Result<_, VmmError>>()?;
        let (console_fd, line_fd) = (inherit(&console.1)?, inherit(&line.1)?);
        let child = spawn(machine, uid, Some(network), |machine| {
            switch_arguments(machine, console_fd, line_fd, &inherited)
        })?;
        Ok((Self { child }, line.0, console.0))
    }

    /// Waits until the machine has ended, and kills it if it does not end in time. Returns how it ended.
    pub fn end(mut self, grace: Duration) -> String {
        finish(&mut self.child, grace)
    }
}
