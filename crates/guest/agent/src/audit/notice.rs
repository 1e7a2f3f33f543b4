//! Notices of an audit.

use p4shield_abi::Direction;
use serde::Serialize;

use super::finding::{Digest, Share, direction_name};

/// An event worth knowing that is not a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Notice {
    /// From here on the audit accounts for every packet.
    Aligned {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
    },
    /// Some packets could not be digested, so swaps are not detected for a while.
    SwapDetectionOff {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// Number of such packets.
        not_whole: u64,
    },
    /// Packets were lost: after judgment on ingress, before it on egress. It is no more than the tenant
    /// accepts.
    Lost {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// These packets, and all packets of the interface, in the last ten seconds.
        #[serde(flatten)]
        share: Share,
    },
    /// The channels of the P4 VM changed, so that digests cover more or fewer bytes of packets. Packets
    /// around the change are compared by their number.
    CoverChanged {
        /// Header bytes that were covered.
        from: u32,
        /// Header bytes that are covered.
        to: u32,
    },
    /// The host told the P4 VM another configuration than before.
    ConfigurationChanged {
        /// Its digest before.
        from: Digest,
        /// Its digest now.
        to: Digest,
    },
    /// The log resumed.
    LogResumed,
    /// The key file has a new key, which the log is expected to follow.
    NewKey,
    /// The P4 VM seals its log with the new key: a rotation is complete.
    KeyRotated,
    /// The P4 VM found the in-VM information too old: the agent stopped, or the cloud delays its page.
    InfoStale {
        /// Number of times.
        times: u64,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Aligned { direction } => {
                write!(f, "{}: from here on the audit accounts for every packet", direction.name())
            }
            Self::SwapDetectionOff { direction, not_whole } => write!(
                f,
                "{}: {not_whole} packets could not be digested (segmentation offload of other protocols than \
                 TCP, or too many packets at once): the audit counts them, but does not detect swaps among \
                 them; to digest them, run `ethtool -K IF gso off gro off`",
                direction.name()
            ),
            Self::Lost { direction: Direction::Ingress, share } => {
                write!(f, "ingress: lost after judgment: {share}")
            }
            Self::Lost { direction: Direction::Egress, share } => {
                write!(f, "egress: without a verdict: {share}")
            }
            Self::NewKey => f.write_str("the key file has a new key; the P4 VM's log is expected to follow"),
            Self::KeyRotated => f.write_str("the P4 VM seals its log with the new key"),
            Self::CoverChanged { from, to } => write!(
                f,
                "digests cover {to} header bytes of packets, and covered {from}: packets around the change \
                 are compared by their number",
            ),
            Self::ConfigurationChanged { from, to } => write!(
                f,
                "the provider changed the configuration from {from} to {to}; the summary states its settings"
            ),
            Self::LogResumed => f.write_str("the log resumed"),
            Self::InfoStale { times } => write!(
                f,
                "the P4 VM found the in-VM information too old {times} times since the last notice: the \
                 agent stopped, or the cloud delays its page",
            ),
        }
    }
}
