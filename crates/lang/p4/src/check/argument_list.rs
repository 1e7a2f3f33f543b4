//! The argument list of a call, as written.

use crate::ast;
use crate::source::Span;

/// The arguments of a call, as written.
#[derive(Clone, Copy)]
pub(super) struct ArgumentList<'a> {
    pub(super) type_args: &'a [ast::TypeExpr],
    pub(super) args: &'a [ast::Arg],
    /// The location of the whole call.
    pub(super) span: Span,
}

impl<'a> ArgumentList<'a> {
    /// Arguments without type arguments.
    pub(super) const fn new(args: &'a [ast::Arg], span: Span) -> Self {
        Self { type_args: &[], args, span }
    }
}

/// Formats a number of items in words.
pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
