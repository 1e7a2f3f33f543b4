//! The order of a parser's states, and how often its loops can iterate.

use crate::hir::{
    Call, CallArg, Callee, Expr, ExprKind, Keyset, Next, Parser, Program, State, Stmt, StmtKind, VarId,
};
use crate::types::Type;
use std::collections::HashMap;

/// Maximum length of a path between two extractions that is followed.
const MAX_PATH: usize = 64;

/// States in topological order, except within loops.
pub(super) struct Order {
    /// States by position, and the loop of each.
    pub(super) states: Vec<usize>,
    position: Vec<usize>,
    pub(super) component: Vec<usize>,
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
    pub(super) fn of(p: &Parser) -> Self {
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

    /// Whether a transition within a loop begins another iteration.
    pub(super) fn is_back(&self, from: usize, to: usize) -> bool {
        self.position[to] <= self.position[from]
    }
}

/// A header stack as its variable and the fields that lead to it.
type StackPath = (VarId, Vec<usize>);

/// A loop: states of a parser that reach each other.
pub(super) struct StateLoop<'a> {
    pub(super) program: &'a Program,
    pub(super) parser: &'a Parser,
    pub(super) order: &'a Order,
    pub(super) members: &'a [usize],
}

impl StateLoop<'_> {
    /// Returns the maximum number of iterations if each of them extracts into the next element of a stack,
    /// so that the loop ends where the stacks are full.
    pub(super) fn bound(&self) -> Option<u32> {
        let states = || self.members.iter().map(|s| &self.parser.states[*s]);
        if states().flat_map(|s| &s.body).any(|s| self.changes_stack(s)) {
            return None;
        }
        let stacks: HashMap<StackPath, u32> = states().filter_map(|s| self.stack(s)).collect();
        let elements = stacks.values().try_fold(0u32, |sum, n| sum.checked_add(*n))?;
        let mut known = HashMap::new();
        let mut longest = 0;
        for s in self.members {
            longest = longest.max(self.turns(*s, 0, &mut known)?);
        }
        // One more extraction than there are elements rejects the packet.
        longest.checked_mul(elements.checked_add(1)?)?.checked_add(1)
    }

    /// Returns how often a path from a state can begin another iteration before it reaches a state that
    /// extracts into a stack; `None` if a path never does.
    fn turns(&self, from: usize, depth: usize, known: &mut HashMap<usize, Option<u32>>) -> Option<u32> {
        if let Some(turns) = known.get(&from) {
            return *turns;
        }
        // A path that returns here before it is known is a cycle without an extraction.
        known.insert(from, None);
        let mut most = 0;
        for to in self.parser.states[from].next.states().filter(|to| self.members.contains(to)) {
            let behind = match self.stack(&self.parser.states[to]) {
                Some(_) => 0,
                None if depth < MAX_PATH => self.turns(to, depth + 1, known)?,
                None => return None,
            };
            most = most.max(behind + u32::from(self.order.is_back(from, to)));
        }
        known.insert(from, Some(most));
        Some(most)
    }

    /// Returns the stack into whose next element a state extracts, and its size.
    fn stack(&self, s: &State) -> Option<(StackPath, u32)> {
        s.body.iter().find_map(|s| {
            let StmtKind::Call(c) = &s.kind else { return None };
            let Callee::Method { of, method, .. } = &c.callee else { return None };
            let e = &self.program.externs[of.0 as usize];
            let Some(CallArg::Out(header)) = c.args.first() else { return None };
            let extracts = &*e.name == "packet_in" && &*e.methods[*method].name == "extract";
            if extracts { next_of(header) } else { None }
        })
    }

    /// Whether a statement may change the next index of a stack otherwise than by an extraction.
    fn changes_stack(&self, s: &Stmt) -> bool {
        let changes = match &s.kind {
            StmtKind::Assign(target, _) => holds_stack(&target.ty),
            // A stack that is declared in the loop is a new one in each iteration.
            StmtKind::Declare(v, _) => holds_stack(&self.program.vars[v.0 as usize].ty),
            StmtKind::Call(c) => moves_stack(c) || c.args.iter().filter_map(CallArg::expr).any(calls_mover),
            _ => false,
        };
        changes
            || s.exprs().into_iter().any(calls_mover)
            || s.blocks().into_iter().flatten().any(|s| self.changes_stack(s))
    }

    /// Whether nothing but the packet and the parser's variables decides and changes anything, so that an
    /// iteration can be lowered for a trial.
    pub(super) fn is_plain(&self) -> bool {
        let states = || self.members.iter().map(|s| &self.parser.states[*s]);
        let sets = |s: &State| match &s.next {
            Next::To(_) => false,
            Next::Select { subjects, cases, .. } => {
                subjects.iter().any(|e| e.any(&|e| self.calls_out(e)))
                    || cases.iter().flat_map(|(keys, _)| keys).any(|k| matches!(k, Keyset::Set(_)))
            }
        };
        !states().any(sets) && states().flat_map(|s| &s.body).all(|s| self.is_plain_statement(s))
    }

    fn is_plain_statement(&self, s: &Stmt) -> bool {
        let called = match &s.kind {
            StmtKind::Call(c) => self.leaves_parser(&c.callee) || c.args.iter().any(CallArg::has_effect),
            _ => false,
        };
        !called
            && !s.exprs().into_iter().any(|e| e.any(&|e| self.calls_out(e)))
            && s.blocks().into_iter().flatten().all(|s| self.is_plain_statement(s))
    }

    fn calls_out(&self, e: &Expr) -> bool {
        matches!(&e.kind, ExprKind::Call(c) if self.leaves_parser(&c.callee))
    }

    /// Whether a callee is anything but a method of the packet or of a header, or `verify`.
    fn leaves_parser(&self, callee: &Callee) -> bool {
        match callee {
            Callee::Method { of, .. } => &*self.program.externs[of.0 as usize].name != "packet_in",
            Callee::Extern(f) => &*self.program.extern_fns[f.0 as usize].name != "verify",
            Callee::SetValid(_) | Callee::SetInvalid(_) | Callee::Push { .. } => false,
            _ => true,
        }
    }
}

fn holds_stack(ty: &Type) -> bool {
    ty.contains(&|t| matches!(t, Type::Stack(..)))
}

/// Whether a call may assign to a stack.
fn moves_stack(c: &Call) -> bool {
    let assigns = |a: &CallArg| matches!(a, CallArg::Out(e) | CallArg::InOut(e) if holds_stack(&e.ty));
    matches!(c.callee, Callee::Push { .. }) || c.args.iter().any(assigns)
}

fn calls_mover(e: &Expr) -> bool {
    e.any(&|e| matches!(&e.kind, ExprKind::Call(c) if moves_stack(c)))
}

/// Returns the stack of `stack.next`, or of a member of the union that it is.
fn next_of(e: &Expr) -> Option<(StackPath, u32)> {
    match &e.kind {
        ExprKind::Field(union, _) if union.ty.is_union() => next_of(union),
        ExprKind::StackNext(stack) => {
            let Type::Stack(_, size) = stack.ty.base() else { return None };
            Some((path(stack)?, *size))
        }
        _ => None,
    }
}

fn path(e: &Expr) -> Option<StackPath> {
    match &e.kind {
        ExprKind::Var(v) => Some((*v, Vec::new())),
        ExprKind::Field(of, i) => {
            let (v, mut fields) = path(of)?;
            fields.push(*i);
            Some((v, fields))
        }
        _ => None,
    }
}
