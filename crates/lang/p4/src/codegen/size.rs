//! The warning about programs that are too long to load.

use super::MachineCode;
use super::insn::Insn;
use crate::ast::{Decl, DeclKind, Program};
use crate::diagnostics::{Code, Diagnostic, Sink};
use crate::source::Span;
use p4shield_abi::object::MAX_INSTRUCTIONS;

/// Warns of a program that the verifier will refuse for its length, at the action, function, control or
/// parser from which most of its code comes, else at `end`.
pub(crate) fn warn(code: &MachineCode, ast: &Program, end: Span, sink: &mut Sink) {
    let total = code.insns.iter().map(Insn::slots).sum::<usize>();
    if total <= MAX_INSTRUCTIONS {
        return;
    }
    let message = format!(
        "the program has {total} instructions; a P4 VM loads at most {MAX_INSTRUCTIONS}, so it will refuse \
         this program"
    );
    let hint = "call large actions and controls from fewer places, or move values into tables";
    let mut owners = Vec::new();
    collect(&ast.decls, &mut owners);
    let mut sizes = vec![0; owners.len()];
    for (insn, span) in code.insns.iter().zip(&code.spans) {
        // The innermost one comes last.
        if let Some(i) = owners.iter().rposition(|o| o.contains(*span)) {
            sizes[i] += insn.slots();
        }
    }
    let largest = owners.iter().zip(&sizes).max_by_key(|(_, size)| **size);
    let warning = match largest.filter(|(_, size)| **size > 0) {
        Some((owner, size)) => Diagnostic::new(Code::TooLong, owner.name, message)
            .related(owner.name, format!("{size} of them come from here")),
        None => Diagnostic::new(Code::TooLong, end, message),
    };
    sink.add(warning.hint(hint));
}

/// A declaration that contains code.
struct Owner {
    name: Span,
    body: Span,
}

impl Owner {
    const fn contains(&self, at: Span) -> bool {
        self.body.file == at.file && self.body.start <= at.start && at.end <= self.body.end
    }
}

/// Lists the declarations that contain code, each before those inside it.
fn collect(decls: &[Decl], owners: &mut Vec<Owner>) {
    for d in decls {
        let locals: &[Decl] = match &d.kind {
            DeclKind::Function { .. } | DeclKind::Action { .. } => &[],
            DeclKind::Parser(p) => &p.locals,
            DeclKind::Control(c) => &c.locals,
            _ => continue,
        };
        owners.push(Owner { name: d.name.span, body: d.span });
        collect(locals, owners);
    }
}
