//! Tests of attaching and detaching in a folder in place of `/`, with the distribution's unit and programs.

mod host;
mod programs;
mod service;
