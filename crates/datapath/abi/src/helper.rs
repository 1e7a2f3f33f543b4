//! Helper functions that a program may call, by number.
//!
//! Numbers below 1000 are Linux's own (`include/uapi/linux/bpf.h`) and mean what they mean there, so that a tenant's
//! C is written with the usual headers. Numbers from 1000 are ours. No helper returns a packet pointer.

/// `void *map_lookup_elem(map, const void *key)`: the value, or null.
pub const MAP_LOOKUP_ELEM: u32 = 1;
/// `long map_update_elem(map, const void *key, const void *value, u64 flags)`: 0, or a negative errno.
pub const MAP_UPDATE_ELEM: u32 = 2;
/// `long map_delete_elem(map, const void *key)`: 0, or a negative errno.
pub const MAP_DELETE_ELEM: u32 = 3;
/// `u64 ktime_get_ns(void)`: nanoseconds of the P4 VM's monotonic clock.
pub const KTIME_GET_NS: u32 = 5;
/// `u32 get_prandom_u32(void)`: not for secrets.
pub const GET_PRANDOM_U32: u32 = 7;
/// `long adjust_head(ctx, int delta)` (Linux's `xdp_adjust_head`): moves `data` by `delta` bytes, negative grows
/// the packet into the head room. 0, or a negative errno and nothing changed. All packet pointers become stale.
pub const ADJUST_HEAD: u32 = 44;
/// `long adjust_tail(ctx, int delta)` (Linux's `xdp_adjust_tail`): negative deltas cut the end of the packet off,
/// down to an Ethernet header; growing is refused. 0, or a negative errno. All packet pointers become stale.
pub const ADJUST_TAIL: u32 = 65;

/// `u64 read_vm_info(ctx, u32 field)`: a value of the user VM's last snapshot, fields as in [`crate::info::field`].
/// What is not known reads as [`crate::info::unknown_value`] of the field, and marks the packet: unless the program
/// also calls [`VM_INFO_STATUS`], the packet is dropped whatever the program returns.
pub const READ_VM_INFO: u32 = 1000;
/// `u64 vm_info_status(ctx)`: [`crate::info::InfoStatus`] as a number; 0 means that the snapshot is fresh and genuine.
/// A program that calls it has taken the decision about unknown information upon itself.
pub const VM_INFO_STATUS: u32 = 1001;
/// `u64 vm_info_known(ctx, u32 field)`: 1 if `field` has a value in a fresh and genuine snapshot, else 0. Counts as
/// taking the decision, like [`VM_INFO_STATUS`].
pub const VM_INFO_KNOWN: u32 = 1002;

/// `u64 hash(const void *data, u32 size, u32 algorithm)`: a value of [`algorithm`] over `size` bytes.
pub const HASH: u32 = 1010;
/// `u64 payload_sum(ctx, u32 offset)`: the ones' complement sum (16 bits, folded, not inverted) of the packet's bytes
/// from `offset` on as big-endian words, the last one filled up with a zero byte. All ones (64) if the header copy is
/// not the whole packet or ends before `offset`.
pub const PAYLOAD_SUM: u32 = 1011;
/// `u64 meter(void *cell, u32 size, u64 amount)`: takes `amount` (1 for a packet, or its bytes) from a cell as
/// [`crate::meter`] lays it out, and tells the colour: 0 green, 1 yellow, 2 red. `size` is the cell's.
pub const METER: u32 = 1012;
/// `long packet_keep(ctx)`: keeps the bytes of the header copy as they are now, for [`PACKET_PUT`], until the next
/// call or the end of the run. 0, or a negative errno if there is no packet.
pub const PACKET_KEEP: u32 = 1013;
/// `long packet_put(ctx, u32 to, u32 from, u32 len)`: `len` bytes that stood at `from` when [`PACKET_KEEP`] was called
/// come to stand at `to`, both counted from the start of the packet as it was and is. 0, or a negative errno and
/// nothing changed if either range is not within the header copy.
pub const PACKET_PUT: u32 = 1014;
/// `u64 packet_equal(ctx, u32 a, u32 b, u32 len)`: 1 if the `len` bytes at `a` and at `b` of the header copy are equal,
/// 0 if not or if either range is not within it.
pub const PACKET_EQUAL: u32 = 1015;
/// `u64 hash_with(const void *data, u32 size, u32 algorithm, u32 at, u64 slice)`: as [`HASH`], with bytes of the header
/// copy between the first `at` bytes of the data and the others: `slice` is where they stand, from the start of the
/// packet, and in its upper 32 bits how many they are. 0 if they are not within the header copy, if `at` is larger
/// than `size`, or if all together are more than [`MAX_HASHED`] bytes.
pub const HASH_WITH: u32 = 1016;

/// The most bytes of data and packet that [`HASH_WITH`] takes.
pub const MAX_HASHED: usize = 1024;

/// Every helper with its prototype, by number.
pub const ALL: [(u32, &str); 17] = [
    (MAP_LOOKUP_ELEM, "void *map_lookup_elem(map, const void *key)"),
    (MAP_UPDATE_ELEM, "long map_update_elem(map, const void *key, const void *value, u64 flags)"),
    (MAP_DELETE_ELEM, "long map_delete_elem(map, const void *key)"),
    (KTIME_GET_NS, "u64 ktime_get_ns(void)"),
    (GET_PRANDOM_U32, "u32 get_prandom_u32(void)"),
    (ADJUST_HEAD, "long adjust_head(ctx, int delta)"),
    (ADJUST_TAIL, "long adjust_tail(ctx, int delta)"),
    (READ_VM_INFO, "u64 read_vm_info(ctx, u32 field)"),
    (VM_INFO_STATUS, "u64 vm_info_status(ctx)"),
    (VM_INFO_KNOWN, "u64 vm_info_known(ctx, u32 field)"),
    (HASH, "u64 hash(const void *data, u32 size, u32 algorithm)"),
    (PAYLOAD_SUM, "u64 payload_sum(ctx, u32 offset)"),
    (METER, "u64 meter(void *cell, u32 size, u64 amount)"),
    (PACKET_KEEP, "long packet_keep(ctx)"),
    (PACKET_PUT, "long packet_put(ctx, u32 to, u32 from, u32 len)"),
    (PACKET_EQUAL, "u64 packet_equal(ctx, u32 a, u32 b, u32 len)"),
    (HASH_WITH, "u64 hash_with(const void *data, u32 size, u32 algorithm, u32 at, u64 slice)"),
];

/// Algorithms of [`HASH`], by number. Values are the results' natural numbers: 16 or 32 bits, `IDENTITY` 64.
pub mod algorithm {
    /// CRC-32 as of Ethernet (reflected 0x04c11db7).
    pub const CRC32: u32 = 0;
    /// CRC-16 as of ARC (reflected 0x8005).
    pub const CRC16: u32 = 1;
    /// The data's first 64 bits as a big-endian number; all of them if there are fewer.
    pub const IDENTITY: u32 = 2;
    /// The internet checksum: complement of the ones' complement sum of big-endian 16-bit words.
    pub const CSUM16: u32 = 3;
    /// Exclusive or of big-endian 16-bit words.
    pub const XOR16: u32 = 4;
    /// A pseudo-random number; the data do not matter.
    pub const RANDOM: u32 = 5;
    /// Bob Jenkins' `hashlittle` with initial value 0.
    pub const LOOKUP3: u32 = 6;
    /// The ones' complement sum of big-endian 16-bit words, folded to 16 bits and not inverted.
    pub const SUM16: u32 = 7;
}
