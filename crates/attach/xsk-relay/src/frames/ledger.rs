//! The owners of all frames, and the ways between them.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::shape::{Place, Shape};
use super::state::{Kind, Owner, State};
use super::track::{Seat, Track, View};
use crate::sync::AtomicU64;

/// A step that was refused; the frame stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The application named bytes that are no frame of its memory.
    #[error("the application named address {0:#x}, which is in no frame")]
    ApplicationAddress(u64),
    /// The application gave a frame that it does not have.
    #[error("the application gave frame {cell}, which is with {owner:?}")]
    NotApplications {
        /// Which frame.
        cell: u32,
        /// Who has it.
        owner: Owner,
    },
    /// The kernel named bytes that are no frame of the memory.
    #[error("the kernel named address {0:#x}, which is in no frame")]
    KernelAddress(u64),
    /// The kernel announced or completed a frame that it does not have, or of another queue.
    #[error("the kernel gave frame {cell}, which is with {owner:?}")]
    NotKernels {
        /// Which frame.
        cell: u32,
        /// Who has it.
        owner: Owner,
    },
    /// A packet came back from its judge whose frame the judge did not have.
    #[error("a verdict came for frame {cell}, which is with {owner:?}")]
    NotJudged {
        /// Which frame.
        cell: u32,
        /// Who has it.
        owner: Owner,
    },
}

/// How many frames each owner has; the sum is all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// [`Owner::Application`].
    pub application: u32,
    /// [`Owner::Fill`].
    pub fill: u32,
    /// [`Owner::KernelReceive`].
    pub kernel_receive: u32,
    /// [`Owner::P4Vm`].
    pub p4vm: u32,
    /// [`Owner::ReceiveRing`].
    pub receive_ring: u32,
    /// [`Owner::KernelTransmit`].
    pub kernel_transmit: u32,
    /// [`Owner::Completion`].
    pub completion: u32,
}

impl Census {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.application
            + self.fill
            + self.kernel_receive
            + self.p4vm
            + self.receive_ring
            + self.kernel_transmit
            + self.completion
    }
}

/// The owners of the frames of one packet memory; see [the module](super).
///
/// Threads: what a method takes from the application may be raced for by several (each ring is moved by a thread of its
/// own), of which one gets it. What is taken from the kernel or from a judge is with one ring, hence with one thread.
#[derive(Debug)]
pub struct Ledger {
    shape: Shape,
    words: Box<[AtomicU64]>,
}

impl Ledger {
    /// All frames with the application.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let words = (0..shape.cells()).map(|_| AtomicU64::new(State::APPLICATION.pack())).collect();
        Self { shape, words }
    }

    /// The memory's shape.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Application → fill ring `seat`. Returns the frame's number.
    ///
    /// # Errors
    /// [`Fault::ApplicationAddress`], [`Fault::NotApplications`].
    pub fn fill(&self, address: u64, seat: Seat, track: &Track, view: &View) -> Result<u32, Fault> {
        let place = self.shape.locate(address).ok_or(Fault::ApplicationAddress(address))?;
        let word = self.claimable(place.cell, view)?;
        // The position is known only once the frame is ours to put: claim it first as what it is about to be.
        let state = State { kind: Kind::Fill, seat, start: place.start, value: 0 };
        self.claim(place.cell, word, state, view)?;
        let value = track.put(place.cell);
        self.set(place.cell, State { value, ..state });
        Ok(place.cell)
    }

    /// Kernel receive → P4 VM: the kernel announced a packet in a frame that it took from fill ring `seat`.
    ///
    /// # Errors
    /// [`Fault::KernelAddress`], [`Fault::NotKernels`].
    pub fn received(&self, address: u64, len: u32, seat: Seat) -> Result<u32, Fault> {
        let place = self.shape.locate(address).ok_or(Fault::KernelAddress(address))?;
        let state = self.get(place.cell);
        if state.kind != Kind::Fill || state.seat != seat {
            return Err(Fault::NotKernels { cell: place.cell, owner: self.plain_owner(state) });
        }
        if self.shape.bytes(address, len).is_none() {
            return Err(Fault::KernelAddress(address));
        }
        self.set(place.cell, State { kind: Kind::P4Receive, ..state });
        Ok(place.cell)
    }

    /// P4 VM → the application's receive ring `seat`: the packet passed.
    ///
    /// # Errors
    /// [`Fault::NotJudged`].
    pub fn announce(&self, cell: u32, seat: Seat, track: &Track) -> Result<(), Fault> {
        let state = self.judged(cell, Kind::P4Receive)?;
        let value = track.put(cell);
        self.set(cell, State { kind: Kind::ReceiveRing, seat, value, ..state });
        Ok(())
    }

    /// P4 VM → fill ring: the received packet was dropped. Returns the address for the fill ring.
    ///
    /// # Errors
    /// [`Fault::NotJudged`].
    pub fn refill(&self, cell: u32, track: &Track) -> Result<u64, Fault> {
        let state = self.judged(cell, Kind::P4Receive)?;
        let value = track.put(cell);
        self.set(cell, State { kind: Kind::Fill, value, ..state });
        Ok(self.shape.base(Place { cell, start: state.start, offset: 0 }))
    }

    /// Application → P4 VM: the application sends a packet by the queue whose completion ring is `seat`.
    ///
    /// # Errors
    /// [`Fault::ApplicationAddress`], [`Fault::NotApplications`].
    pub fn sent(&self, address: u64, len: u32, seat: Seat, view: &View) -> Result<u32, Fault> {
        let place = self.shape.locate(address).ok_or(Fault::ApplicationAddress(address))?;
        if self.shape.bytes(address, len).is_none() {
            return Err(Fault::ApplicationAddress(address));
        }
        let word = self.claimable(place.cell, view)?;
        let state =
            State { kind: Kind::P4Transmit, seat, start: place.start, value: u32::from(place.offset) };
        self.claim(place.cell, word, state, view)?;
        Ok(place.cell)
    }

    /// P4 VM → kernel transmit: the packet passed.
    ///
    /// # Errors
    /// [`Fault::NotJudged`].
    pub fn transmit(&self, cell: u32) -> Result<(), Fault> {
        let state = self.judged(cell, Kind::P4Transmit)?;
        self.set(cell, State { kind: Kind::KernelTransmit, ..state });
        Ok(())
    }

    /// Kernel transmit → completion ring `seat`. Returns the address that the application sent.
    ///
    /// # Errors
    /// [`Fault::KernelAddress`], [`Fault::NotKernels`].
    pub fn completed(&self, address: u64, seat: Seat, track: &Track) -> Result<u64, Fault> {
        let place = self.shape.locate(address).ok_or(Fault::KernelAddress(address))?;
        let state = self.get(place.cell);
        if state.kind != Kind::KernelTransmit || state.seat != seat {
            return Err(Fault::NotKernels { cell: place.cell, owner: self.plain_owner(state) });
        }
        Ok(self.complete(place.cell, state, track))
    }

    /// P4 VM → completion ring: the packet to be sent was dropped. Returns the address that the application sent.
    ///
    /// # Errors
    /// [`Fault::NotJudged`].
    pub fn finish(&self, cell: u32, track: &Track) -> Result<u64, Fault> {
        let state = self.judged(cell, Kind::P4Transmit)?;
        Ok(self.complete(cell, state, track))
    }

    /// Tells a completion ring's track of an entry for a packet that was refused: its frame stays where it is.
    pub fn complete_refused(track: &Track) {
        track.skip();
    }

    /// Takes everything back for the application that is at a ring whose socket is closed: the kernel writes to none
    /// of it any more. Returns how many frames that were.
    pub fn abandon(&self, seat: Seat) -> u32 {
        let mut taken = 0;
        for word in &self.words {
            let now = word.load(Acquire);
            let state = State::unpack(now);
            if state.kind != Kind::Application && state.seat == seat {
                let _ = word.compare_exchange(now, State::APPLICATION.pack(), AcqRel, Relaxed);
                taken += 1;
            }
        }
        taken
    }

    /// Who has a frame.
    ///
    /// # Panics
    /// If there is no such frame.
    #[must_use]
    pub fn owner(&self, cell: u32, view: &View) -> Owner {
        let state = self.get(cell);
        let stands = || view.holds(state.seat, state.value, cell);
        match state.kind {
            Kind::Fill if !stands() => Owner::KernelReceive,
            Kind::ReceiveRing | Kind::Completion if !stands() => Owner::Application,
            _ => self.plain_owner(state),
        }
    }

    /// How many frames each owner has, counted afresh over all of them.
    #[must_use]
    pub fn census(&self, view: &View) -> Census {
        let mut census = Census::default();
        for cell in 0..self.shape.cells() {
            *match self.owner(cell, view) {
                Owner::Application => &mut census.application,
                Owner::Fill => &mut census.fill,
                Owner::KernelReceive => &mut census.kernel_receive,
                Owner::P4Vm => &mut census.p4vm,
                Owner::ReceiveRing => &mut census.receive_ring,
                Owner::KernelTransmit => &mut census.kernel_transmit,
                Owner::Completion => &mut census.completion,
            } += 1;
        }
        census
    }

    fn complete(&self, cell: u32, state: State, track: &Track) -> u64 {
        let address = self.shape.address(state.place(cell));
        let value = track.put(cell);
        self.set(cell, State { kind: Kind::Completion, value, ..state });
        address
    }

    /// The word of a frame that the application has, or that stands in a ring for it: it may use what it sees there before
    /// it moves its index, as the kernel lets it, and many do so batch by batch.
    fn claimable(&self, cell: u32, view: &View) -> Result<u64, Fault> {
        let word = self.words[cell as usize].load(Acquire);
        let state = State::unpack(word);
        let theirs = match state.kind {
            Kind::Application | Kind::ReceiveRing | Kind::Completion => true,
            Kind::Fill | Kind::P4Receive | Kind::P4Transmit | Kind::KernelTransmit => false,
        };
        if theirs { Ok(word) } else { Err(Fault::NotApplications { cell, owner: self.owner(cell, view) }) }
    }

    /// Moves a frame that was the application's, unless another thread was first.
    fn claim(&self, cell: u32, word: u64, to: State, view: &View) -> Result<(), Fault> {
        let claimed = self.words[cell as usize].compare_exchange(word, to.pack(), AcqRel, Relaxed);
        claimed.map(drop).map_err(|_| Fault::NotApplications { cell, owner: self.owner(cell, view) })
    }

    /// The state of a frame that a judge has.
    fn judged(&self, cell: u32, kind: Kind) -> Result<State, Fault> {
        let state = self.get(cell);
        if state.kind == kind {
            Ok(state)
        } else {
            Err(Fault::NotJudged { cell, owner: self.plain_owner(state) })
        }
    }

    fn get(&self, cell: u32) -> State {
        State::unpack(self.words[cell as usize].load(Acquire))
    }

    fn set(&self, cell: u32, state: State) {
        self.words[cell as usize].store(state.pack(), Release);
    }

    /// The owner as far as the word tells, without a look at the ring.
    const fn plain_owner(&self, state: State) -> Owner {
        match state.kind {
            Kind::Application => Owner::Application,
            Kind::Fill => Owner::Fill,
            Kind::P4Receive | Kind::P4Transmit => Owner::P4Vm,
            Kind::ReceiveRing => Owner::ReceiveRing,
            Kind::KernelTransmit => Owner::KernelTransmit,
            Kind::Completion => Owner::Completion,
        }
    }
}
