//! Builds SSA form directly: variables are numbers, and reading one makes the phis that are needed
//! (Braun et al., "Simple and Efficient Construction of Static Single Assignment Form", CC 2013; as there are no
//! cycles, a block is only read in once all its predecessors are known).

use super::{BinOp, Block, Cc, Function, MapId, Op, Opnd, Term, Ty, mask};
use crate::source::Span;
use std::collections::HashMap;

/// A variable of the program that is being lowered, of one machine word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Builder {
    pub(crate) f: Function,
    pub(crate) at: Block,
    pub(crate) span: Span,
    preds: Vec<Vec<Block>>,
    defs: HashMap<(Slot, Block), Opnd>,
    types: Vec<Ty>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let mut f = Function::default();
        let at = f.add_block("entry", Span::default());
        Self {
            f,
            at,
            span: Span::default(),
            preds: vec![Vec::new()],
            defs: HashMap::new(),
            types: Vec::new(),
        }
    }

    pub(crate) fn slot(&mut self, ty: Ty) -> Slot {
        self.types.push(ty);
        Slot(self.types.len() as u32 - 1)
    }

    pub(crate) fn new_block(&mut self, label: &str) -> Block {
        self.preds.push(Vec::new());
        self.f.add_block(label, self.span)
    }

    /// Whether a finished block does nothing but jump to another.
    pub(crate) fn jumps(&self, from: Block, to: Block) -> bool {
        self.f.block(from).term == Term::Jump(to)
    }

    /// Whether nothing can reach the current block.
    pub(crate) fn is_dead(&self) -> bool {
        self.at != Block(0) && self.preds[self.at.0 as usize].is_empty()
    }

    /// Goes on in `b`, all of whose predecessors are finished.
    pub(crate) const fn switch_to(&mut self, b: Block) {
        self.at = b;
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
        self.defs.insert((s, self.at), v);
    }

    /// The value of a variable here; 0 if it was never written.
    pub(crate) fn read(&mut self, s: Slot) -> Opnd {
        self.read_in(s, self.at)
    }

    /// Works with a list of blocks instead of recursion: programs may be long.
    fn read_in(&mut self, s: Slot, b: Block) -> Opnd {
        let mut open = vec![b];
        while let Some(at) = open.last().copied() {
            if self.defs.contains_key(&(s, at)) {
                open.pop();
                continue;
            }
            let preds = &self.preds[at.0 as usize];
            let unknown: Vec<Block> =
                preds.iter().copied().filter(|p| !self.defs.contains_key(&(s, *p))).collect();
            if unknown.is_empty() {
                let v = self.join(s, at);
                self.defs.insert((s, at), v);
            } else {
                open.extend(unknown);
            }
        }
        self.defs[&(s, b)]
    }

    /// The value of a variable at the start of a block, given its values at the ends of the predecessors.
    fn join(&mut self, s: Slot, b: Block) -> Opnd {
        let ins: Vec<(Block, Opnd)> =
            self.preds[b.0 as usize].iter().map(|p| (*p, self.defs[&(s, *p)])).collect();
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

    /// The lowest `to` bits of a value.
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

    /// Nothing but the finished function.
    pub(crate) fn into_function(self) -> Function {
        self.f
    }

    /// The current block ends here, whatever stands behind it is never reached.
    pub(crate) fn stop(&mut self) {
        let dead = self.new_block("unreachable");
        self.switch_to(dead);
    }
}
