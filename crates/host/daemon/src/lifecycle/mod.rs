//! The life of the daemon: its start and end ([`daemon`]), what its threads share ([`state`]), changes of the
//! configuration ([`reload`]) and of the release ([`upgrade`]), and what `p4shield run --check` reports
//! ([`preflight`], and of virtual machines `machines`).

pub(crate) mod daemon;
mod machines;
pub(crate) mod preflight;
pub(crate) mod reload;
pub(crate) mod reload_report;
pub(crate) mod state;
pub(crate) mod upgrade;
