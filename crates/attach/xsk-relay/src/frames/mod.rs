//! The owner of each UMEM frame while this library stands between the application and the kernel.
//!
//! Every frame has exactly one [`FrameOwner`] at any time:
//!
//! ```text
//!                 fill ring          kernel took it        kernel received a packet
//!   application ────────────► fill ────────────► kernel receive ─────────────► P4 VM
//!     ▲  ▲  │                   ▲                                             │    │
//!     │  │  │                   └────────────────── drop ─────────────────────┘    │ pass
//!     │  │  │                                                                      ▼
//!     │  └──┼──────────────────────── application took it ─────────────────── receive ring
//!     │     │ transmit ring              pass                  kernel completed it
//!     │     └──────────────► P4 VM ────────────► kernel transmit ─────────────► completion
//!     │                        └────────────────────── drop ────────────────────► │
//!     └────────────────────────────── application took it ────────────────────────┘
//! ```
//!
//! The [`Ledger`] has one `u64` for each frame, and each arrow is one of its methods, which changes the
//! record or refuses. It refuses an application that uses a frame it does not own, a kernel that
//! receives into or completes a frame it does not own, and a second verdict for one packet. A refused
//! transition is counted and leaves the frame with its owner. So no frame is completed twice, on which
//! Open vSwitch aborts.
//!
//! The reader of a ring makes two of these transitions by itself: the kernel takes a frame from the fill
//! ring, and the application takes one from the receive or completion ring. For these the record keeps
//! the ring and the position, and the [`RingHistory`] of the ring compares the position with the
//! reader's index. An application may reuse a frame from an entry that it has read before it advances
//! the consumer index: it reads a batch, sends each packet on, and then moves its index once.
//!
//! This module makes no system call, touches no UMEM and trusts no address. The next step of a packet is
//! [`crate::relay`].
#![forbid(unsafe_code)]

mod geometry;
mod ledger;
mod record;
mod rings;

pub use geometry::{FrameAddress, UmemGeometry, UmemGeometryError};
pub(crate) use ledger::write_counts;
pub use ledger::{FrameFault, Ledger, OwnerCounts};
pub use record::FrameOwner;
pub use rings::{RingHistory, RingId, RingRegistry, RingView};
