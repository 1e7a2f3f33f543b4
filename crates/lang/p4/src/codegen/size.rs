//! Where a program's code comes from, and the warning about programs that are too long to load.

use super::MachineCode;
use super::insn::Insn;
use crate::ast::{Decl, DeclKind, ExprKind, Program, TypeKind};
use crate::diagnostics::{Code, Diagnostic, Sink};
use crate::lexer::Name;
use crate::source::Span;
use p4shield_abi::object::MAX_INSTRUCTIONS;

/// The action, function, control or parser that most of a program's code comes from.
pub(crate) struct Largest {
    pub(crate) name: Name,
    pub(crate) at: Span,
    pub(crate) instructions: usize,
}

/// The number of elements from which on a header stack may explain why a program is too large.
const LONG_STACK: u32 = 20;

/// The longest header stack among the fields of structs.
pub(crate) struct LongStack {
    name: Name,
    /// The field.
    pub(crate) at: Span,
    elements: u32,
}

impl LongStack {
    /// Returns the bound, and what to write instead.
    pub(crate) fn advice(&self) -> String {
        format!(
            "shorten the stack `{}`, which has {} elements: where headers are removed or added, up to about \
             {LONG_STACK} fit; extract headers that stay unchanged into one varbit field",
            self.name, self.elements
        )
    }
}

/// Returns the longest header stack if it is long enough to explain why a program is too large.
pub(crate) fn long_stack(ast: &Program) -> Option<LongStack> {
    let fields = ast.decls.iter().filter_map(|d| match &d.kind {
        DeclKind::Composite { fields, .. } => Some(fields),
        _ => None,
    });
    let stacks = fields.flatten().filter_map(|f| {
        let TypeKind::Stack(_, size) = &f.ty.kind else { return None };
        let ExprKind::Int { value, .. } = &size.kind else { return None };
        let elements = u32::try_from(value).ok()?;
        Some(LongStack { name: f.name.name.clone(), at: f.name.span, elements })
    });
    stacks.max_by_key(|s| s.elements).filter(|s| s.elements > LONG_STACK)
}

/// Returns the source of most of the code, if any of it comes from a declaration.
pub(crate) fn largest(code: &MachineCode, ast: &Program) -> Option<Largest> {
    let mut owners = Vec::new();
    collect(&ast.decls, &mut owners);
    let mut sizes = vec![0; owners.len()];
    for (insn, span) in code.insns.iter().zip(&code.spans) {
        // The innermost one comes last.
        if let Some(i) = owners.iter().rposition(|o| o.contains(*span)) {
            sizes[i] += insn.slots();
        }
    }
    let (owner, size) = owners.into_iter().zip(sizes).max_by_key(|(_, size)| *size)?;
    (size > 0).then_some(Largest { name: owner.name, at: owner.at, instructions: size })
}

/// Whether the verifier will refuse a program for its length.
pub(crate) fn is_too_long(code: &MachineCode) -> bool {
    code.insns.iter().map(Insn::slots).sum::<usize>() > MAX_INSTRUCTIONS
}

/// Warns of a program that the verifier will refuse for its length, at the source of most of its code, else
/// at `end`.
pub(crate) fn warn(code: &MachineCode, largest: Option<&Largest>, ast: &Program, end: Span, sink: &mut Sink) {
    let total = code.insns.iter().map(Insn::slots).sum::<usize>();
    if total <= MAX_INSTRUCTIONS {
        return;
    }
    let message = format!(
        "the program has {total} instructions; a P4 VM loads at most {MAX_INSTRUCTIONS}, so it will refuse \
         this program"
    );
    let hint = match long_stack(ast) {
        Some(stack) => stack.advice(),
        None => "call large actions and controls from fewer places, or move values into tables".to_owned(),
    };
    let warning = match largest {
        Some(l) => Diagnostic::new(Code::TooLong, l.at, message)
            .related(l.at, format!("{} of them come from here", l.instructions)),
        None => Diagnostic::new(Code::TooLong, end, message),
    };
    sink.add(warning.hint(hint));
}

/// A declaration that contains code.
struct Owner {
    name: Name,
    at: Span,
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
        owners.push(Owner { name: d.name.name.clone(), at: d.name.span, body: d.span });
        collect(locals, owners);
    }
}
