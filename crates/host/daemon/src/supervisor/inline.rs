//! Switches that run a tenant's programs themselves (placement `inline`), each with maps of its own.
//!
//! The tenant's P4 VM then receives no packets. It links and verifies programs in its sandbox; the supervisor
//! sends the verified programs with their digests to the switches. A switch keeps its programs while the
//! daemon or the P4 VM is down.

use super::SupervisorConfig;
use super::epochs::Epochs;
use super::provision::{self, InlineSwitch, Objects, Pages, ProgramHost, ProgramRequest};
use crate::adoption::ProgramMark;
use crate::attachment::SwitchKey;
use crate::rotation::keys::Keys;
use p4shield_abi::Direction;
use p4shield_compartment::is_recoverable;
use p4shield_control::{ClientError, ProgramSlot, Reply, Request, Status};
use sha2::{Digest, Sha256};
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// A configured program.
#[derive(Clone, Debug, Default)]
pub(super) struct VerifiedProgram {
    pub(super) objects: Objects,
    /// The digest, once a P4 VM has verified the program.
    pub(super) digest: Option<[u8; 32]>,
    objects_digest: OnceCell<[u8; 32]>,
}

impl VerifiedProgram {
    pub(super) fn new(objects: Objects, digest: Option<[u8; 32]>) -> Self {
        Self { objects, digest, objects_digest: OnceCell::new() }
    }

    /// Returns what tells it from other programs, once a P4 VM has verified it.
    pub(super) fn mark(&self) -> Option<ProgramMark> {
        let objects =
            || self.objects.iter().fold(Sha256::new(), |sum, o| sum.chain_update(Sha256::digest(o)));
        let objects = *self.objects_digest.get_or_init(|| objects().finalize().into());
        self.digest.map(|digest| ProgramMark { objects, digest })
    }
}

/// The switches that run this tenant's programs.
#[derive(Debug, Default)]
pub(super) struct InlineSwitches {
    /// With the error of provisioning, if there was one.
    known: BTreeMap<SwitchKey, Option<String>>,
    /// The switch that has the pages: a log has one writer.
    pages: Option<SwitchKey>,
}

impl InlineSwitches {
    /// Forgets all switches, which are then provisioned anew.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Provisions new switches and forgets those that are gone. Returns an error or a note, if there is one.
    pub(super) fn update(
        &mut self,
        config: &SupervisorConfig,
        (epochs, keys): (&mut Epochs, &mut Keys),
        pages: &[Pages],
        programs: &[[VerifiedProgram; 2]],
    ) -> Option<String> {
        let connected = if config.connected { config.attachment.inline_switches() } else { Vec::new() };
        self.known.retain(|switch, _| connected.contains(switch));
        // Another switch gets the pages; it is provisioned anew.
        if self.pages.is_some_and(|p| !connected.contains(&p)) {
            self.pages = None;
            if let Some(successor) = self.known.keys().next().copied() {
                self.known.remove(&successor);
            }
        }
        for switch in connected {
            if self.known.contains_key(&switch) {
                continue;
            }
            let with_pages = *self.pages.get_or_insert(switch) == switch;
            let pages = with_pages.then_some(pages);
            let provisioned = provision_switch(config, switch, (epochs, keys), pages, programs);
            self.known.insert(switch, provisioned.err());
        }
        let error = self.known.values().flatten().next().cloned();
        let alone = self.known.len() > 1 && pages.iter().flatten().any(Option::is_some);
        error.or_else(|| {
            alone.then(|| {
                "its programs run in several switches, of which only the first has info and log pages"
                    .to_owned()
            })
        })
    }

    /// Replaces a program in all switches.
    ///
    /// # Errors
    /// A switch refused the program; it keeps the previous one.
    pub(super) fn load(
        &mut self,
        config: &SupervisorConfig,
        slot: ProgramSlot,
        program: &VerifiedProgram,
    ) -> Result<(), ClientError> {
        for &switch in self.known.keys() {
            let mut host = InlineSwitch { config, switch };
            provision::load(&mut host, slot, &program.objects, program.digest)?;
        }
        Ok(())
    }

    /// Sends a request to the switch that has the pages: each switch has maps of its own.
    pub(super) fn ask(&self, config: &SupervisorConfig, request: Request) -> Result<Reply, String> {
        let switch = self.pages.ok_or("no switch runs the programs yet")?;
        let mut host = InlineSwitch { config, switch };
        host.request(ProgramRequest::new(request)).map_err(|e| e.to_string())
    }

    /// Gives a VM's new key to the switch that has the pages. A switch that comes later gets it then.
    pub(super) fn set_keys(
        &self,
        config: &SupervisorConfig,
        request: ProgramRequest<'_>,
    ) -> Result<(), ClientError> {
        let Some(switch) = self.pages else { return Ok(()) };
        let mut host = InlineSwitch { config, switch };
        host.request(request).map(drop)
    }

    /// Returns the status of the switch that has the pages.
    pub(super) fn status(&self, config: &SupervisorConfig) -> Option<Status> {
        let mut host = InlineSwitch { config, switch: self.pages? };
        match host.request(ProgramRequest::new(Request::Status)) {
            Ok(Reply::Status(status)) => Some(*status),
            // `update` notices a switch that has left.
            _ => None,
        }
    }
}

fn provision_switch(
    config: &SupervisorConfig,
    switch: SwitchKey,
    (epochs, keys): (&mut Epochs, &mut Keys),
    pages: Option<&[Pages]>,
    programs: &[[VerifiedProgram; 2]],
) -> Result<(), String> {
    let mut host = InlineSwitch { config, switch };
    let hello = provision::hello(config, epochs.reserve());
    host.request(ProgramRequest::new(Request::Hello(hello))).map_err(|e| e.to_string())?;
    provision::set_vms(&mut host, config, keys, pages).map_err(|e| e.to_string())?;
    provision::expect_programs(&mut host, config).map_err(|e| e.to_string())?;
    epochs.settle();
    let mut refused = Vec::new();
    for (v, programs) in programs.iter().enumerate() {
        for direction in Direction::ALL {
            let program = &programs[direction as usize];
            if program.digest.is_none() {
                continue;
            }
            match provision::load(
                &mut host,
                ProgramSlot::new(v as u16, direction),
                &program.objects,
                program.digest,
            ) {
                Ok(_) => {}
                Err(e) if is_recoverable(&e) => refused.push(e.to_string()),
                Err(e) => return Err(e.to_string()),
            }
        }
    }
    config.attachment.activate_inline(switch, config.index);
    if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) }
}
