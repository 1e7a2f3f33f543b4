//! Checks of the source tree that neither rustc nor clippy makes.
//!
//! `cargo test -p p4shield-lint` runs them, and `make lint` calls that. Each check is a function of the tree that
//! returns findings, one line each; an empty list passes.
//!
//! | module | rule |
//! |---|---|
//! | [`circles`] | the files of a crate import each other in one direction |

#![forbid(unsafe_code)]

pub mod circles;
pub mod tree;
