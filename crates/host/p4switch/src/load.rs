//! Replaces the program while packets flow.
//!
//! The desk verifies and compiles the new program; a packet thread then exchanges both between two
//! rounds. The new program takes the entries of what both declare alike ([`Kept`]). Functions that run in a
//! compartment come with it, in a P4 VM that has started before.

use crate::apart::{Apart, FunctionsConfig, Next};
use crate::api::{Answer, FunctionObjects, Replaced};
use crate::desk::Desk;
use crate::order::{Replacement, Work};
use crate::program::{Named, parsed};
use p4shield_abi::digest::DIGEST_MAP;
use p4shield_bpf::Program;
use p4shield_switch::Traits;
use p4shield_tables::Kept;
use std::sync::PoisonError;

const INLINE: &str =
    "the program's functions are for a compartment; start the switch with --placement extern";

/// A loaded program: see [`crate::program::Loaded::parts`].
type Parts = (Program, Traits, Named);

impl Desk {
    pub(crate) fn replace(
        &self,
        file: &str,
        objects: &[String],
        traced: Result<Vec<String>, String>,
        functions: Option<FunctionObjects>,
    ) -> Result<Answer, String> {
        // The name comes from a client, and errors show it.
        let file = p4shield_text::printable(file);
        let objects = parsed(&file, objects)?;
        let traced = traced.and_then(|objects| parsed(&file, &objects));
        // Outside the lock, since it takes seconds.
        let new = (self.loader)(&file, &objects)?.parts(traced);
        let next = functions.map(|functions| self.start_functions(functions)).transpose()?;
        let replaced = self.exchange(new, next)?;
        self.spread();
        Ok(Answer::Replaced(replaced))
    }

    /// Starts a P4 VM with the functions of a program that does not run yet.
    fn start_functions(&self, functions: FunctionObjects) -> Result<Next, String> {
        let apart = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        let config = apart.as_ref().map(|line| line.config.clone()).ok_or(INLINE)?;
        drop(apart);
        let FunctionObjects { objects, longest_message } = functions;
        let decoded = objects.iter().map(hex::decode).collect::<Result<_, _>>();
        let objects = decoded.map_err(|e| format!("an object with functions is not hexadecimal: {e}"))?;
        let config = FunctionsConfig { objects, longest_message, ..config };
        let started = Apart::start(&config, self.threads.count());
        let apart = started.map_err(|why| format!("the compartment with the program's functions: {why}"))?;
        Ok(Next { config, apart })
    }

    fn exchange(&self, parts: Parts, next: Option<Next>) -> Result<Replaced, String> {
        let (program, traits, named) = parts;
        let mut running = self.program.write().unwrap_or_else(PoisonError::into_inner);
        let Kept { maps, kept, lost } = Kept::between(&running.described, &named.described);
        let series = running.series + u64::from(!maps.iter().any(|m| m == DIGEST_MAP));
        let _held = self.hold();
        let replacement = Replacement { program: Some(program), traits, maps, twin: None };
        let done = self.gather_program(&mut running).and_then(|()| {
            // The old program, which is in the answer, is dropped here and not by the packet thread.
            self.threads.execute(Work::Replace(Box::new(replacement)))
        });
        if let Err(why) = done {
            next.into_iter().for_each(|next| next.apart.end());
            return Err(why);
        }
        *running = Named { series, ..named };
        let apart = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        apart.as_ref().map_or(Ok(()), |line| line.exchange(next))?;
        Ok(Replaced { kept, lost })
    }
}
