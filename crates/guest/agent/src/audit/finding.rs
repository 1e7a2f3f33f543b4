//! What an audit can find, in words, in JSON and as an exit code.

use p4shield_abi::Direction;
use serde::{Serialize, Serializer};

/// Something that an honest cloud does not do, or that keeps the audit from vouching for the packets.
///
/// Serialises as `{"finding": "bypassed", "direction": "ingress", "packets": 3, ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// Packets at the interface that the program never judged.
    Bypassed {
        /// Of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// How many.
        packets: u64,
        /// Whether it is the exact number; otherwise there may be more.
        exact: bool,
    },
    /// As many packets as judged, and not the same ones.
    Swapped {
        /// Of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
    },
    /// Packets that the program passed and that never came to the VM's interface.
    Withheld {
        /// How many.
        packets: u64,
        /// Whether it is the exact number; otherwise there may be more.
        exact: bool,
    },
    /// Packets that the program judged as the VM's, and that the VM never sent.
    Invented {
        /// How many.
        packets: u64,
        /// Whether it is the exact number; otherwise there may be more.
        exact: bool,
    },
    /// Publications on the log page that do not authenticate.
    LogForged {
        /// How many.
        records: u64,
    },
    /// Genuine records that were shown again after newer ones.
    LogReplayed {
        /// How many.
        records: u64,
    },
    /// Genuine records that do not follow from each other.
    LogChainBroken {
        /// How many.
        records: u64,
    },
    /// Genuine records that came too long after they were made, or before.
    LogDelayed {
        /// How far the worst was off, milliseconds.
        by_ms: u64,
    },
    /// No new record for too long.
    LogStopped {
        /// For how long, milliseconds.
        silent_ms: u64,
    },
    /// The P4 VM started anew.
    Restarted {
        /// Its new epoch.
        epoch: u64,
    },
    /// Packets around a restart of the P4 VM that no record speaks of.
    Unaccounted {
        /// Of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// How many.
        packets: u64,
    },
    /// Packets after the last record of a log that had stopped when the audit ended: whether they went through the
    /// program, nobody has said.
    Unrecorded {
        /// Of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// How many.
        packets: u64,
    },
    /// Publications on the info page that the P4 VM refused: the cloud tampered with what this VM reveals to its
    /// programs.
    InfoRefused {
        /// Did not authenticate.
        forged: u64,
        /// Were older than what had been seen.
        replayed: u64,
    },
    /// The audit ended before it had anything to compare with.
    Unproven {
        /// Of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
    },
}

fn direction_name<S: Serializer>(d: &Direction, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(d.name())
}

/// Exit codes of `p4shield audit`. With several findings the first in this order counts. 1 and 2 are for errors of
/// operation and of usage, as everywhere.
pub mod exit_code {
    /// Every packet went through.
    pub const OK: u8 = 0;
    /// Packets went round the program.
    pub const BYPASSED: u8 = 10;
    /// Packets were swapped.
    pub const SWAPPED: u8 = 11;
    /// Packets were judged that the VM never sent.
    pub const INVENTED: u8 = 12;
    /// Packets were judged but never arrived.
    pub const WITHHELD: u8 = 13;
    /// The log was forged, replayed, or does not continue.
    pub const LOG_FORGED: u8 = 14;
    /// The log stopped, or comes too late.
    pub const LOG_STOPPED: u8 = 15;
    /// The P4 VM restarted.
    pub const RESTARTED: u8 = 16;
    /// Nothing was found, and nothing was proven either. Counts after all others.
    pub const UNPROVEN: u8 = 17;
    /// The P4 VM was shown forged or replayed information.
    pub const INFO_REFUSED: u8 = 18;
}

impl Finding {
    /// The exit code that it stands for.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Bypassed { .. } => exit_code::BYPASSED,
            Self::Swapped { .. } => exit_code::SWAPPED,
            Self::Invented { .. } => exit_code::INVENTED,
            Self::Withheld { .. } => exit_code::WITHHELD,
            Self::LogForged { .. } | Self::LogReplayed { .. } | Self::LogChainBroken { .. } => {
                exit_code::LOG_FORGED
            }
            Self::LogDelayed { .. } | Self::LogStopped { .. } | Self::Unrecorded { .. } => {
                exit_code::LOG_STOPPED
            }
            Self::Restarted { .. } | Self::Unaccounted { .. } => exit_code::RESTARTED,
            Self::InfoRefused { .. } => exit_code::INFO_REFUSED,
            Self::Unproven { .. } => exit_code::UNPROVEN,
        }
    }
}

/// The exit code of an audit that found these: that of the worst.
#[must_use]
pub fn exit_code_of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> u8 {
    let worst = findings.into_iter().map(Finding::exit_code).min_by_key(|c| (*c == exit_code::UNPROVEN, *c));
    worst.unwrap_or(exit_code::OK)
}

/// `3 packets` or `1 packet`, with `at least` before it if that is all that is known.
fn packets(n: u64, exact: bool) -> String {
    let least = if exact { "" } else { "at least " };
    if n == 1 { format!("{least}1 packet") } else { format!("{least}{n} packets") }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bypassed { direction: Direction::Ingress, packets: n, exact } => {
                write!(f, "ingress: {} went round the program", packets(*n, *exact))
            }
            Self::Bypassed { direction: Direction::Egress, packets: n, exact } => write!(
                f,
                "egress: {} went round the program, or were lost on the way to it (sent by this VM and never judged)",
                packets(*n, *exact)
            ),
            Self::Swapped { direction } => write!(
                f,
                "{}: packets were swapped or changed: as many as judged, and not the same ones",
                direction.name()
            ),
            Self::Withheld { packets: n, exact } => {
                write!(f, "ingress: {} judged but never arrived", packets(*n, *exact))
            }
            Self::Invented { packets: n, exact } => {
                write!(f, "egress: {} judged that this VM never sent", packets(*n, *exact))
            }
            Self::LogForged { records } => {
                write!(f, "the log was forged: {records} publications do not authenticate")
            }
            Self::LogReplayed { records } => {
                write!(f, "the log was replayed: {records} old records came back")
            }
            Self::LogChainBroken { records } => write!(
                f,
                "the log was forged: {records} records do not continue the one before (two P4 VMs with one key, or one rolled back)"
            ),
            Self::LogDelayed { by_ms } => write!(
                f,
                "the log is delayed: a record was made {by_ms} ms away from when it came (or a clock is wrong)"
            ),
            Self::LogStopped { silent_ms } => write!(f, "the log stopped: no record for {silent_ms} ms"),
            Self::Restarted { .. } => f.write_str("the P4 VM restarted: its counters began anew"),
            Self::Unaccounted { direction, packets: n } => write!(
                f,
                "{}: {} around the restart that no record speaks of",
                direction.name(),
                packets(*n, true)
            ),
            Self::Unrecorded { direction, packets: n } => {
                write!(f, "{}: {} after the log stopped", direction.name(), packets(*n, true))
            }
            Self::InfoRefused { forged, replayed } => write!(
                f,
                "the P4 VM refused information of this VM: {forged} publications forged, {replayed} replayed"
            ),
            Self::Unproven { direction } => {
                write!(f, "{}: not enough was seen to say that every packet went through", direction.name())
            }
        }
    }
}

/// Something worth knowing that is nobody's fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Notice {
    /// From here on every packet is accounted for.
    Aligned {
        /// Of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
    },
    /// Packets came that cannot be digested, so that a swap of packets cannot be seen for a while.
    SwapDetectionOff {
        /// Of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// How many such packets there were.
        not_whole: u64,
    },
    /// The log goes on.
    LogResumed,
    /// The P4 VM found this VM's information too old: the agent stopped, or the cloud holds its page back.
    InfoStale {
        /// How often.
        times: u64,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Aligned { direction } => {
                write!(f, "{}: from here on every packet is accounted for", direction.name())
            }
            Self::SwapDetectionOff { direction, not_whole } => write!(
                f,
                "{}: {not_whole} packets were no single whole frames here (segmentation offload, or a VLAN tag kept beside the data): they were counted, but swapped ones among them cannot be seen; `ethtool -K IF tso off gso off gro off txvlan off rxvlan off` mends that",
                direction.name()
            ),
            Self::LogResumed => f.write_str("the log goes on"),
            Self::InfoStale { times } => write!(
                f,
                "the P4 VM found this VM's information too old, {times} times since the last word about it: the agent stopped, or the cloud holds its page back"
            ),
        }
    }
}
