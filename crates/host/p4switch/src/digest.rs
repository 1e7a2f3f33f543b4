//! Digests of the program, for `p4shield switch digest`.
//!
//! The program writes them to a map, and the desk copies what a client has not seen, between two rounds of
//! the packet thread. Each client counts for itself, and none of them keeps the program from writing.

use crate::api::DigestsView;
use crate::desk::Desk;
use crate::order::Work;
use p4shield_abi::digest::{DIGEST_MAP, MAX_DIGESTS};
use p4shield_abi::schema::MessageKind;
use p4shield_bpf::maps::MapCopy;
use p4shield_tables::message::{DigestMap, messages, sent, view};

/// Bits of a digest's number in its series.
const SERIES: u32 = 40;
const NONE: &str = "the program sends no digests: it calls digest() nowhere";

impl Desk {
    /// Returns the digests from this number on.
    pub(crate) fn digests(&self, from: Option<u64>) -> Result<DigestsView, String> {
        let program = self.program();
        let map = DigestMap::find(&program.described).ok_or(NONE)?;
        let kinds = messages(&program.described, MessageKind::Digest).map(view).collect();
        let first = self.copy_digests(&map, 0)?;
        let next = first.first().map_or(0, |element| sent(element));
        let base = program.series << SERIES;
        // A client that continues an older series gets all of this one.
        let of_series = |from: u64| from.checked_sub(base).filter(|from| *from <= next).unwrap_or(0);
        let from = from.map_or(next, of_series);
        let oldest = next.saturating_sub(u64::from(MAX_DIGESTS));
        let mut digests = Vec::new();
        let mut number = from.max(oldest);
        while number < next {
            let part = self.copy_digests(&map, DigestMap::index(number))?;
            let before = number;
            for element in part.iter().take(usize::try_from(next - number).unwrap_or(usize::MAX)) {
                digests.extend(map.digest(number, element));
                number += 1;
            }
            if number == before {
                return Err("the digests' map ends too early".to_owned());
            }
        }
        let missed = next - from - digests.len() as u64;
        Ok(DigestsView { kinds, digests, next: base + next, missed })
    }

    /// Copies elements from this index on: as many as an order may.
    fn copy_digests(&self, map: &DigestMap<'_>, index: u32) -> Result<Vec<Vec<u8>>, String> {
        let copy = MapCopy::new(map.definition, index);
        let done = self.threads.execute(Work::Copy { map: DIGEST_MAP.to_owned(), copy })?;
        let Work::Copy { copy, .. } = done.work else { return Err("no digests".to_owned()) };
        done.result.map_err(|e| e.to_string())?;
        Ok(copy.entries().map(|(_, element)| element.to_vec()).collect())
    }
}
