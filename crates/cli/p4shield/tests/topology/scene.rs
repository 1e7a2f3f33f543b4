//! A host with tenants' VMs, an uplink and the network outside, each in a network namespace.

use p4shield_testbed::NetNs;
use p4shield_testbed::process::run;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// The outside network's router.
const ROUTER: &str = "02:00:00:00:ee:01";
/// The variable that has the key `nic_switch` of all scenes.
pub(crate) const NIC_SWITCH: &str = "P4SHIELD_TEST_NIC_SWITCH";
/// Users of a scene: those of P4 VMs and, behind them, of compartments.
const USERS: u32 = 0x1_0000;

/// The highest number of a compartment that tests use.
const COMPARTMENTS: u32 = 128;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A user VM: its tenant, name and address. Its interface on the host has both names.
pub(crate) struct Vm {
    pub(crate) tenant: &'static str,
    name: &'static str,
    pub(crate) address: &'static str,
    pub(crate) ns: NetNs,
}

pub(crate) struct Scene {
    pub(crate) host: NetNs,
    pub(crate) outside: NetNs,
    pub(crate) vms: Vec<Vm>,
    folder: TempDir,
    first_uid: u32,
}

impl Scene {
    /// Makes the namespaces; `None` where tests cannot, which is reported.
    pub(crate) fn create(vms: &[(&'static str, &'static str, &'static str)]) -> Option<Self> {
        if let Err(why) = p4shield_testbed::usable() {
            p4shield_need::skip("machine", why);
            return None;
        }
        let host = NetNs::create("topo-host").unwrap();
        host.disable_ipv6().unwrap();
        let outside = NetNs::create("topo-out").unwrap();
        connect(&host, "up0", &outside, ROUTER, "10.0.0.1");
        let vm = |(number, (tenant, name, address)): (usize, &(&'static str, &'static str, &'static str))| {
            let ns = NetNs::create(&format!("topo-vm{number}")).unwrap();
            connect(&host, &format!("{tenant}-{name}"), &ns, &mac(number), address);
            Vm { tenant, name, address, ns }
        };
        let vms = vms.iter().enumerate().map(vm).collect();
        // Far from those of other scenes, also of those that run beside.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let first_uid = 0x1000_0000 + (std::process::id() % 2048 * 8 + number % 8) * USERS;
        Some(Self { host, outside, vms, folder: tempfile::tempdir().unwrap(), first_uid })
    }

    /// Writes the configuration, of these tenants only.
    pub(crate) fn configure(&self, level: &str, tenants: &[&str]) {
        let folder = self.folder.path().display();
        let mut text = format!(
            "level = \"{level}\"\n[daemon]\nfirst_uid = {}\nsocket = \"{folder}/daemon/socket\"\n\
             attach_socket = \"{folder}/daemon/attach\"\n[topology]\nuplink = \"up0\"\n\
             gateway_mac = \"{ROUTER}\"\nrun = \"{folder}/run\"\nstate = \"{folder}/state\"\n",
            self.first_uid
        );
        // Set in guests whose kernel has another NIC switch.
        let kind = std::env::var(NIC_SWITCH).ok().filter(|_| level != "baseline");
        text += &kind.map(|kind| format!("nic_switch = \"{kind}\"\n")).unwrap_or_default();
        for tenant in tenants {
            text += &format!("[[tenant]]\nname = \"{tenant}\"\n");
            for (number, vm) in self.vms.iter().enumerate().filter(|(_, vm)| vm.tenant == *tenant) {
                let Vm { name, address, .. } = vm;
                text += &format!(
                    "[[tenant.vm]]\nname = \"{name}\"\ninterface = \"{tenant}-{name}\"\nmac = \"{}\"\n\
                     addresses = [\"{address}\"]\n",
                    mac(number)
                );
            }
        }
        std::fs::write(self.config(), text).unwrap();
    }

    /// Gives the switch of a tenant of the configuration end points for controllers, with keys in a folder.
    pub(crate) fn add_controllers(&self, tenant: &str, folder: &Path, [ovsdb, openflow]: [&str; 2]) {
        let text = std::fs::read_to_string(self.config()).unwrap();
        let name = format!("name = \"{tenant}\"\n");
        let folder = folder.display();
        let table = format!(
            "{name}[tenant.controllers]\novsdb = \"{ovsdb}\"\nopenflow = \"{openflow}\"\nprivate_key = \
             \"{folder}/sc-privkey.pem\"\ncertificate = \"{folder}/sc-cert.pem\"\nca_certificate = \
             \"{folder}/authorities.pem\"\n"
        );
        assert!(text.contains(&name), "{text}");
        std::fs::write(self.config(), text.replacen(&name, &table, 1)).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("p4shield.toml")
    }

    /// Returns the socket of a daemon.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("daemon/socket")
    }

    /// The command `p4shield topology` with these words.
    pub(crate) fn command(&self, action: &str) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command.args(["topology", action, "--config"]).arg(self.config()).arg("--json");
        command
    }

    /// The command `p4shield exec` for a tenant; the command inside is missing.
    pub(crate) fn exec(&self, tenant: &str) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command.args(["exec", tenant, "--config"]).arg(self.config()).arg("--");
        command
    }

    /// Returns a path in the scene's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `p4shield topology`, which succeeds. Returns what it prints.
    pub(crate) fn topology(&self, action: &str) -> Value {
        let Output { status, stdout, stderr } = self.command(action).output().unwrap();
        assert!(status.success(), "{action}: {}", String::from_utf8_lossy(&stderr));
        serde_json::from_slice(&stdout).unwrap()
    }

    /// Returns a VM's own status of the port at its interface.
    pub(crate) fn port(&self, interface: &str) -> Value {
        let status = self.topology("status");
        let ports = status["ports"].as_array().unwrap();
        ports.iter().find(|p| p["interface"] == interface).unwrap().clone()
    }

    /// Returns the user of a compartment.
    pub(crate) const fn uid(&self, compartment: u32) -> u32 {
        self.first_uid + 0x8000 + compartment
    }

    /// Returns the processes of the compartments' users, each with its program.
    pub(crate) fn processes(&self, compartment: u32) -> Vec<(i32, String)> {
        self.processes_of(compartment..=compartment)
    }

    /// Returns the processes of several compartments' users.
    pub(crate) fn processes_of(&self, compartments: RangeInclusive<u32>) -> Vec<(i32, String)> {
        let uids: Vec<_> = compartments.map(|c| self.uid(c).to_string()).collect();
        let uids = uids.join(",");
        let listed = Command::new("ps").args(["-o", "pid=,stat=,comm=", "--user", &uids]).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        let process = |line: &str| {
            let [pid, state, program] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                unreachable!()
            };
            (!state.starts_with('Z')).then(|| (pid.parse().unwrap(), program.to_owned()))
        };
        // A process that has ended may wait for its parent, which is the machine's first process.
        text.lines().filter_map(process).collect()
    }

    /// Returns what is left of the topology on the machine: interfaces, pins, folders.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> = self.processes_of(1..=COMPARTMENTS).into_iter().map(|(_, p)| p).collect();
        let links = self.host.ip("-br link").unwrap();
        left.extend(links.lines().filter(|l| l.starts_with("p4") || l.starts_with("ovs")).map(str::to_owned));
        let number = self.first_uid + 0x8000;
        let pins = ["", "tc-"].map(|hook| format!("/sys/fs/bpf/p4shield-nic-{hook}{number}"));
        left.extend(pins.into_iter().filter(|pins| Path::new(pins).exists()));
        for folder in ["run/switches", "state/switches"] {
            let entries = std::fs::read_dir(self.folder.path().join(folder)).into_iter().flatten();
            left.extend(entries.map(|e| e.unwrap().path().display().to_string()));
        }
        left
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.command("delete").output();
    }
}

/// Returns the number of answers to ten pings. A machine that is busy with other tests may answer some too
/// late, or none; then others are sent, since a policy lets all through or none.
pub(crate) fn pings(from: &NetNs, to: &str) -> usize {
    let answers = || {
        let output = from.command("ping").args(["-c10", "-i0.05", "-W1", to]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).matches("bytes from").count()
    };
    let mut before = None;
    for _ in 0..4 {
        let count = answers();
        if count == 10 || count == 0 && before == Some(0) {
            return count;
        }
        before = Some(count);
    }
    answers()
}

fn mac(number: usize) -> String {
    format!("02:00:00:00:00:{:02x}", number + 1)
}

/// Connects a namespace with the host, as a VM's virtio-net device without checksum offload would be.
fn connect(host: &NetNs, interface: &str, ns: &NetNs, mac: &str, address: &str) {
    ns.disable_ipv6().unwrap();
    host.veth(interface, ns, "eth0").unwrap();
    for words in [format!("link set eth0 address {mac}"), format!("addr add {address}/8 dev eth0")] {
        ns.ip(&words).unwrap();
    }
    run(ns.command("ethtool").args(["-K", "eth0", "tx", "off", "gro", "on"])).unwrap();
}
