//! Tenant switches as a plan: levels, compartments, ports, addresses. Pure.
//!
//! [`plan()`] makes a [`Plan`] of a configuration; `model` has its parts. From it follow the ports of the NIC
//! switch ([`Plan::ports`]), the ports and rules of each switch ([`Compartment::switch_ports`],
//! [`Compartment::flows`], [`Compartment::entries`]), what it announces ([`Compartment::announcements`]), a
//! picture ([`Plan::picture`]), and what another plan changes ([`Plan::diff`]).

#![forbid(unsafe_code)]

mod announce;
mod diff;
mod entries;
mod flows;
mod mac;
mod model;
mod picture;
mod plan;
mod port;
mod ports;
mod text;

pub use diff::{Change, ChangeKind, Diff, FieldChange, Part};
pub use entries::{MAX_PORT, TableEntry};
pub use flows::{COOKIE, COOKIE_MASK, PRIORITIES};
pub use model::{Compartment, Controllers, Link, Machine, Numbers, Plan, SwitchPort, Tenant, VERSION, Vm};
pub use plan::{PlanError, plan};
pub use port::{Port, Role};
