//! Evaluation of expressions, and l-values.

use super::value::{Val, fit, num, unsigned, zero};
use super::{Binding, Eval, Machine, Stop};
use crate::ast::{BinaryOp, UnaryOp};
use crate::hir::{Expr, ExprKind, VarId};
use crate::types::Type;
use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};

/// A place that can be assigned: a part of a variable. An index out of range is `usize::MAX`.
#[derive(Clone, Debug)]
pub(super) struct Place {
    var: VarId,
    steps: Vec<usize>,
    /// The lowest bit and the number of bits of a slice.
    slice: Option<(u64, u32)>,
    /// Whether the last step selects a member of a header union.
    member: bool,
}

impl Machine<'_> {
    pub(super) fn eval(&mut self, e: &Expr) -> Eval<Val> {
        Ok(match &e.kind {
            ExprKind::Const(v) => Val::Num(v.clone()),
            ExprKind::Text(_) => Val::Nothing,
            ExprKind::Var(v) => match self.vars.get(v) {
                Some(Binding::Value(v)) => v.clone(),
                _ => return self.skip("an object as a value"),
            },
            ExprKind::Field(b, i) => self.eval(b)?.field(*i).cloned().unwrap_or_else(|| zero(&e.ty)),
            // "A reference to the header": it is read after the evaluation of its index.
            ExprKind::Element(..) if is_variable(e) => {
                let place = self.place(e)?;
                self.held(&place, &e.ty)
            }
            ExprKind::Element(b, i) => {
                let (base, i) = (self.eval(b)?, self.eval(i)?.index());
                base.field(i).cloned().unwrap_or_else(|| zero(&e.ty))
            }
            ExprKind::StackNext(_) | ExprKind::StackLast(_) => {
                let place = self.place(e)?;
                self.read(&place).cloned().unwrap_or_else(|| zero(&e.ty))
            }
            ExprKind::StackLastIndex(b) => match self.eval(b)? {
                Val::Stack { next, .. } => Val::Num(unsigned(&(BigInt::from(next) - 1), 32)),
                _ => return self.skip("lastIndex of another value"),
            },
            ExprKind::Slice(b, hi, lo) => num(unsigned(&(self.eval(b)?.number() >> lo), hi - lo + 1)),
            ExprKind::PlusSlice(b, lo, n) => {
                let width = b.ty.scalar_width().unwrap_or(0);
                let v = unsigned(&self.eval(b)?.number(), width);
                num(unsigned(&(v >> distance(&self.eval(lo)?.number())), *n))
            }
            ExprKind::Unary(op, a) => {
                let v = self.eval(a)?.number();
                match op {
                    UnaryOp::Not => num(u8::from(v.is_zero())),
                    UnaryOp::Complement => num(fit(&!v, &e.ty)),
                    UnaryOp::Neg => num(fit(&-v, &e.ty)),
                    UnaryOp::Plus => num(v),
                }
            }
            ExprKind::Binary(op, a, b) => return self.binary(*op, a, b, e),
            ExprKind::Cast(a) => num(fit(&self.eval(a)?.number(), &e.ty)),
            ExprKind::Ternary(c, t, f) => {
                return if self.eval(c)?.truth() { self.eval(t) } else { self.eval(f) };
            }
            ExprKind::Aggregate(items) => {
                let mut values = vec![Val::Nothing; items.len()];
                for (i, item) in items.as_written() {
                    values[i] = self.eval(item)?;
                }
                let mut v = zero(&e.ty);
                match &mut v {
                    Val::Nothing => Val::Record(values),
                    // The type of a list converts to that of a header or stack.
                    to => {
                        to.assign(Val::Record(values));
                        v
                    }
                }
            }
            ExprKind::InvalidHeader => zero(&e.ty),
            ExprKind::IsValid(h) => num(u8::from(self.eval(h)?.is_valid())),
            ExprKind::TableHit { table, miss } => num(u8::from(self.table(*table)?.0 != *miss)),
            ExprKind::Call(c) => return self.call(c, Some(&e.ty)),
            ExprKind::Object(_) | ExprKind::Bad => return self.skip("an object as a value"),
        })
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, e: &Expr) -> Eval<Val> {
        use BinaryOp as B;
        let x = self.eval(a)?;
        match op {
            B::And if !x.truth() => return Ok(num(0)),
            B::Or if x.truth() => return Ok(num(1)),
            B::And | B::Or => return self.eval(b),
            _ => {}
        }
        let y = self.eval(b)?;
        if matches!(op, B::Eq | B::Ne) {
            return Ok(num(u8::from(x.equals(&y) == (op == B::Eq))));
        }
        let (x, y) = (x.number(), y.number());
        let truth = |c: bool| Ok(num(u8::from(c)));
        let v = match op {
            B::Lt => return truth(x < y),
            B::Le => return truth(x <= y),
            B::Gt => return truth(x > y),
            B::Ge => return truth(x >= y),
            B::Mul => x * y,
            B::Add => x + y,
            B::Sub => x - y,
            B::Div if y.is_zero() => y,
            B::Mod if y.is_zero() => x,
            B::Div => x / y,
            B::Mod => x % y,
            B::AddSat | B::SubSat => {
                let exact = if op == B::AddSat { x + y } else { x - y };
                let w = e.ty.scalar_width().unwrap_or(0);
                let half = BigInt::one() << w.saturating_sub(1);
                let (min, max) = match e.ty.base() {
                    Type::Int(_) => (-half.clone(), half - 1),
                    _ => (BigInt::zero(), (BigInt::one() << w) - 1),
                };
                return Ok(num(exact.clamp(min, max)));
            }
            B::Shl => x << distance(&y),
            B::Shr => x >> distance(&y),
            B::BitAnd => x & y,
            B::BitXor => x ^ y,
            B::BitOr => x | y,
            _ => {
                let w = b.ty.scalar_width().unwrap_or(0);
                (x << w) + unsigned(&y, w)
            }
        };
        Ok(num(fit(&v, &e.ty)))
    }

    /// Evaluates an l-value: the indices in it have the values that they have now.
    pub(super) fn place(&mut self, e: &Expr) -> Eval<Place> {
        match &e.kind {
            ExprKind::Var(v) => Ok(Place { var: *v, steps: Vec::new(), slice: None, member: false }),
            ExprKind::Field(b, i) => {
                let place = self.place(b)?;
                Ok(Place { member: b.ty.is_union(), ..place.then(*i) })
            }
            ExprKind::Element(b, i) => {
                let place = self.place(b)?;
                let i = self.eval(i)?.index();
                Ok(place.then(i))
            }
            ExprKind::StackNext(b) | ExprKind::StackLast(b) => {
                let place = self.place(b)?;
                let Some(Val::Stack { items, next }) = self.read(&place) else {
                    return self.skip("next of another value");
                };
                let last = matches!(e.kind, ExprKind::StackLast(_));
                let at = if last { next.checked_sub(1) } else { Some(*next).filter(|n| *n < items.len()) };
                match at {
                    Some(at) => Ok(place.then(at)),
                    None => Err(self.rejected("StackOutOfBounds")),
                }
            }
            ExprKind::Slice(b, hi, lo) => {
                let place = self.place(b)?;
                let base = place.slice.map_or(0, |(at, _)| at);
                Ok(Place { slice: Some((base + u64::from(*lo), hi - lo + 1)), ..place })
            }
            ExprKind::PlusSlice(b, lo, n) => {
                let place = self.place(b)?;
                let base = place.slice.map_or(0, |(at, _)| at);
                let lo = distance(&self.eval(lo)?.number());
                Ok(Place { slice: Some((base + lo, *n)), ..place })
            }
            _ => self.skip("an l-value of another kind"),
        }
    }

    pub(super) fn read(&self, place: &Place) -> Option<&Val> {
        let Some(Binding::Value(v)) = self.vars.get(&place.var) else { return None };
        place.steps.iter().try_fold(v, |v, i| v.field(*i))
    }

    /// Returns the value of a place; zeros if an index is out of range.
    pub(super) fn held(&self, place: &Place, ty: &Type) -> Val {
        match (self.read(place), place.slice) {
            (None, _) => zero(ty),
            (Some(v), None) => v.clone(),
            (Some(v), Some((lo, n))) => num(unsigned(&(v.number() >> lo), n)),
        }
    }

    pub(super) fn at(&mut self, place: &Place) -> Option<&mut Val> {
        let Some(Binding::Value(v)) = self.vars.get_mut(&place.var) else { return None };
        place.steps.iter().try_fold(v, |v, i| v.field_mut(*i))
    }

    /// Assigns to a place; an index out of range makes the assignment ineffective.
    pub(super) fn assign(&mut self, place: &Place, v: Val, ty: &Type) {
        let Some(to) = self.at(place) else { return };
        match place.slice {
            None => to.assign(v),
            Some((lo, n)) => {
                // Bits beyond the whole are cut off by its width, which the type of a slice does not show.
                let ones = ((BigInt::one() << n) - 1) << lo;
                let old = to.number();
                let new =
                    (&old - (&old & &ones)) | (unsigned(&v.number(), ty.scalar_width().unwrap_or(0)) << lo);
                *to = Val::Num(new);
                self.refit(place);
            }
        }
        self.no_other_member(place);
    }

    /// Cuts an integer off at the width of its variable.
    fn refit(&mut self, place: &Place) {
        let mut ty = self.hir.vars[place.var.0 as usize].ty.clone();
        for i in &place.steps {
            ty = match ty.base() {
                Type::Composite(c) => c.fields[*i].1.clone(),
                Type::Tuple(ts) => ts[*i].clone(),
                Type::Stack(t, _) => (**t).clone(),
                _ => return,
            };
        }
        if let Some(Val::Num(n)) = self.at(place) {
            *n = fit(n, &ty);
        }
    }

    /// Invalidates the other members of a header union, as `setValid` and `setInvalid` of a member do, and
    /// assignments to it.
    pub(super) fn no_other_member(&mut self, place: &Place) {
        let Some((this, above)) = place.steps.split_last().filter(|_| place.member) else { return };
        let union = Place { steps: above.to_vec(), ..place.clone() };
        if let Some(Val::Record(members)) = self.at(&union) {
            for (_, m) in members.iter_mut().enumerate().filter(|(i, _)| i != this) {
                if let Val::Header { valid, .. } = m {
                    *valid = false;
                }
            }
        }
    }
}

impl Place {
    fn then(mut self, i: usize) -> Self {
        self.steps.push(i);
        self.member = false;
        self
    }
}

/// Whether an expression names a variable or a part of it.
fn is_variable(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Var(_) => true,
        ExprKind::Field(b, _) | ExprKind::Element(b, _) => is_variable(b),
        _ => false,
    }
}

/// Returns a shift distance; every distance beyond the widest type has the same effect.
fn distance(n: &BigInt) -> u64 {
    n.to_u64().unwrap_or(u64::MAX).min(10_000)
}

/// The part of [`Stop`] that a callee's end performs copies for.
pub(super) const fn copies_out(s: &Stop) -> bool {
    matches!(s, Stop::Exit | Stop::Reject(_) | Stop::Return(_))
}
