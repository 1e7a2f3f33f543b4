//! The machine of a P4 switch: network devices, and one line to the host.

use crate::command::{Machine, switch_arguments};
use crate::error::VmmError;
use crate::finish;
use crate::launch::{PATH, inherit, pair, spawn};
use crate::nic::{NetworkDevice, Nic};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A machine that is a P4 switch, beside this process.
#[derive(Debug)]
pub struct SwitchMachine {
    child: Child,
}

impl SwitchMachine {
    /// Starts a machine with these network devices, in the network namespace of their taps. Returns the line
    /// to its program, and its console, too. QEMU runs as user `uid`, if this process is root's. Called while
    /// the process has one thread. With vhost-user devices the machine starts once each is connected.
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub fn start(
        machine: &Machine,
        uid: u32,
        network: BorrowedFd<'_>,
        devices: Vec<NetworkDevice>,
    ) -> Result<(Self, UnixStream, UnixStream), VmmError> {
        let channels = Channels::new(&devices)?;
        let child = spawn(machine, uid, Some(network), |machine| channels.arguments(machine, &devices))?;
        Ok((Self { child }, channels.line.0, channels.console.0))
    }

    /// As [`Self::start`], as the user of this process and within its own sandbox, to which QEMU's filter of
    /// system calls comes. The sandbox has QEMU's files, those of the image, and the host's devices of the
    /// options.
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub fn start_in_sandbox(
        machine: &Machine,
        nics: Vec<Nic>,
    ) -> Result<(Self, UnixStream, UnixStream), VmmError> {
        let devices: Vec<_> = nics.into_iter().map(NetworkDevice::Tap).collect();
        let channels = Channels::new(&devices)?;
        let mut command = Command::new(&machine.qemu);
        command.args(channels.arguments(machine, &devices)).env_clear().env("PATH", PATH);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let program = || machine.qemu.display().to_string();
        let spawned = command.spawn();
        let child = spawned.map_err(|source| VmmError::Spawn { program: program(), source })?;
        Ok((Self { child }, channels.line.0, channels.console.0))
    }

    /// Returns how the machine has ended; `None`: it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Waits until the machine has ended, and kills it if it does not end in time. Returns how it ended.
    pub fn end(mut self, grace: Duration) -> String {
        finish(&mut self.child, grace)
    }
}

/// The channels of a machine, each with this process's end first.
struct Channels {
    console: (UnixStream, UnixStream),
    line: (UnixStream, UnixStream),
}

impl Channels {
    fn new(devices: &[NetworkDevice]) -> Result<Self, VmmError> {
        let [console, line] = [pair()?, pair()?];
        let taps = devices.iter().filter_map(NetworkDevice::descriptor);
        taps.map(inherit).try_for_each(|inherited| inherited.map(drop))?;
        for theirs in [&console.1, &line.1] {
            inherit(theirs)?;
        }
        Ok(Self { console, line })
    }

    /// Returns QEMU's arguments.
    fn arguments(&self, machine: &Machine, devices: &[NetworkDevice]) -> Vec<String> {
        switch_arguments(machine, self.console.1.as_raw_fd(), self.line.1.as_raw_fd(), devices)
    }
}
