//! The optimiser. Every pass preserves the function's meaning and its SSA form.
//!
//! [`simplify`] folds constants, propagates copies and merges equal values; [`mod@cfg`] simplifies the
//! control flow graph; [`joins`] flattens nested joins; [`thread`] lets paths bypass branches whose direction
//! they determine, which resolves most tests of header validity; [`bounds`] merges bounds checks;
//! [`mod@block`] leaves out words of a divided program's block; [`expand`] turns write-backs into stores of
//! changed bytes; [`sink`] moves loads to their uses; [`dce`] removes unused values. The result goes to
//! `codegen`.

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
mod thread;
mod uses;

use crate::ir::{Function, MapId, Op, Opnd};
pub(crate) use known::max as known_max;
use p4shield_abi::context::offset::OUTPUT_ACTION;

/// Maximum number of simplification rounds: each uses what the last one found. Programs settle
/// after three or four.
const ROUNDS: usize = 8;

/// Optimises a function in place. `block` is the map with the block of a divided program. Returns whether the
/// program is divided still.
pub(crate) fn optimise(f: &mut Function, block: Option<MapId>) -> bool {
    if let Some(map) = block {
        dce::remove_dead(f);
        block::compact(f, map);
        settle(f);
        block::merge(f, map);
        block::compact(f, map);
    }
    settle(f);
    let divided = block.is_some() && asks(f);
    if block.is_some() && !divided {
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
    if let Some(map) = block {
        block::compact(f, map);
        dce::remove_dead(f);
    }
    cfg::tidy(f);
    divided
}

/// Returns true if the program asks the switch for anything.
fn asks(f: &Function) -> bool {
    let live = crate::ir::graph::ControlFlowGraph::new(f).order;
    live.iter()
        .flat_map(|b| &f.block(*b).insts)
        .any(|v| matches!(f.inst(*v).op, Op::SetContext(OUTPUT_ACTION, ..)))
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
