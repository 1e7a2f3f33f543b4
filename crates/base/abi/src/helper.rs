//! Helper numbers: the functions that a program may call.
//!
//! Numbers below 1000 and their meaning are Linux's (`include/uapi/linux/bpf.h`), so that a tenant's
//! C code uses the usual headers. Numbers from 1000 on are P4 Shield's. No helper returns a packet
//! pointer. Errors are negative errno values. [`ALL`] lists every helper with its prototype;
//! [`crate::context::PROGRAM_ABI_VERSION`] is the version of the table.

/// `void *map_lookup_elem(map, const void *key)`: returns the value, or null.
pub const MAP_LOOKUP_ELEM: u32 = 1;
/// `long map_update_elem(map, const void *key, const void *value, u64 flags)`: returns 0, or a
/// negative errno.
pub const MAP_UPDATE_ELEM: u32 = 2;
/// `long map_delete_elem(map, const void *key)`: returns 0, or a negative errno.
pub const MAP_DELETE_ELEM: u32 = 3;
/// `u64 ktime_get_ns(void)`: returns nanoseconds of the P4 VM's monotonic clock.
pub const KTIME_GET_NS: u32 = 5;
/// `u32 get_prandom_u32(void)`: returns a pseudo-random number, not for secrets.
pub const GET_PRANDOM_U32: u32 = 7;
/// `long adjust_head(ctx, int delta)` (Linux's `xdp_adjust_head`): moves `data` by `delta` bytes; a
/// negative delta grows the packet into the headroom. Returns 0, or a negative errno and changes
/// nothing. All packet pointers become stale.
pub const ADJUST_HEAD: u32 = 44;
/// `long adjust_tail(ctx, int delta)` (Linux's `xdp_adjust_tail`): a negative delta cuts off the end
/// of the packet, down to an Ethernet header; growing is refused. Returns 0, or a negative errno. All
/// packet pointers become stale.
pub const ADJUST_TAIL: u32 = 65;

/// `u64 read_vm_info(ctx, u32 field)`: returns a value of the user VM's last snapshot, with fields
/// from [`crate::info::field`]. An unknown value reads as [`crate::info::unknown_value`] of the field
/// and marks the packet: unless the program also calls [`VM_INFO_STATUS`] or [`VM_INFO_KNOWN`], the
/// packet is dropped whatever the program returns.
pub const READ_VM_INFO: u32 = 1000;
/// `u64 vm_info_status(ctx)`: returns [`crate::info::InfoStatus`] as a number; 0 means that the
/// snapshot is fresh and genuine. A program that calls it decides itself about unknown information.
pub const VM_INFO_STATUS: u32 = 1001;
/// `u64 vm_info_known(ctx, u32 field)`: returns 1 if `field` has a value in a fresh and genuine
/// snapshot, else 0. A program that calls it decides itself about unknown information.
pub const VM_INFO_KNOWN: u32 = 1002;

/// `u64 hash(const void *data, u32 size, u32 algorithm)`: returns the value of an [`algorithm`] over
/// `size` bytes.
pub const HASH: u32 = 1010;
/// `u64 payload_sum(ctx, u32 offset)`: returns the ones' complement sum (16 bits, folded, not
/// inverted) of the packet's bytes from `offset` on as big-endian words, the last one padded with a
/// zero byte. Returns 64 one bits if the header copy is not the whole packet or ends before `offset`.
pub const PAYLOAD_SUM: u32 = 1011;
/// `u64 meter(void *cell, u32 size, u64 amount)`: takes `amount` (1 for a packet, or its bytes) from
/// a cell with the layout of [`crate::meter`], and returns the colour: 0 green, 1 yellow, 2 red.
/// `size` is the size of the cell.
pub const METER: u32 = 1012;
/// `long packet_keep(ctx)`: saves the current bytes of the header copy for [`PACKET_PUT`], until the
/// next call or the end of the run. Returns 0, or a negative errno if there is no packet.
pub const PACKET_KEEP: u32 = 1013;
/// `long packet_put(ctx, u32 to, u32 from, u32 len)`: copies `len` saved bytes ([`PACKET_KEEP`]) from
/// offset `from` of the saved packet to offset `to` of the current one. Returns 0, or a negative
/// errno and changes nothing if either range is not within the header copy.
pub const PACKET_PUT: u32 = 1014;
/// `u64 packet_equal(ctx, u32 a, u32 b, u32 len)`: returns 1 if the `len` bytes at offsets `a` and
/// `b` of the header copy are equal, 0 if they differ or either range is not within it.
pub const PACKET_EQUAL: u32 = 1015;
/// `u64 hash_with(const void *data, u32 size, u32 algorithm, u32 at, u64 slice)`: as [`HASH`], with
/// bytes of the header copy inserted after the first `at` bytes of the data. The lower 32 bits of
/// `slice` are their offset in the packet, the upper 32 bits their number. Returns 0 if they are not
/// within the header copy, `at` is larger than `size`, or the total exceeds [`MAX_HASHED`] bytes.
pub const HASH_WITH: u32 = 1016;

/// Most bytes of data and packet together in [`HASH_WITH`].
pub const MAX_HASHED: usize = 1024;

/// Every helper with its prototype, in the order of the numbers.
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

/// Numbers of the algorithms of [`HASH`]. Results have 16 or 32 bits, `IDENTITY` 64.
pub mod algorithm {
    /// CRC-32 as of Ethernet (reflected 0x04c11db7).
    pub const CRC32: u32 = 0;
    /// CRC-16 as of ARC (reflected 0x8005).
    pub const CRC16: u32 = 1;
    /// The data's first 64 bits as a big-endian number, or all its bits if there are fewer.
    pub const IDENTITY: u32 = 2;
    /// The internet checksum: complement of the ones' complement sum of big-endian 16-bit words.
    pub const CSUM16: u32 = 3;
    /// Exclusive or of big-endian 16-bit words.
    pub const XOR16: u32 = 4;
    /// A pseudo-random number, independent of the data.
    pub const RANDOM: u32 = 5;
    /// Bob Jenkins' `hashlittle` with initial value 0.
    pub const LOOKUP3: u32 = 6;
    /// The ones' complement sum of big-endian 16-bit words, folded to 16 bits and not inverted.
    pub const SUM16: u32 = 7;
}
