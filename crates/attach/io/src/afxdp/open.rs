//! Opens ports: checks the interfaces, attaches the programs, binds the sockets.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use p4shield_afxdp::ethtool::{self, Offloads};
use p4shield_afxdp::{FramePool, Port, Promiscuous, Socket, SocketConfig, Umem, UmemConfig};
use p4shield_switch::{BATCH, MAX_PORTS};
use p4shield_xdp::{FRAME_OVERHEAD, Interface, InterfaceMonitor, MAX_QUEUES, XdpError, XdpProgram, offload};
use rustix::io::Errno;

use super::AfxdpPorts;
use super::config::AfxdpConfig;
use super::error::Error;
use super::port::{InterfacePort, Parts, RestoredOffloads};

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
        let (monitor, all) = list()?;
        let chosen = choose(&config.interfaces, &all)?;
        let mut ports = Vec::with_capacity(MAX_PORTS);
        for interface in chosen {
            ports.push(Some(InterfacePort::attach(config, interface, &all)?));
        }
        Ok(Self { ports, monitor, rounds: 0 })
    }
}

impl InterfacePort {
    /// Opens an interface of the calling thread's network namespace for [`AfxdpPorts`] that exist, with this
    /// configuration but for its interfaces.
    ///
    /// # Errors
    /// [`Error`], as [`AfxdpPorts::open`].
    pub fn open(config: &AfxdpConfig, interface: &str) -> Result<Self, Error> {
        let (_, all) = list()?;
        Self::attach(config, find(interface, &all)?, &all)
    }

    fn attach(config: &AfxdpConfig, interface: &Interface, all: &[Interface]) -> Result<Self, Error> {
        let name = &interface.name;
        let umem = Umem::new(memory(config, interface)?)
            .map_err(|source| Error::Umem { interface: name.clone(), source })?;
        let peer = all.iter().find(|i| Some(i.index) == interface.peer);
        let changed = [Some(interface), peer].into_iter().flatten();
        let offloads = changed.filter_map(|i| Some((i.name.clone(), i.index, Offloads::read(&i.name).ok()?)));
        let offloads = RestoredOffloads(offloads.collect());
        let program = XdpProgram::attach(interface, config.xdp, umem.config().max_packet())?;
        offload::switch_off(&program, interface, peer);
        let promiscuous = Promiscuous::new(interface.index)
            .map_err(Error::system(format!("make {name} promiscuous (CAP_NET_RAW is needed)")))?;
        let sockets = bind(&umem, config, interface)?;
        let (have, need) = (umem.config().frames.into(), frames_needed(config.ring, sockets.len()));
        if need > have {
            return Err(Error::Memory { interface: name.clone(), have, need });
        }
        let pool = FramePool::new(umem);
        let mut queues = Vec::new();
        for (queue, socket) in (0..).zip(sockets) {
            let mut port = Port::new(socket, &pool).map_err(Error::socket(name))?;
            port.refill(&pool, config.ring);
            program.serve(queue, port.as_fd()).map_err(|source| XdpError::Bpf {
                step: "redirect frames to the socket",
                interface: name.clone(),
                source,
            })?;
            queues.push(port);
        }
        Ok(Self::new(Parts {
            program,
            queues,
            pool,
            _promiscuous: promiscuous,
            _offloads: offloads,
            name: name.clone(),
            index: interface.index,
            longest: (interface.mtu + FRAME_OVERHEAD) as usize,
            ring: config.ring,
        }))
    }
}

/// Returns the interfaces, and what tells of their changes.
fn list() -> Result<(InterfaceMonitor, Vec<Interface>), Error> {
    let list = || {
        let mut monitor = InterfaceMonitor::open()?;
        let all = monitor.list()?;
        Ok((monitor, all))
    };
    list().map_err(Error::system("list the interfaces through rtnetlink"))
}

/// Finds the named interfaces.
fn choose<'n, 'a>(names: &'n [String], all: &'a [Interface]) -> Result<Vec<&'a Interface>, Error> {
    let mut seen = BTreeSet::new();
    let choose = |name: &'n String| match seen.insert(name) {
        true => find(name, all),
        false => Err(Error::Twice { interface: name.clone() }),
    };
    names.iter().map(choose).collect()
}

/// Finds an interface that can be a port.
fn find<'a>(name: &str, all: &'a [Interface]) -> Result<&'a Interface, Error> {
    let interface = name.to_owned();
    let Some(found) = all.iter().find(|i| i.name == *name) else {
        return Err(Error::Missing { interface });
    };
    if let Some(index) = found.master {
        let master = all.iter().find(|i| i.index == index);
        let master = master.map_or_else(|| format!("interface {index}"), |m| m.name.clone());
        return Err(Error::Enslaved { interface, master });
    }
    if found.up { Ok(found) } else { Err(Error::Down { interface }) }
}

/// Returns a UMEM whose frames hold the packets of an interface and suffice for its rings.
fn memory(config: &AfxdpConfig, interface: &Interface) -> Result<UmemConfig, Error> {
    let queues = ethtool::receive_queues(&interface.name).map_or(1, |n| n.min(MAX_QUEUES)) as usize;
    let need = frames_needed(config.ring, queues);
    let frames = config.frames.unwrap_or_else(|| u32::try_from(need).unwrap_or(u32::MAX));
    let of_size = |frame_size| UmemConfig { frames, frame_size, huge_pages: config.huge_pages };
    let longest = |size| of_size(size).max_packet() - FRAME_OVERHEAD;
    let [small, large] = FRAME_SIZES;
    match interface.mtu {
        mtu if mtu > longest(large) => {
            Err(Error::Mtu { interface: interface.name.clone(), mtu, longest: longest(large) })
        }
        mtu if mtu > longest(small) => Ok(of_size(large)),
        _ => Ok(of_size(small)),
    }
}

/// Returns the number of frames with which no ring lacks one: full fill and transmit rings, and a batch.
const fn frames_needed(ring: u32, queues: usize) -> u64 {
    2 * ring as u64 * queues as u64 + BATCH as u64
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
