//! Controls.

use super::params::Owner;
use super::templates::Template;
use super::{Checker, ObjectDecl, Place, Symbol, TypeSymbol};
use crate::ast;
use crate::hir::{self, Constructed, ControlId, Stmt};
use crate::types::ObjectKind;
use std::rc::Rc;

impl Checker<'_> {
    pub(super) fn control(&mut self, d: &ast::Decl, c: &ast::ControlDecl) {
        let (type_params, id) = self.scoped(|k| (k.type_params(&c.type_params), k.control_body(d, c)));
        let made = self.program.controls[id.0 as usize].clone();
        let decl = ObjectDecl {
            kind: ObjectKind::Control,
            name: d.name.name.clone(),
            type_params,
            params: made.params.clone(),
            ctor_params: made.ctor_params.clone(),
            what: Constructed::Control(id),
            template: Template::of(d, &c.type_params),
        };
        self.declare_object(&d.name, Rc::new(decl));
    }

    /// Declares a parser or control; several of one name differ in the parameters of their constructors.
    pub(super) fn declare_object(&mut self, name: &ast::Ident, decl: Rc<ObjectDecl>) {
        if let Some(Symbol::Type(TypeSymbol::Object(old))) = self.lookup(&name.name, true).cloned() {
            let same = |o: &Rc<ObjectDecl>| super::decls::same_arguments(&o.ctor_params, &decl.ctor_params);
            if !old.iter().any(same)
                && let Some(e) = self.scopes[0].get_mut(&name.name)
            {
                let all = old.into_iter().chain([decl]).collect();
                e.symbol = Symbol::Type(TypeSymbol::Object(all));
                return;
            }
        }
        self.declare(name, Symbol::Type(TypeSymbol::Object(vec![decl])));
    }

    /// Checks a control whose type parameters are declared.
    pub(super) fn control_body(&mut self, d: &ast::Decl, c: &ast::ControlDecl) -> ControlId {
        let control = self.scoped(|k| {
            let params = k.params(&c.params, Owner::Object);
            let ctor_params = k.params(&c.ctor_params, Owner::Constructor);
            let saved = std::mem::replace(&mut k.place, Place::Control);
            // A scope of its own: locals may have the names of parameters.
            let (locals, body) = k.scoped(|k| {
                let locals = c.locals.iter().filter_map(|l| k.local_stmt(l)).collect();
                (locals, k.apply_body(&c.body))
            });
            k.place = saved;
            hir::Control { name: d.name.name.clone(), params, ctor_params, locals, body }
        });
        let id = ControlId(self.program.controls.len() as u32);
        self.program.controls.push(Rc::new(control));
        id
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
