//! The depth of calls within calls.
//!
//! Later stages inline callees and recurse into them: each level of blocks, expressions and calls
//! costs stack. So every body has a depth, which includes that of its callees, and this module
//! limits it for all stages.

use super::Checker;
use crate::diagnostics::Code;
use crate::hir::{Callee, Constructed, Object};
use crate::source::Span;
use std::collections::HashMap;

/// Maximum number of levels of blocks, expressions and calls within each other.
const MAX_DEPTH: usize = 400;

/// The depth at the current location, and the depths of all bodies so far.
#[derive(Debug, Default)]
pub(super) struct Depth {
    /// Levels around the current location.
    pub(super) now: usize,
    /// The maximum depth so far in the current body, including callees.
    deepest: usize,
    of: HashMap<Body, usize>,
}

/// A body that has a depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Body {
    Action(u32),
    Function(u32),
    Table(u32),
    Parser(u32),
    Control(u32),
}

impl Checker<'_> {
    /// Checks a body; also returns its maximum depth, for [`Self::end_of_body`].
    pub(super) fn measured_body<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> (T, usize) {
        let (now, deepest) = (std::mem::take(&mut self.depth.now), std::mem::take(&mut self.depth.deepest));
        let checked = check(self);
        let own = std::mem::replace(&mut self.depth.deepest, deepest);
        self.depth.now = now;
        (checked, own)
    }

    /// Records the depth of a body; reports one that is too deep.
    pub(super) fn end_of_body(&mut self, body: Body, depth: usize, span: Span) {
        if depth > MAX_DEPTH {
            let message =
                format!("calls, blocks and expressions are nested more than {MAX_DEPTH} levels deep");
            self.error(Code::TooDeep, span, message, "reduce the nesting of calls");
        }
        // Reported once, not for each caller.
        self.depth.of.insert(body, if depth > MAX_DEPTH { 0 } else { depth });
    }

    /// Records a call at the current location.
    pub(super) fn called(&mut self, callee: &Callee) {
        let body = match callee {
            Callee::Action(id) => Body::Action(id.0),
            Callee::Function(id) => Body::Function(id.0),
            Callee::Table(id) => Body::Table(id.0),
            Callee::Apply(Object::Instance(id)) => match self.program.instances[id.0 as usize].what {
                Constructed::Parser(p) => Body::Parser(p.0),
                Constructed::Control(c) => Body::Control(c.0),
                Constructed::Extern | Constructed::Package => return,
            },
            _ => return,
        };
        self.uses(body);
    }

    /// Records a use of a body at the current location.
    pub(super) fn uses(&mut self, body: Body) {
        let depth = self.depth.now + 1 + self.depth.of.get(&body).copied().unwrap_or(0);
        self.depth.deepest = self.depth.deepest.max(depth);
    }
}
