//! `p4shield switch run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use p4shield_bpf::Object;
use p4shield_console::{Exit, Refused, output, signals};
use p4shield_p4switch::{CONTROLLER, Config, SwitchError, run};

use super::port::{Port, port};
use super::program::{self, Source};
use super::{Socket, load};

/// Forward packets between interfaces, DPDK devices or capture files, as a P4 program decides
///
/// The program is verified first. SIGINT and SIGTERM end the switch, which leaves the interfaces as they
/// were. An interface that is a port gets no packets to this machine's own network stack.
///
/// Examples:
///
///   p4shield switch run router.p4 --port 1=veth1 --port 2=veth2
///   p4shield switch run router.p4 --port 1=veth1 --port 2=veth2 --entries s1-commands.txt
///   p4shield switch run router.o extern.o --port 1=eth1 --port 2=eth2    compiled before
///   p4shield switch run router.p4 --port 1=pcap:in.pcap --port 2=pcap:,out.pcap
///   p4shield switch run router.p4 --port 1=dpdk:0000:01:00.0 --port 2=dpdk:net_af_packet0,iface=eth2
///
/// pcap:IN,OUT is a capture file to read, whose packets arrive at the port, and one to write, which gets
/// those that leave by it; either may be left out. A switch of capture files only ends when all packets have
/// left.
///
/// A DPDK device is a PCI address that is bound to vfio-pci, or a virtual device with its arguments. The
/// switch then polls, which takes a whole core under load, and a few percent of it when idle.
///
/// Exit code 3 if the program or a file is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Run {
    #[command(flatten)]
    source: Source,
    /// A port: its number in the program, and the network interface, dpdk:DEVICE or pcap:IN,OUT; once for
    /// each port
    #[arg(long = "port", value_name = "NUMBER=INTERFACE", required = true, value_parser = port)]
    ports: Vec<Port>,
    /// The controller's port: packets that leave by it are for `p4shield switch packet receive`, and those of
    /// `p4shield switch packet send` arrive at it
    #[arg(long, value_name = "NUMBER")]
    cpu_port: Option<u16>,
    /// Forward with this many threads, which share the queues of each interface and DPDK device
    ///
    /// Each thread takes a core under load. Each has the program for itself if packets change nothing but
    /// counters. Otherwise they run it in turn, so that registers and meters are those of one thread, and
    /// only receive and send beside each other. A thread without a queue of a port hands packets for it to
    /// one that has. The first thread has the controller's port.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    threads: usize,
    /// Load this file before the first packet, as `p4shield switch table load` does; may be repeated
    #[arg(long, value_name = "FILE")]
    entries: Vec<PathBuf>,
    /// Serve metrics for Prometheus at this address of the loopback interface, such as 127.0.0.1:9465
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    metrics: Option<SocketAddr>,
    /// Options of DPDK's EAL, instead of those that suit the devices and the machine: any processor, nothing
    /// shared with other processes, without free huge pages `--no-huge -m 512`, without hardware `--no-pci`
    #[arg(long = "dpdk", value_name = "OPTIONS", allow_hyphen_values = true)]
    dpdk_options: Option<String>,
    /// The library for DPDK devices; default: libp4shield_ethdev.so of this installation
    #[arg(long, value_name = "FILE")]
    dpdk_library: Option<PathBuf>,
    #[command(flatten)]
    socket: Socket,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "write ADDRESS:PORT, such as 127.0.0.1:9465")?;
    let is_loopback = address.ip().is_loopback();
    is_loopback.then_some(address).ok_or_else(|| format!("{} is no loopback address", address.ip()))
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let stop = signals::stop_flag()?;
        let entries = self.entries.iter().map(|f| load::entries_file(f)).collect::<Result<_, _>>()?;
        let Some(objects) = self.source.objects()? else { return Ok(Exit::Refused) };
        let name = self.source.name();
        let loaded = program::load(&name, &program::parse(&name, &objects.own)?)?;
        let traced = match objects.traced {
            Ok(objects) => Ok(program::parse(&name, &objects)?),
            Err(why) => Err(why),
        };
        let mut ports = self.ports.into_iter().map(|p| (p.number, p.interface)).collect::<Vec<_>>();
        ports.extend(self.cpu_port.map(|number| (number, CONTROLLER.to_owned())));
        let socket = self.socket.socket;
        let loader =
            |name: &str, objects: &[Object]| program::load(name, objects).map_err(|e| format!("{e:#}"));
        let config = Config {
            ports,
            threads: self.threads,
            dpdk_options: self.dpdk_options,
            dpdk_library: self.dpdk_library,
            socket: socket.clone(),
            entries,
            metrics: self.metrics,
            loader: Box::new(loader),
            traced,
        };
        let shown = config.ports.clone();
        let ready = || {
            let ports: Vec<_> = shown.iter().map(|(number, name)| format!("{number}={name}")).collect();
            let socket = socket.display();
            output::note(format_args!("forwarding between {}; commands: {socket}", ports.join(" ")));
        };
        match run(config, loaded, &stop, ready) {
            Ok(()) => Ok(Exit::Done),
            Err(
                e @ (SwitchError::NoPorts
                | SwitchError::Threads(_)
                | SwitchError::Files
                | SwitchError::Numbers(_)
                | SwitchError::Entries { .. }),
            ) => Err(Refused::because(&e).into()),
            Err(e) => Err(e.into()),
        }
    }
}
