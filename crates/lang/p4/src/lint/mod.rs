//! Lints: warnings about valid code that is usually a mistake.
//!
//! They analyse programs without errors, each parser, control and function as a whole, and warn
//! only about paths that certainly exist: values that depend on a caller, a packet or the control
//! plane count as written and valid. A program that exceeds the analysis budget gets fewer
//! warnings, never wrong ones.

mod accept;
mod flow;
mod layout;
mod metric;
mod paths;
mod state;
mod usage;

use crate::diagnostics::{Diagnostic, Sink};
use crate::hir::Program;

/// Warns about a program without errors.
pub(crate) fn lint(program: &Program, sink: &mut Sink) {
    let all = [
        accept::warnings(program),
        flow::warnings(program),
        metric::warnings(program),
        usage::warnings(program),
    ];
    all.into_iter().flatten().for_each(|d| sink.add(d));
}

/// Warnings, each location once: a body is visited once per path that leads to it.
#[derive(Debug, Default)]
struct Warnings {
    all: Vec<Diagnostic>,
    seen: std::collections::HashSet<(crate::source::Span, crate::diagnostics::Code)>,
}

impl Warnings {
    fn add(&mut self, d: Diagnostic) {
        if self.seen.insert((d.span, d.code)) {
            self.all.push(d);
        }
    }
}
