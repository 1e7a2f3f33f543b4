//! The linear model of what a batch of packets costs a switch, as in "TEE Time at P4" (NetSoft 2025).
//!
//! A batch of `n` packets is received, processed and sent. Each of the three steps takes `t(n) = a + n b`:
//! what a batch costs, and what each of its packets costs. From them follow the time of a full batch, the
//! share of input and output in it, and the most packets a second, at which every batch is full.
//!
//! | module | contents |
//! |---|---|
//! | `line` | a line through measured times: least squares, with confidence intervals |
//! | `model` | the lines of the three steps, and what follows from them |
//! | `published` | the paper's table |
//!
//! Times are in microseconds, rates in million packets a second.

#![forbid(unsafe_code)]

mod line;
mod model;
mod published;

pub use line::{Estimate, FitError, Line, Samples};
pub use model::{BATCH, Batch, Costs, Model};
pub use published::{PUBLISHED, Published};
