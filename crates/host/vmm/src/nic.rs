//! The network devices of a machine.

use crate::vhost::VhostNic;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// The switch sees whole packets with their checksums: AF_XDP knows no offloads.
const NO_OFFLOADS: &str =
    ",csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off";

/// Without KVM, QEMU 7.2 follows a null pointer when a guest masks an MSI-X vector of a vhost-user device.
const NO_VECTORS: &str = ",vectors=0";
/// Interrupts of a device with several queue pairs beside one for each queue: its state, and commands.
const OTHER_VECTORS: u16 = 2;

/// A network device of a machine, with a tap.
#[derive(Debug)]
pub struct Nic {
    /// The tap with its packets.
    pub tap: OwnedFd,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// Bytes of the longest packet behind the Ethernet header.
    pub mtu: u32,
}

/// A network device of a machine, by the way in which the host has its packets.
#[derive(Debug)]
pub enum NetworkDevice {
    /// A tap, which QEMU reads and writes.
    Tap(Nic),
    /// A vhost-user switch, which maps the machine's memory.
    VhostUser(VhostNic),
}

impl NetworkDevice {
    /// Returns the descriptor that QEMU has to inherit.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if let Self::Tap(nic) = self { Some(nic.tap.as_fd()) } else { None }
    }

    /// Returns whether another process has to map the machine's memory.
    pub(crate) const fn shares_memory(&self) -> bool {
        matches!(self, Self::VhostUser(_))
    }

    /// Returns QEMU's options, each with its value, for the device of this number in a machine whose
    /// processor QEMU emulates, or not.
    pub(crate) fn options(&self, number: usize, is_emulated: bool) -> Vec<[String; 2]> {
        let option = |name: &str, value| [format!("-{name}"), value];
        let device = |address: [u8; 6], more: &str| {
            let address = address.map(|byte| format!("{byte:02x}")).join(":");
            let queue = "romfile=,rx_queue_size=1024";
            let device =
                format!("virtio-net-pci,netdev=port{number},mac={address}{more},{queue}{NO_OFFLOADS}");
            option("device", device)
        };
        match self {
            Self::Tap(Nic { tap, address, mtu }) => {
                let netdev = format!("tap,id=port{number},fd={}", tap.as_raw_fd());
                vec![option("netdev", netdev), device(*address, &format!(",host_mtu={mtu}"))]
            }
            Self::VhostUser(nic) => vec![
                option("chardev", format!("socket,id=vhost{number},{}", nic.listening())),
                option("netdev", format!("vhost-user,id=port{number},chardev=vhost{number}{}", nic.pairs())),
                device(nic.address, &nic.settings(is_emulated)),
            ],
        }
    }
}

impl VhostNic {
    /// Returns the setting of the netdev if it has several queue pairs.
    fn pairs(&self) -> String {
        if self.queues > 1 { format!(",queues={}", self.queues) } else { String::new() }
    }

    /// Returns the settings of the device.
    fn settings(&self, is_emulated: bool) -> String {
        // Not every switch knows the feature with which the machine hears of an MTU.
        let mtu = self.mtu.map(|mtu| format!(",host_mtu={mtu}")).unwrap_or_default();
        let (several, vectors) = match self.queues {
            0..=1 => ("", String::new()),
            pairs => (",mq=on", format!(",vectors={}", 2 * pairs + OTHER_VECTORS)),
        };
        let vectors = if is_emulated { NO_VECTORS } else { &vectors };
        format!("{mtu}{several}{vectors}")
    }
}
