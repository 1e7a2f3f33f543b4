//! The first packet thread, and what is set up for all.

use crate::apart::FunctionsConfig;
use crate::api::{Answer, Format};
use crate::crew::{Crew, SLEEP, StartError, step};
use crate::desk::Desk;
use crate::functions::Functions;
use crate::keeper::Keeper;
use crate::line::Setup;
use crate::metrics;
use crate::noting::PacketSwitch;
use crate::order::{Inbox, threads};
use crate::ports::{Nudge, Port, PortList};
use crate::program::{Loaded, Loader, Traced, parsed};
use crate::surroundings::{Interfaces, Placement, Restriction, Watching};
use crate::vhost::{VHOST_USER, VhostError};
use p4shield_io::afxdp::Watch;
use p4shield_io::ports::{self, OpenPorts, PortsConfig};
use p4shield_links::LinkError;
use p4shield_runtime::sandbox::SandboxError;
use p4shield_socket::{Entrance, ListenError, Listener, Server, listen};
use p4shield_switch::{MAX_THREADS, Noted, PacketIo as _, PortError, Switch, link};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// The configuration of a switch.
pub struct Config {
    /// Numbers of the ports, and their names: network interfaces, DPDK devices, capture files, or
    /// the controller's ([`p4shield_io::ports`]).
    pub ports: Vec<(u16, String)>,
    /// The number of packet threads, 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// EAL's options for DPDK devices, by default those that suit devices and machine.
    pub dpdk_options: Option<String>,
    /// The library for DPDK devices, by default that of this installation.
    pub dpdk_library: Option<PathBuf>,
    /// The socket for commands.
    pub socket: PathBuf,
    /// Files that are loaded before the first packet.
    pub entries: Vec<EntriesFile>,
    /// Where metrics are served over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Loads a program that replaces the first one, or its twin for tracing.
    pub loader: Box<Loader>,
    /// The first program for tracing.
    pub traced: Traced,
    /// The functions of the first program that run in a compartment.
    pub functions: Option<FunctionsConfig>,
}

/// A file with entries of tables.
#[derive(Clone, Debug)]
pub struct EntriesFile {
    /// Its name, for errors.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// Its text.
    pub text: String,
}

/// The reason why a switch does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// There is no port.
    #[error("a switch needs a port: --port 1=INTERFACE, once for each")]
    NoPorts,
    /// There cannot be so many packet threads.
    #[error("{0} packet threads: a switch has 1 to {MAX_THREADS}")]
    Threads(usize),
    /// There is nothing for further packet threads.
    #[error("capture files are read by one packet thread; leave --threads out")]
    Files,
    /// The numbers of the ports are invalid.
    #[error(transparent)]
    Numbers(#[from] PortError),
    /// A port cannot be opened.
    #[error(transparent)]
    Ports(#[from] ports::Error),
    /// A file with entries is refused.
    #[error("{file}: {why}")]
    Entries {
        /// Its name, and the first wrong line.
        file: String,
        /// The reason.
        why: String,
    },
    /// Metrics cannot be served.
    #[error("cannot serve metrics at {address}; another process may use the port")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another switch has the socket.
    #[error("another switch answers on {}; stop it, or name another socket with --socket", .0.display())]
    Running(PathBuf),
    /// The socket cannot be opened.
    #[error(transparent)]
    Socket(ListenError),
    /// The system has no descriptor or thread left.
    #[error("cannot start the switch's threads")]
    System(#[source] std::io::Error),
    /// A packet thread cannot filter its system calls.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The port needs what a compartment does not have.
    #[error(
        "port {number} is {name}, which needs {needs}, and a switch of placement pipeline has neither; leave \
         --placement out, or give it a network interface"
    )]
    NotInside {
        /// Its number.
        number: u16,
        /// Its name.
        name: String,
        /// The things that it needs.
        needs: &'static str,
    },
    /// The port is for a switch in a virtual machine: its number and name.
    #[error(
        "port {0} is {1}, and only a switch in a virtual machine has vhost-user ports; add --placement \
         pipeline --compartment vm, or give it a DPDK device (dpdk:net_virtio_user0,path=SOCKET)"
    )]
    OnlyInMachine(u16, String),
    /// A vhost-user port has no connection.
    #[error(transparent)]
    Vhost(#[from] VhostError),
    /// A machine has no place for so many network devices.
    #[error("{ports} interfaces and sockets as ports: a switch in a virtual machine has at most {most}")]
    TooManyInside {
        /// The ports.
        ports: usize,
        /// The limit.
        most: usize,
    },
    /// An interface cannot be a port of a machine.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The switch in the compartment refuses the program or a file.
    #[error("{0}")]
    Refused(String),
    /// The switch in the compartment does not start.
    #[error("{0}")]
    Inside(String),
    /// The compartment cannot be started.
    #[error("cannot start the switch's compartment")]
    Compartment(#[source] std::io::Error),
    /// The compartment with the program's functions does not start, or refuses them.
    #[error("the compartment with the program's functions: {0}")]
    Functions(String),
    /// The compartment has ended by itself.
    #[error("the compartment has ended: {0}; its ports are released, start the switch again")]
    Ended(String),
}

impl SwitchError {
    /// Returns whether files or options are refused, whatever the state of the machine.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        if let Self::Vhost(error) = self {
            return error.is_refusal();
        }
        matches!(
            self,
            Self::NoPorts
                | Self::Threads(_)
                | Self::Files
                | Self::Numbers(_)
                | Self::Entries { .. }
                | Self::NotInside { .. }
                | Self::OnlyInMachine(..)
                | Self::TooManyInside { .. }
                | Self::Refused(_)
        )
    }
}

impl From<StartError> for SwitchError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Ports(error) => Self::Ports(error),
            StartError::Numbers(error) => Self::Numbers(error),
            StartError::Sandbox(error) => Self::Sandbox(error),
            StartError::System(error) => Self::System(error),
        }
    }
}

/// Forwards packets until `stop` is set. Calls `ready` once the ports are open and the socket answers.
///
/// # Errors
/// [`SwitchError`]: the switch did not start. A port whose interface is lost later is a problem in the
/// status, and opens again by itself; the others go on.
pub fn run(
    config: Config,
    loaded: Loaded,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<(), SwitchError> {
    check(&config.ports, config.threads)?;
    check_no_machine(&config.ports)?;
    let place = Place {
        entrance: listen_on(&config.socket)?,
        metrics: config.metrics.map(listen_for_metrics).transpose()?,
        interfaces: Interfaces::Here,
        watching: Watching::Here(Watch::open().map_err(ports::Error::from)?),
        placement: if config.functions.is_some() { Placement::Extern } else { Placement::Inline },
        restriction: Restriction::None,
    };
    let forwarding = Forwarding {
        ports: config.ports,
        threads: config.threads,
        dpdk_options: config.dpdk_options,
        dpdk_library: config.dpdk_library,
        entries: config.entries,
        loader: config.loader,
        traced: config.traced,
        functions: config.functions,
    };
    forward(forwarding, place, loaded, stop, ready)
}

/// The configuration of a switch that has its sockets.
pub(crate) struct Forwarding {
    pub(crate) ports: Vec<(u16, String)>,
    pub(crate) threads: usize,
    pub(crate) dpdk_options: Option<String>,
    pub(crate) dpdk_library: Option<PathBuf>,
    pub(crate) entries: Vec<EntriesFile>,
    pub(crate) loader: Box<Loader>,
    pub(crate) traced: Traced,
    pub(crate) functions: Option<FunctionsConfig>,
}

/// Where a switch runs, and what it gets from there.
pub(crate) struct Place<E> {
    /// Where clients come in.
    pub(crate) entrance: E,
    /// Where metrics are asked for.
    pub(crate) metrics: Option<(SocketAddr, TcpListener)>,
    pub(crate) interfaces: Interfaces,
    pub(crate) watching: Watching,
    pub(crate) placement: Placement,
    /// The rights that packet threads give up once all is set up.
    pub(crate) restriction: Restriction,
}

impl Setup {
    /// Returns the configuration of the switch, and its program, loaded.
    pub(crate) fn forwarding(self, loader: Box<Loader>) -> Result<(Forwarding, Loaded), SwitchError> {
        let refused = SwitchError::Refused;
        let objects = parsed(&self.program, &self.objects).map_err(refused)?;
        let loaded = loader(&self.program, &objects).map_err(refused)?;
        let entries = self.entries.into_iter().map(|(name, format, text)| EntriesFile { name, format, text });
        let forwarding = Forwarding {
            ports: self.ports,
            threads: self.threads,
            dpdk_options: None,
            dpdk_library: None,
            entries: entries.collect(),
            loader,
            traced: self.traced.and_then(|objects| parsed(&self.program, &objects)),
            functions: None,
        };
        Ok((forwarding, loaded))
    }
}

/// Checks what needs no system call.
pub(crate) fn check(ports: &[(u16, String)], threads: usize) -> Result<(), SwitchError> {
    if ports.is_empty() {
        return Err(SwitchError::NoPorts);
    }
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(SwitchError::Threads(threads));
    }
    if are_files(ports) && threads > 1 {
        return Err(SwitchError::Files);
    }
    Ok(())
}

/// Returns an error for a port that only a switch in a virtual machine has.
pub(crate) fn check_no_machine(ports: &[(u16, String)]) -> Result<(), SwitchError> {
    let found = ports.iter().find(|(_, name)| name.starts_with(VHOST_USER));
    found.map_or(Ok(()), |(number, name)| Err(SwitchError::OnlyInMachine(*number, name.clone())))
}

/// As [`check`], for a switch in a compartment.
pub(crate) fn check_inside(ports: &[(u16, String)], threads: usize) -> Result<(), SwitchError> {
    check(ports, threads)?;
    ports.iter().try_for_each(|(number, name)| fits_inside(*number, name))
}

/// Returns an error for a port that needs what no compartment has.
fn fits_inside(number: u16, name: &str) -> Result<(), SwitchError> {
    let needs = match name {
        name if name.starts_with(ports::DPDK) => "files of devices and of huge pages",
        name if name.starts_with(ports::PCAP) => "files to read and write",
        _ => return Ok(()),
    };
    Err(SwitchError::NotInside { number, name: name.to_owned(), needs })
}

fn are_files(ports: &[(u16, String)]) -> bool {
    ports.iter().all(|(_, name)| name.starts_with(ports::PCAP))
}

/// Opens the socket for commands.
pub(crate) fn listen_on(socket: &Path) -> Result<Listener, SwitchError> {
    listen(socket).map_err(|error| match error {
        ListenError::Running(path) => SwitchError::Running(path),
        other => SwitchError::Socket(other),
    })
}

/// Opens the socket for metrics.
pub(crate) fn listen_for_metrics(address: SocketAddr) -> Result<(SocketAddr, TcpListener), SwitchError> {
    let listener = TcpListener::bind(address).map_err(|source| SwitchError::Metrics { address, source })?;
    Ok((address, listener))
}

/// Forwards packets until `stop` is set: see [`run`].
pub(crate) fn forward<E: Entrance>(
    config: Forwarding,
    place: Place<E>,
    loaded: Loaded,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<(), SwitchError> {
    let are_files = are_files(&config.ports);
    let numbers = config.ports.iter().map(|(number, _)| *number).collect();
    let names = config.ports.iter().map(|(_, name)| name.clone()).collect();
    let opening = PortsConfig { names, dpdk_options: config.dpdk_options, dpdk_library: config.dpdk_library };
    let opened = place.interfaces.open_all(&opening, config.threads)?;
    let OpenPorts { ports: io, ways, further, indexes } = opened;
    let known = config.ports.iter().zip(indexes).enumerate();
    let known = known.map(|(first, ((number, interface), index))| {
        let interface = interface.clone();
        Port { number: *number, interface, index, first, ..Port::default() }
    });
    let ports = PortList::new(known.collect());
    let (program, traits, named) = loaded.parts(config.traced);
    let mut switch = Switch::new(Noted::new(io, None), numbers, program, traits)?;
    let (threads, mut inboxes) = threads(config.threads).map_err(SwitchError::System)?;
    let mut links = link(&inboxes.iter().map(Inbox::rings).collect::<Vec<_>>());
    let crew = Crew::new(&switch, further, links.split_off(1), inboxes.split_off(1), place.restriction);
    let (Some(own), Some(mut inbox)) = (links.pop(), inboxes.pop()) else {
        return Err(SwitchError::Threads(config.threads));
    };
    switch.set_links(own, &ways);
    let problems = Arc::new(Mutex::new(Vec::new()));
    let desk = Desk {
        program: RwLock::new(named),
        loader: config.loader,
        ports,
        interfaces: place.interfaces,
        placement: place.placement,
        threads,
        nudge: Nudge::new().map_err(SwitchError::System)?,
        problems: Arc::clone(&problems),
        start: Instant::now(),
        functions: Mutex::new(None),
        apart: Mutex::new(None),
        sampled: Mutex::default(),
        noting: Mutex::default(),
        writing: Mutex::new(()),
    };
    let load_all = || config.entries.iter().try_for_each(|file| load_file(&desk, file));
    serving(load_all, &mut inbox, &mut switch)??;
    let desk = Arc::new(desk);
    let metrics = place.metrics.map(|(address, listener)| serve_metrics(address, listener, &desk));
    let _metrics = metrics.transpose()?;
    let _server = Server::start(place.entrance, Arc::clone(&desk)).map_err(SwitchError::System)?;
    let _crew = crew.start(&problems)?;
    serving(|| desk.spread(), &mut inbox, &mut switch)?;
    let start_functions = || config.functions.map(|f| Functions::start(&desk, f)).transpose();
    let _functions = serving(start_functions, &mut inbox, &mut switch)?.map_err(SwitchError::Functions)?;
    let _keeper = Keeper::start(&desk, place.watching).map_err(SwitchError::System)?;
    ready();
    place.restriction.apply()?;
    if are_files {
        replay(&mut switch, &mut inbox, stop)?;
    } else {
        while !stop.load(Ordering::Relaxed) {
            step(&mut switch, &mut inbox, &problems);
        }
    }
    // Who waits for an order hears at once that there is no answer.
    drop(inbox);
    Ok(())
}

fn serve_metrics(
    address: SocketAddr,
    listener: TcpListener,
    desk: &Arc<Desk>,
) -> Result<p4shield_scrape::Server, SwitchError> {
    let desk = Arc::clone(desk);
    let started = p4shield_scrape::Server::on(listener, address, move || metrics::render(&desk));
    started.map_err(|source| SwitchError::Metrics { address, source })
}

/// Does some work of the desk on another thread, while this one executes its orders and no packet flows.
fn serving<T: Send>(
    work: impl FnOnce() -> T + Send,
    inbox: &mut Inbox,
    switch: &mut PacketSwitch,
) -> Result<T, SwitchError> {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        while !working.is_finished() {
            inbox.serve(switch);
            inbox.wait(Duration::from_millis(1));
        }
        let panicked = |_| SwitchError::System(std::io::Error::other("a thread panicked at the start"));
        working.join().map_err(panicked)
    })
}

fn load_file(desk: &Desk, file: &EntriesFile) -> Result<(), SwitchError> {
    let refused = |file: String, why| Err(SwitchError::Entries { file, why });
    match desk.load(&file.format, &file.text, false) {
        Ok(Answer::Refused { line, why }) => refused(format!("{}:{line}", file.name), why),
        Ok(_) => Ok(()),
        Err(why) => refused(file.name.clone(), why),
    }
}

/// Forwards the packets of capture files, until all have left.
///
/// # Errors
/// A file is damaged, or cannot be written: no packet behind that is forwarded.
fn replay(switch: &mut PacketSwitch, inbox: &mut Inbox, stop: &AtomicBool) -> Result<(), SwitchError> {
    while !stop.load(Ordering::Relaxed) {
        let received = switch.round()?;
        inbox.serve(switch);
        if received > 0 {
            continue;
        }
        match switch.next_release() {
            Some(due) => inbox.wait(due.min(SLEEP)),
            None if switch.awaits_answers() => std::thread::yield_now(),
            None if switch.io().ended() => break,
            None => {}
        }
    }
    Ok(())
}
