//! The cloud of the demonstration with guests.
//!
//! ```text
//!  client's guest          cloud host                                          user VM `web` of alice
//!  eth0 10.77.0.1 ══ vhost-user ══ Open vSwitch over DPDK ══ vhost-user ══ eth0 10.77.0.2
//!                                  (libp4shield_dpdk.so)
//!                                           ║ channel
//!                                  alice's P4 VM (tcp_guard.p4)
//! ```

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use p4shield_testbed::process::{last_lines, product, run};
use p4shield_testbed::{Guest, NetNs, OpenVswitch, Product, leftover};
use serde_json::Value;
use tempfile::TempDir;

use super::Parts;
use super::client::{self, ClientVm};
use super::user_vm::{MAC, UserVm};
use crate::options::Options;
use crate::scene::{CLIENT, VM};

const CONFIG: &str = include_str!("guests.toml");

/// The user VM's port in the switch.
pub(super) const PORT: &str = "web";
/// The client's port.
const CLIENT_PORT: &str = "client";

/// Microseconds for which a thread of the switch that finds no packets sleeps at most. It would otherwise
/// take one of what may be two cores from the emulated machines.
const SLEEP: &str = "200";

/// MiB of the switch's memory: the pool of two vhost-user ports takes more than the default.
const MEMORY: u32 = 1024;

/// Seconds for an emulated guest to boot beside two others.
const BOOT: u64 = 240;
/// Longest time between the end of a killed guest's console and that of its process.
const ENDING: Duration = Duration::from_secs(1);

/// Where a VM's ingress program judges packets: the value of `sides` in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    /// At the VM's own port, whatever is sent there.
    Both,
    /// Where packets enter the switch, and nothing that the switch sends of its own accord.
    Receive,
}

/// Everything that runs. Fields are dropped in this order: guests first, the switch before its namespace.
pub(super) struct Scene {
    /// The tenant's user VM.
    pub(super) user_vm: UserVm,
    /// The client's guest.
    pub(super) client: ClientVm,
    /// The switch between them.
    pub(super) switch: OpenVswitch,
    /// The daemon, with the tenant's P4 VM.
    pub(super) product: Product,
    _host: NetNs,
    folder: TempDir,
}

impl Scene {
    /// Builds everything, up to a ping from the client to the user VM.
    pub(super) fn build(options: &Options, parts: &Parts) -> anyhow::Result<Self> {
        let say = options.say;
        leftover::sweep();
        let folder = leftover::folder("guests")?;
        let host = NetNs::create("host")?;
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let config = config(options.image.as_deref(), folder.path(), Sides::Both);
        let product = Product::start(Some(&host), &options.program, &config)?;
        let kind = if options.image.is_some() { "virtual machine, process" } else { "process" };
        say(&format!("P4 VM: {kind} {}, program tcp_guard.p4", product.p4vm().unwrap_or_default()));
        options.check_interrupted()?;
        let switch = switch(&host, &parts.library, &product)?;
        let socket = |port: &str| folder.path().join(format!("{port}.sock"));
        let user_vm = UserVm::start(&product, &program)?;
        let client = ClientVm::start(&socket(CLIENT_PORT), &program)?;
        for port in [PORT, CLIENT_PORT] {
            switch.add_vhost_client(port, &socket(port))?;
        }
        say("the user VM and the client's guest boot");
        let mut scene = Self { user_vm, client, switch, product, _host: host, folder };
        scene.wait_booted(options)?;
        let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
        set_up(&mut scene.user_vm.guest, VM, [&CLIENT.to_string(), client::MAC])?;
        set_up(&mut scene.client.guest, CLIENT, [&VM.to_string(), &mac])?;
        scene.user_vm.prepare()?;
        let reached = options.wait("a ping from the client to the user VM", 60, || scene.client.ping());
        reached
            .map_err(|e| anyhow!("{e:#}; the switch's log ends:\n{}", last_lines(&scene.switch.log(), 10)))?;
        Ok(scene)
    }

    fn wait_booted(&mut self, options: &Options) -> anyhow::Result<()> {
        options.wait("the boot of both guests", BOOT, || {
            self.check_parts()?;
            Ok(self.user_vm.guest.has_booted() && self.client.guest.has_booted())
        })?;
        for guest in [&mut self.user_vm.guest, &mut self.client.guest] {
            guest.wait_booted()?;
        }
        Ok(())
    }

    /// Checks that every process of the host still runs: otherwise a claim would describe another situation.
    pub(super) fn check_parts(&mut self) -> anyhow::Result<()> {
        let switch = self.switch.ended().map(|how| (how, last_lines(&self.switch.log(), 5)));
        let daemon = self.product.ended().map(|how| (how, self.product.log_end("run")));
        let guest = |guest: &mut Guest| guest.ended().map(|how| (how, last_lines(&guest.log(), 5)));
        let parts = [
            ("the switch (ovs-vswitchd)", switch),
            ("the host daemon (p4shield run)", daemon),
            ("the user VM (qemu-system-x86_64)", guest(&mut self.user_vm.guest)),
            ("the client's guest (qemu-system-x86_64)", guest(&mut self.client.guest)),
        ];
        for (part, ended) in parts {
            let Some((how, log)) = ended else { continue };
            bail!("{part} ended during the demo ({how}); the end of its log:\n{log}");
        }
        Ok(())
    }

    /// Reads what guests and auditor tell, and checks that every part still runs.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        self.check_parts()?;
        let told = self.client.look().and_then(|ended| Ok(ended.or(self.user_vm.look()?)));
        // A guest that ended meanwhile has said nothing. One that is killed closes its console first.
        let end = Instant::now() + if told.is_err() { ENDING } else { Duration::ZERO };
        self.check_parts()?;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            self.check_parts()?;
        }
        match told? {
            Some(ended) => bail!("during the demo, {ended}"),
            None => Ok(()),
        }
    }

    /// Changes where the cloud has packets to the user VM judged.
    pub(super) fn judge_at(&self, options: &Options, sides: Sides) -> anyhow::Result<()> {
        let text = config(options.image.as_deref(), self.folder.path(), sides);
        std::fs::write(self.product.at("p4shield.toml"), text).context("cannot write the configuration")?;
        let mut reload = Command::new(product()?);
        run(reload.args(["reload", "--socket"]).arg(self.product.at("p4shield.sock")))?;
        Ok(())
    }

    /// Returns how many packets to the user VM the tenant's program dropped so far.
    pub(super) fn dropped_by_program(&self) -> u64 {
        let vm = self.vm();
        let reasons = vm["ingress"]["dropped"].as_array().into_iter().flatten();
        reasons.filter(|r| r[0] == "program").filter_map(|r| r[1].as_u64()).sum()
    }

    /// Returns whether the P4 VM knows what the agent publishes.
    pub(super) fn is_known(&self) -> bool {
        self.vm()["info"]["status"] == "known"
    }

    /// Returns what the P4 VM counts of publications so far: `accepted`, `replayed` and so on.
    pub(super) fn info(&self, counter: &str) -> u64 {
        self.vm()["info"][counter].as_u64().unwrap_or(0)
    }

    /// Returns the user VM's part of the daemon's status.
    fn vm(&self) -> Value {
        self.product.status()["tenants"][0]["vms"][0].clone()
    }
}

/// Starts the switch with the library, and without ports.
fn switch(host: &NetNs, library: &Path, product: &Product) -> anyhow::Result<OpenVswitch> {
    let setup = OpenVswitch::over_dpdk().megabytes(MEMORY).other_config("per-port-memory", "true");
    // Open vSwitch 3.1 has the first name, later ones the second; each ignores the other.
    let setup = setup.other_config("pmd-maxsleep", SLEEP).other_config("pmd-sleep-max", SLEEP);
    let setup = setup.env("LD_PRELOAD", library).env("P4SHIELD_CONFIG", product.at("p4shield.toml"));
    Ok(setup.start(host)?)
}

/// Sets a guest's interface up with its `address`. Its kernel sends no packet of its own accord: it has no
/// IPv6, and knows the Ethernet address of its neighbour.
fn set_up(guest: &mut Guest, address: IpAddr, [neighbour, mac]: [&str; 2]) -> anyhow::Result<()> {
    let ipv6 = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
    guest.must(&format!("[ ! -e {ipv6} ] || echo 1 >{ipv6}"))?;
    guest.must(&format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up"))?;
    guest.must(&format!("arp -s {neighbour} {mac}"))?;
    Ok(())
}

/// Returns the configuration.
fn config(image: Option<&Path>, folder: &Path, sides: Sides) -> String {
    let sides = if sides == Sides::Both { "both" } else { "receive" };
    let compartment = if image.is_some() { "vm" } else { "process" };
    let text = CONFIG.replace("@FOLDER@", &folder.display().to_string());
    let text = text.replace("@SIDES@", sides).replace("@COMPARTMENT@", compartment);
    let machine = image.map(|image| format!("\n[machine]\nimage = \"{}\"\n", image.display()));
    text + machine.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_no_place_holder_left() {
        for (image, sides) in [(None, Sides::Both), (Some(Path::new("/image")), Sides::Receive)] {
            let text = config(image, Path::new("/folder"), sides);
            assert!(!text.contains('@') && text.contains("\"/folder/web.sock\""), "{text}");
            assert_eq!(text.contains("[machine]"), image.is_some());
        }
    }
}
