//! Top-level and local declarations.

use super::{Checker, PackageType, Place, Symbol, TypeSymbol};
use crate::ast::{self, Composite, Decl, DeclKind, TypedefTarget};
use crate::constant::fits;
use crate::diagnostics::Code;
use crate::hir::{self, ActionId, Expr, ExternFnId, ExternId, FunctionId};
use crate::types::{CompositeType, EnumType, NewType, ObjectKind, Type};
use num_bigint::BigInt;
use std::rc::Rc;

impl Checker<'_> {
    pub(super) fn declaration(&mut self, d: &Decl) {
        match &d.kind {
            DeclKind::Const { ty, value } => self.const_decl(d, ty, value),
            DeclKind::Extern { type_params, methods } => self.extern_decl(d, type_params, methods),
            DeclKind::ExternFunction(proto) => self.extern_function(d, proto),
            DeclKind::Function { proto, body } => self.function(d, proto, body),
            DeclKind::Action { params, body } => self.action(d, params, body),
            DeclKind::Parser(p) => self.parser(d, p),
            DeclKind::Control(c) => self.control(d, c),
            DeclKind::ParserType { type_params, params } => {
                self.object_type(d, ObjectKind::Parser, type_params, params);
            }
            DeclKind::ControlType { type_params, params } => {
                self.object_type(d, ObjectKind::Control, type_params, params);
            }
            DeclKind::PackageType { type_params, params } => self.package(d, type_params, params),
            DeclKind::Composite { kind, type_params, fields } => {
                self.composite(d, *kind, type_params, fields)
            }
            DeclKind::Enum { repr, members } => self.enum_decl(d, repr.as_ref(), members),
            DeclKind::Errors(names) => {
                for n in names {
                    if self.program.errors.contains(&n.name) {
                        let message = format!("error `{}` is declared twice", n.name);
                        self.error(Code::DuplicateName, n.span, message, "choose another name");
                    } else {
                        self.program.errors.push(n.name.clone());
                    }
                }
            }
            DeclKind::MatchKinds(names) => self.match_kinds.extend(names.iter().map(|n| n.name.clone())),
            DeclKind::Typedef { target, distinct } => self.typedef(d, target, *distinct),
            DeclKind::Instance { ty, args, init } => {
                self.instance(d, ty, args, init.is_some());
            }
            DeclKind::Variable { .. } => {
                let hint = "declare it inside a parser, control or action, or make it `const`";
                self.error(Code::BadStatement, d.span, "a variable outside of any parser or control", hint);
            }
            DeclKind::ValueSet { .. } => self.unsupported(d.span, "a value_set"),
            DeclKind::Table(_) => {
                self.error(
                    Code::BadStatement,
                    d.span,
                    "a table outside of a control",
                    "move it into a control",
                );
            }
        }
    }

    pub(super) fn const_decl(&mut self, d: &Decl, ty: &ast::TypeExpr, value: &ast::Expr) {
        let ty = self.ty(ty);
        let e = self.expr_as(value, &ty);
        if !is_constant(&e) {
            let hint = "use literals, other constants and operators on them";
            self.error(Code::NotConstant, value.span, "this value is not known at compile time", hint);
        }
        self.declare(&d.name, Symbol::Const(Expr { ty, ..e }));
    }

    fn extern_decl(&mut self, d: &Decl, type_params: &[ast::Ident], methods: &[ast::Method]) {
        let id = ExternId(self.program.externs.len() as u32);
        let name = d.name.name.clone();
        let empty = hir::Extern {
            name: name.clone(),
            type_params: Vec::new(),
            constructors: Vec::new(),
            methods: Vec::new(),
        };
        self.program.externs.push(empty);
        self.declare(&d.name, Symbol::Type(TypeSymbol::Extern(id)));
        self.scoped(|c| {
            let type_params = c.type_params(type_params);
            c.program.externs[id.0 as usize].type_params = type_params;
            for m in methods {
                if m.is_abstract {
                    c.unsupported(m.name.span, "an abstract method");
                }
                let f = c.scoped(|c| c.prototype(&m.name, &m.proto));
                let e = &mut c.program.externs[id.0 as usize];
                if m.proto.result.is_none() { e.constructors.push(f.params) } else { e.methods.push(f) }
            }
        });
    }

    /// Declares type parameters and parameters in the current scope.
    fn prototype(&mut self, name: &ast::Ident, proto: &ast::Prototype) -> hir::ExternFn {
        let type_params = self.type_params(&proto.type_params);
        let result = proto.result.as_ref().map_or(Type::Void, |t| self.ty(t));
        let params = self.params(&proto.params);
        hir::ExternFn { name: name.name.clone(), span: name.span, type_params, params, result }
    }

    /// Declares parameters in the current scope.
    pub(super) fn params(&mut self, params: &[ast::Param]) -> Vec<hir::Param> {
        let one = |p: &ast::Param| {
            let ty = self.ty(&p.ty);
            if ty == Type::Void {
                self.error(Code::BadType, p.ty.span, "a parameter cannot be void", "remove it");
            }
            let default = p.default.as_ref().map(|e| self.expr_as(e, &ty));
            let var = self.new_var(ty.clone());
            self.declare(&p.name, Symbol::Var(var));
            if matches!(p.direction, ast::Direction::In | ast::Direction::None) {
                self.read_only.insert(var);
            }
            let optional = p.annotations.iter().any(|a| &*a.name.name == "optional");
            hir::Param { var, name: p.name.name.clone(), direction: p.direction, ty, default, optional }
        };
        params.iter().map(one).collect()
    }

    fn extern_function(&mut self, d: &Decl, proto: &ast::Prototype) {
        let f = self.scoped(|c| c.prototype(&d.name, proto));
        let arity = f.params.len();
        let id = ExternFnId(self.program.extern_fns.len() as u32);
        if let Some(Symbol::ExternFns(ids)) = self.lookup(&d.name.name, true) {
            let ids = ids.clone();
            // A model's extern that the program declares once more, as the paper's programs do, is the same.
            let same = |o: &ExternFnId| self.program.extern_fns[o.0 as usize].params.len() == arity;
            if !ids.iter().any(same) {
                self.program.extern_fns.push(f);
                let all = ids.into_iter().chain([id]).collect();
                if let Some(e) = self.scopes[0].get_mut(&d.name.name) {
                    e.symbol = Symbol::ExternFns(all);
                }
            }
            return;
        }
        self.program.extern_fns.push(f);
        self.declare(&d.name, Symbol::ExternFns(vec![id]));
    }

    fn function(&mut self, d: &Decl, proto: &ast::Prototype, body: &ast::Block) {
        if !proto.type_params.is_empty() {
            self.unsupported(d.name.span, "a function with type parameters");
            return self.declare(&d.name, Symbol::Bad);
        }
        let (params, result, body) = self.scoped(|c| {
            let result = proto.result.as_ref().map_or(Type::Void, |t| c.ty(t));
            let params = c.params(&proto.params);
            let saved = std::mem::replace(&mut c.place, Place::Function(result.clone()));
            let body = c.block(body);
            c.place = saved;
            (params, result, body)
        });
        if result != Type::Void && !result.is_bad() && !super::stmt::always_returns(&body) {
            let message = format!("function `{}` does not return a value on every path", d.name.name);
            self.error(Code::BadReturn, d.name.span, message, format!("end it with a return of {result}"));
        }
        let id = FunctionId(self.program.functions.len() as u32);
        let routine = hir::Routine { name: d.name.name.clone(), params, result, body };
        self.program.functions.push(Rc::new(routine));
        self.declare(&d.name, Symbol::Function(id));
    }

    pub(super) fn action(&mut self, d: &Decl, params: &[ast::Param], body: &ast::Block) {
        let (params, body) = self.scoped(|c| {
            let params = c.params(params);
            let saved = std::mem::replace(&mut c.place, Place::Action);
            let body = c.block(body);
            c.place = saved;
            (params, body)
        });
        let id = ActionId(self.program.actions.len() as u32);
        let routine = hir::Routine { name: d.name.name.clone(), params, result: Type::Void, body };
        self.program.actions.push(Rc::new(routine));
        self.declare(&d.name, Symbol::Action(id));
    }

    fn object_type(&mut self, d: &Decl, kind: ObjectKind, type_params: &[ast::Ident], params: &[ast::Param]) {
        let (type_params, params) = self.scoped(|c| (c.type_params(type_params), c.params(params)));
        let ty = Rc::new(super::types::object_type(kind, &d.name.name, &params));
        self.declare(&d.name, Symbol::Type(TypeSymbol::Signature(ty, type_params)));
    }

    fn package(&mut self, d: &Decl, type_params: &[ast::Ident], params: &[ast::Param]) {
        let (type_params, params) = self.scoped(|c| (c.type_params(type_params), c.params(params)));
        let package = PackageType { name: d.name.name.clone(), type_params, params };
        self.declare(&d.name, Symbol::Type(TypeSymbol::Package(Rc::new(package))));
    }

    fn composite(&mut self, d: &Decl, kind: Composite, type_params: &[ast::Ident], fields: &[ast::Field]) {
        let id = self.fresh();
        let (params, fields) = self.scoped(|c| {
            let params = c.type_params(type_params);
            let mut out: Vec<(crate::lexer::Name, Type)> = Vec::new();
            for f in fields {
                let ty = c.ty(&f.ty);
                c.check_field(kind, f, &ty);
                if out.iter().any(|(n, _)| *n == f.name.name) {
                    let message = format!("field `{}` is declared twice", f.name.name);
                    c.error(Code::DuplicateName, f.name.span, message, "choose another name");
                }
                out.push((f.name.name.clone(), ty));
            }
            (params, out)
        });
        let args = params.iter().zip(type_params).map(|(id, n)| Type::Var(*id, n.name.clone())).collect();
        let ty = Rc::new(CompositeType { id, name: d.name.name.clone(), kind, args, fields });
        let symbol = if params.is_empty() {
            TypeSymbol::Plain(Type::Composite(ty))
        } else {
            TypeSymbol::Generic(ty, params)
        };
        self.declare(&d.name, Symbol::Type(symbol));
    }

    fn check_field(&mut self, kind: Composite, f: &ast::Field, ty: &Type) {
        let ok = match (kind, ty.base()) {
            (_, Type::Bad | Type::Var(..)) => true,
            (Composite::Header, Type::Composite(c)) => {
                c.kind == Composite::Struct && ty.packed_width().is_some()
            }
            (Composite::Header, t) => t.packed_width().is_some(),
            (Composite::Union, t) => t.is_header(),
            (
                Composite::Struct,
                Type::InfInt | Type::Void | Type::Text | Type::Extern(_) | Type::Object(_),
            ) => false,
            (Composite::Struct, _) => true,
        };
        if !ok {
            let (what, hint) = match kind {
                Composite::Header => {
                    ("a header", "header fields are bit<W>, int<W>, varbit<W>, bool, enums with a type")
                }
                Composite::Union => ("a header union", "the fields of a union are headers"),
                Composite::Struct => ("a struct", "use a type that has values at run time"),
            };
            self.error(Code::BadType, f.ty.span, format!("{ty} cannot be a field of {what}"), hint);
        }
    }

    fn enum_decl(
        &mut self,
        d: &Decl,
        repr: Option<&ast::TypeExpr>,
        members: &[(ast::Ident, Option<ast::Expr>)],
    ) {
        let repr = repr.map(|t| (self.ty(t), t.span));
        if let Some((t, span)) = &repr
            && t.base().integer().is_none()
            && !t.is_bad()
        {
            self.error(
                Code::BadType,
                *span,
                format!("{t} cannot be the type of an enum"),
                "use bit<W> or int<W>",
            );
        }
        let mut out: Vec<(crate::lexer::Name, BigInt)> = Vec::new();
        for (i, (name, value)) in members.iter().enumerate() {
            if out.iter().any(|(n, _)| *n == name.name) {
                let message = format!("`{}` is declared twice", name.name);
                self.error(Code::DuplicateName, name.span, message, "choose another name");
            }
            let number = match (&repr, value) {
                (Some((t, _)), Some(e)) => self.constant(e, Some(t)).unwrap_or_default(),
                (None, None) => BigInt::from(i),
                (Some(_), None) => {
                    self.error(Code::BadType, name.span, "this member has no value", "write `name = value`");
                    BigInt::default()
                }
                (None, Some(e)) => {
                    let hint = "give the enum a type: `enum bit<8> ...`";
                    self.error(Code::BadType, e.span, "an enum without a type has no values", hint);
                    BigInt::default()
                }
            };
            if let Some((w, signed)) = repr.as_ref().and_then(|(t, _)| t.base().integer())
                && !fits(&number, w, signed)
            {
                self.error(
                    Code::BadConstant,
                    name.span,
                    format!("{number} does not fit"),
                    "use a wider type",
                );
            }
            out.push((name.name.clone(), number));
        }
        let ty =
            EnumType { id: self.fresh(), name: d.name.name.clone(), repr: repr.map(|r| r.0), members: out };
        self.declare(&d.name, Symbol::Type(TypeSymbol::Plain(Type::Enum(Rc::new(ty)))));
    }

    fn typedef(&mut self, d: &Decl, target: &TypedefTarget, distinct: bool) {
        let ty = match target {
            TypedefTarget::Type(t) => self.ty(t),
            TypedefTarget::Decl(inner) => {
                self.declaration(inner);
                match self.lookup(&inner.name.name, false) {
                    Some(Symbol::Type(TypeSymbol::Plain(t))) => t.clone(),
                    _ => Type::Bad,
                }
            }
        };
        let ty = if distinct {
            if ty.scalar_width().is_none() && !ty.is_bad() {
                let hint = "`type` makes new types of bit<W>, int<W>, bool and enums; use typedef";
                self.error(Code::BadType, d.span, format!("`type` of {ty}"), hint);
            }
            Type::New(Rc::new(NewType { id: self.fresh(), name: d.name.name.clone(), target: ty }))
        } else {
            ty
        };
        self.declare(&d.name, Symbol::Type(TypeSymbol::Plain(ty)));
    }
}

/// Whether the value is known at compile time.
pub(super) fn is_constant(e: &Expr) -> bool {
    match &e.kind {
        hir::ExprKind::Const(_) | hir::ExprKind::Text | hir::ExprKind::Bad | hir::ExprKind::InvalidHeader => {
            true
        }
        hir::ExprKind::Aggregate(es) => es.iter().all(is_constant),
        _ => false,
    }
}
