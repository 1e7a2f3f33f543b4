//! Memory accesses of interpreted programs: every address is checked before the access.

use crate::env::{AddressRange, Env, FRAME_SIZE};
use crate::insn::Width;
use p4shield_abi::context::CONTEXT_SIZE;

/// The region that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// Packet bytes; a store to them is a rewrite.
    Packet,
    /// Stack, context, map values, or the memory of a raw program.
    Other,
}

const fn within(span: AddressRange, address: u64, len: u64) -> bool {
    match address.checked_sub(span.base) {
        Some(at) => at <= span.len && len <= span.len - at,
        None => false,
    }
}

/// Returns the region of `len` bytes from `address`, if the program may access all of them.
///
/// # Safety
/// `env` is the environment of a run.
pub(super) unsafe fn region(env: *mut Env, address: u64, len: u64) -> Option<Region> {
    // SAFETY: by contract; only the interpreter uses the environment during a run.
    let e = unsafe { &*env };
    let stack_top = Env::stack_top(env);
    // A function may access its own frame and those of its callers, which may pass pointers to them.
    let bottom = e.frame - FRAME_SIZE as u64;
    let stack = AddressRange { base: bottom, len: stack_top - bottom };
    let ctx = AddressRange { base: (&raw const e.ctx).expose_provenance() as u64, len: CONTEXT_SIZE as u64 };
    // SAFETY: `packet` is null or valid for the run.
    let packet = unsafe { e.packet.as_ref() }.map_or_else(AddressRange::default, |p| AddressRange {
        base: e.buffer.base + p.start() as u64,
        len: p.len() as u64,
    });
    if within(packet, address, len) {
        return Some(Region::Packet);
    }
    let others = [stack, ctx, e.memory];
    if others.iter().any(|&s| within(s, address, len)) {
        return Some(Region::Other);
    }
    // SAFETY: `maps` is null or valid for the run.
    let maps = unsafe { e.maps.as_ref() }?;
    maps.iter()
        .any(|m| {
            let (base, bytes) = m.span();
            within(AddressRange { base, len: bytes }, address, len)
        })
        .then_some(Region::Other)
}

/// Reads an integer.
///
/// # Safety
/// [`region`] has allowed the access.
pub(super) unsafe fn load(address: u64, width: Width) -> u64 {
    let p = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: by contract.
    unsafe {
        match width {
            Width::B1 => p.read().into(),
            Width::B2 => p.cast::<u16>().read_unaligned().into(),
            Width::B4 => p.cast::<u32>().read_unaligned().into(),
            Width::B8 => p.cast::<u64>().read_unaligned(),
        }
    }
}

/// Writes the lower bytes of an integer.
///
/// # Safety
/// [`region`] has allowed the access.
pub(super) unsafe fn store(address: u64, width: Width, value: u64) {
    let p = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: by contract.
    unsafe {
        match width {
            Width::B1 => p.write(value as u8),
            Width::B2 => p.cast::<u16>().write_unaligned(value as u16),
            Width::B4 => p.cast::<u32>().write_unaligned(value as u32),
            Width::B8 => p.cast::<u64>().write_unaligned(value),
        }
    }
}
