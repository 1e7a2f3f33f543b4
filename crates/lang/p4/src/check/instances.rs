//! Instantiation: `T(args) name;` and `T(args)` as an argument, with implementations of abstract methods.

use super::argument_list::{ArgumentList, count};
use super::arguments::choose;
use super::infer::Inference;
use super::{Checker, ObjectDecl, PackageType, ScopeKind, Symbol, TypeSymbol};
use crate::ast::{self, DeclKind, ExprKind as Ast, ObjectKind, TypeKind};
use crate::diagnostics::Code;
use crate::hir::{self, Constructed, CtorArg, Expr, ExternId, FunctionId, InstId, Instance};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::{ExternRef, ObjectParam, ObjectType, Type};
use std::rc::Rc;

/// A request to construct an instance.
struct Construction<'a> {
    type_name: &'a ast::Ident,
    args: &'a [ast::Arg],
    name: &'a Name,
    span: Span,
    inference: Inference,
    /// The type arguments that the author wrote.
    written: Option<Vec<Type>>,
    /// Implementations of abstract methods.
    init: Option<&'a [ast::Decl]>,
    /// The expected type of the object, if known.
    want: Option<&'a Type>,
}

impl Checker<'_> {
    /// Checks `T(args) name;`.
    pub(super) fn instance(
        &mut self,
        d: &ast::Decl,
        ty: &ast::TypeExpr,
        args: &[ast::Arg],
        init: Option<&[ast::Decl]>,
    ) -> Option<InstId> {
        let allowed = matches!(self.scope_kind, ScopeKind::Top | ScopeKind::Control | ScopeKind::Parser);
        if !allowed {
            let hint = "declare it among the declarations of the enclosing control or parser";
            self.error(Code::BadInstance, d.span, "an instance cannot be declared here", hint);
        }
        let id = self.construct(ty, args, &d.name.name, d.span, init, None);
        if let Some(id) = id {
            self.check_place(id, d);
            if self.scopes.len() == 1 && &*d.name.name == "main" {
                self.program.main = Some(id);
            }
        }
        self.declare(&d.name, id.map_or(Symbol::Bad, Symbol::Instance));
        id
    }

    fn check_place(&mut self, id: InstId, d: &ast::Decl) {
        let what = self.program.instances[id.0 as usize].what;
        let hint = match (what, &self.scope_kind) {
            (Constructed::Parser(_) | Constructed::Control(_), ScopeKind::Top) => {
                "pass it to the package, as in `P(C()) main;`"
            }
            (Constructed::Parser(_), ScopeKind::Control) => "a control cannot apply a parser",
            (Constructed::Control(_), ScopeKind::Parser) => "a parser cannot apply a control",
            (Constructed::Package, ScopeKind::Control | ScopeKind::Parser) => "move it to the top level",
            (Constructed::Package, ScopeKind::Top) => return,
            (_, ScopeKind::Top) if &*d.name.name == "main" => "`main` is an instance of a package",
            _ => return,
        };
        self.error(Code::BadInstance, d.span, format!("`{}` cannot be instantiated here", d.name.name), hint);
    }

    /// Constructs an object of the named type.
    pub(super) fn construct(
        &mut self,
        ty: &ast::TypeExpr,
        args: &[ast::Arg],
        name: &Name,
        span: Span,
        init: Option<&[ast::Decl]>,
        want: Option<&Type>,
    ) -> Option<InstId> {
        let (type_name, absolute, written) = match &ty.kind {
            TypeKind::Named { name, absolute } => (name, *absolute, None),
            TypeKind::Specialized { name, absolute, args } => (name, *absolute, Some(args)),
            _ => {
                let hint = "only externs, parsers, controls and packages have instances";
                return self.refuse(Code::BadInstance, ty.span, "this type has no instances", hint);
            }
        };
        let symbol = self.resolve(type_name, absolute);
        let written = written.map(|ts| self.type_args_or_any(ts));
        let inference = Inference::default();
        let mut r = Construction { type_name, args, name, span, inference, written, init, want };
        if init.is_some() && !matches!(symbol, Symbol::Type(TypeSymbol::Extern(_) | TypeSymbol::Plain(_))) {
            let hint = "only externs with abstract methods have an initializer";
            self.error(Code::BadInstance, span, "this object cannot have an initializer", hint);
            self.check_initializer(init.unwrap_or_default());
        }
        match symbol {
            Symbol::Type(TypeSymbol::Extern(id)) => self.construct_extern(id, r),
            Symbol::Type(TypeSymbol::Object(overloads)) => {
                let fit = choose(&overloads, |o| &o.ctor_params, args);
                let o = fit.unwrap_or(&overloads[0]).clone();
                self.construct_object(&o, r)
            }
            Symbol::Type(TypeSymbol::Package(overloads)) => {
                let p = choose(&overloads, |p| &p.params, args).unwrap_or(&overloads[0]).clone();
                self.construct_package(&p, r)
            }
            // A typedef of an extern type.
            Symbol::Type(TypeSymbol::Plain(Type::Extern(e))) => {
                if r.written.is_some() {
                    let message = format!("`{}` is not generic", type_name.name);
                    return self.refuse(Code::BadArguments, span, message, "remove the type arguments");
                }
                r.written = Some(e.args.clone());
                self.construct_extern(ExternId(e.id), r)
            }
            Symbol::Bad | Symbol::Type(TypeSymbol::Plain(Type::Bad)) => None,
            other => {
                let message = format!("`{}` is {} and has no instances", type_name.name, other.describe());
                let hint = "only externs, parsers, controls and packages have instances";
                self.refuse(Code::BadInstance, type_name.span, message, hint)
            }
        }
    }

    /// Checks type arguments; `_` is inferred.
    fn type_args_or_any(&mut self, args: &[ast::TypeExpr]) -> Vec<Type> {
        let one = |a: &ast::TypeExpr| match a.kind {
            TypeKind::DontCare => Type::Var(0, "_".into()),
            _ => self.type_args(std::slice::from_ref(a)).pop().unwrap_or(Type::Bad),
        };
        args.iter().map(one).collect()
    }

    /// Enters the written type arguments; reports a wrong number of them.
    fn enter_types(&mut self, r: &mut Construction<'_>, params: &[u32]) -> Option<()> {
        let Some(written) = &r.written else { return Some(()) };
        if written.len() != params.len() {
            let want = count(params.len(), "type argument");
            let message = format!("`{}` takes {want}, found {}", r.type_name.name, written.len());
            return self.refuse(Code::BadArguments, r.span, message, "write them as <T, ...>");
        }
        for (id, t) in params.iter().zip(written) {
            if !matches!(t, Type::Var(0, _)) {
                r.inference.set(*id, t.clone());
            }
        }
        Some(())
    }

    /// Returns all type arguments; reports those that cannot be inferred.
    fn inferred(&mut self, r: &Construction<'_>, params: &[u32]) -> Option<Vec<Type>> {
        // A `_` without constraints is a type that does not matter.
        let any = |i: usize| {
            r.written.as_ref().and_then(|w| w.get(i)).is_some_and(|t| matches!(t, Type::Var(0, _)))
        };
        let one =
            |(i, p): (usize, &u32)| r.inference.get(*p).cloned().or_else(|| any(i).then_some(Type::Bad));
        let types: Option<Vec<Type>> = params.iter().enumerate().map(one).collect();
        if types.is_none() {
            let hint = format!("write {}<...>(...)", r.type_name.name);
            self.error(Code::CannotInfer, r.span, "cannot infer the type arguments", hint);
        }
        types
    }

    fn construct_object(&mut self, o: &Rc<ObjectDecl>, mut r: Construction<'_>) -> Option<InstId> {
        self.enter_types(&mut r, &o.type_params)?;
        let args =
            self.ctor_args(&o.name, &o.ctor_params, ArgumentList::new(r.args, r.span), &mut r.inference)?;
        if let Some(Type::Object(w)) = r.want {
            for (p, w) in o.params.iter().zip(&w.params).filter(|(_, w)| !w.ty.is_open()) {
                r.inference.learn(&p.ty, &w.ty);
            }
        }
        let types = self.inferred(&r, &o.type_params)?;
        let what = self.object_for(o, &types, r.span);
        let params = self.declared_params(what)?.0.to_vec();
        let ty = super::types::object_type(o.kind, &o.name, &params);
        Some(self.add_instance(&r, Type::Object(Rc::new(ty)), what, args, Vec::new()))
    }

    fn construct_package(&mut self, p: &Rc<PackageType>, mut r: Construction<'_>) -> Option<InstId> {
        self.enter_types(&mut r, &p.type_params)?;
        let args = self.ctor_args(&p.name, &p.params, ArgumentList::new(r.args, r.span), &mut r.inference)?;
        // The type of a default argument may be as open as the parameter itself.
        if self.scope_kind == ScopeKind::Top
            && p.type_params.iter().any(|id| r.inference.get(*id).is_some_and(Type::is_open))
        {
            let hint = format!("write {}<...>(...)", r.type_name.name);
            return self.refuse(Code::CannotInfer, r.span, "cannot infer the type arguments", hint);
        }
        let param = |id: &u32| ObjectParam {
            name: "".into(),
            direction: ast::Direction::None,
            ty: r.inference.get(*id).cloned().unwrap_or(Type::Bad),
            optional: false,
        };
        let params = p.type_params.iter().map(param).collect();
        let ty = ObjectType { kind: ObjectKind::Package, name: p.name.clone(), params };
        Some(self.add_instance(&r, Type::Object(Rc::new(ty)), Constructed::Package, args, Vec::new()))
    }

    fn construct_extern(&mut self, id: ExternId, mut r: Construction<'_>) -> Option<InstId> {
        let decl = &self.program.externs[id.0 as usize];
        let (params, constructors) = (decl.type_params.clone(), decl.constructors.clone());
        self.enter_types(&mut r, &params)?;
        let Some(ctor) = choose(&constructors, |c| c, r.args) else {
            let given = count(r.args.len(), "argument");
            let message = format!("`{}` has no constructor with {given}", r.type_name.name);
            return self.refuse(Code::BadInstance, r.span, message, "check the declaration of the extern");
        };
        let args =
            self.ctor_args(&r.type_name.name, ctor, ArgumentList::new(r.args, r.span), &mut r.inference)?;
        let types = self.inferred(&r, &params)?;
        if types.iter().any(|t| t.contains(&|t| matches!(t, Type::Extern(x) if x.id == id.0))) {
            let message = format!("`{}` would contain itself", r.type_name.name);
            return self.refuse(Code::Recursive, r.span, message, "use another type argument");
        }
        let e = ExternRef { id: id.0, name: self.program.externs[id.0 as usize].name.clone(), args: types };
        let ty = Type::Extern(Rc::new(e));
        let methods = self.implementations(id, &ty, &r);
        Some(self.add_instance(&r, ty, Constructed::Extern, args, methods))
    }

    /// Checks the methods that an instance implements against the abstract methods of its extern.
    fn implementations(&mut self, id: ExternId, ty: &Type, r: &Construction<'_>) -> Vec<(usize, FunctionId)> {
        let abstracts = self.program.externs[id.0 as usize].abstracts.clone();
        let mut made = Vec::new();
        if r.init.is_some() && abstracts.is_empty() {
            let message = format!("{ty} has no abstract methods to implement");
            self.error(Code::BadInstance, r.span, message, "remove the initializer");
            self.check_initializer(r.init.unwrap_or_default());
            return made;
        }
        let saved = self.this.replace((r.name.clone(), ty.clone()));
        self.scopes.push(std::collections::HashMap::new());
        for d in r.init.unwrap_or_default() {
            let DeclKind::Function { proto, body } = &d.kind else {
                self.local(d);
                continue;
            };
            if let Some(m) = self.implementation(id, ty, &abstracts, d) {
                let (params, result, f) = self.scoped(|c| {
                    let _ = c.type_params(&proto.type_params);
                    c.function_body(d, proto, body)
                });
                self.same_signature(id, ty, m, d, &params, &result);
                made.push((m, f));
            }
        }
        self.scopes.pop();
        self.this = saved;
        let missing = abstracts.iter().find(|(m, optional)| !optional && !made.iter().any(|(k, _)| k == m));
        if let Some((m, _)) = missing {
            let name = self.program.externs[id.0 as usize].methods[*m].name.clone();
            let message = format!("the abstract method `{name}` is not implemented");
            self.error(Code::BadInstance, r.span, message, "write `T() name = { ... };` with the method");
        }
        made
    }

    /// Finds other errors in functions that implement no abstract method.
    fn check_initializer(&mut self, init: &[ast::Decl]) {
        for d in init {
            if let DeclKind::Function { proto, body } = &d.kind {
                self.scoped(|c| {
                    let _ = c.type_params(&proto.type_params);
                    c.function_body(d, proto, body)
                });
            }
        }
    }

    fn implementation(
        &mut self,
        id: ExternId,
        ty: &Type,
        abstracts: &[(usize, bool)],
        d: &ast::Decl,
    ) -> Option<usize> {
        let DeclKind::Function { proto, .. } = &d.kind else { return None };
        let e = &self.program.externs[id.0 as usize];
        let n = proto.params.len();
        let fits = |m: &&(usize, bool)| {
            let f = &e.methods[m.0];
            f.name == d.name.name && n <= f.params.len() && f.params[n..].iter().all(|p| p.optional)
        };
        let found = abstracts.iter().find(fits).map(|(m, _)| *m);
        if found.is_none() {
            let message = format!("{ty} has no abstract method `{}` with these parameters", d.name.name);
            self.error(Code::BadInstance, d.span, message, "implement the methods declared `abstract`");
        }
        found
    }

    fn same_signature(
        &mut self,
        id: ExternId,
        ty: &Type,
        m: usize,
        d: &ast::Decl,
        params: &[hir::Param],
        result: &Type,
    ) {
        let e = &self.program.externs[id.0 as usize];
        let args = if let Type::Extern(r) = ty { r.args.clone() } else { Vec::new() };
        let f = &e.methods[m];
        let special = |t: &Type| t.substitute(&super::types::replacement(&e.type_params, &args));
        let same = |a: &Type, b: &Type| a == b || a.is_bad() || b.is_bad() || a.is_open();
        let ok = same(&special(&f.result), result)
            && f.params
                .iter()
                .zip(params)
                .all(|(a, b)| a.direction == b.direction && same(&special(&a.ty), &b.ty));
        if !ok {
            let message = format!("`{}` differs from the abstract method", d.name.name);
            self.error(Code::TypeMismatch, d.span, message, "use the abstract method's types and directions");
        }
    }

    fn add_instance(
        &mut self,
        r: &Construction<'_>,
        ty: Type,
        what: Constructed,
        args: Vec<CtorArg>,
        methods: Vec<(usize, FunctionId)>,
    ) -> InstId {
        let id = InstId(self.program.instances.len() as u32);
        let inst = Instance { name: r.name.clone(), span: r.span, ty, what, args, methods };
        self.program.instances.push(Rc::new(inst));
        id
    }

    fn ctor_args(
        &mut self,
        name: &Name,
        params: &[hir::Param],
        w: ArgumentList<'_>,
        inference: &mut Inference,
    ) -> Option<Vec<CtorArg>> {
        let order = self.order_arguments(name, params, w)?;
        let mut out = Vec::new();
        for (p, place) in params.iter().zip(order) {
            let Some(value) = place.and_then(|at| w.args[at].value.as_ref()) else {
                out.push(match &p.default {
                    Some(Expr { kind: hir::ExprKind::Object(o), .. }) => {
                        inference.learn(&p.ty, &self.object_type_of(*o));
                        CtorArg::Object(*o)
                    }
                    Some(d) => CtorArg::Value(d.clone()),
                    None => CtorArg::Missing,
                });
                continue;
            };
            out.push(self.ctor_arg(p, value, inference)?);
        }
        Some(out)
    }

    fn ctor_arg(&mut self, p: &hir::Param, value: &ast::Expr, inference: &mut Inference) -> Option<CtorArg> {
        let want = inference.apply(&p.ty);
        let object = match self.constructed_as(value, Some(&want)) {
            Some(made) => Some(made?),
            None => self.object_named_by(value),
        };
        if let Some(object) = object {
            return self.object_argument(p, object, value.span, inference).then_some(CtorArg::Object(object));
        }
        let (e, want) = self.argument(p, value, inference)?;
        let e = if want.is_open() { e } else { self.coerce(e, &want) };
        if !self.is_known_after_instantiation(&e) {
            let hint = "constructor arguments are literals, constants or constructor parameters";
            self.error(Code::NotConstant, e.span, "this value is not known at compile time", hint);
        }
        Some(CtorArg::Value(e))
    }

    /// Whether a value is known after instantiation: constants and constructor parameters.
    pub(super) fn is_known_after_instantiation(&self, e: &Expr) -> bool {
        use hir::ExprKind as K;
        match &e.kind {
            K::Var(v) => self.ctor_vars.contains(v),
            K::Field(..)
            | K::Unary(..)
            | K::Cast(_)
            | K::Slice(..)
            | K::Binary(..)
            | K::Ternary(..)
            | K::Aggregate(_) => e.parts().into_iter().all(|e| self.is_known_after_instantiation(e)),
            // An extern may construct another one.
            K::Call(c) => {
                matches!(e.ty, Type::Extern(_))
                    && c.args.iter().all(|a| match a {
                        hir::CallArg::In(e) => self.is_known_after_instantiation(e),
                        hir::CallArg::Object(_) | hir::CallArg::Skip => true,
                        _ => false,
                    })
            }
            _ => super::fold::is_constant(e),
        }
    }
}

/// Returns the type in an expression `T(...)`.
pub(super) fn constructor_type(callee: &ast::Expr, type_args: &[ast::TypeExpr]) -> Option<ast::TypeExpr> {
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
