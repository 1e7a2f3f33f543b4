//! Transport protocols of the measurements.

use serde::Serialize;

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Protocol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Tcp];
}
