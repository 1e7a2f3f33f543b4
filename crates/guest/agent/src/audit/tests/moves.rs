//! The moves of a cloud in a game against the audit, and former defects of the audit.

/// What the cloud does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Nothing.
    Forward,
    /// A judged packet is lost.
    Lose,
    /// Many judged packets are lost.
    LoseMany,
    /// Packets arrive late and in another order.
    Jitter,
    /// The tap cannot digest the next packets.
    Undigested,
    /// Records are delivered late.
    HoldLog,
    /// The P4 VM restarts without a packet in flight.
    Restart,
    /// The VM's key rotates.
    Rotate,
    /// The P4 VM has no channel for a while.
    Detach,
    /// Packets that equal each other.
    Equal,
    /// A packet reaches the interface without a verdict.
    Bypass,
    /// As above, and the tap cannot digest it.
    BypassUndigested,
    /// A packet bypasses the program, which judges an earlier one again.
    JudgeTwice,
    /// A packet changes after its verdict.
    Modify,
    /// As above, while many packets are lost.
    ModifyAmongLosses,
    /// As above, beside packets that the tap cannot digest.
    ModifyAmongUndigested,
    /// A packet is judged and arrives, and arrives again much later.
    Replay,
    /// Another program judges.
    OtherProgram,
    /// As above, and for so short that no record shows it.
    OtherProgramForAMoment,
    /// No program judges.
    Unload,
    /// The P4 VM has fewer bytes of a packet, and what is behind them changes.
    ShortHeaders,
    /// Packets bypass the program, and a new interface replaces the one that they reached.
    BypassAndReplug,
    /// Packets bypass the program to a new interface before a tap is attached to it.
    ReplugAndBypass,
    /// The P4 VM restarts, and packets bypass it.
    RestartAndBypass,
    /// A packet changes after its verdict while the key rotates.
    RotateAndModify,
    /// A packet bypasses the program while the key rotates, and is judged once the key has rotated.
    RotateAndJudgeTwice,
    /// Packets bypass the program while the key rotates, and the records of that time are cut out.
    RotateAndCut,
    /// An old record is delivered again, and a packet bypasses the program.
    ReplayRecord,
    /// A record is forged, and a packet bypasses the program.
    ForgeRecord,
    /// The log ends, and packets bypass the program.
    StopLog,
    /// A packet changes after its verdict, and two records later the P4 VM has no channel for a while.
    ModifyAndDetach,
    /// As above, and its channel's header copies become longer for a while.
    ModifyAndCoverMore,
    /// A packet bypasses the program among packets that equal each other.
    BypassAmongEqual,
    /// A packet that equals the program's others bypasses it, which judges one that never arrives.
    SwapAmongEqual,
    /// Packets change after their verdict, and then many are lost.
    ModifyAndLoseMany,
    /// A judged packet arrives long after its verdict.
    Delay,
}

impl Move {
    const HONEST: [Self; 10] = [
        Self::Forward,
        Self::Lose,
        Self::LoseMany,
        Self::Jitter,
        Self::Undigested,
        Self::HoldLog,
        Self::Restart,
        Self::Rotate,
        Self::Detach,
        Self::Equal,
    ];
    const HOSTILE: [Self; 26] = [
        Self::Bypass,
        Self::BypassUndigested,
        Self::JudgeTwice,
        Self::Modify,
        Self::ModifyAmongLosses,
        Self::ModifyAmongUndigested,
        Self::Replay,
        Self::OtherProgram,
        Self::OtherProgramForAMoment,
        Self::Unload,
        Self::ShortHeaders,
        Self::BypassAndReplug,
        Self::ReplugAndBypass,
        Self::RestartAndBypass,
        Self::RotateAndModify,
        Self::RotateAndJudgeTwice,
        Self::RotateAndCut,
        Self::ReplayRecord,
        Self::ForgeRecord,
        Self::StopLog,
        Self::ModifyAndDetach,
        Self::ModifyAndCoverMore,
        Self::BypassAmongEqual,
        Self::SwapAmongEqual,
        Self::ModifyAndLoseMany,
        Self::Delay,
    ];

    pub(super) fn honest(random: u64) -> Self {
        Self::HONEST[random as usize % Self::HONEST.len()]
    }

    pub(super) fn any(random: u64) -> Self {
        let hostile = Self::HOSTILE[(random / 4) as usize % Self::HOSTILE.len()];
        if random.is_multiple_of(4) { hostile } else { Self::honest(random / 4) }
    }
}

/// A former defect of the auditor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hole {
    None,
    /// Programs, replacements and header bytes are not compared.
    NoExpectations,
    /// A new interface starts a new audit.
    ForgetOnReplug,
    /// Frames before the tap are not counted.
    IgnoreUnseen,
    /// One packet without a digest ends the comparison for a while, and that is no finding.
    UndigestedSwitchesOff,
    /// Only the numbers of packets are compared.
    NumbersOnly,
    /// A P4 VM without a channel ends the comparison for a while.
    NoChannelSwitchesOff,
}

impl Hole {
    pub(super) const ALL: [Self; 6] = [
        Self::NoExpectations,
        Self::ForgetOnReplug,
        Self::IgnoreUnseen,
        Self::UndigestedSwitchesOff,
        Self::NumbersOnly,
        Self::NoChannelSwitchesOff,
    ];
}
