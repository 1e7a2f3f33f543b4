//! Parsing of statements.

use super::{Failed, Parsed, Parser};
use crate::ast::{BinaryOp, Block, ExprKind, Stmt, StmtKind, SwitchCase};
use crate::diagnostics::Code;
use crate::lexer::Tok;

/// A precedence above that of every binary operator.
const TIGHTEST: u8 = 100;

impl Parser<'_> {
    /// Parses `{ ... }`. Reports and skips an invalid statement.
    pub(super) fn block(&mut self) -> Parsed<Block> {
        self.annotations()?;
        self.expect("{")?;
        let stmts = self.scoped(|p| {
            let mut stmts = Vec::new();
            while !p.is("}") {
                if p.at_end() {
                    return Err(p.unexpected("`}`"));
                }
                p.statement_or_skip(&mut stmts)?;
            }
            Ok(stmts)
        })?;
        self.expect("}")?;
        Ok(Block { stmts })
    }

    /// Parses a statement; resumes behind an invalid one.
    pub(super) fn statement_or_skip(&mut self, stmts: &mut Vec<Stmt>) -> Parsed<()> {
        let (start, depth, scopes) = (self.at, self.depth, self.types.len());
        match self.statement() {
            Ok(s) => stmts.push(s),
            Err(Failed) if self.quiet => return Err(Failed),
            Err(Failed) => {
                self.depth = depth;
                self.types.truncate(scopes);
                self.skip_statement(start);
            }
        }
        Ok(())
    }

    fn skip_statement(&mut self, start: usize) {
        let failed_at = self.at.max(start + 1);
        self.at = start;
        let mut braces = 0;
        while !self.at_end() {
            let done = self.at >= failed_at;
            if self.is("{") {
                braces += 1;
            } else if self.is("}") {
                if braces == 0 {
                    return;
                }
                braces -= 1;
                if braces == 0 && done {
                    self.bump();
                    return;
                }
            } else if self.is(";") && braces == 0 && done {
                self.bump();
                return;
            }
            self.bump();
        }
    }

    pub(super) fn statement(&mut self) -> Parsed<Stmt> {
        self.nested(Self::statement_here)
    }

    fn statement_here(&mut self) -> Parsed<Stmt> {
        let start = self.span();
        let kind = match self.tok() {
            Tok::Sym(";") => {
                self.bump();
                StmtKind::Empty
            }
            Tok::Sym("{") => StmtKind::Block(self.block()?),
            Tok::Word("if") => self.if_statement()?,
            Tok::Word("switch") => self.switch_statement()?,
            Tok::Word("for") => self.scoped(Self::for_statement)?,
            Tok::Word("return") => {
                self.bump();
                let value = if self.is(";") { None } else { Some(self.expr()?) };
                self.expect(";")?;
                StmtKind::Return(value)
            }
            Tok::Word("exit") => self.simple(StmtKind::Exit)?,
            Tok::Word("break") => self.simple(StmtKind::Break)?,
            Tok::Word("continue") => self.simple(StmtKind::Continue)?,
            Tok::Sym("@") => return self.annotated_statement(),
            Tok::Word("const") => StmtKind::Decl(Box::new(self.declaration()?)),
            _ if self.at_typed_name() || self.at_instance() => StmtKind::Decl(Box::new(self.declaration()?)),
            _ => {
                let kind = self.assignment_or_call()?;
                self.expect(";")?;
                kind
            }
        };
        Ok(Stmt { kind, span: self.since(start) })
    }

    fn simple(&mut self, kind: StmtKind) -> Parsed<StmtKind> {
        self.bump();
        self.expect(";")?;
        Ok(kind)
    }

    /// Parses annotations before a block, a loop or a declaration.
    fn annotated_statement(&mut self) -> Parsed<Stmt> {
        let at = self.at;
        self.annotations()?;
        if self.is("{") || self.is("for") || self.is("if") || self.is("switch") {
            return self.statement();
        }
        self.at = at;
        let start = self.span();
        let decl = self.declaration()?;
        Ok(Stmt { kind: StmtKind::Decl(Box::new(decl)), span: self.since(start) })
    }

    /// Whether `T(args) name` starts here.
    pub(super) fn at_instance(&mut self) -> bool {
        self.looks_like(|p| {
            p.type_expr()?;
            p.arguments()?;
            p.name().map(|_| ())
        })
    }

    pub(super) fn assignment_or_call(&mut self) -> Parsed<StmtKind> {
        // The left-hand side of an assignment has no binary operators.
        let target = self.nested(|p| p.binary(TIGHTEST))?;
        if let Some((op, len)) = self.assignment_operator() {
            self.at += len;
            let value = self.expr()?;
            return Ok(StmtKind::Assign { target, op, value });
        }
        if matches!(target.kind, ExprKind::Call { .. }) {
            return Ok(StmtKind::Call(target));
        }
        if self.is(";") {
            let (message, hint) = ("unused value".to_owned(), "assign it or call a function");
            return Err(self.error_at(target.span, Code::Syntax, message, hint));
        }
        Err(self.unexpected("`=` or `(`"))
    }

    /// Returns the operator `=`, `+=`, ... here and its number of tokens; `>>=` is `>` and `>=`.
    fn assignment_operator(&self) -> Option<(Option<BinaryOp>, usize)> {
        let Tok::Sym(s) = self.tok() else { return None };
        if *s == "=" {
            return Some((None, 1));
        }
        if *s == ">" && *self.peek_at(1) == Tok::Sym(">=") {
            return Some((Some(BinaryOp::Shr), 2));
        }
        let op = s.strip_suffix('=').filter(|o| !matches!(*o, "=" | "!" | "<" | ">"))?;
        BinaryOp::TABLE.iter().find(|(t, _, _)| *t == op).map(|(_, op, _)| (Some(*op), 1))
    }

    fn if_statement(&mut self) -> Parsed<StmtKind> {
        self.expect("if")?;
        self.expect("(")?;
        let condition = self.expr()?;
        self.expect(")")?;
        let then = Box::new(self.statement()?);
        let otherwise = if self.eat("else") { Some(Box::new(self.statement()?)) } else { None };
        Ok(StmtKind::If { condition, then, otherwise })
    }

    fn switch_statement(&mut self) -> Parsed<StmtKind> {
        self.expect("switch")?;
        self.expect("(")?;
        let subject = self.expr()?;
        self.expect(")")?;
        self.expect("{")?;
        let cases = self.until_brace(|p| {
            let label = if p.is("default") || p.is("_") { p.keyset()? } else { p.expr()? };
            p.expect(":")?;
            let body = if p.is("{") || p.is("@") { Some(p.block()?) } else { None };
            Ok(SwitchCase { label, body })
        })?;
        Ok(StmtKind::Switch { subject, cases })
    }

    fn for_statement(&mut self) -> Parsed<StmtKind> {
        self.expect("for")?;
        self.expect("(")?;
        let for_in = self.looks_like(|p| {
            p.annotations()?;
            p.type_expr()?;
            p.name()?;
            p.expect("in").map(|_| ())
        });
        if for_in {
            self.annotations()?;
            let ty = self.type_expr()?;
            let name = self.name()?;
            self.declare_value(&name);
            self.expect("in")?;
            let from = self.expr()?;
            let to = if self.eat("..") { Some(self.expr()?) } else { None };
            self.expect(")")?;
            let body = Box::new(self.statement()?);
            return Ok(StmtKind::ForIn { ty, name, from, to, body });
        }
        let init = if self.eat(";") { Vec::new() } else { self.for_parts(";", true)? };
        let condition = self.expr()?;
        self.expect(";")?;
        let update = if self.eat(")") { Vec::new() } else { self.for_parts(")", false)? };
        let body = Box::new(self.statement()?);
        Ok(StmtKind::For { init, condition, update, body })
    }

    fn for_parts(&mut self, close: &'static str, declarations: bool) -> Parsed<Vec<Stmt>> {
        self.comma_list(close, |p| {
            let start = p.span();
            let kind = if declarations && p.at_typed_name() {
                StmtKind::Decl(Box::new(p.variable(Vec::new())?))
            } else {
                p.assignment_or_call()?
            };
            Ok(Stmt { kind, span: p.since(start) })
        })
    }
}
