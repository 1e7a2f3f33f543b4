//! Spill memory beyond a program's stack.
//!
//! eBPF has 512 bytes of stack, and each spilled value that the verifier tracks prolongs its analysis. A
//! program with many values spills them to the single value of an array map. The program looks up its
//! address first and keeps it in a register. Each run writes a spilled value before it reads it, so no
//! data of an earlier packet is visible. The verifier assumes any number for a value loaded from a map;
//! so only numbers that no packet access depends on are spilled there.

use super::insn;
use super::machine::{Arg, Base, CallTarget, MBlock, MInst, Machine, Reg, SpillMemory, Src};
use crate::ir::{Block, Function, Map, MapId};
use crate::source::Span;
use p4shield_abi::helper;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};

/// The register that holds the address, a callee-saved one.
pub(super) const POINTER: u8 = 9;
/// Stack size in bytes from which a program gets spill memory.
pub(super) const WORTHWHILE: u32 = 192;
/// Maximum number of 8-byte values that an instruction can address in the memory.
pub(super) const MAX_VALUES: u32 = 4095;

/// The exit for the impossible case that the map lookup fails.
const MISSING: Block = Block(u32::MAX);

/// Adds spill memory to a program.
pub(super) fn provide(f: &mut Function, m: &mut Machine) {
    let mut name = "spill".to_owned();
    while f.maps.iter().any(|m| m.name == name) {
        name.push('_');
    }
    let definition =
        MapDefinition { map_type: TYPE_ARRAY, key_size: 4, value_size: 8, max_entries: 1, flags: 0 };
    f.maps.push(Map { name, definition, entries: Vec::new() });
    let map = MapId(f.maps.len() as u32 - 1);
    let pointer = Reg(m.regs);
    m.regs += 1;
    m.spill_memory = Some(SpillMemory { map, pointer });
    m.key_bytes = m.key_bytes.max(8);
    let key = -8;
    let target = CallTarget::Helper(helper::MAP_LOOKUP_ELEM);
    let args = vec![Arg::Map(map), Arg::Frame(key)];
    let prologue = [
        MInst::Store { bytes: 4, base: Base::Frame, offset: key, src: Src::Imm(0) },
        MInst::Call { target, args, dst: Some(pointer) },
        MInst::Branch { op: insn::JEQ, wide: true, a: pointer, b: Src::Imm(0), to: MISSING },
    ];
    if let Some(first) = m.blocks.first_mut() {
        let span = first.insts.first().map(|(_, s)| *s).unwrap_or_default();
        first.insts.splice(0..0, prologue.into_iter().map(|i| (i, span)));
    }
    m.blocks.push(MBlock { block: MISSING, insts: vec![(MInst::Return(Src::Imm(0)), Span::default())] });
}

/// Sets the size of the memory.
pub(super) fn size(f: &mut Function, spill_memory: SpillMemory, values: u32) {
    f.maps[spill_memory.map.0 as usize].definition.value_size = 8 * values.max(1);
}
