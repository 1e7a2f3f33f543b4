//! Application of a table: comparisons or a lookup, then the action.

use super::Lowering;
use super::objects::unit;
use super::storage::{Storage, Value, limb_count, limb_width};
use super::table::{COUNTER_SIZE, TablePlan};
use crate::constant::limbs;
use crate::hir::{BoundAction, Expr, MatchKind, Table, TableId};
use crate::ir::builder::Slot;
use crate::ir::{BinOp, Block, Cc, KeyPart, Op, Opnd, Ty};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::Type;
use p4shield_tables::model::{ArrayKind, LookupKind, Unit};
use std::rc::Rc;

/// Maximum number of actions for which hit and miss get separate dispatch code.
const FEW_ACTIONS: usize = 3;

/// The state of the lowering of one table application.
struct Application<'t> {
    table: &'t Table,
    plan: &'t TablePlan,
    /// The block of each action, with the storage of its data.
    bodies: Vec<(Block, Vec<Rc<Storage>>)>,
    /// The bits that choose a member of a group.
    selector: super::selector::SelectorBits,
    end: Block,
    hit: Slot,
}

impl Lowering<'_> {
    /// Applies a table; returns whether it hit and the index of the action that ran.
    pub(super) fn apply_table(&mut self, id: TableId, span: Span) -> (Opnd, Opnd) {
        let t = self.resolved_table(&self.hir.tables[id.0 as usize].clone());
        self.claim_table(id, &self.path.clone());
        let path = self.path_with(&t.name);
        let Some(plan) = self.planned(id, &t, &path) else { return (Opnd::C(0), Opnd::C(0)) };
        self.b.span = span;
        let (mut subjects, mut values, mut selector) = (Vec::new(), Vec::new(), (Vec::new(), 0));
        for k in &t.keys {
            let limbs = self.limbs(&k.value);
            if k.kind == MatchKind::Selector {
                selector = self.joined(selector, &limbs, &k.value.ty);
            } else {
                subjects.push(k.value.clone());
                values.push(limbs);
            }
        }
        self.trace_table(&plan.facts.name, span, &plan.facts.keys, &values);
        let (hit, run) = (self.b.slot(Ty::Int(1)), self.b.slot(Ty::Int(32)));
        // No action has run yet.
        self.b.write(run, Opnd::C(u64::from(u32::MAX)));
        let bodies = (0..t.actions.len()).map(|i| self.action_block(&plan, i)).collect();
        let end = self.b.new_block(&format!("end of {}", t.name));
        let a = Application { table: &t, plan: &plan, bodies, selector, end, hit };
        match plan.map {
            None => self.compare_entries(&a, &subjects, &values),
            Some(map) => self.look_up(&a, map, &values),
        }
        for (i, (block, data)) in a.bodies.iter().enumerate() {
            self.b.switch_to(*block);
            self.b.write(run, Opnd::C(i as u64));
            let u = &t.actions[i];
            self.trace_chosen(&a, i, data);
            let routine = self.hir.actions[u.action.0 as usize].clone();
            if self.count(u.span) && !self.b.is_dead() {
                self.routine(&routine, &u.args, Some(data));
            }
            self.b.jump(end);
        }
        self.b.switch_to(end);
        self.b.span = span;
        (self.b.read(hit), self.b.read(run))
    }

    fn trace_chosen(&mut self, a: &Application<'_>, action: usize, data: &[Rc<Storage>]) {
        let (facts, at) =
            (&a.plan.facts.actions[action], self.hir.actions[a.table.actions[action].action.0 as usize].span);
        let words = |l: &mut Self, s: &Storage| match s {
            Storage::Scalar(slots, _) => l.read_slots(slots),
            _ => Vec::new(),
        };
        let data: Vec<_> = data.iter().map(|s| words(self, s)).collect();
        let hit = self.b.read(a.hit);
        self.trace_action(&facts.name, at, hit, &facts.params, &data);
    }

    fn planned(&mut self, id: TableId, t: &Table, path: &Rc<[Name]>) -> Option<Rc<TablePlan>> {
        if let Some(p) = self.plans.get(&(id, path.clone())) {
            return Some(p.clone());
        }
        let plan = Rc::new(self.plan_table(t, path)?);
        self.plans.insert((id, path.clone()), plan.clone());
        Some(plan)
    }

    fn action_block(&mut self, plan: &TablePlan, i: usize) -> (Block, Vec<Rc<Storage>>) {
        let facts = &plan.facts.actions[i];
        let block = self.b.new_block(&format!("action {}", facts.name));
        (block, facts.params.iter().map(|p| self.scalar_storage(p.width)).collect())
    }

    /// Writes an action's constant data and jumps to the action.
    fn run_bound(&mut self, a: &Application<'_>, bound: &BoundAction) {
        let (block, data) = &a.bodies[bound.index];
        for (s, v) in data.iter().zip(&bound.data) {
            if let Storage::Scalar(slots, w) = &**s {
                let mut words = v.as_const().map(|v| limbs(v, *w)).unwrap_or_default();
                words.truncate(slots.len());
                self.store(s, &Value::Scalar(words.into_iter().map(Opnd::C).collect(), *w));
            }
        }
        self.b.jump(*block);
    }

    fn compare_entries(&mut self, a: &Application<'_>, subjects: &[Expr], values: &[Vec<Opnd>]) {
        let types: Vec<Type> = subjects.iter().map(|s| s.ty.clone()).collect();
        for e in a.plan.order.iter().map(|i| &a.table.entries[*i]) {
            self.b.span = e.span;
            let (yes, next) = (self.b.new_block("entry"), self.b.new_block("next entry"));
            self.match_keys(&types, values, &e.keys, yes, next);
            self.b.switch_to(yes);
            self.b.write(a.hit, Opnd::C(1));
            self.run_bound(a, &e.action);
            self.b.switch_to(next);
        }
        self.miss(a, None);
    }

    fn look_up(&mut self, a: &Application<'_>, map: crate::ir::MapId, values: &[Vec<Opnd>]) {
        let mut key: Vec<KeyPart> = Vec::new();
        for (f, v) in a.plan.facts.keys.iter().zip(values) {
            let lpm = f.kind == "lpm" && a.plan.facts.lookup == LookupKind::Lpm;
            if lpm {
                // The key of a packet is a full-length prefix.
                key.push((0, 4, Opnd::C(u64::from((f.offset - 4) * 8 + f.width))));
            }
            let pad = f.bytes * 8 - f.width;
            let v = if lpm && pad > 0 {
                self.concat(v, f.width, &[Opnd::C(0)], pad)
            } else {
                self.resize(v, f.width, f.bytes * 8, false)
            };
            self.key_parts(&v, f.offset, f.bytes, &mut key);
        }
        let base = self.b.lookup(map, key);
        let (found, missed) = (self.b.new_block("hit"), self.b.new_block("miss"));
        let is_hit = self.b.cmp(Cc::Ne, base, Opnd::C(0), 64);
        self.b.branch(is_hit, found, missed);
        self.b.switch_to(found);
        self.b.write(a.hit, Opnd::C(1));
        self.direct_objects(a, base);
        let base = match a.plan.selector {
            Some(s) => self.chosen_member(s, base, &a.selector, a.end),
            None => base,
        };
        let common = self.common_dispatch(a);
        self.run_stored(a, base, common);
        self.b.switch_to(missed);
        self.miss(a, common);
        if let Some((value, dispatch)) = common {
            self.b.switch_to(dispatch);
            let base = self.b.read(value);
            self.dispatch(a, base);
        }
    }

    /// Returns the block where entries and the default action, both stored in maps with the
    /// same value layout, share their dispatch. With few actions, separate dispatches are
    /// shorter, because each knows whether the table hit.
    fn common_dispatch(&mut self, a: &Application<'_>) -> Option<(Slot, Block)> {
        let both = a.plan.default_map.is_some() && a.plan.selector.is_none() && a.bodies.len() > FEW_ACTIONS;
        both.then(|| (self.b.slot(Ty::MapValue), self.b.new_block("dispatch")))
    }

    /// Runs the action that is stored at `base`.
    fn run_stored(&mut self, a: &Application<'_>, base: Opnd, common: Option<(Slot, Block)>) {
        match common {
            None => self.dispatch(a, base),
            Some((value, dispatch)) => {
                self.b.write(value, base);
                self.b.jump(dispatch);
            }
        }
    }

    /// Updates the direct counters and meters in the entry at `base`.
    fn direct_objects(&mut self, a: &Application<'_>, base: Opnd) {
        if let (Some(at), Some(id)) = (a.plan.facts.counter_offset, a.table.instance_property("counters")) {
            let unit = self.hir.instances[id.0 as usize].args.first().map_or(Unit::Both, unit);
            self.count_at(ArrayKind::Counter { unit }, base, at, COUNTER_SIZE);
        }
        if let (Some(at), Some(id)) = (a.plan.facts.meter_offset, a.table.instance_property("meters")) {
            let unit = self.hir.instances[id.0 as usize].args.first().map_or(Unit::Packets, unit);
            let cell = self.b.emit(Op::Offset(base, Opnd::C(at.into())), Ty::MapValue);
            let colour = self.meter_at(ArrayKind::Meter { unit }, cell);
            let slot = self.colour_slot(id);
            self.b.write(slot, colour);
        }
    }

    /// Splits a number of `bytes` bytes in network byte order into parts of 8, 4, 2 and 1 bytes.
    pub(super) fn key_parts(&mut self, v: &[Opnd], offset: u32, bytes: u32, key: &mut Vec<KeyPart>) {
        let mut at = 0;
        while at < bytes {
            let left = bytes - at;
            let n = [8, 4, 2, 1].into_iter().find(|n| *n <= left).unwrap_or(1);
            let word = self.extract_word(v, 8 * (left - n), 8 * n as u8);
            let word = self.b.swap(n as u8, word);
            key.push((offset + at, n as u8, word));
            at += n;
        }
    }

    fn miss(&mut self, a: &Application<'_>, common: Option<(Slot, Block)>) {
        self.b.write(a.hit, Opnd::C(0));
        match a.plan.default_map {
            None => match &a.table.default {
                Some(d) => self.run_bound(a, d),
                None => self.b.jump(a.end),
            },
            Some(map) => {
                let base = self.b.lookup(map, vec![(0, 4, Opnd::C(0))]);
                let found = self.b.new_block("default");
                let there = self.b.cmp(Cc::Ne, base, Opnd::C(0), 64);
                self.b.branch(there, found, a.end);
                self.b.switch_to(found);
                self.run_stored(a, base, common);
            }
        }
    }

    /// Jumps to the action whose number is stored at `base`, and loads its data.
    fn dispatch(&mut self, a: &Application<'_>, base: Opnd) {
        let number = self.b.emit(Op::LoadMap { base, offset: 0, bytes: 4 }, Ty::Int(32));
        for (i, (block, data)) in a.bodies.iter().enumerate() {
            let (yes, next) = (self.b.new_block("data"), self.b.new_block("next action"));
            let is = self.b.cmp(Cc::Eq, number, Opnd::C(i as u64), 32);
            self.b.branch(is, yes, next);
            self.b.switch_to(yes);
            for (s, p) in data.iter().zip(&a.plan.facts.actions[i].params) {
                let limbs = (0..limb_count(p.width)).map(|l| {
                    let bytes = p.bytes.min(8) as u8;
                    let offset = (p.offset + 8 * l as u32).cast_signed();
                    let v = self.b.emit(Op::LoadMap { base, offset, bytes }, Ty::Int(bytes * 8));
                    // The control plane may have left bits above the width.
                    self.b.truncate(v, limb_width(p.width, l))
                });
                let value = Value::Scalar(limbs.collect(), p.width);
                self.store(s, &value);
            }
            self.b.jump(*block);
            self.b.switch_to(next);
        }
        // An invalid action number: no action runs.
        self.b.jump(a.end);
    }

    /// Returns 1 if both bits are set.
    pub(super) fn both(&mut self, a: Opnd, b: Opnd) -> Opnd {
        self.b.bin(BinOp::And, a, b, 1)
    }
}
