//! What is known of an AF_XDP socket: what the application has asked for so far, and which queue it is bound to.

use std::ffi::c_void;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{c_int, off_t, size_t};
use p4shield_afxdp::ring::Entry;
use p4shield_afxdp::{Consumer, Descriptor, Error, Producer, offsets, zero_copy};
use p4shield_attach::Facing;
use p4shield_xsk_relay::frames::UmemGeometry;
use p4shield_xsk_relay::relay::{
    CompletionRings, FillRings, ReceivePump, ReceiveRings, TransmitPump, TransmitRings,
};

use crate::bell::Bell;
use crate::judge::Verdicts;
use crate::library::library;
use crate::packet::Memory;
use crate::queue::Queue;
use crate::rings::{Pair, Which};
use crate::umem::{Taken, Umem};
use crate::{drain, real, table};

/// An AF_XDP socket of the application. Never freed: the place of a closed one is used again.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Tells it from all others of the process.
    pub(crate) number: u32,
    /// A descriptor of it, for calls of our own.
    pub(crate) fd: AtomicI32,
    /// Which socket this place is for, of all that it was for.
    pub(crate) life: AtomicU32,
    /// How many descriptors it has.
    descriptors: AtomicU32,
    setup: Mutex<Setup>,
    /// The queue it owns if it has fill and completion rings.
    own: Queue,
    /// The queue that moves its rings once it is bound.
    bound: AtomicPtr<Queue>,
    /// Packets in the application's receive ring when somebody last looked.
    pub(crate) ready: AtomicU32,
    /// Whether there was room in that ring for more.
    pub(crate) room: AtomicBool,
    /// For an application that waits in an epoll.
    pub(crate) bell: Bell,
    /// Whether the application has slept in `poll` for it: then it needs not be asked for calls.
    pub(crate) sleeps: AtomicBool,
    /// Whether the application wants the kernel to poll the interface in calls for receiving (`SO_BUSY_POLL`).
    pub(crate) busy_polls: AtomicBool,
}

/// What the application asked for.
#[derive(Debug, Default)]
struct Setup {
    memory: Option<Arc<Memory>>,
    /// Entries of the rings that were made, by [`Which`].
    entries: [u32; 4],
    pairs: [Option<Pair>; 4],
    /// Whether a ring was mapped of which nothing is known: another process made it.
    foreign: bool,
    /// Interface and queue.
    place: Option<(u32, u32)>,
    /// Flags of `bind`.
    flags: u16,
    /// Whether the library counts it as a user of its interface.
    counted: bool,
}

static ALL: Mutex<Vec<&'static Socket>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All sockets there are now.
pub(crate) fn all() -> Vec<&'static Socket> {
    lock(&ALL).iter().copied().filter(|s| s.descriptors.load(Acquire) > 0).collect()
}

/// Says of every socket that is open what would be said if it were closed. Waits for nobody: what another thread is at is
/// left out.
pub(crate) fn report_all() {
    let Ok(sockets) = ALL.try_lock().map(|all| all.clone()) else { return };
    for socket in sockets.into_iter().filter(|s| s.queue().is_some()) {
        if let Ok(setup) = socket.setup.try_lock() {
            socket.report(&setup);
        }
    }
}

/// So many packets stand in the ring of the socket of this number, that a thread may be waiting for.
pub(crate) fn ring(number: u32, ready: u32) {
    if let Some(socket) = lock(&ALL).get(number as usize) {
        socket.ready.store(ready, Relaxed);
        socket.bell.tell(&socket.ready);
    }
}

impl Socket {
    /// A new one with one descriptor.
    pub(crate) fn make(fd: RawFd) -> &'static Self {
        let mut all = lock(&ALL);
        let free = all.iter().copied().find(|s| s.descriptors.load(Acquire) == 0);
        let socket = free.unwrap_or_else(|| {
            let socket: &'static Self = Box::leak(Box::new(Self {
                number: all.len() as u32,
                fd: AtomicI32::new(fd),
                life: AtomicU32::new(0),
                descriptors: AtomicU32::new(0),
                setup: Mutex::default(),
                own: Queue::new(),
                bound: AtomicPtr::default(),
                ready: AtomicU32::new(0),
                room: AtomicBool::new(false),
                bell: Bell::new(),
                sleeps: AtomicBool::new(false),
                busy_polls: AtomicBool::new(false),
            }));
            all.push(socket);
            socket
        });
        socket.fd.store(fd, Relaxed);
        socket.sleeps.store(false, Relaxed);
        socket.busy_polls.store(false, Relaxed);
        socket.ready.store(0, Relaxed);
        socket.bell.forget(&socket.ready);
        socket.life.fetch_add(1, Relaxed);
        socket.descriptors.store(1, Release);
        socket
    }

    /// By what a queue knows it.
    pub(crate) fn itself(&self) -> (u32, RawFd) {
        (self.number, self.fd.load(Relaxed))
    }

    /// Looks what there is for the application to take.
    pub(crate) fn see(&self, pump: &mut ReceivePump<Verdicts>) {
        self.ready.store(pump.ready(self.number), Relaxed);
        self.room.store(pump.has_room(self.number), Relaxed);
    }

    /// The queue that moves its rings, if it is bound.
    pub(crate) fn queue(&self) -> Option<&'static Queue> {
        // SAFETY: null, or a queue of a `Socket`, which is never freed.
        unsafe { self.bound.load(Acquire).as_ref() }
    }

    /// It has one descriptor more.
    pub(crate) fn duplicated(&self) {
        self.descriptors.fetch_add(1, Release);
    }

    /// The application made a ring.
    pub(crate) fn ring_made(&self, which: Which, entries: u32) {
        lock(&self.setup).entries[which as usize] = entries;
    }

    /// The application registered packet memory.
    ///
    /// # Safety
    /// The kernel has accepted `base` as memory of this geometry.
    pub(crate) unsafe fn memory_registered(
        &self,
        base: *mut c_void,
        geometry: UmemGeometry,
        umem: Arc<Umem>,
    ) {
        // SAFETY: the caller's promise; the application keeps what it has registered.
        let memory = unsafe { Memory::new(base.cast(), geometry, umem) };
        lock(&self.setup).memory = Some(Arc::new(memory));
    }

    /// The application maps a ring. `None`: the call is none of ours, the kernel will say what it thinks of it.
    ///
    /// # Safety
    /// As for `mmap`.
    pub(crate) unsafe fn map(
        &self,
        (at, len, prot, flags, offset): (*mut c_void, size_t, c_int, c_int, off_t),
    ) -> Option<*mut c_void> {
        let which = Which::of_offset(offset)?;
        let mut setup = lock(&self.setup);
        let entries = setup.entries[which as usize];
        if entries == 0 || setup.place.is_some() {
            setup.foreign |= setup.place.is_none();
            return None;
        }
        if setup.pairs[which as usize].is_none() {
            match self.pair(which, entries) {
                Ok(pair) => setup.pairs[which as usize] = Some(pair),
                Err(error) => {
                    tracing::error!(%error, ?which, "cannot stand between an AF_XDP socket and its ring, so it gets none");
                    real::fail(error.raw_os_error().unwrap_or(libc::ENOMEM));
                    return Some(libc::MAP_FAILED);
                }
            }
        }
        let pair = setup.pairs[which as usize].as_ref()?;
        // SAFETY: the caller's promise.
        Some(unsafe { pair.map(at, len, prot, flags) })
    }

    fn pair(&self, which: Which, entries: u32) -> io::Result<Pair> {
        // SAFETY: the application is in a call with this descriptor, or has it open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd.load(Relaxed)) };
        let all = offsets(fd)?;
        match which {
            Which::Fill => Pair::new::<u64>(fd, which, all.fill, entries),
            Which::Completion => Pair::new::<u64>(fd, which, all.completion, entries),
            Which::Receive => Pair::new::<Descriptor>(fd, which, all.receive, entries),
            Which::Transmit => Pair::new::<Descriptor>(fd, which, all.transmit, entries),
        }
    }

    /// Whether it has a ring that was not mapped through us: the application would talk with the kernel past us.
    pub(crate) fn has_foreign_ring(&self) -> bool {
        let setup = lock(&self.setup);
        let unmapped = |(&entries, pair): (&u32, &Option<Pair>)| entries > 0 && pair.is_none();
        setup.foreign || setup.entries.iter().zip(&setup.pairs).any(unmapped)
    }

    /// The kernel has bound it: its rings are moved from now on. `peer` is the socket whose memory it shares.
    ///
    /// # Errors
    /// Why they cannot be; then nothing moves, and the application is to be told that the call failed.
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
        (setup.place, setup.flags) = (Some(place), address.sxdp_flags);
        let memory = setup.memory.clone().ok_or(Error::Config {
            what: "the socket whose packet memory is shared",
            value: address.sxdp_shared_umem_fd.into(),
            rule: "its descriptor must be one of this process's AF_XDP sockets",
        })?;
        memory.umem.claim(library().map_or_else(|e| Err(e.to_string()), |l| l.owner(place.0))).map_err(|Taken| {
            Error::Config {
                what: "the interface of a socket whose packet memory a tenant's P4 VM reads",
                value: place.0.into(),
                rule: "it must be a [[port]] of the same tenant with zero_copy = \"auto\"; else write \"off\" for all \
                       ports of this program, or give their sockets memory of their own",
            }
        })?;
        let asks = address.sxdp_flags & libc::XDP_USE_NEED_WAKEUP != 0 || shared.is_some();
        self.own.never_calls.store(false, Relaxed);
        let queue = match (setup.pair(Which::Fill), setup.pair(Which::Completion), shared) {
            (None, None, Some((_, Some(queue)))) => queue,
            (fill, completion, _) => {
                self.own_queue(fill, completion, &memory)?;
                &self.own
            }
        };
        self.join(queue, &mut setup, &memory)?;
        if asks {
            self.ask(queue);
        } else {
            // The kernel asks for calls that send in any case: who looks at the flag has to find it here, too.
            queue.transmit.wait(|t| t.as_ref().inspect(|t| t.set_need_wakeup(true)).is_some());
            // SAFETY: the application is in a call with this descriptor.
            let fd = unsafe { BorrowedFd::borrow_raw(self.fd.load(Relaxed)) };
            queue.never_calls.store(zero_copy(fd).unwrap_or(true), Relaxed);
        }
        self.bound.store(std::ptr::from_ref(queue).cast_mut(), Release);
        drain::notify();
        Ok(())
    }

    fn own_queue(
        &self,
        fill: Option<&Pair>,
        completion: Option<&Pair>,
        memory: &Memory,
    ) -> Result<(), Error> {
        if let Some(p) = fill {
            let rings = FillRings { application: p.application_consumer()?, kernel: p.kernel_producer()? };
            let pump = ReceivePump::new(Arc::clone(&memory.frames), rings)?;
            self.own.receive.wait(|r| *r = Some(pump));
        }
        if let Some(p) = completion {
            let rings =
                CompletionRings { application: p.application_producer()?, kernel: p.kernel_consumer()? };
            let pump = TransmitPump::new(Arc::clone(&memory.frames), rings)?;
            self.own.transmit.wait(|t| *t = Some(pump));
        }
        Ok(())
    }

    fn join(&self, queue: &Queue, setup: &mut Setup, memory: &Arc<Memory>) -> Result<(), Error> {
        let place = setup.place.unwrap_or_default();
        let judge = |facing| library().map_or(Verdicts::Nobody, |l| l.judge(facing, place, memory));
        if !setup.counted
            && let Ok(library) = library()
        {
            library.opened(place.0);
            setup.counted = true;
        }
        if let Some(p) = setup.pair(Which::Receive) {
            let rings = ReceiveRings { application: p.application_producer()?, kernel: p.kernel_consumer()? };
            let judge = judge(Facing::Receive);
            queue.receive.wait(|r| r.as_mut().map_or(Ok(()), |r| r.add(self.number, rings, judge)))?;
        }
        if let Some(p) = setup.pair(Which::Transmit) {
            let rings =
                TransmitRings { application: p.application_consumer()?, kernel: p.kernel_producer()? };
            let judge = judge(Facing::Transmit);
            queue.transmit.wait(|t| {
                if let Some(t) = t {
                    t.add(self.number, rings, judge);
                }
            });
        }
        Ok(())
    }

    /// Asks the application to make calls, by the flag that it was told to look at.
    fn ask(&self, queue: &Queue) {
        queue.receive.wait(|r| r.as_ref().inspect(|r| r.set_need_wakeup(true)).is_some());
        queue.transmit.wait(|t| t.as_ref().inspect(|t| t.set_need_wakeup(true)).is_some());
    }

    /// It sleeps in `poll`, and would sleep there each time if our flag had it come.
    pub(crate) fn found_asleep(&self, queue: &Queue) {
        self.sleeps.store(true, Relaxed);
        queue.receive.wait(|r| r.as_ref().inspect(|r| r.set_need_wakeup(false)).is_some());
    }

    /// One descriptor of it is about to be closed. After the last the kernel can have it back: nothing moves any more,
    /// nothing is mapped.
    pub(crate) fn closing(&self, fd: RawFd) {
        if self.descriptors.load(Acquire) == 1 {
            self.release();
        }
        let left = self.descriptors.fetch_sub(1, Release) > 1;
        // Calls of our own are made on one that is left.
        if let Some(other) = (left && self.fd.load(Relaxed) == fd).then(|| table::find(self)).flatten() {
            self.fd.store(other, Relaxed);
        }
    }

    fn release(&self) {
        let mut setup = lock(&self.setup);
        if let Some(queue) = self.queue() {
            self.report(&setup);
            self.bound.store(std::ptr::null_mut(), Release);
            // Dropped outside, since dropping a lane takes the session's lock.
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
        *setup = Setup::default();
        drop(setup);
        if let (Some((interface, _)), Ok(library)) = (counted, library()) {
            library.closed(interface);
        }
    }

    /// What an operator may want to know of a socket that is about to be closed: who had which frames at the end.
    fn report(&self, setup: &Setup) {
        let Some(memory) = &setup.memory else { return };
        let frames = &memory.frames;
        let owner_counts = frames.ledger.owner_counts(&frames.registry.view());
        let (interface, queue) = setup.place.unwrap_or_default();
        tracing::info!(interface, queue, ?owner_counts, faults = ?frames.faults, "an AF_XDP socket is being closed");
    }
}

impl Setup {
    const fn pair(&self, which: Which) -> Option<&Pair> {
        self.pairs[which as usize].as_ref()
    }
}

impl Pair {
    fn application_consumer<T: Entry>(&self) -> Result<Consumer<T>, Error> {
        Consumer::new(Arc::clone(&self.application), self.offsets, self.entries)
    }

    fn application_producer<T: Entry>(&self) -> Result<Producer<T>, Error> {
        Producer::new(Arc::clone(&self.application), self.offsets, self.entries)
    }

    fn kernel_consumer<T: Entry>(&self) -> Result<Consumer<T>, Error> {
        Consumer::new(Arc::clone(&self.kernel), self.offsets, self.entries)
    }

    fn kernel_producer<T: Entry>(&self) -> Result<Producer<T>, Error> {
        Producer::new(Arc::clone(&self.kernel), self.offsets, self.entries)
    }
}
