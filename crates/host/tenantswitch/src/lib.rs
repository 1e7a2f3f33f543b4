//! Makes a plan of tenant switches real.
//!
//! | question | module |
//! |---|---|
//! | the way from what is there to what the plan says | `apply` |
//! | a switch compartment, from the host's side | `compartment` |
//! | which processes compartments have | `processes` |
//! | the host's interfaces that are ports at the baseline | `host_ports` |
//! | the NIC switch | `nic` |
//! | the host's huge pages | `huge_pages` |
//! | its limit of the packets that ports hold | `room` |
//! | the interfaces that connect compartments with it | `pairs` |
//! | what was applied before | `state` |
//! | how the switches are | `status`, `usage` |
//! | a thread that starts switches again which have ended | `keeper` |
//! | a compartment's first process | `inside` |
//! | what the host asks of it | `order`, and `obeying` executes it |
//! | an operator's command in a compartment | `errand` |
//!
//! Nothing is remembered that the kernel knows: a compartment is the processes of its user, which no other
//! process has, and interfaces have the plan's names. So an apply that was killed anywhere is completed by
//! the next one.

#![forbid(unsafe_code)]

mod apply;
mod compartment;
mod end_points;
mod errand;
mod error;
mod host_ports;
mod huge_pages;
mod inside;
mod keeper;
mod nic;
mod obeying;
mod order;
mod pairs;
mod processes;
mod read_line;
mod room;
mod state;
mod status;
mod tls;
mod usage;

pub use apply::{Applied, Host};
pub use end_points::EndPointStatus;
pub use errand::{ErrandError, MachineCommandError, run_in_machine};
pub use error::TopologyError;
pub use inside::{
    CommandError, Errand, GuestLine, InsideError, Limits, Machine, MachinePort, MachineSetup, Options, Paths,
    join_cgroup, open_port, prepare_network, run, run_command, use_core,
};
pub use keeper::{Keeper, Kept};
pub use obeying::{ANNOUNCEMENTS, Obeying, obey};
pub use order::{Controllers, PortSettings, Ran, Run, Settings, Tls};
pub use status::{FunctionStatus, PortStatus, Status, SwitchStatus};
