//! Warnings about what the language allows and usually is a mistake.
//!
//! They look at programs without errors, at the whole of each parser, control and function, and say something only
//! where they are sure of the way that leads there: what a caller, a packet or the control plane decides counts as
//! written and valid. A program that is too large to be followed within a budget gets fewer warnings, never wrong ones.

mod cells;
mod flow;
mod paths;
mod places;
mod usage;

use crate::diagnostics::{Diagnostic, Sink};
use crate::hir::Program;

/// Warns about a program without errors.
pub(crate) fn lint(program: &Program, sink: &mut Sink) {
    for d in flow::warnings(program) {
        sink.add(d);
    }
    for d in usage::warnings(program) {
        sink.add(d);
    }
}

/// Warnings, each place once: bodies are looked at once for each way that leads to them.
#[derive(Debug, Default)]
struct Found {
    all: Vec<Diagnostic>,
    seen: std::collections::HashSet<(crate::source::Span, crate::diagnostics::Code)>,
}

impl Found {
    fn add(&mut self, d: Diagnostic) {
        if self.seen.insert((d.span, d.code)) {
            self.all.push(d);
        }
    }
}
