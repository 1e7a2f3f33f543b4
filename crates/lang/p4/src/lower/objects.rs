//! Extern objects that keep state between packets: registers, counters and meters, each an array.

use super::Lowering;
use super::storage::{Value, limb_count, limb_width};
use crate::constant::small;
use crate::diagnostics::Code;
use crate::hir::{Call, CallArg, CtorArg, Expr, ExternFn, InstId, Instance};
use crate::ir::{BinOp, Cc, Map, MapId, Op, Opnd, Ty};
use crate::lexer::Name;
use crate::types::Type;
use p4shield_abi::context::offset;
use p4shield_abi::helper;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};
use p4shield_abi::meter::METER_CELL_SIZE;
use p4shield_tables::model::{ArrayFacts, ArrayKind, Unit};
use std::rc::Rc;

/// Maximum number of elements of an array.
const MAX_ELEMENTS: u32 = 1 << 24;
/// Maximum width of a register in bits.
const MAX_WIDTH: u32 = 2048;

/// Whether an extern type is an object of this module.
pub(super) fn is_object(of: &str) -> bool {
    matches!(
        of,
        "Register"
            | "Counter"
            | "CounterArray"
            | "register"
            | "counter"
            | "meter"
            | "direct_counter"
            | "direct_meter"
            | "Checksum16"
    )
}

/// An array of an extern object.
#[derive(Clone, Copy)]
struct Array {
    map: MapId,
    kind: ArrayKind,
    width: u32,
    bytes: u32,
}

/// Returns `base` plus the offset of limb `i` of an element in memory, and the size of the limb in bytes.
const fn limb_at(width: u32, i: usize) -> (i32, u8) {
    let bytes = if width > 64 { 8 } else { width.div_ceil(8).next_power_of_two() };
    (8 * i as i32, bytes as u8)
}

impl Lowering<'_> {
    pub(super) fn object_method(
        &mut self,
        id: InstId,
        path: &Rc<[Name]>,
        of: &str,
        f: &ExternFn,
        c: &Call,
    ) -> Option<Value> {
        match (of, &*f.name, &*c.args) {
            // The hit has already been counted.
            ("direct_counter", ..) => None,
            ("direct_meter", "read", [CallArg::Out(result)]) => {
                let slot = self.colour_slot(id);
                let colour = self.b.read(slot);
                self.assign_number(result, &[colour], 2);
                None
            }
            ("Checksum16", _, [CallArg::In(data)]) => {
                let sum = self.hash_of(data, helper::algorithm::CSUM16)?;
                Some(Value::Scalar(vec![self.b.truncate(sum, 16)], 16))
            }
            _ => {
                let array = self.array(id, path, of)?;
                self.array_method(array, &f.name, &c.args)
            }
        }
    }

    fn array_method(&mut self, a: Array, method: &str, args: &[CallArg]) -> Option<Value> {
        match (method, args) {
            ("read", [CallArg::In(index)]) => {
                let index = self.word(index);
                Some(Value::Scalar(self.read_element(a, index), a.width))
            }
            ("read", [CallArg::Out(result), CallArg::In(index)]) => {
                let index = self.word(index);
                let value = self.read_element(a, index);
                self.assign_number(result, &value, a.width);
                None
            }
            ("write", [CallArg::In(index), CallArg::In(value)]) => {
                let index = self.word(index);
                let value = self.limbs(value);
                self.at_element(a, index, |l, base| l.store_element(a, base, &value));
                None
            }
            ("increment" | "count", [CallArg::In(index)]) => {
                let index = self.word(index);
                self.at_element(a, index, |l, base| l.count_at(a.kind, base, 0, a.bytes));
                None
            }
            ("add", [CallArg::In(index), CallArg::In(value)]) => {
                let (index, value) = (self.word(index), self.word(value));
                self.at_element(a, index, |l, base| l.add_at(base, 0, a.bytes as u8, value));
                None
            }
            ("execute_meter", [CallArg::In(index), CallArg::Out(result)]) => {
                let index = self.word(index);
                let slot = self.b.slot(Ty::Int(2));
                self.b.write(slot, Opnd::C(0));
                self.at_element(a, index, |l, base| {
                    let colour = l.meter_at(a.kind, base);
                    l.b.write(slot, colour);
                });
                let colour = self.b.read(slot);
                self.assign_number(result, &[colour], 2);
                None
            }
            _ => None,
        }
    }

    /// Assigns a number of `width` bits to an l-value of any width.
    fn assign_number(&mut self, to: &Expr, value: &[Opnd], width: u32) {
        let Some(wanted) = to.ty.scalar_width() else { return };
        let value = self.resize(value, width, wanted, false);
        if let Some(lvalue) = self.lvalue(to) {
            self.assign(&lvalue, &Value::Scalar(value, wanted));
        }
    }

    /// Returns the array of an instance.
    fn array(&mut self, id: InstId, path: &Rc<[Name]>, of: &str) -> Option<Array> {
        let inst = self.hir.instances[id.0 as usize].clone();
        self.claim_instance(&inst, path);
        let (kind, width, signed) = self.element(&inst, of)?;
        let bytes = match kind {
            ArrayKind::Meter { .. } => METER_CELL_SIZE as u32,
            ArrayKind::Counter { .. } if of == "counter" => 16,
            _ if width > 64 => width.div_ceil(64) * 8,
            _ => width.div_ceil(8).next_power_of_two(),
        };
        if let Some(map) = self.maps_by_path.get(&(id, path.clone())) {
            return Some(Array { map: *map, kind, width, bytes });
        }
        let size = inst.args.first().and_then(|a| self.ctor_number(a));
        let size = size.as_ref().and_then(small);
        let Some(size) = size.filter(|s| (1..=MAX_ELEMENTS).contains(s)) else {
            let hint = format!("sizes are from 1 to {MAX_ELEMENTS}");
            self.error(Code::BadInstance, inst.span, "invalid size", hint);
            return None;
        };
        let definition = MapDefinition {
            map_type: TYPE_ARRAY,
            key_size: 4,
            value_size: bytes,
            max_entries: size,
            flags: 0,
        };
        let map_name = self.map_name(path, &inst.name);
        let name = self.full_name(path, inst.span, &inst.name);
        let counts = matches!(kind, ArrayKind::Counter { .. });
        let metric = self.hir.control_names.metric(inst.span, &inst.name, &name).filter(|_| counts);
        self.arrays.push(ArrayFacts { name, map: map_name.clone(), kind, width, signed, size, metric });
        let map = self.add_map(Map { name: map_name, definition, entries: Vec::new() });
        self.maps_by_path.insert((id, path.clone()), map);
        Some(Array { map, kind, width, bytes })
    }

    /// Returns the kind and width of an instance's elements, and whether they are signed.
    fn element(&mut self, inst: &Instance, of: &str) -> Option<(ArrayKind, u32, bool)> {
        let Type::Extern(e) = &inst.ty else { return None };
        let second = inst.args.get(1).map(unit);
        Some(match of {
            "Counter" => (ArrayKind::Counter { unit: Unit::Packets }, 64, false),
            "CounterArray" => (ArrayKind::Counter { unit: Unit::Packets }, 32, false),
            "counter" => (ArrayKind::Counter { unit: second.unwrap_or(Unit::Both) }, 64, false),
            "meter" => (ArrayKind::Meter { unit: second.unwrap_or(Unit::Packets) }, 2, false),
            _ => {
                let element = e.args.first()?;
                let width = element.scalar_width().filter(|w| (1..=MAX_WIDTH).contains(w));
                let Some(width) = width else {
                    self.unsupported(inst.span, &format!("a register of {element}"));
                    return None;
                };
                (ArrayKind::Register, width, matches!(element.base(), Type::Int(_)))
            }
        })
    }

    /// Runs `f` for an element if the index is in range.
    fn at_element(&mut self, a: Array, index: Opnd, f: impl FnOnce(&mut Self, Opnd)) {
        // An index of more than 32 bits must not wrap around into the array.
        let index = if self.b.f.bits(index) > 32 {
            let ok = self.b.cmp(Cc::Ule, index, Opnd::C(u64::from(u32::MAX)), 64);
            self.select(ok, index, Opnd::C(u64::from(u32::MAX)), 64)
        } else {
            index
        };
        let base = self.b.lookup(a.map, vec![(0, 4, index)]);
        let found = self.b.cmp(Cc::Ne, base, Opnd::C(0), 64);
        let (yes, end) = (self.b.new_block("element"), self.b.new_block("no element"));
        self.b.branch(found, yes, end);
        self.b.switch_to(yes);
        f(self, base);
        self.b.jump(end);
        self.b.switch_to(end);
    }

    /// Reads an element; 0 if the index is out of range.
    fn read_element(&mut self, a: Array, index: Opnd) -> Vec<Opnd> {
        let slots: Vec<_> =
            (0..limb_count(a.width)).map(|i| self.b.slot(Ty::Int(limb_width(a.width, i)))).collect();
        slots.iter().for_each(|s| self.b.write(*s, Opnd::C(0)));
        self.at_element(a, index, |l, base| {
            for (i, slot) in slots.iter().enumerate() {
                let (offset, bytes) = limb_at(a.width, i);
                let v = l.b.emit(Op::LoadMap { base, offset, bytes }, Ty::Int(bytes * 8));
                let v = l.b.truncate(v, limb_width(a.width, i));
                l.b.write(*slot, v);
            }
        });
        self.read_slots(&slots)
    }

    fn store_element(&mut self, a: Array, base: Opnd, value: &[Opnd]) {
        for (i, value) in value.iter().enumerate().take(limb_count(a.width)) {
            let (offset, bytes) = limb_at(a.width, i);
            self.b.emit(Op::StoreMap { base, offset, bytes, value: *value }, Ty::None);
        }
    }

    /// Counts the packet in the counter at `base + at`.
    pub(super) fn count_at(&mut self, kind: ArrayKind, base: Opnd, at: u32, bytes: u32) {
        let ArrayKind::Counter { unit } = kind else { return };
        let at = at.cast_signed();
        if bytes < 16 {
            return self.add_at(base, at, bytes as u8, Opnd::C(1));
        }
        if unit != Unit::Bytes {
            self.add_at(base, at, 8, Opnd::C(1));
        }
        if unit != Unit::Packets {
            let len = self.context(offset::PACKET_LENGTH, 4);
            self.add_at(base, at + 8, 8, len);
        }
    }

    fn add_at(&mut self, base: Opnd, offset: i32, bytes: u8, value: Opnd) {
        let old = self.b.emit(Op::LoadMap { base, offset, bytes }, Ty::Int(bytes * 8));
        let value = self.b.truncate(value, bytes * 8);
        let value = self.b.bin(BinOp::Add, old, value, bytes * 8);
        self.b.emit(Op::StoreMap { base, offset, bytes, value }, Ty::None);
    }

    /// Returns the colour that the meter cell at `cell` assigns to the packet.
    pub(super) fn meter_at(&mut self, kind: ArrayKind, cell: Opnd) -> Opnd {
        let ArrayKind::Meter { unit } = kind else { return Opnd::C(0) };
        let amount = if unit == Unit::Bytes { self.context(offset::PACKET_LENGTH, 4) } else { Opnd::C(1) };
        let args = vec![cell, Opnd::C(METER_CELL_SIZE as u64), amount];
        let colour = self.helper(helper::METER, false, args, 64);
        self.b.truncate(colour, 2)
    }
}

/// Returns the unit that a constructor argument names.
pub(crate) fn unit(a: &CtorArg) -> Unit {
    let named = if let CtorArg::Value(e) = a { e.member_name() } else { None };
    match named.map(|n| &**n) {
        Some("packets") => Unit::Packets,
        Some("bytes") => Unit::Bytes,
        _ => Unit::Both,
    }
}
