//! `p4shield switch port`.

use clap::Subcommand;
use p4shield_console::Exit;
use p4shield_p4switch::api;

use super::{Socket, written};
use crate::commands::program_state::columns;
use crate::commands::watch::Watch;

/// Show, add and delete ports while packets flow
///
/// A port keeps its number while its interface comes and goes. States: up; down (the interface is down, or
/// has no carrier); gone (there is no interface of that name); failed (it cannot be opened). Packets to a
/// port that is not up are dropped as port_down. Once the interface is back and up, the port opens again by
/// itself. `p4shield switch status` names each problem with its remedy.
///
/// A port that is deleted drops the packets that wait in its queue. Multicast groups and clone sessions that
/// name it stay; their copies for it are dropped as no_port until a port has that number again.
///
/// Examples:
///
///   p4shield switch port list
///   p4shield switch port add 3=veth3
///   p4shield switch port delete 3
///
/// Exit code 3 if the switch refuses the change; its ports are then as before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Ports {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the ports with their states and packets
    List {
        #[command(flatten)]
        watch: Watch,
        #[command(flatten)]
        socket: Socket,
    },
    /// Open a network interface as a further port
    Add {
        /// The port's number in the program, 0 to 511, and the network interface
        #[arg(value_name = "NUMBER=INTERFACE", value_parser = port)]
        port: Port,
        #[command(flatten)]
        socket: Socket,
    },
    /// Delete a port with its queue, and leave its interface to others
    Delete {
        /// The port's number
        port: u16,
        #[command(flatten)]
        socket: Socket,
    },
}

/// A port's number and interface.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) interface: String,
}

/// Parses `NUMBER=INTERFACE`.
pub(super) fn port(text: &str) -> Result<Port, String> {
    let form = || "write NUMBER=INTERFACE, such as 1=veth1".to_owned();
    let (number, interface) = text.split_once('=').ok_or_else(form)?;
    let number = number.parse().map_err(|_| form())?;
    if interface.starts_with("cpu:") {
        return Err("give the CPU port by --cpu-port NUMBER when the switch starts".to_owned());
    }
    if interface.is_empty() { Err(form()) } else { Ok(Port { number, interface: interface.to_owned() }) }
}

impl Ports {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::List { watch, socket } => {
                super::watch(&watch, || Ok(api::status(&socket.socket)?.ports), |ports| text(ports))?;
                Ok(Exit::Done)
            }
            Command::Add { port: Port { number, interface }, socket } => {
                written(api::add_port(&socket.socket, number, interface))
            }
            Command::Delete { port, socket } => written(api::delete_port(&socket.socket, port)),
        }
    }
}

/// Returns the ports as a table.
pub(super) fn text(ports: &[api::PortStatus]) -> String {
    if ports.is_empty() {
        return "no ports\n".to_owned();
    }
    let header =
        ["port", "interface", "state", "received", "bytes", "packets/s", "sent", "bytes", "packets/s"];
    let row = |p: &api::PortStatus| {
        let api::Traffic { received, received_bytes, sent, sent_bytes } = p.traffic;
        let names = [p.number.to_string(), p.interface.clone(), p.state.name().to_owned()];
        let api::Rates { received_packets_s, sent_packets_s, .. } = p.rates;
        let counts = [received, received_bytes, received_packets_s, sent, sent_bytes, sent_packets_s];
        names.into_iter().chain(counts.iter().map(u64::to_string)).collect()
    };
    let mut out = String::new();
    let header = header.map(str::to_owned).to_vec();
    columns(&mut out, &std::iter::once(header).chain(ports.iter().map(row)).collect::<Vec<_>>());
    out
}
