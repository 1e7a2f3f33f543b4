//! Placement `inline`: `libp4shield_inline.so`, which runs tenants' programs inside a switch's process.
//!
//! It isolates no tenant, so it is a baseline for measurements and for hosts where all parties
//! trust each other. The verifier, the compiler and the programs live here and not in the libraries
//! that are preloaded into switches. The preloaded library opens this one when the daemon's
//! configuration has `placement = "inline"` (`p4shield_attach::inline`), and calls it through the C
//! interface of [`p4shield_abi::inline`].
//!
//! [`p4shield_runtime::inline`] does the work; [`table`] exports it.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod table;
