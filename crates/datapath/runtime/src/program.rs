//! Loading of a tenant's program: parse, link, verify, compile. Only this module uses the engine's loading
//! interface.

use crate::sandbox::seccomp::{self, Filter};
use p4shield_abi::helper;
use p4shield_abi::map::MapDefinition;
use p4shield_bpf::maps::{MapCopy, UpdateFlag};
use p4shield_bpf::verify::{Budget, Cache, Isolated, IsolatedError, Limits, Refusal};
use p4shield_bpf::{EngineOptions, Linked, Meta, Object, Packet, Program, RunResult, Verified, VmInfo, link};
use p4shield_text::chain;
use sha2::{Digest as _, Sha256};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

/// A reading of a map, with memory for one part of it.
#[derive(Debug)]
pub struct MapReading {
    /// The digest of the program to read.
    pub program: [u8; 32],
    /// The index of the map.
    pub map: usize,
    /// The part.
    pub copy: MapCopy,
}

/// Reason why a map is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// Another program runs there, or none.
    #[error("the program was replaced while it was read; read it again")]
    Replaced,
    /// The program has no such map.
    #[error("the program has no such map")]
    NoMap,
}

/// What tools need in order to show a program's maps.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramDetails {
    pub(crate) digest: [u8; 32],
    /// Name and definition of each map.
    pub(crate) maps: Vec<(String, MapDefinition)>,
    /// The bytes of the schema, unchecked.
    pub(crate) schema: Option<Vec<u8>>,
}

/// A program that judges packets.
pub struct LoadedProgram {
    program: Program,
    instructions: u32,
    reads_info: bool,
    details: Arc<ProgramDetails>,
    /// The program's name in logs and messages.
    digest: [u8; 32],
}

/// The programs of a VM, by direction.
pub(crate) type ProgramPair = [Option<Box<LoadedProgram>>; 2];

impl LoadedProgram {
    /// Wraps a program that was linked and verified elsewhere, for a [`crate::worker::Worker`] without a
    /// [`crate::p4vm`].
    #[must_use]
    pub fn of(program: Program) -> Self {
        let digest = *program.digest();
        Self { program, instructions: 0, reads_info: false, details: Arc::default(), digest }
    }

    /// Returns the SHA-256 digest of the linked program; of one from a bundle or with filled maps, with its
    /// entries.
    pub(crate) const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns what tools need in order to show the program's maps.
    pub(crate) fn details(&self) -> Arc<ProgramDetails> {
        Arc::clone(&self.details)
    }

    pub(crate) const fn instructions(&self) -> u32 {
        self.instructions
    }

    /// Reports whether the program reads in-VM information.
    pub(crate) const fn reads_info(&self) -> bool {
        self.reads_info
    }

    /// Judges a packet.
    #[inline]
    pub(crate) fn run(&mut self, packet: &mut Packet, meta: &Meta, info: &VmInfo) -> RunResult {
        self.program.run(packet, meta, info)
    }

    /// Copies the next part of a map. Allocates nothing.
    pub(crate) fn copy_map(&self, reading: &mut MapReading) -> Result<(), NotRead> {
        if reading.program != self.digest {
            return Err(NotRead::Replaced);
        }
        let map = self.program.maps().and_then(|m| m.iter().nth(reading.map)).ok_or(NotRead::NoMap)?;
        if map.copy_part(&mut reading.copy) { Ok(()) } else { Err(NotRead::NoMap) }
    }

    /// Returns the program with the entries of a text, and another digest: who has approved the program has
    /// not approved the entries.
    pub(crate) fn with_entries(mut self, text: &str) -> Result<Self, String> {
        let maps = self.program.maps_mut().ok_or("the program has no map")?;
        maps.fill(text).map_err(|e| e.to_string())?;
        let digest = Sha256::new().chain_update(self.digest).chain_update(text).finalize().into();
        let details = Arc::new(ProgramDetails { digest, ..(*self.details).clone() });
        Ok(Self { details, digest, ..self })
    }

    /// Writes an entry.
    pub(crate) fn write_map(&mut self, name: &str, key: &[u8], value: &[u8]) -> Result<(), String> {
        let map = self.program.maps_mut().and_then(|m| m.get_mut(name));
        let map = map.ok_or_else(|| format!("the program has no table {name:?}"))?;
        map.update(key, value, UpdateFlag::Any).map_err(|e| chain(&e))
    }
}

/// The limits of one verification. The host waits a little longer.
const BUDGET: Budget =
    Budget { cpu: Duration::from_secs(15), memory_bytes: 1 << 30, wall: Duration::from_secs(20) };

/// Verifies programs in processes of their own.
pub struct Verifier {
    /// Not dropped: the drop would kill the zygote, which seccomp forbids to the control thread. The zygote
    /// ends with the PID namespace, when the control thread ends.
    isolated: ManuallyDrop<Isolated>,
    cache: Cache,
    gone: bool,
}

impl Verifier {
    /// Forks the zygote, which filters its system calls before it reads a program. Must be called while the
    /// process has one thread.
    ///
    /// # Errors
    /// The process has several threads or cannot fork, or the zygote cannot filter its system calls.
    pub fn start(seccomp_optional: bool) -> Result<Self, IsolatedError> {
        let lockdown = || match seccomp::apply(Filter::Verifier) {
            Err(e) if !seccomp_optional => Err(std::io::Error::other(chain(&e))),
            _ => Ok(()),
        };
        let isolated = ManuallyDrop::new(Isolated::spawn_with(lockdown)?);
        Ok(Self { isolated, cache: Cache::in_memory(), gone: false })
    }

    /// Returns whether the zygote has ended. No other can be forked: only a new P4 VM can verify programs.
    pub(crate) const fn is_gone(&self) -> bool {
        self.gone
    }
}

/// What proves that a program is safe.
pub trait Prover {
    /// Returns the program as verified.
    ///
    /// # Errors
    /// The program is refused; the text is for the tenant.
    fn prove(&mut self, linked: Linked) -> Result<Verified, String>;
}

impl Prover for Verifier {
    fn prove(&mut self, linked: Linked) -> Result<Verified, String> {
        let limits = Limits::default();
        let check = |linked: &Linked| self.isolated.check(linked, &limits, &BUDGET);
        let result = self.cache.verify(linked, &limits, check).map(|(verified, _)| verified);
        self.gone |= matches!(result, Err(Refusal::Unavailable { .. }));
        result.map_err(|e| chain(&e))
    }
}

/// Loads a program from its objects. The text of a refusal is for the tenant.
pub(crate) fn build(
    objects: &[&[u8]],
    verifier: &mut impl Prover,
    budget: u64,
) -> Result<LoadedProgram, String> {
    let program = prove(objects, verifier)?;
    let digest = program.digest();
    program.load(budget, digest)
}

/// A program that is verified and not compiled yet.
pub(crate) struct ProvenProgram {
    verified: Verified,
    instructions: u32,
    reads_info: bool,
    details: ProgramDetails,
}

impl ProvenProgram {
    /// Returns the SHA-256 digest of the linked program.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.verified.linked().digest()
    }

    /// Compiles the program, with maps of its own, and names it.
    pub(crate) fn load(&self, budget: u64, digest: [u8; 32]) -> Result<LoadedProgram, String> {
        let options = EngineOptions { budget, ..EngineOptions::default() };
        let program = Program::load(&self.verified, &options).map_err(|e| chain(&e))?;
        let details = Arc::new(ProgramDetails { digest, ..self.details.clone() });
        let (instructions, reads_info) = (self.instructions, self.reads_info);
        Ok(LoadedProgram { program, instructions, reads_info, details, digest })
    }
}

/// Links and verifies a program.
pub(crate) fn prove(objects: &[&[u8]], verifier: &mut impl Prover) -> Result<ProvenProgram, String> {
    let parse = |bytes: &&[u8]| Object::parse(bytes).map_err(|e| chain(&e));
    let objects = objects.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    objects.iter().try_for_each(Object::runs_once).map_err(|e| chain(&e))?;
    let linked = link(&objects).map_err(|e| chain(&e))?;
    let instructions = u32::try_from(linked.insns.len()).unwrap_or(u32::MAX);
    let reads_info = linked.calls(helper::READ_VM_INFO);
    let details = ProgramDetails {
        digest: [0; 32],
        maps: linked.maps.iter().map(|m| (m.name.clone(), m.definition)).collect(),
        schema: objects.iter().find_map(Object::schema).map(<[u8]>::to_vec),
    };
    let verified = verifier.prove(linked)?;
    Ok(ProvenProgram { verified, instructions, reads_info, details })
}
