//! The optimiser. Every pass preserves the function's meaning and its SSA form.
//!
//! [`simplify`] folds constants, propagates copies and merges equal values; [`mod@cfg`] simplifies the
//! control flow graph; [`joins`] flattens nested joins; [`thread`] lets paths bypass branches whose direction
//! they determine, which resolves most tests of header validity; [`bounds`] merges bounds checks;
//! [`suspend`] divides the function at calls in a compartment; [`mod@block`] leaves out words that a program
//! carries from one run to another; [`expand`] turns write-backs into stores of changed bytes; [`sink`] moves
//! loads to their uses; [`dce`] removes unused values. The result goes to `codegen`.

mod block;
mod bounds;
mod cfg;
mod dce;
mod expand;
mod facts;
pub(crate) mod fold;
mod joins;
mod known;
mod repair;
mod rules;
mod simplify;
mod sink;
mod suspend;
mod thread;
mod uses;

use crate::ir::{Function, MapId, Op, Opnd};
pub(crate) use known::max as known_max;
use p4shield_abi::context::offset::OUTPUT_ACTION;
use p4shield_abi::division::{BLOCK_HEADER_SIZE, request};
pub(crate) use suspend::SuspendError;

const CALL: Opnd = Opnd::C(request::CALL as u64);

/// Maximum number of simplification rounds: each uses what the last one found. Programs settle
/// after three or four.
const ROUNDS: usize = 8;

/// The maps with which a program goes on after a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    /// The block of a divided program.
    pub(crate) block: Option<MapId>,
    /// The messages of calls in a compartment.
    pub(crate) calls: Option<MapId>,
}

/// Optimises a function in place. Returns whether the program is divided still.
///
/// # Errors
/// [`SuspendError`]: it cannot be divided at a call.
pub(crate) fn optimise(f: &mut Function, carried: Carried) -> Result<bool, SuspendError> {
    let block = carried.block.map(|map| block::Area { map, header: BLOCK_HEADER_SIZE as u32 });
    let calls = carried.calls.map(|map| suspend::area(f, map));
    dce::remove_dead(f);
    if let Some(area) = calls {
        suspend::divide(f, area)?;
        dce::remove_dead(f);
    }
    let areas: Vec<_> = block.into_iter().chain(calls).collect();
    areas.iter().for_each(|area| block::compact(f, *area));
    if !areas.is_empty() {
        settle(f);
    }
    for area in &areas {
        block::merge(f, *area);
        block::compact(f, *area);
    }
    settle(f);
    let divided = block.is_some() && asks(f);
    if block.is_some() && !divided && calls.is_none() {
        forget_entries(f);
        settle(f);
    }
    bounds::merge(f);
    expand::write_backs(f);
    settle(f);
    bounds::merge(f);
    settle(f);
    sink::sink(f);
    dce::remove_dead(f);
    for area in &areas {
        block::compact(f, *area);
        dce::remove_dead(f);
    }
    cfg::tidy(f);
    Ok(divided)
}

/// Returns true if the program asks the traffic manager for anything.
fn asks(f: &Function) -> bool {
    let live = crate::ir::graph::ControlFlowGraph::new(f).order;
    live.iter()
        .flat_map(|b| &f.block(*b).insts)
        .any(|v| matches!(f.inst(*v).op, Op::SetContext(OUTPUT_ACTION, _, asked) if asked != CALL))
}

/// Lets a program that turned out to ask for nothing start in one way only.
fn forget_entries(f: &mut Function) {
    for i in &mut f.insts {
        if matches!(i.op, Op::Context(OUTPUT_ACTION, _)) {
            i.op = Op::Bin(crate::ir::BinOp::Or, Opnd::C(0), Opnd::C(0));
        }
    }
}

fn settle(f: &mut Function) {
    for _ in 0..ROUNDS {
        let mut changed = simplify::simplify(f);
        dce::remove_dead(f);
        changed |= cfg::tidy(f);
        changed |= thread::thread_jumps(f);
        changed |= cfg::tidy(f);
        if !changed {
            break;
        }
    }
}
