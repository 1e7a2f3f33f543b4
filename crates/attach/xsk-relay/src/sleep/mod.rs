//! Sleeping until rings are to be moved, and losing no wake-up over it.
//!
//! Threads of an application and one of ours come for the same rings, and each of them sleeps when it has nothing to do. What
//! they tell each other of it is here, without the system calls by which they sleep and wake, so that loom runs the very code
//! (`tests/loom.rs`):
//!
//! * [`Sleepers`]: who sleeps for a queue, and whether they were told of what judges hold.
//! * [`Standby`]: a thread that comes when nobody else does.
//! * [`Signal`]: a descriptor that is readable while there is something.
#![forbid(unsafe_code)]

mod signal;
mod sleepers;
mod standby;

pub use signal::Signal;
pub use sleepers::{Side, Sleepers, Woken};
pub use standby::{Sleep, Standby};
