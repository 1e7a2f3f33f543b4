//! The packets that a switch has received, sent and dropped. Each received packet, and each copy of one, is
//! either sent or dropped for one reason.

/// The reason why a packet, or a copy of one, leaves by no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The program dropped it.
    Program,
    /// The engine stopped the program: its budget was exhausted, or a limit was met.
    Stopped,
    /// The program chose a port that the switch does not have.
    NoPort,
    /// Its port is there, and its interface is not, is down or has no carrier.
    PortDown,
    /// The program chose a multicast group that does not exist, or has no copies.
    NoGroup,
    /// The program cloned it to a session that does not exist.
    NoSession,
    /// It caused too many runs of the program, or too many copies at a time ([`p4shield_traffic::MAX_RUNS`]).
    Runs,
    /// The queue of its port was full.
    Queue,
    /// The port had no room for it, or cannot send packets of its length.
    NoRoom,
    /// It is longer than [`p4shield_abi::channel::MAX_HEADER_BYTES`] when it arrives or starts again.
    TooLong,
    /// It waited for a function in a compartment, whose answer did not come in time or was none.
    Unanswered,
    /// Too many packets waited for answers of a compartment.
    CallsFull,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Program,
        Self::Stopped,
        Self::NoPort,
        Self::PortDown,
        Self::NoGroup,
        Self::NoSession,
        Self::Runs,
        Self::Queue,
        Self::NoRoom,
        Self::TooLong,
        Self::Unanswered,
        Self::CallsFull,
    ];

    /// Returns its name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Stopped => "stopped",
            Self::NoPort => "no_port",
            Self::PortDown => "port_down",
            Self::NoGroup => "no_group",
            Self::NoSession => "no_session",
            Self::Runs => "runs",
            Self::Queue => "queue",
            Self::NoRoom => "no_room",
            Self::TooLong => "too_long",
            Self::Unanswered => "unanswered",
            Self::CallsFull => "calls_full",
        }
    }
}

/// The packets of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Received packets.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Sent packets.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

impl PortCounts {
    /// Returns the sums of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            received_bytes: self.received_bytes + other.received_bytes,
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
        }
    }
}

/// The packets of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By place of the port.
    pub ports: Vec<PortCounts>,
    /// Those of ports that were deleted.
    pub deleted: PortCounts,
    /// Packets that were replicated: each counts as its copies, and not as sent or dropped itself.
    pub replicated: u64,
    /// Copies of replicated packets, and clones.
    pub copies: u64,
    /// Packets that started again as they had arrived.
    pub resubmitted: u64,
    /// Packets that started again instead of leaving.
    pub recirculated: u64,
    /// Packets that wait in queues now, or are on their way from one thread to another. One thread may count
    /// what comes and another what leaves, so that only the sum of all has a meaning, modulo 2^64.
    pub waiting: u64,
    /// By number of the [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Counts {
    /// Returns the packets, and copies, that were dropped for a reason.
    #[must_use]
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Counts a packet that was dropped.
    pub(crate) const fn drop_for(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Adds the counts of another thread, but for those by place.
    pub fn add(&mut self, other: &Self) {
        self.deleted = self.deleted.plus(other.deleted);
        self.replicated += other.replicated;
        self.copies += other.copies;
        self.resubmitted += other.resubmitted;
        self.recirculated += other.recirculated;
        self.waiting = self.waiting.wrapping_add(other.waiting);
        self.dropped.iter_mut().zip(other.dropped).for_each(|(sum, n)| *sum += n);
    }

    /// Returns whether every packet is accounted for: received packets and copies equal those that were sent,
    /// dropped or replicated, or wait.
    #[must_use]
    pub fn balance(&self) -> bool {
        let all = self.ports.iter().fold(self.deleted, |sum, port| sum.plus(*port));
        let dropped: u64 = self.dropped.iter().sum();
        all.received + self.copies == (all.sent + dropped + self.replicated).wrapping_add(self.waiting)
    }
}
