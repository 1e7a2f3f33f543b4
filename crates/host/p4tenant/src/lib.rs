//! The compartment of a tenant whose switch is a P4 switch.
//!
//! ```text
//!   topology apply ──orders──► stays (root): opens ports, admits clients ──ports──► P4 switch in its sandbox
//!                              the switch's socket ◄──ports, entries, announcements
//! ```
//!
//! The switch is one of placement `pipeline` (`p4shield_p4switch`), as the user of the compartment. The
//! process beside it opens AF_XDP sockets at interfaces in the compartment's network namespace, and executes
//! the orders of `p4shield topology apply` as a client of the switch's socket.
//!
//! | module | contents |
//! |---|---|
//! | `start` | the process that `apply` starts, and the one that stays |
//! | `switch` | executes orders |
//! | `program` | the program, `tenant_switch.p4`, whose entries `p4shield_topology` computes |

#![forbid(unsafe_code)]

mod program;
mod start;
mod switch;

pub use start::{Options, P4TenantError, start, stay};
