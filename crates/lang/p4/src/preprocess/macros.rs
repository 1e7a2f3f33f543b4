//! Macros: definition and expansion.

use super::{paste, word_of};
use crate::diagnostics::{Code, Diagnostic, Sink};
use crate::lexer::{Name, Tok, Token};
use crate::source::Span;
use std::collections::HashMap;

/// A macro: its parameters, if it has any, and its body.
#[derive(Clone, Debug)]
pub(super) struct Macro {
    pub(super) params: Option<Vec<Name>>,
    pub(super) body: Vec<BodyPart>,
}

/// A part of a macro's body.
#[derive(Clone, Debug)]
pub(super) enum BodyPart {
    Token(Token),
    /// A parameter, which the expanded argument replaces; the token is its name.
    Param(usize, Token),
    /// A parameter beside `##`, which the argument replaces as it is written.
    Raw(usize, Token),
    /// `#` and a parameter: the argument's text.
    Text(usize, Token),
    /// `##`, at its location: joins what is before and behind it.
    Paste(Span),
}

/// A `#define` that is invalid.
pub(super) struct DefineError {
    /// The location, unless it is the directive itself.
    pub(super) at: Option<Span>,
    pub(super) message: &'static str,
    pub(super) hint: &'static str,
}

/// Macros by name.
#[derive(Debug)]
pub(super) struct Macros {
    pub(super) by_name: HashMap<Name, Macro>,
    /// The rest of the budget [`MAX_WORK`].
    left: usize,
}

/// Maximum depth of macros within macros, and of macro uses within arguments of macros.
const MAX_DEPTH: usize = 64;
/// Maximum number of tokens that macro expansion visits in the whole program. A few macros can
/// cause endless work, even if they expand to nothing.
const MAX_WORK: usize = 4_000_000;

/// Parses the tokens behind `#define`.
pub(super) fn parse_define(line: &[Token]) -> Result<(Name, Macro), DefineError> {
    let wrong =
        |message| DefineError { at: None, message, hint: "write for example `#define MAX(a, b) ...`" };
    let name = line.first().and_then(word_of).ok_or_else(|| wrong("expected a name"))?;
    let rest = &line[1..];
    let is_sym = |t: &Token, s| t.tok == Tok::Sym(s);
    if !rest.first().is_some_and(|t| is_sym(t, "(") && !t.spaced) {
        return Ok((name, Macro { params: None, body: body_of(rest, None)? }));
    }
    let close = rest.iter().position(|t| is_sym(t, ")"));
    let close = close.ok_or_else(|| wrong("expected `)` after the parameters"))?;
    let mut params = Vec::new();
    for (i, t) in rest[1..close].iter().enumerate() {
        match (i % 2, word_of(t)) {
            (0, Some(p)) => params.push(p),
            (1, None) if is_sym(t, ",") => {}
            _ => return Err(wrong("expected parameter names, separated by `,`")),
        }
    }
    let body = body_of(&rest[close + 1..], Some(&params))?;
    Ok((name, Macro { params: Some(params), body }))
}

/// Parses a body: finds its parameters and the operators `#` and `##`.
fn body_of(tokens: &[Token], params: Option<&[Name]>) -> Result<Vec<BodyPart>, DefineError> {
    let hash = |i: usize| tokens.get(i).is_some_and(|t| t.tok == Tok::Other('#'));
    let param = |i: usize| {
        let name = tokens.get(i).and_then(word_of)?;
        params?.iter().position(|p| *p == name)
    };
    let mut body = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while let Some(t) = tokens.get(i) {
        if hash(i) && hash(i + 1) && !tokens[i + 1].spaced {
            let at = t.span.to(tokens[i + 1].span);
            let alone = matches!(body.last(), None | Some(BodyPart::Paste(_)));
            if alone || i + 2 == tokens.len() {
                let hint = "write it between the two tokens that it joins, as in `mix_##N`";
                let message = "`##` has nothing to join on one side";
                return Err(DefineError { at: Some(at), message, hint });
            }
            if let Some(BodyPart::Param(p, t)) = body.last().cloned() {
                body.pop();
                body.push(BodyPart::Raw(p, t));
            }
            body.push(BodyPart::Paste(at));
            i += 2;
        } else if hash(i) && params.is_some() {
            let Some(p) = param(i + 1) else {
                let hint = "write the parameter whose text you need behind it, as in `@name(#x)`";
                let message = "`#` has no parameter behind it";
                return Err(DefineError { at: Some(t.span), message, hint });
            };
            body.push(BodyPart::Text(p, t.clone()));
            i += 2;
        } else {
            let pasted = matches!(body.last(), Some(BodyPart::Paste(_)));
            body.push(match param(i) {
                Some(p) if pasted => BodyPart::Raw(p, t.clone()),
                Some(p) => BodyPart::Param(p, t.clone()),
                None => BodyPart::Token(t.clone()),
            });
            i += 1;
        }
    }
    Ok(body)
}

struct Expansion<'a> {
    macros: &'a HashMap<Name, Macro>,
    left: &'a mut usize,
    /// The macros whose bodies are being expanded.
    active: Vec<Name>,
    /// The depth of arguments within arguments, and of macros within macros.
    depth: usize,
    out: Vec<Token>,
    room: usize,
    sink: &'a mut Sink,
}

impl Default for Macros {
    fn default() -> Self {
        Self { by_name: HashMap::new(), left: MAX_WORK }
    }
}

impl Macros {
    /// Expands all macros in `tokens`; stops soon after `room` tokens.
    pub(super) fn expand(&mut self, tokens: Vec<Token>, room: usize, sink: &mut Sink) -> Vec<Token> {
        if self.by_name.is_empty() {
            return tokens;
        }
        let mut e = Expansion {
            macros: &self.by_name,
            left: &mut self.left,
            active: Vec::new(),
            depth: 0,
            out: Vec::with_capacity(tokens.len()),
            room,
            sink,
        };
        e.run(&tokens);
        e.out
    }

    /// Replaces `defined(X)` and `defined X` by 0 or 1, before the macros of the condition are expanded.
    pub(super) fn resolve_defined(&self, tokens: &[Token]) -> Vec<Token> {
        let mut out = Vec::with_capacity(tokens.len());
        let mut i = 0;
        while i < tokens.len() {
            if tokens[i].tok == Tok::Ident("defined".into()) {
                let paren = tokens.get(i + 1).is_some_and(|t| t.tok == Tok::Sym("("));
                let known = tokens.get(i + 1 + usize::from(paren)).and_then(word_of);
                let value = if known.is_some_and(|n| self.by_name.contains_key(&n)) { "1" } else { "0" };
                out.push(Token { tok: Tok::Int(value.into()), ..tokens[i].clone() });
                i += if paren { 4 } else { 2 };
            } else {
                out.push(tokens[i].clone());
                i += 1;
            }
        }
        out
    }
}

impl Expansion<'_> {
    fn run(&mut self, tokens: &[Token]) {
        let mut i = 0;
        while i < tokens.len() && self.out.len() <= self.room && self.spend(&tokens[i], 1) {
            let used = self.one(tokens, i);
            i += used;
        }
    }

    /// Deducts from the work budget; reports its exhaustion once.
    fn spend(&mut self, at: &Token, work: usize) -> bool {
        if *self.left == 0 {
            return false;
        }
        *self.left = self.left.saturating_sub(work);
        if *self.left == 0 {
            let hint = "a macro that uses its argument twice doubles the argument at each use";
            self.sink.report(Code::TooLarge, at.span, "macro expansion takes too many steps here", hint);
        }
        *self.left > 0
    }

    /// Expands the token or macro use at `i`; returns the number of tokens it takes.
    fn one(&mut self, tokens: &[Token], i: usize) -> usize {
        let t = &tokens[i];
        let macros = self.macros;
        let found = match &t.tok {
            Tok::Ident(n) => macros.get_key_value(n),
            Tok::Word(w) => macros.get_key_value(*w),
            _ => None,
        };
        let Some((name, m)) = found.filter(|(n, _)| !self.active.contains(n)) else {
            self.out.push(t.clone());
            return 1;
        };
        if self.depth >= MAX_DEPTH {
            let message = format!("macros are nested more than {MAX_DEPTH} levels deep");
            self.sink.report(Code::TooDeep, t.span, message, "use a constant or a function instead");
            return 1;
        }
        let (args, used) = match &m.params {
            None => (Vec::new(), 1),
            Some(params) => match arguments(&tokens[i + 1..]) {
                // Without arguments, the name is not a macro use.
                Err(seen) => {
                    self.spend(t, seen);
                    self.out.push(t.clone());
                    return 1;
                }
                Ok((mut args, used)) => {
                    self.spend(t, used);
                    if params.is_empty() && args.len() == 1 && args[0].is_empty() {
                        args.clear();
                    }
                    if args.len() != params.len() {
                        let (want, got) = (params.len(), args.len());
                        let message = format!("macro `{name}` takes {want} arguments, found {got}");
                        self.sink.add(Diagnostic::new(Code::BadDirective, t.span, message));
                        return used + 1;
                    }
                    (args, used + 1)
                }
            },
        };
        self.depth += 1;
        let body = self.substitute(m, &args, t);
        self.active.push(name.clone());
        self.run(&body);
        self.active.pop();
        self.depth -= 1;
        used
    }

    /// Returns the body with the arguments in place of the parameters, all at the location of the use.
    fn substitute(&mut self, m: &Macro, args: &[Vec<Token>], at: &Token) -> Vec<Token> {
        let mut body: Vec<Token> = Vec::with_capacity(m.body.len());
        // The start of the last operand in `body`: an argument without tokens is an operand, too.
        let mut operand = 0;
        let mut paste = None;
        for part in &m.body {
            let from = body.len();
            match part {
                BodyPart::Paste(hash) => {
                    paste = Some((*hash, operand));
                    continue;
                }
                BodyPart::Token(t) => body.push(Token { span: at.span, first: false, ..t.clone() }),
                BodyPart::Param(p, name) => {
                    let saved = std::mem::take(&mut self.out);
                    self.run(&args[*p]);
                    let expanded = std::mem::replace(&mut self.out, saved);
                    body.extend(spaced_as(name, expanded));
                }
                BodyPart::Raw(p, name) => body.extend(spaced_as(name, args[*p].clone())),
                BodyPart::Text(p, hash) => {
                    let text = paste::text_of(&args[*p]);
                    if !self.spend(at, text.len()) {
                        break;
                    }
                    let tok = Tok::Str(text.into());
                    body.push(Token { tok, span: at.span, first: false, spaced: hash.spaced });
                }
            }
            operand = from;
            if let Some((hash, left)) = paste.take() {
                operand = left.max(self.join(&mut body, left, from, hash, at));
            }
            if body.len() > self.room || *self.left == 0 {
                break;
            }
        }
        body
    }

    /// Joins the last token of the operand from `left` to `right` with the first one behind it. Returns the
    /// start of the joined operand's last token.
    fn join(&mut self, body: &mut Vec<Token>, left: usize, right: usize, hash: Span, at: &Token) -> usize {
        if left == right || right == body.len() {
            return left;
        }
        match paste::join(&body[right - 1], &body[right]) {
            Ok(joined) => {
                let length: usize =
                    joined.iter().map(|t| paste::text_of(std::slice::from_ref(t)).len()).sum();
                self.spend(at, length);
                let joined = joined.into_iter().map(|t| Token { span: at.span, ..t });
                body.splice(right - 1..=right, joined);
                right - 1
            }
            Err(text) => {
                let message = format!("`##` makes `{text}`, which is not one token");
                let d = Diagnostic::new(Code::BadDirective, hash, message);
                let hint = "join parts of one name, number or operator, or leave `##` out";
                self.sink.add(d.related(at.span, "in this use").hint(hint));
                right
            }
        }
    }
}

/// Gives the tokens of an argument the white space in front of its parameter.
fn spaced_as(name: &Token, mut tokens: Vec<Token>) -> Vec<Token> {
    if let Some(t) = tokens.first_mut() {
        t.spaced = name.spaced;
    }
    tokens
}

/// Returns the arguments in parentheses at the start of `tokens` and the number of tokens they
/// take, or the number of tokens read if `tokens` does not start with complete arguments.
fn arguments(tokens: &[Token]) -> Result<(Vec<Vec<Token>>, usize), usize> {
    if tokens.first().is_none_or(|t| t.tok != Tok::Sym("(")) {
        return Err(1);
    }
    let mut depth = 0;
    let mut args = vec![Vec::new()];
    for (i, t) in tokens.iter().enumerate() {
        match &t.tok {
            Tok::Sym("(") => depth += 1,
            Tok::Sym(")") => depth -= 1,
            _ => {}
        }
        match (&t.tok, depth, args.last_mut()) {
            (Tok::Sym(")"), 0, _) => return Ok((args, i + 1)),
            (Tok::Sym(","), 1, _) => args.push(Vec::new()),
            // The opening parenthesis belongs to no argument.
            (_, _, Some(last)) if i > 0 => last.push(t.clone()),
            _ => {}
        }
    }
    Err(tokens.len())
}
