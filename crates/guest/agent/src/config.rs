//! Configuration of the agent and the auditor. The CLI fills it in from command-line options.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use p4shield_abi::Direction;
use p4shield_abi::info::{APP_VALUES, INTERFACES};
use p4shield_seal::Identity;
use serde::{Deserialize, Serialize};

use crate::audit::expect::Expectations;
use crate::audit::settings::DEFAULT_AGE_LIMIT_MS;
use crate::audit::{MAX_LOSS_PPM, MIN_COMPARED_PPM};
use crate::page::PageLocation;
use crate::tap::Hook;

/// Identity of this VM, and the key that it shares with its P4 VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmConfig {
    /// The tenant's name.
    pub tenant: String,
    /// The user VM's name.
    pub name: String,
    /// File with the VM's key, of mode 0600. It may be replaced at any time. With a handshake, the agent
    /// replaces it.
    pub key: PathBuf,
}

impl VmConfig {
    /// Returns the identity that is part of every seal.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        Identity { tenant: &self.tenant, vm: &self.name }
    }
}

/// How the agent agrees on keys with the P4 VM, in place of a key that was copied to the VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandshakeConfig {
    /// Location of the handshake page.
    pub page: PageLocation,
    /// The attestation policy that the P4 VM has to meet.
    pub policy: PathBuf,
    /// File with the agent's static key, of mode 0600; none: a new key at each start, which the P4 VM has to
    /// accept from any agent.
    #[serde(default)]
    pub agent_key: Option<PathBuf>,
    /// The tenant's `age_limit`, milliseconds. The P4 VM must have the same.
    #[serde(default = "default_age_limit_ms")]
    pub age_limit_ms: u32,
    /// Whether the tenant's `no_program` is `pass`. The P4 VM must have the same.
    #[serde(default = "default_passes_without_program")]
    pub passes_without_program: bool,
}

/// TCP memory from which on the tenant sheds load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threshold {
    /// A number of bytes.
    Bytes(u64),
    /// A fraction, 0 to 1, of the hard limit: the third number of `net.ipv4.tcp_mem`.
    Fraction(f64),
}

/// An interface whose traffic rates programs may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Name of the interface.
    pub name: String,
    /// Speed in megabits per second, if the driver does not report it correctly.
    #[serde(default)]
    pub speed_mbps: Option<u64>,
}

/// Configuration of `p4shield agent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Identity of this VM.
    pub vm: VmConfig,
    /// Location of the info page. A missing file is created.
    pub info_page: PageLocation,
    /// How the agent agrees on keys; none: the key file has one.
    #[serde(default)]
    pub handshake: Option<HandshakeConfig>,
    /// File with the last epoch, which makes epochs unique. It must survive restarts.
    #[serde(default = "default_epoch_file")]
    pub epoch_file: PathBuf,
    /// Path of the control socket.
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
    /// Milliseconds of the window over which traffic rates are averaged.
    #[serde(default = "default_window_ms")]
    pub window_ms: u64,
    /// Names of application value slots.
    #[serde(default)]
    pub names: BTreeMap<String, u32>,
}

/// Configuration of `p4shield audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditConfig {
    /// Identity of this VM.
    pub vm: VmConfig,
    /// Location of the log page.
    pub log_page: PageLocation,
    /// The audited interface.
    pub interface: String,
    /// The VM's addresses, if it shares a port with other VMs and the mediator identifies its packets by
    /// address. Empty on a wire, where the mediator submits every packet except ARP and neighbour discovery.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Milliseconds between log records of the P4 VM.
    #[serde(default = "default_log_interval_ms")]
    pub log_interval_ms: u64,
    /// Maximum time in milliseconds that a mediator holds a packet (the tenant's deadline) or that a queue
    /// delays it.
    #[serde(default = "default_hold_ms")]
    pub hold_ms: u64,
    /// Audits packets to this VM.
    #[serde(default = "default_audited")]
    pub ingress: bool,
    /// Audits packets from this VM. A direction that bypasses the P4 VM by the tenant's configuration
    /// (`no_program = "skip"`) is in no log and cannot be audited.
    #[serde(default = "default_audited")]
    pub egress: bool,
    /// Hook of the tap on ingress.
    #[serde(default)]
    pub hook: Hook,
    /// Compares with the interface's counters only, without a tap.
    #[serde(default)]
    pub counters_only: bool,
    /// With `counters_only`: frames per second that no mediator submits (ARP, neighbour discovery) and that
    /// do not count as a bypass.
    #[serde(default = "default_unmediated")]
    pub unmediated_per_second: u64,
    /// Milliseconds after a replacement of the key file in which the log may still have the previous key.
    #[serde(default = "default_key_window_ms")]
    pub key_window_ms: u64,
    /// What the log has to show beside the packets.
    #[serde(default)]
    pub expected: Expectations,
    /// Losses between P4 VM and interface that are accepted, in millionths of all packets.
    #[serde(default = "default_max_loss")]
    pub max_loss_ppm: u32,
    /// Packets that have to be compared by their digests, in millionths of all packets.
    #[serde(default = "default_min_compared")]
    pub min_compared_ppm: u32,
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
    200
}

const fn default_key_window_ms() -> u64 {
    600_000
}

const fn default_age_limit_ms() -> u32 {
    DEFAULT_AGE_LIMIT_MS
}

const fn default_passes_without_program() -> bool {
    true
}

const fn default_audited() -> bool {
    true
}

const fn default_unmediated() -> u64 {
    5
}

const fn default_max_loss() -> u32 {
    MAX_LOSS_PPM
}

const fn default_min_compared() -> u32 {
    MIN_COMPARED_PPM
}

/// Reason why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The interval between publications is zero, or too long for programs to see fresh information.
    #[error("interval_ms is {0}; it must be 1 to 10000")]
    Interval(u64),
    /// The fraction is out of range.
    #[error(
        "threshold fraction is {0}; it must be between 0 and 1 (of the third number of net.ipv4.tcp_mem)"
    )]
    Fraction(f64),
    /// The slot does not exist.
    #[error("name {name} refers to slot {slot}; slots are 0 to {}", APP_VALUES - 1)]
    Slot {
        /// The name.
        name: String,
        /// The slot.
        slot: u32,
    },
    /// A name is a number, which would be read as a slot.
    #[error("name {0} is a number; numbers always denote the slot itself")]
    NumericName(String),
    /// Neither direction is audited.
    #[error("no direction is audited; enable ingress or egress")]
    NoDirection,
    /// The configuration has more interfaces than a snapshot.
    #[error("{0} interfaces are configured; a snapshot has room for {INTERFACES}")]
    Interfaces(usize),
}

impl AgentConfig {
    /// Returns a configuration with default values for the other options.
    #[must_use]
    pub fn new(vm: VmConfig, info_page: impl Into<PageLocation>) -> Self {
        Self {
            vm,
            info_page: info_page.into(),
            handshake: None,
            epoch_file: default_epoch_file(),
            socket: default_socket(),
            interval_ms: default_interval_ms(),
            threshold: default_threshold(),
            interfaces: Vec::new(),
            window_ms: default_window_ms(),
            names: BTreeMap::new(),
        }
    }

    /// Returns the time between publications.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Checks ranges that the types do not enforce.
    ///
    /// # Errors
    ///
    /// Returns the first value that is out of range.
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
    /// Returns a configuration with default values for the other options.
    #[must_use]
    pub fn new(
        vm: VmConfig,
        log_page: impl Into<PageLocation>,
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
            key_window_ms: default_key_window_ms(),
            expected: Expectations::default(),
            max_loss_ppm: default_max_loss(),
            min_compared_ppm: default_min_compared(),
        }
    }

    /// Returns the audited directions.
    #[must_use]
    pub fn directions(&self) -> Vec<Direction> {
        let audited = [(Direction::Ingress, self.ingress), (Direction::Egress, self.egress)];
        audited.into_iter().filter_map(|(direction, audited)| audited.then_some(direction)).collect()
    }

    /// Checks ranges that the types do not enforce.
    ///
    /// # Errors
    ///
    /// Returns the first value that is out of range, or an error if no direction is audited.
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
