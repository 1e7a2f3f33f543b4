//! Divided programs: those that a switch may run several times for one received packet.
//!
//! `v1model` replicates, clones, resubmits and recirculates packets between and behind its ingress and
//! egress. A program that asks for it is divided there. Where its ingress asks, the run ends: it stores the
//! values that its second part needs in its *block*, changes nothing in the packet and returns `drop`. A
//! common unicast packet passes both parts in one run.
//!
//! A switch reads in `output_action` what the run asks for ([`request`]), with the arguments at the start of
//! the block ([`argument`]). Then it runs the program again, for each copy from another [`entry`]: with the
//! block as that run left it, and with the packet as it was before that run (a recirculated packet as it was
//! after it).
//!
//! A program's object lists what it may ask for (`.p4shield.needs`), and its block is the only value of the
//! map [`BLOCK_MAP`]. Its size and the layout behind [`BLOCK_HEADER_SIZE`] are the program's own: blocks of
//! one program mean nothing to another.

/// Symbol of the map with the block: an array with one value, which starts with the arguments.
pub const BLOCK_MAP: &str = "p4shield_division";

/// Bytes of the arguments at the start of a block.
pub const BLOCK_HEADER_SIZE: usize = 32;

/// Most bytes of a block: a switch copies it for each copy of a packet.
pub const MAX_BLOCK_SIZE: usize = 32 << 10;

/// Priorities of packets: the greater ones leave a queue first.
pub const PRIORITIES: usize = 8;

/// Returns port and priority of a packet from `output_port` behind a run of a program for `v1model`: the port
/// in its lower 16 bits, and above them the priority in three bits.
#[must_use]
pub const fn destination(output_port: u32) -> (u16, u8) {
    (output_port as u16, ((output_port >> PRIORITY_SHIFT) as usize % PRIORITIES) as u8)
}

/// Place of the priority in `output_port`.
pub const PRIORITY_SHIFT: u32 = 16;

/// Offsets in the block, each of a `u32`: the arguments of requests, and the answers of a queue.
pub mod argument {
    /// Session of [`super::request::CLONE`].
    pub const CLONE_SESSION: usize = 0;
    /// Number of the group of [`super::request::GROUP`].
    pub const GROUP: usize = 4;
    /// Port of [`super::request::PORT`].
    pub const PORT: usize = 8;
    /// Session of [`super::request::CLONE_EGRESS`].
    pub const CLONE_EGRESS_SESSION: usize = 12;
    /// Written by the switch before a run that starts at egress, for a packet that waited in a queue: when it
    /// entered the queue, in microseconds of the clock of the context's `timestamp_ns`.
    pub const QUEUED_AT: usize = 16;
    /// The packets that were in the queue then.
    pub const QUEUED_BEHIND: usize = 20;
    /// How long it waited, in microseconds.
    pub const WAITED: usize = 24;
    /// The packets that it left in the queue.
    pub const LEFT_BEHIND: usize = 28;
}

/// Bits of `output_action` after a run; without any, the packet leaves or is dropped as in any program. The
/// first four end the first part, and the others come from a run whose packet leaves or is dropped.
pub mod request {
    /// A copy of the packet as it arrived goes to egress, for each port of a session:
    /// [`super::entry::CLONE`].
    pub const CLONE: u32 = 0x100;
    /// The packet as it arrived starts again: [`super::entry::RESUBMIT`]. Nothing below happens.
    pub const RESUBMIT: u32 = 0x200;
    /// A copy for each member of a group: [`super::entry::REPLICA`].
    pub const GROUP: u32 = 0x400;
    /// The packet goes on to one port: [`super::entry::UNICAST`].
    pub const PORT: u32 = 0x800;
    /// A copy of the packet as egress left it passes egress again, for each port of a session:
    /// [`super::entry::CLONE_EGRESS`].
    pub const CLONE_EGRESS: u32 = 0x1000;
    /// The packet does not leave, but starts again as it would have left: [`super::entry::RECIRCULATE`].
    pub const RECIRCULATE: u32 = 0x2000;
    /// A function in a compartment is called ([`crate::call`]). Nothing else happens.
    pub const CALL: u32 = 0x4000;
    /// All of them.
    pub const ALL: u32 = 0x7f00;
}

/// Values of `output_action` before a run: where it starts. For the first four, `output_port` contains the
/// port in its lower 16 bits, and above them the replication id.
pub mod entry {
    /// A packet that arrived: the start.
    pub const ARRIVAL: u32 = 0;
    /// A packet for one port, at egress.
    pub const UNICAST: u32 = 1;
    /// A copy for a member of a group, at egress.
    pub const REPLICA: u32 = 2;
    /// A copy of a packet that was at the end of egress, at egress.
    pub const CLONE_EGRESS: u32 = 3;
    /// A copy of a packet that was at the end of ingress: the start, then egress.
    pub const CLONE: u32 = 4;
    /// A resubmitted packet: the start.
    pub const RESUBMIT: u32 = 5;
    /// A recirculated packet: the start.
    pub const RECIRCULATE: u32 = 6;
    /// Added to one that begins at the start, if the program reads how long packets waited
    /// ([`crate::object::need::QUEUES`]): no packet passes both parts in one run.
    pub const QUEUED: u32 = 0x80;
    /// The bits of all that is above.
    pub const PLAIN: u32 = 0xff;
    /// Place of the number of a call, from 1 on, for a run that goes on behind that call: above the bits of
    /// requests, since a run that asks for nothing leaves its entry. Below it is the entry of the run that
    /// made the call.
    pub const ANSWER_SHIFT: u32 = 16;
    /// Most calls of a program.
    pub const MAX_CALLS: u32 = 0x7fff;

    /// Returns where a run goes on that started at `entry` and ended with this call ([`crate::call`]).
    #[must_use]
    pub const fn answer(entry: u32, call: u32) -> u32 {
        (entry & PLAIN) | ((call & MAX_CALLS) + 1) << ANSWER_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_has_a_port_and_one_of_eight_priorities() {
        assert_eq!(destination(511), (511, 0));
        assert_eq!(destination(5 << PRIORITY_SHIFT | 7), (7, 5));
        assert_eq!(destination(u32::MAX), (u16::MAX, 7));
    }
}
