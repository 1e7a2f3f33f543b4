//! A loaded program: code, maps and environment, ready to judge packets.

use p4shield_abi::Verdict;
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::context::{Context, action};

use crate::check::{CheckError, Checked, checked};
use crate::env::{Env, Flags, Span, stop};
use crate::helpers::{self, Helper, TABLE};
use crate::info::VmInfo;
use crate::insn::Op;
use crate::interp;
use crate::jit::{self, JitError};
use crate::linked::{Linked, Verified};
use crate::maps::{Maps, MapsError};
use crate::packet::Packet;
use crate::stop::Stop;

const _: () = assert!(MAX_HEADER_BYTES < i32::MAX as u32);

/// How a program is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As machine code.
    #[default]
    Jit,
    /// By the reference interpreter.
    Interpreter,
}

/// Limits and ways of a program's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// How it is executed.
    pub mode: Mode,
    /// Instructions that one run may be charged: every function's slots when it is entered, a loop's slots at every
    /// jump back. A run never executes more than that.
    pub budget: u64,
    /// Bytes that all maps of the program may take.
    pub map_bytes: usize,
}

impl Default for EngineOptions {
    /// JIT, 262144 instructions (some 0.1 ms), 64 MiB of maps.
    fn default() -> Self {
        Self { mode: Mode::Jit, budget: 1 << 18, map_bytes: 64 << 20 }
    }
}

/// Why a verified program cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Its structure is unsound.
    #[error("the program is not sound")]
    Check(#[from] CheckError),
    /// It calls a helper that does not exist.
    #[error("instruction {slot}: helper {number} does not exist")]
    Helper {
        /// The call.
        slot: usize,
        /// The helper's number.
        number: u32,
    },
    /// It is longer than a run may be.
    #[error("the entry function has {slots} instruction slots, more than the budget of {budget}")]
    Budget {
        /// Slots of the entry function.
        slots: usize,
        /// The budget.
        budget: u64,
    },
    /// Its maps cannot be made.
    #[error("the program's maps cannot be made")]
    Maps(#[from] MapsError),
    /// It cannot be compiled.
    #[error("the program cannot be compiled")]
    Jit(#[from] JitError),
}

/// What is known about a packet besides its bytes; becomes part of the program's context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Port on which the switch received it.
    pub input_port: u32,
    /// [`p4shield_abi::Direction`] as a number.
    pub direction: u32,
    /// Index of the user VM within its tenant.
    pub vm: u32,
    /// When the mediator received it: nanoseconds of its monotonic clock.
    pub timestamp_ns: u64,
}

/// What a program decided about a packet. If it is to pass and `rewritten` is set, [`Packet::bytes`],
/// [`Packet::start`] and [`Packet::total`] say what leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What happens to the packet: `pass` only if the program returned 1, was not stopped and not undecided.
    pub verdict: Verdict,
    /// Why the program was stopped, if it was.
    pub stopped: Option<Stop>,
    /// The program read information that is not known, and never asked whether it is.
    pub undecided: bool,
    /// The program stored into the packet, or resized it.
    pub rewritten: bool,
    /// Where the header copy starts, counted from the start of the head room.
    pub start: usize,
    /// Bytes of the header copy.
    pub len: usize,
    /// Bytes of the whole packet.
    pub total: u32,
    /// What the program set as the context's `output_action`.
    pub output_action: u32,
    /// What the program set as the context's `output_port`.
    pub output_port: u32,
}

enum Engine {
    Jit(jit::Code),
    Interpreter(Checked),
}

impl Engine {
    /// The engine, and what a run may be charged after the entry function.
    fn new(
        linked: &Linked,
        options: &EngineOptions,
        helpers: &'static [Helper],
        maps: Option<&Maps>,
    ) -> Result<(Self, u64), LoadError> {
        let checked = checked(linked)?;
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

/// Code with what it runs on. Shared by [`Program`] and [`crate::bare::Machine`].
pub(crate) struct Core {
    engine: Engine,
    helpers: &'static [Helper],
    env: Box<Env>,
    maps: Option<Box<Maps>>,
    /// What a run may be charged after the entry function.
    budget: u64,
}

// SAFETY: all that the raw pointers in `env` point to is either owned by this value (maps, behind a box) or set anew,
// from borrows, at every run.
unsafe impl Send for Core {}

impl Core {
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

    /// Executes the same program otherwise from now on. Environment and maps stay where they are.
    pub(crate) fn switch(&mut self, linked: &Linked, options: &EngineOptions) -> Result<(), LoadError> {
        (self.engine, self.budget) = Engine::new(linked, options, self.helpers, self.maps.as_deref())?;
        Ok(())
    }

    pub(crate) const fn env(&mut self) -> &mut Env {
        &mut self.env
    }

    /// Runs from the entry with these in R1 and R2.
    ///
    /// # Safety
    /// `info`, `packet` and the spans in the environment are null, empty or valid for the run. Under the JIT, the
    /// program's memory accesses are safe.
    #[inline]
    pub(crate) unsafe fn run(&mut self, args: impl FnOnce(*mut Env) -> [u64; 2]) -> Result<u64, Stop> {
        if let Some(maps) = &mut self.maps {
            self.env.maps = &raw mut **maps;
        }
        self.env.budget = self.budget;
        self.env.flags = Flags::default();
        let env = &raw mut *self.env;
        // SAFETY: `env` is our own environment.
        unsafe { (*env).frame = Env::stack_top(env) };
        let [r1, r2] = args(env);
        match &self.engine {
            Engine::Jit(code) => {
                // SAFETY: the code was compiled for this environment, by contract it stays within what it may touch.
                let (r0, stopped) = unsafe { (code.entry()(env, r1, r2, 0, 0, 0), (*env).flags.stopped) };
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

/// A program that judges packets. It owns its maps; one thread runs it at a time.
pub struct Program {
    core: Core,
    digest: [u8; 32],
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Program {
    /// Makes the maps, installs their initial entries, and compiles the program.
    ///
    /// # Errors
    /// If a limit is exceeded, an entry does not fit, or the system gives no memory.
    pub fn load(verified: &Verified, options: &EngineOptions) -> Result<Self, LoadError> {
        let linked = verified.linked();
        Ok(Self { core: Core::load(linked, options, &TABLE)?, digest: linked.digest() })
    }

    /// SHA-256 of the linked program: its name.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Its maps, to read them between runs; `None` if it has none.
    #[must_use]
    pub fn maps(&self) -> Option<&Maps> {
        self.core.maps.as_deref()
    }

    /// Its maps, to change them between runs; `None` if it has none.
    #[must_use]
    pub fn maps_mut(&mut self) -> Option<&mut Maps> {
        self.core.maps.as_deref_mut()
    }

    /// Judges one packet. No allocation, no lock, no system call (`ktime_get_ns` reads the clock through the vDSO).
    #[inline]
    pub fn run(&mut self, packet: &mut Packet, meta: &Meta, info: &VmInfo) -> Outcome {
        self.run_for(packet, meta, info, Context::default())
    }

    /// Makes one copy of a packet that the program sent to a group: the copy for `port`, which is number `replica` of the
    /// group. The packet is the one that was sent there, as it came.
    pub fn run_copy(
        &mut self,
        packet: &mut Packet,
        meta: &Meta,
        info: &VmInfo,
        (port, replica): (u16, u16),
    ) -> Outcome {
        let output_port = u32::from(replica) << 16 | u32::from(port);
        self.run_for(
            packet,
            meta,
            info,
            Context { output_action: action::COPY, output_port, ..Context::default() },
        )
    }

    #[inline]
    fn run_for(&mut self, packet: &mut Packet, meta: &Meta, info: &VmInfo, asked: Context) -> Outcome {
        let env = self.core.env();
        env.info = info;
        env.buffer =
            Span { base: packet.buffer_ptr().expose_provenance() as u64, len: packet.buffer_len() as u64 };
        env.packet = &raw mut *packet;
        env.ctx = Context {
            input_port: meta.input_port,
            direction: meta.direction,
            vm: meta.vm,
            timestamp_ns: meta.timestamp_ns,
            ..asked
        };
        env.show_packet(packet);
        // SAFETY: packet and information are borrowed for the run, and the program was verified.
        let result = unsafe {
            self.core.run(|env| {
                let ctx = &raw mut (*env).ctx;
                [ctx.expose_provenance() as u64, 0]
            })
        };
        let (flags, ctx) = (self.core.env.flags, &self.core.env.ctx);
        let (output_action, output_port) = (ctx.output_action, ctx.output_port);
        let undecided = flags.unknown != 0 && flags.decided == 0;
        let (verdict, stopped) = match result {
            Ok(r0) if !undecided => (Verdict::from_u64(r0), None),
            Ok(_) => (Verdict::Drop, None),
            Err(stop) => (Verdict::Drop, Some(stop)),
        };
        Outcome {
            verdict,
            stopped,
            undecided,
            rewritten: flags.rewritten != 0,
            start: packet.start(),
            len: packet.len(),
            total: packet.total(),
            output_action,
            output_port,
        }
    }
}
