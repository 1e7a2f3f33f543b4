//! The check whether a program can change the layout of a packet.
//!
//! The layout is fixed if only extraction makes headers valid, the deparser emits every extracted header
//! in the parser's order, and the parser skips nothing. The deparser then only writes changed fields.

use crate::ast::Direction;
use crate::hir::{Call, CallArg, Callee, Control, Expr, ExprKind, Parser, Program, Stmt, StmtKind, VarId};
use crate::types::Type;
use std::collections::HashSet;

/// A header, or a stack of headers, as the field indices that lead to it from the parameter that holds all
/// headers. A stack is one unit: the next elements follow each other in the packet as in the stack.
type Path = Vec<usize>;

/// A header of the deparser's order, or a whole stack.
#[derive(Debug, PartialEq, Eq)]
struct Unit {
    path: Path,
    is_stack: bool,
}

/// Whether the layout of packets never changes. `parser_headers` and `deparser_headers` are the
/// parameters that hold the headers.
pub(super) fn is_fixed(
    p: &Program,
    parser: &Parser,
    parser_headers: VarId,
    deparser: &Control,
    deparser_headers: VarId,
) -> bool {
    let Some(order) = emission_order(deparser, deparser_headers) else { return false };
    let mut bodies = p.controls.iter().flat_map(|c| [&c.locals, &c.body]).chain([&parser.locals]);
    bodies.all(|b| keeps_layout(b))
        && p.actions.iter().chain(&p.functions).all(|r| keeps_layout(&r.body))
        && parser.states.iter().all(|s| keeps_layout(&s.body))
        && extractions_follow(p, parser, parser_headers, &order)
}

/// Returns the headers in the order of the deparser; `None` if it does more than emit.
fn emission_order(c: &Control, headers: VarId) -> Option<Vec<Unit>> {
    let mut order = Vec::new();
    for s in &c.body {
        let StmtKind::Call(Call { callee: Callee::Method { .. }, args, .. }) = &s.kind else { return None };
        let [CallArg::In(e)] = &**args else { return None };
        let path = path_from(e, headers)?;
        headers_within(&e.ty, path, &mut order)?;
    }
    // A header that is emitted twice makes the packet longer.
    let twice = order.iter().enumerate().any(|(i, unit)| order[..i].contains(unit));
    (c.locals.is_empty() && !twice).then_some(order)
}

fn headers_within(t: &Type, path: Path, out: &mut Vec<Unit>) -> Option<()> {
    match t.base() {
        t if t.is_header() => out.push(Unit { path, is_stack: false }),
        Type::Stack(t, _) if t.base().is_header() => out.push(Unit { path, is_stack: true }),
        Type::Composite(c) if c.kind == crate::ast::Composite::Struct => {
            for (i, (_, t)) in c.fields.iter().enumerate() {
                headers_within(t, path.iter().copied().chain([i]).collect(), out)?;
            }
        }
        _ => return None,
    }
    Some(())
}

fn path_from(e: &Expr, root: VarId) -> Option<Path> {
    match &e.kind {
        ExprKind::Var(v) if *v == root => Some(Vec::new()),
        ExprKind::Field(b, i) => {
            let mut p = path_from(b, root)?;
            p.push(*i);
            Some(p)
        }
        _ => None,
    }
}

/// Whether every path through the parser extracts headers in the order in which the deparser emits them.
fn extractions_follow(p: &Program, parser: &Parser, headers: VarId, order: &[Unit]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0usize, 0usize)];
    while let Some((state, mut from)) = open.pop() {
        if !seen.insert((state, from)) {
            continue;
        }
        let Some(s) = parser.states.get(state) else { return false };
        for stmt in &s.body {
            match extraction(p, stmt, headers) {
                Extraction::None => {}
                Extraction::Unclear => return false,
                Extraction::Of(unit) => match order.iter().skip(from).position(|o| *o == unit) {
                    // The next elements of a stack may follow.
                    Some(n) => from += n + usize::from(!unit.is_stack),
                    None => return false,
                },
            }
        }
        open.extend(s.next.states().map(|to| (to, from)));
    }
    true
}

enum Extraction {
    None,
    Of(Unit),
    Unclear,
}

fn extraction(p: &Program, s: &Stmt, headers: VarId) -> Extraction {
    let StmtKind::Call(c) = &s.kind else {
        // A nested call could extract.
        return if s.blocks().is_empty() { Extraction::None } else { Extraction::Unclear };
    };
    let Callee::Method { of, method, .. } = &c.callee else {
        return if matches!(c.callee, Callee::Extern(_) | Callee::Function(_)) {
            Extraction::None
        } else {
            Extraction::Unclear
        };
    };
    let e = &p.externs[of.0 as usize];
    match (&*e.name, &*e.methods[*method].name, c.args.first()) {
        ("packet_in", "extract", Some(CallArg::Out(h))) => {
            let (of, is_stack) = match &h.kind {
                ExprKind::StackNext(stack) => (&**stack, true),
                _ => (h, false),
            };
            path_from(of, headers).map_or(Extraction::Unclear, |path| Extraction::Of(Unit { path, is_stack }))
        }
        ("packet_in", "lookahead" | "length", _) => Extraction::None,
        ("packet_in", ..) => Extraction::Unclear,
        _ => Extraction::None,
    }
}

/// Whether no statement may change the validity or the position of a header.
fn keeps_layout(stmts: &[Stmt]) -> bool {
    stmts.iter().all(|s| match &s.kind {
        StmtKind::Assign(target, _) => !moves(&target.ty),
        StmtKind::Call(c) => call_keeps_layout(c),
        _ => s.blocks().into_iter().all(keeps_layout),
    })
}

fn call_keeps_layout(c: &Call) -> bool {
    let outside = matches!(c.callee, Callee::Extern(_));
    match &c.callee {
        Callee::SetValid(_) | Callee::SetInvalid(_) | Callee::Push { .. } => false,
        // Only extraction makes a header valid.
        Callee::Method { .. } => true,
        _ => !c.args.iter().any(|a| match a {
            CallArg::Out(e) => moves(&e.ty),
            // A tenant's function has no P4 body that shows its effect on a header.
            CallArg::InOut(e) => outside && moves(&e.ty),
            _ => false,
        }),
    }
}

/// Whether an assigned value of this type may refer to another position of the packet: headers and
/// varbit fields.
fn moves(t: &Type) -> bool {
    match t.base() {
        t if t.is_header() => true,
        Type::Composite(c) => c.fields.iter().any(|(_, t)| moves(t)),
        Type::Tuple(ts) => ts.iter().any(moves),
        Type::Stack(..) | Type::Varbit(_) => true,
        _ => false,
    }
}

/// Returns the parameter of a parser or control that holds the headers: the first of struct or
/// header type.
pub(super) fn headers_param(params: &[crate::hir::Param]) -> Option<VarId> {
    let holds =
        |p: &&crate::hir::Param| matches!(p.ty.base(), Type::Composite(_)) && p.direction != Direction::None;
    params.iter().find(holds).map(|p| p.var)
}
