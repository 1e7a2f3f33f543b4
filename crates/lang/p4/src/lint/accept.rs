//! Warnings about parsers that accept no packet.

use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{Callee, Constructed, Object, Parser, Program, State, Stmt, StmtKind, Target};

/// Warns about parsers that reject every packet. A parser precedes its users, so one pass suffices.
pub(super) fn warnings(program: &Program) -> Vec<Diagnostic> {
    let mut never = vec![false; program.parsers.len()];
    let mut found = Vec::new();
    for (i, p) in program.parsers.iter().enumerate() {
        never[i] = !accepts(program, p, &never);
        if never[i] && !p.states.is_empty() {
            let message = format!("parser `{}` rejects every packet", p.name);
            let hint = "add a transition to `accept` that a packet can reach";
            found.push(Diagnostic::new(Code::NeverAccepts, p.span, message).hint(hint));
        }
    }
    found
}

/// Whether some transitions lead from `start` to `accept`.
fn accepts(program: &Program, p: &Parser, never: &[bool]) -> bool {
    let mut seen = vec![false; p.states.len()];
    let mut open = vec![0];
    while let Some(i) = open.pop() {
        if i >= seen.len() || std::mem::replace(&mut seen[i], true) || ends(program, &p.states[i], never) {
            continue;
        }
        if p.states[i].next.targets().contains(&Target::Accept) {
            return true;
        }
        open.extend(p.states[i].next.states());
    }
    false
}

/// Whether a statement of a state certainly rejects the packet.
fn ends(program: &Program, s: &State, never: &[bool]) -> bool {
    s.body.iter().any(|s: &Stmt| {
        let StmtKind::Call(c) = &s.kind else { return false };
        match &c.callee {
            Callee::Apply(Object::Instance(id)) => match program.instances[id.0 as usize].what {
                Constructed::Parser(p) => never.get(p.0 as usize).copied().unwrap_or(false),
                _ => false,
            },
            Callee::Extern(f) if &*program.extern_fns[f.0 as usize].name == "verify" => {
                let condition = c.args.first().and_then(crate::hir::CallArg::expr);
                condition.and_then(crate::hir::Expr::as_const).is_some_and(num_traits::Zero::is_zero)
            }
            _ => false,
        }
    })
}
