//! Controls.

use super::{Checker, Place, Symbol, TypeSymbol};
use crate::ast;
use crate::hir::{self, ControlId, Stmt};
use std::rc::Rc;

impl Checker<'_> {
    pub(super) fn control(&mut self, d: &ast::Decl, c: &ast::ControlDecl) {
        if !c.type_params.is_empty() {
            self.unsupported(d.name.span, "type parameters of a control with a body");
        }
        let control = self.scoped(|k| {
            let _ = k.type_params(&c.type_params);
            let ctor_params = k.params(&c.ctor_params);
            let params = k.params(&c.params);
            let saved = std::mem::replace(&mut k.place, Place::Control);
            // A scope of its own: locals may have the names of parameters.
            let (locals, body) = k.scoped(|k| {
                let locals = c.locals.iter().filter_map(|l| k.local_stmt(l)).collect();
                (locals, k.block(&c.body))
            });
            k.place = saved;
            hir::Control { name: d.name.name.clone(), params, ctor_params, locals, body }
        });
        let id = ControlId(self.program.controls.len() as u32);
        self.program.controls.push(Rc::new(control));
        self.declare(&d.name, Symbol::Type(TypeSymbol::Control(id)));
    }

    pub(super) fn local_stmt(&mut self, d: &ast::Decl) -> Option<Stmt> {
        Some(Stmt { kind: self.local(d)?, span: d.span })
    }
}
