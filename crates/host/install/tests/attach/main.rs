//! Tests of attaching and detaching in a folder in place of `/`, with the distribution's unit and programs.

#![allow(clippy::print_stdout, reason = "skipped tests print a line")]

mod host;
mod programs;
mod service;
