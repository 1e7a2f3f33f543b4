//! Warnings about unused declarations and results.

use super::Warnings;
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{
    ActionId, Call, CallArg, Callee, Constructed, CtorArg, Expr, ExprKind, InstId, Keyset, Next, Object,
    Param, Program, Stmt, StmtKind, TableId, VarId,
};
use crate::source::Span;
use crate::types::Type;
use std::collections::HashSet;

pub(super) fn warnings(program: &Program) -> Vec<Diagnostic> {
    let mut u = Usage::new(program);
    u.program();
    u.report();
    u.found.all
}

/// The declarations that the program uses.
struct Usage<'a> {
    program: &'a Program,
    found: Warnings,
    /// Local variables, without parameters.
    declared: Vec<VarId>,
    read: HashSet<VarId>,
    written: HashSet<VarId>,
    tables: HashSet<TableId>,
    actions: HashSet<ActionId>,
    instances: HashSet<InstId>,
}

impl<'a> Usage<'a> {
    fn new(program: &'a Program) -> Self {
        Self {
            program,
            found: Warnings::default(),
            declared: Vec::new(),
            read: HashSet::new(),
            written: HashSet::new(),
            tables: HashSet::new(),
            actions: HashSet::new(),
            instances: HashSet::new(),
        }
    }

    fn program(&mut self) {
        let program = self.program;
        for p in &program.parsers {
            self.params(&p.params);
            self.block(&p.locals);
            for state in &p.states {
                self.block(&state.body);
                self.next(&state.next);
            }
            self.unreached(p);
        }
        for c in &program.controls {
            self.params(&c.params);
            self.block(&c.locals);
            self.block(&c.body);
        }
        for r in program.actions.iter().chain(&program.functions) {
            self.params(&r.params);
            self.block(&r.body);
        }
        for t in &program.tables {
            t.keys.iter().for_each(|k| self.expr(&k.value));
            t.properties.iter().for_each(|p| self.ctor_arg(&p.value));
            for u in &t.actions {
                self.actions.insert(u.action);
                self.args(&u.args);
            }
            let data = t.default.iter().chain(t.entries.iter().map(|e| &e.action)).flat_map(|a| &a.data);
            data.for_each(|e| self.expr(e));
        }
        for i in &program.instances {
            i.args.iter().for_each(|a| self.ctor_arg(a));
        }
    }

    fn report(&mut self) {
        let program = self.program;
        for v in std::mem::take(&mut self.declared) {
            let var = &program.vars[v.0 as usize];
            if self.read.contains(&v) || var.ty == Type::Bad {
                continue;
            }
            let (what, hint) = if self.written.contains(&v) {
                ("written, but never read", "remove it; pass `_` for an unused out argument")
            } else {
                ("never used", "remove it")
            };
            self.unused(var.span, format!("`{}` is {what}", var.name), hint);
        }
        for (i, t) in program.tables.iter().enumerate() {
            if !self.tables.contains(&TableId(i as u32)) {
                self.unused(t.span, format!("table `{}` is never applied", t.name), "apply it, or remove it");
            }
        }
        for (i, a) in program.actions.iter().enumerate() {
            if a.local && !self.actions.contains(&ActionId(i as u32)) {
                let hint = "list it in a table, call it, or remove it";
                self.unused(a.span, format!("action `{}` is never used", a.name), hint);
            }
        }
        for (n, i) in program.instances.iter().enumerate() {
            let package = matches!(i.what, Constructed::Package);
            if !package && !self.instances.contains(&InstId(n as u32)) {
                self.unused(i.span, format!("`{}` is never used", i.name), "remove it");
            }
        }
    }

    fn unused(&mut self, span: Span, message: String, hint: &str) {
        self.found.add(Diagnostic::new(Code::Unused, span, message).hint(hint));
    }

    /// Warns about states that are unreachable from `start`.
    fn unreached(&mut self, p: &crate::hir::Parser) {
        let mut seen = vec![false; p.states.len()];
        let mut open = vec![0];
        while let Some(i) = open.pop() {
            if i >= seen.len() || std::mem::replace(&mut seen[i], true) {
                continue;
            }
            open.extend(p.states[i].next.states());
        }
        for (state, _) in p.states.iter().zip(&seen).filter(|(_, seen)| !**seen) {
            let message = format!("state `{}` is unreachable", state.name);
            let d = Diagnostic::new(Code::UnreachableCode, state.span, message);
            self.found.add(d.hint("remove it, or add a transition to it"));
        }
    }

    fn params(&mut self, params: &[Param]) {
        params.iter().filter_map(|p| p.default.as_ref()).for_each(|e| self.expr(e));
    }

    fn next(&mut self, next: &Next) {
        let Next::Select { subjects, cases, .. } = next else { return };
        subjects.iter().for_each(|e| self.expr(e));
        for k in cases.iter().flat_map(|(keys, _)| keys) {
            match k {
                Keyset::Value(e) => self.expr(e),
                Keyset::Mask(a, b) | Keyset::Range(a, b) => {
                    self.expr(a);
                    self.expr(b);
                }
                Keyset::Any | Keyset::Set(_) => {}
            }
        }
    }

    fn block(&mut self, stmts: &[Stmt]) {
        stmts.iter().for_each(|s| self.stmt(s));
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Assign(target, value) => {
                self.target(target);
                self.expr(value);
                if same_lvalue(target, value) {
                    self.unused(s.span, "assignment of a value to itself".to_owned(), "remove it");
                }
                return;
            }
            StmtKind::Update { target, value, .. } => {
                self.target(target);
                return self.expr(value);
            }
            StmtKind::Call(c) => {
                self.call(c);
                self.result(c);
            }
            StmtKind::Declare(v, _) => self.declared.push(*v),
            StmtKind::SwitchAction { table, .. } => {
                self.tables.insert(*table);
            }
            _ => {}
        }
        s.exprs().into_iter().for_each(|e| self.expr(e));
        s.blocks().into_iter().for_each(|b| self.block(b));
    }

    /// Warns about a call without side effects whose result is unused.
    fn result(&mut self, c: &Call) {
        let name = match &c.callee {
            Callee::Function(id) => {
                let f = &self.program.functions[id.0 as usize];
                let gives = f.params.iter().any(|p| p.direction.is_out());
                (f.result != Type::Void && !gives && !acts(&f.body)).then(|| f.name.to_string())
            }
            Callee::Method { of, method, .. } => {
                let e = &self.program.externs[of.0 as usize];
                let m = &e.methods[*method];
                let reads = matches!((&*e.name, &*m.name), ("packet_in", "lookahead" | "length"));
                reads.then(|| format!("{}.{}", e.name, m.name))
            }
            _ => None,
        };
        if let Some(name) = name {
            self.unused(c.span, format!("unused result of `{name}`"), "assign it, or remove the call");
        }
    }

    /// Visits the left-hand side of an assignment: writes, and reads in indexes.
    fn target(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Var(v) => {
                self.written.insert(*v);
            }
            ExprKind::Field(base, _) | ExprKind::Slice(base, ..) => self.target(base),
            ExprKind::StackNext(base) | ExprKind::StackLast(base) => self.target(base),
            ExprKind::Element(base, index) | ExprKind::PlusSlice(base, index, _) => {
                self.target(base);
                self.expr(index);
            }
            _ => self.expr(e),
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Var(v) => {
                self.read.insert(*v);
            }
            ExprKind::Object(o) => self.object(*o),
            ExprKind::TableHit { table, .. } => {
                self.tables.insert(*table);
            }
            ExprKind::Call(c) => self.call(c),
            _ => e.parts().into_iter().for_each(|p| self.expr(p)),
        }
    }

    fn call(&mut self, c: &Call) {
        match &c.callee {
            Callee::Method { object, .. } | Callee::Apply(object) => self.object(*object),
            Callee::Action(id) => {
                self.actions.insert(*id);
            }
            Callee::Table(t) => {
                self.tables.insert(*t);
            }
            Callee::SetValid(e) | Callee::SetInvalid(e) | Callee::Push { stack: e, .. } => self.target(e),
            Callee::Extern(_) | Callee::Function(_) => {}
        }
        self.args(&c.args);
    }

    fn args(&mut self, args: &[CallArg]) {
        for a in args {
            match a {
                CallArg::In(e) | CallArg::InOut(e) => self.expr(e),
                CallArg::Out(e) => self.target(e),
                CallArg::Object(o) => self.object(*o),
                CallArg::Skip => {}
            }
        }
    }

    fn ctor_arg(&mut self, a: &CtorArg) {
        match a {
            CtorArg::Value(e) => self.expr(e),
            CtorArg::Object(o) => self.object(*o),
            CtorArg::Missing => {}
        }
    }

    fn object(&mut self, o: Object) {
        if let Object::Instance(id) = o {
            self.instances.insert(id);
        }
    }
}

/// Whether statements have effects beyond computation: calls out of the program.
fn acts(stmts: &[Stmt]) -> bool {
    let outside = |e: &Expr| {
        e.any(&|e| matches!(&e.kind, ExprKind::Call(c) if !matches!(c.callee, Callee::Function(_))))
    };
    stmts.iter().any(|s| match &s.kind {
        StmtKind::Call(_) => true,
        StmtKind::Declare(_, init) => init.as_ref().is_some_and(outside),
        StmtKind::Assign(_, value) | StmtKind::Update { value, .. } => outside(value),
        StmtKind::If(c, t, f) => outside(c) || acts(t) || acts(f),
        StmtKind::Block(b) => acts(b),
        StmtKind::Return(value) => value.as_ref().is_some_and(outside),
        // Loops and switches are assumed to have effects.
        _ => true,
    })
}

/// Whether two expressions refer to the same variable or field.
fn same_lvalue(a: &Expr, b: &Expr) -> bool {
    match (&a.kind, &b.kind) {
        (ExprKind::Var(x), ExprKind::Var(y)) => x == y,
        (ExprKind::Field(a, i), ExprKind::Field(b, k)) => i == k && same_lvalue(a, b),
        (ExprKind::Slice(a, h, l), ExprKind::Slice(b, i, m)) => (h, l) == (i, m) && same_lvalue(a, b),
        _ => false,
    }
}
