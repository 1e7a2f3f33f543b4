//! Which cells an expression names.

use super::cells;
use crate::hir::{Expr, ExprKind, VarId};
use crate::types::Type;
use std::collections::HashMap;

/// Where each variable's cells begin.
#[derive(Debug, Default)]
pub(super) struct Layout {
    first: HashMap<VarId, usize>,
    next: usize,
}

/// The cells of an expression such as `hdr.ip.ttl`.
#[derive(Debug)]
pub(super) struct Place {
    /// The first.
    pub(super) at: usize,
    /// The header that it is a field of: the cell that tells whether the header is valid.
    pub(super) header: Option<usize>,
}

impl Layout {
    /// Gives a variable its cells, the same each time; `None` if it is not followed.
    pub(super) fn add(&mut self, v: VarId, ty: &Type) -> Option<usize> {
        if let Some(at) = self.first.get(&v) {
            return Some(*at);
        }
        let count = cells::count(ty)?;
        let at = self.next;
        self.next += count;
        self.first.insert(v, at);
        Some(at)
    }

    /// The cells that an expression names; `None` if they are not followed.
    pub(super) fn place(&self, e: &Expr) -> Option<Place> {
        match &e.kind {
            ExprKind::Var(v) => Some(Place { at: *self.first.get(v)?, header: None }),
            ExprKind::Field(base, i) => {
                let p = self.place(base)?;
                let header = if base.ty.is_header() { Some(p.at) } else { p.header };
                Some(Place { at: p.at + cells::offset(&base.ty, *i)?, header })
            }
            ExprKind::Slice(base, ..) | ExprKind::PlusSlice(base, ..) => self.place(base),
            _ => None,
        }
    }
}

/// How an expression such as `hdr.ip.ttl` is written, for messages; `None` if it is no path.
pub(super) fn text(e: &Expr, names: &dyn Fn(VarId) -> String) -> Option<String> {
    match &e.kind {
        ExprKind::Var(v) => Some(names(*v)),
        ExprKind::Field(base, i) => {
            let field = match base.ty.base() {
                Type::Composite(c) => c.fields.get(*i).map(|(n, _)| format!(".{n}"))?,
                _ => format!("[{i}]"),
            };
            Some(text(base, names)? + &field)
        }
        ExprKind::Slice(base, ..) | ExprKind::PlusSlice(base, ..) => text(base, names),
        _ => None,
    }
}
