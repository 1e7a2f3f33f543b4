//! Instances of externs, parsers, controls and packages.

use super::infer::Inference;
use super::{Checker, PackageType, Place, Symbol, TypeSymbol};
use crate::ast::{self, Direction, ExprKind as Ast, TypeKind};
use crate::diagnostics::Code;
use crate::hir::{self, Constructed, CtorArg, Expr, ExternId, InstId, Instance, Object, VarId};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::{ExternRef, ObjectKind, Type};
use std::rc::Rc;

impl Checker<'_> {
    /// The object that a path names: an instance, or a parameter of extern, parser or control type.
    pub(super) fn object_named_by(&mut self, e: &ast::Expr) -> Option<Object> {
        match &e.kind {
            Ast::Path { name, absolute } => match self.lookup(&name.name, *absolute)? {
                Symbol::Instance(id) => Some(Object::Instance(*id)),
                Symbol::Var(v) if matches!(self.var_type(*v), Type::Extern(_) | Type::Object(_)) => {
                    Some(Object::Param(*v))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// `C.apply(...)` applies an instance of its own.
    pub(super) fn object_of_type(&mut self, e: &ast::Expr, span: Span) -> Option<Object> {
        if !self.names_type(e) {
            return None;
        }
        let ty = constructor_type(e, &[])?;
        let TypeKind::Named { name, absolute } = &ty.kind else { return None };
        let symbol = self.lookup(&name.name, *absolute);
        if !matches!(symbol, Some(Symbol::Type(TypeSymbol::Parser(_) | TypeSymbol::Control(_)))) {
            return None;
        }
        // Instances without a name are told apart by a number.
        let mut unique = name.name.clone();
        let mut n = 1;
        while self.program.instances.iter().any(|i| i.name == unique) {
            n += 1;
            unique = format!("{}_{n}", name.name).into();
        }
        self.construct(&ty, &[], &unique, span).map(Object::Instance)
    }

    pub(super) fn object_type_of(&self, object: Object) -> Type {
        match object {
            Object::Instance(id) => self.program.instances[id.0 as usize].ty.clone(),
            Object::Param(v) => self.var_type(v).clone(),
        }
    }

    /// Parameters of an object's `apply`.
    pub(super) fn apply_params(&mut self, object: Object) -> Vec<hir::Param> {
        if let Object::Instance(id) = object {
            match self.program.instances[id.0 as usize].what {
                Constructed::Parser(p) => return self.program.parsers[p.0 as usize].params.clone(),
                Constructed::Control(c) => return self.program.controls[c.0 as usize].params.clone(),
                _ => {}
            }
        }
        let Type::Object(o) = self.object_type_of(object) else { return Vec::new() };
        let param = |(i, (direction, ty)): (usize, &(Direction, Type))| hir::Param {
            var: VarId(0),
            name: i.to_string().into(),
            direction: *direction,
            ty: ty.clone(),
            default: None,
            optional: false,
        };
        o.params.iter().enumerate().map(param).collect()
    }

    /// Whether an object of type `have` may be passed as `want`.
    pub(super) fn fits_object(&mut self, want: &Type, have: &Type, span: Span) -> bool {
        let ok = match (want, have) {
            (Type::Object(w), Type::Object(h)) => w.kind == h.kind && same_params(&w.params, &h.params),
            (Type::Bad, _) | (_, Type::Bad) | (Type::Var(..), _) => true,
            (w, h) => w == h,
        };
        if !ok {
            let mut hint = format!("its parameters have to be those of {want}");
            if let (Type::Object(w), Type::Object(h)) = (want, have) {
                hint = mismatch(&w.params, &h.params);
            }
            self.error(Code::TypeMismatch, span, format!("{have} is not a {want}"), hint);
        }
        ok
    }

    /// `T(args) name;`
    pub(super) fn instance(
        &mut self,
        d: &ast::Decl,
        ty: &ast::TypeExpr,
        args: &[ast::Arg],
        init: bool,
    ) -> Option<InstId> {
        if init {
            self.unsupported(d.span, "an instance with abstract methods");
        }
        let allowed = matches!(self.place, Place::Top | Place::Control | Place::Parser);
        if !allowed {
            let hint = "declare it in the control or parser around";
            self.error(Code::BadInstance, d.span, "an instance cannot be declared here", hint);
        }
        let id = self.construct(ty, args, &d.name.name, d.span);
        match id {
            Some(id) => {
                if self.scopes.len() == 1 && &*d.name.name == "main" {
                    self.program.main = Some(id);
                }
                self.declare(&d.name, Symbol::Instance(id));
            }
            None => self.declare(&d.name, Symbol::Bad),
        }
        id
    }

    /// Constructs an object of the type that is named.
    fn construct(
        &mut self,
        ty: &ast::TypeExpr,
        args: &[ast::Arg],
        name: &Name,
        span: Span,
    ) -> Option<InstId> {
        let (type_name, absolute, type_args) = match &ty.kind {
            TypeKind::Named { name, absolute } => (name, *absolute, None),
            TypeKind::Specialized { name, absolute, args } => (name, *absolute, Some(args)),
            _ => {
                self.error(
                    Code::BadInstance,
                    ty.span,
                    "this type has no instances",
                    "externs, parsers, controls and packages have",
                );
                return None;
            }
        };
        let type_args = type_args.map(|ts| ts.iter().map(|t| self.ty(t)).collect::<Vec<_>>());
        let mut inference = Inference::default();
        let fill = |inference: &mut Inference, params: &[u32]| {
            params.iter().zip(type_args.iter().flatten()).for_each(|(id, t)| inference.set(*id, t.clone()));
        };
        match self.resolve(type_name, absolute) {
            Symbol::Type(TypeSymbol::Extern(id)) => {
                let decl = &self.program.externs[id.0 as usize];
                let (params, constructors) = (decl.type_params.clone(), decl.constructors.clone());
                fill(&mut inference, &params);
                self.construct_extern(id, type_name, &params, &constructors, inference, args, name, span)
            }
            Symbol::Type(TypeSymbol::Parser(id)) => {
                let p = self.program.parsers[id.0 as usize].clone();
                let ty = super::types::object_type(ObjectKind::Parser, &p.name, &p.params);
                let args = self.ctor_args(&p.name, &p.ctor_params, args, &mut inference, span)?;
                Some(self.add_instance(name, span, Type::Object(Rc::new(ty)), Constructed::Parser(id), args))
            }
            Symbol::Type(TypeSymbol::Control(id)) => {
                let p = self.program.controls[id.0 as usize].clone();
                let ty = super::types::object_type(ObjectKind::Control, &p.name, &p.params);
                let args = self.ctor_args(&p.name, &p.ctor_params, args, &mut inference, span)?;
                Some(self.add_instance(name, span, Type::Object(Rc::new(ty)), Constructed::Control(id), args))
            }
            Symbol::Type(TypeSymbol::Package(p)) => {
                fill(&mut inference, &p.type_params);
                let args = self.ctor_args(&p.name, &p.params, args, &mut inference, span)?;
                let ty = package_type(&p);
                Some(self.add_instance(name, span, ty, Constructed::Package, args))
            }
            Symbol::Bad => None,
            other => {
                let message = format!("`{}` is {} and has no instances", type_name.name, other.describe());
                let hint = "externs, parsers, controls and packages have instances";
                self.error(Code::BadInstance, type_name.span, message, hint);
                None
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "everything that a constructor call consists of")]
    fn construct_extern(
        &mut self,
        id: ExternId,
        type_name: &ast::Ident,
        type_params: &[u32],
        constructors: &[Vec<hir::Param>],
        mut inference: Inference,
        args: &[ast::Arg],
        name: &Name,
        span: Span,
    ) -> Option<InstId> {
        let Some(params) = super::calls::choose(constructors, |c| c, args) else {
            let message = format!(
                "`{}` has no constructor with {}",
                type_name.name,
                super::calls::count(args.len(), "argument")
            );
            self.error(Code::BadInstance, span, message, "check the declaration of the extern");
            return None;
        };
        let args = self.ctor_args(&type_name.name, params, args, &mut inference, span)?;
        let types: Option<Vec<Type>> = type_params.iter().map(|p| inference.get(*p).cloned()).collect();
        let Some(types) = types else {
            let hint = format!("write {}<...>(...)", type_name.name);
            self.error(Code::CannotInfer, span, "the type arguments cannot be inferred", hint);
            return None;
        };
        let ty = Type::Extern(Rc::new(ExternRef { id: id.0, name: type_name.name.clone(), args: types }));
        Some(self.add_instance(name, span, ty, Constructed::Extern, args))
    }

    fn add_instance(
        &mut self,
        name: &Name,
        span: Span,
        ty: Type,
        what: Constructed,
        args: Vec<CtorArg>,
    ) -> InstId {
        let id = InstId(self.program.instances.len() as u32);
        self.program.instances.push(Rc::new(Instance { name: name.clone(), span, ty, what, args }));
        id
    }

    fn ctor_args(
        &mut self,
        name: &Name,
        params: &[hir::Param],
        args: &[ast::Arg],
        inference: &mut Inference,
        span: Span,
    ) -> Option<Vec<CtorArg>> {
        let order = self.order_arguments(name, params, args, span)?;
        let mut out = Vec::new();
        for (p, arg) in params.iter().zip(order) {
            let Some(value) = arg.and_then(|a| a.value.as_ref()) else {
                match &p.default {
                    Some(d) => out.push(CtorArg::Value(d.clone())),
                    None => self.unsupported(span, "an optional constructor argument"),
                }
                continue;
            };
            out.push(self.ctor_arg(p, value, inference)?);
        }
        Some(out)
    }

    fn ctor_arg(&mut self, p: &hir::Param, value: &ast::Expr, inference: &mut Inference) -> Option<CtorArg> {
        let object = match &value.kind {
            // An object made for the argument, as in `main`.
            Ast::Call { callee, args, type_args } if self.names_type(callee) => {
                let ty = constructor_type(callee, type_args)?;
                // Without a name of its own it goes by its type's, as the control plane expects.
                let name = type_name(&ty).unwrap_or_else(|| p.name.clone());
                Some(Object::Instance(self.construct(&ty, args, &name, value.span)?))
            }
            _ => self.object_named_by(value),
        };
        if let Some(object) = object {
            let have = self.object_type_of(object);
            inference.learn(&p.ty, &have);
            let want = inference.apply(&p.ty);
            return self.fits_object(&want, &have, value.span).then_some(CtorArg::Object(object));
        }
        let want = inference.apply(&p.ty);
        let e: Expr = self.expr_as(value, &want);
        let constant = super::decls::is_constant(&e) || matches!(e.kind, hir::ExprKind::Var(_));
        if !constant {
            let hint = "constructor arguments are literals, constants or constructor parameters";
            self.error(Code::NotConstant, e.span, "this value is not known at compile time", hint);
        }
        Some(CtorArg::Value(e))
    }

    fn names_type(&self, callee: &ast::Expr) -> bool {
        match &callee.kind {
            Ast::Type(_) => true,
            Ast::Path { name, absolute } => {
                matches!(self.lookup(&name.name, *absolute), Some(Symbol::Type(_)))
            }
            _ => false,
        }
    }

    /// Whether a variable is a parameter that must not be written.
    pub(super) fn read_only(&self, v: VarId) -> bool {
        self.read_only.contains(&v)
    }
}

fn type_name(t: &ast::TypeExpr) -> Option<Name> {
    match &t.kind {
        TypeKind::Named { name, .. } | TypeKind::Specialized { name, .. } => Some(name.name.clone()),
        _ => None,
    }
}

/// The type of `T(...)` as an expression.
fn constructor_type(callee: &ast::Expr, type_args: &[ast::TypeExpr]) -> Option<ast::TypeExpr> {
    let kind = match &callee.kind {
        Ast::Type(t) => return Some(t.clone()),
        Ast::Path { name, absolute } if type_args.is_empty() => {
            TypeKind::Named { name: name.clone(), absolute: *absolute }
        }
        Ast::Path { name, absolute } => {
            TypeKind::Specialized { name: name.clone(), absolute: *absolute, args: type_args.to_vec() }
        }
        _ => return None,
    };
    Some(ast::TypeExpr { kind, span: callee.span })
}

fn package_type(p: &PackageType) -> Type {
    Type::Object(Rc::new(crate::types::ObjectType {
        kind: ObjectKind::Package,
        name: p.name.clone(),
        params: p.params.iter().map(|p| (p.direction, p.ty.clone())).collect(),
    }))
}

fn same_params(want: &[(Direction, Type)], have: &[(Direction, Type)]) -> bool {
    let same = |((d, t), (e, u)): (&(Direction, Type), &(Direction, Type))| {
        let direction =
            d == e || matches!((d, e), (Direction::None, Direction::In) | (Direction::In, Direction::None));
        direction && (t == u || t.is_open() || t.is_bad() || u.is_bad())
    };
    want.len() == have.len() && want.iter().zip(have).all(same)
}

/// Why the parameters of an object do not fit.
fn mismatch(want: &[(Direction, Type)], have: &[(Direction, Type)]) -> String {
    let word = |d: &Direction| match d {
        Direction::None => "",
        Direction::In => "in ",
        Direction::Out => "out ",
        Direction::InOut => "inout ",
    };
    if want.len() != have.len() {
        return format!("it takes {} parameters, but {} are needed", have.len(), want.len());
    }
    let differs = want
        .iter()
        .zip(have)
        .position(|(w, h)| !same_params(std::slice::from_ref(w), std::slice::from_ref(h)));
    match differs {
        Some(i) => {
            let ((wd, wt), (hd, ht)) = (&want[i], &have[i]);
            format!("parameter {} is `{}{ht}`, but has to be `{}{wt}`", i + 1, word(hd), word(wd))
        }
        None => "check its parameters".to_owned(),
    }
}
