//! The objects that a control plane can access: those reachable from `main`, with full names.
//!
//! The walk follows calls like the lowering, and omits code that can never run. Stateful objects
//! (counters, registers, profiles) count even if they are unused.

use super::annotations::AnnotationIndex;
use crate::ast::{self, DeclKind};
use crate::hir::{
    self, ActionId, Call, CallArg, Callee, Constructed, CtorArg, Expr, ExprKind, InstId, Keyset, Next,
    Object, Program, Stmt, StmtKind, TableId, ValueSetId, VarId,
};
use crate::source::Span;
use crate::types::Type;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Maximum number of objects of a program: nested controls can multiply them.
const MAX_OBJECTS: usize = 1 << 16;

/// The value of a constructor parameter in one instance.
#[derive(Clone, Debug)]
pub(super) enum BoundArg {
    Value(Expr),
    /// An instance, and the path of the control that it belongs to.
    Object(InstId, Rc<str>),
}

/// A table and its path.
pub(super) struct TableInstance {
    pub(super) table: Rc<hir::Table>,
    pub(super) name: String,
    /// The full names of its actions, in order.
    pub(super) actions: Vec<String>,
    /// Instances in its properties: index of the property, full name, instance.
    pub(super) instances: Vec<(usize, String, InstId)>,
}

impl TableInstance {
    /// Whether a property names the instance with this full name.
    pub(super) fn refers(&self, property: &str, instance: &str) -> bool {
        let mut named = self.instances.iter().filter(|(_, name, _)| name == instance);
        named.any(|(i, ..)| &*self.table.properties[*i].name == property)
    }
}

/// An action and its path.
pub(super) struct ActionInstance {
    pub(super) id: ActionId,
    pub(super) name: String,
    /// Whether a table lists it, so that a controller supplies its data.
    pub(super) in_table: bool,
}

/// An instance of an extern and its path.
pub(super) struct ExternInstance {
    pub(super) instance: Rc<hir::Instance>,
    pub(super) name: String,
    /// The declaration that its annotations belong to.
    pub(super) annotated: (Span, crate::lexer::Name),
    pub(super) args: Vec<Option<BoundArg>>,
}

/// All objects, each once, in the order of the walk.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) tables: Vec<TableInstance>,
    pub(super) actions: Vec<ActionInstance>,
    pub(super) externs: Vec<ExternInstance>,
    pub(super) value_sets: Vec<(ValueSetId, String)>,
    /// The types of digests.
    pub(super) digests: Vec<Type>,
    /// Whether there are more than [`MAX_OBJECTS`].
    pub(super) too_many: bool,
}

/// Walks the program from `main`.
pub(super) fn walk(hir: &Program, ast: &ast::Program, annotation_index: &AnnotationIndex<'_>) -> Objects {
    let by_location = hir.instances.iter().zip(0..).map(|(i, n)| (i.span, InstId(n))).collect();
    let mut w = Walker {
        hir,
        annotation_index,
        by_location,
        declared: declared(&ast.decls),
        env: HashMap::new(),
        path: "".into(),
        within_action: false,
        seen: HashSet::new(),
        found: Objects::default(),
    };
    for d in ast.decls.iter().filter(|d| matches!(d.kind, DeclKind::Instance { .. })) {
        w.instance(d.span);
    }
    let main = hir.main.map(|m| hir.instances[m.0 as usize].clone());
    for arg in main.iter().flat_map(|m| &m.args) {
        if let CtorArg::Object(o) = arg {
            w.apply(*o);
        }
    }
    w.found
}

/// Returns the locations of all instances that have declarations.
fn declared(decls: &[ast::Decl]) -> HashSet<Span> {
    let within = |d: &ast::Decl| match &d.kind {
        DeclKind::Instance { .. } => HashSet::from([d.span]),
        DeclKind::Control(c) => declared(&c.locals),
        DeclKind::Parser(p) => declared(&p.locals),
        _ => HashSet::new(),
    };
    decls.iter().flat_map(within).collect()
}

/// A visited declaration with its path.
#[derive(PartialEq, Eq, Hash)]
enum Visited {
    Instance(InstId),
    Table(TableId),
    Action(ActionId),
    Function(hir::FunctionId),
    ValueSet(ValueSetId),
}

struct Walker<'a> {
    hir: &'a Program,
    annotation_index: &'a AnnotationIndex<'a>,
    by_location: HashMap<Span, InstId>,
    declared: HashSet<Span>,
    env: HashMap<VarId, BoundArg>,
    path: Rc<str>,
    /// Whether the statements belong to an action.
    within_action: bool,
    seen: HashSet<(Visited, Rc<str>)>,
    found: Objects,
}

impl Walker<'_> {
    /// Whether a declaration has not been visited at this path; false once there are too many.
    fn is_new(&mut self, what: Visited) -> bool {
        self.found.too_many |= self.seen.len() >= MAX_OBJECTS;
        !self.found.too_many && self.seen.insert((what, self.path.clone()))
    }

    /// Records the instance declared at this location at the current path, if it is an extern's.
    fn instance(&mut self, location: Span) {
        let Some(id) = self.by_location.get(&location).copied() else { return };
        let instance = self.hir.instances[id.0 as usize].clone();
        if !matches!(instance.what, Constructed::Extern) || !self.is_new(Visited::Instance(id)) {
            return;
        }
        let name = self.instance_name(&instance);
        let annotated = (instance.span, instance.name.clone());
        let args = instance.args.iter().map(|a| self.bound(a)).collect();
        self.found.externs.push(ExternInstance { instance, name, annotated, args });
    }

    fn instance_name(&self, i: &hir::Instance) -> String {
        self.annotation_index.at(i.span, &i.name).full_name(&self.path, &i.name)
    }

    fn bound(&self, a: &CtorArg) -> Option<BoundArg> {
        match a {
            CtorArg::Value(Expr { kind: ExprKind::Var(v), .. }) => self.env.get(v).cloned(),
            CtorArg::Value(e) => Some(BoundArg::Value(e.clone())),
            CtorArg::Object(o) => self.object(*o).map(|(id, path)| BoundArg::Object(id, path)),
            CtorArg::Missing => None,
        }
    }

    /// Returns an instance and the path that it belongs to.
    fn object(&self, o: Object) -> Option<(InstId, Rc<str>)> {
        match o {
            Object::Instance(id) => {
                let at_top = self.seen.contains(&(Visited::Instance(id), "".into()));
                Some((id, if at_top { "".into() } else { self.path.clone() }))
            }
            Object::Param(v) => match self.env.get(&v) {
                Some(BoundArg::Object(id, path)) => Some((*id, path.clone())),
                _ => None,
            },
        }
    }

    /// Walks the contents of a parser or control, at its own path.
    fn apply(&mut self, o: Object) {
        let Some((id, path)) = self.object(o) else { return };
        let instance = self.hir.instances[id.0 as usize].clone();
        let outer = std::mem::replace(&mut self.path, path);
        self.path = self.instance_name(&instance).into();
        if self.is_new(Visited::Instance(id)) {
            match instance.what {
                Constructed::Control(c) => {
                    let c = self.hir.controls[c.0 as usize].clone();
                    self.bind(&c.ctor_params, &instance.args, &outer);
                    [&c.locals, &c.body].into_iter().for_each(|b| self.stmts(b));
                }
                Constructed::Parser(p) => {
                    let p = self.hir.parsers[p.0 as usize].clone();
                    self.bind(&p.ctor_params, &instance.args, &outer);
                    self.stmts(&p.locals);
                    p.states.iter().for_each(|s| self.state(s));
                }
                Constructed::Extern | Constructed::Package => {}
            }
        }
        self.path = outer;
    }

    /// Binds constructor parameters to arguments, which belong to the enclosing path.
    fn bind(&mut self, params: &[hir::Param], args: &[CtorArg], outer: &Rc<str>) {
        let inner = std::mem::replace(&mut self.path, outer.clone());
        for (p, a) in params.iter().zip(args) {
            if let Some(b) = self.bound(a) {
                self.env.insert(p.var, b);
            }
        }
        self.path = inner;
    }

    fn state(&mut self, s: &hir::State) {
        self.stmts(&s.body);
        let Next::Select { cases, .. } = &s.next else { return };
        for k in cases.iter().flat_map(|(keys, _)| keys) {
            if let Keyset::Set(id) = k
                && self.is_new(Visited::ValueSet(*id))
            {
                let set = &self.hir.value_sets[id.0 as usize];
                let name = self.annotation_index.at(set.span, &set.name).full_name(&self.path, &set.name);
                self.found.value_sets.push((*id, name));
            }
        }
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        stmts.iter().for_each(|s| self.stmt(s));
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Instance => self.instance(s.span),
            StmtKind::Call(c) => self.call(c),
            StmtKind::If(condition, then, otherwise) => return self.branch(condition, then, otherwise),
            StmtKind::SwitchAction { table, .. } => self.table(*table),
            _ => {}
        }
        s.exprs().into_iter().for_each(|e| self.expr(e));
        s.blocks().into_iter().for_each(|b| self.stmts(b));
    }

    fn branch(&mut self, condition: &Expr, then: &[Stmt], otherwise: &[Stmt]) {
        let known = condition.as_const().map(|n| *n != 0.into());
        self.expr(condition);
        if known != Some(false) {
            self.stmts(then);
        }
        if known != Some(true) {
            self.stmts(otherwise);
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::TableHit { table, .. } => self.table(*table),
            ExprKind::Call(c) => self.call(c),
            _ => e.parts().into_iter().for_each(|p| self.expr(p)),
        }
    }

    fn call(&mut self, c: &Call) {
        c.args.iter().filter_map(CallArg::expr).for_each(|e| self.expr(e));
        match &c.callee {
            Callee::Apply(o) => self.apply(*o),
            Callee::Table(t) => self.table(*t),
            Callee::Action(a) => self.action(*a, false),
            Callee::Function(f) => {
                if self.is_new(Visited::Function(*f)) {
                    self.stmts(&self.hir.functions[f.0 as usize].clone().body);
                }
            }
            Callee::Extern(f) if &*self.hir.extern_fns[f.0 as usize].name == "digest" => {
                let sent = c.args.get(1).and_then(CallArg::expr).map(|e| e.ty.clone());
                let known = |t: &Type| self.found.digests.contains(t);
                self.found.digests.extend(sent.filter(|t| !known(t)));
            }
            Callee::Extern(_)
            | Callee::Method { .. }
            | Callee::SetValid(_)
            | Callee::SetInvalid(_)
            | Callee::Push { .. } => {}
        }
    }

    fn table(&mut self, id: TableId) {
        if !self.is_new(Visited::Table(id)) {
            return;
        }
        let table = self.hir.tables[id.0 as usize].clone();
        table.keys.iter().for_each(|k| self.expr(&k.value));
        table.actions.iter().for_each(|a| self.action(a.action, true));
        let actions = table.actions.iter().map(|a| self.action_name(a.action)).collect();
        let mut instances = Vec::new();
        for (i, p) in table.properties.iter().enumerate() {
            if let CtorArg::Object(o) = &p.value
                && let Some((id, path)) = self.object(*o)
            {
                instances.push((i, self.property_name(p, id, path), id));
            }
        }
        let name =
            self.annotation_index.at(table.span, &table.declared).full_name(&self.path, &table.declared);
        self.found.tables.push(TableInstance { table, name, actions, instances });
    }

    /// Returns the full name of an instance in a property. An instance that the property creates
    /// has the property's name.
    fn property_name(&mut self, p: &hir::Property, id: InstId, path: Rc<str>) -> String {
        let instance = self.hir.instances[id.0 as usize].clone();
        if self.declared.contains(&instance.span) {
            let outer = std::mem::replace(&mut self.path, path);
            let name = self.instance_name(&instance);
            self.path = outer;
            return name;
        }
        let name = self.annotation_index.at(p.span, &p.name).full_name("", &p.name);
        let args = instance.args.iter().map(|a| self.bound(a)).collect();
        if !self.found.externs.iter().any(|e| e.name == name) {
            let annotated = (p.span, p.name.clone());
            self.found.externs.push(ExternInstance { instance, name: name.clone(), annotated, args });
        }
        name
    }

    fn action_name(&self, id: ActionId) -> String {
        let a = &self.hir.actions[id.0 as usize];
        if a.local && !self.path.is_empty() {
            format!("{}.{}", self.path, a.control_name)
        } else {
            a.control_name.to_string()
        }
    }

    /// Records an action that a table lists or that is called. An action that only actions call is
    /// a part of them.
    fn action(&mut self, id: ActionId, in_table: bool) {
        let name = self.action_name(id);
        match self.found.actions.iter_mut().find(|a| a.name == name) {
            Some(known) => known.in_table |= in_table,
            None if self.within_action && !in_table => {}
            None => self.found.actions.push(ActionInstance { id, name, in_table }),
        }
        if self.is_new(Visited::Action(id)) {
            let around = std::mem::replace(&mut self.within_action, true);
            self.stmts(&self.hir.actions[id.0 as usize].clone().body);
            self.within_action = around;
        }
    }
}
