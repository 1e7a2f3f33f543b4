//! The state of the scalars and headers within variables at one point of a program.

use crate::ast::Composite;
use crate::types::Type;

/// Some path has not written the scalar. For a header's own cell: the header is invalid on some path.
pub(super) const UNWRITTEN: u8 = 1;
/// Some path has written the scalar. For a header's own cell: the header may be valid on some path.
pub(super) const WRITTEN: u8 = 2;

/// Maximum number of cells of one variable; a larger variable counts as written.
const MAX_CELLS: usize = 256;

/// Returns the number of cells of a value: one for itself plus those of its fields. A header's own
/// cell tracks its validity, a scalar's cell whether it was written. Types that are not tracked
/// (stacks, unions, lists) count as written. `None` if there would be too many cells.
pub(super) fn count(ty: &Type) -> Option<usize> {
    let mut room = MAX_CELLS;
    spend(ty, &mut room).then(|| MAX_CELLS - room)
}

/// Subtracts the number of a value's cells from `room`; false if that exceeds it.
fn spend(ty: &Type, room: &mut usize) -> bool {
    let Some(rest) = room.checked_sub(1) else { return false };
    *room = rest;
    fields(ty).into_iter().all(|t| spend(t, room))
}

/// Returns the types of the tracked fields.
fn fields(ty: &Type) -> Vec<&Type> {
    ty.fields().unwrap_or_default()
}

/// Returns the offset of field `i` among the cells of a value.
pub(super) fn offset(ty: &Type, i: usize) -> Option<usize> {
    let before: Option<usize> = fields(ty).into_iter().take(i).map(count).sum();
    Some(before? + 1)
}

/// The state of each cell, over all paths to one point.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowState {
    states: Vec<u8>,
    /// Whether no path leads here.
    pub(super) dead: bool,
}

impl FlowState {
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

    /// Adds the paths of `other`; returns whether any state changed.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        if other.dead {
            return false;
        }
        if self.dead {
            self.clone_from(other);
            return true;
        }
        // A variable that only one side has is declared behind this point.
        let mut new = false;
        self.states.resize(self.states.len().max(other.states.len()), 0);
        for (a, b) in self.states.iter_mut().zip(&other.states) {
            new |= *b & !*a != 0;
            *a |= b;
        }
        new
    }

    /// Sets the cells of a value; returns the first cell behind it.
    pub(super) fn fill(&mut self, ty: &Type, at: usize, state: u8) -> usize {
        let followed = ty.is_header() || is_scalar(ty);
        self.set(at, if followed { state } else { WRITTEN });
        fields(ty).into_iter().fold(at + 1, |next, t| self.fill(t, next, state))
    }

    /// Returns the states of all scalars in a value; `None` if it has none, or contains headers or
    /// untracked types.
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

/// Whether a value is written as a whole.
pub(super) fn is_scalar(ty: &Type) -> bool {
    ty.scalar_width().is_some() || matches!(ty.base(), Type::Varbit(_))
}
