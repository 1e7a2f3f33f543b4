//! How deep calls may lie within calls.
//!
//! What is called is put in place of the call by later stages, which go down into it: each level of blocks,
//! expressions and calls costs them some of their stack. So every body has a depth, that of what it calls included,
//! and that is limited here, once for all stages.

use super::Checker;
use crate::diagnostics::Code;
use crate::hir::{Callee, Constructed, Object};
use crate::source::Span;
use std::collections::HashMap;

/// Levels of blocks, expressions and calls within each other.
const MAX_DEPTH: usize = 400;

/// Depths, of the place that is being checked and of all bodies so far.
#[derive(Debug, Default)]
pub(super) struct Depth {
    /// Levels around the current place.
    pub(super) now: usize,
    /// The deepest place so far in the current body, what it calls included.
    deepest: usize,
    of: HashMap<Body, usize>,
}

/// What has a depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Body {
    Action(u32),
    Function(u32),
    Table(u32),
    Parser(u32),
    Control(u32),
}

impl Checker<'_> {
    /// Runs a check of a body; also returns how deep calls in it go, which is for [`Self::end_of_body`].
    pub(super) fn measured_body<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> (T, usize) {
        let (now, deepest) = (std::mem::take(&mut self.depth.now), std::mem::take(&mut self.depth.deepest));
        let checked = check(self);
        let own = std::mem::replace(&mut self.depth.deepest, deepest);
        self.depth.now = now;
        (checked, own)
    }

    /// Notes the depth of a body; reports one that is too deep.
    pub(super) fn end_of_body(&mut self, body: Body, depth: usize, span: Span) {
        if depth > MAX_DEPTH {
            let message =
                format!("calls, blocks and expressions are nested more than {MAX_DEPTH} levels deep");
            self.error(Code::TooDeep, span, message, "call fewer things that call others");
        }
        // Reported once, not again by each caller.
        self.depth.of.insert(body, if depth > MAX_DEPTH { 0 } else { depth });
    }

    /// Notes a call at the current place.
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

    /// Notes that a body is used at the current place.
    pub(super) fn uses(&mut self, body: Body) {
        let depth = self.depth.now + 1 + self.depth.of.get(&body).copied().unwrap_or(0);
        self.depth.deepest = self.depth.deepest.max(depth);
    }
}
