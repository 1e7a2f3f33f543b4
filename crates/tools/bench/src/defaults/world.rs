//! Client, server and neighbour behind one switch, with or without P4 Shield.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::ops::Sub;

use p4shield_testbed::{NetNs, OpenVswitch};

use super::{Mode, Options};
use crate::shield::{GUARD, Setup, Shield};
use crate::{cores, world};

/// The client's address, behind the uplink.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 5, 1);
/// The measured tenant's user VM.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 5, 2);
/// The other tenant's user VM.
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 9, 5, 3);
const CONFIG: &str = include_str!("cloud.toml");

/// A running cloud. Fields are dropped in order: the switch before the namespaces that it is connected to.
pub(super) struct World {
    pub(super) switch: OpenVswitch,
    shield: Option<Shield>,
    pub(super) client: NetNs,
    pub(super) server: NetNs,
    pub(super) neighbour: NetNs,
    _host: NetNs,
}

/// Packets that got no verdict.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    pub(super) deadline: u64,
    pub(super) full: u64,
}

impl Sub for Lost {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let Self { deadline, full } = self;
        Self { deadline: deadline.saturating_sub(before.deadline), full: full.saturating_sub(before.full) }
    }
}

impl World {
    /// Builds the cloud and waits for the first ping.
    pub(super) fn start(options: &Options, mode: Mode) -> anyhow::Result<Self> {
        let host = NetNs::create("bench")?;
        let connect = |purpose: &str, port: &str, address: Ipv4Addr| {
            let ns = NetNs::create(purpose)?;
            host.veth(port, &ns, "eth0")?;
            ns.ip(&format!("addr add {address}/24 dev eth0"))?;
            ns.send_whole_packets("eth0")?;
            anyhow::Ok(ns)
        };
        let client = connect("client", "s0", CLIENT)?;
        let server = connect("server", "s1", SERVER)?;
        let neighbour = connect("neighbour", "s2", NEIGHBOUR)?;
        let shield = match mode {
            Mode::Plain => None,
            Mode::P4vm => {
                let library = &options.library;
                let setup = Setup { library, program: GUARD, config: CONFIG };
                let mut shield = Shield::start(&setup)?;
                shield.start_agent(&server, "eth0")?;
                Some(shield)
            }
        };
        let environment = shield.as_ref().map(Shield::environment).unwrap_or_default();
        let environment: Vec<(&str, &OsStr)> = environment.iter().map(|(k, v)| (*k, v.as_os_str())).collect();
        let switch =
            OpenVswitch::for_afxdp(&host, &environment, &format!("{:#x}", 1_u128 << cores::two()[1]))?;
        for port in ["s0", "s1", "s2"] {
            switch.add_afxdp(port)?;
        }
        shield.as_ref().map_or(Ok(()), Shield::await_switch)?;
        let cloud = Self { switch, shield, client, server, neighbour, _host: host };
        world::await_ping(&cloud.client, SERVER)?;
        world::await_ping(&cloud.client, NEIGHBOUR)?;
        Ok(cloud)
    }

    /// Returns how many packets of all tenants got no verdict since the daemon started.
    pub(super) fn lost(&self) -> Lost {
        let status = self.shield.as_ref().map(Shield::status).unwrap_or_default();
        let count = |reason: &str| {
            let vms = status["tenants"].as_array().into_iter().flatten().map(|t| &t["vms"]);
            let vms = vms.filter_map(serde_json::Value::as_array).flatten();
            let dropped = vms.flat_map(|vm| [&vm["ingress"]["dropped"], &vm["egress"]["dropped"]]);
            let counts = dropped.filter_map(serde_json::Value::as_array).flatten();
            counts.filter(|count| count[0] == reason).filter_map(|count| count[1].as_u64()).sum()
        };
        Lost { deadline: count("deadline"), full: count("full") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_sets_no_tuning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p4shield.toml");
        std::fs::write(&path, CONFIG).unwrap();
        let config = p4shield_config::Config::load(&path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.tenants.iter().map(|t| t.vms.len()).collect::<Vec<_>>(), [1, 1]);
        for key in ["cpu", "busy", "deadline", "stall", "max_held", "slots", "header_bytes", "no_program"] {
            assert!(!CONFIG.contains(&format!("\n{key} = ")), "{key}");
        }
    }
}
