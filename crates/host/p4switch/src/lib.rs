//! The process of a P4 switch: `p4shield switch run`, and the socket that the other commands use.
//!
//! ```text
//!   p4shield switch table add ──socket──► desk ──order──► mailbox ──► packet thread: Switch::round, orders
//!                                        (encodes entries)  bell ──►  (wakes it while no packet comes)
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`api`] | requests and answers, and the client |
//! | `desk` | answers requests: status, and what maps and groups have |
//! | `write` | what the desk changes: finds tables by name, encodes entries, and undoes if one fails |
//! | `cells` | the writes of registers, counters and meters among them |
//! | `change` | the changes that an order consists of, and their reverse |
//! | `ports` | the ports by number |
//! | `plug` | adds and deletes ports |
//! | `keeper` | watches the interfaces: opens a port anew whose interface is back; samples its counts |
//! | `reader` | reads maps of the program |
//! | `counters` | programs that each packet thread can have for itself, since packets only count |
//! | `spread` | gives each packet thread the program for itself, and takes it back |
//! | `rates` | packets of ports per second |
//! | `load` | replaces the program |
//! | `metrics` | the status for Prometheus |
//! | `names` | the names that a shell completes |
//! | `functions` | keeps the compartment with the program's functions, for placement `extern` |
//! | `apart` | that compartment, and the way to its keeper |
//! | `hold` | keeps threads from receiving while their program or its functions change |
//! | `digest` | digests that the program sent |
//! | `controller` | packets to and from the controller |
//! | `record` | records packets for a client, and shows what the program did with each (`recorded`) |
//! | `recorder` | the packet thread's part of it |
//! | `batches` | notes batches of all threads for a client, each with its times |
//! | `noting` | the packet thread's switch, with its notes, and the log that a client leaves it |
//! | `program` | a program: its code for the packet thread, its names for the desk |
//! | `order` | orders from the desk to the packet thread, which executes them between two rounds |
//! | `run` | the first packet thread, and what is set up for all |
//! | `surroundings` | where the switch runs: who opens its interfaces, and what its threads may do |
//! | `outside` | placement `pipeline`: the process that opens ports and admits clients |
//! | `permit` | what an operator permits such a switch: further interfaces |
//! | `inside` | the compartment, in which the switch is |
//! | `machine` | placement `pipeline` in a virtual machine: the process that starts it |
//! | `vhost` | ports of that machine that are connections to a vhost-user switch |
//! | `vhost_messages` | passes the messages of such a connection on |
//! | `relay` | passes the bytes of clients on to that machine |
//! | `guest` | the switch in that machine |
//! | `opener` | what the compartment asks the process outside for |
//! | `line` | the messages between them |
//! | `crew` | the round of each packet thread, and those beside the first |
//!
//! A packet thread never waits for a client: it takes a bounded number of orders between two rounds, and
//! each order takes a bounded time. Orders to the first thread change what the threads share, and orders to
//! all what each has for itself: its part of a port, and its program if packets only count.

#![forbid(unsafe_code)]

mod apart;
pub mod api;
mod batches;
mod cells;
mod change;
mod controller;
mod counters;
mod crew;
mod desk;
mod digest;
mod functions;
mod guest;
mod hold;
mod inside;
mod keeper;
mod line;
mod load;
mod machine;
mod metrics;
mod names;
mod noting;
mod opener;
mod order;
mod outside;
mod permit;
mod plug;
mod ports;
mod program;
mod rates;
mod reader;
mod record;
mod recorded;
mod recorder;
mod relay;
mod run;
mod spread;
mod surroundings;
mod vhost;
mod vhost_messages;
mod write;

pub use apart::{Apart, FunctionsConfig, FunctionsMachine};
pub use guest::{Guest, run_in_guest};
pub use inside::{InsideError, InsideOptions, serve};
pub use line::{Setup, fuzz_line};
pub use machine::{Machine, run_in_machine};
pub use outside::{Launch, run_in_compartment};
pub use p4shield_io::ports::CONTROLLER;
pub use program::{Again, Loaded, Loader, Traced, Unloadable};
pub use run::{Config, EntriesFile, SwitchError, run};
pub use surroundings::Placement;
pub use vhost::VhostError;
