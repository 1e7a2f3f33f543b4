//! The switch in a virtual machine, whose sandbox the machine is.

use super::InsideError;
use super::buffers::Buffers;
use super::daemons::Daemons;
use super::dpdk::Datapath;
use super::enter::{RUN, STATE, be_quiet};
use super::lines::{MAX_SETUP, MachineSetup};
use crate::obeying::execute;
use crate::order::{Answer, MAX_ORDER};
use crate::read_line::read_line;
use p4shield_afxdp::ethtool;
use std::convert::Infallible;
use std::io::{self, BufReader, Read, Write};

/// The way to the host, over which orders come.
#[derive(Debug)]
pub struct GuestLine<P: Read> {
    port: BufReader<P>,
}

impl<P: Read + Write> GuestLine<P> {
    /// Takes the way to the host.
    #[must_use]
    pub fn new(port: P) -> Self {
        Self { port: BufReader::new(port) }
    }

    /// Waits for the host's first message.
    ///
    /// # Errors
    /// It is another one, or the line fails.
    pub fn setup(&mut self) -> Result<MachineSetup, InsideError> {
        let line = read_line(&mut self.port, MAX_SETUP).map_err(InsideError::Orders)?;
        let line = line.ok_or_else(|| InsideError::Orders(io::ErrorKind::UnexpectedEof.into()))?;
        serde_json::from_slice(&line).map_err(|e| InsideError::Orders(e.into()))
    }

    /// Starts Open vSwitch, and executes the host's orders. `failed` is a reason why the machine is not
    /// ready, which the host gets. Called while the process has one thread.
    ///
    /// # Errors
    /// The switch does not start, or the host has closed the line; otherwise it does not return.
    pub fn serve(mut self, failed: Option<String>) -> Result<Infallible, InsideError> {
        let daemons = match failed.map_or_else(start, Err) {
            Ok(daemons) => daemons,
            Err(why) => {
                self.send(&Answer { error: Some(why.clone()), ..Answer::default() })
                    .map_err(InsideError::Orders)?;
                return Err(InsideError::Switch(why));
            }
        };
        self.send(&Answer::default()).map_err(InsideError::Orders)?;
        loop {
            let order = read_line(&mut self.port, MAX_ORDER).map_err(InsideError::Orders)?;
            let order = order.ok_or_else(|| InsideError::Orders(io::ErrorKind::UnexpectedEof.into()))?;
            self.send(&execute(&order, &daemons)).map_err(InsideError::Orders)?;
        }
    }

    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        self.port.get_mut().write_all(&line)
    }
}

/// Prepares the machine's network before its devices are there: nothing sends packets of its own.
pub fn prepare_network() {
    be_quiet();
}

/// Sets a network device up that has its name. Open vSwitch takes packets as they were sent.
///
/// # Errors
/// The device is not there.
pub fn open_port(name: &str) -> Result<(), InsideError> {
    // A driver that merges nothing may know no such setting.
    let _ = ethtool::receive_unmerged(name);
    p4shield_links::start(name).map_err(|e| InsideError::Switch(p4shield_text::chain(&e)))
}

fn start() -> Result<Daemons, String> {
    for folder in [RUN, STATE, "/tmp"] {
        std::fs::create_dir_all(folder).map_err(|e| format!("cannot create {folder}: {e}"))?;
    }
    // The reaper knows children by their process group, and a machine's first process has none.
    let _ = rustix::process::setsid();
    let reaper = std::thread::Builder::new().spawn(|| p4shield_sandbox::reap_orphans());
    reaper.map_err(|e| format!("cannot start a thread: {e}"))?;
    let buffers = Buffers::start().map_err(|e| format!("cannot start a thread: {e}"))?;
    Daemons::start(Datapath { dpdk: false, huge_pages: 0, core: 0 }, Some(buffers))
}
