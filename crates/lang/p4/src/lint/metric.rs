//! Warnings about `@metric`s that mark no counter, or two counters with one name.

use crate::diagnostics::{Code, Diagnostic};
use crate::hir::Program;
use crate::source::Span;
use crate::types::Type;
use std::collections::HashSet;

/// Whether an extern type counts packets or bytes.
fn is_counter(ty: &Type) -> bool {
    let Type::Extern(e) = ty else { return false };
    matches!(&*e.name, "counter" | "direct_counter" | "Counter" | "CounterArray")
}

/// Warns about marks without effect, and about marks with an ambiguous name.
pub(super) fn warnings(program: &Program) -> Vec<Diagnostic> {
    let names = &program.control_names;
    let warn = |at: Span, message: String, hint: &str| {
        Diagnostic::new(Code::MisplacedMetric, at, message).hint(hint)
    };
    let misplaced = |at: Span| {
        warn(at, "@metric has no effect here".to_owned(), "write it in front of a counter or direct_counter")
    };
    let mut found: Vec<_> = names.misplaced_metrics().iter().copied().map(misplaced).collect();
    let mut marks: Vec<_> = names.metrics().collect();
    marks.sort_by_key(|((at, _), _)| (at.file, at.start));
    let mut given = HashSet::new();
    for ((at, name), mark) in marks {
        let instance = program.instances.iter().find(|i| i.span == *at && i.name == *name);
        if !instance.is_some_and(|i| is_counter(&i.ty)) {
            found.push(misplaced(mark.at));
        } else if let Some(metric) = mark.name.as_deref().filter(|n| !given.insert(*n)) {
            let message = format!("another counter is the metric {metric:?}, too");
            found.push(warn(mark.at, message, "give each its own name; metrics of one name are added up"));
        }
    }
    found
}
