//! Replaces the program while packets flow.
//!
//! The desk verifies and compiles the new program; a packet thread then exchanges both between two
//! rounds. The new program takes the entries of what both declare alike ([`Kept`]).

use crate::api::{Answer, Replaced};
use crate::desk::Desk;
use crate::order::{Replacement, Work};
use crate::program::{Named, parsed};
use p4shield_abi::digest::DIGEST_MAP;
use p4shield_tables::Kept;
use std::sync::PoisonError;

impl Desk {
    pub(crate) fn replace(
        &self,
        file: &str,
        objects: &[String],
        traced: Result<Vec<String>, String>,
    ) -> Result<Answer, String> {
        // The name comes from a client, and errors show it.
        let file = p4shield_text::printable(file);
        let objects = parsed(&file, objects)?;
        let traced = traced.and_then(|objects| parsed(&file, &objects));
        // Outside the lock, since it takes seconds.
        let (program, traits, named) = (self.loader)(&file, &objects)?.parts(traced);
        let mut running = self.program.write().unwrap_or_else(PoisonError::into_inner);
        let Kept { maps, kept, lost } = Kept::between(&running.described, &named.described);
        let series = running.series + u64::from(!maps.iter().any(|m| m == DIGEST_MAP));
        self.gather_program(&mut running)?;
        let replacement = Replacement { program: Some(program), traits, maps, twin: None };
        // The old program, which is in the answer, is dropped here and not by the packet thread.
        let held = self.hold();
        self.threads.execute(Work::Replace(Box::new(replacement)))?;
        *running = Named { series, ..named };
        drop(held);
        drop(running);
        self.spread();
        Ok(Answer::Replaced(Replaced { kept, lost }))
    }
}
