//! The cells that an expression refers to.

use super::state;
use crate::hir::{Expr, ExprKind, VarId};
use crate::types::Type;
use std::collections::HashMap;

/// The first cell of each variable.
#[derive(Debug, Default)]
pub(super) struct CellLayout {
    first: HashMap<VarId, usize>,
    next: usize,
}

/// The cells of an expression such as `hdr.ip.ttl`.
#[derive(Debug)]
pub(super) struct CellRef {
    /// The first cell.
    pub(super) at: usize,
    /// If it is a field of a header: the cell that tracks the header's validity.
    pub(super) header: Option<usize>,
}

impl CellLayout {
    /// Allocates the cells of a variable, the same each time; `None` if it is not tracked.
    pub(super) fn add(&mut self, v: VarId, ty: &Type) -> Option<usize> {
        if let Some(at) = self.first.get(&v) {
            return Some(*at);
        }
        let count = state::count(ty)?;
        let at = self.next;
        self.next += count;
        self.first.insert(v, at);
        Some(at)
    }

    /// Returns the cells that an expression refers to; `None` if they are not tracked.
    pub(super) fn cell_ref(&self, e: &Expr) -> Option<CellRef> {
        match &e.kind {
            ExprKind::Var(v) => Some(CellRef { at: *self.first.get(v)?, header: None }),
            ExprKind::Field(base, i) => {
                let p = self.cell_ref(base)?;
                let header = if base.ty.is_header() { Some(p.at) } else { p.header };
                Some(CellRef { at: p.at + state::offset(&base.ty, *i)?, header })
            }
            ExprKind::Slice(base, ..) | ExprKind::PlusSlice(base, ..) => self.cell_ref(base),
            _ => None,
        }
    }
}

/// Prints an expression such as `hdr.ip.ttl` for messages; `None` if it is not a path.
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
