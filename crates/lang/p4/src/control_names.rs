//! Names in the control plane: declared names, or the author's `@name`s.
//!
//! P4Info and the program's facts both take their names from here, so that a controller and the
//! runtime agree.

use crate::ast::{Annotation, Decl, DeclKind, Program};
use crate::lexer::{Name, Tok};
use crate::source::Span;
use std::collections::HashMap;

/// The `@name`s of a program.
#[derive(Debug, Default)]
pub(crate) struct ControlNames {
    /// By location and name of the declaration: declarations from one macro share a location.
    given: HashMap<(Span, Name), Name>,
    /// By type and field.
    fields: HashMap<(Name, Name), Name>,
}

impl ControlNames {
    pub(crate) fn new(program: &Program) -> Self {
        let mut names = Self::default();
        names.declarations(&program.decls);
        names
    }

    fn declarations(&mut self, decls: &[Decl]) {
        for d in decls {
            self.note(d.name.span, &d.name.name, &d.annotations);
            match &d.kind {
                DeclKind::Action { params, .. } => {
                    params.iter().for_each(|p| self.note(p.name.span, &p.name.name, &p.annotations));
                }
                DeclKind::Control(c) => self.declarations(&c.locals),
                DeclKind::Parser(p) => self.declarations(&p.locals),
                DeclKind::Instance { .. } => self.note(d.span, &d.name.name, &d.annotations),
                DeclKind::Composite { fields, .. } => {
                    for f in fields {
                        let key = (d.name.name.clone(), f.name.name.clone());
                        self.fields.extend(given(&f.annotations).map(|n| (key, n)));
                    }
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, at: Span, name: &Name, annotations: &[Annotation]) {
        self.given.extend(given(annotations).map(|n| ((at, name.clone()), n)));
    }

    /// Returns the full name of the declaration of `name` at this location.
    pub(crate) fn full(&self, path: &str, at: Span, name: &Name) -> String {
        joined(path, self.given.get(&(at, name.clone())).unwrap_or(name))
    }

    /// Returns the full name of a field of a type.
    pub(crate) fn field(&self, path: &str, ty: &Name, field: &Name) -> String {
        joined(path, self.fields.get(&(ty.clone(), field.clone())).unwrap_or(field))
    }
}

/// Returns the text of `@name("...")`.
fn given(annotations: &[Annotation]) -> Option<Name> {
    let a = annotations.iter().find(|a| &*a.name.name == "name")?;
    match &a.body.first()?.tok {
        Tok::Str(s) => Some(s.clone()),
        _ => None,
    }
}

/// Joins a path and a name; a name that begins with a dot is absolute.
pub(crate) fn joined(path: &str, name: &str) -> String {
    match name.strip_prefix('.') {
        Some(whole) => whole.to_owned(),
        None if path.is_empty() => name.to_owned(),
        None => format!("{path}.{name}"),
    }
}
