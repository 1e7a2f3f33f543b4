//! Ports that a process with privileges opens, and another one without serves.
//!
//! ```text
//!   opener: XDP program, sockets, UMEM ──descriptors──► server: maps rings and UMEM, receives and sends
//!   Held    ◄────────────── lease: ends with the last part of the port ───────────────┘
//! ```
//!
//! The opener keeps what needs privileges ([`Held`]), and drops it once the lease ends: when the server drops
//! the port, and when it ends for whatever reason. It reads no ring and no packet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use p4shield_afxdp::{Socket, SocketConfig, Umem, UmemConfig};
use p4shield_switch::{Share, Way};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use super::config::AfxdpConfig;
use super::error::Error;
use super::open::{Opened, Serve, find, list, longest};
use super::port::{Attached, Attachment, InterfacePort, PortPart};

/// A port, as its opener describes it to its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    name: String,
    index: u32,
    /// Bytes of the longest packet that is sent.
    longest: usize,
    /// Entries of each ring.
    ring: u32,
    /// The ways of all threads: the thread that sends for it, and whether it has the queue.
    ways: Vec<(Option<u8>, bool)>,
    /// The parts of the threads that receive.
    receivers: Vec<Receiver>,
}

/// The part of a thread that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receiver {
    /// Frames of its UMEM.
    frames: u32,
    /// Bytes of a frame.
    frame_size: u32,
    /// The number of its sockets.
    sockets: usize,
}

impl Description {
    /// Returns how many descriptors belong to it.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.receivers.iter().fold(1, |sum, r| sum.saturating_add(1).saturating_add(r.sockets))
    }
}

/// The opener's part of a port. Dropping it detaches the XDP program, and restores what was switched off.
#[derive(Debug)]
pub struct Held {
    attached: Attached,
    lease: OwnedFd,
}

impl Held {
    /// Returns the name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attached.name
    }

    /// Returns the descriptor that is readable once the server has no part of the port.
    #[must_use]
    pub fn lease(&self) -> BorrowedFd<'_> {
        self.lease.as_fd()
    }
}

/// A port on its way to its server.
#[derive(Debug)]
pub struct Parcel {
    /// The description.
    pub description: Description,
    /// The other end of the lease.
    lease: OwnedFd,
    files: Vec<OwnedFd>,
    /// The sockets of each file's UMEM.
    sockets: Vec<Vec<Socket>>,
}

impl Parcel {
    /// Returns the descriptors in the order in which [`adopt`] takes them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![self.lease.as_fd()];
        for (file, sockets) in self.files.iter().zip(&self.sockets) {
            all.push(file.as_fd());
            all.extend(sockets.iter().map(Socket::as_fd));
        }
        all
    }
}

/// Opens an interface as a port of another process.
///
/// # Errors
/// [`Error`], as [`InterfacePort::open_for`].
pub fn open(config: &AfxdpConfig, interface: &str, share: Share) -> Result<(Held, Parcel), Error> {
    let (_, all) = list()?;
    let interface = find(interface, &all)?;
    let mut files = Vec::new();
    let umem = |config| {
        let (umem, file) = Umem::shareable(config)?;
        files.push(file);
        Ok(umem)
    };
    let Opened { attached, umems, own: sockets, ways } = Opened::of(config, interface, &all, share, umem)?;
    for (place, sockets) in sockets.iter().enumerate() {
        for (queue, socket) in (place..).step_by(umems.len()).zip(sockets) {
            attached.serve(queue as u32, socket.as_fd())?;
        }
    }
    let receiver = |(umem, sockets): (&Arc<Umem>, &Vec<Socket>)| {
        let UmemConfig { frames, frame_size, .. } = *umem.config();
        Receiver { frames, frame_size, sockets: sockets.len() }
    };
    let description = Description {
        name: interface.name.clone(),
        index: interface.index,
        longest: longest(interface),
        ring: config.ring,
        ways: ways.into_iter().map(|Way { thread, has_queue }| (thread, has_queue)).collect(),
        receivers: umems.iter().zip(&sockets).map(receiver).collect(),
    };
    let (ours, lease) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| Error::system(format!("keep {} open", interface.name))(e.into()))?;
    Ok((Held { attached, lease: ours }, Parcel { description, lease, files, sockets }))
}

/// Takes a port that another process has opened. Returns the part of each of as many threads as that process
/// was told of.
///
/// # Errors
/// A descriptor is missing, or is not what the description says; before Linux 6.4 no ring can be mapped.
pub fn adopt(
    description: &Description,
    descriptors: Vec<OwnedFd>,
    share: Share,
) -> Result<Vec<PortPart>, Error> {
    let Description { name, index, longest, ring, ways, receivers } = description;
    let failed = |why: &str| Error::Handed { why: format!("{name} cannot be taken over: {why}") };
    if descriptors.len() != description.descriptors() || ways.len() != share.threads {
        return Err(failed("it came incomplete"));
    }
    let mut descriptors = descriptors.into_iter();
    let lease = descriptors.next().ok_or_else(|| failed("it came incomplete"))?;
    let by = Attachment::Elsewhere(lease);
    let attached = Arc::new(Attached { by, name: name.clone(), index: *index });
    let way =
        |&(thread, has_queue): &(Option<u8>, bool)| PortPart { port: None, way: Way { thread, has_queue } };
    let mut parts: Vec<_> = ways.iter().map(way).collect();
    for (place, receiver) in receivers.iter().enumerate() {
        let file = descriptors.next().ok_or_else(|| failed("it came incomplete"))?;
        let Receiver { frames, frame_size, sockets } = *receiver;
        let memory = UmemConfig { frames, frame_size, huge_pages: false };
        let umem =
            Umem::of_file(&file, memory).map_err(|source| Error::Umem { interface: name.clone(), source })?;
        let config = AfxdpConfig::new(std::iter::empty::<String>());
        let config = SocketConfig { interface: *index, queue: 0, ring: *ring, mode: config.mode };
        let own = descriptors.by_ref().take(sockets).map(|fd| Socket::adopt(fd, &umem, &config));
        let own = own.collect::<Result<Vec<_>, _>>().map_err(|error| match error.errno() {
            Some(BUSY) => failed("Linux 6.4 or newer is needed for it"),
            _ => Error::socket(name)(error),
        })?;
        let serve = Serve { attached: &attached, ring: *ring, first: place, step: receivers.len() };
        let part = parts.get_mut(share.thread(place)).ok_or_else(|| failed("it has too many parts"))?;
        part.port = Some(InterfacePort::new(serve.start(umem, own, *longest)?));
    }
    Ok(parts)
}

/// The kernel maps no rings of a bound socket.
const BUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
