//! Constant folding and propagation, copy propagation, and common subexpression elimination.

use super::facts::BranchFacts;
use super::rules::{Rewrite, rewrite};
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Op, Opnd, Term, Ty, Val};
use p4shield_abi::context::offset;
use p4shield_abi::map::TYPE_ARRAY;
use std::collections::HashMap;

/// Equal keys identify equal computations; phis only within a block.
type Key = (Op, Ty, Option<Block>);

struct Simplifier<'a> {
    f: &'a mut Function,
    g: ControlFlowGraph,
    facts: BranchFacts,
    /// The replacements of values.
    replaced: HashMap<Val, Opnd>,
    /// Computations by key, with the block of each; phis only with those of their own block.
    seen: HashMap<Key, Vec<(Val, Block)>>,
    changed: bool,
}

/// Runs one pass over the function; returns whether anything changed.
pub(super) fn simplify(f: &mut Function) -> bool {
    let g = ControlFlowGraph::new(f);
    let order = g.order.clone();
    let mut s = Simplifier {
        f,
        g,
        facts: BranchFacts::default(),
        replaced: HashMap::new(),
        seen: HashMap::new(),
        changed: false,
    };
    for b in order {
        s.block(b);
    }
    s.changed
}

impl Simplifier<'_> {
    fn block(&mut self, b: Block) {
        self.facts.enter(self.f, &self.g, b);
        let phis = std::mem::take(&mut self.f.block_mut(b).phis);
        let insts = std::mem::take(&mut self.f.block_mut(b).insts);
        let mut kept = Vec::with_capacity(phis.len());
        for v in phis {
            if self.value(v, b, &mut Vec::new()) {
                kept.push(v);
            }
        }
        self.f.block_mut(b).phis = kept;
        let mut kept = Vec::with_capacity(insts.len());
        for v in insts {
            if self.value(v, b, &mut kept) {
                kept.push(v);
            }
        }
        self.f.block_mut(b).insts = kept;
        let mut term = std::mem::replace(&mut self.f.block_mut(b).term, Term::None);
        if let Some(o) = term.operand_mut() {
            let new = self.resolve(*o, b);
            self.changed |= new != *o;
            *o = new;
        }
        if let Term::Branch(Opnd::V(c), t, e) = term
            && let Op::Bin(crate::ir::BinOp::Xor, x, Opnd::C(1)) = self.f.inst(c).op
        {
            term = Term::Branch(x, e, t);
            self.changed = true;
        }
        self.f.block_mut(b).term = term;
    }

    /// Returns the current replacement of an operand in block `b`.
    fn resolve(&self, o: Opnd, b: Block) -> Opnd {
        let mut o = o;
        while let Opnd::V(v) = o {
            if let Some(n) = self.facts.value(&self.g, v, b) {
                return Opnd::C(n);
            }
            match self.replaced.get(&v) {
                Some(n) => o = *n,
                None => break,
            }
        }
        o
    }

    /// Simplifies a value; returns whether it remains. Appends the new operations that it needs to `before`.
    fn value(&mut self, v: Val, b: Block, before: &mut Vec<Val>) -> bool {
        let mut op = self.f.inst(v).op.clone();
        if let Op::Phi(ins) = &mut op {
            for (p, o) in ins {
                *o = self.resolve(*o, *p);
            }
        } else {
            op.for_each_operand(&mut |o| *o = self.resolve(*o, b));
        }
        let ty = self.f.inst(v).ty;
        // Rules only simplify, so this ends; the bound guards against rules that undo each other.
        for _ in 0..16 {
            if let Op::InBounds { base, len, end } = op
                && self.facts.in_bounds(&self.g, base, end, b).is_some_and(|n| n >= len)
            {
                return self.replace(v, Opnd::C(1));
            }
            match rewrite(self.f, &op, ty) {
                None => break,
                Some(Rewrite::Use(o)) => return self.replace(v, o),
                Some(Rewrite::Op(new)) => op = new,
                Some(Rewrite::Chain(first, first_ty, make, c, w)) => {
                    let inner = self.f.make(first, first_ty, self.f.inst(v).span);
                    let o = if self.value(inner, b, before) {
                        before.push(inner);
                        Opnd::V(inner)
                    } else {
                        self.resolve(Opnd::V(inner), b)
                    };
                    op = make(o, c, w);
                }
            }
            self.changed = true;
        }
        self.changed |= self.f.inst(v).op != op;
        if let Some(key) = self.key(&op, ty, b) {
            let known = self.seen.entry(key).or_default();
            if let Some((other, _)) = known.iter().find(|(_, from)| self.g.dominates(*from, b)) {
                let other = *other;
                if other != v {
                    return self.replace(v, Opnd::V(other));
                }
            }
            known.push((v, b));
        }
        self.f.inst_mut(v).op = op;
        true
    }

    fn replace(&mut self, v: Val, by: Opnd) -> bool {
        self.replaced.insert(v, by);
        self.changed = true;
        false
    }

    /// Returns the key of operations whose result depends only on their operands.
    fn key(&self, op: &Op, ty: Ty, b: Block) -> Option<Key> {
        let phi = matches!(op, Op::Phi(_)).then_some(b);
        let pure = match op {
            // Packet loads precede all changes of the packet.
            Op::Phi(_) | Op::Bin(..) | Op::Cmp(..) | Op::Swap(..) | Op::Offset(..) | Op::Load { .. } => true,
            Op::InBounds { .. } => true,
            // The packet's bounds and length change with its size.
            Op::Context(at, _) => !matches!(*at, offset::DATA | offset::DATA_END | offset::PACKET_LENGTH),
            Op::Lookup { map, .. } => self.f.maps[map.0 as usize].definition.map_type == TYPE_ARRAY,
            _ => false,
        };
        pure.then(|| (op.clone(), ty, phi))
    }
}
