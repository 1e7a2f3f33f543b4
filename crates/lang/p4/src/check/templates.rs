//! Functions, parsers and controls with type parameters.
//!
//! The checker checks their bodies once with the type parameters open, which finds errors that do
//! not depend on the arguments. It checks them again for each list of type arguments; only these
//! results, which contain no type parameters, reach later stages.

use super::{Checker, FunctionDecl, ObjectDecl, Symbol, TypeSymbol};
use crate::ast::{self, DeclKind};
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{Constructed, FunctionId};
use crate::source::Span;
use crate::types::{Type, arguments};
use std::cell::RefCell;

/// Maximum number of type argument lists for one declaration: a bound on hostile input.
const MAX_COPIES: usize = 256;

/// A declaration with type parameters.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) decl: ast::Decl,
    /// The specialisations: type arguments and the number of the function, parser or control.
    made: RefCell<Vec<(Vec<Type>, u32)>>,
}

impl Template {
    /// Returns a template if there are type parameters.
    pub(super) fn of(decl: &ast::Decl, type_params: &[ast::Ident]) -> Option<Self> {
        (!type_params.is_empty()).then(|| Self { decl: decl.clone(), made: RefCell::new(Vec::new()) })
    }
}

impl Checker<'_> {
    /// Returns the function for these type arguments.
    pub(super) fn function_for(&mut self, f: &FunctionDecl, args: &[Type], span: Span) -> FunctionId {
        match &f.template {
            Some(t) if !args.iter().any(Type::is_open) => FunctionId(self.copy(t, args, span, f.id.0)),
            _ => f.id,
        }
    }

    /// Returns the parser or control for these type arguments.
    pub(super) fn object_for(&mut self, o: &ObjectDecl, args: &[Type], span: Span) -> Constructed {
        let Some(t) = o.template.as_ref().filter(|_| !args.iter().any(Type::is_open)) else {
            return o.what;
        };
        match o.what {
            Constructed::Parser(p) => {
                Constructed::Parser(crate::hir::ParserId(self.copy(t, args, span, p.0)))
            }
            Constructed::Control(c) => {
                Constructed::Control(crate::hir::ControlId(self.copy(t, args, span, c.0)))
            }
            other => other,
        }
    }

    fn copy(&mut self, t: &Template, args: &[Type], span: Span, open: u32) -> u32 {
        let known = t.made.borrow().iter().find(|(a, _)| a == args).map(|(_, id)| *id);
        if let Some(id) = known {
            return id;
        }
        if t.made.borrow().len() >= MAX_COPIES {
            let message =
                format!("more than {MAX_COPIES} lists of type arguments for `{}`", t.decl.name.name);
            self.error(Code::TooLarge, span, message, "use fewer types");
            return open;
        }
        // Errors and warnings that do not depend on the arguments were reported at the declaration.
        let outside = std::mem::take(self.sink);
        let id = self.at_top_level(|c| c.scoped(|c| c.specialise(&t.decl, args)));
        let inside = std::mem::replace(self.sink, outside);
        t.made.borrow_mut().push((args.to_vec(), id));
        if inside.has_errors() {
            let (name, list) = (&t.decl.name.name, arguments(args));
            let message = format!("`{name}` cannot be used with the type arguments {list}");
            let mut d = Diagnostic::new(Code::TypeMismatch, span, message).hint("use other types");
            for e in inside.into_items().into_iter().filter(|e| e.code.is_error()).take(3) {
                d = d.related(e.span, e.message);
            }
            self.sink.add(d);
        }
        id
    }

    fn specialise(&mut self, d: &ast::Decl, args: &[Type]) -> u32 {
        let (names, is_function) = match &d.kind {
            DeclKind::Function { proto, .. } => (&proto.type_params, true),
            DeclKind::Parser(p) => (&p.type_params, false),
            DeclKind::Control(c) => (&c.type_params, false),
            _ => return 0,
        };
        for (n, t) in names.iter().zip(args) {
            self.declare(n, Symbol::Type(TypeSymbol::Plain(t.clone())));
        }
        match &d.kind {
            DeclKind::Function { proto, body } if is_function => self.function_body(d, proto, body).2.0,
            DeclKind::Parser(p) => self.parser_body(d, p).0,
            DeclKind::Control(c) => self.control_body(d, c).0,
            _ => 0,
        }
    }
}
