//! Client, switch and server: each of the two in a network namespace behind a kernel interface of the switch.

use p4shield_testbed::NetNs;

use super::lab::{CLIENT, Lab, SERVER};
use super::shield::Shield;
use super::{Mode, Options};
use crate::world;

/// Client, switch and server.
pub(super) struct World {
    pub(super) mode: Mode,
    pub(super) client: NetNs,
    pub(super) server: NetNs,
    _lab: Lab,
    _shield: Shield,
    _host: NetNs,
}

impl World {
    /// Builds the cloud and waits for the first ping.
    pub(super) fn start(options: &Options, mode: Mode) -> anyhow::Result<Self> {
        let ends = [("s0", CLIENT), ("s1", SERVER)];
        let [host, client, server] = world::namespaces(ends, options.congestion.as_deref())?;
        let devices = ["s0", "s1"].map(|s| format!("net_af_packet_{s},iface={s},qpairs=1"));
        let ports = options.switch.port_names(&devices);
        let mut shield = Shield::start(options, mode, &ports)?;
        shield.start_agent(&server)?;
        let lab = Lab::start(options.switch, &host, &shield.environment(), &devices)?;
        shield.await_switch()?;
        world::await_ping(&client, SERVER)?;
        Ok(Self { mode, client, server, _lab: lab, _shield: shield, _host: host })
    }
}
