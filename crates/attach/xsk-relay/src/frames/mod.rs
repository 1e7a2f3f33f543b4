//! Who owns which frame of an application's packet memory, while we stand between the application and the kernel.
//!
//! Every frame has exactly one [`Owner`] at any time:
//!
//! ```text
//!                 fill ring          kernel took it        kernel announced a packet
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
//! The [`Ledger`] has one word for each frame, and each arrow is one of its methods, which changes the word or refuses:
//! an application that gives a frame which it does not have, a kernel that announces or completes one that it does not
//! have, and a frame that would come out of the P4 VM twice, are refused and counted, and the frame stays where it is.
//! That is what keeps a frame from being completed twice, on which a switch aborts.
//!
//! Two arrows are moved by the reader of a ring and not by us: the kernel takes a frame from the fill ring, and the
//! application takes one from the receive or completion ring. For these the word keeps the ring and the position, and
//! a [`Track`] of the ring tells whether the reader has got past it. So no frame is looked at when it is taken. An
//! application may give a frame away again that it has read in a ring and not got past yet: it reads a batch, sends each packet
//! on, and then moves its index once.
//!
//! Nothing here makes a system call, touches packet memory or trusts an address that it was given.
#![forbid(unsafe_code)]

mod ledger;
mod shape;
mod state;
mod track;

pub use ledger::{Census, Fault, Ledger};
pub use shape::{Place, Shape, ShapeError};
pub use state::Owner;
pub use track::{Seat, Seats, Track, View};
