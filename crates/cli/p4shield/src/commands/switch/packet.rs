//! `p4shield switch packet`.

use std::path::Path;

use clap::Subcommand;
use p4shield_console::{Exit, output};
use p4shield_p4switch::api::{self, Named, PacketIn};

use super::follow::{Limits, Place, follow, print};
use super::trace::{Packet, packet};
use super::{Socket, written};

/// Receive and send packets as the controller of the switch
///
/// The port that `p4shield switch run --cpu-port` names is the controller's: packets that the program sends
/// there are for clients of this command, and packets of clients arrive there. A program declares the headers
/// of both with @controller_header("packet_in") and @controller_header("packet_out"); their fields have names
/// here. Several clients may receive; each gets all packets. The switch keeps the last 256 of them.
///
/// Examples:
///
///   p4shield switch packet receive
///   p4shield switch packet receive --count 1 --json
///   p4shield switch packet send 0200000000020200000000010800... egress_port=2
///
/// Exit code 3 if the switch has no CPU port, or if it refuses the packet.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Packets {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show packets to the controller as they come
    Receive {
        #[command(flatten)]
        limits: Limits,
        /// Print JSON, one line for each packet
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Send a packet of the controller
    Send {
        /// The packet without its header: hexadecimal, from the Ethernet header on
        #[arg(value_name = "HEX", value_parser = packet)]
        packet: Packet,
        /// Fields of its header: NAME=VALUE, or VALUE in the program's order; others are 0
        #[arg(value_name = "FIELD")]
        fields: Vec<String>,
        #[command(flatten)]
        socket: Socket,
    },
}

impl Packets {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Receive { limits, json, socket } => receive(&socket.socket, &limits, json),
            Command::Send { packet: Packet(bytes), fields, socket } => {
                let fields = fields.iter().map(|field| Named::parse(field)).collect();
                written(api::packet_out(&socket.socket, fields, &bytes))
            }
        }
    }
}

fn receive(socket: &Path, limits: &Limits, json: bool) -> anyhow::Result<Exit> {
    let ask = |from| {
        let answer = api::packets_in(socket, from)?;
        Ok((answer.packets, Place { next: answer.next, missed: answer.missed }))
    };
    let started = || {
        output::note("receiving packets; Ctrl-C ends it");
        Ok(())
    };
    follow(limits, "packets", ask, started, |packet: &PacketIn| {
        print(&if json { serde_json::to_string(packet)? } else { text(packet) })?;
        Ok(true)
    })
}

fn text(packet: &PacketIn) -> String {
    let values = packet.values.iter().map(|(name, value)| format!("{name}={value}"));
    values.chain([packet.payload.clone()]).collect::<Vec<_>>().join(" ")
}
