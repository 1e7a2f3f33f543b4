//! Type arguments out of the types of arguments.

use crate::types::Type;
use std::collections::{HashMap, HashSet};

/// What type parameters were found to be.
#[derive(Debug, Default)]
pub(super) struct Inference {
    found: HashMap<u32, Type>,
    /// Those that the author wrote.
    written: HashSet<u32>,
    /// Those that only parameters without argument mention.
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

    /// Notes that a parameter of this type has no argument.
    pub(super) fn idle(&mut self, ty: &Type) {
        if let Type::Var(id, _) = ty {
            self.idle.insert(*id);
        }
    }

    /// Whether nothing tells about a type parameter, and nothing needs to.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        self.idle.contains(&id)
    }

    pub(super) fn apply(&self, ty: &Type) -> Type {
        ty.substitute(&|id| self.found.get(&id).cloned())
    }

    /// Learns from an argument of type `have` for a parameter of type `want`. Whether they fit in the end is for the
    /// caller to check.
    pub(super) fn learn(&mut self, want: &Type, have: &Type) {
        match (want, have) {
            (Type::Var(..), Type::Bad) => {}
            // A literal without a width tells little about the type, an earlier or later argument may tell more.
            (Type::Var(id, _), Type::InfInt) => {
                self.found.entry(*id).or_insert(Type::InfInt);
            }
            (Type::Var(id, _), t) => match self.found.get(id) {
                // What was found with numbers of no width in it is refined by what has widths.
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

/// Whether a type holds integers without a width.
fn has_unsized(t: &Type) -> bool {
    match t {
        Type::InfInt => true,
        Type::Tuple(ts) => ts.iter().any(has_unsized),
        Type::List(t) | Type::Stack(t, _) => has_unsized(t),
        _ => false,
    }
}
