//! Measurements of P4 Shield: the source of the figures in docs/performance.md.

#![forbid(unsafe_code)]

mod args;
pub mod bar;
pub mod calls;
pub mod channel;
pub mod cores;
pub mod defaults;
pub mod engine;
mod figures;
mod fixture;
pub mod forward;
pub mod isolation;
pub mod mediator;
pub mod p4vm;
pub mod protocol;
mod resume;
mod shield;
pub mod stats;
pub mod switch;
pub mod tee;
pub mod tenants;
pub mod topology;
mod trips;
pub mod veth;
pub mod workloads;
mod world;
pub mod xsk;

pub use fixture::cloud::delete_all as delete_switches;

/// Returns the name of a unit variant, as in JSON.
pub fn name(variant: impl serde::Serialize) -> String {
    serde_json::to_value(variant).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
