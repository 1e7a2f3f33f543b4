//! Parsing of expressions.

use super::{MAX_CHAIN, MAX_DEPTH, Parsed, Parser};
use crate::ast::{Arg, BinaryOp, Expr, ExprKind, Ident, TypeExpr, TypeKind, UnaryOp};
use crate::lexer::Tok;
use crate::source::Span;

/// The precedence of `?:`, below every binary operator.
const TERNARY: u8 = 1;

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.within(false, TERNARY)
    }

    /// Parses an expression that ends before a bare `>`.
    pub(super) fn expr_no_gt(&mut self) -> Parsed<Expr> {
        self.within(true, TERNARY)
    }

    fn within(&mut self, in_angles: bool, min: u8) -> Parsed<Expr> {
        let saved = std::mem::replace(&mut self.in_angles, in_angles);
        let result = self.nested(|p| p.binary(min));
        self.in_angles = saved;
        result
    }

    /// Returns the binary operator at the current token, its precedence and its number of tokens.
    fn operator(&self) -> Option<(BinaryOp, u8, usize)> {
        let Tok::Sym(s) = self.tok() else { return None };
        if *s == ">" {
            if self.in_angles {
                return None;
            }
            let next = self.tokens.get(self.at + 1).filter(|t| !t.spaced);
            match next.map(|t| &t.tok) {
                Some(Tok::Sym(">")) => return Some((BinaryOp::Shr, 9, 2)),
                // `>>=`, an assignment
                Some(Tok::Sym(">=")) => return None,
                _ => {}
            }
        }
        BinaryOp::TABLE.iter().find(|(t, _, _)| t == s).map(|(_, op, b)| (*op, *b, 1))
    }

    pub(super) fn binary(&mut self, min: u8) -> Parsed<Expr> {
        let start = self.span();
        let mut left = self.unary()?;
        let mut chain = 0;
        while let Some((op, binding, len)) = self.operator().filter(|(_, b, _)| *b >= min) {
            self.at += len;
            // Left-associative chains nest the tree as much as parentheses do.
            chain += 1;
            self.check_chain(chain)?;
            let right = self.nested(|p| p.binary(binding + 1))?;
            let kind = ExprKind::Binary(op, Box::new(left), Box::new(right));
            left = Expr { kind, span: self.since(start) };
        }
        if min <= TERNARY && self.eat("?") {
            let then = self.expr()?;
            self.expect(":")?;
            let otherwise = self.within(self.in_angles, TERNARY)?;
            let kind = ExprKind::Ternary(Box::new(left), Box::new(then), Box::new(otherwise));
            left = Expr { kind, span: self.since(start) };
        }
        Ok(left)
    }

    pub(super) fn check_chain(&mut self, len: usize) -> Parsed<()> {
        if self.depth + len > MAX_CHAIN { self.nested_too_deep() } else { Ok(()) }
    }

    fn nested_too_deep(&mut self) -> Parsed<()> {
        let saved = std::mem::replace(&mut self.depth, MAX_DEPTH);
        let result = self.nested(|_| Ok(()));
        self.depth = saved;
        result
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let op = match self.tok() {
            Tok::Sym("!") => UnaryOp::Not,
            Tok::Sym("~") => UnaryOp::Complement,
            Tok::Sym("-") => UnaryOp::Neg,
            Tok::Sym("+") => UnaryOp::Plus,
            Tok::Sym("(") if self.at_cast() => {
                self.bump();
                let ty = self.type_expr()?;
                self.expect(")")?;
                let e = self.nested(Self::unary)?;
                return Ok(Expr { kind: ExprKind::Cast(ty, Box::new(e)), span: self.since(start) });
            }
            _ => return self.postfix(),
        };
        self.bump();
        let e = self.nested(Self::unary)?;
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(e)), span: self.since(start) })
    }

    /// Whether a cast starts here: `(T)` before an operand.
    fn at_cast(&mut self) -> bool {
        self.looks_like(|p| {
            p.expect("(")?;
            if !p.at_known_type() {
                return Err(super::Failed);
            }
            p.type_expr()?;
            p.expect(")")?;
            // An operator or the end follows a value in parentheses; an operand follows a cast.
            match p.tok() {
                Tok::Sym("(" | "{" | "!" | "~" | "-" | "+" | "." | "{#}" | "...") => Ok(()),
                Tok::Ident(_) | Tok::Int(_) | Tok::Str(_) => Ok(()),
                Tok::Word(w) if *w != "_" => Ok(()),
                _ => Err(super::Failed),
            }
        })
    }

    /// Whether an unambiguous type starts here: a base type or a name declared as a type.
    fn at_known_type(&self) -> bool {
        match self.tok() {
            Tok::Word("bit" | "int" | "varbit" | "bool" | "tuple" | "string" | "match_kind") => true,
            Tok::Word("error") => *self.peek_at(1) != Tok::Sym("."),
            Tok::Word("list") => *self.peek_at(1) == Tok::Sym("<"),
            Tok::Sym(".") => matches!(self.peek_at(1), Tok::Ident(n) if self.types[0].get(n) == Some(&true)),
            _ => self.name_here().is_some_and(|n| self.is_type_name(&n)),
        }
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let mut e = self.primary()?;
        let mut chain = 0;
        loop {
            chain += 1;
            self.check_chain(chain)?;
            let kind = match self.tok() {
                Tok::Sym(".") => {
                    self.bump();
                    ExprKind::Member(Box::new(e), self.name()?)
                }
                Tok::Sym("[") => self.index(e)?,
                Tok::Sym("(") => {
                    let args = self.arguments()?;
                    ExprKind::Call { callee: Box::new(e), type_args: Vec::new(), args }
                }
                Tok::Sym("<") if self.at_generic_call() => {
                    let type_args = self.type_args()?;
                    let args = self.arguments()?;
                    ExprKind::Call { callee: Box::new(e), type_args, args }
                }
                _ => return Ok(e),
            };
            e = Expr { kind, span: self.since(start) };
        }
    }

    /// Whether `<types>(` with an unambiguous first type starts here; otherwise `<` is a comparison.
    fn at_generic_call(&mut self) -> bool {
        self.looks_like(|p| {
            p.expect("<")?;
            if !p.at_known_type() && !p.is("_") && !p.is("void") && !p.is(">") {
                return Err(super::Failed);
            }
            p.at -= 1;
            p.type_args()?;
            p.expect("(").map(|_| ())
        })
    }

    fn index(&mut self, base: Expr) -> Parsed<ExprKind> {
        self.expect("[")?;
        let first = self.expr()?;
        let (colon, plus) = (self.eat(":"), self.is("+:"));
        let kind = if colon {
            ExprKind::Slice(Box::new(base), Box::new(first), Box::new(self.expr()?))
        } else if plus {
            self.bump();
            ExprKind::PlusSlice(Box::new(base), Box::new(first), Box::new(self.expr()?))
        } else {
            ExprKind::Index(Box::new(base), Box::new(first))
        };
        self.expect("]")?;
        Ok(kind)
    }

    pub(super) fn arguments(&mut self) -> Parsed<Vec<Arg>> {
        self.expect("(")?;
        self.comma_list(")", |p| {
            let start = p.span();
            let name = if p.at_assigned_name() { Some(p.assigned_name()?) } else { None };
            let value = if p.is("_") && matches!(p.peek_at(1), Tok::Sym("," | ")")) {
                p.bump();
                None
            } else {
                Some(p.expr()?)
            };
            Ok(Arg { name, value, span: p.since(start) })
        })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let kind = match self.tok().clone() {
            Tok::Int(text) => {
                // The lexer emits only valid literals.
                let (value, width) =
                    crate::constant::parse_literal(&text).map(|l| (l.value, l.width)).unwrap_or_default();
                ExprKind::Int { value, width }
            }
            Tok::Str(s) => ExprKind::Text(s),
            Tok::Word(w @ ("true" | "false")) => ExprKind::Bool(w == "true"),
            Tok::Word("this") => ExprKind::This,
            Tok::Word("error") => ExprKind::Type(TypeExpr { kind: TypeKind::Error, span: start }),
            Tok::Sym("...") => ExprKind::Dots,
            Tok::Sym("{#}") => ExprKind::Invalid,
            Tok::Sym("(") => {
                self.bump();
                let e = self.expr()?;
                self.expect(")")?;
                return Ok(Expr { span: self.since(start), ..e });
            }
            Tok::Sym("{") => {
                let kind = self.braces()?;
                return Ok(Expr { kind, span: self.since(start) });
            }
            _ => return self.name_expr(start),
        };
        self.bump();
        Ok(Expr { kind, span: start })
    }

    /// Parses the name of a value or a type.
    fn name_expr(&mut self, start: Span) -> Parsed<Expr> {
        if self.at_known_type() {
            let known = !matches!(self.tok(), Tok::Ident(_) | Tok::Sym("."));
            // `T<...>(args)` or `T.member`; `t < x` if no type arguments follow.
            if known || self.looks_like(|p| p.constructor_name()) {
                let ty = self.type_expr()?;
                return Ok(Expr { span: ty.span, kind: ExprKind::Type(ty) });
            }
        }
        let absolute = self.eat(".");
        if self.name_here().is_none() {
            return Err(self.unexpected("an expression"));
        }
        let name = self.name()?;
        Ok(Expr { kind: ExprKind::Path { name, absolute }, span: self.since(start) })
    }

    fn constructor_name(&mut self) -> Parsed<()> {
        self.eat(".");
        self.name()?;
        if self.is("<") {
            self.type_args()?;
        }
        if self.is("(") || self.is(".") { Ok(()) } else { Err(super::Failed) }
    }

    /// Parses `{a, b}` or `{x = a, y = b, ...}`.
    fn braces(&mut self) -> Parsed<ExprKind> {
        self.expect("{")?;
        if !self.at_assigned_name() {
            return Ok(ExprKind::List(self.comma_list("}", Self::expr)?));
        }
        let mut rest = false;
        let items: Vec<Option<(Ident, Expr)>> = self.comma_list("}", |p| {
            if p.eat("...") {
                rest = true;
                return Ok(None);
            }
            Ok(Some((p.assigned_name()?, p.expr()?)))
        })?;
        Ok(ExprKind::Struct { fields: items.into_iter().flatten().collect(), rest })
    }

    /// Parses one element of a keyset: an expression, a mask, a range, `default` or `_`.
    fn keyset_element(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let kind = if self.eat("default") {
            ExprKind::Default
        } else if self.eat("_") {
            ExprKind::DontCare
        } else {
            let e = self.expr()?;
            if self.eat("&&&") {
                ExprKind::Mask(Box::new(e), Box::new(self.expr()?))
            } else if self.eat("..") {
                ExprKind::Range(Box::new(e), Box::new(self.expr()?))
            } else {
                return Ok(e);
            }
        };
        Ok(Expr { kind, span: self.since(start) })
    }

    /// Parses `(a, b)` or one element.
    pub(super) fn keyset(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let tuple = self.is("(")
            && self.looks_like(|p| {
                p.expect("(")?;
                let elements = p.comma_list(")", Self::keyset_element)?;
                let special = matches!(
                    elements.first().map(|e| &e.kind),
                    Some(ExprKind::Mask(..) | ExprKind::Range(..) | ExprKind::Default | ExprKind::DontCare)
                );
                if p.is(":") && (elements.len() > 1 || special) { Ok(()) } else { Err(super::Failed) }
            });
        if !tuple {
            return self.keyset_element();
        }
        self.expect("(")?;
        let mut elements = self.comma_list(")", Self::keyset_element)?;
        if elements.len() == 1 {
            return Ok(elements.remove(0));
        }
        Ok(Expr { kind: ExprKind::List(elements), span: self.since(start) })
    }
}
