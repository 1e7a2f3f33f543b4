//! The preprocessor: `#include`, `#define`, conditionals.
//!
//! It works on tokens, so every token keeps its location in its file; tokens of a macro body get
//! the location of the macro use. Model files ([`MODELS`]) are built in. The caller's [`Resolver`]
//! supplies all other files; it is this crate's only access to files. The tokens go to `parser`.

mod condition;
mod macros;
mod paste;

use crate::diagnostics::{Code, Diagnostic, Sink};
use crate::lexer::{Name, Tok, Token, check_integers, lex};
use crate::source::{SourceMap, Span};
use macros::{BodyPart, Macro, Macros};

/// A file that an `#include` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Included {
    /// Name of the file in messages, and the `from` of its own includes.
    pub name: String,
    /// The text of the file.
    pub text: String,
}

/// The source of included files.
pub trait Resolver {
    /// Returns the file that `#include "path"` (or `<path>` if `system`) refers to in the file
    /// `from`; `None` if it does not exist. The preprocessor requests a built-in model file only
    /// for a quoted include.
    fn resolve(&self, path: &str, system: bool, from: &str) -> Option<Included>;
}

/// A resolver without files, for programs that include only the built-in model files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoIncludes;

impl Resolver for NoIncludes {
    fn resolve(&self, _: &str, _: bool, _: &str) -> Option<Included> {
        None
    }
}

/// Names and texts of the built-in files.
pub(crate) const MODELS: &[(&str, &str)] = &[
    ("core.p4", include_str!("../../models/core.p4")),
    ("ubpf_model.p4", include_str!("../../models/ubpf_model.p4")),
    ("ebpf_model.p4", include_str!("../../models/ebpf_model.p4")),
    ("v1model.p4", include_str!("../../models/v1model.p4")),
    ("p4shield.p4", include_str!("../../models/p4shield.p4")),
];

/// Returns names and texts of the files that programs include without having them: core.p4, the architectures
/// and p4shield.p4.
pub fn built_in_files() -> impl Iterator<Item = (&'static str, &'static str)> {
    MODELS.iter().copied()
}

/// Maximum depth of includes within includes.
const MAX_INCLUDE_DEPTH: usize = 64;
/// Maximum depth of conditionals within conditionals.
const MAX_CONDITIONALS: usize = 256;
/// Maximum size of one file in bytes.
const MAX_FILE: usize = 16 << 20;
/// Maximum number of tokens after preprocessing.
pub(crate) const MAX_TOKENS: usize = 2_000_000;

/// An open `#if`.
struct Conditional {
    opened: Span,
    /// The preprocessor keeps the tokens of this branch.
    active: bool,
    /// An earlier branch was kept, or the whole `#if` lies in a discarded branch.
    done: bool,
    seen_else: bool,
}

struct Preprocessor<'a> {
    sources: &'a mut SourceMap,
    sink: &'a mut Sink,
    resolver: &'a dyn Resolver,
    macros: Macros,
    out: Vec<Token>,
    depth: usize,
    included_bytes: usize,
}

/// Returns all tokens of a program, with includes and macros resolved; the last one is [`Tok::Eof`].
pub(crate) fn preprocess(
    name: &str,
    text: &str,
    defines: &[(String, String)],
    resolver: &dyn Resolver,
    sources: &mut SourceMap,
    sink: &mut Sink,
) -> Vec<Token> {
    let mut pp = Preprocessor {
        sources,
        sink,
        resolver,
        macros: Macros::default(),
        out: Vec::new(),
        depth: 0,
        included_bytes: 0,
    };
    pp.define_builtin("P4SHIELD", "1");
    for (n, v) in defines {
        pp.define_builtin(n, v);
    }
    let eof = pp.file(name, text.to_owned());
    if pp.out.len() > MAX_TOKENS {
        let message = format!("the program has more than {MAX_TOKENS} tokens");
        let hint = "a macro or an include probably expands itself repeatedly";
        pp.sink.report(Code::TooLarge, eof.span, message, hint);
        pp.out.clear();
    }
    let mut out = pp.out;
    check_integers(&mut out, sink);
    out.push(eof);
    out
}

impl Preprocessor<'_> {
    fn define_builtin(&mut self, name: &str, value: &str) {
        let file = self.sources.add(&format!("<command line: {name}>"), value.to_owned());
        let mut body = lex(value, file, self.sink);
        body.pop();
        let body = body.into_iter().map(BodyPart::Token).collect();
        self.macros.by_name.insert(name.into(), Macro { params: None, body });
    }

    /// Preprocesses one file into `out`; returns its end-of-file token.
    fn file(&mut self, name: &str, text: String) -> Token {
        let too_large = text.len() > MAX_FILE;
        let file = self.sources.add(name, if too_large { String::new() } else { text });
        // Copied once per file: tokens borrow nothing, and included files may be added meanwhile.
        let text = self.sources.file(file).text.clone();
        let tokens = lex(&text, file, self.sink);
        if too_large {
            let message = format!("{name} is larger than {MAX_FILE} bytes");
            self.sink.report(Code::TooLarge, tokens[0].span, message, "split the file");
        }
        self.depth += 1;
        self.lines(&tokens, &text, name);
        self.depth -= 1;
        tokens.into_iter().next_back().unwrap_or_default()
    }

    fn lines(&mut self, tokens: &[Token], text: &str, name: &str) {
        let mut open: Vec<Conditional> = Vec::new();
        let mut pending: Vec<Token> = Vec::new();
        let mut i = 0;
        while i < tokens.len() && tokens[i].tok != Tok::Eof && self.out.len() <= MAX_TOKENS {
            let active = open.iter().all(|c| c.active);
            if tokens[i].first && tokens[i].tok == Tok::Other('#') {
                let end = tokens[i + 1..].iter().position(|t| t.first || t.tok == Tok::Eof);
                let end = end.map_or(tokens.len(), |n| i + 1 + n);
                let line = &tokens[i + 1..end];
                let hash = tokens[i].span;
                i = end;
                if self.conditional(hash, line, &mut open, active) || !active {
                    continue;
                }
                self.flush(&mut pending);
                self.directive(hash, line, text, name);
            } else {
                if active {
                    self.check_stray(&tokens[i]);
                    pending.push(tokens[i].clone());
                }
                i += 1;
            }
        }
        self.flush(&mut pending);
        for c in open {
            let message = "this #if has no #endif";
            self.sink.report(Code::UnbalancedConditional, c.opened, message, "add `#endif`");
        }
    }

    fn check_stray(&mut self, t: &Token) {
        if let Tok::Other(c @ ('#' | '\\')) = t.tok {
            let hint = "a directive must be the first token on its line";
            self.sink.report(Code::BadCharacter, t.span, format!("unexpected character {c:?}"), hint);
        }
    }

    fn flush(&mut self, pending: &mut Vec<Token>) {
        let room = MAX_TOKENS + 1 - self.out.len().min(MAX_TOKENS);
        let expanded = self.macros.expand(std::mem::take(pending), room, self.sink);
        self.out.extend(expanded);
    }

    /// Handles `#if`, `#else`, `#endif` and their variants; returns whether the directive is one of them.
    fn conditional(&mut self, at: Span, line: &[Token], open: &mut Vec<Conditional>, active: bool) -> bool {
        let word = line.first().map(directive_name).unwrap_or_default();
        let rest = line.get(1..).unwrap_or(&[]);
        match word {
            "if" | "ifdef" | "ifndef" if open.len() >= MAX_CONDITIONALS => {
                let message = format!("#if is nested more than {MAX_CONDITIONALS} levels deep");
                self.sink.report(Code::TooDeep, at, message, "split the file");
            }
            "if" | "ifdef" | "ifndef" => {
                let kept = active
                    && match word {
                        "if" => self.condition(at, rest),
                        _ => self.is_defined(at, rest) == (word == "ifdef"),
                    };
                let done = kept || !active;
                open.push(Conditional { opened: at, active: kept, done, seen_else: false });
            }
            "elif" | "else" => {
                let outer = open.len().checked_sub(1).is_some_and(|n| open[..n].iter().all(|c| c.active));
                let wanted = match open.last() {
                    Some(c) if !c.seen_else && !c.done && outer => word == "else" || self.condition(at, rest),
                    Some(c) if !c.seen_else => false,
                    _ => {
                        self.unbalanced(at, word);
                        return true;
                    }
                };
                if let Some(c) = open.last_mut() {
                    c.active = wanted;
                    c.done |= wanted;
                    c.seen_else = word == "else";
                }
            }
            "endif" => {
                if open.pop().is_none() {
                    self.unbalanced(at, word);
                }
            }
            _ => return false,
        }
        true
    }

    fn unbalanced(&mut self, at: Span, word: &str) {
        let message = format!("#{word} without an open #if");
        self.sink.report(Code::UnbalancedConditional, at, message, "remove it or add `#if` before it");
    }

    fn is_defined(&mut self, at: Span, rest: &[Token]) -> bool {
        match rest.first().and_then(word_of) {
            Some(n) => self.macros.by_name.contains_key(&*n),
            None => {
                self.bad(at, "expected a name", "write for example `#ifdef NAME`");
                false
            }
        }
    }

    fn condition(&mut self, at: Span, rest: &[Token]) -> bool {
        let rest = self.macros.resolve_defined(rest);
        let expanded = self.macros.expand(rest, MAX_TOKENS, self.sink);
        match condition::evaluate(&expanded) {
            Ok(v) => v != 0,
            Err(message) => {
                self.bad(at, &message, "write for example `#if defined(A) && B >= 2`");
                false
            }
        }
    }

    fn bad(&mut self, at: Span, message: &str, hint: &str) {
        self.sink.report(Code::BadDirective, at, message, hint);
    }

    fn directive(&mut self, at: Span, line: &[Token], text: &str, from: &str) {
        let Some(first) = line.first() else { return };
        let rest = &line[1..];
        let raw = rest.first().zip(rest.last());
        let raw = raw.map_or("", |(a, b)| text.get(a.span.start as usize..b.span.end as usize).unwrap_or(""));
        match directive_name(first) {
            "include" => self.include(at, rest, raw, from),
            "define" => match macros::parse_define(rest) {
                Ok((name, m)) => {
                    self.macros.by_name.insert(name, m);
                }
                Err(e) => self.bad(e.at.unwrap_or(at), e.message, e.hint),
            },
            "undef" => match rest.first().and_then(word_of) {
                Some(n) => {
                    self.macros.by_name.remove(&*n);
                }
                None => self.bad(at, "expected a name", "write `#undef NAME`"),
            },
            "error" => self.sink.add(Diagnostic::new(Code::UserError, at, format!("#error {raw}"))),
            "warning" => self.sink.add(Diagnostic::new(Code::UserWarning, at, format!("#warning {raw}"))),
            "pragma" | "line" => {}
            other => {
                let hint = "supported directives include #include, #define, #undef, #if, #ifdef, #error";
                self.bad(at.to(first.span), &format!("unknown directive #{other}"), hint);
            }
        }
    }

    fn include(&mut self, at: Span, rest: &[Token], raw: &str, from: &str) {
        let quoted = match rest.first().map(|t| &t.tok) {
            Some(Tok::Str(s)) => Some((s.to_string(), false)),
            _ => raw.strip_prefix('<').and_then(|r| r.split_once('>')).map(|(p, _)| (p.to_owned(), true)),
        };
        let span = rest.first().map_or(at, |t| t.span.to(rest[rest.len() - 1].span));
        let Some((path, system)) = quoted else {
            let hint = "write `#include <core.p4>` or `#include \"file.p4\"`";
            return self.bad(span, "expected a file name", hint);
        };
        if self.depth >= MAX_INCLUDE_DEPTH {
            let message = format!("includes are nested more than {MAX_INCLUDE_DEPTH} levels deep");
            return self.sink.report(Code::TooDeep, span, message, "does a file include itself?");
        }
        let Some(file) = self.find(&path, system, from) else {
            let models: Vec<_> = MODELS.iter().map(|(n, _)| *n).collect();
            let hint = format!("the built-in files are {}; add a folder with -I", models.join(", "));
            return self.sink.report(Code::IncludeNotFound, span, format!("cannot find {path}"), hint);
        };
        self.included_bytes += file.text.len();
        if self.included_bytes > 4 * MAX_FILE {
            let message = "the total size of the included files is too large";
            let hint = "does a file include itself? guard it with #ifndef";
            return self.sink.report(Code::TooLarge, span, message, hint);
        }
        self.file(&file.name, file.text);
    }

    fn find(&self, path: &str, system: bool, from: &str) -> Option<Included> {
        let model = || {
            let (name, text) = MODELS.iter().find(|(n, _)| *n == path)?;
            Some(Included { name: format!("<{name}>"), text: (*text).to_owned() })
        };
        let outside = || self.resolver.resolve(path, system, from);
        if system { model().or_else(outside) } else { outside().or_else(model) }
    }
}

fn directive_name(t: &Token) -> &str {
    match &t.tok {
        Tok::Ident(n) => n,
        Tok::Word(w) => w,
        Tok::Int(_) => "line",
        _ => "",
    }
}

/// Returns the word of an identifier or a keyword: the preprocessor does not distinguish them.
fn word_of(t: &Token) -> Option<Name> {
    match &t.tok {
        Tok::Ident(n) => Some(n.clone()),
        Tok::Word(w) => Some((*w).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
