//! Values of the evaluator: integers of any size, structured like their types.

use crate::ast::Composite;
use crate::types::Type;
use num_bigint::BigInt;
use num_traits::{One, Zero};

/// A value of a P4 type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Val {
    /// An integer, bool, enum or error.
    Num(BigInt),
    Varbit(Vec<u8>),
    /// A struct, tuple, list or header union.
    Record(Vec<Val>),
    Header {
        valid: bool,
        fields: Vec<Val>,
    },
    Stack {
        items: Vec<Val>,
        next: usize,
    },
    /// A string, or the result of a function without one.
    Nothing,
}

pub(super) fn num(n: impl Into<BigInt>) -> Val {
    Val::Num(n.into())
}

/// Returns `2^w`.
fn power(w: u32) -> BigInt {
    BigInt::one() << w
}

/// Returns the number modulo `2^w`, from 0.
pub(super) fn unsigned(v: &BigInt, w: u32) -> BigInt {
    let m = power(w);
    ((v % &m) + &m) % &m
}

/// Returns the value of an integer type that equals `v` in its bits.
pub(super) fn fit(v: &BigInt, ty: &Type) -> BigInt {
    match ty.base() {
        Type::Bit(w) => unsigned(v, *w),
        Type::Int(w) => {
            let u = unsigned(v, *w);
            if u >= power(w - 1) { u - power(*w) } else { u }
        }
        Type::Enum(e) => e.repr.as_ref().map_or_else(|| v.clone(), |r| fit(v, r)),
        _ => v.clone(),
    }
}

/// Returns the value of a variable that was never written.
pub(super) fn zero(ty: &Type) -> Val {
    match ty.base() {
        Type::Composite(c) if c.kind == Composite::Header => {
            Val::Header { valid: false, fields: c.fields.iter().map(|(_, t)| zero(t)).collect() }
        }
        Type::Composite(c) => Val::Record(c.fields.iter().map(|(_, t)| zero(t)).collect()),
        Type::Tuple(ts) => Val::Record(ts.iter().map(zero).collect()),
        Type::Stack(t, n) => Val::Stack { items: (0..*n).map(|_| zero(t)).collect(), next: 0 },
        Type::Varbit(_) => Val::Varbit(Vec::new()),
        Type::Text | Type::Void | Type::List(_) => Val::Nothing,
        _ => Val::Num(BigInt::zero()),
    }
}

impl Val {
    pub(super) fn number(&self) -> BigInt {
        if let Self::Num(n) = self { n.clone() } else { BigInt::zero() }
    }

    /// Returns the numbers of a value and of the records in it, in order.
    pub(super) fn numbers(&self) -> Vec<BigInt> {
        if let Self::Record(items) = self {
            items.iter().flat_map(Self::numbers).collect()
        } else {
            vec![self.number()]
        }
    }

    pub(super) fn truth(&self) -> bool {
        !self.number().is_zero()
    }

    /// Returns the number as an index; too large for any array if it is negative or large.
    pub(super) fn index(&self) -> usize {
        usize::try_from(self.number()).unwrap_or(usize::MAX)
    }

    pub(super) fn field(&self, i: usize) -> Option<&Self> {
        match self {
            Self::Record(fields) | Self::Header { fields, .. } => fields.get(i),
            Self::Stack { items, .. } => items.get(i),
            _ => None,
        }
    }

    pub(super) fn field_mut(&mut self, i: usize) -> Option<&mut Self> {
        match self {
            Self::Record(fields) | Self::Header { fields, .. } => fields.get_mut(i),
            Self::Stack { items, .. } => items.get_mut(i),
            _ => None,
        }
    }

    /// Assigns a value; a list assigned to a header makes it valid, and one assigned to a stack keeps
    /// its next index.
    pub(super) fn assign(&mut self, v: Self) {
        match (self, v) {
            (Self::Header { valid, fields }, Self::Record(values)) => {
                *valid = true;
                fields.iter_mut().zip(values).for_each(|(f, v)| f.assign(v));
            }
            (Self::Stack { items, .. } | Self::Record(items), Self::Record(values)) => {
                items.iter_mut().zip(values).for_each(|(f, v)| f.assign(v));
            }
            (to, v) => *to = v,
        }
    }

    /// Whether two values of one type are equal: headers if both are invalid, or valid with equal fields.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let all = |a: &[Self], b: &[Self]| a.iter().zip(b).all(|(a, b)| a.equals(b));
        match (self, other) {
            (Self::Header { valid: a, fields: x }, Self::Header { valid: b, fields: y }) => {
                a == b && (!a || all(x, y))
            }
            (Self::Header { valid, fields }, Self::Record(r))
            | (Self::Record(r), Self::Header { valid, fields }) => *valid && all(fields, r),
            (
                Self::Stack { items: a, .. } | Self::Record(a),
                Self::Stack { items: b, .. } | Self::Record(b),
            ) => all(a, b),
            (a, b) => a == b,
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        match self {
            Self::Header { valid, .. } => *valid,
            Self::Record(members) => members.iter().any(Self::is_valid),
            _ => false,
        }
    }

    /// Appends the bits of a value, most significant first.
    pub(super) fn bits(&self, ty: &Type, out: &mut Vec<bool>) {
        match (self, ty.base()) {
            (Self::Num(n), t) => {
                let w = t.scalar_width().unwrap_or(0);
                let n = unsigned(n, w);
                out.extend((0..w).rev().map(|i| n.bit(u64::from(i))));
            }
            (Self::Varbit(bytes), _) => {
                out.extend(bytes.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1 == 1)));
            }
            (Self::Record(fields) | Self::Header { fields, .. }, Type::Composite(c)) => {
                fields.iter().zip(&c.fields).for_each(|(f, (_, t))| f.bits(t, out));
            }
            (Self::Record(fields), Type::Tuple(ts)) => {
                fields.iter().zip(ts.iter()).for_each(|(f, t)| f.bits(t, out));
            }
            (Self::Stack { items, .. }, Type::Stack(t, _)) => items.iter().for_each(|i| i.bits(t, out)),
            _ => {}
        }
    }
}

/// Returns bits as bytes, padded with zero bits.
pub(super) fn bytes(bits: &[bool]) -> Vec<u8> {
    let byte = |b: &[bool]| b.iter().enumerate().fold(0u8, |n, (i, bit)| n | u8::from(*bit) << (7 - i));
    bits.chunks(8).map(byte).collect()
}
