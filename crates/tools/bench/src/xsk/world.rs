//! Client, switch and server, with or without P4 Shield.

use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::time::Duration;

use p4shield_testbed::{NetNs, OvsAfxdp, process, wait_until};

use super::{Mode, Options};
use crate::shield::{self, Config, GUARD, Setup, Shield};
use crate::trips::Ends;
use crate::{Error, cores};

/// The client's address, behind the first port.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 4, 1);
/// The server's, behind the second: the tenant's user VM.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 4, 2);
/// The ports.
pub(super) const PORTS: [&str; 2] = ["s0", "s1"];
/// Seconds that the first ping may take on a loaded machine.
const PATIENCE: u64 = 60;

/// What the tenant runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant<'s> {
    /// Text of the program.
    pub(super) program: &'s str,
    /// Whether it judges what the VM sends, too.
    pub(super) both: bool,
    /// The VM's interface, as the agent's option has it.
    pub(super) interface: &'s str,
    /// How long a packet may be held: client, server and P4 VM share a core, so each needs time to be scheduled.
    pub(super) deadline: Duration,
    /// What the P4 VM takes longer for each packet.
    pub(super) delay: Duration,
}

impl Default for Tenant<'_> {
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

impl Tenant<'_> {
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

/// A running cloud. What is dropped first stands first: the switch before what it is connected to.
pub(super) struct World {
    pub(super) switch: OvsAfxdp,
    /// None unless a P4 VM judges.
    pub(super) shield: Option<Shield>,
    pub(super) client: NetNs,
    pub(super) server: NetNs,
    _host: NetNs,
}

impl World {
    /// Builds it and waits until the first ping is through.
    pub(super) fn start(options: &Options, mode: Mode, tenant: &Tenant<'_>) -> Result<Self, Error> {
        let [host, client, server] =
            [NetNs::create("bench")?, NetNs::create("client")?, NetNs::create("server")?];
        for (ns, port, address) in [(&client, PORTS[0], CLIENT), (&server, PORTS[1], SERVER)] {
            host.veth(port, ns, "eth0")?;
            ns.ip(&format!("addr add {address}/24 dev eth0"))?;
            ns.send_whole_packets("eth0")?;
            options.congestion.as_deref().map_or(Ok(()), |name| ns.congestion_control(name))?;
        }
        let (shield, environment) = match mode {
            Mode::Plain => (None, Vec::new()),
            Mode::Relay => {
                shield::present(&options.library)?;
                let library = options.library.clone().into_os_string();
                (None, vec![("LD_PRELOAD", library), ("P4SHIELD_XSK", OsString::from("relay"))])
            }
            Mode::P4vm => {
                let (binary, library, config) = (&options.binary, &options.library, tenant.config());
                let setup = Setup { binary, library, program: tenant.program, config: &config };
                let mut shield = Shield::start(&setup)?;
                shield.start_agent(&server, tenant.interface)?;
                let environment = shield.environment();
                (Some(shield), environment)
            }
        };
        let environment: Vec<(&str, &OsStr)> = environment.iter().map(|(k, v)| (*k, v.as_os_str())).collect();
        let switch = OvsAfxdp::start(&host, &environment, &format!("{:#x}", 1_u128 << cores::two()[1]))?;
        for port in PORTS {
            switch.add(port)?;
        }
        if let Some(shield) = &shield {
            shield.await_switch()?;
        }
        let to = SERVER.to_string();
        wait_until("a ping through the switch", PATIENCE, || {
            process::run(client.command("ping").args(["-c1", "-W1", &to])).is_ok()
        })?;
        Ok(Self { switch, shield, client, server, _host: host })
    }

    /// Client and server, on the core that is not the switch's.
    pub(super) fn ends(&self) -> Ends<'_> {
        Ends { client: (&self.client, CLIENT), server: (&self.server, SERVER), core: Some(cores::two()[0]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_configuration_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p4shield.toml");
        let slow = Tenant { both: true, delay: Duration::from_micros(5), ..Tenant::default() };
        for tenant in [Tenant::default(), slow] {
            std::fs::write(&path, tenant.config()).unwrap();
            let config = p4shield_config::Config::load(&path).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(config.tenants[0].delay, tenant.delay);
            assert_eq!(config.tenants[0].vms[0].programs[1].len(), usize::from(tenant.both));
        }
    }
}
