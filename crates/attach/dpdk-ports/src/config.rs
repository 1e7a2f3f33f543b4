//! The configuration of ports.

use std::path::PathBuf;

/// The devices that are ports, and how DPDK is started.
#[derive(Clone, Debug, Default)]
pub struct DpdkConfig {
    /// DPDK's names of the devices, in the order of the ports' numbers: a virtual device with its arguments
    /// (`net_af_packet0,iface=eth0`), or a PCI address.
    pub devices: Vec<String>,
    /// EAL's options, separated by blanks. By default those that suit the devices and the machine.
    pub options: Option<String>,
    /// `libp4shield_ethdev.so`, by default that of this installation.
    pub library: Option<PathBuf>,
}
