//! The order of a parser's states, and the unrolling of its loops.
//!
//! The generated code has no loops: PREVAIL's analysis of loops is expensive, and every analysis of
//! this compiler is one pass. A loop of states is unrolled once per iteration. Most loops advance
//! through a header stack: the index of the next element is then a constant in each copy, and the
//! loop ends where the stack is full. Other loops end after [`MAX_ROUNDS`], with the language's
//! error for a parser timeout.

use super::Lowering;
use crate::hir::{self, Next, Target};
use crate::ir::Block;
use std::collections::HashMap;

/// Maximum number of iterations of a loop without another bound: the number of option bytes of TCP,
/// the longest usual loop.
const MAX_ROUNDS: u32 = 40;

/// States in topological order, except within loops.
pub(super) struct Order {
    /// States by position, and the loop of each.
    states: Vec<usize>,
    position: Vec<usize>,
    component: Vec<usize>,
}

/// Returns the states from `start` in the postorder of a depth-first search.
fn postorder(n: usize, start: usize, next: &dyn Fn(usize) -> Vec<usize>, seen: &mut [bool]) -> Vec<usize> {
    let mut out = Vec::with_capacity(n);
    let mut stack = vec![(start, 0usize)];
    seen[start] = true;
    while let Some((i, k)) = stack.pop() {
        match next(i).get(k) {
            None => out.push(i),
            Some(s) => {
                stack.push((i, k + 1));
                if !std::mem::replace(&mut seen[*s], true) {
                    stack.push((*s, 0));
                }
            }
        }
    }
    out
}

impl Order {
    /// Computes the order with Kosaraju's algorithm: components in topological order, the
    /// states of each in reverse postorder.
    pub(super) fn of(p: &hir::Parser) -> Self {
        let n = p.states.len();
        let mut reverse = postorder(n, 0, &|i| p.states[i].next.states().collect(), &mut vec![false; n]);
        reverse.reverse();
        let mut predecessors = vec![Vec::new(); n];
        for i in &reverse {
            for s in p.states[*i].next.states() {
                predecessors[s].push(*i);
            }
        }
        let mut component = vec![usize::MAX; n];
        let mut reached = vec![true; n];
        reverse.iter().for_each(|i| reached[*i] = false);
        let mut count = 0;
        for i in &reverse {
            if !reached[*i] {
                for s in postorder(n, *i, &|i| predecessors[i].clone(), &mut reached) {
                    component[s] = count;
                }
                count += 1;
            }
        }
        let mut position = vec![0; n];
        reverse.iter().enumerate().for_each(|(at, i)| position[*i] = at);
        let mut states = reverse;
        states.sort_by_key(|i| (component[*i], position[*i]));
        Self { states, position, component }
    }
}

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
        for round in 0..=MAX_ROUNDS {
            let mut live = false;
            for s in members {
                let Some(block) = layout.blocks.get(&(*s, round)).copied() else { continue };
                self.b.switch_to(block);
                if self.b.is_dead() {
                    continue;
                }
                live = true;
                if round == MAX_ROUNDS || self.too_large {
                    self.fail("ParserTimeout");
                } else {
                    self.state(layout, *s, round);
                }
            }
            if !live {
                return;
            }
        }
    }

    fn state(&mut self, layout: &mut StateBlocks<'_>, i: usize, round: u32) {
        let s = &layout.parser.states[i];
        self.b.span = s.span;
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
                let back = inside && o.position[to] <= o.position[from];
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
