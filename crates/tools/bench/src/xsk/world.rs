//! Client, switch and server, with or without P4 Shield.

use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::time::Duration;

use p4shield_testbed::{NetNs, OpenVswitch};

use super::{Mode, Options};
use crate::shield::{self, Config, GUARD, Setup, Shield};
use crate::trips::Endpoints;
use crate::{cores, world};

/// The client's address, behind the first port.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 4, 1);
/// The server's address, behind the second port: the tenant's user VM.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 4, 2);
/// The ports.
pub(super) const PORTS: [&str; 2] = ["s0", "s1"];
/// The tenant's program and settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct TenantSetup<'s> {
    /// Text of the program.
    pub(super) program: &'s str,
    /// Whether it is the egress program, too.
    pub(super) both: bool,
    /// The VM's interface: the value of the agent's option.
    pub(super) interface: &'s str,
    /// Deadline of a held packet: client, server and P4 VM share a core, so each needs time to be scheduled.
    pub(super) deadline: Duration,
    /// Time that the P4 VM adds to each packet.
    pub(super) delay: Duration,
}

impl Default for TenantSetup<'_> {
    fn default() -> Self {
        Self {
            program: GUARD,
            both: false,
            interface: "eth0",
            deadline: Duration::from_millis(50),
            delay: Duration::ZERO,
        }
    }
}

impl TenantSetup<'_> {
    fn config(&self) -> String {
        let mut keys = format!("deadline = \"{}ms\"\nstall = \"60s\"\n", self.deadline.as_millis());
        keys += &format!("cpu = {}\n", cores::two()[0]);
        if !self.delay.is_zero() {
            keys += &format!("delay = \"{}ns\"\n", self.delay.as_nanos());
        }
        let config =
            Config { attachment: "xsk", placement: "p4vm", address: SERVER, keys: &keys, both: self.both };
        config.text() + &shield::ports(&PORTS.map(String::from))
    }
}

/// A running cloud. Fields are dropped in order: the switch before the namespaces that it is connected to.
pub(super) struct World {
    pub(super) switch: OpenVswitch,
    /// None without a P4 VM.
    pub(super) shield: Option<Shield>,
    pub(super) client: NetNs,
    pub(super) server: NetNs,
    _host: NetNs,
}

impl World {
    /// Builds the cloud and waits for the first ping.
    pub(super) fn start(options: &Options, mode: Mode, tenant: &TenantSetup<'_>) -> anyhow::Result<Self> {
        let ends = [(PORTS[0], CLIENT), (PORTS[1], SERVER)];
        let [host, client, server] = world::namespaces(ends, options.congestion.as_deref())?;
        let (shield, environment) = match mode {
            Mode::Plain => (None, Vec::new()),
            Mode::Relay => {
                shield::present(&options.library)?;
                let library = options.library.clone().into_os_string();
                (None, vec![("LD_PRELOAD", library), ("P4SHIELD_XSK", OsString::from("relay"))])
            }
            Mode::P4vm => {
                let config = tenant.config();
                let setup = Setup { library: &options.library, program: tenant.program, config: &config };
                let mut shield = Shield::start(&setup)?;
                shield.start_agent(&server, tenant.interface)?;
                let environment = shield.environment();
                (Some(shield), environment)
            }
        };
        let environment: Vec<(&str, &OsStr)> = environment.iter().map(|(k, v)| (*k, v.as_os_str())).collect();
        let switch =
            OpenVswitch::for_afxdp(&host, &environment, &format!("{:#x}", 1_u128 << cores::two()[1]))?;
        for port in PORTS {
            switch.add_afxdp(port)?;
        }
        if let Some(shield) = &shield {
            shield.await_switch()?;
        }
        world::await_ping(&client, SERVER)?;
        Ok(Self { switch, shield, client, server, _host: host })
    }

    /// Returns client and server, bound to the core that the switch does not use.
    pub(super) fn endpoints(&self) -> Endpoints<'_> {
        Endpoints {
            client: (&self.client, CLIENT),
            server: (&self.server, SERVER),
            core: Some(cores::two()[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_configuration_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p4shield.toml");
        let slow = TenantSetup { both: true, delay: Duration::from_micros(5), ..TenantSetup::default() };
        for tenant in [TenantSetup::default(), slow] {
            std::fs::write(&path, tenant.config()).unwrap();
            let config = p4shield_config::Config::load(&path).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(config.tenants[0].delay, tenant.delay);
            assert_eq!(config.tenants[0].vms[0].programs[1].len(), usize::from(tenant.both));
        }
    }
}
