//! The words of a divided program's block, and those that are kept during a call: leaves out those that no
//! code loads, and merges those that always have one value.
//!
//! The lowering stores a whole area of words at once and loads all of one. Most are of no use: a header field
//! that the program never changes equals the value that it has in the packet, metadata that no list names is
//! always 0.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{BinOp, Function, MapId, Op, Opnd, Val};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a word.
const WORD: u32 = 8;

/// The only value of a map that holds words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) map: MapId,
    /// Bytes before the first word.
    pub(super) header: u32,
}

impl Area {
    /// Returns the offset of a word.
    pub(super) const fn word(self, number: usize) -> i32 {
        (self.header + WORD * number as u32).cast_signed()
    }
}

/// Merges words that have the same value wherever one of them is stored: a load of either finds it, since a
/// packet continues with what one of these places stored.
pub(super) fn merge(f: &mut Function, area: Area) {
    if is_mixed(f, area.map) {
        return;
    }
    let mut stored: BTreeMap<i32, Vec<(Opnd, Opnd)>> = BTreeMap::new();
    for v in words(f, area) {
        if let Op::StoreMap { base, offset, value, .. } = f.inst(v).op {
            stored.entry(offset).or_default().push((base, value));
        }
    }
    // By what is stored at each place: the first word with it.
    let mut first: Vec<(&Vec<(Opnd, Opnd)>, i32)> = Vec::new();
    let mut same = BTreeMap::new();
    for (offset, values) in &stored {
        let known = first.iter().find(|(v, _)| *v == values).map(|(_, first)| *first);
        same.insert(*offset, known.unwrap_or(*offset));
        if known.is_none() {
            first.push((values, *offset));
        }
    }
    // The first load of each word in a basic block, which precedes the others there.
    let home: BTreeMap<Val, usize> =
        f.blocks.iter().enumerate().flat_map(|(b, data)| data.insts.iter().map(move |v| (*v, b))).collect();
    let mut loaded: BTreeMap<(usize, Val, i32), Val> = BTreeMap::new();
    for v in words(f, area) {
        let Op::LoadMap { base: Opnd::V(base), offset, bytes } = f.inst(v).op else { continue };
        let copy = |o| Op::Bin(BinOp::Or, o, Opnd::C(0));
        if let Some(c) = constant(stored.get(&offset).map_or(&[], Vec::as_slice)) {
            f.inst_mut(v).op = copy(Opnd::C(c));
            continue;
        }
        let offset = same.get(&offset).copied().unwrap_or(offset);
        let place = (home[&v], base, offset);
        f.inst_mut(v).op = match loaded.get(&place) {
            Some(first) => copy(Opnd::V(*first)),
            None => {
                loaded.insert(place, v);
                Op::LoadMap { base: Opnd::V(base), offset, bytes }
            }
        };
    }
}

/// Returns the value that is stored at each place; 0 if there is no place.
fn constant(values: &[(Opnd, Opnd)]) -> Option<u64> {
    let mut all = values.iter().map(|(_, value)| if let Opnd::C(c) = value { Some(*c) } else { None });
    let first = all.next().unwrap_or(Some(0))?;
    all.all(|c| c == Some(first)).then_some(first)
}

/// Removes the stores of words that no code loads, and closes the gaps.
pub(super) fn compact(f: &mut Function, area: Area) {
    // Of an address that a phi chooses it is not known what it points to.
    if is_mixed(f, area.map) {
        return;
    }
    let all = words(f, area);
    let loaded: BTreeSet<i32> = all
        .iter()
        .filter_map(|v| if let Op::LoadMap { offset, .. } = f.inst(*v).op { Some(offset) } else { None })
        .collect();
    let place: BTreeMap<i32, i32> = loaded.iter().enumerate().map(|(i, at)| (*at, area.word(i))).collect();
    let mut dead: BTreeSet<Val> = BTreeSet::new();
    for v in all {
        match &mut f.inst_mut(v).op {
            Op::LoadMap { offset, .. } | Op::StoreMap { offset, .. } => match place.get(offset) {
                Some(at) => *offset = *at,
                None => {
                    dead.insert(v);
                }
            },
            _ => {}
        }
    }
    f.blocks.iter_mut().for_each(|b| b.insts.retain(|v| !dead.contains(v)));
    f.maps[area.map.0 as usize].definition.value_size = area.word(place.len()) as u32;
}

/// Returns true if the address of the block is used for anything but tests, loads and stores.
fn is_mixed(f: &Function, map: MapId) -> bool {
    let is_address = |o: Opnd| matches!(f.op_of(o), Some(Op::Lookup { map: m, .. }) if *m == map);
    let mixes = |op: &Op| match op {
        Op::LoadMap { .. } | Op::Cmp(..) => false,
        Op::StoreMap { value, .. } => is_address(*value),
        other => {
            let mut found = false;
            other.visit(&mut |o| found |= is_address(o));
            found
        }
    };
    let live = ControlFlowGraph::new(f).order;
    let mut insts = live.iter().flat_map(|b| f.block(*b).phis.iter().chain(&f.block(*b).insts));
    insts.any(|v| mixes(&f.inst(*v).op))
}

/// Returns the loads and stores of words in the map.
fn words(f: &Function, area: Area) -> Vec<Val> {
    let in_block = |base: &Opnd, offset: i32| {
        offset >= area.header.cast_signed()
            && matches!(f.op_of(*base), Some(Op::Lookup { map, .. }) if *map == area.map)
    };
    let is_word = |v: &Val| match &f.inst(*v).op {
        Op::LoadMap { base, offset, .. } | Op::StoreMap { base, offset, .. } => in_block(base, *offset),
        _ => false,
    };
    let g = ControlFlowGraph::new(f);
    g.order.iter().flat_map(|b| f.block(*b).insts.iter().copied().filter(|v| is_word(v))).collect()
}
