//! The protocol by which threads sleep until rings are to be moved, without losing a wake-up.
//!
//! Threads of the application and the drain thread move the same rings, and each sleeps when it has
//! nothing to do. The protocol contains none of the system calls by which they sleep and wake, so that
//! loom checks the very code that runs (`tests/loom.rs`):
//!
//! * [`QueueSleepers`]: the threads that sleep for a queue, and whether they watch for all held packets.
//! * [`StandbyThread`]: a thread that moves rings when no other thread does.
//! * [`LevelSignal`]: a descriptor that is readable while a condition holds.
#![forbid(unsafe_code)]

mod signal;
mod sleepers;
mod standby;

pub use signal::LevelSignal;
pub use sleepers::{PumpSide, QueueSleepers, WakeState};
pub use standby::{SleepLimit, StandbyThread};
