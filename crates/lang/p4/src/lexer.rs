//! The lexer: characters to tokens.
//!
//! The lexer ignores types: it emits `>>` as two `>` of which the second is not `spaced`, so that
//! `tuple<bit<8>>` parses without special cases. Unknown characters become tokens of their own.

use crate::diagnostics::{Code, Sink};
use crate::source::{FileId, Span};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::LazyLock;

/// A name as written.
pub(crate) type Name = Rc<str>;

/// The kind and text of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tok {
    /// An identifier that is not a keyword.
    Ident(Name),
    /// A keyword.
    Word(&'static str),
    /// Punctuation.
    Sym(&'static str),
    /// An integer literal, as written. Macros may join parts of one, so that it is valid only once
    /// [`check_integers`] has seen it.
    Int(Name),
    /// A string literal, without quotes and with escapes resolved.
    Str(Name),
    /// A character that is not in P4's character set, or the preprocessor's `#` and `\`.
    Other(char),
    /// The end of the input.
    #[default]
    Eof,
}

/// A token and its location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) tok: Tok,
    pub(crate) span: Span,
    /// First on its line; only there, `#` starts a directive.
    pub(crate) first: bool,
    /// White space or a comment precedes the token; distinguishes `F (x)` from `F(x)` in `#define`.
    pub(crate) spaced: bool,
}

static KEYWORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "_ abstract action actions apply bit bool break const continue control default else entries enum \
     error exit extern false for header header_union if in inout int key list match_kind out package \
     parser priority return select state string struct switch table this transition true tuple type \
     typedef value_set varbit void"
        .split(' ')
        .collect()
});

/// Longest first.
const SYMBOLS: &[&str] = &[
    "|+|=", "|-|=", "<<=", "&&&", "...", "{#}", "|+|", "|-|", "..", "<<", "&&", "||", "==", "!=", ">=", "<=",
    "++", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "+:", "+", "-", "*", "/", "%", "|", "&", "^", "~",
    "(", ")", "[", "]", "{", "}", "<", ">", "!", ":", ",", "?", ".", "=", ";", "@",
];

struct Lexer<'a> {
    text: &'a str,
    file: FileId,
    at: usize,
    sink: &'a mut Sink,
}

/// Returns all tokens of a file; the last one is [`Tok::Eof`].
pub(crate) fn lex(text: &str, file: FileId, sink: &mut Sink) -> Vec<Token> {
    let mut lexer = Lexer { text, file, at: 0, sink };
    let mut out = Vec::with_capacity(text.len() / 4);
    let mut first = true;
    loop {
        let before = lexer.at;
        first |= lexer.skip_blank();
        let spaced = lexer.at > before || first;
        let start = lexer.at;
        let tok = lexer.token();
        let end = tok == Tok::Eof;
        out.push(Token { tok, span: lexer.span(start), first, spaced });
        if end {
            return out;
        }
        first = false;
    }
}

/// Reports and replaces what begins with a digit and is no integer.
pub(crate) fn check_integers(tokens: &mut [Token], sink: &mut Sink) {
    for t in tokens {
        if let Tok::Int(w) = &t.tok
            && crate::constant::parse_literal(w).is_none()
        {
            let hint = "write for example 10, 0xFF, 8w255, 4s0b1010";
            sink.report(Code::BadCharacter, t.span, format!("`{w}` is not an integer"), hint);
            t.tok = Tok::Int("0".into());
        }
    }
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    const fn span(&self, start: usize) -> Span {
        Span { file: self.file, start: start as u32, end: self.at as u32 }
    }

    fn report(&mut self, start: usize, code: Code, message: &str, hint: &str) {
        self.sink.report(code, self.span(start), message, hint);
    }

    /// Skips white space, comments and continued lines; returns whether a line ended.
    fn skip_blank(&mut self) -> bool {
        let mut line_ended = false;
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            line_ended |= rest[..blank].contains('\n');
            let rest = &rest[blank..];
            let skip = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("\\\n") {
                2
            } else if rest.starts_with("\\\r\n") {
                3
            } else if let Some(inside) = rest.strip_prefix("/*") {
                inside.find("*/").map_or(usize::MAX, |n| n + 4)
            } else {
                self.at += blank;
                return line_ended;
            };
            let start = self.at + blank;
            if skip == usize::MAX {
                self.at = self.text.len();
                self.report(start, Code::UnterminatedText, "this comment has no end", "close it with `*/`");
                return true;
            }
            line_ended |= rest.starts_with("/*") && rest[..skip].contains('\n');
            self.at = start + skip;
        }
    }

    fn token(&mut self) -> Tok {
        let rest = self.rest();
        let Some(c) = rest.chars().next() else { return Tok::Eof };
        if c.is_ascii_alphabetic() || c == '_' {
            return self.word();
        }
        if c.is_ascii_digit() {
            return Tok::Int(self.name().into());
        }
        if c == '"' {
            return self.string();
        }
        // The comparison of first characters avoids most calls: this is the innermost loop of the lexer.
        let first = rest.as_bytes()[0];
        if let Some(s) = SYMBOLS.iter().find(|s| s.as_bytes()[0] == first && rest.starts_with(**s)) {
            self.at += s.len();
            return Tok::Sym(s);
        }
        // Annotations may contain any character; elsewhere the parser reports it.
        self.at += c.len_utf8();
        Tok::Other(c)
    }

    /// Reads a name, or a number with the characters of names.
    fn name(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.bytes().position(|c| !c.is_ascii_alphanumeric() && c != b'_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn word(&mut self) -> Tok {
        let w = self.name();
        KEYWORDS.get(w).map_or_else(|| Tok::Ident(w.into()), |word| Tok::Word(word))
    }

    fn string(&mut self) -> Tok {
        let start = self.at;
        let mut value = String::new();
        let mut chars = self.text[start + 1..].char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + 1 + i + 1;
                    return Tok::Str(value.into());
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => break,
                },
                _ => value.push(c),
            }
        }
        self.at = self.text.len();
        self.report(start, Code::UnterminatedText, "this string has no end", "close it with `\"`");
        Tok::Str(value.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toks(text: &str) -> (Vec<Tok>, bool) {
        let mut sink = Sink::default();
        let t = lex(text, 0, &mut sink).into_iter().map(|t| t.tok).collect();
        (t, sink.has_errors())
    }

    #[test]
    fn every_keyword_is_found() {
        for k in KEYWORDS.iter() {
            assert_eq!(toks(k).0[0], Tok::Word(k));
        }
    }

    #[test]
    fn operators_are_longest_first() {
        let (t, bad) = toks("a|+|=b >> {#} x...y 8w0xF_F");
        assert!(!bad);
        let expect = ["|+|=", ">", ">", "{#}", "..."];
        let syms: Vec<_> =
            t.iter().filter_map(|t| if let Tok::Sym(s) = t { Some(*s) } else { None }).collect();
        assert_eq!(syms, expect);
        assert!(t.contains(&Tok::Int("8w0xF_F".into())));
    }

    #[test]
    fn comments_strings_and_lines() {
        let mut sink = Sink::default();
        let t = lex("a /* x\n */ b // c\n \"q\\\"r\"", 0, &mut sink);
        assert!(!sink.has_errors());
        assert!(t[1].first && t[1].tok == Tok::Ident("b".into()));
        assert_eq!(t[2].tok, Tok::Str("q\"r".into()));
    }

    #[test]
    fn unterminated_text_is_reported() {
        assert!(toks("/* x").1);
        assert!(toks("\"x").1);
    }

    #[test]
    fn integers_are_checked_after_the_macros() {
        let mut sink = Sink::default();
        let mut tokens = lex("12ab 8w 10", 0, &mut sink);
        assert!(!sink.has_errors());
        check_integers(&mut tokens, &mut sink);
        assert_eq!(sink.into_items().len(), 2);
        assert_eq!(tokens[0].tok, Tok::Int("0".into()));
    }

    /// Annotations may contain any character; elsewhere the parser refuses it.
    #[test]
    fn characters_outside_p4_are_refused_by_the_parser() {
        assert!(!toks("a $ b é").1);
        for text in ["const bit<8> $ = 1;", "const bit<8> é = 1;", "const bit<8> a = 1 $;"] {
            let found = crate::check("x.p4", text, &crate::NoIncludes, &crate::Options::default());
            assert!(found.has_errors(), "{text}");
        }
    }
}
