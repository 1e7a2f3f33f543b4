//! Opens ports: checks the interfaces, attaches the programs, binds the sockets.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use p4shield_afxdp::ethtool::{self, Offloads};
use p4shield_afxdp::{FramePool, Port, Promiscuous, Socket, SocketConfig, Umem, UmemConfig};
use p4shield_switch::{BATCH, MAX_PORTS, Share, Way};
use p4shield_xdp::{FRAME_OVERHEAD, Interface, InterfaceMonitor, MAX_QUEUES, XdpProgram, offload};
use rustix::io::Errno;

use super::AfxdpPorts;
use super::config::AfxdpConfig;
use super::error::Error;
use super::port::{Attached, Attachment, InterfacePort, Own, Parts, PortPart, RestoredOffloads};

/// Bytes of a frame: the first is used if all packets fit.
const FRAME_SIZES: [u32; 2] = [2048, 4096];
/// The longest MTU of an interface whose packets fit into a frame, bytes.
pub const LONGEST_MTU: u32 =
    UmemConfig { frames: 0, frame_size: FRAME_SIZES[1], huge_pages: false }.max_packet() - FRAME_OVERHEAD;
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
        let mut all = Self::open_for(config, 1)?;
        Ok(all.swap_remove(0).0)
    }

    /// Opens interfaces as the ports of several threads, which share the queues of each. Returns the part of
    /// each thread, and its ways by place.
    ///
    /// # Errors
    /// As [`AfxdpPorts::open`].
    pub fn open_for(config: &AfxdpConfig, threads: usize) -> Result<Vec<(Self, Vec<Way>)>, Error> {
        let (_, all) = list()?;
        let chosen = choose(&config.interfaces, &all)?;
        let mut parts = Vec::new();
        for _ in 0..threads {
            let ports = Vec::with_capacity(MAX_PORTS);
            parts.push((Self { ports, monitor: Some(list()?.0), rounds: 0 }, Vec::new()));
        }
        for (first, interface) in chosen.into_iter().enumerate() {
            let opened = InterfacePort::attach(config, interface, &all, Share { threads, first })?;
            for ((ports, ways), PortPart { port, way }) in parts.iter_mut().zip(opened) {
                ports.ports.push(port);
                ways.push(way);
            }
        }
        Ok(parts)
    }

    /// Gathers ports that another process has opened for several threads; `open` gets them, as
    /// [`handed::adopt`](super::handed::adopt) returns them. Only the user of these ports learns that an
    /// interface is gone: this process sees none.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn handed(
        interfaces: &[String],
        threads: usize,
        mut open: impl FnMut(&str, Share) -> Result<Vec<PortPart>, Error>,
    ) -> Result<Vec<(Self, Vec<Way>)>, Error> {
        let empty = |_| (Self { ports: Vec::with_capacity(MAX_PORTS), monitor: None, rounds: 0 }, Vec::new());
        let mut parts: Vec<_> = (0..threads).map(empty).collect();
        for (first, interface) in interfaces.iter().enumerate() {
            if interfaces[..first].contains(interface) {
                return Err(Error::Twice { interface: interface.clone() });
            }
            let opened = open(interface, Share { threads, first })?;
            for ((ports, ways), PortPart { port, way }) in parts.iter_mut().zip(opened) {
                ports.ports.push(port);
                ways.push(way);
            }
        }
        Ok(parts)
    }
}

impl InterfacePort {
    /// Opens an interface of the calling thread's network namespace for [`AfxdpPorts`] that exist, with this
    /// configuration but for its interfaces.
    ///
    /// # Errors
    /// [`Error`], as [`AfxdpPorts::open`].
    pub fn open(config: &AfxdpConfig, interface: &str) -> Result<Self, Error> {
        let parts = Self::open_for(config, interface, Share::ALONE)?;
        let missing = || Error::Missing { interface: interface.to_owned() };
        parts.into_iter().find_map(|part| part.port).ok_or_else(missing)
    }

    /// Opens an interface for several threads. Returns the part of each.
    ///
    /// # Errors
    /// [`Error`], as [`AfxdpPorts::open`].
    pub fn open_for(config: &AfxdpConfig, interface: &str, share: Share) -> Result<Vec<PortPart>, Error> {
        let (_, all) = list()?;
        Self::attach(config, find(interface, &all)?, &all, share)
    }

    fn attach(
        config: &AfxdpConfig,
        interface: &Interface,
        all: &[Interface],
        share: Share,
    ) -> Result<Vec<PortPart>, Error> {
        let Opened { attached, umems, own, ways } = Opened::of(config, interface, all, share, Umem::new)?;
        let (attached, receivers) = (Arc::new(attached), umems.len());
        let mut parts: Vec<_> = ways.into_iter().map(|way| PortPart { port: None, way }).collect();
        for (place, (umem, sockets)) in umems.into_iter().zip(own).enumerate() {
            let serve = Serve { attached: &attached, ring: config.ring, first: place, step: receivers };
            let queues = serve.start(umem, sockets, longest(interface))?;
            parts[share.thread(place)].port = Some(Self::new(queues));
        }
        Ok(parts)
    }
}

/// Returns the bytes of the longest packet that is sent by an interface.
pub(super) const fn longest(interface: &Interface) -> usize {
    (interface.mtu + FRAME_OVERHEAD) as usize
}

/// An interface that is attached, with the sockets of all its queues, which get no packets yet.
pub(super) struct Opened {
    pub(super) attached: Attached,
    /// A UMEM for each thread that receives.
    pub(super) umems: Vec<Arc<Umem>>,
    /// The sockets of each of these.
    pub(super) own: Vec<Vec<Socket>>,
    /// The ways of all threads.
    pub(super) ways: Vec<Way>,
}

impl Opened {
    pub(super) fn of(
        config: &AfxdpConfig,
        interface: &Interface,
        all: &[Interface],
        share: Share,
        umem: impl FnMut(UmemConfig) -> p4shield_afxdp::Result<Arc<Umem>>,
    ) -> Result<Self, Error> {
        let name = &interface.name;
        let queues = ethtool::receive_queues(name).map(|n| n.min(MAX_QUEUES));
        let receivers = share.receivers(queues.map_or(1, |n| n as usize));
        let umems = umems(config, interface, queues, receivers, umem)?;
        let attached = attached(config, interface, all, umems[0].config())?;
        let sockets = bind(&umems, config, interface, queues)?;
        let mut own: Vec<Vec<Socket>> = umems.iter().map(|_| Vec::new()).collect();
        for (n, socket) in sockets.into_iter().enumerate() {
            own[n % receivers].push(socket);
        }
        let transmit = ethtool::transmit_queues(name).map_or(receivers, |n| n as usize);
        Ok(Self { attached, umems, own, ways: share.ways(receivers, transmit) })
    }
}

/// Attaches the XDP program to an interface, and switches off what would keep packets from it.
fn attached(
    config: &AfxdpConfig,
    interface: &Interface,
    all: &[Interface],
    umem: &UmemConfig,
) -> Result<Attached, Error> {
    let name = &interface.name;
    let peer = all.iter().find(|i| Some(i.index) == interface.peer);
    let changed = [Some(interface), peer].into_iter().flatten();
    let offloads = changed.filter_map(|i| Some((i.name.clone(), i.index, Offloads::read(&i.name).ok()?)));
    let offloads = RestoredOffloads(offloads.collect());
    let program = XdpProgram::attach(interface, config.xdp, umem.max_packet())?;
    offload::switch_off(&program, interface, peer);
    let promiscuous = Promiscuous::new(interface.index)
        .map_err(Error::system(format!("make {name} promiscuous (CAP_NET_RAW is needed)")))?;
    let own = Own { program, _promiscuous: promiscuous, _offloads: offloads };
    Ok(Attached { by: Attachment::Here(own), name: name.clone(), index: interface.index })
}

/// The start of one thread's queues.
pub(super) struct Serve<'a> {
    pub(super) attached: &'a Arc<Attached>,
    /// Entries of each ring.
    pub(super) ring: u32,
    /// The number of its first queue.
    pub(super) first: usize,
    /// From each of its queues to the next.
    pub(super) step: usize,
}

impl Serve<'_> {
    /// Gives the sockets their frames, and has the XDP program redirect packets to them.
    pub(super) fn start(
        &self,
        umem: Arc<Umem>,
        sockets: Vec<Socket>,
        longest: usize,
    ) -> Result<Parts, Error> {
        let (name, ring) = (&self.attached.name, self.ring);
        let (have, need) = (umem.config().frames.into(), frames_needed(ring, sockets.len()));
        if need > have {
            return Err(Error::Memory { interface: name.clone(), have, need });
        }
        let pool = FramePool::new(umem);
        let mut queues = Vec::new();
        for (queue, socket) in (self.first..).step_by(self.step).zip(sockets) {
            let mut port = Port::new(socket, &pool).map_err(Error::socket(name))?;
            port.refill(&pool, ring);
            self.attached.serve(queue as u32, port.as_fd())?;
            queues.push(port);
        }
        Ok(Parts { attached: Arc::clone(self.attached), queues, pool, longest, ring })
    }
}

/// Returns the interfaces, and what tells of their changes.
pub(super) fn list() -> Result<(InterfaceMonitor, Vec<Interface>), Error> {
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
pub(super) fn find<'a>(name: &str, all: &'a [Interface]) -> Result<&'a Interface, Error> {
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

/// Makes a UMEM for each thread that receives from an interface.
fn umems(
    config: &AfxdpConfig,
    interface: &Interface,
    queues: Option<u32>,
    receivers: usize,
    mut umem: impl FnMut(UmemConfig) -> p4shield_afxdp::Result<Arc<Umem>>,
) -> Result<Vec<Arc<Umem>>, Error> {
    let each = (queues.unwrap_or(1) as usize).div_ceil(receivers);
    let memory = memory(config, interface, each)?;
    let failed = |source| Error::Umem { interface: interface.name.clone(), source };
    (0..receivers).map(|_| umem(memory).map_err(failed)).collect()
}

/// Returns a UMEM whose frames hold the packets of an interface and suffice for the rings of its queues.
fn memory(config: &AfxdpConfig, interface: &Interface, queues: usize) -> Result<UmemConfig, Error> {
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
fn bind(
    umems: &[Arc<Umem>],
    config: &AfxdpConfig,
    interface: &Interface,
    queues: Option<u32>,
) -> Result<Vec<Socket>, Error> {
    let first = SocketConfig { interface: interface.index, queue: 0, ring: config.ring, mode: config.mode };
    let end = Instant::now() + RELEASE;
    loop {
        match Socket::bind_queues(umems, &first, queues, MAX_QUEUES) {
            Err(e) if e.errno() == Some(Errno::BUSY.raw_os_error()) && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            result => return result.map_err(Error::socket(&interface.name)),
        }
    }
}
