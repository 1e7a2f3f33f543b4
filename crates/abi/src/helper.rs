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
/// `long adjust_tail(ctx, int delta)` (Linux's `xdp_adjust_tail`): negative deltas cut the end of the packet off;
/// growing is refused. 0, or a negative errno. All packet pointers become stale.
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
