//! Checks of top-level and local declarations.

use super::annotations::{match_annotation, name_annotation};
use super::depth::Body;
use super::fold::is_constant;
use super::params::ParamOwner;
use super::templates::Template;
use super::{Checker, FunctionDecl, PackageType, ScopeKind, Symbol, TypeSymbol};
use crate::ast::{self, Composite, Decl, DeclKind, ObjectKind, TypedefTarget};
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{self, ActionId, Expr, ExternFnId, ExternId, FunctionId};
use crate::types::{CompositeType, NewType, Type};
use num_bigint::BigInt;
use std::rc::Rc;

/// Maximum number of errors, of match kinds, and of overloads of one name.
const MAX_NAMES: usize = 4096;

/// The first and last supported versions of v1model, as dates.
const V1MODEL_FIRST: u32 = 20_180_101;
const V1MODEL_LAST: u32 = 20_200_408;

impl Checker<'_> {
    pub(super) fn declaration(&mut self, d: &Decl) {
        self.annotations(&d.annotations);
        match &d.kind {
            DeclKind::Const { ty, value } => self.const_decl(d, ty, value),
            DeclKind::Extern { type_params, methods } => self.extern_decl(d, type_params, methods),
            DeclKind::ExternFunction(proto) => self.extern_function(d, proto),
            DeclKind::Function { proto, body } => self.function(d, proto, body),
            DeclKind::Action { params, body } => self.action(d, params, body),
            DeclKind::Parser(p) => self.parser(d, p),
            DeclKind::Control(c) => self.control(d, c),
            DeclKind::ObjectType { kind: ObjectKind::Package, type_params, params } => {
                self.package(d, type_params, params);
            }
            DeclKind::ObjectType { kind, type_params, params } => {
                self.object_type(d, *kind, type_params, params);
            }
            DeclKind::Composite { kind, type_params, fields } => {
                self.composite(d, *kind, type_params, fields)
            }
            DeclKind::Enum { repr, members } => self.enum_decl(d, repr.as_ref(), members),
            DeclKind::Errors(names) => {
                for n in names {
                    if self.program.errors.len() >= MAX_NAMES {
                        return self.too_many(n.span, "errors");
                    }
                    if self.program.errors.contains(&n.name) {
                        let message = format!("error `{}` is declared twice", n.name);
                        self.error(Code::DuplicateName, n.span, message, "choose another name");
                    } else {
                        self.program.errors.push(n.name.clone());
                    }
                }
            }
            DeclKind::MatchKinds(names) => {
                for n in names {
                    if self.match_kinds.len() >= MAX_NAMES {
                        return self.too_many(n.span, "match kinds");
                    }
                    if self.match_kinds.contains(&n.name) {
                        let message = format!("match kind `{}` is declared twice", n.name);
                        self.error(Code::DuplicateName, n.span, message, "choose another name");
                    } else {
                        self.match_kinds.push(n.name.clone());
                        let value = BigInt::from(self.match_kinds.len() - 1);
                        self.declare(n, Symbol::Const(Expr::constant(value, Type::MatchKind, n.span)));
                    }
                }
            }
            DeclKind::Typedef { target, distinct } => self.typedef(d, target, *distinct),
            DeclKind::Instance { ty, args, init, .. } => {
                self.instance(d, ty, args, init.as_deref());
            }
            DeclKind::Variable { .. } => {
                let hint = "declare it inside a parser, control or action, or make it `const`";
                self.error(Code::BadStatement, d.span, "variable outside of a parser or control", hint);
            }
            DeclKind::ValueSet { .. } => self.sink.unsupported(d.span, "a value_set"),
            DeclKind::Table(_) => {
                self.error(Code::BadStatement, d.span, "table outside of a control", "move it to a control");
            }
        }
    }

    fn too_many(&mut self, span: crate::source::Span, what: &str) {
        self.error(Code::TooLarge, span, format!("more than {MAX_NAMES} {what}"), "use fewer");
    }

    pub(super) fn const_decl(&mut self, d: &Decl, ty: &ast::TypeExpr, value: &ast::Expr) {
        let ty = self.ty(ty);
        if matches!(ty, Type::Void | Type::Extern(_) | Type::Object(_)) {
            self.error(Code::BadType, d.span, format!("invalid constant of type {ty}"), "use a value type");
            return self.declare(&d.name, Symbol::Bad);
        }
        let e = self.expr_as(value, &ty);
        if !is_constant(&e) {
            let hint = "use literals, other constants and operators on them";
            self.error(Code::NotConstant, value.span, "this value is not known at compile time", hint);
            return self.declare(&d.name, Symbol::Bad);
        }
        if &*d.name.name == "__v1model_version"
            && let Some(v) = e.as_const()
            && !(BigInt::from(V1MODEL_FIRST)..=BigInt::from(V1MODEL_LAST)).contains(v)
        {
            let hint = format!("supported versions are {V1MODEL_FIRST} to {V1MODEL_LAST}");
            self.error(Code::BadConstant, value.span, format!("{v} is not a version of v1model"), hint);
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
            abstracts: Vec::new(),
        };
        self.program.externs.push(empty);
        self.declare(&d.name, Symbol::Type(TypeSymbol::Extern(id)));
        self.scoped(|c| {
            let params = c.type_params(type_params);
            c.program.externs[id.0 as usize].type_params = params;
            for m in methods {
                c.method(id, &name, m);
            }
        });
    }

    fn method(&mut self, id: ExternId, of: &crate::lexer::Name, m: &ast::Method) {
        let owner = if m.proto.result.is_none() { ParamOwner::ExternConstructor } else { ParamOwner::Extern };
        if m.proto.result.is_some() && m.name.name == *of {
            let hint = "remove the result type";
            self.error(Code::BadType, m.name.span, "a constructor has no result type", hint);
        }
        if m.proto.result.is_none() && m.name.name != *of {
            let hint = format!("write a result type, or `{of}` for the constructor");
            self.error(Code::BadType, m.name.span, format!("`{}` has no result type", m.name.name), hint);
        }
        let f = self.scoped(|c| c.prototype(&m.name, &m.proto, owner));
        let itself = |t: &Type| matches!(t, Type::Extern(e) if e.id == id.0);
        if let Some(p) = f.params.iter().find(|p| itself(&p.ty)) {
            self.error(Code::Recursive, p.span, format!("`{of}` refers to itself"), "use another type");
        }
        let e = &mut self.program.externs[id.0 as usize];
        let twice = |o: &hir::ExternFn| o.name == f.name && same_arguments(&o.params, &f.params);
        let constructor_twice = m.proto.result.is_none()
            && e.constructors.iter().any(|c| c.len() == f.params.len() && same_arguments(c, &f.params));
        if constructor_twice || m.proto.result.is_some() && e.methods.iter().any(twice) {
            let hint = "overloads must differ in the number or the names of their parameters";
            let message = format!("`{}` is declared twice with equal parameter names", f.name);
            self.error(Code::DuplicateName, m.name.span, message, hint);
            return;
        }
        if m.proto.result.is_none() {
            e.constructors.push(f.params);
        } else {
            if m.is_abstract {
                e.abstracts.push((e.methods.len(), m.optional));
            }
            e.methods.push(f);
        }
    }

    /// Declares type parameters and parameters in the current scope.
    pub(super) fn prototype(
        &mut self,
        name: &ast::Ident,
        proto: &ast::Prototype,
        owner: ParamOwner,
    ) -> hir::ExternFn {
        let type_params = self.type_params(&proto.type_params);
        let result = self.function_result(proto);
        let params = self.params(&proto.params, owner);
        let (name, span) = (name.name.clone(), name.span);
        hir::ExternFn { name, span, placed: false, type_params, params, result }
    }

    /// Returns the type of a function's result.
    fn function_result(&mut self, proto: &ast::Prototype) -> Type {
        let Some(t) = &proto.result else { return Type::Void };
        let ty = self.ty(t);
        if matches!(ty, Type::Object(_) | Type::InfInt | Type::Text | Type::MatchKind | Type::List(_)) {
            let message = format!("a function cannot return {ty}");
            return self.refuse(Code::BadType, t.span, message, "use a value type");
        }
        ty
    }

    fn extern_function(&mut self, d: &Decl, proto: &ast::Prototype) {
        let mut f = self.scoped(|c| c.prototype(&d.name, proto, ParamOwner::Extern));
        f.placed = d.annotations.iter().any(|a| &*a.name.name == "compartment");
        let id = ExternFnId(self.program.extern_fns.len() as u32);
        if let Some(Symbol::ExternFns(ids)) = self.lookup(&d.name.name, true) {
            let ids = ids.clone();
            if ids.len() >= MAX_NAMES {
                return self.too_many(d.name.span, "functions of one name");
            }
            let old = ids.iter().map(|o| &self.program.extern_fns[o.0 as usize]);
            let same = old.into_iter().find(|o| o.params.len() == f.params.len());
            match same {
                // Programs may repeat the declaration of a model's extern, as published examples do.
                Some(o) if same_types(o, &f) => {}
                Some(o) if same_arguments(&o.params, &f.params) => {
                    let first = o.span;
                    self.declared_twice(&d.name, first);
                }
                _ => {
                    self.program.extern_fns.push(f);
                    self.redeclare(&d.name, Symbol::ExternFns(ids.into_iter().chain([id]).collect()));
                }
            }
            return;
        }
        self.program.extern_fns.push(f);
        self.declare(&d.name, Symbol::ExternFns(vec![id]));
    }

    fn function(&mut self, d: &Decl, proto: &ast::Prototype, body: &ast::Block) {
        let (type_params, (params, result, id)) =
            self.scoped(|c| (c.type_params(&proto.type_params), c.function_body(d, proto, body)));
        let decl = Rc::new(FunctionDecl {
            name: d.name.name.clone(),
            type_params,
            params,
            result,
            id,
            template: Template::of(d, &proto.type_params),
        });
        if let Some(Symbol::Functions(old)) = self.lookup(&d.name.name, false).cloned() {
            if old.len() >= MAX_NAMES {
                return self.too_many(d.name.span, "functions of one name");
            }
            if let Some(o) = old.iter().find(|o| same_arguments(&o.params, &decl.params)) {
                let same =
                    o.result == decl.result && o.params.iter().zip(&decl.params).all(|(a, b)| a.ty == b.ty);
                if same && decl.template.is_none() {
                    return;
                }
                return self.overloaded_twice(&d.name);
            }
            return self.redeclare(&d.name, Symbol::Functions(old.into_iter().chain([decl]).collect()));
        }
        self.declare(&d.name, Symbol::Functions(vec![decl]));
    }

    /// Checks a function whose type parameters are declared.
    pub(super) fn function_body(
        &mut self,
        d: &Decl,
        proto: &ast::Prototype,
        body: &ast::Block,
    ) -> (Vec<hir::Param>, Type, FunctionId) {
        let ((params, result, body), depth) = self.measured_body(|c| {
            c.scoped(|c| {
                let result = c.function_result(proto);
                let params = c.params(&proto.params, ParamOwner::Function);
                let body = c.within(ScopeKind::Function(result.clone()), |c| c.block(body));
                (params, result, body)
            })
        });
        if result != Type::Void && !result.is_bad() && !super::stmt::always_returns(&body) {
            let message = format!("function `{}` does not return a value on every path", d.name.name);
            self.error(Code::BadReturn, d.name.span, message, format!("end it by returning a {result}"));
        }
        let id = FunctionId(self.program.functions.len() as u32);
        self.end_of_body(Body::Function(id.0), depth, d.name.span);
        let routine = hir::Routine {
            name: d.name.name.clone(),
            span: d.name.span,
            params: params.clone(),
            result: result.clone(),
            body,
            control_name: d.name.name.clone(),
            local: false,
        };
        self.program.functions.push(Rc::new(routine));
        (params, result, id)
    }

    pub(super) fn action(&mut self, d: &Decl, params: &[ast::Param], body: &ast::Block) {
        let ((params, body), depth) = self.measured_body(|c| {
            c.scoped(|c| {
                let params = c.params(params, ParamOwner::Action);
                (params, c.within(ScopeKind::Action, |c| c.block(body)))
            })
        });
        self.control_plane_name(d);
        let id = ActionId(self.program.actions.len() as u32);
        self.end_of_body(Body::Action(id.0), depth, d.name.span);
        // A name that begins with a dot is absolute.
        let given = name_annotation(&d.annotations);
        let whole = given.as_ref().and_then(|n| n.strip_prefix('.'));
        let routine = hir::Routine {
            name: d.name.name.clone(),
            span: d.name.span,
            params,
            result: Type::Void,
            body,
            control_name: whole.or(given.as_deref()).map_or_else(|| d.name.name.clone(), Into::into),
            local: self.scopes.len() > 1 && whole.is_none(),
        };
        self.program.actions.push(Rc::new(routine));
        self.declare(&d.name, Symbol::Action(id));
    }

    /// Reports actions that have the same name in the control plane.
    fn control_plane_name(&mut self, d: &Decl) {
        let given = name_annotation(&d.annotations);
        let full = match (&given, self.scopes.len()) {
            (Some(n), _) if n.starts_with('.') => n[1..].to_owned(),
            (Some(n), 1) => n.clone(),
            (None, 1) => d.name.name.to_string(),
            _ => return,
        };
        // Older programs declare a NoAction for each table.
        if full == "NoAction" {
            return;
        }
        if let Some(first) = self.action_names.get(&full).copied() {
            let message = format!("two actions have the control-plane name `{full}`");
            let diagnostic = Diagnostic::new(Code::SameControlName, d.name.span, message);
            self.sink.add(diagnostic.related(first, "the other one").hint("give one of them another @name"));
        } else {
            self.action_names.insert(full, d.name.span);
        }
    }

    fn object_type(&mut self, d: &Decl, kind: ObjectKind, type_params: &[ast::Ident], params: &[ast::Param]) {
        let (type_params, params) =
            self.scoped(|c| (c.type_params(type_params), c.params(params, ParamOwner::Object)));
        let ty = Rc::new(super::types::object_type(kind, &d.name.name, &params));
        self.declare(&d.name, Symbol::Type(TypeSymbol::Signature(ty, type_params)));
    }

    fn package(&mut self, d: &Decl, type_params: &[ast::Ident], params: &[ast::Param]) {
        let (type_params, params) =
            self.scoped(|c| (c.type_params(type_params), c.params(params, ParamOwner::Package)));
        let package = Rc::new(PackageType { name: d.name.name.clone(), type_params, params });
        if let Some(Symbol::Type(TypeSymbol::Package(old))) = self.lookup(&d.name.name, true).cloned() {
            if old.iter().any(|o| same_arguments(&o.params, &package.params)) {
                return self.overloaded_twice(&d.name);
            }
            let all = old.into_iter().chain([package]).collect();
            return self.redeclare(&d.name, Symbol::Type(TypeSymbol::Package(all)));
        }
        self.declare(&d.name, Symbol::Type(TypeSymbol::Package(vec![package])));
    }

    fn composite(&mut self, d: &Decl, kind: Composite, type_params: &[ast::Ident], fields: &[ast::Field]) {
        let id = self.fresh();
        let (params, fields) = self.scoped(|c| {
            let params = c.type_params(type_params);
            let mut out: Vec<(crate::lexer::Name, Type)> = Vec::new();
            for f in fields {
                c.annotations(&f.annotations);
                if let Some(kind) = match_annotation(&f.annotations) {
                    c.matched_by.insert((id, out.len()), kind);
                }
                let lists = c.field_lists(&f.annotations);
                if !lists.is_empty() {
                    c.program.field_lists.insert((id, out.len()), lists);
                }
                let mut ty = c.ty(&f.ty);
                if !super::types::field_allowed(kind, &ty) {
                    c.bad_field(kind, f, &ty);
                    ty = Type::Bad;
                }
                let varbit = |t: &Type| kind == Composite::Header && matches!(t.base(), Type::Varbit(_));
                if varbit(&ty) && ty != Type::Varbit(0) && out.iter().any(|(_, t)| varbit(t)) {
                    let hint = "a header can have at most one varbit field";
                    c.error(Code::BadType, f.name.span, "second varbit field of a header", hint);
                }
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
        if self.measured(Type::Composite(ty.clone()), d.name.span).is_bad() {
            return self.declare(&d.name, Symbol::Bad);
        }
        if kind == Composite::Header && params.is_empty() {
            self.program.headers.push(ty.clone());
        }
        let symbol = if params.is_empty() {
            TypeSymbol::Plain(Type::Composite(ty))
        } else {
            TypeSymbol::Generic(ty, params)
        };
        self.declare(&d.name, Symbol::Type(symbol));
    }

    fn bad_field(&mut self, kind: Composite, f: &ast::Field, ty: &Type) {
        let (what, hint) = match kind {
            Composite::Header => {
                ("a header", "header fields are bit<W>, int<W>, varbit<W>, bool, serializable enums")
            }
            Composite::Union => ("a header union", "the fields of a union are headers"),
            Composite::Struct => ("a struct", "use a value type"),
        };
        self.error(Code::BadType, f.name.span, format!("{ty} cannot be a field of {what}"), hint);
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
            if !matches!(ty, Type::Bit(_) | Type::Int(_) | Type::Bool | Type::New(_) | Type::Bad) {
                let hint = "`type` accepts bit<W>, int<W>, bool and other types of `type`; use typedef";
                self.error(Code::BadType, d.span, format!("`type` cannot rename {ty}"), hint);
            }
            Type::New(Rc::new(NewType { id: self.fresh(), name: d.name.name.clone(), target: ty }))
        } else if matches!(ty, Type::Void | Type::Text | Type::MatchKind) {
            let hint = "write the type itself where it is allowed";
            self.refuse(Code::BadType, d.span, format!("`typedef` cannot rename {ty}"), hint)
        } else {
            ty
        };
        self.declare(&d.name, Symbol::Type(TypeSymbol::Plain(ty)));
    }
}

/// Whether calls cannot distinguish two parameter lists by the number and names of the arguments.
pub(super) fn same_arguments(a: &[hir::Param], b: &[hir::Param]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.name == y.name)
}

/// Whether two extern functions are equal except for the names of their parameters.
fn same_types(a: &hir::ExternFn, b: &hir::ExternFn) -> bool {
    let args: Vec<Type> = a.type_params.iter().map(|p| Type::Var(*p, "".into())).collect();
    let replace = super::types::replacement(&b.type_params, &args);
    let same = |x: &Type, y: &Type| *x == y.substitute(&replace) || x.is_open();
    a.type_params.len() == b.type_params.len()
        && same(&a.result, &b.result)
        && a.params.iter().zip(&b.params).all(|(x, y)| x.direction == y.direction && same(&x.ty, &y.ty))
}
