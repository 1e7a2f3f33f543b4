//! Annotations: free text, except for those that the language gives a form.

use super::Checker;
use crate::ast::Annotation;
use crate::diagnostics::Code;
use crate::lexer::{Name, Tok, Token};

impl Checker<'_> {
    /// Checks the annotations of a declaration.
    pub(super) fn annotations(&mut self, annotations: &[Annotation]) {
        for (i, a) in annotations.iter().enumerate() {
            let same = |o: &Annotation| o.structured && o.name.name == a.name.name;
            if a.structured && annotations[..i].iter().any(same) {
                let message = format!("@{} is given twice", a.name.name);
                self.error(Code::BadAnnotation, a.name.span, message, "join them into one");
            }
            let text = matches!(&*a.name.name, "name" | "deprecated" | "pkginfo_text");
            let no_text = |t: &Token| matches!(t.tok, Tok::Int(_) | Tok::Sym("|"));
            if text && (a.body.is_empty() || a.body.iter().any(no_text)) {
                let message = format!("@{} takes a string", a.name.name);
                self.error(Code::BadAnnotation, a.name.span, message, "write the text in quotes");
            }
            if a.structured {
                self.structured(a);
            }
        }
    }

    /// `@name[key = value, ...]` or `@name[value, ...]`
    fn structured(&mut self, a: &Annotation) {
        let mut keys: Vec<Name> = Vec::new();
        for element in elements(&a.body) {
            let (first, second) = (element.first(), element.get(1));
            if let Some(t) = element.iter().find(|t| t.tok == Tok::Sym("{")) {
                let hint = "values are integers, strings and bools";
                self.error(Code::BadAnnotation, t.span, "a list in a structured annotation", hint);
            }
            if let (Some(Token { tok: Tok::Ident(n), span, .. }), Some(Token { tok: Tok::Sym("="), .. })) =
                (first, second)
            {
                if keys.contains(n) {
                    let message = format!("`{n}` is given twice");
                    self.error(Code::BadAnnotation, *span, message, "remove one of them");
                }
                keys.push(n.clone());
            }
        }
    }
}

/// What stands between the commas that are in no brackets.
fn elements(body: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0i32;
    let comma = |t: &Token| {
        depth += i32::from(matches!(t.tok, Tok::Sym("(" | "{" | "[")));
        depth -= i32::from(matches!(t.tok, Tok::Sym(")" | "}" | "]")));
        depth == 0 && t.tok == Tok::Sym(",")
    };
    body.split(comma).collect()
}
