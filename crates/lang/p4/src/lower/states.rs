//! The states of a parser, and the unrolling of its loops.
//!
//! The generated code has no loops: PREVAIL's analysis of loops is expensive, and every analysis of
//! this compiler is one pass. A loop of states is unrolled once per iteration. Most loops advance
//! through a header stack: the index of the next element is then a constant in each copy, and the
//! loop ends where the stack is full. A loop that counts to a constant is unrolled for a trial, which
//! shows its end. Any other loop ends after [`MAX_ROUNDS`], or fewer where the program would be too long to
//! load, with a warning at compile time and the language's error for a parser timeout at run time.

use super::state_loop::{Order, StateLoop};
use super::{Lowering, MAX_INLINED};
use crate::hir::{self, Next, Target};
use crate::ir::Block;
use crate::source::Span;
use p4shield_abi::ProgramLimit;
use p4shield_tables::model::Architecture;
use p4shield_tables::trace::PointKind;
use std::collections::HashMap;
use std::ops::Range;

/// Maximum number of iterations of a loop without another bound: the number of option bytes of TCP,
/// the longest usual loop. A program that is too long to load with them gets fewer.
pub(crate) const MAX_ROUNDS: u32 = 40;

/// Maximum number of iterations of a loop that counts to a constant: one more than a counter of 8 bits has
/// values, because the last one shows that no other follows.
const MAX_COUNT: u32 = 257;

/// Maximum number of statements of the trial that looks for the end of a loop.
const MAX_TRIAL: usize = 20_000;

/// The blocks of the states, by state and iteration.
struct StateBlocks<'a> {
    parser: &'a hir::Parser,
    order: Order,
    blocks: HashMap<(usize, u32), Block>,
    accept: Block,
}

impl Lowering<'_> {
    /// Inlines the states of a parser whose parameters are bound; continues where it accepts.
    pub(super) fn parse_states(&mut self, p: &hir::Parser) {
        self.stmts(&p.locals);
        if p.states.is_empty() {
            return;
        }
        let accept = self.b.new_block("accept");
        let mut layout = StateBlocks { parser: p, order: Order::of(p), blocks: HashMap::new(), accept };
        let start = self.state_block(&mut layout, 0, 0);
        self.b.jump(start);
        let mut at = 0;
        while at < layout.order.states.len() {
            let component = layout.order.component[layout.order.states[at]];
            let same = |i: &&usize| layout.order.component[**i] == component;
            let members: Vec<usize> = layout.order.states[at..].iter().take_while(same).copied().collect();
            at += members.len();
            self.rounds(&mut layout, &members);
        }
        self.b.switch_to(accept);
    }

    /// Unrolls a loop of states until no path leads to another iteration.
    fn rounds(&mut self, layout: &mut StateBlocks<'_>, members: &[usize]) {
        let states = StateLoop { program: self.hir, parser: layout.parser, order: &layout.order, members };
        let (bound, plain) = (states.bound(), states.is_plain());
        let rounds = bound.unwrap_or(self.rounds);
        if self.unroll(layout, members, 0..rounds, MAX_INLINED) {
            return;
        }
        if bound.is_none() && !self.too_large {
            if plain && self.ends(layout, members) {
                return;
            }
            self.warn_of_timeout(layout.parser.states[members[0]].span);
        }
        for s in members {
            if self.enter_state(layout, *s, rounds) {
                self.time_out();
            }
        }
    }

    /// Whether a loop ends after more iterations than a loop without a known end gets. If not, the trial
    /// leaves no trace.
    fn ends(&mut self, layout: &mut StateBlocks<'_>, members: &[usize]) -> bool {
        let known = self.cut_loops.contains(&layout.parser.states[members[0]].span);
        if known || self.inlined > MAX_INLINED / 2 {
            return false;
        }
        let before = (self.b.clone(), self.env.clone(), self.inlined, layout.blocks.clone());
        if self.unroll(layout, members, self.rounds..MAX_COUNT, self.inlined + MAX_TRIAL) {
            return true;
        }
        (self.b, self.env, self.inlined, layout.blocks) = before;
        false
    }

    fn warn_of_timeout(&mut self, at: Span) {
        let fate = match self.architecture {
            Architecture::V1model => "a packet that needs more is rejected with error.ParserTimeout",
            _ => "a packet that needs more is dropped",
        };
        let hint = "extract into the `next` element of a stack in each iteration, or count to a constant";
        self.cut_parser = true;
        self.cut_loop(at, self.rounds, fate, hint);
    }

    /// Ends the parser for a packet that needs more iterations. v1model's pipeline judges it by its error;
    /// elsewhere, it is dropped even where rejected packets pass.
    fn time_out(&mut self) {
        if self.architecture == Architecture::V1model {
            return self.fail("ParserTimeout");
        }
        let beyond = self.at_limit(ProgramLimit::Loop);
        self.b.jump(beyond);
    }

    /// Lowers iterations of a loop until more than `most` statements are inlined; returns whether none
    /// follows them.
    fn unroll(
        &mut self,
        layout: &mut StateBlocks<'_>,
        members: &[usize],
        rounds: Range<u32>,
        most: usize,
    ) -> bool {
        for round in rounds {
            let mut live = false;
            for s in members {
                if self.enter_state(layout, *s, round) {
                    live = true;
                    self.state(layout, *s, round);
                }
            }
            if !live {
                return true;
            }
            if self.too_large || self.inlined > most {
                return false;
            }
        }
        false
    }

    /// Continues in a state if it can be reached.
    fn enter_state(&mut self, layout: &StateBlocks<'_>, state: usize, round: u32) -> bool {
        let Some(block) = layout.blocks.get(&(state, round)).copied() else { return false };
        self.b.switch_to(block);
        !self.b.is_dead()
    }

    fn state(&mut self, layout: &mut StateBlocks<'_>, i: usize, round: u32) {
        let s = &layout.parser.states[i];
        self.b.span = s.span;
        self.trace(PointKind::State, Some(&s.name), s.span, &[]);
        self.stmts(&s.body);
        match &s.next {
            Next::To(t) => {
                let to = self.target(layout, *t, i, round);
                self.b.jump(to);
            }
            Next::Select { subjects, cases, span } => {
                self.b.span = *span;
                let targets: Vec<Block> =
                    cases.iter().map(|(_, t)| self.target(layout, *t, i, round)).collect();
                self.select_state(subjects, cases, &targets);
            }
        }
    }

    fn target(&mut self, layout: &mut StateBlocks<'_>, t: Target, from: usize, round: u32) -> Block {
        match t {
            Target::Accept => layout.accept,
            Target::Reject => self.reject,
            Target::State(s) => {
                let to = s.0 as usize;
                let o = &layout.order;
                let inside = o.component[to] == o.component[from];
                let back = inside && o.is_back(from, to);
                let round = if inside { round + u32::from(back) } else { 0 };
                self.state_block(layout, to, round)
            }
        }
    }

    fn state_block(&mut self, layout: &mut StateBlocks<'_>, i: usize, round: u32) -> Block {
        let name = &layout.parser.states[i].name;
        *layout.blocks.entry((i, round)).or_insert_with(|| self.b.new_block(&format!("state {name}")))
    }
}
