//! The counters of each port.

/// Bytes of a counter.
const COUNTER: usize = 8;
/// Counters before those of the reasons, as in `struct counters` of `maps.bpf.h`.
const BEFORE_REASONS: usize = 4;

/// Reason to drop a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Too short for its headers, or their lengths contradict it.
    Malformed,
    /// It has a VLAN tag.
    Tag,
    /// The source MAC address is not the port's; from the uplink: it is a port's or a multicast one.
    SourceMac,
    /// It is neither IPv4 nor IPv6 nor ARP.
    Ethertype,
    /// The source IP address is not the port's.
    SourceIp,
    /// ARP in another's name, or not over Ethernet and IPv4.
    Arp,
    /// IPv6 neighbour discovery in another's name, a router's message, or a hidden one.
    Neighbour,
    /// The port may not send to this destination.
    Destination,
    /// The destination's interface is gone.
    NoPort,
    /// Longer than the MTU of the destination's interface, or still to be divided for it.
    TooLong,
    /// The interface is no port of the policy: it is about to become one, or was one.
    Unassigned,
    /// The port sends more than its rate allows.
    Rate,
    /// Its sender left its checksum to its network device, and is a compartment, or would have it written
    /// over what was judged. In traffic control only: XDP does not see it.
    Checksum,
}

impl Reason {
    /// All of them, in the order of the program's `enum reason`.
    pub const ALL: [Self; 13] = [
        Self::Malformed,
        Self::Tag,
        Self::SourceMac,
        Self::Ethertype,
        Self::SourceIp,
        Self::Arp,
        Self::Neighbour,
        Self::Destination,
        Self::NoPort,
        Self::TooLong,
        Self::Unassigned,
        Self::Rate,
        Self::Checksum,
    ];

    /// Returns what to do at the sender, for reasons that are about its settings.
    #[must_use]
    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Checksum => Some(
                "its sender leaves checksums to its network device: csum=off with QEMU, `ethtool -K eth0 tx \
                 off` behind a veth",
            ),
            Self::TooLong => Some(
                "its sender's MTU is greater than the switch's, or its sender has the host divide SCTP, or \
                 packets into small ones: csum=off with QEMU, `ethtool -K eth0 tx off` behind a veth; or a \
                 network card merges what it receives (`ethtool -K CARD lro off`)",
            ),
            _ => None,
        }
    }

    /// Returns its name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Tag => "tag",
            Self::SourceMac => "source_mac",
            Self::Ethertype => "ethertype",
            Self::SourceIp => "source_ip",
            Self::Arp => "arp",
            Self::Neighbour => "neighbour",
            Self::Destination => "destination",
            Self::NoPort => "no_port",
            Self::TooLong => "too_long",
            Self::Unassigned => "unassigned",
            Self::Rate => "rate",
            Self::Checksum => "checksum",
        }
    }
}

/// The counters of a port. Bytes are those of frames without the checksum of Ethernet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// The port's interface.
    pub interface: String,
    /// Frames that the switch received from it.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that the switch redirected to it. The kernel drops those for an interface that is down.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Frames that came from it and were dropped without a known reason, as network cards count them.
    pub unexplained_drops: u64,
    pub(crate) drops: [u64; Reason::ALL.len()],
}

impl PortCounters {
    /// Returns how many frames that came from the port were dropped for a reason.
    #[must_use]
    pub const fn dropped(&self, reason: Reason) -> u64 {
        self.drops[reason as usize]
    }

    /// Returns how many frames that came from the port were dropped.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum::<u64>() + self.unexplained_drops
    }

    /// Bytes of the program's counters on one processor.
    pub(crate) const BYTES: usize = COUNTER * (BEFORE_REASONS + Reason::ALL.len());

    /// Adds the counters of all processors.
    pub(crate) fn sum(interface: &str, processors: &[Vec<u8>]) -> Self {
        let at = |index: usize| {
            let of = |bytes: &Vec<u8>| bytes.get(index * COUNTER..)?.first_chunk().copied();
            processors.iter().filter_map(of).map(u64::from_ne_bytes).sum()
        };
        Self {
            interface: interface.to_owned(),
            received_packets: at(0),
            received_bytes: at(1),
            delivered_packets: at(2),
            delivered_bytes: at(3),
            unexplained_drops: 0,
            drops: std::array::from_fn(|reason| at(BEFORE_REASONS + reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_processors_are_added() {
        let one: Vec<u8> = (1..=17u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(one.len(), PortCounters::BYTES);
        let sum = PortCounters::sum("tap0", &[one.clone(), one]);
        assert_eq!((sum.received_packets, sum.delivered_bytes), (2, 8));
        assert_eq!((sum.dropped(Reason::Malformed), sum.dropped(Reason::Checksum)), (10, 34));
        assert_eq!(sum.dropped_in_all(), 2 * (5..=17).sum::<u64>());
    }

    #[test]
    fn each_reason_is_at_its_place() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{}", reason.name());
        }
    }
}
