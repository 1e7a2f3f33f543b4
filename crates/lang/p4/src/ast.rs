//! The syntax tree: the program as written, with no name resolved.
//!
//! It covers the whole P4_16 grammar (language version 1.2.5), including constructs that later
//! stages do not support yet.

use crate::lexer::{Name, Token};
use crate::source::Span;
use num_bigint::BigInt;

/// A name where it is declared or used.
#[derive(Clone, Debug)]
pub(crate) struct Ident {
    pub(crate) name: Name,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub(crate) name: Ident,
    /// The tokens between the parentheses or brackets.
    pub(crate) body: Vec<Token>,
    /// The elements of the bracket form: values, or names with values.
    pub(crate) elements: Option<Vec<(Option<Ident>, Expr)>>,
}

#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) decls: Vec<Decl>,
}

#[derive(Clone, Debug)]
pub(crate) struct Decl {
    pub(crate) span: Span,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) name: Ident,
    pub(crate) kind: DeclKind,
}

#[derive(Clone, Debug)]
pub(crate) enum DeclKind {
    Const {
        ty: TypeExpr,
        value: Expr,
    },
    Variable {
        ty: TypeExpr,
        init: Option<Expr>,
    },
    /// `T(args) name;`, with `= { ... }` for abstract methods.
    Instance {
        ty: TypeExpr,
        args: Vec<Arg>,
        /// `T(args) name[size];`
        array: Option<Expr>,
        init: Option<Vec<Decl>>,
    },
    Extern {
        type_params: Vec<Ident>,
        methods: Vec<Method>,
    },
    ExternFunction(Prototype),
    Function {
        proto: Prototype,
        body: Block,
    },
    Action {
        params: Vec<Param>,
        body: Block,
    },
    Parser(Box<ParserDecl>),
    Control(Box<ControlDecl>),
    /// A signature without a body: `parser P<H>(...);`.
    ObjectType {
        kind: ObjectKind,
        type_params: Vec<Ident>,
        params: Vec<Param>,
    },
    Composite {
        kind: Composite,
        type_params: Vec<Ident>,
        fields: Vec<Field>,
    },
    Enum {
        repr: Option<TypeExpr>,
        members: Vec<(Ident, Option<Expr>)>,
    },
    Errors(Vec<Ident>),
    MatchKinds(Vec<Ident>),
    /// `typedef`, or `type` if distinct.
    Typedef {
        target: TypedefTarget,
        distinct: bool,
    },
    ValueSet {
        ty: TypeExpr,
        size: Expr,
    },
    Table(Vec<Property>),
}

#[derive(Clone, Debug)]
pub(crate) enum TypedefTarget {
    Type(TypeExpr),
    /// `typedef struct S { ... } T;`
    Decl(Box<Decl>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Composite {
    Struct,
    Header,
    Union,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Parser,
    Control,
    Package,
}

impl ObjectKind {
    pub(crate) const fn keyword(self) -> &'static str {
        match self {
            Self::Parser => "parser",
            Self::Control => "control",
            Self::Package => "package",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) name: Ident,
    pub(crate) ty: TypeExpr,
}

#[derive(Clone, Debug)]
pub(crate) struct Prototype {
    /// `None` for a constructor.
    pub(crate) result: Option<TypeExpr>,
    pub(crate) type_params: Vec<Ident>,
    pub(crate) params: Vec<Param>,
}

#[derive(Clone, Debug)]
pub(crate) struct Method {
    pub(crate) name: Ident,
    pub(crate) proto: Prototype,
    pub(crate) is_abstract: bool,
    /// `@optional`: instances may omit this abstract method.
    pub(crate) optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    None,
    In,
    Out,
    InOut,
}

impl Direction {
    /// Returns the keyword and a space; nothing for a parameter without direction.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::In => "in ",
            Self::Out => "out ",
            Self::InOut => "inout ",
        }
    }

    /// Whether the parameter passes a value back to the caller.
    pub(crate) const fn is_out(self) -> bool {
        matches!(self, Self::Out | Self::InOut)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: Ident,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) direction: Direction,
    pub(crate) ty: TypeExpr,
    pub(crate) default: Option<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) struct ParserDecl {
    pub(crate) type_params: Vec<Ident>,
    pub(crate) params: Vec<Param>,
    pub(crate) ctor_params: Vec<Param>,
    pub(crate) locals: Vec<Decl>,
    pub(crate) states: Vec<State>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) name: Ident,
    pub(crate) body: Vec<Stmt>,
    pub(crate) transition: Option<Transition>,
}

#[derive(Clone, Debug)]
pub(crate) enum Transition {
    Direct(Ident),
    Select { subjects: Vec<Expr>, cases: Vec<(Expr, Ident)>, span: Span },
}

#[derive(Clone, Debug)]
pub(crate) struct ControlDecl {
    pub(crate) type_params: Vec<Ident>,
    pub(crate) params: Vec<Param>,
    pub(crate) ctor_params: Vec<Param>,
    pub(crate) locals: Vec<Decl>,
    pub(crate) body: Block,
}

#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub(crate) span: Span,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) is_const: bool,
    pub(crate) kind: PropertyKind,
}

#[derive(Clone, Debug)]
pub(crate) enum PropertyKind {
    Key(Vec<KeyElement>),
    Actions(Vec<ActionRef>),
    Entries(Vec<Entry>),
    Other { name: Ident, value: Expr },
}

#[derive(Clone, Debug)]
pub(crate) struct KeyElement {
    pub(crate) value: Expr,
    pub(crate) match_kind: Ident,
    pub(crate) annotations: Vec<Annotation>,
}

#[derive(Clone, Debug)]
pub(crate) struct ActionRef {
    pub(crate) annotations: Vec<Annotation>,
    /// A path, or a call of one.
    pub(crate) value: Expr,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) span: Span,
    pub(crate) is_const: bool,
    pub(crate) priority: Option<Expr>,
    pub(crate) keys: Expr,
    pub(crate) action: ActionRef,
}

#[derive(Clone, Debug)]
pub(crate) struct TypeExpr {
    pub(crate) kind: TypeKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum TypeKind {
    /// `bit` is `bit<1>`.
    Bit(Option<Box<Expr>>),
    /// `int` is of any size.
    Int(Option<Box<Expr>>),
    Varbit(Box<Expr>),
    Bool,
    Error,
    MatchKind,
    Text,
    Void,
    DontCare,
    Named {
        name: Ident,
        absolute: bool,
    },
    Specialized {
        name: Ident,
        absolute: bool,
        args: Vec<TypeExpr>,
    },
    Stack(Box<TypeExpr>, Box<Expr>),
    Tuple(Vec<TypeExpr>),
    List(Box<TypeExpr>),
}

#[derive(Clone, Debug)]
pub(crate) struct Arg {
    pub(crate) name: Option<Ident>,
    /// `None` for `_`.
    pub(crate) value: Option<Expr>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Int {
        value: BigInt,
        width: Option<(u32, bool)>,
    },
    Bool(bool),
    Text(Name),
    This,
    /// `...`
    Dots,
    /// `_`
    DontCare,
    /// `default` in a keyset.
    Default,
    /// `{#}`
    Invalid,
    Path {
        name: Ident,
        absolute: bool,
    },
    /// A type in place of an expression: `E.member`, `T(...)`.
    Type(TypeExpr),
    Member(Box<Expr>, Ident),
    Index(Box<Expr>, Box<Expr>),
    /// `e[hi:lo]`
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `e[lo+:width]`
    PlusSlice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `{a, b}`, also the tuples of keysets.
    List(Vec<Expr>),
    /// `{x = a, y = b}`, with `...` at the end if `rest`.
    Struct {
        fields: Vec<(Ident, Expr)>,
        rest: bool,
    },
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(TypeExpr, Box<Expr>),
    Call {
        callee: Box<Expr>,
        type_args: Vec<TypeExpr>,
        args: Vec<Arg>,
    },
    /// `a &&& b`
    Mask(Box<Expr>, Box<Expr>),
    /// `a .. b`
    Range(Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UnaryOp {
    Not,
    Complement,
    Neg,
    Plus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BinaryOp {
    Mul,
    Div,
    Mod,
    Add,
    Sub,
    AddSat,
    SubSat,
    Shl,
    Shr,
    Le,
    Ge,
    Lt,
    Gt,
    Ne,
    Eq,
    BitAnd,
    BitXor,
    BitOr,
    Concat,
    And,
    Or,
}

impl UnaryOp {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Not => "!",
            Self::Complement => "~",
            Self::Neg => "-",
            Self::Plus => "+",
        }
    }
}

impl BinaryOp {
    /// Operators and their precedence, as in the grammar.
    pub(crate) const TABLE: &[(&'static str, Self, u8)] = &[
        ("||", Self::Or, 2),
        ("&&", Self::And, 3),
        ("==", Self::Eq, 4),
        ("!=", Self::Ne, 4),
        ("<", Self::Lt, 5),
        (">", Self::Gt, 5),
        ("<=", Self::Le, 5),
        (">=", Self::Ge, 5),
        ("|", Self::BitOr, 6),
        ("^", Self::BitXor, 7),
        ("&", Self::BitAnd, 8),
        ("<<", Self::Shl, 9),
        (">>", Self::Shr, 9),
        ("++", Self::Concat, 10),
        ("+", Self::Add, 10),
        ("-", Self::Sub, 10),
        ("|+|", Self::AddSat, 10),
        ("|-|", Self::SubSat, 10),
        ("*", Self::Mul, 11),
        ("/", Self::Div, 11),
        ("%", Self::Mod, 11),
    ];

    pub(crate) fn text(self) -> &'static str {
        Self::TABLE.iter().find(|(_, op, _)| *op == self).map_or("?", |(t, _, _)| t)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) stmts: Vec<Stmt>,
}

#[derive(Clone, Debug)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum StmtKind {
    Empty,
    Assign { target: Expr, op: Option<BinaryOp>, value: Expr },
    Call(Expr),
    If { condition: Expr, then: Box<Stmt>, otherwise: Option<Box<Stmt>> },
    Block(Block),
    Return(Option<Expr>),
    Exit,
    Break,
    Continue,
    Switch { subject: Expr, cases: Vec<SwitchCase> },
    For { init: Vec<Stmt>, condition: Expr, update: Vec<Stmt>, body: Box<Stmt> },
    ForIn { ty: TypeExpr, name: Ident, from: Expr, to: Option<Expr>, body: Box<Stmt> },
    Decl(Box<Decl>),
}

#[derive(Clone, Debug)]
pub(crate) struct SwitchCase {
    /// [`ExprKind::Default`] for `default`.
    pub(crate) label: Expr,
    /// `None` falls through to the next case.
    pub(crate) body: Option<Block>,
}
