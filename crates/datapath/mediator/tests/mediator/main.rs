//! The mediator, between a switch and P4 VMs that the tests play.

mod admission;
mod common;
mod end_to_end;
mod inherit;
mod inline;
mod model;
mod policy;
mod processes;
mod rewrites;
mod skipped;
mod wakeups;
