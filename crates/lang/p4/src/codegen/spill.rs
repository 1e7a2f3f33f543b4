//! Memory for values beyond a program's stack.
//!
//! eBPF has 512 bytes of stack, and each value on it that the verifier follows makes its proof longer. A program with
//! many values keeps them in the one value of an array map, whose address is looked up first and then stays in a
//! register. What is there is written before it is read in each run, so nothing of an earlier packet is seen. The
//! verifier takes what such memory holds for any number: only numbers on which no packet access depends live there.

use super::insn;
use super::machine::{Arg, Base, M, MBlock, Machine, Reg, Src, Target};
use crate::ir::{Block, Function, Map, MapId};
use crate::source::Span;
use p4shield_abi::helper;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};

/// The register that holds the address: one that calls keep.
pub(super) const POINTER: u8 = 9;
/// Bytes of stack from which on a program gets such memory.
pub(super) const WORTHWHILE: u32 = 192;
/// The furthest that an instruction reaches into the memory, in values of eight bytes.
pub(super) const MAX_VALUES: u32 = 4095;

/// The memory of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    map: MapId,
    /// Its address, in [`POINTER`].
    pub(super) pointer: Reg,
}

/// The end of a program whose memory is not there, which does not happen.
const MISSING: Block = Block(u32::MAX);

/// Gives a program memory beyond its stack.
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
    m.area = Some(Area { map, pointer });
    m.key_bytes = m.key_bytes.max(8);
    let key = -8;
    let target = Target::Helper(helper::MAP_LOOKUP_ELEM);
    let args = vec![Arg::Map(map), Arg::Frame(key)];
    let prologue = [
        M::Store { bytes: 4, base: Base::Frame, offset: key, src: Src::Imm(0) },
        M::Call { target, args, dst: Some(pointer) },
        M::Branch { op: insn::JEQ, wide: true, a: pointer, b: Src::Imm(0), to: MISSING },
    ];
    if let Some(first) = m.blocks.first_mut() {
        let span = first.insts.first().map(|(_, s)| *s).unwrap_or_default();
        first.insts.splice(0..0, prologue.into_iter().map(|i| (i, span)));
    }
    m.blocks.push(MBlock { block: MISSING, insts: vec![(M::Return(Src::Imm(0)), Span::default())] });
}

/// Makes the memory as large as it has to be.
pub(super) fn size(f: &mut Function, area: Area, values: u32) {
    f.maps[area.map.0 as usize].definition.value_size = 8 * values.max(1);
}
