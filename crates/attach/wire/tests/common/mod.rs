//! Three network namespaces: a VM, the host with a wire and a switch, and a remote client.
//!
//! ```text
//!   vm: eth0 ──veth── vm0 │ wire │ sw0 ──veth── sw0p ─ br0 ─ cl0 ──veth── eth0 :client
//! ```
#![allow(clippy::print_stdout, dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod p4vm;
pub mod raw;
pub mod tap;

use std::net::IpAddr;
use std::time::Duration;

use p4shield_attach_wire::{LoopConfig, SideCounters, WireConfig, WireId, WireLoop, WireStatus};
use p4shield_mediator::{Config, FailPolicy, TenantConfig, VmConfig, VmRef};
use p4shield_testbed::process::run;
use p4shield_testbed::{NetNs, Switch, wait_until};

pub const VM4: &str = "10.7.0.2";
pub const CLIENT4: &str = "10.7.0.1";
pub const VM6: &str = "fd07::2";
pub const CLIENT6: &str = "fd07::1";

/// The first VM of the first tenant.
pub const VM: VmRef = VmRef { tenant: 0, vm: 0 };

/// Returns whether tests with network namespaces can run, and prints the reason if not.
pub fn usable() -> bool {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
    match p4shield_testbed::usable() {
        Ok(()) => true,
        Err(why) => {
            p4shield_need::skip("machine", why);
            false
        }
    }
}

pub struct Cloud {
    pub wire: WireLoop,
    pub id: WireId,
    pub switch: Switch,
    pub vm: NetNs,
    pub client: NetNs,
    pub host: NetNs,
}

/// Configures one tenant with one VM and no P4 VM, so that `fail` applies to its packets.
pub fn tenants(fail: FailPolicy) -> Config {
    Config { tenants: vec![tenant("blue", &[VM4, VM6], fail)] }
}

pub fn tenant(name: &str, addresses: &[&str], fail: FailPolicy) -> TenantConfig {
    let addresses = addresses.iter().map(|a| a.parse::<IpAddr>().unwrap()).collect();
    let mut tenant = TenantConfig::new(name, vec![VmConfig::new("web", addresses)]);
    tenant.fail = fail;
    // A P4 VM that has no core for a while answers all the same.
    tenant.deadline = Duration::from_secs(60);
    tenant.stall = None;
    tenant
}

pub fn loop_config(fail: FailPolicy) -> LoopConfig {
    LoopConfig::new("test", tenants(fail))
}

impl Cloud {
    pub fn new(fail: FailPolicy) -> Self {
        Self::with(loop_config(fail), WireConfig::new("vm0", "sw0", VM), Switch::bridge)
    }

    pub fn with(
        mut config: LoopConfig,
        wire: WireConfig,
        switch: impl FnOnce(&NetNs) -> p4shield_testbed::Result<Switch>,
    ) -> Self {
        let [host, vm, client] = ["host", "vm", "client"].map(|n| NetNs::create(&format!("w{n}")).unwrap());
        let switch = switch(&host).unwrap();
        host.veth("vm0", &vm, "eth0").unwrap();
        host.veth("sw0", &host, "sw0p").unwrap();
        host.veth("cl0", &client, "eth0").unwrap();
        for (ns, v4, v6) in [(&vm, VM4, VM6), (&client, CLIENT4, CLIENT6)] {
            ns.ip(&format!("addr add {v4}/24 dev eth0")).unwrap();
            ns.ip(&format!("addr add {v6}/64 dev eth0 nodad")).unwrap();
        }
        switch.plug(&host, "sw0p").unwrap();
        switch.plug(&host, "cl0").unwrap();
        config.netns = Some(format!("/run/netns/{}", host.name()).into());
        let wire_loop = WireLoop::spawn(config).unwrap();
        let id = wire_loop.add_wire(wire).unwrap();
        let cloud = Self { wire: wire_loop, id, switch, vm, client, host };
        cloud.wait_whole();
        cloud
    }

    /// Adds a VM with a wire, of tenant `n`, on the same switch: `10.7.0.(100 + n)`.
    pub fn add_vm(&self, n: u16) -> (NetNs, WireId) {
        let vm = NetNs::create(&format!("wvm{n}")).unwrap();
        self.host.veth(&format!("vm{n}"), &vm, "eth0").unwrap();
        self.host.veth(&format!("sw{n}"), &self.host, &format!("sw{n}p")).unwrap();
        vm.ip(&format!("addr add 10.7.0.{}/24 dev eth0", 100 + n)).unwrap();
        self.switch.plug(&self.host, &format!("sw{n}p")).unwrap();
        let vm_ref = VmRef { tenant: n, vm: 0 };
        let wire = WireConfig::new(format!("vm{n}"), format!("sw{n}"), vm_ref);
        let id = self.wire.add_wire(wire).unwrap();
        let whole = || self.wire.status().unwrap().iter().any(|w| w.id == id && w.is_whole());
        wait_until("attaching one more wire", 10, whole)
            .unwrap_or_else(|e| panic!("{e}: {:#?}", self.wire.status()));
        (vm, id)
    }

    pub fn status(&self) -> WireStatus {
        self.wire.status().unwrap().into_iter().find(|w| w.id == self.id).unwrap()
    }

    pub fn wait_whole(&self) {
        let whole = wait_until("attaching both interfaces", 10, || self.status().is_whole());
        whole.unwrap_or_else(|e| panic!("{e}: {:#?}", self.status()));
    }

    pub fn counters(&self) -> [SideCounters; 2] {
        self.wire.snapshot().unwrap().wires.into_iter().find(|w| w.id == self.id).unwrap().sides
    }

    /// Returns whether one of three pings from the client is answered.
    pub fn pings(&self, to: &str) -> bool {
        run(self.client.command("ping").args(["-c3", "-i0.05", "-W1", to])).is_ok()
    }

    /// Returns whether pings are answered, now or once the other threads have a core again.
    pub fn answers(&self, to: &str) -> bool {
        wait_until("a ping", 20, || self.pings(to)).is_ok()
    }

    /// Waits until the wire forwards; bridges and IPv6 need a moment.
    pub fn wait_forwarding(&self) {
        wait_until("a ping through the wire", 10, || self.pings(VM4)).unwrap();
        wait_until("an IPv6 ping through the wire", 10, || self.pings(VM6)).unwrap();
    }

    /// Asserts that every frame has one owner, and that the kernel returned none twice.
    pub fn check_frames(&self) {
        let s = self.wire.snapshot().unwrap();
        let queued: u32 = self
            .wire
            .status()
            .unwrap()
            .iter()
            .flat_map(|w| &w.sides)
            .filter_map(|s| s.attached)
            .map(|a| a.queues)
            .sum();
        assert_eq!(s.frames.total(), 16384, "{:?}", s.frames);
        assert!(s.frames.receive <= queued * 512, "{:?} in {queued} queues", s.frames);
        assert_eq!(s.refused, 0);
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:#?}\n{:#?}", self.wire.status(), self.wire.snapshot());
        }
    }
}
