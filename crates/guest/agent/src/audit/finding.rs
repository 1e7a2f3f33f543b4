//! Findings of an audit, as text, JSON and exit codes.

use p4shield_abi::Direction;
use serde::{Serialize, Serializer};

pub use super::exit_code;
pub use super::notice::Notice;
pub use super::values::{Digest, Share};

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
        /// Number of packets.
        packets: u64,
    },
    /// More packets that the program passed never reached the VM's interface than the tenant accepts.
    Withheld {
        /// These packets, and all packets of the interface.
        #[serde(flatten)]
        share: Share,
    },
    /// Some packets from the VM have no verdict: they were lost before the program, or bypassed it.
    Unjudged {
        /// These packets, and all packets of the interface.
        #[serde(flatten)]
        share: Share,
    },
    /// Fewer packets were compared by their digests than the tenant accepts.
    Uncompared {
        /// Direction of the packets.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// Compared packets, and all packets.
        #[serde(flatten)]
        share: Share,
    },
    /// Another program than the expected one was loaded.
    OtherProgram {
        /// Direction of the program.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// SHA-256 digest of the program.
        digest: Digest,
    },
    /// No program was loaded.
    NoProgram {
        /// Direction of the program.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// Packets that were judged without a program.
        packets: u64,
    },
    /// Programs were replaced without an announcement.
    Replaced {
        /// Number of replacements.
        replacements: u64,
    },
    /// The P4 VM has fewer header bytes of packets than expected.
    ShortHeaders {
        /// Header bytes.
        header_bytes: u32,
        /// Least expected number.
        expected: u32,
    },
    /// The host told the P4 VM another setting than the expected one.
    OtherSetting {
        /// The setting, as the configuration calls it.
        setting: &'static str,
        /// Its value by the log.
        stated: String,
        /// The expected value.
        expected: String,
    },
    /// The interface was removed, and another one with its name was added.
    Replugged,
    /// Frames passed the interface while no tap was attached.
    Unseen {
        /// Direction of the frames.
        #[serde(serialize_with = "direction_name")]
        direction: Direction,
        /// Number of frames.
        frames: u64,
    },
    /// The tap is at another hook than before.
    TapMoved {
        /// The hooks before.
        from: String,
        /// The hooks now.
        to: String,
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
    /// Records are sealed with the previous key, which has ended.
    LogOldKey {
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
    /// When the audit ended, no record covered packets that should be in one: the log had stopped.
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

pub(super) fn direction_name<S: Serializer>(d: &Direction, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(d.name())
}

impl Finding {
    /// Returns the direction that the finding concerns; `None` for both.
    #[must_use]
    pub const fn direction(&self) -> Option<Direction> {
        match self {
            Self::Bypassed { direction, .. }
            | Self::Swapped { direction, .. }
            | Self::Uncompared { direction, .. }
            | Self::OtherProgram { direction, .. }
            | Self::NoProgram { direction, .. }
            | Self::Unseen { direction, .. }
            | Self::Unaccounted { direction, .. }
            | Self::Unrecorded { direction, .. }
            | Self::Unproven { direction } => Some(*direction),
            Self::Withheld { .. } => Some(Direction::Ingress),
            Self::Unjudged { .. } | Self::Invented { .. } => Some(Direction::Egress),
            _ => None,
        }
    }

    /// Returns the exit code of the finding.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Bypassed { .. } => exit_code::BYPASSED,
            Self::Swapped { .. } => exit_code::SWAPPED,
            Self::Invented { .. } => exit_code::INVENTED,
            Self::Withheld { .. } => exit_code::WITHHELD,
            Self::LogForged { .. }
            | Self::LogReplayed { .. }
            | Self::LogOldKey { .. }
            | Self::LogChainBroken { .. } => exit_code::LOG_FORGED,
            Self::LogDelayed { .. } | Self::LogStopped { .. } | Self::Unrecorded { .. } => {
                exit_code::LOG_STOPPED
            }
            Self::Restarted { .. } | Self::Unaccounted { .. } => exit_code::RESTARTED,
            Self::InfoRefused { .. } => exit_code::INFO_REFUSED,
            Self::Unproven { .. } | Self::Unjudged { .. } => exit_code::UNPROVEN,
            Self::Uncompared { .. } => exit_code::UNCOMPARED,
            Self::OtherProgram { .. } => exit_code::OTHER_PROGRAM,
            Self::NoProgram { .. } => exit_code::NO_PROGRAM,
            Self::Replaced { .. } => exit_code::REPLACED,
            Self::ShortHeaders { .. } => exit_code::SHORT_HEADERS,
            Self::OtherSetting { .. } => exit_code::OTHER_SETTING,
            Self::Replugged => exit_code::REPLUGGED,
            Self::Unseen { .. } => exit_code::UNSEEN,
            Self::TapMoved { .. } => exit_code::TAP_MOVED,
        }
    }
}

/// Returns the exit code of the worst finding.
#[must_use]
pub fn exit_code_of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> u8 {
    let weight = |code: &u8| exit_code::BY_WEIGHT.iter().position(|c| c == code);
    findings.into_iter().map(Finding::exit_code).min_by_key(weight).unwrap_or(exit_code::OK)
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
            Self::Swapped { direction, packets: n } => write!(
                f,
                "{}: the cloud swapped or changed {} (as many as the program judged, but others); ask the \
                 provider why",
                direction.name(),
                packets(*n, true)
            ),
            Self::Withheld { share } => write!(
                f,
                "ingress: {share} were lost after judgment, more than accepted; ask the provider about its \
                 load, or accept more with --max-loss",
            ),
            Self::Unjudged { share } => write!(
                f,
                "egress: {share} from this VM have no verdict: they were lost before the program, or \
                 bypassed it",
            ),
            Self::Uncompared { direction, share } => write!(
                f,
                "{}: only {share} were compared with the log by their contents; look for losses, and turn \
                 offloads off that the notices name",
                direction.name()
            ),
            Self::OtherProgram { direction, digest } => write!(
                f,
                "{}: another program judged packets than the expected one: {digest}; ask the provider who \
                 loaded it",
                direction.name()
            ),
            Self::NoProgram { direction, packets: 0 } => {
                write!(f, "{}: no program is loaded; ask the provider why", direction.name())
            }
            Self::NoProgram { direction, packets: n } => write!(
                f,
                "{}: {} were judged while no program was loaded; ask the provider why",
                direction.name(),
                packets(*n, true)
            ),
            Self::Replaced { replacements } => write!(
                f,
                "programs were replaced {replacements} times without an announcement; ask the provider \
                 why, or announce your own with --replacements",
            ),
            Self::ShortHeaders { header_bytes, expected } => write!(
                f,
                "the P4 VM has {header_bytes} header bytes of each packet instead of {expected}, so changes \
                 behind them are not detected; ask the provider to set header_bytes",
            ),
            Self::OtherSetting { setting, stated, expected } => write!(
                f,
                "the P4 VM judges with {setting} {stated} instead of {expected}; ask the provider why, or \
                 name what you agreed on with --expect-{}",
                setting.replace('_', "-")
            ),
            Self::Replugged => {
                f.write_str("the interface was unplugged and plugged anew; ask the provider why")
            }
            Self::Unseen { direction, frames } => write!(
                f,
                "{}: {frames} frames passed the interface before the auditor watched it again, so they are \
                 not audited; ask the provider why",
                direction.name()
            ),
            Self::TapMoved { from, to } => write!(
                f,
                "the tap moved from {from} to {to}: the new interface has other abilities; ask the provider \
                 why",
            ),
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
            Self::LogOldKey { records } => write!(
                f,
                "the log is sealed with the previous key: {records} records after its end; if the provider \
                 did not rotate the key on the host, another party has the old one"
            ),
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
                write!(
                    f,
                    "the log stopped: no record for {silent_ms} ms; check that the P4 VM is running, and \
                     that the log page is this VM's"
                )
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
