//! What operators install: files, packages, and the image of P4 VMs in virtual machines.

#[path = "../common/mod.rs"]
mod common;

mod deb;
mod image;
mod install;
mod switch_unit;
mod uservm;
