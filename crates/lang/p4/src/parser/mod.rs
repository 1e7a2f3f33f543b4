//! The parser: tokens to syntax tree, by recursive descent with precedence climbing for expressions.
//!
//! P4's grammar depends on which names are types: `(T) -x` casts and `(a) -x` subtracts. So the
//! parser keeps the names of types by scope, as the language specification expects. After an error
//! it resumes at the next declaration, statement or closing brace, so that one run reports several
//! errors. The tree goes to `check`.

mod decl;
mod expr;
mod stmt;
mod table;
mod types;

use crate::ast::{Annotation, Expr, Ident, Program};
use crate::diagnostics::{Code, Diagnostic, Sink};
use crate::lexer::{Name, Tok, Token};
use crate::source::Span;
use std::collections::HashMap;

/// Maximum depth of expressions, types and statements within each other. Later stages recurse over
/// the tree, so the parser bounds its depth.
pub(crate) const MAX_DEPTH: usize = 64;
/// Maximum length of one list: fields, parameters, arguments, enum members, states. Entries and
/// statements are not limited.
const MAX_LIST: usize = 2048;
/// Maximum number of operators in a row, such as `a | b | c`: they deepen the tree too, but cost
/// later stages less.
pub(crate) const MAX_CHAIN: usize = 128;

/// A rule failed; it has reported the error.
pub(crate) struct Failed;
pub(crate) type Parsed<T> = Result<T, Failed>;

pub(crate) struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    sink: &'a mut Sink,
    /// Names by scope, and whether they are types: a variable shadows a type.
    types: Vec<HashMap<Name, bool>>,
    depth: usize,
    /// During look-ahead, the parser reports no errors.
    quiet: bool,
    /// Number of tokens that look-ahead may still read: without this limit, nested look-ahead would
    /// take exponential time on hostile input.
    fuel: usize,
    /// Directly within `<...>`, where `>` closes one bracket and `>>` closes two.
    in_angles: bool,
}

/// Parses a whole program. `tokens` ends with [`Tok::Eof`].
pub(crate) fn parse(tokens: &[Token], sink: &mut Sink) -> Program {
    let mut p = Parser::new(tokens, sink);
    p.program()
}

/// Parses the values in the parentheses of an annotation at this location. Reports an error and returns none
/// if they are something else.
pub(crate) fn values(body: &[Token], at: Span, sink: &mut Sink) -> Vec<Expr> {
    let span = body.last().map_or(at, |t| t.span);
    let end = Token { tok: Tok::Eof, span, first: false, spaced: false };
    let tokens: Vec<Token> = body.iter().cloned().chain([end]).collect();
    let mut p = Parser::new(&tokens, sink);
    let mut values = Vec::new();
    while !p.at_end() {
        match p.expr() {
            Ok(e) => values.push(e),
            Err(Failed) => return Vec::new(),
        }
        if !p.at_end() && p.expect(",").is_err() {
            return Vec::new();
        }
    }
    values
}

impl<'a> Parser<'a> {
    fn new(tokens: &'a [Token], sink: &'a mut Sink) -> Self {
        let fuel = 100_000 + 100 * tokens.len();
        let types = vec![HashMap::new()];
        Self { tokens, at: 0, sink, types, depth: 0, quiet: false, fuel, in_angles: false }
    }

    /// Returns the current token. It borrows from the input, not from the parser.
    fn tok(&self) -> &'a Tok {
        &self.tokens[self.at].tok
    }
}

impl Parser<'_> {
    fn program(&mut self) -> Program {
        let mut program = Program::default();
        while !self.at_end() {
            if self.eat(";") {
                continue;
            }
            let start = self.at;
            match self.declaration() {
                Ok(d) => program.decls.push(d),
                Err(Failed) => self.recover_declaration(start),
            }
        }
        program
    }

    /// Skips to the likely start of the next top-level declaration.
    fn recover_declaration(&mut self, start: usize) {
        self.types.truncate(1);
        self.depth = 0;
        // Rescan from the start of the declaration, so that its braces are counted.
        let failed_at = self.at.max(start + 1);
        let mut braces = 0i32;
        self.at = start;
        while !self.at_end() {
            let done = self.at >= failed_at;
            match self.tok() {
                Tok::Sym("{") => braces += 1,
                Tok::Sym("}") => braces -= 1,
                Tok::Word("parser" | "control" | "header" | "struct" | "extern" | "package" | "typedef")
                    if done && self.at > start && self.tokens[self.at].first =>
                {
                    return;
                }
                _ => {}
            }
            let ends = matches!(self.tok(), Tok::Sym("}" | ";"));
            self.at += 1;
            if ends && braces <= 0 && done {
                return;
            }
        }
    }

    fn peek_at(&self, n: usize) -> &Tok {
        self.tokens.get(self.at + n).map_or(&Tok::Eof, |t| &t.tok)
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span
    }

    /// Returns the location of the token before the current one.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn since(&self, start: Span) -> Span {
        start.to(self.last_span())
    }

    fn at_end(&self) -> bool {
        *self.tok() == Tok::Eof
    }

    fn bump(&mut self) {
        if self.quiet {
            self.fuel = self.fuel.saturating_sub(1);
        }
        if !self.at_end() {
            self.at += 1;
        }
    }

    /// Whether the current token is this keyword or punctuation.
    fn is(&self, s: &str) -> bool {
        matches!(self.tok(), Tok::Word(w) | Tok::Sym(w) if *w == s)
    }

    fn eat(&mut self, s: &str) -> bool {
        let hit = self.is(s);
        if hit {
            self.bump();
        }
        hit
    }

    fn expect(&mut self, s: &'static str) -> Parsed<Span> {
        let span = self.span();
        if self.eat(s) {
            return Ok(span);
        }
        if s == ";" && !matches!(self.tok(), Tok::Other(_)) {
            let found = self.describe();
            let place = self.last_span().after();
            if !self.quiet {
                let d = Diagnostic::new(Code::Syntax, place, format!("expected `;`, found {found}"));
                self.sink.add(d.related(self.span(), "unexpected token").hint("add `;` here"));
            }
            return Err(Failed);
        }
        Err(self.unexpected(&format!("`{s}`")))
    }

    /// Describes the current token for messages.
    fn describe(&self) -> String {
        match self.tok() {
            Tok::Ident(n) | Tok::Int(n) => format!("`{n}`"),
            Tok::Word(w) | Tok::Sym(w) => format!("`{w}`"),
            Tok::Str(_) => "a string".to_owned(),
            Tok::Other(c) => format!("{c:?}"),
            Tok::Eof => "the end of the file".to_owned(),
        }
    }

    fn unexpected(&mut self, wanted: &str) -> Failed {
        if let Tok::Other(c) = self.tok() {
            return self.error(Code::BadCharacter, format!("unexpected character {c:?}"), "remove it");
        }
        let message = format!("expected {wanted}, found {}", self.describe());
        let hint = match self.tok() {
            Tok::Word(w) if wanted == "a name" => format!("`{w}` is a keyword; choose another name"),
            Tok::Eof => "a brace or a semicolon is probably missing above".to_owned(),
            _ => format!("write {wanted} here"),
        };
        self.error(Code::Syntax, message, &hint)
    }

    /// Reports an error at the current token, except during look-ahead.
    fn error(&mut self, code: Code, message: String, hint: &str) -> Failed {
        self.error_at(self.span(), code, message, hint)
    }

    fn error_at(&mut self, span: Span, code: Code, message: String, hint: &str) -> Failed {
        if !self.quiet {
            self.sink.report(code, span, message, hint);
        }
        Failed
    }

    /// Runs a rule one level deeper.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            let message = format!("nested more than {MAX_DEPTH} levels deep");
            let failed = self.error(Code::TooDeep, message, "split it into several parts");
            // The parser cannot tell where the nested construct ends, so what follows makes no sense to it.
            self.quiet = true;
            return Err(failed);
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Whether `rule` matches here; consumes and reports nothing.
    fn looks_like(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<()>) -> bool {
        let (at, quiet, depth) = (self.at, self.quiet, self.depth);
        self.quiet = true;
        let ok = self.fuel > 0 && rule(self).is_ok();
        (self.at, self.quiet, self.depth) = (at, quiet, depth);
        ok
    }

    /// Parses a name: an identifier or a keyword that the grammar allows as a name.
    fn name(&mut self) -> Parsed<Ident> {
        let Some(name) = self.name_here() else { return Err(self.unexpected("a name")) };
        let span = self.span();
        self.bump();
        Ok(Ident { name, span })
    }

    fn name_here(&self) -> Option<Name> {
        match self.tok() {
            Tok::Ident(n) => Some(n.clone()),
            Tok::Word(
                w @ ("actions" | "apply" | "entries" | "key" | "priority" | "state" | "type" | "list"),
            ) => Some((*w).into()),
            _ => None,
        }
    }

    /// Whether `name =` starts here.
    fn at_assigned_name(&self) -> bool {
        self.name_here().is_some() && *self.peek_at(1) == Tok::Sym("=")
    }

    /// Parses `name =`.
    fn assigned_name(&mut self) -> Parsed<Ident> {
        let name = self.name()?;
        self.expect("=")?;
        Ok(name)
    }

    fn declare_type(&mut self, name: &Ident) {
        self.declare(name, true);
    }

    /// Declares a variable or parameter, which shadows a type of the same name.
    fn declare_value(&mut self, name: &Ident) {
        self.declare(name, false);
    }

    fn declare(&mut self, name: &Ident, is_type: bool) {
        if let Some(scope) = self.types.last_mut() {
            scope.insert(name.name.clone(), is_type);
        }
    }

    fn is_type_name(&self, name: &str) -> bool {
        self.types.iter().rev().find_map(|s| s.get(name)).copied().unwrap_or(false)
    }

    /// Runs a rule in a scope of its own for type names.
    fn scoped<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.types.push(HashMap::new());
        let result = rule(self);
        self.types.pop();
        result
    }

    /// Reports an error if a list of this length must not grow.
    fn check_length(&mut self, members: usize) -> Parsed<()> {
        if members < MAX_LIST {
            return Ok(());
        }
        let message = format!("a list of more than {MAX_LIST} members");
        Err(self.error(Code::TooLarge, message, "split it into several lists"))
    }

    /// Parses items up to `}`, which it consumes.
    fn until_brace<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut out = Vec::new();
        while !self.eat("}") {
            out.push(item(self)?);
        }
        Ok(out)
    }

    /// Parses `item, item, ...` up to `close`, which it consumes; a trailing comma is allowed.
    fn comma_list<T>(
        &mut self,
        close: &'static str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut out = Vec::new();
        while !self.is(close) {
            self.check_length(out.len())?;
            out.push(item(self)?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(close)?;
        Ok(out)
    }

    fn annotations(&mut self) -> Parsed<Vec<Annotation>> {
        let mut out = Vec::new();
        while self.is("@") {
            self.bump();
            let span = self.span();
            let name: Name = match self.tok() {
                Tok::Ident(n) => n.clone(),
                Tok::Word(w) => (*w).into(),
                _ => return Err(self.unexpected("the name of an annotation")),
            };
            self.bump();
            let name = Ident { name, span };
            let (body, elements) = match self.tok() {
                _ if &*name.name == "pragma" => (self.pragma_body(), None),
                Tok::Sym("[") => (Vec::new(), Some(self.structured_body()?)),
                _ => (self.annotation_body()?, None),
            };
            out.push(Annotation { name, body, elements });
        }
        Ok(out)
    }

    /// Reads the body of `@pragma`: the rest of the line.
    fn pragma_body(&mut self) -> Vec<Token> {
        let start = self.at;
        while !self.at_end() && !self.tokens[self.at].first {
            self.at += 1;
        }
        self.tokens[start..self.at].to_vec()
    }

    /// Parses `[value, ...]` or `[name = value, ...]`.
    fn structured_body(&mut self) -> Parsed<Vec<(Option<Ident>, Expr)>> {
        self.expect("[")?;
        let mut named = None;
        self.comma_list("]", |p| {
            let is_named = p.at_assigned_name();
            if *named.get_or_insert(is_named) != is_named {
                return Err(p.unexpected(if is_named { "a value" } else { "a name with a value" }));
            }
            let name = if is_named { Some(p.assigned_name()?) } else { None };
            Ok((name, p.expr()?))
        })
    }

    /// Reads any tokens in parentheses.
    fn annotation_body(&mut self) -> Parsed<Vec<Token>> {
        let (open, close) = ("(", ")");
        if !self.is(open) {
            return Ok(Vec::new());
        }
        let start = self.at + 1;
        let mut depth = 0;
        loop {
            if self.at_end() {
                return Err(self.unexpected(&format!("`{close}`")));
            }
            depth += i32::from(self.is(open)) - i32::from(self.is(close));
            self.at += 1;
            if depth == 0 {
                return Ok(self.tokens[start..self.at - 1].to_vec());
            }
        }
    }
}

#[cfg(test)]
mod tests;
