//! The optimiser. Every pass keeps the function's meaning and its SSA form.
//!
//! [`simplify`] folds, propagates copies and constants, and finds equal values; [`cfg`] tidies blocks; [`joins`] flattens
//! what meets step by step;
//! [`thread`] sends control past branches whose outcome is known on some way to them, which resolves most questions
//! about header validity; [`bounds`] merges bounds checks; [`expand`] turns write-backs into stores of what changed;
//! [`sink`] moves loads to where they are used; [`dce`] drops what is not.

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

/// Rounds of simplification: each threads what the last one made known. Programs settle after three or four.
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

/// The largest value that an operand may have.
pub(crate) fn known_max(f: &Function, o: crate::ir::Opnd) -> u64 {
    known::max(f, o)
}
