//! Client and server in namespaces behind two ports of the measured switch.

use std::net::Ipv4Addr;

use p4shield_testbed::{NetNs, process, wait_until};

/// Seconds in which the first ping must succeed on a loaded machine.
const PATIENCE: u64 = 60;

/// Namespaces of host, client and server; `eth0` of the latter two is linked to these ports of the host.
pub(crate) fn namespaces(
    ends: [(&str, Ipv4Addr); 2],
    congestion: Option<&str>,
) -> anyhow::Result<[NetNs; 3]> {
    let [host, client, server] =
        [NetNs::create("bench")?, NetNs::create("client")?, NetNs::create("server")?];
    for (ns, (port, address)) in [&client, &server].into_iter().zip(ends) {
        host.veth(port, ns, "eth0")?;
        ns.ip(&format!("addr add {address}/24 dev eth0"))?;
        ns.send_whole_packets("eth0")?;
        congestion.map_or(Ok(()), |name| ns.congestion_control(name))?;
    }
    Ok([host, client, server])
}

/// Waits until a ping from the client reaches the server.
pub(crate) fn await_ping(client: &NetNs, server: Ipv4Addr) -> anyhow::Result<()> {
    let to = server.to_string();
    let ping = || process::run(client.command("ping").args(["-c1", "-W1", &to])).is_ok();
    Ok(wait_until("a ping through the switch", PATIENCE, ping)?)
}
