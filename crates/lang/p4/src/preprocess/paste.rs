//! The operators of macro bodies: `#` makes text of an argument, `##` makes one token of two.

use crate::diagnostics::Sink;
use crate::lexer::{Tok, Token, lex};
use std::fmt::Write as _;

/// Returns a token as it is written in a program.
fn spelling(t: &Token) -> String {
    match &t.tok {
        Tok::Ident(n) | Tok::Int(n) => n.to_string(),
        Tok::Word(s) | Tok::Sym(s) => (*s).to_owned(),
        Tok::Str(s) => quoted(s),
        Tok::Other(c) => c.to_string(),
        Tok::Eof => String::new(),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            _ => out.push(c),
        }
    }
    out + "\""
}

/// Returns the text of an argument, with one space wherever the source has white space.
pub(super) fn text_of(argument: &[Token]) -> String {
    let mut out = String::new();
    for (i, t) in argument.iter().enumerate() {
        let space = if i > 0 && t.spaced { " " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(out, "{space}{}", spelling(t));
    }
    out
}

/// Returns the token that two tokens form together, or their text if they form none. `>>` and `>>=` are one
/// token for people and two for the lexer.
pub(super) fn join(left: &Token, right: &Token) -> Result<Vec<Token>, String> {
    let text = spelling(left) + &spelling(right);
    let mut sink = Sink::default();
    let mut tokens = lex(&text, left.span.file, &mut sink);
    tokens.pop();
    let whole = tokens.len() == 1 || matches!(&*text, ">>" | ">>=");
    if sink.has_errors() || !whole {
        return Err(text);
    }
    for (i, t) in tokens.iter_mut().enumerate() {
        (t.span, t.first, t.spaced) = (left.span, false, left.spaced && i == 0);
    }
    Ok(tokens)
}
