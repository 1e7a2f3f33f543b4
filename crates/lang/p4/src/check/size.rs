//! The limit on the size of types.
//!
//! A few lines can declare a type of any size: a chain of structs, each with two fields of the previous
//! one, doubles it per struct. Code that walks the fields of a type relies on this module's limit.

use super::Checker;
use crate::diagnostics::Code;
use crate::source::Span;
use crate::types::Type;

/// Maximum number of types within one type: fields of fields, elements of stacks, type arguments.
const MAX_PARTS: usize = 1 << 16;
/// Maximum number of types visited to measure all types of a program.
pub(super) const MAX_WORK: usize = 20_000_000;

impl Checker<'_> {
    /// Returns the type unchanged, or reports that it is too large.
    pub(super) fn measured(&mut self, ty: Type, span: Span) -> Type {
        // Most types are small and cheap to measure.
        let limit = MAX_PARTS.min(self.type_work);
        let mut room = limit;
        let fits = spend(&ty, 1, &mut room);
        self.type_work -= limit - room;
        if fits {
            return ty;
        }
        let (message, hint) = if limit == MAX_PARTS {
            (format!("{ty} has more than {MAX_PARTS} parts"), "use fewer fields, or shorter stacks")
        } else {
            ("the total size of the program's types is too large".to_owned(), "use fewer fields")
        };
        self.refuse(Code::TooLarge, span, message, hint)
    }
}

/// Subtracts `times` the number of types within a type from `room`; false if that exceeds it.
fn spend(ty: &Type, times: usize, room: &mut usize) -> bool {
    match room.checked_sub(times) {
        Some(rest) => *room = rest,
        None => {
            *room = 0;
            return false;
        }
    }
    match ty {
        Type::Stack(t, n) => spend(t, times.saturating_mul((*n).max(1) as usize), room),
        Type::List(t) => spend(t, times, room),
        Type::New(n) => spend(&n.target, times, room),
        Type::Tuple(ts) => ts.iter().all(|t| spend(t, times, room)),
        Type::Composite(c) => {
            c.args.iter().all(|t| spend(t, times, room))
                && c.fields.iter().all(|(_, t)| spend(t, times, room))
        }
        Type::Extern(e) => e.args.iter().all(|t| spend(t, times, room)),
        Type::Object(o) => o.params.iter().all(|p| spend(&p.ty, times, room)),
        _ => true,
    }
}
