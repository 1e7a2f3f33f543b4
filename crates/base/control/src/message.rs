//! The messages: what the host daemon requests of a P4 VM, and what the P4 VM replies.

use crate::bundle::{BundleLoaded, BundleRequest};
use crate::program::{MapPart, MapQuery, ProgramDescription, ProgramSlot};
use crate::resource::{ResourceId, ResourceKind};
use crate::sandbox::SandboxReport;
use p4shield_abi::channel::Geometry;
use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_abi::{ProgramLimit, Verdict};
use serde::{Deserialize, Serialize};

/// Version of the messages. Host and P4 VM are one binary; a mismatch means that the binary was
/// replaced while the daemon ran.
pub const PROTOCOL_VERSION: u32 = 11;
/// The most bytes of all objects of one program.
pub const MAX_OBJECTS: usize = 4 << 20;
/// Most bytes of the entries of [`Request::FillMaps`].
pub const MAX_VALUES: usize = 1 << 20;
/// The most bytes of a bundle.
pub const MAX_BUNDLE: usize = 12 << 20;
/// The most user VMs of one tenant.
pub const MAX_VMS: u16 = 256;
/// The most channels of one P4 VM: each receive queue of each port of a switch has one.
pub const MAX_CHANNELS: usize = 512;
/// The most bytes of a name of a tenant, VM or program.
pub const MAX_NAME: usize = 64;
/// The most bytes of a key that a transport copies. The P4 VM checks the exact size.
const MAX_KEY: usize = 64;
/// What comes with [`Request::Adopt`]: the P4 VM's standard error from now on.
pub const STDERR: ResourceId = ResourceId(0);

/// What a tenant's P4 VM is told first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the host.
    pub version: u32,
    /// The tenant's name, part of what seals authenticate.
    pub tenant: String,
    /// The listening socket where the next daemon adopts the P4 VM; none: it ends with its daemon.
    pub door: Option<ResourceId>,
    /// What happens to packets of a direction that has no program, as [`Verdict`]'s number.
    pub no_program: u8,
    /// Age from which a snapshot is stale, milliseconds.
    pub age_limit_ms: u32,
    /// Time between two log records, milliseconds.
    pub log_interval_ms: u32,
    /// Instructions that a program may execute for one packet.
    pub budget: u64,
    /// The lowest epoch that logs may take: above those of the P4 VMs before. See
    /// `p4shield_seal::EpochFloor`.
    pub min_epoch: u64,
}

/// Keys of a VM. A key is a resource, so that it is in no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmKeys {
    /// The current key.
    pub current: ResourceId,
    /// The previous key, and the time in which it is accepted, milliseconds.
    pub previous: Option<(ResourceId, u32)>,
}

/// What a P4 VM demands of the agent with which it agrees on a VM's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDemand {
    /// The agent's public key (X25519); none: any agent may have the session.
    pub key: Option<[u8; 32]>,
    /// Whether the P4 VM may stay without evidence, so that its host may be the agent's peer.
    pub without_evidence: bool,
}

/// Geometry of a channel, as a message carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireGeometry {
    /// Slots.
    pub slots: u32,
    /// Header bytes a packet at most.
    pub header_bytes: u32,
    /// Headroom in front of them.
    pub headroom: u32,
}

impl From<Geometry> for WireGeometry {
    fn from(g: Geometry) -> Self {
        Self { slots: g.slots, header_bytes: g.header_bytes, headroom: g.headroom }
    }
}

impl From<WireGeometry> for Geometry {
    fn from(s: WireGeometry) -> Self {
        Self { slots: s.slots, header_bytes: s.header_bytes, headroom: s.headroom }
    }
}

/// What the host asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message.
    Hello(Hello),
    /// First message of the next daemon, on a connection to the listening socket of `Hello`, which the P4 VM
    /// accepts once it has lost its daemon. [`STDERR`] comes with it: its format is the same in all versions.
    Adopt {
        /// [`PROTOCOL_VERSION`] of the daemon.
        version: u32,
    },
    /// How long the P4 VM goes on without a daemon, milliseconds.
    SetPatience {
        /// The time; zero: it ends with its daemon.
        ms: u32,
    },
    /// Makes a user VM known. With a handshake page there are no keys: the P4 VM agrees on them with the VM's
    /// agent.
    SetVm {
        /// Index within the tenant.
        vm: u16,
        /// Name, part of what seals authenticate.
        name: String,
        /// Its info page.
        info: Option<ResourceId>,
        /// Its log page.
        log: Option<ResourceId>,
        /// Its handshake page, and what the P4 VM demands of the agent.
        handshake: Option<(ResourceId, AgentDemand)>,
        /// Its keys.
        keys: Option<VmKeys>,
    },
    /// Rotates the key of a user VM: the present key becomes the previous one. If the VM has the key already,
    /// its window ends after `window_ms`, unless it ends earlier.
    SetKeys {
        /// Index within the tenant.
        vm: u16,
        /// The new key.
        key: ResourceId,
        /// Time in which the previous key is accepted, milliseconds.
        window_ms: u32,
    },
    /// Links, verifies and compiles a program, and replaces the one at `place` between two batches.
    /// One that is refused leaves the old one running.
    LoadProgram {
        /// Where it is to run.
        slot: ProgramSlot,
        /// What to call it.
        name: String,
        /// The objects, one after the other.
        objects: ResourceId,
        /// Bytes of each object.
        lengths: Vec<u32>,
    },
    /// Does the same, but leaves the old program running until [`Request::Commit`].
    StageProgram {
        /// Where it is to run. The user VM may become known later.
        slot: ProgramSlot,
        /// What to call it.
        name: String,
        /// The objects, one after the other.
        objects: ResourceId,
        /// Bytes of each object.
        lengths: Vec<u32>,
    },
    /// Replaces programs by those that were staged for their places.
    Commit,
    /// Forgets the programs that were staged.
    Discard,
    /// Forgets a user VM, with its programs and pages. Its log gets a last record.
    RemoveVm {
        /// Index within the tenant.
        vm: u16,
    },
    /// Logs that begin from now on take at least this epoch, as [`Hello::min_epoch`].
    RaiseEpoch {
        /// The epoch.
        min_epoch: u64,
    },
    /// A program is configured: until it runs, packets get this verdict instead of `no_program`'s.
    ExpectProgram {
        /// Where it is to run.
        slot: ProgramSlot,
        /// The tenant's `fail` policy, as [`Verdict`]'s number.
        fallback: u8,
    },
    /// Takes the program away. `no_program` applies from then on.
    UnloadProgram {
        /// Where it runs.
        slot: ProgramSlot,
    },
    /// Serves one more channel.
    AttachChannel {
        /// The host's number for it.
        channel: u32,
        /// Its geometry.
        geometry: WireGeometry,
        /// Its memory.
        memory: ResourceId,
        /// The P4 VM's end of its doorbell.
        doorbell: ResourceId,
        /// The switch's packet memory, where headers are read, and its bytes; none: headers are copied into
        /// the channel.
        packets: Option<(ResourceId, u64)>,
    },
    /// Serves a channel no longer.
    DetachChannel {
        /// The host's number for it.
        channel: u32,
    },
    /// Names and types of a program's maps, as much as a message holds.
    DescribeProgram {
        /// The program's place.
        slot: ProgramSlot,
        /// Maps to skip.
        maps: u32,
        /// Bytes of the schema to skip.
        schema: u32,
    },
    /// Reads a map from a slot on. Packets do not wait for it.
    ReadMap(MapQuery),
    /// How things are.
    Status,
    /// Publish last log records and end.
    Stop,
    /// Pins the key of the tenant's bundles. From now on programs come from bundles only that this key has
    /// signed. Comes before any VM; no other key can be pinned afterwards.
    PinBundleKey {
        /// The ed25519 key.
        key: [u8; 32],
    },
    /// Verifies a bundle, builds and checks its programs, and replaces those of both directions together. One
    /// that is refused leaves the old ones running.
    LoadBundle(BundleRequest),
    /// Does the same, but leaves the old programs running until [`Request::Commit`].
    StageBundle(BundleRequest),
    /// Sets entries of the maps of the program that is staged for `slot`, which has another digest then.
    FillMaps {
        /// Where it is to run.
        slot: ProgramSlot,
        /// The entries, as the crate `bpf` reads them; the P4 VM alone sees them.
        values: ResourceId,
        /// Their bytes, at most [`MAX_VALUES`].
        len: u32,
    },
}

impl Request {
    /// Returns the resources that it names.
    #[must_use]
    pub fn resources(&self) -> Vec<(ResourceId, ResourceKind)> {
        use ResourceKind::{Bytes, Doorbell, Local, PacketMemory, Region};
        match self {
            Self::Hello(hello) => hello.door.iter().map(|door| (*door, Local)).collect(),
            Self::Adopt { .. } => vec![(STDERR, Local)],
            Self::SetVm { info, log, handshake, keys, .. } => {
                let handshake = handshake.as_ref().map(|(id, _)| *id);
                let pages =
                    [(*info, INFO_PAGE_SIZE), (*log, LOG_PAGE_SIZE), (handshake, HANDSHAKE_PAGE_SIZE)];
                let mut named = Vec::new();
                for (page, size) in pages {
                    named.extend(page.map(|id| (id, Region(size as u64))));
                }
                if let Some(VmKeys { current, previous }) = keys {
                    named.push((*current, Bytes(MAX_KEY)));
                    named.extend(previous.map(|(id, _)| (id, Bytes(MAX_KEY))));
                }
                named
            }
            Self::SetKeys { key, .. } => vec![(*key, Bytes(MAX_KEY))],
            Self::LoadProgram { objects, lengths, .. } | Self::StageProgram { objects, lengths, .. } => {
                let total = lengths.iter().fold(0_usize, |sum, n| sum.saturating_add(*n as usize));
                vec![(*objects, Bytes(total.min(MAX_OBJECTS)))]
            }
            Self::LoadBundle(bundle) | Self::StageBundle(bundle) => {
                vec![(bundle.bytes, Bytes((bundle.len as usize).min(MAX_BUNDLE)))]
            }
            Self::FillMaps { values, len, .. } => vec![(*values, Bytes((*len as usize).min(MAX_VALUES)))],
            Self::AttachChannel { geometry, memory, doorbell, packets, .. } => {
                let geometry = Geometry::from(*geometry);
                // The size of an invalid one could overflow.
                let len = if geometry.is_valid() { geometry.size() as u64 } else { 0 };
                let mut named = vec![(*memory, Region(len)), (*doorbell, Doorbell)];
                named.extend(packets.map(|(id, _)| (id, PacketMemory)));
                named
            }
            Self::Commit
            | Self::Discard
            | Self::SetPatience { .. }
            | Self::RemoveVm { .. }
            | Self::RaiseEpoch { .. }
            | Self::ExpectProgram { .. }
            | Self::UnloadProgram { .. }
            | Self::DetachChannel { .. }
            | Self::DescribeProgram { .. }
            | Self::ReadMap(_)
            | Self::Status
            | Self::Stop
            | Self::PinBundleKey { .. } => Vec::new(),
        }
    }
}

/// What a P4 VM answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To `Hello` and `Adopt`.
    Hello {
        /// [`PROTOCOL_VERSION`] of the P4 VM.
        version: u32,
        /// What its sandbox enforces.
        sandbox: SandboxReport,
    },
    /// Done as asked.
    Done,
    /// The program runs.
    Loaded {
        /// SHA-256 digest of the linked program.
        digest: [u8; 32],
        /// Instructions.
        instructions: u32,
    },
    /// The program does not run: what the linker, the verifier or the engine has against it.
    Refused(String),
    /// How things are.
    Status(Box<Status>),
    /// What was asked cannot be done, and why.
    Failed(String),
    /// To `DescribeProgram`.
    Description(Box<ProgramDescription>),
    /// To `ReadMap`.
    MapPart(MapPart),
    /// The programs of a bundle run, or are staged.
    BundleLoaded(BundleLoaded),
}

/// How a P4 VM fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its channels.
    pub channels: Vec<ChannelStatus>,
    /// Its user VMs.
    pub vms: Vec<VmStatus>,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// The host's number for it.
    pub channel: u32,
    /// Requests answered.
    pub answered: u64,
    /// Reason why it is served no longer: what the other side broke.
    pub fault: Option<String>,
}

/// One user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStatus {
    /// Index within the tenant.
    pub vm: u16,
    /// [`p4shield_abi::info::InfoStatus`] as a number.
    pub info: u8,
    /// Snapshots accepted, forged, replayed, stale.
    pub info_tally: [u64; 4],
    /// Log records published.
    pub log_records: u64,
    /// By [`p4shield_abi::Direction`].
    pub directions: [DirectionStatus; 2],
    /// Its keys; none if it has no pages, or no session yet.
    pub keys: Option<KeyStatus>,
    /// Its handshakes, if its keys come from them.
    pub handshake: Option<HandshakeStatus>,
}

/// The handshakes of a user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakeStatus {
    /// Sessions that the P4 VM agreed on.
    pub agreed: u64,
    /// Handshakes that failed after they had begun.
    pub failed: u64,
    /// Messages that were ignored in handshakes that are over.
    pub ignored: u64,
    /// Reason why the last handshake failed, unless one has succeeded since.
    pub error: Option<String>,
    /// The present session.
    pub session: Option<SessionStatus>,
}

/// A session of a user VM's agent with the P4 VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Digest of everything that was agreed. The agent logs the same.
    pub transcript: [u8; 32],
    /// The agent's public key.
    pub agent: [u8; 32],
    /// Whether that is the key which the configuration demands.
    pub is_agent_known: bool,
    /// Whether the P4 VM presented evidence of a TEE.
    pub presented_evidence: bool,
    /// Seconds since it was agreed.
    pub age_s: u64,
}

/// The keys of a user VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// Number of the current key, `p4shield_seal::KeyId`.
    pub current: [u8; 8],
    /// Milliseconds until the previous key ends at the latest; none: it has ended.
    pub previous_ms: Option<u64>,
    /// Whether the VM's agent has used the current key.
    pub agent_follows: bool,
    /// Whether the log is sealed with the current key.
    pub log_follows: bool,
}

/// One direction of a user VM. Counters as in [`p4shield_abi::log_page::DirectionTotals`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// Packets judged.
    pub judged: u64,
    /// Packets passed.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Dropped because the program did not ask whether its information was known.
    pub undecided: u64,
    /// Dropped because the program was stopped, or there was none.
    pub failed: u64,
    /// Dropped because they met a limit of the program, by [`ProgramLimit::index`].
    pub limited: [u64; ProgramLimit::ALL.len()],
    /// Digest of the program that runs.
    pub program: Option<[u8; 32]>,
    /// Whether that program reads in-VM information.
    pub reads_info: bool,
}

/// The verdict that a policy number stands for.
#[must_use]
pub const fn verdict(number: u8) -> Verdict {
    Verdict::from_u64(number as u64)
}
