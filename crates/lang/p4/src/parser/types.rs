//! Parsing of types and type parameters.

use super::{Parsed, Parser};
use crate::ast::{Expr, Ident, TypeExpr, TypeKind};
use crate::lexer::Tok;
use crate::source::Span;

impl Parser<'_> {
    /// Parses a type, including `void` and `_`; the checker reports them where they are not allowed.
    pub(super) fn type_expr(&mut self) -> Parsed<TypeExpr> {
        self.nested(Self::type_here)
    }

    fn type_here(&mut self) -> Parsed<TypeExpr> {
        let start = self.span();
        let kind = match self.tok().clone() {
            Tok::Word("bit") => self.base(|w| TypeKind::Bit(w.map(Box::new)))?,
            Tok::Word("int") => self.base(|w| TypeKind::Int(w.map(Box::new)))?,
            Tok::Word("varbit") => {
                self.bump();
                TypeKind::Varbit(Box::new(self.width()?))
            }
            Tok::Word("tuple") => {
                self.bump();
                TypeKind::Tuple(self.type_args()?)
            }
            Tok::Word("list") if *self.peek_at(1) == Tok::Sym("<") => {
                self.bump();
                self.expect("<")?;
                let element = self.type_expr()?;
                self.expect(">")?;
                TypeKind::List(Box::new(element))
            }
            Tok::Word(w @ ("bool" | "error" | "match_kind" | "string" | "void" | "_")) => {
                self.bump();
                match w {
                    "bool" => TypeKind::Bool,
                    "error" => TypeKind::Error,
                    "match_kind" => TypeKind::MatchKind,
                    "string" => TypeKind::Text,
                    "void" => TypeKind::Void,
                    _ => TypeKind::DontCare,
                }
            }
            _ => {
                let absolute = self.eat(".");
                if self.name_here().is_none() {
                    return Err(self.unexpected("a type"));
                }
                let name = self.name()?;
                if self.is("<") {
                    TypeKind::Specialized { name, absolute, args: self.type_args()? }
                } else {
                    TypeKind::Named { name, absolute }
                }
            }
        };
        let ty = TypeExpr { kind, span: self.since(start) };
        self.stacks_of(ty, start)
    }

    /// Parses any number of `[size]` behind a type, each of which nests the type.
    pub(super) fn stacks_of(&mut self, mut ty: TypeExpr, start: Span) -> Parsed<TypeExpr> {
        let mut chain = 0;
        while self.is("[") {
            chain += 1;
            self.check_chain(chain)?;
            let kind = TypeKind::Stack(Box::new(ty), Box::new(self.bracketed()?));
            ty = TypeExpr { kind, span: self.since(start) };
        }
        Ok(ty)
    }

    /// Parses `[value]`.
    pub(super) fn bracketed(&mut self) -> Parsed<Expr> {
        self.expect("[")?;
        let value = self.expr()?;
        self.expect("]")?;
        Ok(value)
    }

    fn base(&mut self, make: impl FnOnce(Option<Expr>) -> TypeKind) -> Parsed<TypeKind> {
        self.bump();
        let width = if self.is("<") { Some(self.width()?) } else { None };
        Ok(make(width))
    }

    /// Parses `<width>`: an expression that ends before a bare `>`.
    fn width(&mut self) -> Parsed<Expr> {
        self.expect("<")?;
        let w = self.expr_no_gt()?;
        self.expect(">")?;
        Ok(w)
    }

    /// Parses `<T, ...>`.
    pub(super) fn type_args(&mut self) -> Parsed<Vec<TypeExpr>> {
        self.expect("<")?;
        self.comma_list(">", Self::type_expr)
    }

    /// Parses the `<T, ...>` of a declaration and declares the names as types.
    pub(super) fn type_params(&mut self) -> Parsed<Vec<Ident>> {
        if !self.eat("<") {
            return Ok(Vec::new());
        }
        let params = self.comma_list(">", Self::name)?;
        params.iter().for_each(|p| self.declare_type(p));
        Ok(params)
    }

    /// Whether a type and a name start here: the start of a declaration.
    pub(super) fn at_typed_name(&mut self) -> bool {
        if let Tok::Word("bit" | "int" | "varbit" | "bool" | "tuple" | "string" | "match_kind" | "void") =
            self.tok()
        {
            return true;
        }
        self.looks_like(|p| {
            p.type_expr()?;
            p.name().map(|_| ())
        })
    }
}
