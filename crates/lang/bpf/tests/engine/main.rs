//! The engine and the verifier, on programs and objects.

mod allocation;
mod common;
mod conformance;
mod differential;
mod helper_charges;
mod instructions;
mod objects;
mod program;
mod structure;
mod verify_cache;
mod verify_programs;
mod verify_structure;
