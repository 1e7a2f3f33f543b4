//! AF_XDP sockets on the kernel's own interface: UMEM, rings, sockets, and a pool with the owner of each
//! frame.
//!
//! The code is our own and not libxdp or a wrapper of it, for three reasons. Every frame must have
//! exactly one owner, which the type system and a ledger know: a frame that is completed twice breaks
//! TransP4's TCP and aborts Open vSwitch. Sockets of interfaces that come and go must share one UMEM
//! while a process lives. And the `xsk` attachment (`p4shield-xsk-relay`) needs the same rings from the
//! other side, over memory that is not the kernel's.
//!
//! - [`memory`]: mapped memory. [`ring`]: the four rings, over any memory and any offsets.
//! - [`umem`]: the UMEM, which sockets of several interfaces and queues share.
//! - [`pool`]: the owner of each frame; a [`Frame`] is the affine handle of a frame that this process
//!   owns.
//! - [`socket`]: creates and binds (zero-copy, otherwise copy). [`port`]: moves frames through a bound
//!   socket.
//!
//! Threads: a [`Socket`] may be created on one thread and used on another. A [`FramePool`] and its
//! frames stay on the thread that moves packets, so that moving a frame takes no atomic operation but
//! those of the rings.
//!
//! [`ethtool`] switches off what a card does to packets that AF_XDP hands over without.
//! [`promiscuous`]: a card passes on frames for any address.
//!
//! `unsafe` is in `memory` (mappings), `pool` (the bytes of a frame), `ethtool` and `sys` (system calls).

mod error;
pub mod ethtool;
pub mod memory;
pub mod pool;
pub mod port;
pub mod promiscuous;
pub mod ring;
pub mod socket;
mod sys;
pub mod umem;

pub use error::{Error, Result};
pub use memory::MmapRegion;
pub use pool::{Frame, FrameCounts, FramePool, SocketId};
pub use port::Port;
pub use promiscuous::Promiscuous;
pub use ring::{Consumer, Descriptor, Producer, RingOffsets};
pub use socket::{Mode, Offsets, Socket, SocketConfig, Statistics, offsets, zero_copy};
pub use umem::{Umem, UmemConfig};
