//! Parsing of tables.

use super::{Parsed, Parser};
use crate::ast::{ActionRef, Decl, DeclKind, Entry, Expr, KeyElement, Property, PropertyKind};
use crate::lexer::Tok;

impl Parser<'_> {
    /// Parses `table name { properties }`.
    pub(super) fn table(&mut self, annotations: Vec<crate::ast::Annotation>) -> Parsed<Decl> {
        let start = self.expect("table")?;
        let name = self.name()?;
        self.expect("{")?;
        let properties = self.until_brace(Self::property)?;
        Ok(Decl { span: self.since(start), annotations, name, kind: DeclKind::Table(properties) })
    }

    fn property(&mut self) -> Parsed<Property> {
        let annotations = self.annotations()?;
        let start = self.span();
        let is_const = self.eat("const");
        let kind = match self.tok() {
            Tok::Word("key") => {
                let keys = self.items(Self::key_element)?;
                self.check_length(keys.len())?;
                PropertyKind::Key(keys)
            }
            Tok::Word("actions") => {
                let actions = self.items(|p| {
                    let a = p.action_ref()?;
                    p.expect(";")?;
                    Ok(a)
                })?;
                self.check_length(actions.len())?;
                PropertyKind::Actions(actions)
            }
            Tok::Word("entries") => PropertyKind::Entries(self.items(Self::entry)?),
            _ => {
                let name = self.name()?;
                self.expect("=")?;
                let value = self.expr()?;
                self.expect(";")?;
                PropertyKind::Other { name, value }
            }
        };
        Ok(Property { span: start, annotations, is_const, kind })
    }

    /// Parses the items of a property.
    fn items<T>(&mut self, item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.bump();
        self.expect("=")?;
        self.expect("{")?;
        let items = self.until_brace(item)?;
        // `};` is frequent and harmless.
        self.eat(";");
        Ok(items)
    }

    fn key_element(&mut self) -> Parsed<KeyElement> {
        let value = self.expr()?;
        self.expect(":")?;
        let match_kind = self.name()?;
        let annotations = self.annotations()?;
        self.expect(";")?;
        Ok(KeyElement { value, match_kind, annotations })
    }

    fn action_ref(&mut self) -> Parsed<ActionRef> {
        let annotations = self.annotations()?;
        Ok(ActionRef { annotations, value: self.expr()? })
    }

    fn entry(&mut self) -> Parsed<Entry> {
        let start = self.span();
        let is_const = self.eat("const");
        let priority = if self.is("priority") && *self.peek_at(1) == Tok::Sym("=") {
            Some(self.priority()?)
        } else {
            None
        };
        let keys = self.keyset()?;
        self.expect(":")?;
        let mut action = self.action_ref()?;
        action.annotations.extend(self.annotations()?);
        self.expect(";")?;
        Ok(Entry { span: self.since(start), is_const, priority, keys, action })
    }

    fn priority(&mut self) -> Parsed<Expr> {
        self.bump();
        self.expect("=")?;
        let p = self.expr()?;
        self.expect(":")?;
        Ok(p)
    }
}
