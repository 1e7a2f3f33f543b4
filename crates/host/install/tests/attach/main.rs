//! Attaching and detaching on a folder in place of `/`, with the distribution's own unit and programs.

#![allow(clippy::print_stdout, reason = "skipped tests say so")]

mod host;
mod programs;
mod service;
