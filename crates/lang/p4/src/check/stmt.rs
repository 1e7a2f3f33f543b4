//! Checks of statements.

use super::argument_list::ArgumentList;
use super::{Checker, ScopeKind, Symbol};
use crate::ast::{self, DeclKind, ExprKind as Ast, StmtKind as AstStmt};
use crate::diagnostics::Code;
use crate::hir::{Case, Expr, ExprKind, Stmt, StmtKind, TableId};
use crate::source::Span;
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn block(&mut self, b: &ast::Block) -> Vec<Stmt> {
        self.scoped(|c| c.statements(&b.stmts))
    }

    pub(super) fn statements(&mut self, stmts: &[ast::Stmt]) -> Vec<Stmt> {
        let mut out: Vec<Stmt> = Vec::with_capacity(stmts.len());
        let mut warned = false;
        for s in stmts {
            if !warned && out.last().is_some_and(|l| always_leaves(std::slice::from_ref(l))) {
                let hint = "remove it, or the statement above that ends this path";
                self.error(Code::UnreachableCode, s.span, "unreachable statement", hint);
                warned = true;
            }
            if let Some(kind) = self.statement(s) {
                out.push(Stmt { kind, span: s.span });
            }
        }
        out
    }

    fn nested(&mut self, s: &ast::Stmt) -> Vec<Stmt> {
        self.scoped(|c| c.statements(std::slice::from_ref(s)))
    }

    fn statement(&mut self, s: &ast::Stmt) -> Option<StmtKind> {
        match &s.kind {
            AstStmt::Empty => None,
            AstStmt::Block(b) => Some(StmtKind::Block(self.block(b))),
            AstStmt::Assign { target, op, value } => self.assign(target, *op, value, s.span),
            AstStmt::Call(call) => self.call_statement(call),
            AstStmt::If { condition, then, otherwise } => {
                let c = self.expr_as(condition, &Type::Bool);
                let t = self.nested(then);
                let f = otherwise.as_ref().map(|s| self.nested(s)).unwrap_or_default();
                Some(StmtKind::If(c, t, f))
            }
            AstStmt::Return(value) => self.return_statement(value.as_ref(), s.span),
            AstStmt::Exit => {
                if matches!(self.scope_kind, ScopeKind::Parser | ScopeKind::Function(_)) {
                    let hint = "only controls and actions can exit";
                    self.error(Code::BadStatement, s.span, "exit is not allowed here", hint);
                }
                Some(StmtKind::Exit)
            }
            AstStmt::Break | AstStmt::Continue => {
                let word = if matches!(s.kind, AstStmt::Break) { "break" } else { "continue" };
                if self.loops == 0 {
                    self.error(Code::BadStatement, s.span, format!("{word} outside of a loop"), "remove it");
                }
                Some(if word == "break" { StmtKind::Break } else { StmtKind::Continue })
            }
            AstStmt::For { init, condition, update, body } => {
                self.not_in_a_state("a for loop", s.span);
                Some(self.for_loop(init, condition, update, body))
            }
            AstStmt::ForIn { ty, name, from, to, body } => {
                self.not_in_a_state("a for loop", s.span);
                self.for_in(ty, name, from, to.as_ref(), body, s.span)
            }
            AstStmt::Switch { subject, cases } => {
                self.not_in_a_state("a switch statement", s.span);
                self.switch(subject, cases, s.span)
            }
            AstStmt::Decl(d) => self.local(d),
        }
    }

    /// Reports a statement that parser states do not have (P4_16 12.7, 13.4).
    fn not_in_a_state(&mut self, what: &str, span: Span) {
        if self.scope_kind == ScopeKind::Parser {
            let hint = "use `transition select`, or a function that this state calls";
            self.error(Code::BadStatement, span, format!("{what} is not allowed in a parser state"), hint);
        }
    }

    fn for_loop(
        &mut self,
        init: &[ast::Stmt],
        condition: &ast::Expr,
        update: &[ast::Stmt],
        body: &ast::Stmt,
    ) -> StmtKind {
        self.scoped(|c| {
            let init = c.statements(init);
            let condition = c.expr_as(condition, &Type::Bool);
            let update = c.statements(update);
            let body = c.loop_body(body);
            StmtKind::For { init, condition, update, body }
        })
    }

    fn loop_body(&mut self, body: &ast::Stmt) -> Vec<Stmt> {
        self.loops += 1;
        let body = self.nested(body);
        self.loops -= 1;
        body
    }

    fn for_in(
        &mut self,
        ty: &ast::TypeExpr,
        name: &ast::Ident,
        from: &ast::Expr,
        to: Option<&ast::Expr>,
        body: &ast::Stmt,
        span: Span,
    ) -> Option<StmtKind> {
        let ty = self.ty(ty);
        let range = match (&from.kind, to) {
            (Ast::Range(a, b), None) => Some((&**a, &**b)),
            (_, Some(b)) => Some((from, b)),
            _ => None,
        };
        let declare = |c: &mut Self| {
            c.warn_shadowing(name);
            let variable = c.new_var(name, ty.clone());
            c.declare(name, Symbol::Var(variable));
            variable
        };
        if let Some((low, high)) = range {
            if ty.base().integer().is_none() && !ty.is_bad() {
                let hint = "use bit<W> or int<W>";
                return self.refuse(Code::BadType, name.span, format!("invalid type {ty} of a range"), hint);
            }
            let (low, high) = (self.expr_as(low, &ty), self.expr_as(high, &ty));
            return self.scoped(|c| {
                let variable = declare(c);
                let body = c.loop_body(body);
                let ok = !low.ty.is_bad() && !high.ty.is_bad();
                ok.then_some(StmtKind::ForRange { variable, low, high, body })
            });
        }
        let array = self.expr(from, None);
        let element = match array.ty.base() {
            Type::Stack(t, _) | Type::List(t) => (**t).clone(),
            Type::Tuple(ts) if matches!(array.kind, ExprKind::Aggregate(_)) => {
                ts.first().cloned().unwrap_or(Type::Bad)
            }
            Type::Bad => return None,
            other => {
                let message = format!("cannot iterate over {other}");
                return self.refuse(Code::BadOperand, span, message, "use a range, an array or a list");
            }
        };
        if element != ty && element != Type::InfInt && !ty.is_bad() && !element.is_bad() {
            let message = format!("the elements are {element}, not {ty}");
            return self.refuse(Code::TypeMismatch, span, message, "use the type of the elements");
        }
        let array = match array.kind {
            ExprKind::Aggregate(items) => {
                let items = items.map(|i| self.coerce(i, &ty));
                Expr { kind: ExprKind::Aggregate(items), ..array }
            }
            _ => array,
        };
        self.scoped(|c| {
            let variable = declare(c);
            let body = c.loop_body(body);
            Some(StmtKind::ForEach { variable, array, body })
        })
    }

    /// Checks a declaration among statements or among the locals of a parser or control.
    pub(super) fn local(&mut self, d: &ast::Decl) -> Option<StmtKind> {
        self.annotations(&d.annotations);
        match &d.kind {
            DeclKind::Variable { ty, init } => {
                let ty = self.ty(ty);
                let ok = ty.is_runtime();
                if !ok {
                    let hint = "use a type with run-time values";
                    self.error(Code::BadType, d.span, format!("a variable cannot be of type {ty}"), hint);
                }
                let init = init.as_ref().map(|e| self.expr_as(e, &ty));
                if self.scope_kind == ScopeKind::Apply
                    && let Some(Symbol::Var(v)) = self.lookup(&d.name.name, false)
                    && self.object_params.contains(v)
                {
                    let message = format!("`{}` shadows a parameter", d.name.name);
                    self.error(Code::DuplicateName, d.name.span, message, "choose another name");
                }
                self.warn_shadowing(&d.name);
                // A list variable may be indexed wrongly, which deserves a report as well.
                let keep = ok || matches!(ty, Type::List(_));
                let var = self.new_var(&d.name, if keep { ty } else { Type::Bad });
                self.declare(&d.name, Symbol::Var(var));
                Some(StmtKind::Declare(var, init))
            }
            DeclKind::Instance { array: Some(_), .. } => {
                self.sink.unsupported(d.span, "an array of instances");
                self.declare(&d.name, Symbol::Bad);
                None
            }
            DeclKind::Instance { ty, args, init, .. } => {
                self.warn_shadowing(&d.name);
                self.instance(d, ty, args, init.as_deref()).map(|_| StmtKind::Instance)
            }
            DeclKind::Const { ty, value } => {
                self.warn_shadowing(&d.name);
                self.const_decl(d, ty, value);
                None
            }
            DeclKind::Action { params, body } if self.scope_kind == ScopeKind::Control => {
                self.action(d, params, body);
                None
            }
            DeclKind::Table(properties) if self.scope_kind == ScopeKind::Control => {
                self.table(d, properties);
                None
            }
            DeclKind::ValueSet { ty, size } if self.scope_kind == ScopeKind::Parser => {
                self.value_set(d, ty, size);
                None
            }
            _ => self.refuse(Code::BadStatement, d.span, "misplaced declaration", "move it to the top level"),
        }
    }

    fn call_statement(&mut self, call: &ast::Expr) -> Option<StmtKind> {
        let Ast::Call { callee, type_args, args } = &call.kind else { return None };
        let e = self.call(callee, ArgumentList { type_args, args, span: call.span });
        match e.kind {
            ExprKind::Call(call) => Some(StmtKind::Call(*call)),
            ExprKind::Bad => None,
            _ => {
                let message = "unused result of a call without side effects";
                self.refuse(Code::Unused, call.span, message, "assign it, or remove the call")
            }
        }
    }

    fn return_statement(&mut self, value: Option<&ast::Expr>, span: Span) -> Option<StmtKind> {
        match (self.scope_kind.clone(), value) {
            (
                ScopeKind::Function(Type::Void) | ScopeKind::Control | ScopeKind::Apply | ScopeKind::Action,
                None,
            ) => Some(StmtKind::Return(None)),
            (ScopeKind::Function(ty), Some(v)) if ty != Type::Void => {
                Some(StmtKind::Return(Some(self.expr_as(v, &ty))))
            }
            (ScopeKind::Function(ty), None) => {
                self.refuse(Code::BadReturn, span, format!("expected a {ty} return value"), "return a value")
            }
            (ScopeKind::Parser, _) => {
                let hint = "end the state with a transition";
                self.refuse(Code::BadStatement, span, "return is not allowed in a parser", hint)
            }
            (_, Some(v)) => {
                let hint = "only functions with a result return values";
                self.refuse(Code::BadReturn, v.span, "unexpected return value", hint)
            }
            (ScopeKind::Top, None) => None,
        }
    }

    fn switch(&mut self, subject: &ast::Expr, cases: &[ast::SwitchCase], span: Span) -> Option<StmtKind> {
        if let Ast::Member(call, run) = &subject.kind
            && &*run.name == "action_run"
            && let Some(table) = self.applied_table(call)
        {
            return Some(self.switch_action(table, cases));
        }
        let subject = self.expr(subject, None);
        let subject = if subject.ty == Type::InfInt && subject.as_const().is_some() {
            self.coerce(subject, &Type::Bit(32))
        } else {
            subject
        };
        let subject =
            if matches!(subject.ty.base(), Type::Enum(_)) { subject } else { self.enum_value(subject) };
        if subject.ty.is_bad() {
            return None;
        }
        if !matches!(subject.ty.base(), Type::Bit(_) | Type::Int(_) | Type::Enum(_) | Type::Error) {
            let message = format!("switch on a value of type {}", subject.ty);
            let hint = match subject.ty.base() {
                Type::Bool => "use `if` for a bool",
                _ => "use an integer, an enum, an error, or t.apply().action_run",
            };
            return self.refuse(Code::BadOperand, span, message, hint);
        }
        let ty = subject.ty.clone();
        let mut seen: Vec<num_bigint::BigInt> = Vec::new();
        let cases = self.switch_cases(cases, |c, label| {
            let e = c.expr_as(label, &ty);
            if let Some(v) = e.as_const() {
                if seen.contains(v) {
                    c.error(Code::DuplicateName, e.span, "duplicate label", "remove one of them");
                }
                seen.push(v.clone());
            }
            if e.as_const().is_none() && !e.ty.is_bad() {
                c.error(Code::NotConstant, e.span, "expected a constant label", "use literals and constants");
            }
            e
        });
        Some(StmtKind::SwitchValue { subject, cases })
    }

    fn switch_action(&mut self, table: TableId, cases: &[ast::SwitchCase]) -> StmtKind {
        let actions: Vec<_> = {
            let t = &self.program.tables[table.0 as usize];
            t.actions.iter().map(|a| self.program.actions[a.action.0 as usize].name.clone()).collect()
        };
        let mut seen: Vec<usize> = Vec::new();
        let cases = self.switch_cases(cases, |c, label| {
            let name = if let Ast::Path { name, .. } = &label.kind { Some(name.name.clone()) } else { None };
            let at = name.and_then(|n| actions.iter().position(|a| *a == n));
            if let Some(at) = at {
                if seen.contains(&at) {
                    let hint = "remove one of them";
                    c.error(Code::DuplicateName, label.span, "duplicate label", hint);
                }
                seen.push(at);
            }
            at.unwrap_or_else(|| {
                let known: Vec<_> = actions.iter().map(|a| &**a).collect();
                let hint = format!("its actions are {}", known.join(", "));
                c.error(Code::UnknownName, label.span, "this label is not an action of the table", hint);
                0
            })
        });
        StmtKind::SwitchAction { table, cases }
    }

    fn switch_cases<T>(
        &mut self,
        cases: &[ast::SwitchCase],
        mut label: impl FnMut(&mut Self, &ast::Expr) -> T,
    ) -> Vec<Case<T>> {
        let mut out = Vec::new();
        let mut labels = Vec::new();
        let mut seen_default = false;
        for case in cases {
            if seen_default {
                let hint = "`default` must be the last case";
                self.error(Code::BadStatement, case.label.span, "case behind `default`", hint);
            }
            if matches!(case.label.kind, Ast::Default | Ast::DontCare) {
                seen_default = true;
                labels.push(None);
            } else {
                labels.push(Some(label(self, &case.label)));
            }
            if let Some(b) = &case.body {
                let body = self.block(b);
                out.push((std::mem::take(&mut labels), body));
            }
        }
        if !labels.is_empty() {
            out.push((labels, Vec::new()));
        }
        out
    }
}

/// Whether control never continues behind these statements.
pub(super) fn always_leaves(stmts: &[Stmt]) -> bool {
    let leaves = |s: &StmtKind| {
        matches!(s, StmtKind::Return(_) | StmtKind::Exit | StmtKind::Break | StmtKind::Continue)
    };
    always(stmts, leaves)
}

/// Whether a function's body returns on every path.
pub(super) fn always_returns(stmts: &[Stmt]) -> bool {
    always(stmts, |s| matches!(s, StmtKind::Return(_) | StmtKind::Exit))
}

/// Whether every path through these statements has one that `ends` it.
fn always(stmts: &[Stmt], ends: fn(&StmtKind) -> bool) -> bool {
    stmts.iter().any(|s| match &s.kind {
        StmtKind::Block(_) | StmtKind::If(..) => s.blocks().into_iter().all(|b| always(b, ends)),
        StmtKind::SwitchValue { cases, .. } => all_cases(cases, ends),
        StmtKind::SwitchAction { cases, .. } => all_cases(cases, ends),
        other => ends(other),
    })
}

fn all_cases<T>(cases: &[Case<T>], ends: fn(&StmtKind) -> bool) -> bool {
    cases.iter().any(|(labels, _)| labels.iter().any(Option::is_none))
        && cases.iter().all(|(_, body)| always(body, ends))
}
