//! A tenant's bundles: the pinned key, the versions that ran, and the way from a bundle to its programs.
//!
//! The host delivers a bundle and is not trusted with it: this module verifies the signature before it
//! decodes anything, and decides about tenant, VM, version, header bytes and health checks. What it builds
//! replaces the programs of both directions at once, or nothing.

use crate::bundle_check;
use crate::program::{self, ProgramPair, Prover};
use crate::read_memory;
use p4shield_abi::Direction;
use p4shield_bundle::{Bundle, BundleError, BundledProgram, Contents, PublicKey, program_digest};
use p4shield_control::{BundleLoaded, BundleRequest, MAX_BUNDLE};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

const _: () = assert!(MAX_BUNDLE == p4shield_bundle::MAX_BUNDLE);

/// What a P4 VM remembers of its tenant's bundles.
#[derive(Default)]
pub(crate) struct Bundles {
    /// `None`: the tenant pins no key, and programs come as objects.
    key: Option<PublicKey>,
    /// By the VM's name: the newest version that ran.
    newest: BTreeMap<String, u64>,
    /// By VM: the header bytes that its programs need.
    needed: BTreeMap<u16, u32>,
    /// By channel: the header bytes that it has.
    channels: BTreeMap<u32, u32>,
}

/// The programs of a bundle, ready to run.
pub(crate) struct BuiltBundle {
    pub(crate) vm: u16,
    pub(crate) name: String,
    pub(crate) programs: Box<ProgramPair>,
    pub(crate) loaded: BundleLoaded,
    header_bytes: u32,
}

/// Reason why a bundle is not built.
pub(crate) enum NotBuilt {
    /// The host's request is at fault.
    Failed(String),
    /// The bundle is.
    Refused(String),
}

impl Bundles {
    /// Returns the pinned key.
    pub(crate) const fn key(&self) -> Option<&PublicKey> {
        self.key.as_ref()
    }

    /// Pins a key. `begun`: the P4 VM has VMs already, or programs.
    pub(crate) fn pin(&mut self, key: &[u8; 32], begun: bool) -> Result<(), String> {
        let key = PublicKey::from_bytes(key).map_err(|e| format!("cannot pin a key of bundles: {e}"))?;
        match self.key {
            Some(pinned) if pinned == key => Ok(()),
            Some(pinned) => Err(format!(
                "key {} of bundles is pinned, and {} cannot replace it; restart the P4 VM",
                pinned.id(),
                key.id()
            )),
            None if begun => Err("a key of bundles is pinned before any VM; restart the P4 VM".to_owned()),
            None => {
                self.key = Some(key);
                Ok(())
            }
        }
    }

    /// Refuses what would change a program past its bundle.
    pub(crate) fn allow(&self, what: &str) -> Result<(), String> {
        match self.key {
            None => Ok(()),
            Some(key) => Err(format!(
                "{what} is refused: the tenant pins key {} of bundles; load a bundle that it has signed",
                key.id()
            )),
        }
    }

    /// Builds the programs of a bundle and runs its checks.
    pub(crate) fn build(
        &self,
        request: &BundleRequest,
        bytes: &OwnedFd,
        verifier: &mut impl Prover,
        budget: (&str, u64),
    ) -> Result<BuiltBundle, NotBuilt> {
        let (tenant, budget) = budget;
        let key = self.key.as_ref().ok_or_else(|| {
            NotBuilt::Refused("the tenant pins no key of bundles; set bundle_key for the tenant".to_owned())
        })?;
        let len = request.len as usize;
        if len > MAX_BUNDLE {
            return Err(NotBuilt::Refused(BundleError::TooLarge { len: len as u64 }.to_string()));
        }
        let bytes = read_memory::read(bytes, len, "the bytes of the bundle").map_err(NotBuilt::Failed)?;
        let refused = |e: BundleError| NotBuilt::Refused(e.to_string());
        let bundle = Bundle::open(&bytes, key).map_err(refused)?;
        drop(bytes);
        let floor = request.floor.max(self.floor(&request.name));
        let contents = bundle.for_vm(tenant, &request.name, floor).map_err(refused)?;
        self.check_channels(contents.header_bytes).map_err(NotBuilt::Refused)?;
        let mut programs = Box::new([None, None]);
        let mut digests = [None, None];
        for direction in Direction::ALL {
            let d = direction as usize;
            let Some(program) = contents.program(direction) else { continue };
            let slot = (request.vm, direction);
            let built = build_program(program, slot, contents, verifier, budget);
            let built = built.map_err(|why| NotBuilt::Refused(format!("{}: {why}", direction.name())))?;
            digests[d] = Some(built.digest());
            programs[d] = Some(Box::new(built));
        }
        let loaded = BundleLoaded { version: contents.version, programs: digests };
        let (vm, name, header_bytes) = (request.vm, request.name.clone(), contents.header_bytes);
        Ok(BuiltBundle { vm, name, programs, loaded, header_bytes })
    }

    fn floor(&self, vm: &str) -> u64 {
        self.newest.get(vm).copied().unwrap_or(0)
    }

    /// Checks again what may have changed since a bundle was staged.
    pub(crate) fn recheck(&self, built: &BuiltBundle) -> Result<(), String> {
        let (version, floor) = (built.loaded.version, self.floor(&built.name));
        if version < floor {
            return Err(BundleError::TooOld { version, floor }.to_string());
        }
        self.check_channels(built.header_bytes)
    }

    /// Notes that the programs of a bundle run.
    pub(crate) fn note(&mut self, built: &BuiltBundle) {
        let newest = self.newest.entry(built.name.clone()).or_default();
        *newest = built.loaded.version.max(*newest);
        self.needed.insert(built.vm, built.header_bytes);
    }

    /// Notes that a VM is gone or has no program any more. Its newest version stays.
    pub(crate) fn forget_vm(&mut self, vm: u16) {
        self.needed.remove(&vm);
    }

    /// Refuses a channel whose header copies are too short for a program that runs.
    pub(crate) fn admit_channel(&self, header_bytes: u32) -> Result<(), String> {
        let needed = self.needed.values().max().copied().unwrap_or(0);
        if header_bytes < needed { Err(too_short(header_bytes, needed)) } else { Ok(()) }
    }

    /// Notes a channel.
    pub(crate) fn add_channel(&mut self, channel: u32, header_bytes: u32) {
        self.channels.insert(channel, header_bytes);
    }

    /// Forgets a channel.
    pub(crate) fn forget_channel(&mut self, channel: u32) {
        self.channels.remove(&channel);
    }

    fn check_channels(&self, needed: u32) -> Result<(), String> {
        match self.channels.values().min() {
            Some(&header_bytes) if header_bytes < needed => Err(too_short(header_bytes, needed)),
            _ => Ok(()),
        }
    }
}

fn too_short(header_bytes: u32, needed: u32) -> String {
    format!(
        "the switch hands over {header_bytes} header bytes, and the bundle needs {needed}; set \
         header_bytes = {needed} for the tenant"
    )
}

/// Builds a program with its initial entries. The checks run on another instance of it, so that they leave no
/// trace in its tables and counters.
fn build_program(
    bundled: &BundledProgram,
    (vm, direction): (u16, Direction),
    contents: &Contents,
    verifier: &mut impl Prover,
    budget: u64,
) -> Result<program::LoadedProgram, String> {
    let objects: Vec<_> = bundled.objects.iter().map(Vec::as_slice).collect();
    let proven = program::prove(&objects, verifier)?;
    let digest = program_digest(proven.digest(), &bundled.entries);
    let load = || {
        let mut program = proven.load(budget, digest)?;
        for (n, entry) in bundled.entries.iter().enumerate() {
            let written = program.write_map(&entry.map, &entry.key, &entry.value);
            written.map_err(|why| format!("entry {} of table {:?}: {why}", n + 1, entry.map))?;
        }
        Ok::<_, String>(program)
    };
    if contents.checks.iter().any(|check| check.direction == direction as u8) {
        bundle_check::run(&mut load()?, (vm, direction), contents.header_bytes, contents.checks.iter())?;
    }
    load()
}
