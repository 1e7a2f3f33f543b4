//! The values of variables as words: what a divided program stores in its block.

use super::storage::{NOT_EXTRACTED, Storage};
use crate::ir::builder::Slot;

/// A value in the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) slot: Slot,
    /// Its value in a packet that does not keep it.
    pub(super) reset: u64,
}

/// Adds the values of a variable.
pub(super) fn words_of(s: &Storage, out: &mut Vec<Word>) {
    let plain = |slot: &Slot| Word { slot: *slot, reset: 0 };
    match s {
        Storage::Scalar(slots, _) => out.extend(slots.iter().map(plain)),
        Storage::Group(fields) => fields.iter().for_each(|f| words_of(f, out)),
        Storage::Stack(items, next) => {
            out.push(plain(next));
            items.iter().for_each(|f| words_of(f, out));
        }
        Storage::Header(h) => {
            out.push(plain(&h.valid));
            out.push(Word { slot: h.at, reset: NOT_EXTRACTED });
            h.fields.iter().for_each(|f| words_of(f, out));
            out.extend(h.original.iter().flatten().map(plain));
        }
        Storage::Varbit(v) => out.extend([v.from, v.bytes].iter().map(plain)),
        Storage::Opaque => {}
    }
}
