//! Client, switch and server: each of the two in a network namespace behind a kernel interface of the switch.

use p4shield_testbed::{NetNs, process, wait_until};

use super::lab::{CLIENT, Lab, SERVER};
use super::shield::Shield;
use super::{Mode, Options};

/// Seconds in which the first ping must succeed.
const PATIENCE: u64 = 60;

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
        let [host, client, server] =
            [NetNs::create("bench")?, NetNs::create("client")?, NetNs::create("server")?];
        for (ns, port, address) in [(&client, "s0", CLIENT), (&server, "s1", SERVER)] {
            host.veth(port, ns, "eth0")?;
            ns.ip(&format!("addr add {address}/24 dev eth0"))?;
            ns.send_whole_packets("eth0")?;
            options.congestion.as_deref().map_or(Ok(()), |name| ns.congestion_control(name))?;
        }
        let devices = ["s0", "s1"].map(|s| format!("net_af_packet_{s},iface={s},qpairs=1"));
        let ports = options.switch.port_names(&devices);
        let mut shield = Shield::start(options, mode, &ports)?;
        shield.start_agent(&server)?;
        let lab = Lab::start(options.switch, &host, &shield.environment(), &devices)?;
        shield.await_switch()?;
        let to = SERVER.to_string();
        wait_until("a ping through the switch", PATIENCE, || {
            process::run(client.command("ping").args(["-c1", "-W1", &to])).is_ok()
        })?;
        Ok(Self { mode, client, server, _lab: lab, _shield: shield, _host: host })
    }
}
