//! The part of the `xsk` attachment that stands between the rings of an AF_XDP application and those of
//! the kernel.
//!
//! - [`frames`]: the owner of each of the application's UMEM frames.
//! - [`relay`]: moves descriptors between the rings and requests a verdict for each packet on the way.
//! - [`handover`]: lets one of several threads at a time move a ring, without any thread waiting for another.
//! - [`sleep`]: the protocol by which these threads sleep without losing a wake-up.
//!
//! This is a crate of its own, and not a module of `p4shield-attach-xsk`, because loom checks it: under
//! `--cfg loom` atomics exist only inside a model, and that library keeps its state in `static`s. Its
//! tests must not link the library's replacements for `mmap`, `poll` and other functions of libc either.
//!
//! `unsafe` is in [`handover`] alone.

pub mod frames;
pub mod handover;
pub mod relay;
pub mod sleep;
mod sync;
