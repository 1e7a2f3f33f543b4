//! The compiler: what programs do, what it refuses and how, and the descriptions that it writes.

mod arithmetic;
mod common;
mod control_names;
mod digest;
mod division;
mod explain;
mod features;
mod functions;
mod fuzz;
mod golden;
mod hostile;
mod layout;
mod limits;
mod macros;
mod p4info;
mod padding;
mod programs;
mod refusals;
mod schema;
mod semantics;
mod stacks;
mod trace;
mod varbit;
mod verdicts;
mod warnings;
