//! Switches that run a tenant's programs themselves (placement `inline`), each with maps of its own.
//!
//! The tenant's P4 VM gets no packets then. It links and verifies programs, in its sandbox; what it accepted is handed on
//! with its digest. A switch keeps its programs while the daemon, or that P4 VM, is away.

use super::Charge;
use super::epochs::Epochs;
use super::furnish::{self, Inline, Objects, Pages, Question, Runner};
use super::process::in_step;
use crate::attachment::SwitchKey;
use p4shield_abi::Direction;
use p4shield_control::{ClientError, ProgramSlot, Reply, Request, Status};
use std::collections::BTreeMap;
use std::os::fd::AsFd;

/// A program that was verified.
#[derive(Clone, Debug, Default)]
pub(super) struct Proven {
    pub(super) objects: Objects,
    /// None: none runs.
    pub(super) digest: Option<[u8; 32]>,
}

/// The switches that have this tenant's programs.
#[derive(Debug, Default)]
pub(super) struct Switches {
    /// With what went wrong, if it did.
    known: BTreeMap<SwitchKey, Option<String>>,
    /// The one that has the pages: a log has one writer.
    pages: Option<SwitchKey>,
}

impl Switches {
    /// Furnishes switches that have come, and forgets those that are gone. What is wrong with some, if anything is.
    pub(super) fn follow(
        &mut self,
        charge: &Charge,
        epochs: &mut Epochs,
        pages: &[Pages],
        programs: &[[Proven; 2]],
    ) -> Option<String> {
        let there = charge.attachment.inline();
        self.known.retain(|switch, _| there.contains(switch));
        // Another one takes the pages over, with programs that begin anew.
        if self.pages.is_some_and(|p| !there.contains(&p)) {
            self.pages = None;
            if let Some(heir) = self.known.keys().next().copied() {
                self.known.remove(&heir);
            }
        }
        for switch in there {
            if self.known.contains_key(&switch) {
                continue;
            }
            let with_pages = *self.pages.get_or_insert(switch) == switch;
            let furnished = furnish(charge, switch, epochs, with_pages.then_some(pages), programs);
            self.known.insert(switch, furnished.err());
        }
        let wrong = self.known.values().flatten().next().cloned();
        let alone = self.known.len() > 1 && pages.iter().flatten().any(Option::is_some);
        wrong.or_else(|| {
            alone.then(|| {
                "its programs run in several switches, and only the first one has info and log pages"
                    .to_owned()
            })
        })
    }

    /// Replaces a program in all of them.
    ///
    /// # Errors
    /// What one of them says; it runs what it ran before.
    pub(super) fn load(
        &mut self,
        charge: &Charge,
        slot: ProgramSlot,
        program: &Proven,
    ) -> Result<(), ClientError> {
        for &switch in self.known.keys() {
            let mut to = Inline { charge, switch };
            furnish::load(&mut to, slot, &program.objects, program.digest)?;
        }
        Ok(())
    }

    /// How the one with the pages fares.
    pub(super) fn status(&self, charge: &Charge) -> Option<Status> {
        let mut of = Inline { charge, switch: self.pages? };
        match of.ask(Question::new(Request::Status)) {
            Ok(Reply::Status(status)) => Some(*status),
            // One that left is noticed by `follow`.
            _ => None,
        }
    }
}

fn furnish(
    charge: &Charge,
    switch: SwitchKey,
    epochs: &mut Epochs,
    pages: Option<&[Pages]>,
    programs: &[[Proven; 2]],
) -> Result<(), String> {
    let mut to = Inline { charge, switch };
    let (hello, key) = furnish::hello(charge, epochs.next())?;
    let key: Vec<_> = key.iter().map(AsFd::as_fd).collect();
    let question = Question { descriptors: &key, ..Question::new(Request::Hello(hello)) };
    to.ask(question).map_err(|e| e.to_string())?;
    furnish::set_vms(&mut to, charge, pages).map_err(|e| e.to_string())?;
    epochs.taken();
    let mut refused = Vec::new();
    for (v, programs) in programs.iter().enumerate() {
        for direction in Direction::ALL {
            let program = &programs[direction as usize];
            if program.digest.is_none() {
                continue;
            }
            match furnish::load(
                &mut to,
                ProgramSlot::new(v as u16, direction),
                &program.objects,
                program.digest,
            ) {
                Ok(_) => {}
                Err(e) if in_step(&e) => refused.push(e.to_string()),
                Err(e) => return Err(e.to_string()),
            }
        }
    }
    charge.attachment.judge(switch, charge.index);
    if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) }
}
