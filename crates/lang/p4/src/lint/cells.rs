//! What is known of the scalars and headers within variables at one point of a program.

use crate::ast::Composite;
use crate::types::Type;

/// On some way nothing was written; of a header's first cell: on some way the header is invalid.
pub(super) const UNWRITTEN: u8 = 1;
/// On some way something was written; of a header's first cell: on some way the header may be valid.
pub(super) const WRITTEN: u8 = 2;

/// Cells that one variable may take; a larger one counts as written.
const MAX_CELLS: usize = 256;

/// How many cells a value has: one for itself and those of its fields. A header's own tells whether it is valid, a
/// scalar's whether it was written; what is not followed (stacks, unions, lists) counts as written. `None` if there
/// would be too many.
pub(super) fn count(ty: &Type) -> Option<usize> {
    let mut room = MAX_CELLS;
    spend(ty, &mut room).then(|| MAX_CELLS - room)
}

/// Takes a value's cells from `room`; false if that is not enough.
fn spend(ty: &Type, room: &mut usize) -> bool {
    let Some(rest) = room.checked_sub(1) else { return false };
    *room = rest;
    fields(ty).into_iter().all(|t| spend(t, room))
}

/// The types of the fields that are followed.
pub(super) fn fields(ty: &Type) -> Vec<&Type> {
    match ty.base() {
        Type::Composite(c) if c.kind != Composite::Union => c.fields.iter().map(|(_, t)| t).collect(),
        Type::Tuple(ts) => ts.iter().collect(),
        _ => Vec::new(),
    }
}

/// Where field `i` begins among the cells of a value.
pub(super) fn offset(ty: &Type, i: usize) -> Option<usize> {
    let before: Option<usize> = fields(ty).into_iter().take(i).map(count).sum();
    Some(before? + 1)
}

/// The state of each cell on all ways that lead to one point.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    states: Vec<u8>,
    /// No way leads here.
    pub(super) dead: bool,
}

impl Cells {
    pub(super) const fn dead() -> Self {
        Self { states: Vec::new(), dead: true }
    }

    pub(super) fn get(&self, at: usize) -> u8 {
        self.states.get(at).copied().unwrap_or(WRITTEN)
    }

    pub(super) fn set(&mut self, at: usize, state: u8) {
        if self.states.len() <= at {
            self.states.resize(at + 1, WRITTEN);
        }
        self.states[at] = state;
    }

    pub(super) const fn len(&self) -> usize {
        self.states.len()
    }

    /// Adds the ways that `other` stands for; returns whether that told anything new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        if other.dead {
            return false;
        }
        if self.dead {
            self.clone_from(other);
            return true;
        }
        // A variable that one side does not know is declared behind this point.
        let mut new = false;
        self.states.resize(self.states.len().max(other.states.len()), 0);
        for (a, b) in self.states.iter_mut().zip(&other.states) {
            new |= *b & !*a != 0;
            *a |= b;
        }
        new
    }

    /// Sets a value's cells to written or unwritten; returns the first cell behind it.
    pub(super) fn fill(&mut self, ty: &Type, at: usize, state: u8) -> usize {
        let followed = ty.is_header() || is_scalar(ty);
        self.set(at, if followed { state } else { WRITTEN });
        fields(ty).into_iter().fold(at + 1, |next, t| self.fill(t, next, state))
    }

    /// The states of all scalars in a value; `None` if it has none, or holds headers or what is not followed.
    pub(super) fn scalars(&self, ty: &Type, at: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.collect(ty, at, &mut out).filter(|_| !out.is_empty())?;
        Some(out)
    }

    fn collect(&self, ty: &Type, at: usize, out: &mut Vec<u8>) -> Option<usize> {
        if is_scalar(ty) {
            out.push(self.get(at));
            return Some(at + 1);
        }
        let structure =
            ty.base().composite(Composite::Struct).is_some() || matches!(ty.base(), Type::Tuple(_));
        if !structure {
            return None;
        }
        fields(ty).into_iter().try_fold(at + 1, |at, t| self.collect(t, at, out))
    }
}

/// Whether a value is one that is written as a whole.
pub(super) fn is_scalar(ty: &Type) -> bool {
    ty.scalar_width().is_some() || matches!(ty.base(), Type::Varbit(_))
}
