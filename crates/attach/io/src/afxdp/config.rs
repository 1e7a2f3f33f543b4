//! The configuration of ports.

use p4shield_afxdp::Mode;
use p4shield_xdp::XdpMode;

/// The interfaces that are ports, and how they are opened.
#[derive(Clone, Debug)]
pub struct AfxdpConfig {
    /// Names of the interfaces, in the order of the ports' numbers.
    pub interfaces: Vec<String>,
    /// Entries of each ring of each socket, a power of two.
    pub ring: u32,
    /// Frames of each port's UMEM. By default as many as the rings of all its queues need; a driver that does
    /// not report its queues (a tap's) is taken for one with a single queue.
    pub frames: Option<u32>,
    /// Puts each UMEM in huge pages, if enough are available.
    pub huge_pages: bool,
    /// How the XDP programs may be attached.
    pub xdp: XdpMode,
    /// Zero-copy or copy mode.
    pub mode: Mode,
}

impl AfxdpConfig {
    /// Creates a configuration with defaults for these interfaces.
    #[must_use]
    pub fn new(interfaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            interfaces: interfaces.into_iter().map(Into::into).collect(),
            ring: 512,
            frames: None,
            huge_pages: false,
            xdp: XdpMode::default(),
            mode: Mode::default(),
        }
    }
}
