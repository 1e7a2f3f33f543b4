//! Claims beside what was measured of them.

use serde::Serialize;

/// A claim and what was measured of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// The claim.
    pub claim: &'static str,
    /// The limit.
    pub bar: &'static str,
    /// The worst figure.
    pub measured: f64,
    /// True if it keeps to the limit.
    pub met: bool,
}
