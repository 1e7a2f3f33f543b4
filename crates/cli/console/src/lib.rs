//! What the commands of `p4shield` and `p4shield-dev` share: exit codes, output, signals, and the files that
//! a user names.

#![forbid(unsafe_code)]

pub mod exit;
pub mod input;
pub mod output;
pub mod signals;
pub mod units;

pub use exit::{Exit, Refused};
