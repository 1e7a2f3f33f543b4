//! The setup: what a mediator must know of the tenants, as the daemon sends it to a library.
//!
//! With many tenants it is too long for a message, so it travels in shared memory, which the library
//! reads once.

use crate::message::PortInfo;
use p4shield_abi::Direction;
use p4shield_config::{self as config, Config, Placement, Port, Role, Sides, ZeroCopy};
use p4shield_mediator::{self as mediator, FailPolicy, TenantConfig, VmConfig};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// The most bytes of a setup.
const MAX_BYTES: usize = 16 << 20;
/// The most packets that one lane may have to hold.
const MAX_HELD: usize = 1 << 22;

/// The tenants and configured ports, as lanes know them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Whether programs run inside the switch's process.
    pub inline: bool,
    /// Whether ports that are not in the list may belong to VMs by their `external_ids:iface-id`.
    by_iface_id: bool,
    /// The ports that are configured by name.
    pub(crate) ports: Vec<Port>,
    tenants: Vec<Tenant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Tenant {
    name: String,
    fail_pass: bool,
    deadline_ns: u64,
    stall_ns: Option<u64>,
    max_held: u32,
    vms: Vec<Vm>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Vm {
    name: String,
    addresses: Vec<IpAddr>,
    network: Option<u32>,
    skipped: [bool; 2],
}

/// Reason why a setup is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The memory cannot be read or created.
    #[error("cannot read or create the memory of a setup")]
    Memory(#[source] std::io::Error),
    /// The bytes are not a setup.
    #[error("a setup of {0} bytes is not in the protocol's encoding, or too long")]
    Encoding(usize),
    /// The tenants are invalid.
    #[error(transparent)]
    Config(#[from] mediator::ConfigError),
    /// Lanes would need too much memory.
    #[error("all tenants together may hold at most {MAX_HELD} packets a direction; lower their max_held")]
    TooMuch,
}

impl From<&Config> for Setup {
    fn from(config: &Config) -> Self {
        let tenant = |t: TenantConfig| Tenant {
            name: t.name,
            fail_pass: t.fail == FailPolicy::Pass,
            deadline_ns: nanoseconds(t.deadline),
            stall_ns: t.stall.map(nanoseconds),
            max_held: u32::try_from(t.max_held).unwrap_or(u32::MAX),
            vms: t.vms.into_iter().map(Vm::from).collect(),
        };
        Self {
            inline: config.placement == Placement::Inline,
            by_iface_id: config.tenants.iter().flat_map(|t| &t.vms).any(|vm| vm.iface_id.is_some()),
            ports: config.ports.clone(),
            tenants: mediator_config(config).tenants.into_iter().map(tenant).collect(),
        }
    }
}

/// Converts a host's configuration for its mediators.
#[must_use]
pub fn mediator_config(config: &Config) -> mediator::Config {
    let tenant = |t: &config::Tenant| TenantConfig {
        name: t.name.clone(),
        fail: t.fail,
        deadline: t.deadline,
        stall: Some(t.stall),
        max_held: t.max_held,
        vms: t.vms.iter().enumerate().map(|(n, v)| vm_config(t, n, v)).collect(),
    };
    mediator::Config { tenants: config.tenants.iter().map(tenant).collect() }
}

fn vm_config(tenant: &config::Tenant, number: usize, vm: &config::Vm) -> VmConfig {
    VmConfig {
        network: vm.vni,
        skipped: Direction::ALL.map(|d| tenant.skips(number, d)),
        ..VmConfig::new(vm.name.clone(), vm.addresses.clone())
    }
}

impl From<VmConfig> for Vm {
    fn from(VmConfig { name, addresses, network, skipped }: VmConfig) -> Self {
        Self { name, addresses, network, skipped }
    }
}

impl From<Vm> for VmConfig {
    fn from(Vm { name, addresses, network, skipped }: Vm) -> Self {
        Self { name, addresses, network, skipped }
    }
}

fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Setup {
    fn port<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Option<&Port> {
        names.find_map(|name| self.ports.iter().find(|p| p.name == name))
    }

    /// Returns the configured role of a port.
    pub(crate) fn role(&self, port: &PortInfo) -> Role {
        self.port(port.names()).map(|p| p.role).unwrap_or_default()
    }

    /// Returns whether ingress packets of a port may have to be judged at its transmit side.
    pub(crate) fn may_judge_at_transmit(&self, port: &PortInfo) -> bool {
        match self.port(port.names()) {
            Some(port) => matches!(port.role, Role::Vm(_)) && port.sides == Sides::Both,
            None => self.by_iface_id,
        }
    }

    /// Returns the tenant whose P4 VM may read the packet memory of a port with this name.
    pub(crate) fn packet_memory_of(&self, name: &str) -> Option<&str> {
        self.packet_memory_reader(self.port(std::iter::once(name))?)
    }

    /// Returns whether a P4 VM may read the packet memory of any port.
    pub(crate) fn shares_packet_memory(&self) -> bool {
        self.ports.iter().any(|port| self.packet_memory_reader(port).is_some())
    }

    fn packet_memory_reader(&self, port: &Port) -> Option<&str> {
        let Role::Vm(vm) = port.role else { return None };
        let may = port.zero_copy == ZeroCopy::Auto && !self.inline;
        self.tenants.get(usize::from(vm.tenant)).filter(|_| may).map(|t| t.name.as_str())
    }

    /// Returns the mediators' configuration.
    ///
    /// # Errors
    /// It is invalid or needs too much memory.
    pub fn mediator(&self) -> Result<mediator::Config, SetupError> {
        let tenant = |t: &Tenant| TenantConfig {
            name: t.name.clone(),
            fail: if t.fail_pass { FailPolicy::Pass } else { FailPolicy::Drop },
            deadline: Duration::from_nanos(t.deadline_ns),
            stall: t.stall_ns.map(Duration::from_nanos),
            max_held: t.max_held as usize,
            vms: t.vms.iter().cloned().map(VmConfig::from).collect(),
        };
        let held = self.tenants.iter().fold(0_usize, |sum, t| sum.saturating_add(t.max_held as usize));
        if held > MAX_HELD {
            return Err(SetupError::TooMuch);
        }
        let config = mediator::Config { tenants: self.tenants.iter().map(tenant).collect() };
        // Lanes' mediators are not refused later.
        config.validate()?;
        Ok(config)
    }

    /// Returns memory with the setup, and its length.
    ///
    /// # Errors
    /// The setup is too long, or there is no memory.
    pub fn to_memory(&self) -> Result<(OwnedFd, u32), SetupError> {
        use std::io::Write;
        let bytes = postcard::to_stdvec(self).map_err(|_| SetupError::Encoding(0))?;
        let len = u32::try_from(bytes.len()).ok().filter(|n| *n as usize <= MAX_BYTES);
        let len = len.ok_or(SetupError::Encoding(bytes.len()))?;
        let fd =
            memfd_create("p4shield-setup", MemfdFlags::CLOEXEC).map_err(|e| SetupError::Memory(e.into()))?;
        let mut file = std::fs::File::from(fd);
        file.write_all(&bytes).map_err(SetupError::Memory)?;
        Ok((file.into(), len))
    }

    /// Reads a setup from memory.
    ///
    /// # Errors
    /// The memory holds no valid setup.
    pub fn from_memory(fd: &OwnedFd, len: u32) -> Result<Self, SetupError> {
        let len = len as usize;
        if len > MAX_BYTES {
            return Err(SetupError::Encoding(len));
        }
        let mut bytes = vec![0; len];
        let mut at = 0;
        while at < len {
            match rustix::io::pread(fd, &mut bytes[at..], at as u64) {
                Ok(0) => return Err(SetupError::Encoding(at)),
                Ok(n) => at += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(SetupError::Memory(e.into())),
            }
        }
        Self::decode(&bytes)
    }

    /// Reads a setup from bytes. Entry point of fuzzing.
    ///
    /// # Errors
    /// The bytes are no valid setup.
    pub fn decode(bytes: &[u8]) -> Result<Self, SetupError> {
        match postcard::take_from_bytes(bytes) {
            Ok((setup, [])) => Ok(setup),
            _ => Err(SetupError::Encoding(bytes.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const PORTS: &str = r#"
attachment = "xsk"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
iface_id = "8d6b"
[[port]]
name = "tap0"
tenant = "alice"
vm = "web"
zero_copy = "auto"
[[port]]
name = "eth0"
role = "uplink"
"#;

    fn setup(text: &str) -> Setup {
        Setup::from(&Config::parse(Path::new("p4shield.toml"), text).unwrap())
    }

    #[test]
    fn ports_of_vms_may_judge_at_their_transmit_side() {
        let may = |text: &str| {
            let port = |name: &str| PortInfo { name: name.to_owned(), ..PortInfo::default() };
            ["tap0", "eth0", "tap7"].map(|name| setup(text).may_judge_at_transmit(&port(name)))
        };
        assert_eq!(may(PORTS), [true, false, true], "tap7 may have the VM's iface-id");
        assert_eq!(may(&PORTS.replace("iface_id = \"8d6b\"\n", "")), [true, false, false]);
        assert_eq!(may(&PORTS.replace("zero_copy", "sides = \"receive\"\nzero_copy")), [false, false, true]);
    }

    #[test]
    fn packet_memory_is_shared_as_the_port_says() {
        let reader = |text: &str, name: &str| setup(text).packet_memory_of(name).map(str::to_owned);
        assert_eq!(reader(PORTS, "tap0").as_deref(), Some("alice"));
        assert_eq!(reader(PORTS, "eth0"), None);
        assert_eq!(reader(&PORTS.replace("auto", "off"), "tap0"), None);
        assert_eq!(reader(&format!("placement = \"inline\"{PORTS}"), "tap0"), None, "no P4 VM reads packets");
    }

    #[test]
    fn a_setup_reads_back() {
        let setup = setup(PORTS);
        let (memory, len) = setup.to_memory().unwrap();
        assert_eq!(Setup::from_memory(&memory, len).unwrap(), setup);
    }
}
