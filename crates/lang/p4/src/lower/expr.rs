//! Lowering of expressions.

use super::storage::{HeaderValue, NOT_EXTRACTED, Storage, Value, limb_count, limb_width, number_limbs};
use super::{Binding, Lowering};
use crate::ast::{BinaryOp, UnaryOp};
use crate::check::fold;
use crate::constant::{limbs, small};
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind, VarId};
use crate::ir::{BinOp, Block, Cc, Opnd, Ty, mask};
use crate::source::Span;
use crate::types::Type;
use num_traits::{Signed, Zero};
use std::rc::Rc;

/// Width of a number without a width where any machine word will do.
const MAX_WORD: u32 = 64;

impl Lowering<'_> {
    pub(super) fn value(&mut self, e: &Expr) -> Value {
        let saved = std::mem::replace(&mut self.b.span, e.span);
        let v = self.value_here(e);
        self.b.span = saved;
        v
    }

    /// Returns the limbs of a scalar.
    pub(super) fn limbs(&mut self, e: &Expr) -> Vec<Opnd> {
        match self.value(e) {
            Value::Scalar(limbs, _) => limbs,
            Value::Number(n) => number_limbs(&n, MAX_WORD),
            _ => vec![Opnd::C(0); limb_count(e.ty.scalar_width().unwrap_or(1))],
        }
    }

    /// Returns a scalar of at most 64 bits.
    pub(super) fn word(&mut self, e: &Expr) -> Opnd {
        let limbs = self.limbs(e);
        if limbs.len() > 1 {
            self.unsupported(e.span, "a value of more than 64 bits here");
        }
        limbs.first().copied().unwrap_or(Opnd::C(0))
    }

    fn value_here(&mut self, e: &Expr) -> Value {
        if e.ty == Type::InfInt {
            return self.number(e).map_or(Value::Opaque, Value::Number);
        }
        let width = e.ty.scalar_width().unwrap_or(0);
        let scalar = |limbs| Value::Scalar(limbs, width);
        match &e.kind {
            ExprKind::Const(v) => {
                let mut l = limbs(v, width);
                l.truncate(limb_count(width));
                scalar(l.into_iter().map(Opnd::C).collect())
            }
            ExprKind::Var(v) => self.variable(*v, e.span),
            ExprKind::Field(..) | ExprKind::Element(..) | ExprKind::StackNext(_) | ExprKind::StackLast(_) => {
                self.part(e)
            }
            ExprKind::StackLastIndex(stack) => scalar(vec![self.last_index(stack)]),
            ExprKind::Slice(b, hi, lo) if b.ty == Type::InfInt => {
                let limbs = self.number_bits(b, hi + 1);
                scalar(self.extract_bits(&limbs, *lo, hi - lo + 1))
            }
            ExprKind::Slice(b, hi, lo) => {
                let limbs = self.limbs(b);
                scalar(self.extract_bits(&limbs, *lo, hi - lo + 1))
            }
            ExprKind::Unary(op, a) => scalar(self.unary(*op, a, width)),
            ExprKind::Binary(BinaryOp::And | BinaryOp::Or, ..) | ExprKind::Ternary(..) => self.by_branches(e),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, e),
            ExprKind::Cast(a) if a.ty == Type::InfInt => scalar(self.number_bits(a, width)),
            ExprKind::Cast(a) => {
                let limbs = self.limbs(a);
                let from = a.ty.scalar_width().unwrap_or(0);
                let signed = matches!(a.ty.base(), Type::Int(_));
                scalar(self.resize(&limbs, from, width, signed))
            }
            ExprKind::Aggregate(items) => Value::Group(items.evaluate(|i| self.value(i))),
            ExprKind::InvalidHeader => {
                let s = self.storage(&e.ty);
                self.reset(&s);
                self.load(&s)
            }
            ExprKind::IsValid(h) => match self.value(h) {
                Value::Header(h) => scalar(vec![h.valid]),
                // A union is valid if one of its headers is.
                Value::Group(members) => {
                    let mut any = Opnd::C(0);
                    for m in &members {
                        if let Value::Header(h) = m {
                            any = self.b.bin(BinOp::Or, any, h.valid, 1);
                        }
                    }
                    scalar(vec![any])
                }
                _ => scalar(vec![Opnd::C(0)]),
            },
            ExprKind::TableHit { table, miss } => {
                let (hit, _) = self.apply_table(*table, e.span);
                scalar(vec![if *miss { self.b.not(hit) } else { hit }])
            }
            ExprKind::Call(c) => self.call(c, Some(&e.ty)).unwrap_or(Value::Opaque),
            ExprKind::PlusSlice(b, lo, n) => {
                let from = b.ty.scalar_width().unwrap_or(0);
                let (limbs, lo) = (self.limbs(b), self.clamped(lo));
                let shifted = self.shift_by(false, &limbs, lo, from, false);
                scalar(self.extract_bits(&shifted, 0, *n))
            }
            ExprKind::Text(_) | ExprKind::Object(_) | ExprKind::Bad => Value::Opaque,
        }
    }

    pub(super) fn variable(&mut self, v: VarId, span: Span) -> Value {
        match self.env.get(&v).cloned() {
            Some(Binding::Storage(s)) => self.load(&s),
            Some(Binding::Constant(e)) => self.value(&e),
            Some(Binding::Object(_)) => Value::Opaque,
            None => {
                self.internal(span, "a variable without storage");
                Value::Opaque
            }
        }
    }

    /// Reads a part of a value: of a variable without reading the rest, otherwise of the whole value.
    pub(super) fn part(&mut self, e: &Expr) -> Value {
        if let Some(options) = self.options(e) {
            return self.load_options(&options, &e.ty);
        }
        match &e.kind {
            ExprKind::Field(base, i) => match self.value(base) {
                Value::Group(mut fs) if *i < fs.len() => fs.swap_remove(*i),
                Value::Header(mut h) if *i < h.fields.len() => h.fields.swap_remove(*i),
                _ => Value::Opaque,
            },
            ExprKind::Element(base, i) => match self.value(base) {
                Value::Stack(items, _) | Value::Group(items) => self.element_of(&items, i, &e.ty),
                _ => Value::Opaque,
            },
            _ => {
                self.unsupported(e.span, "a part of this value");
                Value::Opaque
            }
        }
    }

    /// Reads an element of a value that is not a variable.
    fn element_of(&mut self, items: &[Value], index: &Expr, ty: &Type) -> Value {
        let index = self.clamped(index);
        let result = self.storage(ty);
        self.reset(&result);
        for (n, item) in items.iter().enumerate() {
            let here = self.b.cmp(Cc::Eq, index, Opnd::C(n as u64), 32);
            let (yes, next) = (self.b.new_block("this element"), self.b.new_block("next element"));
            self.b.branch(here, yes, next);
            self.b.switch_to(yes);
            self.store(&result, item);
            self.b.jump(next);
            self.b.switch_to(next);
        }
        self.load(&result)
    }

    /// Returns the slots of an expression that names a variable or a part of it, if they are known.
    pub(super) fn storage_of(&mut self, e: &Expr) -> Option<Rc<Storage>> {
        match self.options(e)?.as_slice() {
            [(Opnd::C(1), s)] => Some(s.clone()),
            _ => None,
        }
    }

    fn unary(&mut self, op: UnaryOp, a: &Expr, width: u32) -> Vec<Opnd> {
        let limbs = self.limbs(a);
        match op {
            UnaryOp::Plus => limbs,
            UnaryOp::Not => vec![self.b.not(limbs[0])],
            UnaryOp::Complement => {
                let ones: Vec<_> = (0..limbs.len()).map(|i| Opnd::C(mask(limb_width(width, i)))).collect();
                self.bitwise(BinOp::Xor, &limbs, &ones, width)
            }
            UnaryOp::Neg => {
                let zeros = vec![Opnd::C(0); limbs.len()];
                self.add_sub(BinOp::Sub, &zeros, &limbs, width)
            }
        }
    }

    /// Lowers `&&`, `||` and `?:`, which evaluate only the operands they need.
    fn by_branches(&mut self, e: &Expr) -> Value {
        let result = self.storage(&e.ty);
        let (t, f, end) = (self.b.new_block("then"), self.b.new_block("else"), self.b.new_block("join"));
        let (yes, no) = match &e.kind {
            ExprKind::Ternary(c, yes, no) => {
                self.condition(c, t, f);
                (Some(yes), Some(no))
            }
            _ => {
                self.condition(e, t, f);
                (None, None)
            }
        };
        for (block, arm, bit) in [(t, yes, 1), (f, no, 0)] {
            self.b.switch_to(block);
            let v = match arm {
                Some(a) => self.value(a),
                None => Value::Scalar(vec![Opnd::C(bit)], 1),
            };
            self.store(&result, &v);
            self.b.jump(end);
        }
        self.b.switch_to(end);
        self.load(&result)
    }

    /// Branches on a condition.
    pub(super) fn condition(&mut self, e: &Expr, t: Block, f: Block) {
        let saved = std::mem::replace(&mut self.b.span, e.span);
        match &e.kind {
            ExprKind::Unary(UnaryOp::Not, a) => self.condition(a, f, t),
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let more = self.b.new_block("condition");
                if *op == BinaryOp::And {
                    self.condition(a, more, f)
                } else {
                    self.condition(a, t, more)
                }
                self.b.switch_to(more);
                self.condition(b, t, f);
            }
            _ => {
                let c = self.word(e);
                self.b.branch(c, t, f);
            }
        }
        self.b.span = saved;
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, e: &Expr) -> Value {
        let width = e.ty.scalar_width().unwrap_or(0);
        if matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            let (x, y) = (self.value(a), self.value(b));
            let same = self.equal_values(&x, &y);
            return Value::Scalar(vec![if op == BinaryOp::Eq { same } else { self.b.not(same) }], 1);
        }
        if a.ty == Type::InfInt && b.ty == Type::InfInt {
            return self.compare_numbers(op, a, b, e);
        }
        let (wa, wb) = (a.ty.scalar_width().unwrap_or(0), b.ty.scalar_width().unwrap_or(0));
        let signed = matches!(a.ty.base(), Type::Int(_));
        let x = self.limbs(a);
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) {
            return Value::Scalar(self.shift(op == BinaryOp::Shl, &x, b, width, signed), width);
        }
        let y = self.limbs(b);
        if width == 0 {
            return Value::Scalar(Vec::new(), 0);
        }
        let limbs = match op {
            BinaryOp::Concat => self.concat(&x, wa, &y, wb),
            BinaryOp::BitAnd => self.bitwise(BinOp::And, &x, &y, width),
            BinaryOp::BitOr => self.bitwise(BinOp::Or, &x, &y, width),
            BinaryOp::BitXor => self.bitwise(BinOp::Xor, &x, &y, width),
            BinaryOp::Add => self.add_sub(BinOp::Add, &x, &y, width),
            BinaryOp::Sub => self.add_sub(BinOp::Sub, &x, &y, width),
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
                let cc = match (op, signed) {
                    (BinaryOp::Lt, false) => Cc::Ult,
                    (BinaryOp::Le, false) => Cc::Ule,
                    (BinaryOp::Gt, false) => Cc::Ugt,
                    (BinaryOp::Ge, false) => Cc::Uge,
                    (BinaryOp::Lt, true) => Cc::Slt,
                    (BinaryOp::Le, true) => Cc::Sle,
                    (BinaryOp::Gt, true) => Cc::Sgt,
                    _ => Cc::Sge,
                };
                vec![self.ordered(cc, &x, &y, wa)]
            }
            BinaryOp::Mul if width > 64 => self.multiply(&x, &y, width),
            BinaryOp::AddSat | BinaryOp::SubSat if width > 64 => {
                self.saturating_wide(op, &x, &y, width, signed)
            }
            BinaryOp::Div | BinaryOp::Mod if width > 64 => match self.divide_wide(op, &x, b, width) {
                Some(limbs) => limbs,
                None => {
                    let what = format!("`{}` of more than 64 bits, except by a power of two,", op.text());
                    self.unsupported(e.span, &what);
                    vec![Opnd::C(0); limb_count(width)]
                }
            },
            BinaryOp::Mul => vec![self.b.bin(BinOp::Mul, x[0], y[0], width as u8)],
            BinaryOp::Div => vec![self.b.bin(BinOp::Div, x[0], y[0], width as u8)],
            BinaryOp::Mod => vec![self.b.bin(BinOp::Mod, x[0], y[0], width as u8)],
            BinaryOp::AddSat | BinaryOp::SubSat => vec![self.saturating(op, x[0], y[0], width as u8, signed)],
            _ => vec![Opnd::C(0); limb_count(width)],
        };
        Value::Scalar(limbs, width)
    }

    /// Lowers a comparison of numbers without a width.
    fn compare_numbers(&mut self, op: BinaryOp, a: &Expr, b: &Expr, e: &Expr) -> Value {
        let holds = match (self.number(a), self.number(b)) {
            (Some(x), Some(y)) => fold::binary(op, &x, &y, &a.ty, &b.ty, &e.ty).ok(),
            _ => None,
        };
        Value::Scalar(vec![Opnd::C(u64::from(holds.is_some_and(|v| !v.is_zero())))], 1)
    }

    fn saturating(&mut self, op: BinaryOp, x: Opnd, y: Opnd, w: u8, signed: bool) -> Opnd {
        let add = op == BinaryOp::AddSat;
        let raw = self.b.bin(if add { BinOp::Add } else { BinOp::Sub }, x, y, w);
        if !signed {
            let over = if add { self.b.cmp(Cc::Ult, raw, x, w) } else { self.b.cmp(Cc::Ult, x, y, w) };
            return self.select(over, Opnd::C(if add { mask(w) } else { 0 }), raw, w);
        }
        // Overflow: an addition of equal signs, or a subtraction of different signs, changed the sign.
        let (to_x, to_y) =
            (self.b.bin(BinOp::Xor, raw, x, w), self.b.bin(BinOp::Xor, if add { raw } else { x }, y, w));
        let both = self.b.bin(BinOp::And, to_x, to_y, w);
        let sign = Opnd::C(u64::from(w) - 1);
        let over = self.b.bin(BinOp::Shr, both, sign, w);
        let negative = self.b.bin(BinOp::Shr, x, sign, w);
        let limit = self.b.bin(BinOp::Add, Opnd::C(mask(w) >> 1), negative, w);
        self.select(over, limit, raw, w)
    }

    fn shift(&mut self, left: bool, x: &[Opnd], by: &Expr, width: u32, signed: bool) -> Vec<Opnd> {
        if let Some(n) = self.known(by) {
            if n.is_negative() {
                let hint = "shift in the other direction";
                self.error(Code::BadConstant, by.span, "negative shift distance", hint);
            }
            return self.shift_const(left, x, small(&n).unwrap_or(u32::MAX), width, signed);
        }
        let distance = self.clamped(by);
        self.shift_by(left, x, distance, width, signed)
    }

    fn equal_values(&mut self, a: &Value, b: &Value) -> Opnd {
        match (a, b) {
            (Value::Scalar(x, w), Value::Scalar(y, _)) => self.equal(x, y, *w),
            (Value::Number(x), Value::Number(y)) => Opnd::C(u64::from(x == y)),
            (Value::Scalar(x, w), Value::Number(n)) | (Value::Number(n), Value::Scalar(x, w)) => {
                self.equal(x, &number_limbs(n, *w), *w)
            }
            (Value::Group(xs), Value::Group(ys))
            | (Value::Stack(xs, _), Value::Stack(ys, _) | Value::Group(ys))
            | (Value::Group(xs), Value::Stack(ys, _)) => self.all_equal(xs, ys),
            (Value::Header(x), Value::Header(y)) => self.equal_headers(x, y),
            (Value::Header(h), Value::Group(ys)) | (Value::Group(ys), Value::Header(h)) => {
                let fields = self.all_equal(&h.fields, ys);
                self.b.bin(BinOp::And, h.valid, fields, 1)
            }
            (Value::Varbit(x, x_bytes), Value::Varbit(y, y_bytes)) => {
                self.equal_varbits((*x, *x_bytes), (*y, *y_bytes))
            }
            _ => Opnd::C(1),
        }
    }

    fn all_equal(&mut self, xs: &[Value], ys: &[Value]) -> Opnd {
        let mut all = Opnd::C(1);
        for (x, y) in xs.iter().zip(ys) {
            let same = self.equal_values(x, y);
            all = self.b.bin(BinOp::And, all, same, 1);
        }
        all
    }

    /// Compares headers: both invalid, or both valid with equal fields.
    fn equal_headers(&mut self, x: &HeaderValue, y: &HeaderValue) -> Opnd {
        let fields = self.all_equal(&x.fields, &y.fields);
        let any = self.b.bin(BinOp::Or, x.valid, y.valid, 1);
        let none = self.b.not(any);
        let both = self.b.bin(BinOp::And, x.valid, y.valid, 1);
        let both = self.b.bin(BinOp::And, both, fields, 1);
        self.b.bin(BinOp::Or, none, both, 1)
    }

    /// Adds a value of one bit to a number of bytes.
    pub(super) fn add_bytes(&mut self, a: Opnd, b: Opnd) -> Opnd {
        self.b.bin(BinOp::Add, a, b, 32)
    }

    /// Reads a context field as an integer.
    pub(super) fn context(&mut self, offset: i16, bytes: u8) -> Opnd {
        self.b.emit(crate::ir::Op::Context(offset, bytes), Ty::Int(bytes * 8))
    }

    pub(super) const fn not_extracted() -> Opnd {
        Opnd::C(NOT_EXTRACTED)
    }
}
