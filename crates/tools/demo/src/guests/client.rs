//! The guest of the remote client.

use std::path::Path;

use p4shield_testbed::Guest;

use super::inside::{EMPTY, FILL, GO_ON, REST};
use super::program::{ENDED, Program, ended};
use crate::scene::VM;
use crate::traffic::Totals;

/// The client's program.
const PROGRAM: Program = Program { name: "client", title: "the client (p4shield-dev, in its guest)" };
/// The Ethernet address of its interface.
pub(super) const MAC: &str = "52:54:00:00:77:01";

/// A guest with the remote client.
#[derive(Debug)]
pub(super) struct ClientVm {
    /// The guest.
    pub(super) guest: Guest,
    totals: Totals,
}

impl ClientVm {
    /// Starts the guest at the vhost-user `socket`; it boots once the switch has connected.
    pub(super) fn start(socket: &Path, this_program: &Path) -> anyhow::Result<Self> {
        let guest = Guest::setup().program(this_program).network(socket, MAC).start()?;
        Ok(Self { guest, totals: Totals::default() })
    }

    /// Returns whether the user VM answers a ping.
    pub(super) fn ping(&mut self) -> anyhow::Result<bool> {
        Ok(self.guest.run(&format!("ping -c 1 -W 1 {VM}"), 30)?.code == 0)
    }

    /// Starts the client's program with the command line `words`.
    pub(super) fn connect(&mut self, words: &str) -> anyhow::Result<()> {
        PROGRAM.start(&mut self.guest, &format!("{words} {VM}"))
    }

    /// Reads what the client has seen since the start. Returns what has ended, with the end of its log.
    pub(super) fn look(&mut self) -> anyhow::Result<Option<String>> {
        let shown =
            self.guest.must(&format!("{ENDED}; [ ! -e /run/client.out ] || tail -n 2 /run/client.out"))?;
        for line in shown.lines() {
            if let Some((program, code)) = ended(&[PROGRAM], line) {
                let log = program.log_end(&mut self.guest);
                let title = program.title;
                return Ok(Some(format!("{title} ended (exit code {code}); the end of its log:\n{log}")));
            }
            // The last line may not be whole yet.
            if let Ok(totals) = serde_json::from_str(line) {
                self.totals = totals;
            }
        }
        Ok(None)
    }

    /// Returns what the client had seen when [`Self::look`] was called.
    pub(super) const fn totals(&self) -> Totals {
        self.totals
    }

    /// Starts to fill the user VM's memory.
    pub(super) fn fill(&mut self) -> anyhow::Result<()> {
        PROGRAM.tell(&mut self.guest, FILL)
    }

    /// Closes the connections that fill it.
    pub(super) fn empty(&mut self) -> anyhow::Result<()> {
        PROGRAM.tell(&mut self.guest, EMPTY)
    }

    /// Sends nothing more, or goes on.
    pub(super) fn rest(&mut self, rests: bool) -> anyhow::Result<()> {
        PROGRAM.tell(&mut self.guest, if rests { REST } else { GO_ON })
    }
}
