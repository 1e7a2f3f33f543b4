//! The resolved program: names bound, types assigned, implicit casts explicit, constants folded.
//!
//! Calls of parsers, controls and actions remain calls; the lowering inlines them.

mod ordered;
mod parts;

use crate::ast::{BinaryOp, Direction, UnaryOp};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::{CompositeType, Type};
use num_bigint::BigInt;
use std::collections::HashMap;
use std::rc::Rc;

pub(crate) use ordered::Ordered;

macro_rules! ids {
    ($($name:ident),*) => {
        $(#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u32);)*
    };
}

ids!(
    VarId, ActionId, FunctionId, ExternFnId, ExternId, TableId, InstId, ParserId, ControlId, StateId,
    ValueSetId
);

#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) vars: Vec<Var>,
    pub(crate) actions: Vec<Rc<Routine>>,
    pub(crate) functions: Vec<Rc<Routine>>,
    pub(crate) extern_fns: Vec<ExternFn>,
    pub(crate) externs: Vec<Extern>,
    pub(crate) tables: Vec<Rc<Table>>,
    pub(crate) instances: Vec<Rc<Instance>>,
    pub(crate) parsers: Vec<Rc<Parser>>,
    pub(crate) controls: Vec<Rc<Control>>,
    pub(crate) errors: Vec<Name>,
    pub(crate) value_sets: Vec<ValueSet>,
    /// The header types of the top level that are not generic.
    pub(crate) headers: Vec<Rc<CompositeType>>,
    /// The values in brackets behind annotations, by location.
    pub(crate) annotation_values: HashMap<Span, Expr>,
    /// The numbers in `@field_list` of each field that has it, by type and index.
    pub(crate) field_lists: HashMap<(u32, usize), Vec<u32>>,
    /// The `@name`s of declarations.
    pub(crate) control_names: crate::control_names::ControlNames,
    /// The instance called `main`.
    pub(crate) main: Option<InstId>,
}

/// A variable or a parameter.
#[derive(Debug)]
pub(crate) struct Var {
    pub(crate) name: Name,
    pub(crate) ty: Type,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) var: VarId,
    pub(crate) name: Name,
    pub(crate) direction: Direction,
    pub(crate) ty: Type,
    pub(crate) default: Option<Expr>,
    pub(crate) optional: bool,
    pub(crate) span: Span,
}

/// An action or a function.
#[derive(Debug)]
pub(crate) struct Routine {
    pub(crate) name: Name,
    pub(crate) span: Span,
    /// Its name in the control plane: the declared name, or the value of `@name`.
    pub(crate) control_name: Name,
    /// Declared within a control, whose name prefixes the name in the control plane.
    pub(crate) local: bool,
    pub(crate) params: Vec<Param>,
    pub(crate) result: Type,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Clone, Debug)]
pub(crate) struct ExternFn {
    pub(crate) name: Name,
    pub(crate) span: Span,
    /// Marked with `@compartment`.
    pub(crate) placed: bool,
    /// Numbers of its type parameters.
    pub(crate) type_params: Vec<u32>,
    pub(crate) params: Vec<Param>,
    pub(crate) result: Type,
}

#[derive(Debug)]
pub(crate) struct Extern {
    pub(crate) name: Name,
    pub(crate) type_params: Vec<u32>,
    pub(crate) constructors: Vec<Vec<Param>>,
    pub(crate) methods: Vec<ExternFn>,
    /// Abstract methods: indices into `methods`, and whether instances may omit them.
    pub(crate) abstracts: Vec<(usize, bool)>,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: Name,
    pub(crate) span: Span,
    pub(crate) ty: Type,
    pub(crate) what: Constructed,
    pub(crate) args: Vec<CtorArg>,
    /// Implementations of abstract methods: index of the method, function.
    #[expect(dead_code, reason = "the lowering refuses calls of abstract methods")]
    pub(crate) methods: Vec<(usize, FunctionId)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Constructed {
    Extern,
    Parser(ParserId),
    Control(ControlId),
    Package,
}

#[derive(Clone, Debug)]
pub(crate) enum CtorArg {
    Value(Expr),
    Object(Object),
    /// An omitted optional argument.
    Missing,
}

/// An instance, or a parameter that refers to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Instance(InstId),
    Param(VarId),
}

#[derive(Debug)]
pub(crate) struct Parser {
    pub(crate) name: Name,
    pub(crate) span: Span,
    pub(crate) params: Vec<Param>,
    pub(crate) ctor_params: Vec<Param>,
    pub(crate) locals: Vec<Stmt>,
    /// The states; the first is `start`.
    pub(crate) states: Vec<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) name: Name,
    pub(crate) span: Span,
    pub(crate) body: Vec<Stmt>,
    pub(crate) next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Accept,
    Reject,
    State(StateId),
}

#[derive(Debug)]
pub(crate) enum Next {
    To(Target),
    Select { subjects: Vec<Expr>, cases: Vec<(Vec<Keyset>, Target)>, span: Span },
}

/// A parser value set, whose members the control plane sets.
#[derive(Clone, Debug)]
pub(crate) struct ValueSet {
    pub(crate) name: Name,
    pub(crate) span: Span,
    pub(crate) ty: Type,
    /// The scalars of its type, in order.
    pub(crate) keys: Vec<Type>,
    /// The match kind of each scalar.
    pub(crate) kinds: Vec<MatchKind>,
    pub(crate) size: u32,
}

/// The values that one key matches.
#[derive(Clone, Debug)]
pub(crate) enum Keyset {
    Any,
    Value(Expr),
    Mask(Expr, Expr),
    Range(Expr, Expr),
    /// A parser value set. It matches all keys of its keyset at once and takes the position of the
    /// first; the other positions are [`Keyset::Any`].
    Set(ValueSetId),
}

#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) name: Name,
    pub(crate) params: Vec<Param>,
    pub(crate) ctor_params: Vec<Param>,
    pub(crate) locals: Vec<Stmt>,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchKind {
    Exact,
    Lpm,
    Ternary,
    Range,
    Optional,
    Selector,
    /// A match kind that the program or an architecture declares.
    Other,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Its name in the control plane: the declared name, or the value of `@name`.
    pub(crate) name: Name,
    /// The declared name.
    pub(crate) declared: Name,
    pub(crate) span: Span,
    pub(crate) keys: Vec<Key>,
    /// The start of the property `key`.
    pub(crate) key_span: Span,
    pub(crate) actions: Vec<ActionUse>,
    pub(crate) default: Option<BoundAction>,
    pub(crate) default_is_const: bool,
    pub(crate) entries: Vec<Entry>,
    pub(crate) entries_are_const: bool,
    pub(crate) size: Option<u32>,
    /// Properties that the language leaves to architectures, such as `implementation` or `counters`.
    pub(crate) properties: Vec<Property>,
}

impl Table {
    /// Returns the instance that a property names.
    pub(crate) fn instance_property(&self, name: &str) -> Option<InstId> {
        let p = self.properties.iter().find(|p| &*p.name == name)?;
        if let CtorArg::Object(Object::Instance(id)) = p.value { Some(id) } else { None }
    }
}

/// A table property that the architecture defines.
#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub(crate) name: Name,
    pub(crate) span: Span,
    pub(crate) value: CtorArg,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) value: Expr,
    pub(crate) kind: MatchKind,
    pub(crate) kind_name: Name,
    /// The location of the match kind.
    pub(crate) kind_span: Span,
    /// Its path as written, or its `@name`.
    pub(crate) name: String,
    /// Whether it has a `@name`.
    pub(crate) is_named: bool,
}

/// An action in a table's list: arguments for its parameters with a direction. Entries supply the
/// other parameters.
#[derive(Clone, Debug)]
pub(crate) struct ActionUse {
    pub(crate) action: ActionId,
    pub(crate) args: Ordered<CallArg>,
    /// The arguments as written: entries may repeat them.
    pub(crate) written: Vec<crate::ast::Arg>,
    /// `@defaultonly`, `@tableonly`
    pub(crate) default_only: bool,
    pub(crate) table_only: bool,
    pub(crate) span: Span,
}

/// An action with all its arguments.
#[derive(Clone, Debug)]
pub(crate) struct BoundAction {
    /// Index into the table's actions.
    pub(crate) index: usize,
    pub(crate) data: Vec<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) keys: Vec<Keyset>,
    pub(crate) action: BoundAction,
    /// As written; `None` if it follows from the order.
    pub(crate) priority: Option<BigInt>,
    /// The value of the older annotation `@priority`: the smallest wins.
    pub(crate) rank: Option<u32>,
    #[expect(dead_code, reason = "the lowering does not restrict the control plane's changes yet")]
    pub(crate) is_const: bool,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) ty: Type,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// The number of a value of integer, bool, enum or error type.
    Const(BigInt),
    Text(Name),
    /// An object that the default of a parameter constructs.
    Object(Object),
    Var(VarId),
    Field(Box<Expr>, usize),
    /// An element of a header stack.
    Element(Box<Expr>, Box<Expr>),
    /// `stack.next`, `stack.last`
    StackNext(Box<Expr>),
    StackLast(Box<Expr>),
    /// `stack.lastIndex`
    StackLastIndex(Box<Expr>),
    /// Bits `hi` to `lo`.
    Slice(Box<Expr>, u32, u32),
    /// A number of bits from an offset that is known only at run time.
    PlusSlice(Box<Expr>, Box<Expr>, u32),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A cast to the type of this expression.
    Cast(Box<Expr>),
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    /// All fields of a struct, header or tuple.
    Aggregate(Ordered<Expr>),
    /// `{#}`
    InvalidHeader,
    IsValid(Box<Expr>),
    /// `t.apply().hit`, or `.miss`
    TableHit {
        table: TableId,
        miss: bool,
    },
    Call(Box<Call>),
    /// The result of an error that has been reported.
    Bad,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    pub(crate) type_args: Vec<Type>,
    pub(crate) args: Ordered<CallArg>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Callee {
    Extern(ExternFnId),
    Function(FunctionId),
    Action(ActionId),
    Method {
        object: Object,
        of: ExternId,
        method: usize,
    },
    /// A parser or a control.
    Apply(Object),
    Table(TableId),
    SetValid(Expr),
    SetInvalid(Expr),
    /// `push_front` by a number of elements, or `pop_front` if `front` is false.
    Push {
        stack: Expr,
        count: u32,
        front: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum CallArg {
    In(Expr),
    /// An l-value.
    Out(Expr),
    InOut(Expr),
    Object(Object),
    /// `_`, or an omitted optional argument.
    Skip,
}

impl CallArg {
    /// Returns the expression, if there is one.
    pub(crate) const fn expr(&self) -> Option<&Expr> {
        match self {
            Self::In(e) | Self::Out(e) | Self::InOut(e) => Some(e),
            Self::Object(_) | Self::Skip => None,
        }
    }

    /// Whether the evaluation of the argument may change a variable.
    pub(crate) fn has_effect(&self) -> bool {
        self.expr().is_some_and(Expr::has_effect)
    }

    /// Whether the argument has a value that is known only at run time.
    pub(crate) fn is_runtime(&self) -> bool {
        self.expr().is_some_and(|e| e.as_const().is_none() && e.ty.is_runtime())
    }

    /// Replaces the expression of an argument that has one.
    pub(crate) fn with_expr(self, kind: ExprKind) -> Self {
        match self {
            Self::In(e) => Self::In(Expr { kind, ..e }),
            Self::Out(e) => Self::Out(Expr { kind, ..e }),
            Self::InOut(e) => Self::InOut(Expr { kind, ..e }),
            other => other,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) span: Span,
}

/// Labels and body of a case; `None` is `default`.
pub(crate) type Case<T> = (Vec<Option<T>>, Vec<Stmt>);

#[derive(Clone, Debug)]
pub(crate) enum StmtKind {
    Declare(VarId, Option<Expr>),
    Instance,
    Assign(Expr, Expr),
    /// `target op= ...`: in `value`, the variable refers to the target's value. The target is
    /// evaluated once.
    Update {
        target: Expr,
        old: VarId,
        value: Expr,
    },
    Call(Call),
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    Block(Vec<Stmt>),
    Return(Option<Expr>),
    Exit,
    Break,
    Continue,
    /// `for (init; condition; update)`
    For {
        init: Vec<Stmt>,
        condition: Expr,
        update: Vec<Stmt>,
        body: Vec<Stmt>,
    },
    /// `for (variable in low .. high)`
    ForRange {
        variable: VarId,
        low: Expr,
        high: Expr,
        body: Vec<Stmt>,
    },
    /// `for (variable in array)`
    ForEach {
        variable: VarId,
        array: Expr,
        body: Vec<Stmt>,
    },
    /// `switch` on the executed action; the labels are indices into the table's actions.
    SwitchAction {
        table: TableId,
        cases: Vec<Case<usize>>,
    },
    SwitchValue {
        subject: Expr,
        cases: Vec<Case<Expr>>,
    },
}
