//! Opens ports: checks the interfaces, attaches the programs, binds the sockets.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use p4shield_afxdp::ethtool::{self, Offloads};
use p4shield_afxdp::{FramePool, Port, Promiscuous, Socket, SocketConfig, Umem, UmemConfig};
use p4shield_switch::BATCH;
use p4shield_xdp::{FRAME_OVERHEAD, Interface, InterfaceMonitor, MAX_QUEUES, XdpError, XdpProgram, offload};
use rustix::io::Errno;

use super::AfxdpPorts;
use super::config::AfxdpConfig;
use super::error::Error;
use super::port::{InterfacePort, RestoredOffloads};

/// Bytes of a frame: the first is used if all packets fit.
const FRAME_SIZES: [u32; 2] = [2048, 4096];
/// Longest time that a queue is awaited: the kernel gives it back a moment after its socket was closed.
const RELEASE: Duration = Duration::from_secs(1);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

impl AfxdpPorts {
    /// Opens interfaces of the calling thread's network namespace as ports. From then on the host's own
    /// network stack receives nothing from them.
    ///
    /// # Errors
    /// [`Error`]: an interface does not exist, is down or in use, or privileges are missing.
    pub fn open(config: &AfxdpConfig) -> Result<Self, Error> {
        let listen = || {
            let mut monitor = InterfaceMonitor::open()?;
            let all = monitor.list()?;
            Ok((monitor, all))
        };
        let (monitor, all) = listen().map_err(Error::system("list the interfaces through rtnetlink"))?;
        let chosen = choose(&config.interfaces, &all)?;
        let umem = Umem::new(memory(config, &chosen)?).map_err(Error::Umem)?;
        let pool = FramePool::new(Arc::clone(&umem));
        let mut ports = Self { ports: Vec::new(), pool, monitor, ring: config.ring, rounds: 0 };
        for interface in chosen {
            let port = ports.attach(config, interface, &all)?;
            ports.ports.push(port);
        }
        Ok(ports)
    }

    fn attach(
        &self,
        config: &AfxdpConfig,
        interface: &Interface,
        all: &[Interface],
    ) -> Result<InterfacePort, Error> {
        let (umem, name) = (self.pool.umem(), &interface.name);
        let peer = all.iter().find(|i| Some(i.index) == interface.peer);
        let changed = [Some(interface), peer].into_iter().flatten();
        let offloads = RestoredOffloads(changed.filter_map(|i| Offloads::read(&i.name).ok()).collect());
        let program = XdpProgram::attach(interface, config.xdp, umem.config().max_packet())?;
        offload::switch_off(&program, interface, peer);
        let promiscuous = Promiscuous::new(interface.index)
            .map_err(Error::system(format!("make {name} promiscuous (CAP_NET_RAW is needed)")))?;
        let sockets = bind(umem, config, interface)?;
        self.check_memory(config, name, sockets.len())?;
        let mut queues = Vec::new();
        for (queue, socket) in (0..).zip(sockets) {
            let mut port = Port::new(socket, &self.pool).map_err(Error::socket(name))?;
            port.refill(&self.pool, config.ring);
            program.serve(queue, port.as_fd()).map_err(|source| XdpError::Bpf {
                step: "redirect frames to the socket",
                interface: name.clone(),
                source,
            })?;
            queues.push(port);
        }
        let longest = interface.mtu + FRAME_OVERHEAD;
        Ok(InterfacePort::new(name.clone(), longest, program, queues, promiscuous, offloads))
    }

    fn check_memory(&self, config: &AfxdpConfig, interface: &str, queues: usize) -> Result<(), Error> {
        let all = queues + self.ports.iter().map(|p| p.queues.len()).sum::<usize>();
        let (have, need) = (self.pool.umem().config().frames.into(), frames_needed(config.ring, all));
        if need <= have { Ok(()) } else { Err(Error::Memory { interface: interface.to_owned(), have, need }) }
    }
}

/// Finds the named interfaces.
fn choose<'n, 'a>(names: &'n [String], all: &'a [Interface]) -> Result<Vec<&'a Interface>, Error> {
    let mut seen = BTreeSet::new();
    let choose = |name: &'n String| {
        let interface = name.clone();
        if !seen.insert(name) {
            return Err(Error::Twice { interface });
        }
        let Some(found) = all.iter().find(|i| i.name == *name) else {
            return Err(Error::Missing { interface });
        };
        if let Some(index) = found.master {
            let master = all.iter().find(|i| i.index == index);
            let master = master.map_or_else(|| format!("interface {index}"), |m| m.name.clone());
            return Err(Error::Enslaved { interface, master });
        }
        if found.up { Ok(found) } else { Err(Error::Down { interface }) }
    };
    names.iter().map(choose).collect()
}

/// Returns a UMEM whose frames hold the packets of all interfaces and suffice for all rings.
fn memory(config: &AfxdpConfig, chosen: &[&Interface]) -> Result<UmemConfig, Error> {
    let queues = |i: &&Interface| ethtool::receive_queues(&i.name).map_or(1, |n| n.min(MAX_QUEUES)) as usize;
    let need = frames_needed(config.ring, chosen.iter().map(queues).sum());
    let frames = config.frames.unwrap_or_else(|| u32::try_from(need).unwrap_or(u32::MAX));
    let of_size = |frame_size| UmemConfig { frames, frame_size, huge_pages: config.huge_pages };
    let longest = |size| of_size(size).max_packet() - FRAME_OVERHEAD;
    let [small, large] = FRAME_SIZES;
    match chosen.iter().max_by_key(|i| i.mtu) {
        Some(i) if i.mtu > longest(large) => {
            Err(Error::Mtu { interface: i.name.clone(), mtu: i.mtu, longest: longest(large) })
        }
        Some(i) if i.mtu > longest(small) => Ok(of_size(large)),
        _ => Ok(of_size(small)),
    }
}

/// Returns the number of frames with which no ring lacks one: full fill and transmit rings, and a batch.
const fn frames_needed(ring: u32, queues: usize) -> u64 {
    2 * ring as u64 * queues as u64 + 2 * BATCH as u64
}

/// Binds a socket to each queue of an interface.
fn bind(umem: &Arc<Umem>, config: &AfxdpConfig, interface: &Interface) -> Result<Vec<Socket>, Error> {
    let first = SocketConfig { interface: interface.index, queue: 0, ring: config.ring, mode: config.mode };
    let queues = ethtool::receive_queues(&interface.name);
    let end = Instant::now() + RELEASE;
    loop {
        match Socket::bind_queues(umem, &first, queues, MAX_QUEUES) {
            Err(e) if e.errno() == Some(Errno::BUSY.raw_os_error()) && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            result => return result.map_err(Error::socket(&interface.name)),
        }
    }
}
