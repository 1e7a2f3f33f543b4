//! Type inference: type arguments as written, and inferred from the types of arguments.

use super::Checker;
use super::argument_list::{ArgumentList, count};
use crate::ast;
use crate::diagnostics::Code;
use crate::hir::{self, CallArg, Ordered};
use crate::types::Type;
use std::collections::{HashMap, HashSet};

/// The type arguments inferred so far.
#[derive(Debug, Default)]
pub(super) struct Inference {
    found: HashMap<u32, Type>,
    /// Type parameters whose arguments the author wrote.
    written: HashSet<u32>,
    /// Type parameters that occur only in parameters without an argument.
    idle: HashSet<u32>,
}

impl Inference {
    pub(super) fn set(&mut self, id: u32, ty: Type) {
        self.found.insert(id, ty);
        self.written.insert(id);
    }

    pub(super) fn get(&self, id: u32) -> Option<&Type> {
        self.found.get(&id)
    }

    /// Records that a parameter of this type has no argument.
    pub(super) fn idle(&mut self, ty: &Type) {
        if let Type::Var(id, _) = ty {
            self.idle.insert(*id);
        }
    }

    /// Whether a type parameter has no inferred type and needs none.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        self.idle.contains(&id)
    }

    pub(super) fn apply(&self, ty: &Type) -> Type {
        ty.substitute(&|id| self.found.get(&id).cloned())
    }

    /// Infers type arguments from an argument of type `have` for a parameter of type `want`.
    /// The caller checks whether the types match in the end.
    pub(super) fn learn(&mut self, want: &Type, have: &Type) {
        match (want, have) {
            (Type::Var(..), Type::Bad) => {}
            // A literal without a width determines little; an earlier or later argument
            // may determine more.
            (Type::Var(id, _), Type::InfInt) => {
                self.found.entry(*id).or_insert(Type::InfInt);
            }
            (Type::Var(id, _), t) => match self.found.get(id) {
                // A type that contains numbers without a width is refined by one with widths.
                Some(old) if !has_unsized(old) || self.written.contains(id) => {}
                _ => {
                    self.found.insert(*id, t.clone());
                }
            },
            (Type::Stack(a, _), Type::Stack(b, _)) => self.learn(a, b),
            (Type::List(a), Type::List(b)) => self.learn(a, b),
            (Type::List(a), Type::Tuple(b)) => b.iter().for_each(|b| self.learn(a, b)),
            (Type::Composite(a), Type::Tuple(b)) => {
                a.fields.iter().zip(b.iter()).for_each(|((_, a), b)| self.learn(a, b));
            }
            (Type::Composite(a), Type::Composite(b)) if b.is_anonymous() => {
                for (n, a) in &a.fields {
                    if let Some((_, b)) = b.field(n) {
                        self.learn(a, b);
                    }
                }
            }
            (Type::Tuple(a), Type::Tuple(b)) => a.iter().zip(b.iter()).for_each(|(a, b)| self.learn(a, b)),
            (Type::Composite(a), Type::Composite(b)) if a.id == b.id => {
                a.args.iter().zip(&b.args).for_each(|(a, b)| self.learn(a, b));
            }
            (Type::Extern(a), Type::Extern(b)) if a.id == b.id => {
                a.args.iter().zip(&b.args).for_each(|(a, b)| self.learn(a, b));
            }
            (Type::Object(a), Type::Object(b)) => {
                a.params.iter().zip(&b.params).for_each(|(a, b)| self.learn(&a.ty, &b.ty));
            }
            _ => {}
        }
    }
}

/// Whether a type contains integers without a width.
fn has_unsized(t: &Type) -> bool {
    match t {
        Type::InfInt => true,
        Type::Tuple(ts) => ts.iter().any(has_unsized),
        Type::List(t) | Type::Stack(t, _) => has_unsized(t),
        _ => false,
    }
}

impl Checker<'_> {
    /// Binds arguments and type arguments of a call; reports type arguments that are neither
    /// written nor inferable.
    pub(super) fn typed_arguments(
        &mut self,
        name: &str,
        type_params: &[u32],
        params: &[hir::Param],
        w: ArgumentList<'_>,
        inference: &mut Inference,
    ) -> Option<(Ordered<CallArg>, Vec<Type>)> {
        self.written_types(name, type_params, w, inference)?;
        let args = self.bind(name, params, w, inference)?;
        let one = |p: &u32| inference.get(*p).cloned().or_else(|| inference.is_idle(*p).then_some(Type::Bad));
        let types: Option<Vec<Type>> = type_params.iter().map(one).collect();
        if types.is_none() {
            let message = format!("cannot infer the type arguments of `{name}`");
            self.error(Code::CannotInfer, w.span, message, format!("write {name}<T>(...)"));
        }
        Some((args, types?))
    }

    fn written_types(
        &mut self,
        name: &str,
        params: &[u32],
        w: ArgumentList<'_>,
        inference: &mut Inference,
    ) -> Option<()> {
        let given = w.type_args.len();
        if given != 0 && given != params.len() {
            let message = format!("`{name}` takes {}, found {given}", count(params.len(), "type argument"));
            let hint = "omit the type arguments, or write all of them";
            return self.refuse(Code::BadArguments, w.span, message, hint);
        }
        for (id, t) in params.iter().zip(w.type_args) {
            if !matches!(t.kind, ast::TypeKind::DontCare) {
                let ty = self.type_args(std::slice::from_ref(t)).pop().unwrap_or(Type::Bad);
                if ty.is_bad() {
                    return None;
                }
                inference.set(*id, ty);
            }
        }
        Some(())
    }
}
