//! The checker: name resolution and type checking, syntax tree to [`crate::hir`].
//!
//! It works in one pass in the order of declarations, since P4 requires names to be declared before their
//! use (except parser states). An erroneous expression gets the type [`Type::Bad`], which is compatible
//! with every type, so that one error causes one report. The result goes to `lint` and `lower`.

mod annotations;
mod argument_list;
mod arguments;
mod assign;
mod calls;
mod coerce;
mod control;
mod decls;
mod defaults;
mod depth;
mod enums;
mod expr;
pub(crate) mod fold;
mod infer;
mod instances;
mod key_names;
mod members;
mod methods;
mod objects;
mod operators;
mod params;
mod parsers;
mod size;
mod stmt;
mod tables;
mod templates;
mod types;

use crate::ast::{self, ObjectKind};
use crate::control_names::ControlNames;
use crate::diagnostics::{Code, Diagnostic, Sink};
use crate::hir::{
    self, ActionId, Constructed, Expr, ExternFnId, ExternId, FunctionId, InstId, TableId, ValueSetId, VarId,
};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::{CompositeType, ObjectType, Type};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// The meaning of a name.
#[derive(Clone, Debug)]
enum Symbol {
    Const(Expr),
    Var(VarId),
    Type(TypeSymbol),
    /// Overloads.
    ExternFns(Vec<ExternFnId>),
    /// Overloads.
    Functions(Vec<Rc<FunctionDecl>>),
    Action(ActionId),
    Table(TableId),
    Instance(InstId),
    /// With the type of its members.
    ValueSet(ValueSetId, Type),
    /// Unresolved, because its declaration is invalid or not supported.
    Bad,
}

#[derive(Clone, Debug)]
enum TypeSymbol {
    Plain(Type),
    /// A struct or header with type parameters, by number.
    Generic(Rc<CompositeType>, Vec<u32>),
    Extern(ExternId),
    /// A parser or control with a body.
    Object(Vec<Rc<ObjectDecl>>),
    /// A parser or control type with type parameters.
    Signature(Rc<ObjectType>, Vec<u32>),
    /// Overloads.
    Package(Vec<Rc<PackageType>>),
}

/// A function. A function with type parameters is checked again for each list of type arguments.
#[derive(Debug)]
struct FunctionDecl {
    name: Name,
    type_params: Vec<u32>,
    params: Vec<hir::Param>,
    result: Type,
    id: FunctionId,
    template: Option<templates::Template>,
}

/// A parser or control; type parameters are treated as in [`FunctionDecl`].
#[derive(Debug)]
struct ObjectDecl {
    kind: ObjectKind,
    name: Name,
    type_params: Vec<u32>,
    params: Vec<hir::Param>,
    ctor_params: Vec<hir::Param>,
    what: Constructed,
    template: Option<templates::Template>,
}

#[derive(Debug)]
struct PackageType {
    name: Name,
    type_params: Vec<u32>,
    params: Vec<hir::Param>,
}

/// Maximum number of names that are compared to suggest similar ones.
const MAX_HINTS: usize = 200_000;

struct ScopeEntry {
    symbol: Symbol,
    span: Span,
}

/// The context of the statements that are being checked.
#[derive(Clone, Debug, PartialEq)]
enum ScopeKind {
    Top,
    /// The declarations of a control and its `apply`.
    Control,
    Apply,
    Parser,
    Action,
    /// A function, with its result type.
    Function(Type),
}

struct Checker<'a> {
    sink: &'a mut Sink,
    program: hir::Program,
    scopes: Vec<HashMap<Name, ScopeEntry>>,
    match_kinds: Vec<Name>,
    /// Match kinds of value set members, from `@match` on struct fields, by struct and field index.
    matched_by: HashMap<(u32, usize), hir::MatchKind>,
    next_id: u32,
    scope_kind: ScopeKind,
    /// Number of loops around the current statement.
    loops: usize,
    /// The instance whose abstract methods are being checked.
    this: Option<(Name, Type)>,
    /// Parameters that cannot be assigned, because they are not `out` or `inout`.
    read_only: HashSet<VarId>,
    /// Constructor parameters, whose values are known after instantiation.
    ctor_vars: HashSet<VarId>,
    /// Control-plane names of top-level actions.
    action_names: HashMap<String, Span>,
    /// Parameters of the enclosing parser or control, which its variables must not shadow.
    object_params: HashSet<VarId>,
    /// The rest of the budget [`MAX_HINTS`].
    hints: usize,
    /// The depth of the current location within blocks and expressions, and of its calls.
    depth: depth::Depth,
    /// The rest of the budget [`size::MAX_WORK`].
    type_work: usize,
}

/// The result of a failed check, which causes no further errors.
trait Refused {
    fn refused(span: Span) -> Self;
}

impl Refused for Expr {
    fn refused(span: Span) -> Self {
        Self::bad(span)
    }
}

impl Refused for Type {
    fn refused(_: Span) -> Self {
        Self::Bad
    }
}

impl Refused for bool {
    fn refused(_: Span) -> Self {
        false
    }
}

impl<T> Refused for Option<T> {
    fn refused(_: Span) -> Self {
        None
    }
}

/// Checks a program. The result is complete only if no error was reported.
pub(crate) fn check(program: &ast::Program, sink: &mut Sink) -> hir::Program {
    let mut c = Checker {
        sink,
        program: hir::Program { control_names: ControlNames::new(program), ..hir::Program::default() },
        scopes: vec![HashMap::new()],
        match_kinds: Vec::new(),
        matched_by: HashMap::new(),
        next_id: 0,
        scope_kind: ScopeKind::Top,
        loops: 0,
        this: None,
        read_only: HashSet::new(),
        ctor_vars: HashSet::new(),
        action_names: HashMap::new(),
        object_params: HashSet::new(),
        hints: MAX_HINTS,
        depth: depth::Depth::default(),
        type_work: size::MAX_WORK,
    };
    for d in &program.decls {
        c.declaration(d);
    }
    c.program
}

impl Checker<'_> {
    /// Reports an error or a warning.
    fn error(&mut self, code: Code, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.sink.report(code, span, message, hint);
    }

    /// Reports an error and returns the result of a failed check.
    fn refuse<R: Refused>(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> R {
        self.error(code, span, message, hint);
        R::refused(span)
    }

    const fn fresh(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(HashMap::new());
        self.depth.now += 1;
        let r = f(self);
        self.depth.now -= 1;
        self.scopes.pop();
        r
    }

    fn lookup(&self, name: &str, absolute: bool) -> Option<&Symbol> {
        let scopes = if absolute { &self.scopes[..1] } else { &self.scopes[..] };
        scopes.iter().rev().find_map(|s| s.get(name)).map(|e| &e.symbol)
    }

    /// Returns the symbol that an expression names, if it is a name.
    fn symbol_of(&self, e: &ast::Expr) -> Option<&Symbol> {
        let ast::ExprKind::Path { name, absolute } = &e.kind else { return None };
        self.lookup(&name.name, *absolute)
    }

    /// Returns the symbol of a name; reports an unknown name.
    fn resolve(&mut self, name: &ast::Ident, absolute: bool) -> Symbol {
        if let Some(s) = self.lookup(&name.name, absolute) {
            return s.clone();
        }
        let hint = match self.similar(&name.name) {
            Some(s) => format!("did you mean `{s}`?"),
            None => "declare it before its use, or include the file that declares it".to_owned(),
        };
        self.error(Code::UnknownName, name.span, format!("`{}` is not declared", name.name), hint);
        Symbol::Bad
    }

    /// Returns a declared name that is similar.
    fn similar(&mut self, name: &str) -> Option<Name> {
        let known: usize = self.scopes.iter().map(HashMap::len).sum();
        self.hints = self.hints.checked_sub(known)?;
        let candidates = self.scopes.iter().flat_map(|s| s.keys());
        closest(name, candidates.map(|n| &**n)).map(Into::into)
    }

    fn declare(&mut self, name: &ast::Ident, symbol: Symbol) {
        let scope = self.scopes.len() - 1;
        if scope == 0 && &*name.name == "main" && matches!(symbol, Symbol::Type(_)) {
            let hint = "rename it: `main` must be the instance of the architecture's package";
            self.error(Code::BadMain, name.span, "`main` is not an instance of a package", hint);
        }
        if let Some(old) = self.scopes[scope].get(&name.name) {
            let old = old.span;
            return self.declared_twice(name, old);
        }
        self.scopes[scope].insert(name.name.clone(), ScopeEntry { symbol, span: name.span });
    }

    /// Replaces the symbol of a top-level name by one with another overload.
    fn redeclare(&mut self, name: &ast::Ident, symbol: Symbol) {
        if let Some(e) = self.scopes[0].get_mut(&name.name) {
            e.symbol = symbol;
        }
    }

    /// Reports a top-level name whose declaration is no new overload.
    fn overloaded_twice(&mut self, name: &ast::Ident) {
        let first = self.scopes[0].get(&name.name).map(|e| e.span).unwrap_or_default();
        self.declared_twice(name, first);
    }

    fn declared_twice(&mut self, name: &ast::Ident, first: Span) {
        let d = Diagnostic::new(Code::DuplicateName, name.span, format!("`{}` is declared twice", name.name));
        self.sink.add(d.related(first, "first declared here").hint("choose another name"));
    }

    /// Warns if the next declaration shadows a value of an enclosing scope. Types and functions
    /// are excluded: the models declare many, and no reader mistakes them for a variable.
    fn warn_shadowing(&mut self, name: &ast::Ident) {
        let Some((top, inner)) = self.scopes.split_first() else { return };
        let around = inner.split_last().map_or(inner, |(_, around)| around);
        let local = around.iter().rev().find_map(|s| s.get(&name.name));
        let hidden = local.filter(|e| !matches!(e.symbol, Symbol::Type(_) | Symbol::Bad));
        let global = || top.get(&name.name).filter(|e| matches!(e.symbol, Symbol::Const(_)));
        if let Some(old) = hidden.or_else(global) {
            let message = format!("`{}` shadows another `{}`", name.name, name.name);
            let d = Diagnostic::new(Code::Shadowing, name.span, message);
            self.sink.add(d.related(old.span, "the shadowed declaration").hint("choose another name"));
        }
    }

    /// Runs `f` in a body of this kind.
    fn within<T>(&mut self, kind: ScopeKind, f: impl FnOnce(&mut Self) -> T) -> T {
        let saved = std::mem::replace(&mut self.scope_kind, kind);
        let r = f(self);
        self.scope_kind = saved;
        r
    }

    /// Runs `f` in the top-level scope.
    fn at_top_level<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let inner = self.scopes.split_off(1);
        let scope_kind = std::mem::replace(&mut self.scope_kind, ScopeKind::Top);
        let (loops, this) = (std::mem::take(&mut self.loops), self.this.take());
        let r = f(self);
        self.scopes.truncate(1);
        self.scopes.extend(inner);
        (self.scope_kind, self.loops, self.this) = (scope_kind, loops, this);
        r
    }

    fn new_var(&mut self, name: &ast::Ident, ty: Type) -> VarId {
        self.program.vars.push(hir::Var { name: name.name.clone(), ty, span: name.span });
        VarId(self.program.vars.len() as u32 - 1)
    }

    fn var_type(&self, v: VarId) -> &Type {
        &self.program.vars[v.0 as usize].ty
    }
}

/// Returns the name among `candidates` that is at most two edits away from `name`, if any.
fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Short names are similar to everything.
    let limit = (name.len() / 3).min(2);
    let lower = str::to_ascii_lowercase;
    let near = candidates.filter(|c| c.len().abs_diff(name.len()) <= limit && name.len() < 64);
    near.map(|c| (strsim::levenshtein(&lower(name), &lower(c)), c))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}
