//! The optimiser. Every pass preserves the function's meaning and its SSA form.
//!
//! [`simplify`] folds constants, propagates copies and merges equal values; [`mod@cfg`] simplifies the
//! control flow graph; [`joins`] flattens nested joins; [`thread`] lets paths bypass branches whose
//! direction they determine, which resolves most tests of header validity; [`bounds`] merges bounds
//! checks; [`expand`] turns write-backs into stores of changed bytes; [`sink`] moves loads to their
//! uses; [`dce`] removes unused values. The result goes to `codegen`.

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

use crate::ir::Function;
pub(crate) use known::max as known_max;

/// Maximum number of simplification rounds: each uses what the last one found. Programs settle
/// after three or four.
const ROUNDS: usize = 8;

/// Optimises a function in place.
pub(crate) fn optimise(f: &mut Function) {
    settle(f);
    bounds::merge(f);
    expand::write_backs(f);
    settle(f);
    bounds::merge(f);
    settle(f);
    sink::sink(f);
    dce::remove_dead(f);
    cfg::tidy(f);
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
