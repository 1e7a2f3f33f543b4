//! What the tests share.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub(crate) mod daemon;
pub(crate) mod frames;
pub(crate) mod switch;
