//! AF_XDP sockets on the kernel's own interface: packet memory, rings, sockets.
//!
//! Why our own code and not libxdp or a wrapper of it: every frame must have exactly one owner that the type
//! system and a ledger can name (a frame that is completed twice is what breaks TransP4's TCP and aborts OVS),
//! sockets of interfaces that come and go must share one packet memory for as long as a process lives, and the
//! `xsk` attachment (`p4shield-xsk-relay`) needs the same rings from the other side, over memory that is not the kernel's.
//!
//! - [`memory`]: mapped memory. - [`ring`]: the four rings, over any memory and any offsets.
//! - [`umem`]: packet memory, shared by sockets of several interfaces and queues.
//! - [`pool`]: who owns which frame; [`Frame`] is the affine handle of a frame that we own.
//! - [`socket`]: create and bind (zero-copy, else copy). - [`port`]: moving frames through a bound socket.
//!
//! Threads: a [`Socket`] may be made on one thread and used on another; a [`FramePool`] with its frames stays on
//! the thread that moves packets, so that moving one takes no atomic operation but the rings' own.

mod error;
pub mod memory;
pub mod pool;
pub mod port;
pub mod ring;
pub mod socket;
mod sys;
pub mod umem;

pub use error::{Error, Result};
pub use memory::Mapping;
pub use pool::{Census, Frame, FramePool, PortId};
pub use port::Port;
pub use ring::{Consumer, Descriptor, Producer, RingOffsets};
pub use socket::{Mode, Offsets, Socket, SocketConfig, Statistics, offsets, zero_copy};
pub use umem::{Umem, UmemConfig};
