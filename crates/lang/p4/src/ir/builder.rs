//! Construction of SSA form: variables are numbers, and a read inserts the phis that it needs (after
//! Braun et al., "Simple and Efficient Construction of Static Single Assignment Form", CC 2013).
//!
//! The control flow graph has no cycles, and the lowering enters a block once all its predecessors
//! are finished. So blocks have numbers in topological order and a dominator tree from the start,
//! and a read need not walk through the blocks between it and the last write. That matters for
//! programs with many variables and blocks, of which few pairs are related.

use super::tree::DominatorTree;
use super::{BinOp, Block, Cc, Function, Map, MapId, Op, Opnd, Term, Ty, mask};
use crate::source::Span;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};

/// A variable of the program that is being lowered, of at most 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

#[derive(Clone, Debug)]
pub(crate) struct Builder {
    pub(crate) f: Function,
    pub(crate) at: Block,
    pub(crate) span: Span,
    preds: Vec<Vec<Block>>,
    tree: DominatorTree,
    /// By slot: the known values at the ends of blocks, by the blocks' numbers in the tree.
    defs: Vec<Vec<(u32, Opnd)>>,
    types: Vec<Ty>,
    watched: Option<Watch>,
}

/// A variable whose first write is recorded.
#[derive(Clone, Debug)]
struct Watch {
    slot: Slot,
    /// The location of the first write of anything but 0.
    written: Option<Span>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let mut f = Function::default();
        let at = f.add_block("entry", Span::default());
        let mut tree = DominatorTree::default();
        tree.enter(at, &[]);
        Self {
            f,
            at,
            span: Span::default(),
            preds: vec![Vec::new()],
            tree,
            defs: Vec::new(),
            types: Vec::new(),
            watched: None,
        }
    }

    /// Starts to record where a variable is written.
    pub(crate) fn watch(&mut self, slot: Slot) {
        self.watched = Some(Watch { slot, written: None });
    }

    /// Returns where the watched variable was first assigned anything but 0.
    pub(crate) fn watched(&self) -> Option<Span> {
        self.watched.as_ref()?.written
    }

    pub(crate) fn slot(&mut self, ty: Ty) -> Slot {
        self.types.push(ty);
        self.defs.push(Vec::new());
        Slot(self.types.len() as u32 - 1)
    }

    /// Returns the type of a variable.
    pub(crate) fn type_of(&self, s: Slot) -> Ty {
        self.types[s.0 as usize]
    }

    /// Makes the branch at the end of a finished block a jump to one of its targets. The other target was not
    /// entered.
    pub(crate) fn only_jump(&mut self, from: Block, to: Block) {
        self.f.block_mut(from).term = Term::Jump(to);
    }

    pub(crate) fn new_block(&mut self, label: &str) -> Block {
        self.preds.push(Vec::new());
        self.f.add_block(label, self.span)
    }

    /// Whether a finished block only jumps to another.
    pub(crate) fn jumps(&self, from: Block, to: Block) -> bool {
        self.f.block(from).term == Term::Jump(to)
    }

    /// Whether the current block is unreachable.
    pub(crate) fn is_dead(&self) -> bool {
        self.at != Block(0) && self.preds[self.at.0 as usize].is_empty()
    }

    /// Continues in `b`, all of whose predecessors are finished.
    pub(crate) fn switch_to(&mut self, b: Block) {
        self.at = b;
        self.tree.enter(b, &self.preds[b.0 as usize]);
    }

    fn finish(&mut self, term: Term) {
        if self.f.block(self.at).term != Term::None {
            return;
        }
        if !self.is_dead() {
            for s in term.successors() {
                self.preds[s.0 as usize].push(self.at);
            }
            self.f.block_mut(self.at).term = term;
        }
    }

    pub(crate) fn jump(&mut self, to: Block) {
        self.finish(Term::Jump(to));
    }

    pub(crate) fn branch(&mut self, c: Opnd, t: Block, f: Block) {
        match c {
            Opnd::C(0) => self.jump(f),
            Opnd::C(_) => self.jump(t),
            Opnd::V(_) if t == f => self.jump(t),
            Opnd::V(_) => self.finish(Term::Branch(c, t, f)),
        }
    }

    pub(crate) fn ret(&mut self, v: Opnd) {
        self.finish(Term::Return(v));
    }

    pub(crate) fn write(&mut self, s: Slot, v: Opnd) {
        if let Some(w) = self.watched.as_mut().filter(|w| w.slot == s && v != Opnd::C(0)) {
            w.written.get_or_insert(self.span);
        }
        self.define(s, self.at, v);
    }

    fn define(&mut self, s: Slot, b: Block, v: Opnd) {
        let number = self.tree.number(b);
        let defs = &mut self.defs[s.0 as usize];
        match defs.binary_search_by_key(&number, |(n, _)| *n) {
            Ok(i) => defs[i].1 = v,
            Err(i) => defs.insert(i, (number, v)),
        }
    }

    /// Returns the current value of a variable; 0 if it was never written.
    pub(crate) fn read(&mut self, s: Slot) -> Opnd {
        loop {
            match self.find(s, self.at) {
                Ok(v) => return v,
                Err(b) => self.join_at(s, b),
            }
        }
    }

    /// Returns the value of a variable at the end of a block, or the block whose start may need a phi.
    fn find(&self, s: Slot, b: Block) -> Result<Opnd, Block> {
        let mut b = b;
        loop {
            let defs = &self.defs[s.0 as usize];
            let before = defs.partition_point(|(n, _)| *n <= self.tree.number(b));
            let Some((last, v)) = before.checked_sub(1).map(|i| defs[i]) else { return Ok(Opnd::C(0)) };
            // No path from the last write to this block writes the variable: its value is that at the
            // start of the first block behind the write that dominates this one.
            let top = self.tree.highest(b, last);
            if self.tree.number(top) == last {
                return Ok(v);
            }
            match self.preds[top.0 as usize].as_slice() {
                [] => return Ok(Opnd::C(0)),
                [p] => b = *p,
                _ => return Err(top),
            }
        }
    }

    /// Determines the value of a variable at the start of a join block. Uses a work list
    /// instead of recursion: programs may be long.
    fn join_at(&mut self, s: Slot, b: Block) {
        let mut open = vec![b];
        while let Some(at) = open.last().copied() {
            let (mut ins, before) = (Vec::new(), open.len());
            for p in &self.preds[at.0 as usize] {
                match self.find(s, *p) {
                    Ok(v) => ins.push((*p, v)),
                    Err(b) => open.push(b),
                }
            }
            if open.len() == before {
                open.pop();
                let v = self.join(s, at, ins);
                self.define(s, at, v);
            }
        }
    }

    /// Returns the value of a variable at the start of a block, given its values at the ends of
    /// the predecessors.
    fn join(&mut self, s: Slot, b: Block, ins: Vec<(Block, Opnd)>) -> Opnd {
        let Some((_, first)) = ins.first().copied() else { return Opnd::C(0) };
        if ins.iter().all(|(_, v)| *v == first) {
            return first;
        }
        let v = self.f.make(Op::Phi(ins), self.types[s.0 as usize], self.span);
        self.f.block_mut(b).phis.push(v);
        Opnd::V(v)
    }

    /// Appends an instruction.
    pub(crate) fn emit(&mut self, op: Op, ty: Ty) -> Opnd {
        let v = self.f.make(op, ty, self.span);
        self.f.block_mut(self.at).insts.push(v);
        Opnd::V(v)
    }

    pub(crate) fn bin(&mut self, op: BinOp, a: Opnd, b: Opnd, w: u8) -> Opnd {
        match crate::opt::fold::bin(op, a, b, w) {
            Some(o) => o,
            None => self.emit(Op::Bin(op, a, b), Ty::Int(w)),
        }
    }

    pub(crate) fn cmp(&mut self, cc: Cc, a: Opnd, b: Opnd, w: u8) -> Opnd {
        match (a, b) {
            (Opnd::C(x), Opnd::C(y)) => Opnd::C(u64::from(cc.holds(x, y, w))),
            _ => self.emit(Op::Cmp(cc, a, b, w), Ty::Int(1)),
        }
    }

    /// Returns the lowest `to` bits of a value.
    pub(crate) fn truncate(&mut self, a: Opnd, to: u8) -> Opnd {
        if self.f.bits(a) <= to {
            return a;
        }
        self.bin(BinOp::And, a, Opnd::C(mask(to)), to)
    }

    pub(crate) fn not(&mut self, a: Opnd) -> Opnd {
        self.bin(BinOp::Xor, a, Opnd::C(1), 1)
    }

    pub(crate) fn offset(&mut self, base: Opnd, by: Opnd) -> Opnd {
        if by == Opnd::C(0) { base } else { self.emit(Op::Offset(base, by), Ty::Packet) }
    }

    pub(crate) fn swap(&mut self, bytes: u8, a: Opnd) -> Opnd {
        match (bytes, a) {
            (1, _) => a,
            (_, Opnd::C(c)) => Opnd::C(crate::opt::fold::swap(bytes, c)),
            _ => self.emit(Op::Swap(bytes, a), Ty::Int(bytes * 8)),
        }
    }

    pub(crate) fn lookup(&mut self, map: MapId, key: Vec<super::KeyPart>) -> Opnd {
        self.emit(Op::Lookup { map, key }, Ty::MapValue)
    }

    /// Returns the address of the only value of a map; goes to `refuse` if there is none.
    pub(crate) fn only_value(&mut self, map: MapId, label: &str, refuse: Block) -> Opnd {
        let base = self.lookup(map, vec![(0, 4, Opnd::C(0))]);
        let there = self.cmp(Cc::Ne, base, Opnd::C(0), 64);
        let go_on = self.new_block(label);
        self.branch(there, go_on, refuse);
        self.switch_to(go_on);
        base
    }

    /// Makes room for so many bytes in the only value of a map, which is added if there is none.
    pub(crate) fn value_of(&mut self, map: &mut Option<MapId>, name: &str, bytes: u32) -> MapId {
        let map = *map.get_or_insert_with(|| {
            let definition =
                MapDefinition { map_type: TYPE_ARRAY, key_size: 4, value_size: 0, max_entries: 1, flags: 0 };
            self.f.maps.push(Map { name: name.to_owned(), definition, entries: Vec::new() });
            MapId(self.f.maps.len() as u32 - 1)
        });
        let size = &mut self.f.maps[map.0 as usize].definition.value_size;
        *size = bytes.max(*size);
        map
    }

    /// Returns the finished function.
    pub(crate) fn into_function(self) -> Function {
        self.f
    }

    /// Ends the current block: the code behind it is unreachable.
    pub(crate) fn stop(&mut self) {
        let dead = self.new_block("unreachable");
        self.switch_to(dead);
    }
}
