//! A DPDK switch with two ports.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use p4shield_testbed::{NetNs, OpenVswitch, Testpmd, process, wait_until};

/// The client's address, behind the first port.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 2, 1);
/// The server's address, behind the second port: the tenant's user VM.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 2, 2);

/// The measured switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SwitchKind {
    /// Open vSwitch over DPDK, with one rule from the first port to the second and one back
    Ovs,
    /// dpdk-testpmd, which forwards between its two ports without reading packets
    Testpmd,
}

impl SwitchKind {
    /// Checks whether this machine can run the switch.
    ///
    /// # Errors
    /// The reason why not.
    pub fn usable(self) -> Result<(), String> {
        match self {
            Self::Ovs => OpenVswitch::usable(),
            Self::Testpmd => Testpmd::usable(),
        }
    }

    /// Returns the switch's own name and version.
    pub(super) fn version(self) -> anyhow::Result<String> {
        let (program, argument) = match self {
            Self::Ovs => ("ovs-vswitchd", "--version"),
            Self::Testpmd => return Ok("dpdk-testpmd".into()),
        };
        let text = process::run(Command::new(program).arg(argument))?;
        Ok(text.lines().next().unwrap_or(program).to_owned())
    }

    /// Returns the names of the two ports for `[[port]]` in the configuration.
    pub(super) fn port_names(self, devices: &[String; 2]) -> [String; 2] {
        match self {
            Self::Ovs => PORTS.map(String::from),
            Self::Testpmd => devices.each_ref().map(|d| d.split(',').next().unwrap_or(d).to_owned()),
        }
    }
}

const PORTS: [&str; 2] = ["first", "second"];
/// Open vSwitch requests 262,144 mbufs per pool before it tries fewer.
const OVS_MEGABYTES: u32 = 2048;
const TESTPMD_MEGABYTES: u32 = 512;

/// File name of the socket of the tenant's vhost-user port.
pub(super) const TENANT_SOCKET: &str = "tenant.sock";
/// Seconds in which a vhost-user port's two ends have to connect.
const PATIENCE: u64 = 30;

/// A running switch that forwards between two devices.
pub(super) enum Lab {
    Ovs(Box<OpenVswitch>),
    Testpmd(Box<Testpmd>),
}

impl Lab {
    /// Starts the switch in `host` with this environment and these DPDK devices.
    pub(super) fn start(
        kind: SwitchKind,
        host: &NetNs,
        environment: &[(&str, OsString)],
        devices: &[String; 2],
    ) -> anyhow::Result<Self> {
        match kind {
            SwitchKind::Ovs => {
                let mut setup = OpenVswitch::over_dpdk().megabytes(OVS_MEGABYTES);
                for (name, value) in environment {
                    setup = setup.env(name, value);
                }
                let ovs = setup.start(host)?;
                for (port, device) in PORTS.iter().zip(devices) {
                    ovs.add_dpdk(port, device)?;
                }
                ovs.ofctl("del-flows", &[])?;
                ovs.ofctl("add-flow", &["in_port=first,actions=output:second"])?;
                ovs.ofctl("add-flow", &["in_port=second,actions=output:first"])?;
                Ok(Self::Ovs(Box::new(ovs)))
            }
            SwitchKind::Testpmd => {
                let mut setup = Testpmd::setup().megabytes(TESTPMD_MEGABYTES);
                for (name, value) in environment {
                    setup = setup.env(name, value);
                }
                for device in devices {
                    setup = setup.vdev(device);
                }
                let mut testpmd = setup.start(host)?;
                testpmd.command("set record-core-cycles on")?;
                testpmd.command("start")?;
                Ok(Self::Testpmd(Box::new(testpmd)))
            }
        }
    }

    /// Adds a vhost-user port for the tenant's VM, and returns the VM: testpmd, which is idle.
    pub(super) fn add_tenant(&self, host: &NetNs, folder: &Path) -> anyhow::Result<Testpmd> {
        let Self::Ovs(ovs) = self else { bail!("only Open vSwitch gets a port for the tenant") };
        let socket = folder.join(TENANT_SOCKET);
        ovs.add_vhost_client("tenant", &socket)?;
        let device = format!("net_virtio_user0,path={},server=1,queues=1", socket.display());
        let setup = Testpmd::setup().vdev(&device).vdev("net_null1").argument("--no-flush-rx");
        let mut vm = setup.argument("--disable-link-check").start(host)?;
        let mut is_up = || vm.command("show port info 0").is_ok_and(|info| info.contains("Link status: up"));
        wait_until("the tenant's port", PATIENCE, &mut is_up)?;
        Ok(vm)
    }

    /// Returns the number of packets sent on the second port so far.
    pub(super) fn sent(&mut self) -> anyhow::Result<u64> {
        match self {
            Self::Ovs(ovs) => {
                let text = ovs.ofctl("dump-ports", &["second"])?;
                number_after(&text, "tx pkts=")
            }
            Self::Testpmd(testpmd) => Ok(testpmd.stats(1)?.tx_packets),
        }
    }

    /// Starts to count cycles.
    pub(super) fn clear_cycles(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Ovs(ovs) => ovs.appctl(&["dpif-netdev/pmd-stats-clear"]).map(drop)?,
            Self::Testpmd(testpmd) => testpmd.command("clear fwd stats all").map(drop)?,
        }
        Ok(())
    }

    /// Returns the polling thread's cycles per packet since then.
    pub(super) fn cycles(&mut self) -> anyhow::Result<f64> {
        let (text, mark) = match self {
            Self::Ovs(ovs) => (ovs.appctl(&["dpif-netdev/pmd-stats-show"])?, "avg cycles per packet: "),
            Self::Testpmd(testpmd) => (testpmd.command("show fwd stats all")?, "CPU cycles/packet="),
        };
        number_after(&text, mark)
    }
}

/// Returns the number after `mark` in a switch's output.
fn number_after<T: std::str::FromStr>(text: &str, mark: &str) -> anyhow::Result<T> {
    let rest = text.split_once(mark).map_or("", |(_, rest)| rest);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok().with_context(|| format!("no number after {mark:?} in: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_a_switchs_output() {
        let ovs = "  avg cycles per packet: 330.10 (3301/10)\n";
        assert_eq!(number_after::<f64>(ovs, "avg cycles per packet: ").unwrap(), 330.1);
        assert_eq!(number_after::<u64>("tx pkts=12, bytes=3", "tx pkts=").unwrap(), 12);
        assert!(number_after::<u64>("nothing", "tx pkts=").is_err());
    }

    #[test]
    fn ports_have_the_switchs_names() {
        let devices = ["net_pcap0,rx_pcap=a".to_owned(), "net_null1".to_owned()];
        assert_eq!(SwitchKind::Testpmd.port_names(&devices), ["net_pcap0", "net_null1"]);
        assert_eq!(SwitchKind::Ovs.port_names(&devices), ["first", "second"]);
    }
}
