//! Configuration of agent and auditor. The CLI reads it from TOML; defaults are what most VMs want.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use p4shield_abi::Direction;
use p4shield_abi::info::{APP_VALUES, INTERFACES};
use serde::{Deserialize, Serialize};

use crate::page::PagePlace;
use crate::tap::Hook;

/// Who this VM is, and the secret it shares with its P4 VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmConfig {
    /// The tenant's name.
    pub tenant: String,
    /// The user VM's name.
    pub name: String,
    /// The tenant's key, a file of mode 0600.
    pub key: PathBuf,
}

/// From which TCP memory on the tenant wants to shed load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threshold {
    /// So many bytes.
    Bytes(u64),
    /// A share, 0 to 1, of the hard limit: the third number of `net.ipv4.tcp_mem`.
    Fraction(f64),
}

/// An interface whose traffic programs may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: String,
    /// Its speed in megabits per second, where the driver does not know it or says something else.
    #[serde(default)]
    pub speed_mbps: Option<u64>,
}

/// `p4shield agent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Who this VM is.
    pub vm: VmConfig,
    /// The info page. A file is made if there is none.
    pub info_page: PagePlace,
    /// The file that keeps epochs from coming twice. It must survive restarts.
    #[serde(default = "default_epoch_file")]
    pub epoch_file: PathBuf,
    /// The socket for `p4shield agent set` and `status`.
    #[serde(default = "default_socket")]
    pub socket: PathBuf,
    /// Milliseconds between publications.
    #[serde(default = "default_interval_ms")]
    pub interval_ms: u64,
    /// The tenant's threshold for TCP memory.
    #[serde(default = "default_threshold")]
    pub threshold: Threshold,
    /// Interfaces to report, in the order in which programs number them.
    #[serde(default)]
    pub interfaces: Vec<InterfaceConfig>,
    /// Milliseconds that traffic rates are averaged over.
    #[serde(default = "default_window_ms")]
    pub window_ms: u64,
    /// Names for the slots of application values.
    #[serde(default)]
    pub names: BTreeMap<String, u32>,
}

/// `p4shield audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditConfig {
    /// Who this VM is.
    pub vm: VmConfig,
    /// The log page.
    pub log_page: PagePlace,
    /// The interface that the P4 VM guards.
    pub interface: String,
    /// The VM's addresses, where the cloud's mediator finds its packets by them (a port that VMs share). Empty on a
    /// wire, where the mediator submits every IP packet but neighbour discovery.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Milliseconds between the P4 VM's log records.
    #[serde(default = "default_log_interval_ms")]
    pub log_interval_ms: u64,
    /// Longest time, in milliseconds, that a mediator holds a packet (the tenant's deadline) or a queue on the way
    /// delays it.
    #[serde(default = "default_hold_ms")]
    pub hold_ms: u64,
    /// Whether packets to this VM are audited.
    #[serde(default = "default_audited")]
    pub ingress: bool,
    /// Whether packets from this VM are audited. Those of a direction that the tenant has nobody asked about
    /// (`no_program = "skip"`) are in no log and cannot be.
    #[serde(default = "default_audited")]
    pub egress: bool,
    /// Where the tap is attached on ingress.
    #[serde(default)]
    pub hook: Hook,
    /// Do without the tap, and compare with the interface's counters only.
    #[serde(default)]
    pub counters_only: bool,
    /// With counters only: frames a second that no mediator submits (ARP, neighbour discovery) and that are not to be
    /// taken for a bypass.
    #[serde(default = "default_unmediated")]
    pub unmediated_per_second: u64,
}

fn default_epoch_file() -> PathBuf {
    "/var/lib/p4shield/info.epoch".into()
}

fn default_socket() -> PathBuf {
    "/run/p4shield/agent.sock".into()
}

const fn default_interval_ms() -> u64 {
    10
}

const fn default_threshold() -> Threshold {
    Threshold::Fraction(0.9)
}

const fn default_window_ms() -> u64 {
    500
}

const fn default_log_interval_ms() -> u64 {
    100
}

const fn default_hold_ms() -> u64 {
    50
}

const fn default_audited() -> bool {
    true
}

const fn default_unmediated() -> u64 {
    5
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No time between publications, or more than a program could ever call fresh.
    #[error("interval_ms is {0}; it must be 1 to 10000")]
    Interval(u64),
    /// A share that is none.
    #[error(
        "threshold fraction is {0}; it must be between 0 and 1 (of the third number of net.ipv4.tcp_mem)"
    )]
    Fraction(f64),
    /// A slot that does not exist.
    #[error("name {name} stands for slot {slot}; slots are 0 to {}", APP_VALUES - 1)]
    Slot {
        /// The name.
        name: String,
        /// The slot.
        slot: u32,
    },
    /// A name that reads as a slot number.
    #[error("name {0} is a number; numbers always mean the slot itself")]
    NumericName(String),
    /// Neither direction is to be audited.
    #[error("nothing is to be audited: name a direction")]
    NoDirection,
    /// More interfaces than a snapshot holds.
    #[error("{0} interfaces are configured; a snapshot has room for {INTERFACES}")]
    Interfaces(usize),
}

impl AgentConfig {
    /// The smallest configuration: everything else has its default.
    #[must_use]
    pub fn new(vm: VmConfig, info_page: impl Into<PagePlace>) -> Self {
        Self {
            vm,
            info_page: info_page.into(),
            epoch_file: default_epoch_file(),
            socket: default_socket(),
            interval_ms: default_interval_ms(),
            threshold: default_threshold(),
            interfaces: Vec::new(),
            window_ms: default_window_ms(),
            names: BTreeMap::new(),
        }
    }

    /// Time between publications.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    ///
    /// On the first number that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=10_000).contains(&self.interval_ms) {
            return Err(ConfigError::Interval(self.interval_ms));
        }
        if let Threshold::Fraction(f) = self.threshold
            && !(0.0..=1.0).contains(&f)
        {
            return Err(ConfigError::Fraction(f));
        }
        if self.interfaces.len() > INTERFACES {
            return Err(ConfigError::Interfaces(self.interfaces.len()));
        }
        for (name, slot) in &self.names {
            if *slot as usize >= APP_VALUES {
                return Err(ConfigError::Slot { name: name.clone(), slot: *slot });
            }
            if name.parse::<u32>().is_ok() {
                return Err(ConfigError::NumericName(name.clone()));
            }
        }
        Ok(())
    }
}

impl AuditConfig {
    /// The smallest configuration: everything else has its default.
    #[must_use]
    pub fn new(
        vm: VmConfig,
        log_page: impl Into<PagePlace>,
        interface: String,
        addresses: Vec<IpAddr>,
    ) -> Self {
        Self {
            vm,
            log_page: log_page.into(),
            interface,
            addresses,
            log_interval_ms: default_log_interval_ms(),
            hold_ms: default_hold_ms(),
            ingress: true,
            egress: true,
            hook: Hook::default(),
            counters_only: false,
            unmediated_per_second: default_unmediated(),
        }
    }

    /// The directions that are audited.
    #[must_use]
    pub fn directions(&self) -> Vec<Direction> {
        let audited = [(Direction::Ingress, self.ingress), (Direction::Egress, self.egress)];
        audited.into_iter().filter_map(|(direction, audited)| audited.then_some(direction)).collect()
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    ///
    /// On the first number that is out of its range, or if neither direction is audited.
    pub const fn check(&self) -> Result<(), ConfigError> {
        if !self.ingress && !self.egress {
            return Err(ConfigError::NoDirection);
        }
        if !(self.log_interval_ms >= 1 && self.log_interval_ms <= 10_000) {
            return Err(ConfigError::Interval(self.log_interval_ms));
        }
        Ok(())
    }
}
