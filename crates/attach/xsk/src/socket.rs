//! An AF_XDP socket of the application: its setup so far, and the queue that it is bound to.

use std::ffi::c_void;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{c_int, off_t, size_t};
use p4shield_afxdp::{Descriptor, Error, offsets, zero_copy};
use p4shield_attach::QueueSide;
use p4shield_xsk_relay::frames::UmemGeometry;
use p4shield_xsk_relay::relay::{ReceivePump, TransmitPump};

use crate::fd_table::FdTable;
use crate::packet::ApplicationMemory;
use crate::queue::XskQueue;
use crate::ready_event::ReadyEvent;
use crate::rings::{RingKind, RingPair};
use crate::umem::{AccessConflict, RegisteredUmem};
use crate::verdicts::Verdicts;
use crate::{drain_signal, mediation, next_libc};

/// The AF_XDP sockets of the process by their descriptors.
pub(crate) static SOCKETS: FdTable<XskSocket> = FdTable::new();

/// An AF_XDP socket of the application. The object is never freed, but reused after the socket is closed.
#[derive(Debug)]
pub(crate) struct XskSocket {
    /// The number of the object among all of the process.
    pub(crate) number: u32,
    /// A descriptor of the socket, for this library's own calls.
    pub(crate) fd: AtomicI32,
    /// Counts the sockets that the object has stood for.
    pub(crate) generation: AtomicU32,
    /// The number of descriptors of the socket.
    descriptors: AtomicU32,
    setup: Mutex<SocketSetup>,
    /// The socket's own queue, used if it has a fill and a completion ring.
    own_queue: XskQueue,
    /// The queue that moves the rings of the bound socket.
    bound: AtomicPtr<XskQueue>,
    /// The ready packets in the application's receive ring.
    pub(crate) event: &'static ReadyEvent,
    /// Whether the receive ring had room when a thread last checked; true for a socket without one, whose
    /// next packet waits for nothing that the application does.
    pub(crate) has_room: AtomicBool,
    /// Whether the application has slept in `poll` for the socket, so that the need_wakeup flag is not
    /// needed.
    pub(crate) sleeps_in_poll: AtomicBool,
    /// Whether receive calls must make the kernel poll the interface (`SO_BUSY_POLL`).
    pub(crate) busy_polls: AtomicBool,
}

/// What the application has set up.
#[derive(Debug, Default)]
struct SocketSetup {
    memory: Option<Arc<ApplicationMemory>>,
    /// The number of entries of each created ring, by [`RingKind`].
    entries: [u32; 4],
    rings: [Option<RingPair>; 4],
    /// Whether the application mapped a ring that another process created.
    foreign_ring: bool,
    /// Interface and queue.
    place: Option<(u32, u32)>,
    /// Whether [`mediation`] counts the socket as a user of its interface.
    counted: bool,
}

static ALL: Mutex<Vec<&'static XskSocket>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns all open sockets.
pub(crate) fn all() -> Vec<&'static XskSocket> {
    lock(&ALL).iter().copied().filter(|s| s.descriptors.load(Acquire) > 0).collect()
}

/// Logs the frame owners of every open socket. Skips a socket that another thread has locked.
pub(crate) fn report_all() {
    let Ok(sockets) = ALL.try_lock().map(|all| all.clone()) else { return };
    for socket in sockets.into_iter().filter(|s| s.queue().is_some()) {
        if let Ok(setup) = socket.setup.try_lock() {
            setup.report();
        }
    }
}

impl XskSocket {
    /// Returns the object for a new socket with one descriptor.
    pub(crate) fn make(fd: RawFd) -> &'static Self {
        let mut all = lock(&ALL);
        let free = all.iter().copied().find(|s| s.descriptors.load(Acquire) == 0);
        let socket = free.unwrap_or_else(|| {
            let socket: &'static Self = Box::leak(Box::new(Self {
                number: all.len() as u32,
                fd: AtomicI32::new(-1),
                generation: AtomicU32::new(0),
                descriptors: AtomicU32::new(0),
                setup: Mutex::default(),
                own_queue: XskQueue::new(),
                bound: AtomicPtr::new(std::ptr::null_mut()),
                event: ReadyEvent::register(),
                has_room: AtomicBool::new(true),
                sleeps_in_poll: AtomicBool::new(false),
                busy_polls: AtomicBool::new(false),
            }));
            all.push(socket);
            socket
        });
        socket.fd.store(fd, Relaxed);
        socket.sleeps_in_poll.store(false, Relaxed);
        socket.busy_polls.store(false, Relaxed);
        socket.has_room.store(true, Relaxed);
        socket.event.reset();
        socket.generation.fetch_add(1, Relaxed);
        socket.descriptors.store(1, Release);
        socket
    }

    /// Returns the number and the descriptor by which a pump and its send calls know the socket.
    pub(crate) fn number_and_fd(&self) -> (u32, RawFd) {
        (self.number, self.fd.load(Relaxed))
    }

    /// Borrows a descriptor of the socket. For use in a call of the application on this socket, or
    /// inside one of its pumps.
    pub(crate) fn borrow_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open: an application in a call has it open, and closing the last
        // descriptor removes the socket from its pumps first, which waits for the thread inside.
        unsafe { BorrowedFd::borrow_raw(self.fd.load(Relaxed)) }
    }

    /// Records how many packets are ready and whether the receive ring has room.
    pub(crate) fn update_readiness(&self, pump: &mut ReceivePump<Verdicts>) {
        self.event.set_ready(pump.ready(self.number));
        self.has_room.store(pump.has_room(self.number), Relaxed);
    }

    /// Runs the pumps for a call of the application.
    pub(crate) fn service(&self, queue: &XskQueue) {
        queue.count_call();
        queue.pump_receive(|pump| {
            self.update_readiness(pump);
            queue.kernel_needs_wakeup.store(pump.kernel_needs_wakeup(), Relaxed);
        });
        if queue.is_sending() {
            queue.pump_transmit(self.number_and_fd(), false, |_| {});
        }
    }

    /// Returns the queue that moves the rings of a bound socket.
    pub(crate) fn queue(&self) -> Option<&'static XskQueue> {
        // SAFETY: null, or a queue of an `XskSocket`, which is never freed.
        unsafe { self.bound.load(Acquire).as_ref() }
    }

    /// Counts one more descriptor of the socket.
    pub(crate) fn add_descriptor(&self) {
        self.descriptors.fetch_add(1, Release);
    }

    /// Records that the application created a ring.
    pub(crate) fn ring_created(&self, kind: RingKind, entries: u32) {
        lock(&self.setup).entries[kind as usize] = entries;
    }

    /// Records that the application registered a UMEM.
    ///
    /// # Safety
    /// The kernel has accepted a UMEM of this geometry at `base`.
    pub(crate) unsafe fn umem_registered(
        &self,
        base: *mut c_void,
        geometry: UmemGeometry,
        umem: Arc<RegisteredUmem>,
    ) {
        // SAFETY: the caller's promise; the application keeps memory that it has registered.
        let memory = unsafe { ApplicationMemory::new(base.cast(), geometry, umem) };
        lock(&self.setup).memory = Some(Arc::new(memory));
    }

    /// Maps a ring for the application. Returns `None` if the call must go to the kernel.
    ///
    /// # Safety
    /// As for `mmap`.
    pub(crate) unsafe fn map(
        &self,
        (at, len, prot, flags, offset): (*mut c_void, size_t, c_int, c_int, off_t),
    ) -> Option<*mut c_void> {
        let kind = RingKind::of_offset(offset)?;
        let mut setup = lock(&self.setup);
        let entries = setup.entries[kind as usize];
        if entries == 0 || setup.place.is_some() {
            setup.foreign_ring |= setup.place.is_none();
            return None;
        }
        if setup.rings[kind as usize].is_none() {
            match self.create_pair(kind, entries) {
                Ok(pair) => setup.rings[kind as usize] = Some(pair),
                Err(error) => {
                    tracing::error!(
                        event = "ring_refused",
                        %error,
                        ?kind,
                        "cannot replace an AF_XDP ring, so its mmap fails"
                    );
                    next_libc::fail(error.raw_os_error().unwrap_or(libc::ENOMEM));
                    return Some(libc::MAP_FAILED);
                }
            }
        }
        let pair = setup.rings[kind as usize].as_ref()?;
        // SAFETY: the caller's promise.
        Some(unsafe { pair.map(at, len, prot, flags) })
    }

    fn create_pair(&self, kind: RingKind, entries: u32) -> io::Result<RingPair> {
        let fd = self.borrow_fd();
        let all = offsets(fd)?;
        match kind {
            RingKind::Fill => RingPair::new::<u64>(fd, kind, all.fill, entries),
            RingKind::Completion => RingPair::new::<u64>(fd, kind, all.completion, entries),
            RingKind::Receive => RingPair::new::<Descriptor>(fd, kind, all.receive, entries),
            RingKind::Transmit => RingPair::new::<Descriptor>(fd, kind, all.transmit, entries),
        }
    }

    /// Returns whether the socket has a ring that this library did not map, through which packets would
    /// bypass it.
    pub(crate) fn has_foreign_ring(&self) -> bool {
        let setup = lock(&self.setup);
        let unmapped = |(&entries, pair): (&u32, &Option<RingPair>)| entries > 0 && pair.is_none();
        setup.foreign_ring || setup.entries.iter().zip(&setup.rings).any(unmapped)
    }

    /// Starts to move the rings of a socket that the kernel has bound. `peer` is the socket whose UMEM
    /// it shares.
    ///
    /// # Errors
    /// Reason why the rings cannot be moved. Then none moves, and the application's `bind` must fail.
    pub(crate) fn bound(
        &'static self,
        address: &libc::sockaddr_xdp,
        peer: Option<&'static Self>,
    ) -> Result<(), Error> {
        let shared = peer.map(|p| (lock(&p.setup).memory.clone(), p.queue()));
        let mut setup = lock(&self.setup);
        if let Some((memory, _)) = &shared {
            setup.memory.clone_from(memory);
        }
        let place = (address.sxdp_ifindex, address.sxdp_queue_id);
        setup.place = Some(place);
        let memory = setup.memory.clone().ok_or(Error::Config {
            what: "the socket whose UMEM is shared",
            value: address.sxdp_shared_umem_fd.into(),
            rule: "its descriptor must be one of this process's AF_XDP sockets",
        })?;
        let not_started = || Err("the library has not started".to_owned());
        let reader = mediation::current().map_or_else(not_started, |m| m.umem_reader(place.0));
        memory.umem.decide_access(reader).map_err(|AccessConflict| Error::Config {
            what: "the interface of a socket whose UMEM a tenant's P4 VM reads",
            value: place.0.into(),
            rule: "it must be a [[port]] of the same tenant with zero_copy = \"auto\"; otherwise set \"off\" \
                   for all ports of this program, or give their sockets a UMEM of their own",
        })?;
        let uses_need_wakeup = address.sxdp_flags & libc::XDP_USE_NEED_WAKEUP != 0 || shared.is_some();
        self.own_queue.never_calls.store(false, Relaxed);
        let queue = match (setup.pair(RingKind::Fill), setup.pair(RingKind::Completion), shared) {
            (None, None, Some((_, Some(queue)))) => queue,
            (fill, completion, _) => {
                self.create_pumps(fill, completion, &memory)?;
                &self.own_queue
            }
        };
        self.join(queue, &mut setup, &memory)?;
        // Copy mode needs a call for each send, so an application that checks the flag must find it set.
        queue.transmit.wait(|t| t.as_ref().inspect(|t| t.set_need_wakeup(true)).is_some());
        if uses_need_wakeup {
            queue.receive.wait(|r| r.as_ref().inspect(|r| r.set_need_wakeup(true)).is_some());
        } else {
            // Without the flag an application in zero-copy mode need not make any call.
            queue.never_calls.store(zero_copy(self.borrow_fd()).unwrap_or(true), Relaxed);
        }
        self.bound.store(std::ptr::from_ref(queue).cast_mut(), Release);
        drain_signal::notify();
        Ok(())
    }

    fn create_pumps(
        &self,
        fill: Option<&RingPair>,
        completion: Option<&RingPair>,
        memory: &ApplicationMemory,
    ) -> Result<(), Error> {
        if let Some(p) = fill {
            let pump = ReceivePump::new(Arc::clone(&memory.frames), p.kernel_bound()?)?;
            self.own_queue.receive.wait(|r| *r = Some(pump));
        }
        if let Some(p) = completion {
            let pump = TransmitPump::new(Arc::clone(&memory.frames), p.application_bound()?)?;
            self.own_queue.transmit.wait(|t| *t = Some(pump));
        }
        Ok(())
    }

    /// Adds the socket to the pumps of a queue.
    fn join(
        &self,
        queue: &XskQueue,
        setup: &mut SocketSetup,
        memory: &Arc<ApplicationMemory>,
    ) -> Result<(), Error> {
        let place = setup.place.unwrap_or_default();
        let mediation = mediation::current();
        let verdicts = |facing| mediation.map_or(Verdicts::PassAll, |m| m.verdicts(facing, place, memory));
        if let Some(mediation) = mediation.filter(|_| !setup.counted) {
            mediation.socket_opened(place.0);
            setup.counted = true;
        }
        if let Some(p) = setup.pair(RingKind::Receive) {
            let rings = p.application_bound()?;
            let verdicts = verdicts(QueueSide::Receive);
            queue.receive.wait(|r| r.as_mut().map_or(Ok(()), |r| r.add(self.number, rings, verdicts)))?;
        }
        if let Some(p) = setup.pair(RingKind::Transmit) {
            let rings = p.kernel_bound()?;
            let verdicts = verdicts(QueueSide::Transmit);
            queue.transmit.wait(|t| {
                if let Some(t) = t {
                    t.add(self.number, rings, verdicts);
                }
            });
        }
        Ok(())
    }

    /// Records that a thread sleeps in `poll` for the socket, and clears the need_wakeup flag of the
    /// fill ring, which would end every such sleep.
    pub(crate) fn note_poll_sleep(&self, queue: &XskQueue) {
        self.sleeps_in_poll.store(true, Relaxed);
        queue.receive.wait(|r| r.as_ref().inspect(|r| r.set_need_wakeup(false)).is_some());
    }

    /// Handles the close of one descriptor. The last one releases the rings before the kernel closes the
    /// socket.
    pub(crate) fn descriptor_closing(&self, fd: RawFd) {
        if self.descriptors.load(Acquire) == 1 {
            self.release();
        }
        let left = self.descriptors.fetch_sub(1, Release) > 1;
        // This library's own calls need a descriptor that stays open.
        if let Some(other) = (left && self.fd.load(Relaxed) == fd).then(|| SOCKETS.find(self)).flatten() {
            self.fd.store(other, Relaxed);
        }
    }

    fn release(&self) {
        let mut setup = lock(&self.setup);
        if let Some(queue) = self.queue() {
            setup.report();
            self.bound.store(std::ptr::null_mut(), Release);
            // Dropped outside the hand-over, since dropping a lane takes the session's lock.
            let pump = queue.receive.wait(|r| {
                let last = r.as_mut().is_some_and(|r| r.remove(self.number));
                if last { r.take() } else { None }
            });
            drop(pump);
            let pump = queue.transmit.wait(|t| {
                let last = t.as_mut().is_some_and(|t| t.remove(self.number));
                if last { t.take() } else { None }
            });
            drop(pump);
        }
        let counted = setup.place.filter(|_| setup.counted);
        *setup = SocketSetup::default();
        drop(setup);
        if let (Some((interface, _)), Some(mediation)) = (counted, mediation::current()) {
            mediation.socket_closed(interface);
        }
    }
}

impl SocketSetup {
    const fn pair(&self, kind: RingKind) -> Option<&RingPair> {
        self.rings[kind as usize].as_ref()
    }

    /// Logs the frame owners of a socket that is about to be closed.
    fn report(&self) {
        let Some(memory) = &self.memory else { return };
        let frames = &memory.frames;
        let owners = frames.ledger.owner_counts(&frames.registry.view());
        let (interface, queue) = self.place.unwrap_or_default();
        let (frames, refused) = (owners.to_string(), frames.faults.to_string());
        tracing::info!(
            event = "socket_closed",
            interface,
            queue,
            frames,
            refused,
            "an AF_XDP socket is being closed"
        );
    }
}
