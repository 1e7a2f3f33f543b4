//! The commands of a user VM, `p4shield agent` and `p4shield audit`, and what they share with commands of
//! workstation and host: files of programs, bundles and keys that a user names.
//!
//! The product's binary has these commands among its others. The binary of this crate has only them: one
//! static file, for user VMs whose distribution is another one than the packages'.

#![forbid(unsafe_code)]

pub mod agent;
pub mod audit;
mod bundled;
pub mod bundles;
mod identity;
pub mod keygen;
pub mod objects;
