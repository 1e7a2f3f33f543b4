//! Names in the control plane: declared names, or the author's `@name`s.
//!
//! P4Info and the program's facts both take their names from here, so that a controller and the
//! runtime agree.

use crate::ast::{Annotation, Decl, DeclKind, Program};
use crate::lexer::{Name, Tok};
use crate::source::Span;
use crate::types::Type;
use std::collections::HashMap;

/// The `@name`s of a program.
#[derive(Debug, Default)]
pub(crate) struct ControlNames {
    /// By location and name of the declaration: declarations from one macro share a location.
    given: HashMap<(Span, Name), Name>,
    /// By type and field.
    fields: HashMap<(Name, Name), Name>,
    /// Instances with `@metric`, by location and name.
    metrics: HashMap<(Span, Name), MetricMark>,
    /// Each `@metric` of anything else.
    misplaced_metrics: Vec<Span>,
    /// Names of headers with `@controller_header`, and its value.
    controller_headers: Vec<(Name, Name)>,
}

/// A `@metric`.
#[derive(Clone, Debug)]
pub(crate) struct MetricMark {
    /// Its location.
    pub(crate) at: Span,
    /// The name in `@metric("name")`.
    pub(crate) name: Option<Name>,
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
            self.note_metric(d);
            match &d.kind {
                DeclKind::Action { params, .. } => {
                    for p in params {
                        self.note(p.name.span, &p.name.name, &p.annotations);
                        self.misplaced_metrics.extend(metric(&p.annotations).map(|m| m.at));
                    }
                }
                DeclKind::Control(c) => self.declarations(&c.locals),
                DeclKind::Parser(p) => self.declarations(&p.locals),
                DeclKind::Instance { .. } => self.note(d.span, &d.name.name, &d.annotations),
                DeclKind::Table(properties) => {
                    let marks = properties.iter().filter_map(|p| metric(&p.annotations));
                    self.misplaced_metrics.extend(marks.map(|m| m.at));
                }
                DeclKind::Composite { fields, .. } => {
                    let marked = text(&d.annotations, "controller_header");
                    self.controller_headers.extend(marked.map(|n| (d.name.name.clone(), n)));
                    for f in fields {
                        let key = (d.name.name.clone(), f.name.name.clone());
                        self.fields.extend(given(&f.annotations).map(|n| (key, n)));
                        self.misplaced_metrics.extend(metric(&f.annotations).map(|m| m.at));
                    }
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, at: Span, name: &Name, annotations: &[Annotation]) {
        self.given.extend(given(annotations).map(|n| ((at, name.clone()), n)));
    }

    fn note_metric(&mut self, d: &Decl) {
        let Some(mark) = metric(&d.annotations) else { return };
        if matches!(d.kind, DeclKind::Instance { .. }) {
            self.metrics.insert((d.span, d.name.name.clone()), mark);
        } else {
            self.misplaced_metrics.push(mark.at);
        }
    }

    /// Returns the name among the metrics of the instance of `name` at this location, if it is marked; `full`
    /// is its full name.
    pub(crate) fn metric(&self, at: Span, name: &Name, full: &str) -> Option<String> {
        let mark = self.metrics.get(&(at, name.clone()))?;
        Some(mark.name.as_deref().unwrap_or(full).to_owned())
    }

    /// Returns the marked instances, with their locations and names.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = (&(Span, Name), &MetricMark)> {
        self.metrics.iter()
    }

    /// Returns the location of each `@metric` of something that is no instance.
    pub(crate) fn misplaced_metrics(&self) -> &[Span] {
        &self.misplaced_metrics
    }

    /// Returns the full name of the declaration of `name` at this location.
    pub(crate) fn full(&self, path: &str, at: Span, name: &Name) -> String {
        joined(path, self.given.get(&(at, name.clone())).unwrap_or(name))
    }

    /// Returns the headers with `@controller_header`, and its value.
    pub(crate) fn controller_headers(&self) -> &[(Name, Name)] {
        &self.controller_headers
    }

    /// Returns the full name of a field of a type.
    pub(crate) fn field(&self, path: &str, ty: &Name, field: &Name) -> String {
        joined(path, self.fields.get(&(ty.clone(), field.clone())).unwrap_or(field))
    }
}

/// Returns the text of `@name("...")`.
fn given(annotations: &[Annotation]) -> Option<Name> {
    text(annotations, "name")
}

/// Returns the text of an annotation that has one.
fn text(annotations: &[Annotation], name: &str) -> Option<Name> {
    let a = annotations.iter().find(|a| &*a.name.name == name)?;
    match &a.body.first()?.tok {
        Tok::Str(s) => Some(s.clone()),
        _ => None,
    }
}

/// Returns `@metric` or `@metric("name")`.
fn metric(annotations: &[Annotation]) -> Option<MetricMark> {
    let a = annotations.iter().find(|a| &*a.name.name == "metric")?;
    let name = match a.body.first().map(|t| &t.tok) {
        Some(Tok::Str(s)) => Some(s.clone()),
        _ => None,
    };
    Some(MetricMark { at: a.name.span, name })
}

/// Joins a path and a name; a name that begins with a dot is absolute.
pub(crate) fn joined(path: &str, name: &str) -> String {
    match name.strip_prefix('.') {
        Some(whole) => whole.to_owned(),
        None if path.is_empty() => name.to_owned(),
        None => format!("{path}.{name}"),
    }
}

/// Returns the names of digests: those of the structs that they carry.
pub(crate) fn digest_names(digests: &[Type]) -> Vec<String> {
    let mut unnamed = 0;
    let name = |t: &Type| match t {
        Type::Composite(c) if !c.is_anonymous() => c.name.to_string(),
        _ => {
            unnamed += 1;
            format!("digest_{}", unnamed - 1)
        }
    };
    digests.iter().map(name).collect()
}
