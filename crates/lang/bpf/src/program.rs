//! A loaded program: its code, its maps and the environment of its runs.
//!
//! The P4 VM's worker (crate `p4shield-runtime`) calls [`Program::run`] for each packet. The program
//! works on a [`Packet`] (next module: `packet`) and calls helpers (module `helpers`).

use p4shield_abi::call::CALLS_MAP;
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::context::Context;
use p4shield_abi::division::BLOCK_MAP;
use p4shield_abi::trace::{EVENT_SIZE, EVENT_WORDS, TRACE_MAP};
use p4shield_abi::{ProgramLimit, Verdict};

use crate::check::{CheckError, Checked, check_and_decode};
use crate::env::{AddressRange, Env, Flags, stop};
use crate::helpers::{self, Helper, TABLE};
use crate::info::VmInfo;
use crate::insn::Op;
use crate::interp;
use crate::jit::{self, JitError};
use crate::linked::{Linked, Verified};
use crate::maps::{Map, Maps, MapsError, Storage};
use crate::packet::Packet;
use crate::stop::Stop;

const _: () = assert!(MAX_HEADER_BYTES < i32::MAX as u32);

/// How a program is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Compiled to machine code.
    #[default]
    Jit,
    /// The reference interpreter.
    Interpreter,
}

/// Execution mode and limits of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Execution mode.
    pub mode: Mode,
    /// Instruction budget of one run. A function costs its slots on entry, a backward jump the slots
    /// of the loop, so a run never executes more instructions than this. Helpers that hash, copy, compare
    /// or search charge by the bytes that they touch.
    pub budget: u64,
    /// Bytes that all maps of the program may occupy.
    pub map_bytes: usize,
}

impl Default for EngineOptions {
    /// JIT, 262144 instructions (about 0.1 ms), 64 MiB of maps.
    fn default() -> Self {
        Self { mode: Mode::Jit, budget: 1 << 18, map_bytes: 64 << 20 }
    }
}

/// Reason why a verified program cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The structure of the program is invalid.
    #[error("the structure of the program is invalid")]
    Check(#[from] CheckError),
    /// The program calls a helper that does not exist.
    #[error("instruction {slot}: helper {number} does not exist")]
    Helper {
        /// Slot of the call.
        slot: usize,
        /// The helper's number.
        number: u32,
    },
    /// The entry function exceeds the instruction budget.
    #[error("the entry function has {slots} instruction slots, the budget is {budget}: raise the budget")]
    Budget {
        /// Slots of the entry function.
        slots: usize,
        /// The budget.
        budget: u64,
    },
    /// The program's maps cannot be created.
    #[error("cannot create the program's maps")]
    Maps(#[from] MapsError),
    /// The JIT cannot compile the program.
    #[error("cannot compile the program to machine code")]
    Jit(#[from] JitError),
}

/// Metadata of a packet, which the engine copies into the program's context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Port on which the switch received the packet.
    pub input_port: u32,
    /// [`p4shield_abi::Direction`] as a number.
    pub direction: u32,
    /// Index of the user VM within its tenant.
    pub vm: u32,
    /// Receive time at the mediator: nanoseconds of its monotonic clock.
    pub timestamp_ns: u64,
}

/// Where a run of a divided program starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// One of [`p4shield_abi::division::entry`].
    pub number: u32,
    /// The port to which the packet goes.
    pub port: u16,
    /// Its replication id.
    pub replica: u16,
    /// Its priority in queues, which its run does not see.
    pub priority: u8,
}

/// Result of one run. If `verdict` is pass and `rewritten` is set, [`Packet::bytes`],
/// [`Packet::start`] and [`Packet::total`] describe the packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// Verdict: pass only if the program returned 1, was not stopped and is not undecided.
    pub verdict: Verdict,
    /// Reason why the engine stopped the program; `None` if the program returned.
    pub stopped: Option<Stop>,
    /// The program read in-VM information that is not known, and never checked whether it is known.
    pub undecided: bool,
    /// The limit because of which the program drops the packet.
    pub limit: Option<ProgramLimit>,
    /// The program wrote to the packet or resized it.
    pub rewritten: bool,
    /// Offset of the header copy from the start of the headroom.
    pub start: usize,
    /// Length of the header copy in bytes.
    pub len: usize,
    /// Length of the whole packet in bytes.
    pub total: u32,
    /// `output_action` of the context, as the program set it.
    pub output_action: u32,
    /// `output_port` of the context, as the program set it.
    pub output_port: u32,
}

enum Engine {
    Jit(jit::Code),
    Interpreter(Checked),
}

impl Engine {
    /// Returns the engine and the budget that remains after the entry function is charged.
    fn new(
        linked: &Linked,
        options: &EngineOptions,
        helpers: &'static [Helper],
        maps: Option<&Maps>,
    ) -> Result<(Self, u64), LoadError> {
        let checked = check_and_decode(linked)?;
        helpers_exist(&checked, helpers)?;
        let slots = checked.functions[0].len();
        let budget = options.budget;
        let budget = budget.checked_sub(slots as u64).ok_or(LoadError::Budget { slots, budget })?;
        let engine = match options.mode {
            Mode::Jit => Self::Jit(jit::compile(&checked, helpers, maps)?),
            Mode::Interpreter => Self::Interpreter(checked),
        };
        Ok((engine, budget))
    }
}

/// Code, environment and maps of a loaded program. Shared by [`Program`] and [`crate::raw::RawProgram`].
pub(crate) struct LoadedCode {
    engine: Engine,
    helpers: &'static [Helper],
    env: Box<Env>,
    maps: Option<Box<Maps>>,
    /// Budget of a run after the entry function is charged.
    budget: u64,
}

// SAFETY: the raw pointers in `env` point to maps that this value owns behind a box, or to data that
// every run borrows anew.
unsafe impl Send for LoadedCode {}

impl LoadedCode {
    pub(crate) fn load(
        linked: &Linked,
        options: &EngineOptions,
        helpers: &'static [Helper],
    ) -> Result<Self, LoadError> {
        let maps = if linked.maps.is_empty() {
            None
        } else {
            Some(Box::new(Maps::new(&linked.maps, &linked.entries, options.map_bytes)?))
        };
        let (engine, budget) = Engine::new(linked, options, helpers, maps.as_deref())?;
        Ok(Self { engine, helpers, env: Env::new(crate::maps::random()), maps, budget })
    }

    /// Builds the engine again with other options. Environment and maps keep their addresses.
    pub(crate) fn recompile(&mut self, linked: &Linked, options: &EngineOptions) -> Result<(), LoadError> {
        (self.engine, self.budget) = Engine::new(linked, options, self.helpers, self.maps.as_deref())?;
        Ok(())
    }

    pub(crate) const fn env(&mut self) -> &mut Env {
        &mut self.env
    }

    /// Runs the program from its entry. `args` returns the initial R1 and R2.
    ///
    /// # Safety
    /// `info`, `packet` and the address ranges in the environment are null, empty or valid for the
    /// run. In JIT mode, the program's memory accesses are safe.
    #[inline]
    pub(crate) unsafe fn run(&mut self, args: impl FnOnce(*mut Env) -> [u64; 2]) -> Result<u64, Stop> {
        if let Some(maps) = &mut self.maps {
            self.env.maps = &raw mut **maps;
        }
        self.env.budget = self.budget;
        self.env.flags = Flags::default();
        let env = &raw mut *self.env;
        // SAFETY: `env` points to the environment that this value owns.
        unsafe { (*env).frame = Env::stack_top(env) };
        let [r1, r2] = args(env);
        match &self.engine {
            Engine::Jit(machine_code) => {
                // SAFETY: the code was compiled for this environment; by contract its accesses are safe.
                let (r0, stopped) =
                    unsafe { (machine_code.entry()(env, r1, r2, 0, 0, 0), (*env).flags.stopped) };
                match stopped {
                    0 => Ok(r0),
                    stop::CALL_DEPTH => Err(Stop::CallDepth),
                    _ => Err(Stop::Budget),
                }
            }
            // SAFETY: as above.
            Engine::Interpreter(checked) => unsafe { interp::run(checked, self.helpers, env, [r1, r2]) },
        }
    }
}

fn helpers_exist(checked: &Checked, table: &'static [Helper]) -> Result<(), LoadError> {
    for (slot, op) in checked.ops.iter().enumerate() {
        if let Op::Call { helper: number } = *op
            && helpers::find(table, number).is_none()
        {
            return Err(LoadError::Helper { slot, number });
        }
    }
    Ok(())
}

/// A program that judges packets. It owns its maps. One thread at a time runs it.
pub struct Program {
    code: LoadedCode,
    digest: [u8; 32],
    /// Indexes of the maps [`BLOCK_MAP`] and [`CALLS_MAP`], if it has them.
    block: Option<usize>,
    calls: Option<usize>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Program {
    /// Creates the maps, installs their initial entries and compiles the program.
    ///
    /// # Errors
    /// If the program exceeds a limit, an entry does not fit its map, or the system has no memory.
    pub fn load(verified: &Verified, options: &EngineOptions) -> Result<Self, LoadError> {
        let linked = verified.linked();
        let index = |name| linked.maps.iter().position(|m| m.name == name);
        let (block, calls) = (index(BLOCK_MAP), index(CALLS_MAP));
        Ok(Self { code: LoadedCode::load(linked, options, &TABLE)?, digest: linked.digest(), block, calls })
    }

    /// SHA-256 of the linked program, which names it.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The program's maps; `None` if it has none.
    #[must_use]
    pub fn maps(&self) -> Option<&Maps> {
        self.code.maps.as_deref()
    }

    /// The program's maps, writable between runs; `None` if it has none.
    #[must_use]
    pub fn maps_mut(&mut self) -> Option<&mut Maps> {
        self.code.maps.as_deref_mut()
    }

    /// Copies the block of a divided program ([`p4shield_abi::division`]) to `out`, which has its size then;
    /// empty for any other program.
    pub fn read_block(&mut self, out: &mut Vec<u8>) {
        self.read_only_value(self.block, out);
    }

    /// Copies what [`Program::read_block`] returned back. Has no effect if the size is not that of the block.
    pub fn write_block(&mut self, bytes: &[u8]) {
        self.write_only_value(self.block, bytes);
    }

    /// Copies message and kept values of a call in a compartment ([`p4shield_abi::call`]) to `out`, which has
    /// their size then; empty for a program without such calls.
    pub fn read_call(&mut self, out: &mut Vec<u8>) {
        self.read_only_value(self.calls, out);
    }

    /// Copies what [`Program::read_call`] returned back, with the answer. Has no effect if the size is not
    /// that of the value.
    pub fn write_call(&mut self, bytes: &[u8]) {
        self.write_only_value(self.calls, bytes);
    }

    fn read_only_value(&mut self, map: Option<usize>, out: &mut Vec<u8>) {
        out.clear();
        if let Some(value) = self.only_value(map) {
            out.resize(value.size(), 0);
            value.read(0, out);
        }
    }

    fn write_only_value(&mut self, map: Option<usize>, bytes: &[u8]) {
        if let Some(value) = self.only_value(map).filter(|v| v.size() == bytes.len()) {
            value.write(0, bytes);
        }
    }

    /// Moves the events of the last run to the end of `out`, for a program that was compiled for tracing
    /// ([`p4shield_abi::trace`]). Of any other program there are none.
    pub fn take_events(&mut self, out: &mut Vec<[u64; EVENT_WORDS]>) {
        let map = self.code.maps.as_deref_mut().and_then(|m| m.get_mut(TRACE_MAP));
        let Some((events, storage)) = map.and_then(Map::elements) else { return };
        if storage.size() != EVENT_SIZE as usize {
            return;
        }
        let mut bytes = [0; EVENT_SIZE as usize];
        for event in 0..events {
            storage.read(event, &mut bytes);
            let mut words = [0; EVENT_WORDS];
            words.iter_mut().zip(bytes.as_chunks().0).for_each(|(w, b)| *w = u64::from_le_bytes(*b));
            if words[0] == 0 {
                return;
            }
            out.push(words);
            storage.write(event, &[0; EVENT_SIZE as usize]);
        }
    }

    fn only_value(&mut self, map: Option<usize>) -> Option<&mut Storage> {
        self.code.maps.as_deref_mut()?.by_index_mut(map?)?.only_value()
    }

    /// Runs the program on one packet. Does not allocate, lock or make a system call (`ktime_get_ns`
    /// reads the clock through the vDSO).
    #[inline]
    pub fn run(&mut self, packet: &mut Packet, meta: &Meta, info: &VmInfo) -> RunResult {
        self.run_for(packet, meta, info, Context::default())
    }

    /// Runs a divided program from one of its entries. `packet` is the packet as it was before the run that
    /// asked for this one, and the program's block is as that run left it ([`p4shield_abi::division`]).
    #[inline]
    pub fn run_from(&mut self, entry: Entry, packet: &mut Packet, meta: &Meta, info: &VmInfo) -> RunResult {
        let output_port = u32::from(entry.replica) << 16 | u32::from(entry.port);
        self.run_for(
            packet,
            meta,
            info,
            Context { output_action: entry.number, output_port, ..Context::default() },
        )
    }

    #[inline]
    fn run_for(&mut self, packet: &mut Packet, meta: &Meta, info: &VmInfo, initial: Context) -> RunResult {
        let env = self.code.env();
        env.info = info;
        env.buffer = AddressRange {
            base: packet.buffer_ptr().expose_provenance() as u64,
            len: packet.buffer_len() as u64,
        };
        env.packet = &raw mut *packet;
        env.ctx = Context {
            input_port: meta.input_port,
            direction: meta.direction,
            vm: meta.vm,
            timestamp_ns: meta.timestamp_ns,
            ..initial
        };
        env.point_at_packet(packet);
        // SAFETY: packet and information are borrowed for the run, and the verifier accepted the program.
        let result = unsafe {
            self.code.run(|env| {
                let ctx = &raw mut (*env).ctx;
                [ctx.expose_provenance() as u64, 0]
            })
        };
        let (flags, ctx) = (self.code.env.flags, &self.code.env.ctx);
        let (output_action, output_port) = (ctx.output_action, ctx.output_port);
        let undecided = flags.unknown != 0 && flags.decided == 0;
        let (verdict, stopped, limit) = match result {
            Ok(r0) if !undecided => (Verdict::from_u64(r0), None, ProgramLimit::from_u64(r0)),
            Ok(_) => (Verdict::Drop, None, None),
            Err(stop) => (Verdict::Drop, Some(stop), None),
        };
        RunResult {
            verdict,
            stopped,
            undecided,
            limit,
            rewritten: flags.rewritten != 0,
            start: packet.start(),
            len: packet.len(),
            total: packet.total(),
            output_action,
            output_port,
        }
    }
}
