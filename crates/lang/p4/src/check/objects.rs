//! Objects: names and expressions that refer to instances of externs, parsers, controls and packages.

use super::instances::constructor_type;
use super::templates::Template;
use super::{Checker, ObjectDecl, Symbol, TypeSymbol};
use crate::ast::{self, ExprKind as Ast, ObjectKind, TypeKind};
use crate::diagnostics::Code;
use crate::hir::{self, Constructed, Object, VarId};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::{ObjectParam, Type};
use std::rc::Rc;

impl Checker<'_> {
    /// Returns the object that a path names: an instance, or a parameter of extern, parser or
    /// control type.
    pub(super) fn object_named_by(&mut self, e: &ast::Expr) -> Option<Object> {
        match self.symbol_of(e)? {
            Symbol::Instance(id) => Some(Object::Instance(*id)),
            Symbol::Var(v) if matches!(self.var_type(*v), Type::Extern(_) | Type::Object(_)) => {
                Some(Object::Param(*v))
            }
            _ => None,
        }
    }

    /// Returns the object of an expression `T(...)`: `None` for other expressions, `Some(None)`
    /// after an error.
    pub(super) fn constructed_by(&mut self, e: &ast::Expr) -> Option<Option<Object>> {
        self.constructed_as(e, None)
    }

    /// Like [`Self::constructed_by`], with the expected type of the object.
    pub(super) fn constructed_as(&mut self, e: &ast::Expr, want: Option<&Type>) -> Option<Option<Object>> {
        let Ast::Call { callee, args, type_args } = &e.kind else { return None };
        if !self.names_type(callee) {
            return None;
        }
        let ty = constructor_type(callee, type_args)?;
        // An unnamed instance gets the name of its type, as the control plane expects.
        let name: Name = type_name(&ty).unwrap_or_else(|| "object".into());
        Some(self.construct(&ty, args, &name, e.span, None, want).map(Object::Instance))
    }

    /// Creates the instance that `C.apply(...)` applies: `None` for other expressions, `Some(None)` after
    /// an error.
    ///
    /// In the control plane, all such instances have the name of their type (P4_16 15.1). Two of them in
    /// one scope are therefore wrong if the type contains a table; [`crate::lower`] compares the names.
    pub(super) fn object_of_type(&mut self, e: &ast::Expr, span: Span) -> Option<Option<Object>> {
        if !self.names_type(e) {
            return None;
        }
        let ty = constructor_type(e, &[])?;
        let (TypeKind::Named { name, absolute } | TypeKind::Specialized { name, absolute, .. }) = &ty.kind
        else {
            return None;
        };
        if !matches!(self.lookup(&name.name, *absolute), Some(Symbol::Type(TypeSymbol::Object(_)))) {
            return None;
        }
        Some(self.construct(&ty, &[], &name.name, span, None, None).map(Object::Instance))
    }

    pub(super) fn object_type_of(&self, object: Object) -> Type {
        match object {
            Object::Instance(id) => self.program.instances[id.0 as usize].ty.clone(),
            Object::Param(v) => self.var_type(v).clone(),
        }
    }

    /// Returns parameters and constructor parameters of a parser or control.
    pub(super) fn declared_params(&self, what: Constructed) -> Option<(&[hir::Param], &[hir::Param])> {
        match what {
            Constructed::Parser(id) => {
                let p = &self.program.parsers[id.0 as usize];
                Some((&p.params, &p.ctor_params))
            }
            Constructed::Control(id) => {
                let c = &self.program.controls[id.0 as usize];
                Some((&c.params, &c.ctor_params))
            }
            Constructed::Extern | Constructed::Package => None,
        }
    }

    /// Declares a parser or control; overloads differ in their constructors' parameters.
    pub(super) fn declare_object(
        &mut self,
        d: &ast::Decl,
        kind: ObjectKind,
        (names, type_params): (&[ast::Ident], Vec<u32>),
        what: Constructed,
    ) {
        let Some((params, ctor_params)) = self.declared_params(what) else { return };
        let decl = Rc::new(ObjectDecl {
            kind,
            name: d.name.name.clone(),
            type_params,
            params: params.to_vec(),
            ctor_params: ctor_params.to_vec(),
            what,
            template: Template::of(d, names),
        });
        if let Some(Symbol::Type(TypeSymbol::Object(old))) = self.lookup(&d.name.name, true).cloned() {
            let same = |o: &Rc<ObjectDecl>| super::decls::same_arguments(&o.ctor_params, &decl.ctor_params);
            if !old.iter().any(same) {
                let all = old.into_iter().chain([decl]).collect();
                return self.redeclare(&d.name, Symbol::Type(TypeSymbol::Object(all)));
            }
        }
        self.declare(&d.name, Symbol::Type(TypeSymbol::Object(vec![decl])));
    }

    /// Returns the parameters of an object's `apply`.
    pub(super) fn apply_params(&mut self, object: Object) -> Vec<hir::Param> {
        if let Object::Instance(id) = object
            && let Some((params, _)) = self.declared_params(self.program.instances[id.0 as usize].what)
        {
            return params.to_vec();
        }
        let Type::Object(o) = self.object_type_of(object) else { return Vec::new() };
        let param = |p: &ObjectParam| hir::Param {
            var: VarId(0),
            name: p.name.clone(),
            direction: p.direction,
            ty: p.ty.clone(),
            default: None,
            optional: p.optional,
            span: Span::default(),
        };
        o.params.iter().map(param).collect()
    }

    /// Whether an object of type `have` may be passed as `want`.
    pub(super) fn fits_object(&mut self, want: &Type, have: &Type, span: Span) -> bool {
        let ok = match (want, have) {
            (Type::Object(w), Type::Object(h)) if w.kind == ObjectKind::Package => {
                w.kind == h.kind && w.name == h.name && same_params(&w.params, &h.params)
            }
            (Type::Object(w), Type::Object(h)) => w.kind == h.kind && same_params(&w.params, &h.params),
            (Type::Bad, _) | (_, Type::Bad) | (Type::Var(..), _) => true,
            (Type::Extern(w), Type::Extern(h)) if w.id == h.id => {
                w.args.iter().zip(&h.args).all(|(w, h)| w == h || w.is_open() || w.is_bad() || h.is_bad())
            }
            (w, h) => w == h,
        };
        if !ok {
            let mut hint = format!("its parameters must be those of {want}");
            if let (Type::Object(w), Type::Object(h)) = (want, have) {
                hint = mismatch(&w.params, &h.params);
            }
            self.error(Code::TypeMismatch, span, format!("{have} is not a {want}"), hint);
        }
        ok
    }

    pub(super) fn names_type(&self, callee: &ast::Expr) -> bool {
        let symbol = self.symbol_of(callee);
        matches!(callee.kind, Ast::Type(_)) || matches!(symbol, Some(Symbol::Type(_)))
    }
}

fn type_name(t: &ast::TypeExpr) -> Option<Name> {
    match &t.kind {
        TypeKind::Named { name, .. } | TypeKind::Specialized { name, .. } => Some(name.name.clone()),
        _ => None,
    }
}

fn same_param(w: &ObjectParam, h: &ObjectParam) -> bool {
    w.direction == h.direction && (w.ty == h.ty || w.ty.is_open() || w.ty.is_bad() || h.ty.is_bad())
}

/// Whether the parameters of an object match the expected ones; optional ones may be missing at the end.
fn same_params(want: &[ObjectParam], have: &[ObjectParam]) -> bool {
    have.len() <= want.len()
        && want.iter().zip(have).all(|(w, h)| same_param(w, h))
        && want[have.len()..].iter().all(|w| w.optional)
}

/// Describes the first mismatch between the parameters of an object and the expected ones.
fn mismatch(want: &[ObjectParam], have: &[ObjectParam]) -> String {
    match want.iter().zip(have).position(|(w, h)| !same_param(w, h)) {
        Some(i) => {
            let (w, h) = (&want[i], &have[i]);
            let (wd, hd) = (w.direction.prefix(), h.direction.prefix());
            format!("parameter {} is `{hd}{}`, but must be `{wd}{}`", i + 1, h.ty, w.ty)
        }
        None => format!("it takes {} parameters, but {} are expected", have.len(), want.len()),
    }
}
