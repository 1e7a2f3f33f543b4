//! Checks of controls.

use super::depth::Body;
use super::params::Owner;
use super::{Checker, Place};
use crate::ast;
use crate::hir::{self, Constructed, ControlId, Stmt};
use crate::types::ObjectKind;
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
            let params = k.params(&c.params, Owner::Object);
            let ctor_params = k.params(&c.ctor_params, Owner::Constructor);
            k.no_objects(&ctor_params, ObjectKind::Parser, "a control cannot apply a parser");
            let saved = std::mem::replace(&mut k.place, Place::Control);
            // A separate scope: locals may shadow parameters.
            let (locals, body) = k.scoped(|k| {
                let locals = c.locals.iter().filter_map(|l| k.local_stmt(l)).collect();
                (locals, k.apply_body(&c.body))
            });
            k.place = saved;
            hir::Control { name: d.name.name.clone(), params, ctor_params, locals, body }
        })
    }

    fn apply_body(&mut self, b: &ast::Block) -> Vec<Stmt> {
        self.scoped(|c| {
            c.place = Place::Apply;
            c.statements(&b.stmts)
        })
    }

    pub(super) fn local_stmt(&mut self, d: &ast::Decl) -> Option<Stmt> {
        Some(Stmt { kind: self.local(d)?, span: d.span })
    }
}
