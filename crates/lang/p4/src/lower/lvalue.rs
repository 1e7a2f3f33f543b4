//! L-values, including stack elements whose index is known only at run time.
//!
//! Variables live in SSA slots, which have no addresses. So an element with a variable index is one
//! of several storages, each with the condition that selects it. A read goes through all of them, a
//! write changes the selected one.

use super::Lowering;
use super::storage::{Storage, Value, limb_count};
use crate::constant::small;
use crate::hir::{Expr, ExprKind};
use crate::ir::{BinOp, Cc, Opnd, mask};
use crate::types::Type;
use std::rc::Rc;

/// Maximum number of storages that one expression may refer to.
const MAX_OPTIONS: usize = 256;

/// Storages and the conditions that select them: the constant 1 for an unconditional one.
pub(super) type StorageOptions = Vec<(Opnd, Rc<Storage>)>;

/// The selected bits of a scalar.
#[derive(Clone, Copy, Debug)]
pub(super) enum BitSelection {
    All,
    /// High and low bit, inclusive.
    Slice(u32, u32),
    /// A number of bits from an offset that is known only at run time.
    From(Opnd, u32),
}

/// An l-value. At most one of the options is selected; none if an index is out of range.
#[derive(Clone, Debug)]
pub(super) struct LValue {
    pub(super) options: StorageOptions,
    pub(super) bits: BitSelection,
    /// For a member of a union: the other members, any number of which may be selected.
    siblings: StorageOptions,
}

impl Lowering<'_> {
    pub(super) fn lvalue(&mut self, e: &Expr) -> Option<LValue> {
        let found = match &e.kind {
            ExprKind::Slice(inner, hi, lo) => self.lvalue(inner).map(|p| {
                let bits = match p.bits {
                    BitSelection::All => BitSelection::Slice(*hi, *lo),
                    BitSelection::Slice(_, base) => BitSelection::Slice(base + hi, base + lo),
                    BitSelection::From(at, _) => {
                        let at = self.b.bin(BinOp::Add, at, Opnd::C(u64::from(*lo)), 32);
                        BitSelection::From(at, hi - lo + 1)
                    }
                };
                LValue { bits, ..p }
            }),
            ExprKind::PlusSlice(inner, lo, width) => self.lvalue(inner).map(|p| {
                let lo = self.clamped(lo);
                let at = match p.bits {
                    BitSelection::All => lo,
                    BitSelection::Slice(_, base) => self.b.bin(BinOp::Add, lo, Opnd::C(u64::from(base)), 32),
                    BitSelection::From(at, _) => self.b.bin(BinOp::Add, lo, at, 32),
                };
                LValue { bits: BitSelection::From(at, *width), ..p }
            }),
            // A member of a union: its union is evaluated once for it and for its siblings.
            ExprKind::Field(base, i) if base.ty.is_union() => self.options(base).and_then(|unions| {
                let siblings = siblings(&unions, *i);
                Some(LValue { options: fields(unions, *i)?, bits: BitSelection::All, siblings })
            }),
            _ => self.options(e).map(|options| LValue {
                options,
                bits: BitSelection::All,
                siblings: Vec::new(),
            }),
        };
        if found.is_none() {
            self.unsupported(e.span, "an assignment to this expression");
        }
        found
    }

    /// Returns a distance or index as a 32-bit word; saturates larger values.
    pub(super) fn clamped(&mut self, e: &Expr) -> Opnd {
        let limbs = self.limbs(e);
        let Some(low) = limbs.first().copied() else { return Opnd::C(0) };
        let limit = Opnd::C(u64::from(u32::MAX));
        let mut far = if self.b.f.bits(low) > 32 { self.b.cmp(Cc::Ugt, low, limit, 64) } else { Opnd::C(0) };
        for high in &limbs[1..] {
            let more = self.b.cmp(Cc::Ne, *high, Opnd::C(0), 64);
            far = self.b.bin(BinOp::Or, far, more, 1);
        }
        if far == Opnd::C(0) { low } else { self.select(far, limit, low, 64) }
    }

    /// Returns the storages that an expression may refer to; `None` if it does not name a
    /// variable or a part of one.
    pub(super) fn options(&mut self, e: &Expr) -> Option<StorageOptions> {
        match &e.kind {
            ExprKind::Var(v) => match self.env.get(v) {
                Some(super::Binding::Storage(s)) => Some(vec![(Opnd::C(1), s.clone())]),
                _ => None,
            },
            ExprKind::Field(b, i) => fields(self.options(b)?, *i),
            ExprKind::Element(b, i) => {
                let options = self.options(b)?;
                match i.as_const().map(small) {
                    Some(n) => Some(options.into_iter().filter_map(|o| element(o, n? as usize)).collect()),
                    None => {
                        let index = self.clamped(i);
                        self.elements(options, index, e)
                    }
                }
            }
            ExprKind::StackNext(b) => {
                let (options, next, len) = self.stack(b)?;
                let ok = self.b.cmp(Cc::Ult, next, Opnd::C(len as u64), 32);
                let error = self.error_number("StackOutOfBounds");
                self.continue_or(ok, error);
                self.elements(options, next, e)
            }
            ExprKind::StackLast(b) => {
                let (options, next, _) = self.stack(b)?;
                let ok = self.b.cmp(Cc::Ne, next, Opnd::C(0), 32);
                let error = self.error_number("StackOutOfBounds");
                self.continue_or(ok, error);
                let last = self.b.bin(BinOp::Sub, next, Opnd::C(1), 32);
                self.elements(options, last, e)
            }
            _ => None,
        }
    }

    /// Returns a stack's storages, the index of its next element, and its size.
    fn stack(&mut self, e: &Expr) -> Option<(StorageOptions, Opnd, usize)> {
        let options = self.options(e)?;
        let [(_, s)] = options.as_slice() else { return None };
        let Storage::Stack(items, next) = &**s else { return None };
        let (next, len) = (self.b.read(*next), items.len());
        Some((options, next, len))
    }

    /// Lowers `stack.lastIndex`.
    pub(super) fn last_index(&mut self, e: &Expr) -> Opnd {
        match self.stack(e) {
            Some((_, next, _)) => self.b.bin(BinOp::Sub, next, Opnd::C(1), 32),
            None => Opnd::C(0),
        }
    }

    fn elements(&mut self, options: StorageOptions, index: Opnd, e: &Expr) -> Option<StorageOptions> {
        if let Opnd::C(i) = index {
            return Some(options.into_iter().filter_map(|o| element(o, i as usize)).collect());
        }
        let mut out = Vec::new();
        for (c, s) in options {
            let Storage::Stack(items, _) = &*s else { return None };
            for (i, item) in items.iter().enumerate() {
                let here = self.b.cmp(Cc::Eq, index, Opnd::C(i as u64), 32);
                out.push((self.b.bin(BinOp::And, c, here, 1), item.clone()));
            }
        }
        if out.len() > MAX_OPTIONS {
            self.unsupported(e.span, &format!("a variable index into more than {MAX_OPTIONS} elements"));
            return None;
        }
        Some(out)
    }

    /// Runs `f` for the selected option.
    pub(super) fn for_option(
        &mut self,
        options: &StorageOptions,
        mut f: impl FnMut(&mut Self, &Rc<Storage>),
    ) {
        if let [(Opnd::C(1), s)] = options.as_slice() {
            return f(self, s);
        }
        let end = self.b.new_block("chosen");
        for (c, s) in options {
            let (here, next) = (self.b.new_block("this element"), self.b.new_block("next element"));
            self.b.branch(*c, here, next);
            self.b.switch_to(here);
            f(self, s);
            self.b.jump(end);
            self.b.switch_to(next);
        }
        self.b.jump(end);
        self.b.switch_to(end);
    }

    /// Reads the selected option; zeros and invalid headers if none is selected.
    pub(super) fn load_options(&mut self, options: &StorageOptions, ty: &Type) -> Value {
        if let [(Opnd::C(1), s)] = options.as_slice() {
            return self.load(s);
        }
        let result = self.storage(ty);
        self.reset(&result);
        self.for_option(options, |l, s| {
            let v = l.load(s);
            l.store(&result, &v);
        });
        self.load(&result)
    }

    /// Reads an l-value of type `ty`.
    pub(super) fn load_lvalue(&mut self, lvalue: &LValue, ty: &Type) -> Value {
        let width = ty.scalar_width().unwrap_or(0);
        let whole = match (&lvalue.bits, lvalue.options.first().map(|(_, s)| s.clone())) {
            (BitSelection::Slice(..) | BitSelection::From(..), Some(s)) => match &*s {
                Storage::Scalar(_, w) => Type::Bit(*w),
                _ => return Value::Opaque,
            },
            _ => return self.load_options(&lvalue.options, ty),
        };
        let from = whole.scalar_width().unwrap_or(0);
        let Value::Scalar(limbs, _) = self.load_options(&lvalue.options, &whole) else {
            return Value::Opaque;
        };
        let limbs = match lvalue.bits {
            BitSelection::Slice(_, lo) => self.extract_bits(&limbs, lo, width),
            BitSelection::From(at, _) => {
                let shifted = self.shift_by(false, &limbs, at, from, false);
                self.extract_bits(&shifted, 0, width)
            }
            BitSelection::All => limbs,
        };
        Value::Scalar(limbs, width)
    }

    /// Assigns a value. In a union, a valid header replaces the valid one, and the assignment of an invalid
    /// header is `setInvalid`: both invalidate the other headers.
    pub(super) fn assign(&mut self, lvalue: &LValue, value: &Value) {
        self.assign_alone(lvalue, value);
        self.invalidate_siblings(lvalue);
    }

    fn assign_alone(&mut self, lvalue: &LValue, value: &Value) {
        let bits = lvalue.bits;
        self.for_option(&lvalue.options, |l, s| {
            let (Storage::Scalar(slots, width), Value::Scalar(new, _)) = (&**s, value) else {
                return l.store(s, value);
            };
            let whole = match bits {
                BitSelection::All => return l.store(s, value),
                BitSelection::Slice(hi, lo) => {
                    let old = l.read_slots(slots);
                    let low = l.extract_bits(&old, 0, lo);
                    let high = l.extract_bits(&old, hi + 1, width - hi - 1);
                    let tail = l.concat(new, hi - lo + 1, &low, lo);
                    l.concat(&high, width - hi - 1, &tail, hi + 1)
                }
                BitSelection::From(at, n) => {
                    let old = l.read_slots(slots);
                    l.insert_bits(&old, *width, new, n, at)
                }
            };
            l.store(s, &Value::Scalar(whole, *width));
        });
    }

    /// Replaces `n` bits of `old` from bit `at`; bits beyond its width are discarded.
    fn insert_bits(&mut self, old: &[Opnd], width: u32, new: &[Opnd], n: u32, at: Opnd) -> Vec<Opnd> {
        let new = self.resize(new, n, width, false);
        let new = self.shift_by(true, &new, at, width, false);
        let ones: Vec<Opnd> =
            (0..limb_count(n)).map(|i| Opnd::C(mask(super::storage::limb_width(n, i)))).collect();
        let ones = self.resize(&ones, n, width, false);
        let hole = self.shift_by(true, &ones, at, width, false);
        let all: Vec<Opnd> =
            (0..limb_count(width)).map(|i| Opnd::C(mask(super::storage::limb_width(width, i)))).collect();
        let kept = self.bitwise(BinOp::Xor, &hole, &all, width);
        let old = self.bitwise(BinOp::And, old, &kept, width);
        self.bitwise(BinOp::Or, &old, &new, width)
    }

    /// Invalidates the other headers of the union whose member this is, if it is one.
    pub(super) fn invalidate_siblings(&mut self, lvalue: &LValue) {
        for (selected, s) in &lvalue.siblings {
            if let Storage::Header(h) = &**s {
                let old = self.b.read(h.valid);
                let stays = self.b.not(*selected);
                let now = self.b.bin(BinOp::And, old, stays, 1);
                self.b.write(h.valid, now);
            }
        }
    }

    /// Lowers `push_front` and `pop_front`.
    pub(super) fn push(&mut self, stack: &Expr, count: u32, front: bool) {
        let Some(options) = self.options(stack) else {
            return self.unsupported(stack.span, "push_front or pop_front of this expression");
        };
        self.for_option(&options, |l, s| {
            let Storage::Stack(items, next) = &**s else { return };
            let (len, n) = (items.len(), (count as usize).min(items.len()));
            let values: Vec<Value> = items.iter().map(|i| l.load(i)).collect();
            for (i, item) in items.iter().enumerate() {
                let from = if front { i.checked_sub(n) } else { Some(i + n).filter(|f| *f < len) };
                match from {
                    Some(f) => l.store(item, &values[f]),
                    None => l.reset(item),
                }
            }
            let (at, n, size) = (l.b.read(*next), Opnd::C(n as u64), Opnd::C(len as u64));
            let moved = if front {
                let sum = l.b.bin(BinOp::Add, at, n, 32);
                let over = l.b.cmp(Cc::Ugt, sum, size, 32);
                l.select(over, size, sum, 32)
            } else {
                let rest = l.b.bin(BinOp::Sub, at, n, 32);
                let under = l.b.cmp(Cc::Ult, at, n, 32);
                l.select(under, Opnd::C(0), rest, 32)
            };
            l.b.write(*next, moved);
        });
    }

    /// Advances the next index of a stack after an extraction into `stack.next`.
    pub(super) fn advance_stack(&mut self, e: &Expr) {
        let b = match &e.kind {
            ExprKind::StackNext(b) => b,
            // A member of a union that is the next element.
            ExprKind::Field(b, _) => return self.advance_stack(b),
            _ => return,
        };
        let Some(options) = self.options(b) else { return };
        self.for_option(&options, |l, s| {
            if let Storage::Stack(_, next) = &**s {
                let at = l.b.read(*next);
                let at = l.b.bin(BinOp::Add, at, Opnd::C(1), 32);
                l.b.write(*next, at);
            }
        });
    }
}

/// Returns a field of each of the storages; `None` if one has no fields.
fn fields(of: StorageOptions, i: usize) -> Option<StorageOptions> {
    let field = |(c, s): (Opnd, Rc<Storage>)| match &*s {
        Storage::Group(fields) => fields.get(i).cloned().map(|f| (c, f)),
        Storage::Header(h) => h.fields.get(i).cloned().map(|f| (c, f)),
        _ => None,
    };
    of.into_iter().map(field).collect()
}

/// Returns the other members of the unions, each under the condition that selects its union.
fn siblings(unions: &StorageOptions, this: usize) -> StorageOptions {
    let mut out = Vec::new();
    for (selected, s) in unions {
        if let Storage::Group(members) = &**s {
            let others = members.iter().enumerate().filter(|(i, _)| *i != this);
            out.extend(others.map(|(_, m)| (*selected, m.clone())));
        }
    }
    out
}

fn element((c, s): (Opnd, Rc<Storage>), i: usize) -> Option<(Opnd, Rc<Storage>)> {
    match &*s {
        Storage::Stack(items, _) => items.get(i).cloned().map(|s| (c, s)),
        _ => None,
    }
}
