//! The parts of statements and expressions, and the targets of transitions, for walks over the program.

use super::{CallArg, Expr, ExprKind, Next, Stmt, StmtKind, Target};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::Type;
use num_bigint::BigInt;

impl Next {
    pub(crate) fn targets(&self) -> Vec<Target> {
        match self {
            Self::To(t) => vec![*t],
            Self::Select { cases, .. } => cases.iter().map(|(_, t)| *t).collect(),
        }
    }

    /// Returns the indices of the states among the targets.
    pub(crate) fn states(&self) -> impl Iterator<Item = usize> {
        let index = |t| if let Target::State(s) = t { Some(s.0 as usize) } else { None };
        self.targets().into_iter().filter_map(index)
    }
}

impl Stmt {
    /// Returns the expressions of the statement, without those of nested statements and calls.
    pub(crate) fn exprs(&self) -> Vec<&Expr> {
        match &self.kind {
            StmtKind::Declare(_, e) | StmtKind::Return(e) => e.iter().collect(),
            StmtKind::Assign(a, b)
            | StmtKind::Update { target: a, value: b, .. }
            | StmtKind::ForRange { low: a, high: b, .. } => vec![a, b],
            StmtKind::If(e, ..)
            | StmtKind::For { condition: e, .. }
            | StmtKind::ForEach { array: e, .. }
            | StmtKind::SwitchValue { subject: e, .. } => vec![e],
            _ => Vec::new(),
        }
    }

    /// Returns the nested blocks.
    pub(crate) fn blocks(&self) -> Vec<&[Self]> {
        match &self.kind {
            StmtKind::If(_, t, f) => vec![t, f],
            StmtKind::Block(b) | StmtKind::ForRange { body: b, .. } | StmtKind::ForEach { body: b, .. } => {
                vec![b]
            }
            StmtKind::For { init, update, body, .. } => vec![init, body, update],
            StmtKind::SwitchAction { cases, .. } => cases.iter().map(|(_, b)| b.as_slice()).collect(),
            StmtKind::SwitchValue { cases, .. } => cases.iter().map(|(_, b)| b.as_slice()).collect(),
            _ => Vec::new(),
        }
    }
}

impl Expr {
    pub(crate) const fn constant(value: BigInt, ty: Type, span: Span) -> Self {
        Self { kind: ExprKind::Const(value), ty, span }
    }

    pub(crate) const fn bad(span: Span) -> Self {
        Self { kind: ExprKind::Bad, ty: Type::Bad, span }
    }

    /// Returns the direct subexpressions.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Field(a, _)
            | ExprKind::StackNext(a)
            | ExprKind::StackLast(a)
            | ExprKind::StackLastIndex(a)
            | ExprKind::Slice(a, ..)
            | ExprKind::Unary(_, a)
            | ExprKind::Cast(a)
            | ExprKind::IsValid(a) => vec![a],
            ExprKind::Element(a, b) | ExprKind::PlusSlice(a, b, _) | ExprKind::Binary(_, a, b) => vec![a, b],
            ExprKind::Ternary(a, b, c) => vec![a, b, c],
            ExprKind::Aggregate(items) => items.iter().collect(),
            ExprKind::Call(c) => c.args.iter().filter_map(CallArg::expr).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether `f` holds for the expression or a subexpression.
    pub(crate) fn any(&self, f: &dyn Fn(&Self) -> bool) -> bool {
        f(self) || self.parts().into_iter().any(|p| p.any(f))
    }

    /// Whether the evaluation may change a variable: whether it calls anything or applies a table.
    pub(crate) fn has_effect(&self) -> bool {
        self.any(&|e| matches!(e.kind, ExprKind::Call(_) | ExprKind::TableHit { .. }))
    }

    /// Returns the value of a constant.
    pub(crate) const fn as_const(&self) -> Option<&BigInt> {
        match &self.kind {
            ExprKind::Const(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the name of a constant of enum type.
    pub(crate) fn member_name(&self) -> Option<&Name> {
        let (Type::Enum(e), Some(n)) = (self.ty.base(), self.as_const()) else { return None };
        e.members.iter().find(|(_, v)| v == n).map(|(name, _)| name)
    }
}

impl super::Program {
    /// Returns the name of a key in the control plane: that of `@name` behind its match kind, or its path,
    /// whose fields may have `@name`s too.
    pub(crate) fn key_name(&self, k: &super::Key) -> String {
        let path = if k.is_named { None } else { self.control_path(&k.value) };
        path.unwrap_or_else(|| k.name.clone())
    }

    /// Returns the path of an expression in the control plane; `None` if it is no variable, or part of one.
    pub(crate) fn control_path(&self, e: &Expr) -> Option<String> {
        let path = |e| self.control_path(e);
        match &e.kind {
            ExprKind::IsValid(header) => Some(path(header)? + ".$valid$"),
            ExprKind::Element(stack, index) => Some(format!("{}[{}]", path(stack)?, index.as_const()?)),
            ExprKind::Slice(of, high, low) => Some(format!("{}[{high}:{low}]", path(of)?)),
            ExprKind::Var(v) => Some(self.vars[v.0 as usize].name.to_string()),
            ExprKind::Field(of, index) => {
                let Type::Composite(c) = of.ty.base() else { return None };
                Some(self.control_names.field(&path(of)?, &c.name, &c.fields.get(*index)?.0))
            }
            _ => None,
        }
    }
}
