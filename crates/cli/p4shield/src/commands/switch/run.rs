//! `p4shield switch run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use p4shield_bpf::Object;
use p4shield_console::{Exit, Refused, output, signals};
use p4shield_control::Measure;
use p4shield_p4switch::{
    CONTROLLER, Config, EntriesFile, FunctionsConfig, Launch, Machine, Setup, SwitchError, run,
    run_in_compartment, run_in_machine,
};

use p4shield_switch::CallFail;

use super::machine;
use super::port::{Port, port};
use super::program::{self, Objects, Source};
use super::{Socket, load};
use crate::commands::p4vm::measure;

/// Forward packets between interfaces, DPDK devices, DPDK switches or capture files, as a P4 program decides
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
///   p4shield switch run router.p4 --port 1=veth1 --port 2=veth2 --placement pipeline
///   p4shield switch run router.p4 --port 1=veth1 --port 2=veth2 --placement pipeline --compartment vm
///   p4shield switch run router.p4 --port 1=veth1 --port 2=vhost-user:/run/p4.sock,server \
///     --placement pipeline --compartment vm
///   p4shield switch run router.p4 --port 1=dpdk:0000:01:00.0 --port 2=dpdk:net_af_packet0,iface=eth2
///
/// pcap:IN,OUT is a capture file to read, whose packets arrive at the port, and one to write, which gets
/// those that leave by it; either may be left out. A switch of capture files only ends when all packets have
/// left.
///
/// A DPDK device is a PCI address that is bound to vfio-pci, or a virtual device with its arguments. The
/// switch then polls, which takes a whole core under load, and a few percent of it when idle.
///
/// --placement pipeline: the switch runs in a process of its own that has no file, no capability and no
/// network but the rings of its ports. This process stays: it opens ports and admits clients. If either ends,
/// so does the other. DPDK devices and capture files are no ports of such a switch. With --compartment vm it
/// runs in a virtual machine, whose network devices are taps of the interfaces, or vhost-user connections to
/// DPDK switches (Open vSwitch, testpmd, any with DPDK's net_vhost):
///
///   vhost-user:SOCKET          the DPDK switch listens there: net_vhost0,iface=SOCKET, or a port of type
///                              dpdkvhostuser; it has to be there before this one starts
///   vhost-user:SOCKET,server   the DPDK switch connects: net_vhost0,iface=SOCKET,client=1, or a port of
///                              type dpdkvhostuserclient; the machine starts once it has connected
///
/// Behind either there may be ,mtu=BYTES for packets of up to 3818 bytes instead of 1500, and ,queues=NUMBER
/// for as many queue pairs, one for each of --threads at most; the DPDK switch has to poll all of them.
/// Commands show such a port as vhostNUMBER. It is down while the DPDK switch is gone, and up again once that
/// is back.
///
/// Exit code 3 if the program or a file is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Run {
    #[command(flatten)]
    source: Source,
    /// A port: its number in the program, and the network interface, dpdk:DEVICE, pcap:IN,OUT,
    /// vhost-user:SOCKET or vhost-user:SOCKET,server, each with ,mtu=BYTES and ,queues=NUMBER behind it if
    /// need be; once for each port
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
    /// Where the switch runs: in this process; the whole pipeline in a compartment, a process without files,
    /// network and privileges, to which this one hands ports and clients; or in this process, with the
    /// functions in a compartment that the program marks with @compartment
    #[arg(long, value_enum, default_value_t = Placement::Inline)]
    placement: Placement,
    /// With placement extern: milliseconds in which the compartment answers a call
    #[arg(long, value_name = "MS", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    deadline: u64,
    /// With placement extern: the fate of a packet whose call is not answered
    #[arg(long, value_enum, default_value_t = Fail::Drop)]
    fail: Fail,
    /// With placement extern: a file with entries for the maps of the functions, such as their keys; a line
    /// `MAP KEY VALUE` for each
    ///
    /// Only the compartment reads it, at each start: also when it starts again, and at `p4shield switch
    /// load`.
    #[arg(long, value_name = "FILE")]
    function_maps: Option<PathBuf>,
    /// A measure of the compartment's sandbox that the kernel may lack; may be repeated
    #[arg(long, value_name = "MEASURE", value_parser = measure)]
    allow_missing: Vec<Measure>,
    #[command(flatten)]
    machine: machine::Options,
    #[command(flatten)]
    socket: Socket,
}

/// Where the switch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Placement {
    /// In this process
    Inline,
    /// In a compartment
    Pipeline,
    /// In this process, and the program's marked functions in a compartment
    Extern,
}

/// The fate of a packet whose call is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Fail {
    /// It is dropped
    Drop,
    /// It goes on as if the function had returned 0 and changed nothing
    Zero,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "write ADDRESS:PORT, such as 127.0.0.1:9465")?;
    let is_loopback = address.ip().is_loopback();
    is_loopback.then_some(address).ok_or_else(|| format!("{} is no loopback address", address.ip()))
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let stop = signals::stop_flag()?;
        if self.placement == Placement::Inline && !self.allow_missing.is_empty() {
            return Err(Refused(
                "--allow-missing is about a compartment; add --placement pipeline or extern".into(),
            )
            .into());
        }
        if self.placement == Placement::Inline && self.machine.is_vm() {
            let why = "--compartment is about a compartment; add --placement pipeline or extern";
            return Err(Refused(why.into()).into());
        }
        if self.placement != Placement::Extern && self.function_maps.is_some() {
            let why = "--function-maps is for functions in a compartment; add --placement extern";
            return Err(Refused(why.into()).into());
        }
        let entries = self.entries.iter().map(|f| load::entries_file(f)).collect::<Result<Vec<_>, _>>()?;
        let is_extern = self.placement == Placement::Extern;
        let place = if is_extern { p4shield_p4::Placement::Extern } else { p4shield_p4::Placement::Inline };
        let Some(objects) = self.source.objects(place)? else { return Ok(Exit::Refused) };
        if is_extern && objects.functions.is_none() {
            let why = "the program calls no function that it marks with @compartment; leave --placement out";
            return Err(Refused(why.into()).into());
        }
        let mut ports = self.ports.iter().map(|p| (p.number, p.interface.clone())).collect::<Vec<_>>();
        ports.extend(self.cpu_port.map(|number| (number, CONTROLLER.to_owned())));
        let shown: Vec<_> = ports.iter().map(|(number, name)| format!("{number}={name}")).collect();
        let socket = self.socket.socket.display().to_string();
        let ready = || {
            output::note(format_args!("forwarding between {}; commands: {socket}", shown.join(" ")));
        };
        let ran = match self.placement {
            Placement::Inline | Placement::Extern => self.inline(ports, entries, objects, &stop, ready)?,
            Placement::Pipeline => self.pipeline(ports, entries, &objects, &stop, ready)?,
        };
        match ran {
            Ok(()) => Ok(Exit::Done),
            Err(e) if e.is_refusal() => Err(Refused::because(&e).into()),
            Err(e) => Err(e.into()),
        }
    }

    fn inline(
        self,
        ports: Vec<(u16, String)>,
        entries: Vec<EntriesFile>,
        objects: Objects,
        stop: &AtomicBool,
        ready: impl FnOnce(),
    ) -> anyhow::Result<Result<(), SwitchError>> {
        let name = self.source.name();
        let loaded = program::load(&name, &program::parse(&name, &objects.own)?)?;
        let traced = match objects.traced {
            Ok(objects) => Ok(program::parse(&name, &objects)?),
            Err(why) => Err(why),
        };
        let binary = std::env::current_exe().context("cannot find the path of this executable")?;
        let machine = self.machine.of_functions()?;
        let functions = objects.functions.map(|functions| FunctionsConfig {
            binary,
            machine,
            objects: functions,
            longest_message: objects.longest_message,
            maps: self.function_maps,
            allow_missing: self.allow_missing,
            deadline: Duration::from_millis(self.deadline),
            fail: match self.fail {
                Fail::Drop => CallFail::Drop,
                Fail::Zero => CallFail::Zero,
            },
        });
        let loader =
            |name: &str, objects: &[Object]| program::load(name, objects).map_err(|e| format!("{e:#}"));
        let config = Config {
            ports,
            threads: self.threads,
            dpdk_options: self.dpdk_options,
            dpdk_library: self.dpdk_library,
            socket: self.socket.socket,
            entries,
            metrics: self.metrics,
            loader: Box::new(loader),
            traced,
            functions,
        };
        Ok(run(config, loaded, stop, ready))
    }

    fn pipeline(
        self,
        ports: Vec<(u16, String)>,
        entries: Vec<EntriesFile>,
        objects: &Objects,
        stop: &AtomicBool,
        ready: impl FnOnce(),
    ) -> anyhow::Result<Result<(), SwitchError>> {
        let encoded = |objects: &Vec<Vec<u8>>| objects.iter().map(hex::encode).collect();
        let setup = Setup {
            ports,
            threads: self.threads,
            entries: entries.into_iter().map(|e| (e.name, e.format, e.text)).collect(),
            metrics: self.metrics,
            program: self.source.name(),
            objects: encoded(&objects.own),
            traced: objects.traced.as_ref().map(encoded).map_err(Clone::clone),
        };
        if self.machine.is_vm() {
            let (machine, socket) = (self.machine.of_switch(self.threads)?, self.socket.socket);
            return Ok(run_in_machine(&setup, &Machine { socket, machine }, stop, ready));
        }
        let binary = std::env::current_exe().context("cannot find the path of this executable")?;
        let (socket, allow_missing) = (self.socket.socket, self.allow_missing);
        let launch = Launch { binary, socket, allow_missing, uid: None, own_network: false };
        Ok(run_in_compartment(&setup, &launch, stop, ready))
    }
}
