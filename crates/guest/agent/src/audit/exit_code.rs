//! Exit codes of `p4shield audit`. As usual, 1 and 2 stand for errors of operation and of usage.

/// Every packet that arrived went through the expected program.
pub const OK: u8 = 0;
/// Packets bypassed the program.
pub const BYPASSED: u8 = 10;
/// Packets were swapped.
pub const SWAPPED: u8 = 11;
/// The program judged packets that the VM never sent.
pub const INVENTED: u8 = 12;
/// More packets than accepted were lost after judgment.
pub const WITHHELD: u8 = 13;
/// The log was forged or replayed, does not continue, or is sealed with a key that has ended.
pub const LOG_FORGED: u8 = 14;
/// The log stopped, or is late.
pub const LOG_STOPPED: u8 = 15;
/// The P4 VM restarted.
pub const RESTARTED: u8 = 16;
/// There are no findings, but no proof either. Ranks after all other codes.
pub const UNPROVEN: u8 = 17;
/// The P4 VM received forged or replayed in-VM information.
pub const INFO_REFUSED: u8 = 18;
/// Another program than the expected one judged.
pub const OTHER_PROGRAM: u8 = 19;
/// No program judged.
pub const NO_PROGRAM: u8 = 20;
/// A program was replaced without an announcement.
pub const REPLACED: u8 = 21;
/// The P4 VM has fewer header bytes of packets than expected.
pub const SHORT_HEADERS: u8 = 22;
/// The interface was plugged anew.
pub const REPLUGGED: u8 = 23;
/// Packets arrived or left while no tap was attached.
pub const UNSEEN: u8 = 24;
/// The tap is at another hook than before.
pub const TAP_MOVED: u8 = 25;
/// Fewer packets were compared than expected.
pub const UNCOMPARED: u8 = 26;

/// There are no findings, and no packet arrived that could be verified.
pub const NOTHING_SEEN: u8 = 27;

/// The P4 VM judges under another setting than the expected one.
pub const OTHER_SETTING: u8 = 28;

/// All codes of findings, the one that counts most first.
pub const BY_WEIGHT: [u8; 18] = [
    BYPASSED,
    SWAPPED,
    INVENTED,
    OTHER_PROGRAM,
    NO_PROGRAM,
    REPLACED,
    OTHER_SETTING,
    LOG_FORGED,
    UNSEEN,
    UNCOMPARED,
    WITHHELD,
    SHORT_HEADERS,
    LOG_STOPPED,
    RESTARTED,
    REPLUGGED,
    TAP_MOVED,
    INFO_REFUSED,
    UNPROVEN,
];
