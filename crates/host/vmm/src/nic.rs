//! The network devices of a machine.

use std::os::fd::OwnedFd;

/// A network device of a machine.
#[derive(Debug)]
pub struct Nic {
    /// The tap with its packets.
    pub tap: OwnedFd,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// Bytes of the longest packet behind the Ethernet header.
    pub mtu: u32,
}

impl Nic {
    /// Returns QEMU's option of the device. The switch sees whole packets with their checksums: AF_XDP knows
    /// no offloads.
    pub(crate) fn device(&self, number: usize) -> String {
        let address = self.address.map(|byte| format!("{byte:02x}")).join(":");
        let offloads = ["csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"];
        let offloads = offloads.map(|name| format!(",{name}=off")).concat();
        let mtu = self.mtu;
        format!(
            "virtio-net-pci,netdev=port{number},mac={address},host_mtu={mtu},romfile=,rx_queue_size=1024\
             {offloads}"
        )
    }
}
