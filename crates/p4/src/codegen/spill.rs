//! Memory for values beyond a program's stack.
//!
//! eBPF has 512 bytes of stack. A large program keeps the values that do not fit in the one value of an array map,
//! whose address is looked up first and then kept on the stack. What is there is written before it is read in each
//! run, so nothing of an earlier packet is seen. The verifier knows nothing of what such memory holds: only numbers on
//! which no packet access depends may live there.

use super::insn;
use super::machine::{Arg, Base, M, MBlock, Machine, Reg, Src, Target};
use crate::ir::{Block, Function, Map, MapId};
use crate::source::Span;
use p4shield_abi::helper;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};

/// The furthest that an instruction reaches into the memory, in values of eight bytes.
pub(super) const MAX_VALUES: u32 = 4095;

/// The memory of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    map: MapId,
    /// Where on the stack its address is, from the frame pointer.
    pub(super) address: i32,
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
    m.key_bytes = m.key_bytes.max(8);
    let address = -(m.key_bytes + 8).cast_signed();
    m.area = Some(Area { map, address });
    let (dst, key) = (Reg(m.regs), -8);
    m.regs += 1;
    let target = Target::Helper(helper::MAP_LOOKUP_ELEM);
    let args = vec![Arg::Map(map), Arg::Frame(key)];
    let (a, b) = (dst, Src::Imm(0));
    let prologue = [
        M::Store { bytes: 4, base: Base::Frame, offset: key, src: b },
        M::Call { target, args, dst: Some(dst) },
        M::Branch { op: insn::JEQ, wide: true, a, b, to: MISSING },
        M::Store { bytes: 8, base: Base::Frame, offset: address, src: Src::Reg(dst) },
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
