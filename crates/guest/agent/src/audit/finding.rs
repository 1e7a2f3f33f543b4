//! Findings of an audit, as text, JSON and exit codes.

use p4shield_abi::Direction;
use serde::{Serialize, Serializer};

/// A difference that an honest cloud does not cause, or an event that prevents the proof.
///
/// Serialises as `{"finding": "bypassed", "direction": "ingress", "packets": 3, ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The interface counted packets that the program never judged.
    Bypassed {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// Number of packets.
        packets: u64,
        /// Whether the number is exact; otherwise there may be more.
        exact: bool,
    },
    /// The numbers of packets match, but the packets differ.
    Swapped {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
    },
    /// Packets that the program passed never reached the VM's interface.
    Withheld {
        /// Number of packets.
        packets: u64,
        /// Whether the number is exact; otherwise there may be more.
        exact: bool,
    },
    /// The program judged packets as the VM's that the VM never sent.
    Invented {
        /// Number of packets.
        packets: u64,
        /// Whether the number is exact; otherwise there may be more.
        exact: bool,
    },
    /// Publications on the log page are not authentic.
    LogForged {
        /// Number of publications.
        records: u64,
    },
    /// Genuine records were replayed after newer ones.
    LogReplayed {
        /// Number of records.
        records: u64,
    },
    /// Genuine records do not continue the previous record.
    LogChainBroken {
        /// Number of records.
        records: u64,
    },
    /// Genuine records arrived too long after, or before, their time.
    LogDelayed {
        /// Largest difference in milliseconds.
        by_ms: u64,
    },
    /// No new record arrived for too long.
    LogStopped {
        /// Silence in milliseconds.
        silent_ms: u64,
    },
    /// The P4 VM restarted.
    Restarted {
        /// Its new epoch.
        epoch: u64,
    },
    /// No record covers some packets around a restart of the P4 VM.
    Unaccounted {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// Number of packets.
        packets: u64,
    },
    /// The log had stopped when the audit ended, and no record covers the packets after its last record.
    Unrecorded {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// Number of packets.
        packets: u64,
    },
    /// The P4 VM refused publications on the info page: the cloud tampered with the in-VM information.
    InfoRefused {
        /// Number of publications that are not authentic.
        forged: u64,
        /// Number of publications that are older than accepted ones.
        replayed: u64,
    },
    /// The audit ended before it could compare any packets.
    Unproven {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
    },
}

fn direction_name<S: Serializer>(d: &Direction, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(d.name())
}

/// Exit codes of `p4shield audit`. With several findings, the first code in this order applies. As usual, 1
/// and 2 stand for errors of operation and of usage.
pub mod exit_code {
    /// Every packet went through the program.
    pub const OK: u8 = 0;
    /// Packets bypassed the program.
    pub const BYPASSED: u8 = 10;
    /// Packets were swapped.
    pub const SWAPPED: u8 = 11;
    /// The program judged packets that the VM never sent.
    pub const INVENTED: u8 = 12;
    /// Packets that the program passed never arrived.
    pub const WITHHELD: u8 = 13;
    /// The log was forged or replayed, or does not continue.
    pub const LOG_FORGED: u8 = 14;
    /// The log stopped, or is late.
    pub const LOG_STOPPED: u8 = 15;
    /// The P4 VM restarted.
    pub const RESTARTED: u8 = 16;
    /// There are no findings, but no proof either. Ranks after all other codes.
    pub const UNPROVEN: u8 = 17;
    /// The P4 VM received forged or replayed in-VM information.
    pub const INFO_REFUSED: u8 = 18;
}

impl Finding {
    /// Returns the exit code of the finding.
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

/// Returns the exit code of the worst finding.
#[must_use]
pub fn exit_code_of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> u8 {
    let worst = findings.into_iter().map(Finding::exit_code).min_by_key(|c| (*c == exit_code::UNPROVEN, *c));
    worst.unwrap_or(exit_code::OK)
}

/// Formats `3 packets` or `1 packet`, with `at least` if the number is not exact.
fn packets(n: u64, exact: bool) -> String {
    let least = if exact { "" } else { "at least " };
    if n == 1 { format!("{least}1 packet") } else { format!("{least}{n} packets") }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bypassed { direction: Direction::Ingress, packets: n, exact } => {
                write!(
                    f,
                    "ingress: {} bypassed the program; ask the provider why the mediator did not submit them",
                    packets(*n, *exact)
                )
            }
            Self::Bypassed { direction: Direction::Egress, packets: n, exact } => write!(
                f,
                "egress: {} from this VM bypassed the program, or were lost before it; ask the provider why",
                packets(*n, *exact)
            ),
            Self::Swapped { direction } => write!(
                f,
                "{}: the cloud swapped or changed packets (as many as the program judged, but others); ask \
                 the provider why",
                direction.name()
            ),
            Self::Withheld { packets: n, exact } => {
                write!(
                    f,
                    "ingress: {} that the program passed never arrived; ask the provider why",
                    packets(*n, *exact)
                )
            }
            Self::Invented { packets: n, exact } => {
                write!(
                    f,
                    "egress: the program judged {} that this VM never sent; ask the provider why",
                    packets(*n, *exact)
                )
            }
            Self::LogForged { records } => {
                write!(
                    f,
                    "the cloud forged the log: {records} publications are not authentic; check that \
                     auditor and P4 VM have the same tenant key"
                )
            }
            Self::LogReplayed { records } => {
                write!(f, "the cloud replayed the log: {records} old records returned; ask the provider why")
            }
            Self::LogChainBroken { records } => write!(
                f,
                "the log was forged: {records} records do not continue the previous one; check that only \
                 one P4 VM has this VM's key and that it was not rolled back"
            ),
            Self::LogDelayed { by_ms } => write!(
                f,
                "the cloud delayed the log: a record arrived {by_ms} ms away from its time; check both clocks"
            ),
            Self::LogStopped { silent_ms } => {
                write!(f, "the log stopped: no record for {silent_ms} ms; check that the P4 VM is running")
            }
            Self::Restarted { .. } => f.write_str(
                "the P4 VM restarted, and its counters with it; ask the provider why if this is unexpected",
            ),
            Self::Unaccounted { direction, packets: n } => write!(
                f,
                "{}: no record covers {} around the restart of the P4 VM, so they are not audited",
                direction.name(),
                packets(*n, true)
            ),
            Self::Unrecorded { direction, packets: n } => {
                write!(
                    f,
                    "{}: no record covers {} after the log stopped; check that the P4 VM is running",
                    direction.name(),
                    packets(*n, true)
                )
            }
            Self::InfoRefused { forged, replayed } => write!(
                f,
                "the P4 VM refused in-VM information: the cloud forged {forged} publications and replayed \
                 {replayed}; ask the provider why, and check that agent and P4 VM have the same key"
            ),
            Self::Unproven { direction } => {
                write!(
                    f,
                    "{}: too little was counted to prove that every packet went through; audit for longer",
                    direction.name()
                )
            }
        }
    }
}

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
    /// The log resumed.
    LogResumed,
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
                "{}: {not_whole} packets could not be digested (segmentation offload, or a VLAN tag beside \
                 the data): the audit counts them, but does not detect swaps among them; to digest them, \
                 run `ethtool -K IF tso off gso off gro off txvlan off rxvlan off`",
                direction.name()
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
