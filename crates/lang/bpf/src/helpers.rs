//! Helper functions, which programs call by number.
//!
//! JIT code calls them by address. The interpreter first checks their arguments against the table. Helpers
//! whose time depends on sizes charge the run's budget first ([`Helper::charges`]).
//! [`p4shield_abi::helper`] defines numbers and semantics.

use p4shield_abi::helper as number;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::budget;
use crate::env::Env;
use crate::maps::Map;

/// A helper with the calling convention of JIT code: the environment, then R1 to R5.
pub(crate) type Function = unsafe extern "C" fn(*mut Env, u64, u64, u64, u64, u64) -> u64;

/// Argument type, which the interpreter checks before it calls a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    /// Unused, or any number.
    Any,
    /// The program's context.
    Context,
    /// A map.
    Map,
    /// Address of as many readable bytes as the map's keys have.
    Key,
    /// Address of as many readable bytes as the map's values have.
    Value,
    /// Address of as many bytes as the next argument states.
    Memory,
}

/// Code that the JIT emits instead of the call, if the arguments are known at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inline {
    /// Always a call.
    No,
    /// Finds an array's value by a bounds check and a multiplication.
    MapLookup,
    /// Reads a field from the environment.
    ReadInfo,
    /// Reads the status from the environment.
    InfoStatus,
    /// Reads a bit from the environment.
    InfoKnown,
}

/// A helper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Helper {
    pub(crate) number: u32,
    pub(crate) args: [Arg; 5],
    pub(crate) function: Function,
    pub(crate) inline: Inline,
    /// It charges the budget by the size of its work, and may stop the run.
    pub(crate) charges: bool,
}

/// Returns the helper with this number.
pub(crate) fn find(table: &'static [Helper], number: u32) -> Option<&'static Helper> {
    table.iter().find(|h| h.number == number)
}

const NONE: [Arg; 5] = [Arg::Any; 5];
const CONTEXT: [Arg; 5] = [Arg::Context, Arg::Any, Arg::Any, Arg::Any, Arg::Any];
const MAP_KEY: [Arg; 5] = [Arg::Map, Arg::Key, Arg::Any, Arg::Any, Arg::Any];
const MAP_KEY_VALUE: [Arg; 5] = [Arg::Map, Arg::Key, Arg::Value, Arg::Any, Arg::Any];

const MEMORY: [Arg; 5] = [Arg::Memory, Arg::Any, Arg::Any, Arg::Any, Arg::Any];

const fn helper(number: u32, args: [Arg; 5], function: Function, inline: Inline) -> Helper {
    Helper { number, args, function, inline, charges: false }
}

const fn charging(number: u32, args: [Arg; 5], function: Function, inline: Inline) -> Helper {
    Helper { charges: true, ..helper(number, args, function, inline) }
}

/// All helpers of P4 programs.
pub(crate) static TABLE: [Helper; 17] = [
    charging(number::MAP_LOOKUP_ELEM, MAP_KEY, map_lookup, Inline::MapLookup),
    charging(number::MAP_UPDATE_ELEM, MAP_KEY_VALUE, map_update, Inline::No),
    charging(number::MAP_DELETE_ELEM, MAP_KEY, map_delete, Inline::No),
    charging(number::KTIME_GET_NS, NONE, ktime, Inline::No),
    helper(number::GET_PRANDOM_U32, NONE, prandom, Inline::No),
    helper(number::ADJUST_HEAD, CONTEXT, adjust_head, Inline::No),
    helper(number::ADJUST_TAIL, CONTEXT, adjust_tail, Inline::No),
    helper(number::READ_VM_INFO, CONTEXT, read_vm_info, Inline::ReadInfo),
    helper(number::VM_INFO_STATUS, CONTEXT, vm_info_status, Inline::InfoStatus),
    helper(number::VM_INFO_KNOWN, CONTEXT, vm_info_known, Inline::InfoKnown),
    charging(number::HASH, MEMORY, hash, Inline::No),
    charging(number::PAYLOAD_SUM, CONTEXT, payload_sum, Inline::No),
    helper(number::METER, MEMORY, meter, Inline::No),
    charging(number::PACKET_KEEP, CONTEXT, packet_keep, Inline::No),
    charging(number::PACKET_PUT, CONTEXT, packet_put, Inline::No),
    charging(number::PACKET_EQUAL, CONTEXT, packet_equal, Inline::No),
    charging(number::HASH_WITH, MEMORY, hash_with, Inline::No),
];

/// A program's handle for map 0; the handle of map `i` is `i` more. It is not an address, so even a
/// wrongly accepted program cannot make a helper access memory outside the maps.
pub(crate) const MAP_HANDLE: u64 = 0x4d41_5000_0000_0000;

/// Returns the map of a handle.
///
/// # Safety
/// `env` points to the environment of the run, and no reference to its maps is in use.
unsafe fn map_of<'a>(env: *mut Env, handle: u64) -> Option<&'a mut Map> {
    let index = usize::try_from(handle.checked_sub(MAP_HANDLE)?).ok()?;
    // SAFETY: by contract; `maps` is null or points to the program's maps, which outlive the run.
    unsafe { (*env).maps.as_mut() }?.by_index_mut(index)
}

/// Returns the key at an address of the program.
///
/// # Safety
/// `address` is valid for reads of the map's key size while the slice is in use. The verifier has
/// proven that, or the interpreter has checked it.
unsafe fn key_of<'a>(map: &Map, address: u64) -> &'a [u8] {
    let len = map.definition().key_size as usize;
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address as usize), len) }
}

const fn errno(e: Errno) -> u64 {
    -(e.raw_os_error() as i64) as u64
}

const INVALID: u64 = errno(Errno::INVAL);

unsafe extern "C" fn map_lookup(env: *mut Env, map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the engines pass their environment, and arguments as `TABLE` requires.
    unsafe {
        let Some(map) = map_of(env, map) else { return 0 };
        if !(*env).charge(map.lookup_cost()) {
            return 0;
        }
        map.address(key_of(map, key))
    }
}

unsafe extern "C" fn map_update(env: *mut Env, map: u64, key: u64, value: u64, flags: u64, _: u64) -> u64 {
    // SAFETY: as in `map_lookup`; the value has the map's value size.
    unsafe {
        let Some(map) = map_of(env, map) else { return INVALID };
        // No reference into the stack, a part of the environment, may exist while it is charged.
        let cost = map.change_cost(key_of(map, key)) + budget::of_bytes(map.definition().value_size as usize);
        if !(*env).charge(cost) {
            return 0;
        }
        let key = key_of(map, key);
        map.update_from(key, std::ptr::with_exposed_provenance(value as usize), flags) as u64
    }
}

unsafe extern "C" fn map_delete(env: *mut Env, map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: as in `map_lookup`.
    unsafe {
        let Some(map) = map_of(env, map) else { return INVALID };
        let cost = map.change_cost(key_of(map, key));
        if !(*env).charge(cost) {
            return 0;
        }
        let key = key_of(map, key);
        map.delete(key).map_or_else(|e| e.errno() as u64, |()| 0)
    }
}

unsafe extern "C" fn ktime(env: *mut Env, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the engines pass their environment.
    if !unsafe { (*env).charge(budget::CLOCK) } {
        return 0;
    }
    let t = clock_gettime(ClockId::Monotonic);
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

unsafe extern "C" fn prandom(env: *mut Env, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the engines pass their environment.
    let state = unsafe { &mut (*env).random };
    // xorshift64*: the state is never zero.
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
}

/// Resizes the packet and updates the context.
///
/// # Safety
/// `env` is the environment of a run with a packet.
unsafe fn resize(env: *mut Env, change: impl FnOnce(&mut crate::Packet) -> bool) -> u64 {
    // SAFETY: by contract; no other reference to either exists while a helper runs.
    let (env, packet) = unsafe { (&mut *env, (*env).packet.as_mut()) };
    let Some(packet) = packet else { return INVALID };
    if !change(packet) {
        return INVALID;
    }
    env.flags.rewritten = 1;
    env.point_at_packet(packet);
    0
}

unsafe extern "C" fn adjust_head(env: *mut Env, _: u64, delta: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the engines pass their environment.
    unsafe { resize(env, |p| p.adjust_head(delta as i32)) }
}

unsafe extern "C" fn adjust_tail(env: *mut Env, _: u64, delta: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the engines pass their environment.
    unsafe { resize(env, |p| p.adjust_tail(delta as i32)) }
}

unsafe extern "C" fn read_vm_info(env: *mut Env, _: u64, field: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the engines pass their environment; `info` is null or valid for the run.
    let (flags, info) = unsafe { (&mut (*env).flags, (*env).info.as_ref()) };
    let Some(info) = info else { return 0 };
    flags.unknown |= u8::from(!info.is_known(field as u32));
    info.value(field as u32)
}

unsafe extern "C" fn vm_info_status(env: *mut Env, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: as in `read_vm_info`.
    let (flags, info) = unsafe { (&mut (*env).flags, (*env).info.as_ref()) };
    flags.decided = 1;
    info.map_or(0, |info| info.status)
}

unsafe extern "C" fn vm_info_known(env: *mut Env, _: u64, field: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: as in `read_vm_info`.
    let (flags, info) = unsafe { (&mut (*env).flags, (*env).info.as_ref()) };
    flags.decided = 1;
    info.map_or(0, |info| u64::from(info.is_known(field as u32)))
}

unsafe extern "C" fn hash(env: *mut Env, data: u64, size: u64, algorithm: u64, _: u64, _: u64) -> u64 {
    if algorithm as u32 == number::algorithm::RANDOM {
        // SAFETY: the engines pass their environment.
        return unsafe { prandom(env, 0, 0, 0, 0, 0) };
    }
    // SAFETY: the engines pass their environment.
    if !unsafe { (*env).charge(crate::hashes::cost(algorithm as u32, size as u32 as usize)) } {
        return 0;
    }
    // SAFETY: the verifier has proven, or the interpreter has checked, that `size` bytes are readable
    // at `data`. The size is a constant of at most a stack frame or a map's value.
    let data = unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance(data as usize), size as u32 as usize)
    };
    crate::hashes::hash(algorithm as u32, data)
}

unsafe extern "C" fn payload_sum(env: *mut Env, _: u64, offset: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the engines pass their environment; the packet is null or valid for the run.
    let (env, packet) = unsafe { (&mut *env, (*env).packet.as_ref()) };
    let whole = packet.filter(|p| p.total() as usize == p.len());
    let Some(payload) = whole.and_then(|p| p.bytes().get(offset as u32 as usize..)) else { return u64::MAX };
    if env.charge(budget::of_bytes(payload.len())) { crate::hashes::sum16(payload) } else { 0 }
}

unsafe extern "C" fn packet_keep(env: *mut Env, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: as in `payload_sum`; no other reference to the packet exists while a helper runs.
    let (env, packet) = unsafe { (&mut *env, (*env).packet.as_mut()) };
    let Some(packet) = packet else { return INVALID };
    if env.charge(budget::of_bytes(packet.len())) {
        packet.keep();
    }
    0
}

unsafe extern "C" fn packet_put(env: *mut Env, _: u64, to: u64, from: u64, len: u64, _: u64) -> u64 {
    // SAFETY: as in `packet_keep`.
    let (env, packet) = unsafe { (&mut *env, (*env).packet.as_mut()) };
    let Some(packet) = packet else { return INVALID };
    // No more than the packet is copied.
    if !env.charge(budget::of_bytes(packet.len().min(len as u32 as usize))) {
        return 0;
    }
    if !packet.put(to as u32, from as u32, len as u32) {
        return INVALID;
    }
    env.flags.rewritten = 1;
    0
}

unsafe extern "C" fn packet_equal(env: *mut Env, _: u64, a: u64, b: u64, len: u64, _: u64) -> u64 {
    // SAFETY: as in `payload_sum`.
    let (env, packet) = unsafe { (&mut *env, (*env).packet.as_ref()) };
    let Some(packet) = packet else { return 0 };
    if !env.charge(budget::of_bytes(packet.len().min(len as u32 as usize))) {
        return 0;
    }
    let range = |at: u64| packet.range(at as u32, len as u32);
    u64::from(range(a).is_some_and(|bytes| Some(bytes) == range(b)))
}

unsafe extern "C" fn hash_with(
    env: *mut Env,
    data: u64,
    size: u64,
    algorithm: u64,
    at: u64,
    slice: u64,
) -> u64 {
    // SAFETY: as in `payload_sum`.
    let packet = unsafe { (*env).packet.as_ref() };
    let Some(part) = packet.and_then(|p| p.range(slice as u32, (slice >> 32) as u32)) else { return 0 };
    // The parts are joined in a cleared buffer.
    let len = part.len().saturating_add(size as u32 as usize).min(number::MAX_HASHED);
    let cost = budget::of_bytes(number::MAX_HASHED) + crate::hashes::cost(algorithm as u32, len);
    // SAFETY: the engines pass their environment.
    if !unsafe { (*env).charge(cost) } {
        return 0;
    }
    // SAFETY: as in `hash`.
    let data = unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance(data as usize), size as u32 as usize)
    };
    let parts = data.split_at_checked(at as u32 as usize).map(|(first, last)| [first, part, last]);
    parts.and_then(|parts| crate::hashes::hash_joined(algorithm as u32, parts)).unwrap_or(0)
}

unsafe extern "C" fn meter(env: *mut Env, cell: u64, size: u64, amount: u64, _: u64, _: u64) -> u64 {
    use p4shield_abi::meter::{METER_CELL_SIZE, MeterCell, colour};
    if size as usize != METER_CELL_SIZE {
        return colour::RED;
    }
    // SAFETY: the verifier has proven, or the interpreter has checked, that the program owns `size` bytes at
    // `cell`.
    unsafe {
        let bytes: *mut [u8; METER_CELL_SIZE] = std::ptr::with_exposed_provenance_mut(cell as usize);
        let mut meter = MeterCell::decode(&bytes.read_unaligned());
        let colour = meter.take(amount, (*env).ctx.timestamp_ns);
        bytes.write_unaligned(meter.encode());
        colour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_all_helpers_of_the_abi() {
        let table: Vec<u32> = TABLE.iter().map(|h| h.number).collect();
        assert_eq!(table, number::ALL.map(|(n, _)| n));
    }
}
