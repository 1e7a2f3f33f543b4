//! DPDK in the switch: its start inside the sandbox, without devices and shared files, and its ports, which
//! are network interfaces. Its driver opens them by packet sockets with shared rings, since a compartment
//! loads no BPF program for AF_XDP.

use super::tools::{TIMEOUT, run, tool};
use std::path::Path;
use std::time::{Duration, Instant};

/// Debian's and Ubuntu's program with DPDK. Elsewhere the plain one has it.
const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// Arguments of DPDK's environment.
const ARGUMENTS: &str = "--no-pci --no-telemetry";
/// Those without huge pages. The memory is for 16,384 packet buffers, the fewest that Open vSwitch takes, and
/// for the rest of DPDK.
const SMALL_PAGES: &str = "--no-huge --no-shconf --legacy-mem -m 96";
/// Those with huge pages, before their mebibytes: as memory without a name, which needs no mounted folder.
const HUGE_PAGES: &str = "--in-memory --iova-mode=va -m";
/// The longest pause of an idle thread on a shared core in microseconds.
const PAUSE: u32 = 100;
/// Its keys: of Open vSwitch 3.1, and of later ones.
const PAUSES: [&str; 2] = ["pmd-maxsleep", "pmd-sleep-max"];
/// Longest time for DPDK to start.
const START: Duration = Duration::from_secs(20);

/// How the switch forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datapath {
    /// With DPDK, and not by packet sockets.
    pub(super) dpdk: bool,
    /// Bytes of DPDK's huge pages; 0: none.
    pub(super) huge_pages: u64,
    /// The core of its threads.
    pub(super) core: u32,
}

impl Datapath {
    /// Returns the arguments of DPDK's environment.
    fn arguments(&self) -> String {
        match self.huge_pages {
            0 => format!("{ARGUMENTS} {SMALL_PAGES}"),
            bytes => format!(
                "{ARGUMENTS} {HUGE_PAGES} {mebibytes} --socket-limit {mebibytes}",
                mebibytes = bytes >> 20
            ),
        }
    }

    /// Returns the program of the switch.
    pub(super) fn program(&self) -> &'static str {
        if self.dpdk && Path::new(PROGRAM).exists() { PROGRAM } else { "ovs-vswitchd" }
    }

    /// Writes into the database how the switch starts, before it does.
    ///
    /// # Errors
    /// There is no DPDK, or the tool's message.
    pub(super) fn configure(&self) -> Result<(), String> {
        let mut vsctl = tool("ovs-vsctl");
        vsctl.args([TIMEOUT, "--no-wait", "--"]);
        if !self.dpdk {
            let keys = ["dpdk-init", "dpdk-extra", "dpdk-lcore-mask", "pmd-cpu-mask"];
            let keys = keys.iter().chain(&PAUSES);
            vsctl.args(["remove", "Open_vSwitch", ".", "other_config"]).args(keys);
            // Ports of a start with DPDK are none without, and Open vSwitch keeps the error that they were.
            let find = [TIMEOUT, "--bare", "--columns=name", "find", "interface", "type=dpdk"];
            for name in run(tool("ovs-vsctl").args(find))?.split_whitespace() {
                vsctl.args(["--", "set", "interface", name, "type=\"\"", "options={}"]);
            }
            return run(&mut vsctl).map(drop);
        }
        if !run(tool(self.program()).arg("--version"))?.contains("DPDK") {
            return Err(
                "this host's Open vSwitch has no DPDK: apt install openvswitch-switch-dpdk, or write \
                        datapath = \"sockets\""
                    .to_owned(),
            );
        }
        let mask = mask(self.core);
        vsctl.args(["set", "Open_vSwitch", ".", "other_config:dpdk-init=true"]);
        vsctl.arg(format!("other_config:dpdk-extra={:?}", self.arguments()));
        vsctl.arg(format!("other_config:dpdk-lcore-mask={mask}"));
        run(vsctl.arg(format!("other_config:pmd-cpu-mask={mask}"))).map(drop)
    }
}

/// Returns the settings of idle threads, which poll without a pause on a core of their own.
pub(super) fn pauses(is_core_shared: bool) -> [String; 2] {
    let longest = if is_core_shared { PAUSE } else { 0 };
    PAUSES.map(|key| format!("other_config:{key}={longest}"))
}

/// Waits until the switch has started DPDK.
///
/// # Errors
/// It did not.
pub(super) fn wait() -> Result<(), String> {
    let end = Instant::now() + START;
    while run(tool("ovs-vsctl").args([TIMEOUT, "get", "Open_vSwitch", ".", "dpdk_initialized"]))?.trim()
        != "true"
    {
        if Instant::now() > end {
            return Err("the switch does not start DPDK; its compartment's log may say why".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns the columns of a port, an interface of the kernel.
pub(super) fn port(interface: &str, number: u16) -> [String; 2] {
    let device = format!("eth_af_packet{number},iface={interface}");
    ["type=dpdk".to_owned(), format!("options:dpdk-devargs={device:?}")]
}

/// Returns a set of cores with this one, in hexadecimal digits.
fn mask(core: u32) -> String {
    format!("0x{:x}{}", 1_u32 << (core % 4), "0".repeat(core as usize / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_one_core() {
        assert_eq!([0, 1, 3, 4, 70].map(mask), ["0x1", "0x2", "0x8", "0x10", "0x400000000000000000"]);
    }
}
