//! Storage of variables: scalars in SSA slots, headers with their validity and their position in
//! the packet.

use super::Lowering;
use crate::ast::Composite;
use crate::ir::builder::Slot;
use crate::ir::{FieldSlot, HeaderLayout, Opnd, Ty};
use crate::types::Type;
use num_bigint::BigInt;
use std::rc::Rc;

/// The slots of a variable, structured like its type.
#[derive(Debug)]
pub(super) enum Storage {
    /// Limbs of 64 bits, lowest first, and the width.
    Scalar(Vec<Slot>, u32),
    /// A struct, tuple or header union.
    Group(Vec<Rc<Self>>),
    Header(Rc<HeaderStore>),
    /// Elements, and the index of the next one.
    Stack(Vec<Rc<Self>>, Slot),
    Varbit(VarbitSlots),
    /// A value without a representation at run time, such as a string.
    Opaque,
}

/// The slots of a varbit field or variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct VarbitSlots {
    /// Offset in bytes from the start of the original packet.
    pub(super) from: Slot,
    pub(super) bytes: Slot,
}

#[derive(Debug)]
pub(super) struct HeaderStore {
    pub(super) valid: Slot,
    /// Position of the extraction: pointer, and bytes from the start of the packet ([`NOT_EXTRACTED`]
    /// if not extracted).
    pub(super) base: Slot,
    pub(super) at: Slot,
    pub(super) varbit: Option<VarbitSlots>,
    pub(super) fields: Vec<Rc<Storage>>,
    /// The bits behind a part of a byte; none if the header ends with a byte.
    pub(super) padding: Vec<Slot>,
    /// Scalars of `fields`, and the padding, in the order of the layout.
    pub(super) leaves: Vec<Vec<Slot>>,
    /// The packet's values of these fields.
    pub(super) original: Vec<Vec<Slot>>,
    pub(super) layout: Rc<HeaderLayout>,
}

/// The name of a header's padding among its fields: no name of P4.
const PADDING: &str = "(padding)";

/// The position of a header that was not extracted.
pub(super) const NOT_EXTRACTED: u64 = 0xffff_ffff;

/// A value of any type, structured like [`Storage`].
#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar(Vec<Opnd>, u32),
    /// A number without a width, which is known at compile time.
    Number(BigInt),
    Group(Vec<Self>),
    Header(Box<HeaderValue>),
    Stack(Vec<Self>, Opnd),
    /// Position of the contents in the original packet, and their size in bytes.
    Varbit(Opnd, Opnd),
    Opaque,
}

#[derive(Clone, Debug)]
pub(super) struct HeaderValue {
    pub(super) valid: Opnd,
    /// Base and position, if it is a copy of a whole header.
    pub(super) position: Option<(Opnd, Opnd)>,
    pub(super) fields: Vec<Value>,
    /// As [`HeaderStore::padding`]. No part of comparisons.
    pub(super) padding: Vec<Opnd>,
    pub(super) original: Vec<Vec<Opnd>>,
}

/// Returns the width of limb `i` of a value of `width` bits.
pub(super) fn limb_width(width: u32, i: usize) -> u8 {
    (width - 64 * i as u32).min(64) as u8
}

/// Returns the number of limbs of a value of `width` bits; 0 for `bit<0>`.
pub(super) const fn limb_count(width: u32) -> usize {
    width.div_ceil(64) as usize
}

/// Returns the layout of a header type, with nested structs flattened. A header that ends within a byte takes
/// all of it, as in the reference switch (p4c's `backends/bmv2/common/header.cpp`).
pub(super) fn layout_of(c: &crate::types::CompositeType) -> HeaderLayout {
    fn add(prefix: &str, t: &Type, at: &mut u32, out: &mut Vec<FieldSlot>) {
        match t.base() {
            Type::Composite(c) => {
                for (n, t) in &c.fields {
                    add(&format!("{prefix}{n}."), t, at, out);
                }
            }
            Type::Varbit(_) => {}
            other => {
                let width = other.packed_width().unwrap_or(0);
                let name = prefix.trim_end_matches('.').into();
                out.push(FieldSlot { name, offset: *at, width });
                *at += width;
            }
        }
    }
    let (mut at, mut fields) = (0, Vec::new());
    for (n, t) in &c.fields {
        add(&format!("{n}."), t, &mut at, &mut fields);
    }
    let bytes = at.div_ceil(8);
    let has_varbit = c.fields.iter().any(|(_, t)| matches!(t.base(), Type::Varbit(_)));
    if 8 * bytes > at && !has_varbit {
        fields.push(FieldSlot { name: PADDING.into(), offset: at, width: 8 * bytes - at });
    }
    HeaderLayout { name: c.name.clone(), bytes, fields }
}

impl Lowering<'_> {
    pub(super) fn scalar_storage(&mut self, width: u32) -> Rc<Storage> {
        let slots = (0..limb_count(width)).map(|i| self.b.slot(Ty::Int(limb_width(width, i)))).collect();
        Rc::new(Storage::Scalar(slots, width))
    }

    /// Creates slots for a variable of a type.
    pub(super) fn storage(&mut self, ty: &Type) -> Rc<Storage> {
        if let Some(w) = ty.scalar_width() {
            return self.scalar_storage(w);
        }
        match ty.base() {
            Type::Composite(c) if c.kind == Composite::Header => {
                Rc::new(Storage::Header(Rc::new(self.header_storage(c))))
            }
            Type::Composite(c) => {
                Rc::new(Storage::Group(c.fields.iter().map(|(_, t)| self.storage(t)).collect()))
            }
            Type::Tuple(ts) => Rc::new(Storage::Group(ts.iter().map(|t| self.storage(t)).collect())),
            Type::Stack(t, n) => {
                let items = (0..*n).map(|_| self.storage(t)).collect();
                Rc::new(Storage::Stack(items, self.b.slot(Ty::Int(32))))
            }
            Type::Varbit(_) => Rc::new(Storage::Varbit(self.varbit_storage())),
            _ => Rc::new(Storage::Opaque),
        }
    }

    fn header_storage(&mut self, c: &crate::types::CompositeType) -> HeaderStore {
        let fields: Vec<Rc<Storage>> = c.fields.iter().map(|(_, t)| self.storage(t)).collect();
        let mut leaves = Vec::new();
        fields.iter().for_each(|f| scalars(f, &mut leaves));
        let copy = |l: &mut Lowering<'_>, s: &Vec<Slot>, w: u32| {
            (0..s.len()).map(|i| l.b.slot(Ty::Int(limb_width(w, i)))).collect::<Vec<_>>()
        };
        let layout = Rc::new(layout_of(c));
        let padding = layout.fields.get(leaves.len()).map_or_else(Vec::new, |f| {
            let slots = vec![self.b.slot(Ty::Int(f.width as u8))];
            leaves.push(slots.clone());
            slots
        });
        let original = leaves.iter().zip(&layout.fields).map(|(s, f)| copy(self, s, f.width)).collect();
        HeaderStore {
            valid: self.b.slot(Ty::Int(1)),
            base: self.b.slot(Ty::Packet),
            at: self.b.slot(Ty::Int(32)),
            varbit: fields.iter().find_map(|f| if let Storage::Varbit(v) = &**f { Some(*v) } else { None }),
            fields,
            padding,
            leaves,
            original,
            layout,
        }
    }

    /// Invalidates headers; other slots keep their values, initially 0.
    pub(super) fn reset(&mut self, s: &Storage) {
        match s {
            Storage::Scalar(slots, _) => slots.iter().for_each(|s| self.b.write(*s, Opnd::C(0))),
            Storage::Group(fields) => fields.iter().for_each(|f| self.reset(f)),
            Storage::Stack(items, next) => {
                self.b.write(*next, Opnd::C(0));
                items.iter().for_each(|f| self.reset(f));
            }
            Storage::Header(h) => {
                self.b.write(h.valid, Opnd::C(0));
                // Any packet pointer serves: it is not dereferenced while the header is invalid.
                let data = self.b.read(self.packet.data);
                self.b.write(h.base, data);
                self.b.write(h.at, Opnd::C(NOT_EXTRACTED));
                if let Some(v) = h.varbit {
                    self.write_varbit(v, Opnd::C(0), Opnd::C(0));
                }
                h.leaves.iter().chain(&h.original).flatten().for_each(|s| self.b.write(*s, Opnd::C(0)));
            }
            Storage::Varbit(v) => self.write_varbit(*v, Opnd::C(0), Opnd::C(0)),
            Storage::Opaque => {}
        }
    }

    pub(super) fn read_slots(&mut self, slots: &[Slot]) -> Vec<Opnd> {
        slots.iter().map(|s| self.b.read(*s)).collect()
    }

    pub(super) fn load(&mut self, s: &Storage) -> Value {
        match s {
            Storage::Scalar(slots, w) => Value::Scalar(self.read_slots(slots), *w),
            Storage::Group(fields) => Value::Group(fields.iter().map(|f| self.load(f)).collect()),
            Storage::Stack(items, next) => {
                Value::Stack(items.iter().map(|f| self.load(f)).collect(), self.b.read(*next))
            }
            Storage::Header(h) => {
                let position = (self.b.read(h.base), self.b.read(h.at));
                Value::Header(Box::new(HeaderValue {
                    valid: self.b.read(h.valid),
                    position: Some(position),
                    fields: h.fields.iter().map(|f| self.load(f)).collect(),
                    padding: self.read_slots(&h.padding),
                    original: h.original.iter().map(|s| self.read_slots(s)).collect(),
                }))
            }
            Storage::Varbit(v) => Value::Varbit(self.b.read(v.from), self.b.read(v.bytes)),
            Storage::Opaque => Value::Opaque,
        }
    }

    pub(super) fn store(&mut self, s: &Storage, v: &Value) {
        match (s, v) {
            (Storage::Scalar(slots, _), Value::Scalar(limbs, _)) => {
                slots.iter().zip(limbs).for_each(|(s, l)| self.b.write(*s, *l));
            }
            (Storage::Scalar(slots, width), Value::Number(n)) => {
                let limbs = number_limbs(n, *width);
                slots.iter().zip(limbs).for_each(|(s, l)| self.b.write(*s, l));
            }
            (Storage::Group(ss), Value::Group(vs)) | (Storage::Stack(ss, _), Value::Group(vs)) => {
                ss.iter().zip(vs).for_each(|(s, v)| self.store(s, v));
            }
            (Storage::Stack(ss, next), Value::Stack(vs, at)) => {
                self.b.write(*next, *at);
                ss.iter().zip(vs).for_each(|(s, v)| self.store(s, v));
            }
            (Storage::Header(h), Value::Group(vs)) => {
                // A header built from a list is valid and was not extracted.
                self.b.write(h.valid, Opnd::C(1));
                h.fields.iter().zip(vs).for_each(|(s, v)| self.store(s, v));
                h.padding.iter().for_each(|s| self.b.write(*s, Opnd::C(0)));
            }
            (Storage::Header(h), Value::Header(v)) => {
                self.b.write(h.valid, v.valid);
                if let Some((base, at)) = v.position {
                    self.b.write(h.base, base);
                    self.b.write(h.at, at);
                }
                h.fields.iter().zip(&v.fields).for_each(|(s, v)| self.store(s, v));
                h.padding.iter().zip(&v.padding).for_each(|(s, v)| self.b.write(*s, *v));
                for (slots, values) in h.original.iter().zip(&v.original) {
                    slots.iter().zip(values).for_each(|(s, v)| self.b.write(*s, *v));
                }
            }
            (Storage::Varbit(s), Value::Varbit(from, bytes)) => self.write_varbit(*s, *from, *bytes),
            _ => {}
        }
    }
}

/// Collects the scalars within, in order.
pub(super) fn scalars(s: &Storage, out: &mut Vec<Vec<Slot>>) {
    match s {
        Storage::Scalar(slots, _) => out.push(slots.clone()),
        Storage::Group(fields) | Storage::Stack(fields, _) => fields.iter().for_each(|f| scalars(f, out)),
        Storage::Header(h) => h.fields.iter().for_each(|f| scalars(f, out)),
        Storage::Varbit(_) | Storage::Opaque => {}
    }
}

/// Collects the headers within, in order.
pub(super) fn headers(s: &Storage, out: &mut Vec<Rc<HeaderStore>>) {
    match s {
        Storage::Header(h) => out.push(h.clone()),
        Storage::Group(fields) | Storage::Stack(fields, _) => fields.iter().for_each(|f| headers(f, out)),
        Storage::Scalar(..) | Storage::Varbit(_) | Storage::Opaque => {}
    }
}

/// Returns the lowest bits of a number.
pub(super) fn number_limbs(n: &BigInt, width: u32) -> Vec<Opnd> {
    let words = crate::constant::limbs(n, width);
    let word = |(i, w): (usize, u64)| Opnd::C(w & crate::ir::mask(limb_width(width, i)));
    words.into_iter().take(limb_count(width)).enumerate().map(word).collect()
}
