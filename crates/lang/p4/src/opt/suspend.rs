//! Suspension: divides a function at each call of a function in a compartment ([`p4shield_abi::call`]).
//!
//! The run ends there, behind code that stores every value which is needed later. Another run enters behind
//! the call, at code that loads them. A pointer into the packet is kept as its distance from the packet's
//! start; the code that writes a header checks its bounds again.
//!
//! ```text
//!            start ─► a ─► [suspend] b ─► c         start ─► a ─► store, return
//!                                            entry ◄
//!                                                    answer 1 ─► load ─► b ─► c
//! ```

use super::block::Area;
use super::repair::Repair;
use super::uses;
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{BinOp, Block, Cc, Function, MapId, Op, Opnd, Term, Ty, Val};
use crate::source::Span;
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::context::offset::{DATA, DATA_END, OUTPUT_ACTION, OUTPUT_PORT};
use p4shield_abi::division::{entry, request};
use std::collections::{BTreeSet, HashMap};

/// The reason why a program cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuspendError {
    /// It needs an address in a map, computed here, on both sides of a call.
    Address(Span),
    /// It has too many calls.
    TooMany,
}

/// A value that the part behind a call needs.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Number,
    /// A pointer, by its distance from the start of the packet.
    Distance(Opnd),
    /// The end of the packet.
    End,
}

struct Divider<'a> {
    f: &'a mut Function,
    area: Area,
    /// Where a run goes that has no message.
    refuse: Block,
    /// How pointers into the packet are kept.
    pointers: HashMap<Val, Kept>,
}

/// Divides a function at each suspension; `area` is the value with the messages, to which the kept values are
/// added.
///
/// # Errors
/// [`SuspendError`]; the function is of no use then.
pub(super) fn divide(f: &mut Function, area: Area) -> Result<(), SuspendError> {
    let order = ControlFlowGraph::new(f).order;
    let of = |b: &Block| f.block(*b).insts.iter().copied().filter(|v| f.inst(*v).op == Op::Suspend);
    let calls: Vec<Val> = order.iter().flat_map(of).collect();
    if calls.len() >= entry::MAX_CALLS as usize {
        return Err(SuspendError::TooMany);
    }
    let refuse = f.add_block("refuse", Span::default());
    f.block_mut(refuse).term = Term::Return(Opnd::C(0));
    let mut d = Divider { f, area, refuse, pointers: HashMap::new() };
    let start = d.move_start();
    let answers: Vec<Block> = calls.iter().map(|_| d.f.add_block("answer", Span::default())).collect();
    d.dispatch(start, &answers);
    for (number, (call, answer)) in calls.into_iter().zip(answers).enumerate() {
        d.divide_at(number, call, answer)?;
    }
    Ok(())
}

impl Divider<'_> {
    /// Makes room for code in front of the function. Returns the block where it starts now.
    fn move_start(&mut self) -> Block {
        let first = self.f.block(Block(0)).clone();
        let start = self.f.add_block("start", first.span);
        self.move_successors(Block(0), start);
        *self.f.block_mut(start) = first;
        let data = self.f.block_mut(Block(0));
        data.insts.clear();
        data.term = Term::None;
        // The number of an answer is above what the rest of the function knows.
        for b in 0..self.f.blocks.len() {
            let insts = std::mem::take(&mut self.f.blocks[b].insts);
            let mut all = Vec::with_capacity(insts.len());
            for v in insts {
                if let Op::Context(OUTPUT_ACTION, _) = self.f.inst(v).op {
                    let (op, span) = (self.f.inst(v).op.clone(), self.f.inst(v).span);
                    let whole = self.f.make(op, Ty::Int(32), span);
                    all.push(whole);
                    self.f.inst_mut(v).op = Op::Bin(BinOp::And, Opnd::V(whole), Opnd::C(entry::PLAIN.into()));
                }
                all.push(v);
            }
            self.f.blocks[b].insts = all;
        }
        start
    }

    /// Has phis behind a block name another one as their predecessor.
    fn move_successors(&mut self, from: Block, to: Block) {
        for s in self.f.block(from).term.successors() {
            self.f
                .for_each_phi(s, |_, ins| ins.iter_mut().filter(|(p, _)| *p == from).for_each(|i| i.0 = to));
        }
    }

    /// Branches to the answers, and to `start` for a packet without one.
    fn dispatch(&mut self, start: Block, answers: &[Block]) {
        let mut at = Block(0);
        let which = self.push(at, Op::Context(OUTPUT_ACTION, 4), Ty::Int(32));
        let shift = Opnd::C(entry::ANSWER_SHIFT.into());
        let which = self.push(at, Op::Bin(BinOp::Shr, which, shift), Ty::Int(32));
        for (number, target) in [start].iter().chain(answers).enumerate() {
            let next = self.f.add_block("which answer", Span::default());
            let is = self.push(at, Op::Cmp(Cc::Eq, which, Opnd::C(number as u64), 32), Ty::Int(1));
            self.f.block_mut(at).term = Term::Branch(is, *target, next);
            at = next;
        }
        self.f.block_mut(at).term = Term::Jump(self.refuse);
    }

    fn push(&mut self, b: Block, op: Op, ty: Ty) -> Opnd {
        let v = self.f.make(op, ty, self.f.block(b).span);
        self.f.block_mut(b).insts.push(v);
        Opnd::V(v)
    }

    /// Divides the function at one call. A run goes on at `answer`.
    fn divide_at(&mut self, number: usize, call: Val, answer: Block) -> Result<(), SuspendError> {
        let g = ControlFlowGraph::new(self.f);
        let Some(b) = g.order.iter().copied().find(|b| self.f.block(*b).insts.contains(&call)) else {
            return Ok(());
        };
        self.find_distances(&g);
        let behind = self.split(b, call);
        let live = self.live(behind);
        let kept: Vec<(Val, Kept)> =
            live.into_iter().map(|v| Ok((v, self.kept(v)?))).collect::<Result<_, SuspendError>>()?;
        let store = self.with_value(b);
        self.store(store, number, &kept);
        self.f.block_mut(answer).span = self.f.block(b).span;
        let load = self.with_value(answer);
        let (loaded, end) = self.load(load, &kept);
        self.f.block_mut(end).term = Term::Jump(behind);
        self.replace(&loaded, end);
        Ok(())
    }

    /// Moves the instructions behind a call to a block of their own.
    fn split(&mut self, b: Block, call: Val) -> Block {
        let span = self.f.inst(call).span;
        let behind = self.f.add_block("behind the call", span);
        self.move_successors(b, behind);
        let data = self.f.block_mut(b);
        let at = data.insts.iter().position(|v| *v == call).unwrap_or(data.insts.len());
        let insts = data.insts.split_off((at + 1).min(data.insts.len()));
        data.insts.truncate(at);
        let term = std::mem::replace(&mut data.term, Term::None);
        let behind_data = self.f.block_mut(behind);
        (behind_data.insts, behind_data.term) = (insts, term);
        behind
    }

    /// Determines the distance of each pointer into the packet.
    fn find_distances(&mut self, g: &ControlFlowGraph) {
        let known = &self.pointers;
        let is_new = |f: &Function, v: &Val| f.inst(*v).ty == Ty::Packet && !known.contains_key(v);
        let of = |b: &Block| self.f.block(*b).phis.iter().chain(&self.f.block(*b).insts).copied();
        let new: Vec<(Block, Val)> =
            g.order.iter().flat_map(|b| of(b).map(|v| (*b, v))).filter(|(_, v)| is_new(self.f, v)).collect();
        for (b, v) in new {
            let kept = self.distance(b, v);
            self.pointers.insert(v, kept);
        }
    }

    fn distance(&mut self, b: Block, v: Val) -> Kept {
        let of = |d: &Self, o: Opnd| match o {
            Opnd::V(v) => d.pointers.get(&v).copied().unwrap_or(Kept::End),
            Opnd::C(_) => Kept::Distance(Opnd::C(0)),
        };
        let span = self.f.inst(v).span;
        let (op, is_phi) = match self.f.inst(v).op.clone() {
            Op::Context(DATA, _) => return Kept::Distance(Opnd::C(0)),
            Op::Offset(base, by) => match of(self, base) {
                Kept::Distance(base) => (Op::Bin(BinOp::Add, base, by), false),
                other => return other,
            },
            Op::Phi(ins) => {
                let distance = |(p, o): &(Block, Opnd)| match of(self, *o) {
                    Kept::Distance(o) => Some((*p, o)),
                    _ => None,
                };
                match ins.iter().map(distance).collect() {
                    Some(ins) => (Op::Phi(ins), true),
                    None => return Kept::End,
                }
            }
            _ => return Kept::End,
        };
        let distance = self.f.make(op, Ty::Int(64), span);
        let data = self.f.block_mut(b);
        if is_phi {
            data.phis.push(distance);
        } else {
            let at = data.insts.iter().position(|i| *i == v).map_or(data.insts.len(), |i| i + 1);
            data.insts.insert(at, distance);
        }
        Kept::Distance(Opnd::V(distance))
    }

    /// Returns the values that the code from a block on needs from before.
    fn live(&self, from: Block) -> BTreeSet<Val> {
        let mut reached = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(b) = open.pop() {
            open.extend(self.f.block(b).term.successors().into_iter().filter(|s| reached.insert(*s)));
        }
        let inside = |b: &Block| self.f.block(*b).phis.iter().chain(&self.f.block(*b).insts).copied();
        let defined: BTreeSet<Val> = reached.iter().flat_map(inside).collect();
        let mut live = BTreeSet::new();
        for b in &reached {
            uses::in_block(self.f, *b, &mut |v, found| {
                let passes = !matches!(found, uses::Use::Edge(_, p) if !reached.contains(&p));
                if passes && !defined.contains(&v) {
                    live.insert(v);
                }
            });
        }
        live
    }

    fn kept(&self, v: Val) -> Result<Kept, SuspendError> {
        match self.f.inst(v).ty {
            Ty::Packet => Ok(self.pointers.get(&v).copied().unwrap_or(Kept::End)),
            Ty::MapValue => Err(SuspendError::Address(self.f.inst(v).span)),
            Ty::Int(_) | Ty::None => Ok(Kept::Number),
        }
    }

    /// Ends a block with a check that the value exists. Returns the block behind it.
    fn with_value(&mut self, b: Block) -> Block {
        let behind = self.f.add_block("kept values", self.f.block(b).span);
        let key = vec![(0, 4, Opnd::C(0))];
        let base = self.push(b, Op::Lookup { map: self.area.map, key }, Ty::MapValue);
        let there = self.push(b, Op::Cmp(Cc::Ne, base, Opnd::C(0), 64), Ty::Int(1));
        self.f.block_mut(b).term = Term::Branch(there, behind, self.refuse);
        behind
    }

    /// Returns the address of the value, which the last block has checked.
    fn base(&self, behind: Block) -> Opnd {
        let checks = |b: &&crate::ir::BlockData| matches!(b.term, Term::Branch(_, to, _) if to == behind);
        let compared = self.f.blocks.iter().find(checks).and_then(|b| b.term.operand());
        match compared.and_then(|c| self.f.op_of(c)) {
            Some(Op::Cmp(_, base, ..)) => *base,
            _ => Opnd::C(0),
        }
    }

    /// Stores kept values and ends the run.
    fn store(&mut self, b: Block, number: usize, kept: &[(Val, Kept)]) {
        let base = self.base(b);
        for (i, (v, kept)) in kept.iter().enumerate() {
            let value = match kept {
                Kept::Number => Opnd::V(*v),
                Kept::Distance(distance) => *distance,
                Kept::End => continue,
            };
            let offset = self.area.word(i);
            self.push(b, Op::StoreMap { base, offset, bytes: 8, value }, Ty::None);
        }
        for (field, value) in [(OUTPUT_ACTION, u64::from(request::CALL)), (OUTPUT_PORT, number as u64)] {
            self.push(b, Op::SetContext(field, 4, Opnd::C(value)), Ty::None);
        }
        self.f.block_mut(b).term = Term::Return(Opnd::C(0));
    }

    /// Loads kept values. Returns each with what replaces it, and the block in which all are there.
    fn load(&mut self, b: Block, kept: &[(Val, Kept)]) -> (Vec<(Val, Opnd)>, Block) {
        let (mut b, base) = (b, self.base(b));
        let [data, end] = [DATA, DATA_END].map(|at| self.push(b, Op::Context(at, 8), Ty::Packet));
        let mut loaded = Vec::new();
        for (i, (v, kept)) in kept.iter().enumerate() {
            let word = |ty| (Op::LoadMap { base, offset: self.area.word(i), bytes: 8 }, ty);
            let new = match kept {
                Kept::Number => {
                    let (op, ty) = word(self.f.inst(*v).ty);
                    self.push(b, op, ty)
                }
                Kept::Distance(Opnd::C(0)) => data,
                Kept::Distance(_) => {
                    let (op, ty) = word(Ty::Int(64));
                    let distance = self.push(b, op, ty);
                    let distance = self.limit(&mut b, distance);
                    self.push(b, Op::Offset(data, distance), Ty::Packet)
                }
                Kept::End => end,
            };
            loaded.push((*v, new));
        }
        (loaded, b)
    }

    /// Returns a distance that the verifier knows to be within a packet; 0 instead of one that is not. Goes
    /// on in another block.
    fn limit(&mut self, b: &mut Block, distance: Opnd) -> Opnd {
        let span = self.f.block(*b).span;
        let [beyond, behind] = ["beyond", "kept values"].map(|label| self.f.add_block(label, span));
        let within = Op::Cmp(Cc::Ule, distance, Opnd::C(MAX_HEADER_BYTES.into()), 64);
        let within = self.push(*b, within, Ty::Int(1));
        self.f.block_mut(*b).term = Term::Branch(within, behind, beyond);
        self.f.block_mut(beyond).term = Term::Jump(behind);
        let phi = Op::Phi(vec![(*b, distance), (beyond, Opnd::C(0))]);
        let phi = self.f.make(phi, Ty::Int(64), span);
        self.f.block_mut(behind).phis.push(phi);
        *b = behind;
        Opnd::V(phi)
    }

    /// Restores SSA form: behind `load`, the loaded values stand for the old ones.
    fn replace(&mut self, loaded: &[(Val, Opnd)], load: Block) {
        let g = ControlFlowGraph::new(self.f);
        let mut home = HashMap::new();
        for b in &g.order {
            let data = self.f.block(*b);
            home.extend(data.phis.iter().chain(&data.insts).map(|v| (*v, *b)));
        }
        let mut repair = Repair::new(self.f, &g.order);
        for (v, new) in loaded {
            if let Some(b) = home.get(v) {
                let map = HashMap::from([(*v, *new)]);
                repair.split(self.f, &g.preds, (*b, load), &map);
            }
        }
    }
}

/// Returns the map and its first bytes, which no kept value has.
pub(super) fn area(f: &Function, map: MapId) -> Area {
    Area { map, header: f.maps[map.0 as usize].definition.value_size }
}
