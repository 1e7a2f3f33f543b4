//! The programs of the demonstration in its guests: the server in the user VM, the client in the other one.
//!
//! They are this program itself, copied into the guests. They read commands from their standard input, one a
//! line, until it ends; the client prints its totals as a line of JSON.

use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::traffic::{Client, Plan, Server};

/// The server's command: to close the connections with unread data.
pub(super) const RELEASE: &str = "release";
/// The client's commands: to fill memory, to close what fills it, to be silent, to go on.
pub(super) const FILL: &str = "fill";
pub(super) const EMPTY: &str = "empty";
pub(super) const REST: &str = "rest";
pub(super) const GO_ON: &str = "go-on";

/// The work of a client in an emulated guest: less than the guest can, for it shares its cores.
pub(super) const PLAN: Plan = Plan {
    established: 4,
    hoarders: 4,
    // For the script's second phase, and for the replay.
    groups: 2,
    // Longer than TCP's pauses before retransmissions, which a restart of the P4 VM may cause.
    patience: Duration::from_secs(120),
    attempt: Duration::from_millis(900),
    pause: Duration::from_millis(200),
};

/// Time between two lines of totals.
const REPORT: Duration = Duration::from_millis(250);

/// Time for the server to start and for the first connections to open.
const FIRST: Duration = Duration::from_secs(30);

/// Bytes that each connection sends at once while memory fills, in this interval: never more than the queue
/// of an emulated guest holds. A packet that the switch drops there would rightly end the audit's certainty.
const PIECE: usize = 8 << 10;
const FILL_PAUSE: Duration = Duration::from_millis(20);

/// Serves connections in the user VM at its `address`.
///
/// # Errors
/// The address is not this machine's, or its ports are taken.
pub fn serve(address: IpAddr) -> anyhow::Result<()> {
    let server = Server::here(address).context("cannot listen")?;
    for line in commands() {
        if line == RELEASE {
            server.release();
        }
    }
    Ok(())
}

/// Opens connections to the server in the user VM.
///
/// # Errors
/// The server cannot be reached, or the output is closed.
pub fn connect(server: IpAddr) -> anyhow::Result<()> {
    let mut client = first(server).context("cannot open the first connections")?;
    let commands = commands();
    let mut fills = false;
    let mut told = Instant::now();
    loop {
        match commands.recv_timeout(if fills { FILL_PAUSE } else { REPORT }) {
            Ok(line) if line == FILL => fills = true,
            Ok(line) if line == EMPTY => {
                fills = false;
                client.empty();
            }
            Ok(line) if line == REST || line == GO_ON => client.rest(line == REST),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if fills {
            client.fill_more(PIECE);
        }
        if told.elapsed() >= REPORT {
            told = Instant::now();
            let totals = serde_json::to_string(&client.totals())?;
            writeln!(std::io::stdout(), "{totals}").context("cannot write the totals")?;
        }
    }
}

/// Opens the lasting connections, for some time also while the server is not there yet.
fn first(server: IpAddr) -> std::io::Result<Client> {
    let begun = Instant::now();
    loop {
        let opened = Client::here(server, PLAN);
        if opened.is_ok() || begun.elapsed() > FIRST {
            return opened;
        }
        std::thread::sleep(REPORT);
    }
}

/// Returns the lines of the standard input.
fn commands() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
