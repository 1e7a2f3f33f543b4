//! Checks of controls.

use super::depth::Body;
use super::params::ParamOwner;
use super::{Checker, ScopeKind};
use crate::ast::{self, ObjectKind};
use crate::hir::{self, Constructed, ControlId, Stmt};
use std::rc::Rc;

impl Checker<'_> {
    pub(super) fn control(&mut self, d: &ast::Decl, c: &ast::ControlDecl) {
        let (type_params, id) = self.scoped(|k| (k.type_params(&c.type_params), k.control_body(d, c)));
        let types = (c.type_params.as_slice(), type_params);
        self.declare_object(d, ObjectKind::Control, types, Constructed::Control(id));
    }

    /// Checks a control whose type parameters are declared.
    pub(super) fn control_body(&mut self, d: &ast::Decl, c: &ast::ControlDecl) -> ControlId {
        let (control, depth) = self.measured_body(|k| k.control_here(d, c));
        let id = ControlId(self.program.controls.len() as u32);
        self.end_of_body(Body::Control(id.0), depth, d.name.span);
        self.program.controls.push(Rc::new(control));
        id
    }

    fn control_here(&mut self, d: &ast::Decl, c: &ast::ControlDecl) -> hir::Control {
        self.scoped(|k| {
            let params = k.params(&c.params, ParamOwner::Object);
            let ctor_params = k.params(&c.ctor_params, ParamOwner::Constructor);
            k.no_objects(&ctor_params, ObjectKind::Parser, "a control cannot apply a parser");
            let (locals, body) = k.object_scope(ScopeKind::Control, &c.locals, |k| k.apply_body(&c.body));
            hir::Control { name: d.name.name.clone(), params, ctor_params, locals, body }
        })
    }

    fn apply_body(&mut self, b: &ast::Block) -> Vec<Stmt> {
        self.scoped(|c| {
            c.scope_kind = ScopeKind::Apply;
            c.statements(&b.stmts)
        })
    }

    /// Checks the locals and the body of a parser or control in a scope of their own, in which they
    /// may shadow parameters.
    pub(super) fn object_scope<T>(
        &mut self,
        kind: ScopeKind,
        locals: &[ast::Decl],
        body: impl FnOnce(&mut Self) -> T,
    ) -> (Vec<Stmt>, T) {
        let local = |c: &mut Self, d: &ast::Decl| Some(Stmt { kind: c.local(d)?, span: d.span });
        self.within(kind, |c| c.scoped(|c| (locals.iter().filter_map(|d| local(c, d)).collect(), body(c))))
    }
}
