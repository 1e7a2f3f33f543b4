//! Parameters: the types and directions that are allowed for each kind of declaration.

use super::{Checker, Symbol};
use crate::ast::{self, Direction, ObjectKind, TypeKind};
use crate::diagnostics::Code;
use crate::hir;
use crate::types::Type;

/// The kind of declaration that parameters belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParamOwner {
    /// The `apply` of a parser or control.
    Object,
    Function,
    /// An extern function or method.
    Extern,
    Action,
    /// The constructor of a parser or control.
    Constructor,
    ExternConstructor,
    Package,
}

impl Checker<'_> {
    /// Declares parameters in the current scope.
    pub(super) fn params(&mut self, params: &[ast::Param], owner: ParamOwner) -> Vec<hir::Param> {
        let mut directionless = false;
        let mut out = Vec::with_capacity(params.len());
        for p in params {
            let p_out = self.param(p, owner);
            if owner == ParamOwner::Action {
                if directionless && p.direction != Direction::None {
                    let hint = "move parameters without a direction to the end";
                    let message = "this parameter has a direction, but follows one without";
                    self.error(Code::BadArguments, p.name.span, message, hint);
                }
                directionless |= p.direction == Direction::None;
            }
            out.push(p_out);
        }
        out
    }

    /// Reports constructor parameters of objects that could not be applied.
    pub(super) fn no_objects(&mut self, params: &[hir::Param], kind: ObjectKind, why: &str) {
        for p in params {
            if matches!(&p.ty, Type::Object(o) if o.kind == kind) {
                self.error(Code::BadType, p.span, format!("`{}` cannot be {} here", p.name, p.ty), why);
            }
        }
    }

    fn param(&mut self, p: &ast::Param, owner: ParamOwner) -> hir::Param {
        let mut ty = self.param_type(p, owner);
        let optional = p.annotations.iter().any(|a| &*a.name.name == "optional");
        if let Some(message) = forbidden(&ty, p.direction, owner) {
            self.error(Code::BadType, p.name.span, format!("`{}`: {message}", p.name.name), "remove it");
            ty = Type::Bad;
        }
        if optional && matches!(owner, ParamOwner::Function | ParamOwner::Action | ParamOwner::Constructor) {
            let hint = "only externs and packages have optional parameters";
            self.error(Code::BadArguments, p.name.span, "optional parameter in this declaration", hint);
        }
        let default = p.default.as_ref().map(|e| self.param_default(p, e, &ty));
        let var = self.new_var(&p.name, ty.clone());
        let around = &self.scopes[self.scopes.len() - 2];
        if let Some(e) = around.get(&p.name.name)
            && matches!(&e.symbol, Symbol::Type(super::TypeSymbol::Plain(Type::Var(..))))
        {
            let first = e.span;
            self.declared_twice(&p.name, first);
        }
        self.warn_shadowing(&p.name);
        self.declare(&p.name, Symbol::Var(var));
        if matches!(p.direction, Direction::In | Direction::None) {
            self.read_only.insert(var);
        }
        let known_after_instantiation =
            p.direction == Direction::None && matches!(owner, ParamOwner::Function | ParamOwner::Object);
        if owner == ParamOwner::Object {
            self.object_params.insert(var);
        }
        if owner == ParamOwner::Constructor || known_after_instantiation {
            self.ctor_vars.insert(var);
        }
        hir::Param {
            var,
            name: p.name.name.clone(),
            direction: p.direction,
            ty,
            default,
            optional,
            span: p.name.span,
        }
    }

    /// Returns the type of a parameter. `_` in a package is the type of the argument.
    fn param_type(&mut self, p: &ast::Param, owner: ParamOwner) -> Type {
        if owner == ParamOwner::Package && matches!(p.ty.kind, TypeKind::DontCare) {
            let id = self.fresh();
            return Type::Var(id, "_".into());
        }
        if owner == ParamOwner::Constructor
            && let TypeKind::Named { name, absolute } | TypeKind::Specialized { name, absolute, .. } =
                &p.ty.kind
            && let Some(Symbol::Type(super::TypeSymbol::Object(_))) = self.lookup(&name.name, *absolute)
        {
            let message = format!("`{}` cannot be `{}`", p.name.name, name.name);
            let hint = "use a parser or control type without a body";
            return self.refuse(Code::BadType, p.name.span, message, hint);
        }
        self.ty(&p.ty)
    }

    fn param_default(&mut self, p: &ast::Param, e: &ast::Expr, ty: &Type) -> hir::Expr {
        if p.direction.is_out() {
            let hint = "only `in` parameters and parameters without direction can have one";
            self.error(Code::BadArguments, p.name.span, "default value of an out parameter", hint);
        }
        if matches!(ty, Type::Object(_) | Type::Extern(_)) || ty.is_open() {
            // Each use constructs the object anew; only its validity is checked here.
            return match self.constructed_by(e) {
                Some(Some(o)) => hir::Expr { kind: hir::ExprKind::Object(o), ty: ty.clone(), span: e.span },
                Some(None) => hir::Expr::bad(e.span),
                None => self.expr(e, Some(ty).filter(|t| !t.is_open())),
            };
        }
        let value = self.expr_as(e, ty);
        if !super::fold::is_constant(&value) {
            let hint = "use literals and constants";
            self.error(Code::NotConstant, e.span, "a default value must be known at compile time", hint);
        }
        value
    }
}

/// Returns the reason why a parameter must not have this type and direction.
fn forbidden(ty: &Type, direction: Direction, owner: ParamOwner) -> Option<String> {
    let directed = direction != Direction::None;
    if *ty == Type::Void {
        return Some("a parameter cannot be void".to_owned());
    }
    if owner == ParamOwner::ExternConstructor && matches!(ty, Type::Object(_)) {
        return Some(format!("an extern cannot take {ty}"));
    }
    if matches!(owner, ParamOwner::Constructor | ParamOwner::ExternConstructor | ParamOwner::Package) {
        return directed.then(|| "constructor parameters have no direction".to_owned());
    }
    let compile_time = matches!(
        ty,
        Type::Text | Type::InfInt | Type::Extern(_) | Type::Object(_) | Type::MatchKind | Type::List(_)
    );
    if compile_time && directed {
        return Some(format!("a parameter of type {ty} cannot have a direction"));
    }
    match (ty, owner) {
        (Type::Object(o), _) if o.kind != ObjectKind::Package => {
            Some(format!("only constructor parameters can be {ty}"))
        }
        (Type::Object(_), _) => Some("a parameter cannot be a package".to_owned()),
        (Type::Extern(_), ParamOwner::Action) => Some("an action cannot have extern parameters".to_owned()),
        (Type::Text | Type::InfInt | Type::MatchKind | Type::List(_), ParamOwner::Action) => {
            Some(format!("action parameters cannot be {ty}"))
        }
        _ => None,
    }
}
