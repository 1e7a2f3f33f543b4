//! The JIT: a checked program to machine code, by way of Cranelift.
//!
//! Each function of the program becomes a function of Cranelift's; registers become SSA variables, so moves and most
//! of the arithmetic on constants cost nothing. Memory accesses are plain loads and stores: **their safety is the
//! verifier's proof**. What does not rest on it: control flow (the structural check), the number of instructions
//! ([`crate::budget`]), the depth of calls, the validity of map handles.

mod arith;
mod calls;
mod code;
mod facts;
mod function;
mod memory;

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, UserExternalName, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_frontend::FunctionBuilderContext;

use crate::check::Checked;
use crate::helpers::Helper;
use crate::maps::Maps;

pub(crate) use code::Code;

/// Functions start at multiples of this, which is what constants in code may ask for.
const ALIGNMENT: usize = 64;

/// Why a program could not be compiled. None of these is the program's fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// Cranelift does not know this machine, or one of our settings.
    #[error("no code generator for this machine: {0}")]
    Machine(String),
    /// Cranelift failed on one function.
    #[error("function {function} of the program could not be compiled: {reason}")]
    Codegen {
        /// Which one, from 0.
        function: usize,
        /// What Cranelift says.
        reason: String,
    },
    /// The system gives no executable memory.
    #[error("no executable memory: does a seccomp filter or MemoryDenyWriteExecute forbid mprotect?")]
    Memory(#[source] rustix::io::Errno),
}

/// A place in the code where the address of a function is missing.
struct Fixup {
    at: usize,
    kind: Reloc,
    addend: i64,
    function: usize,
}

/// Compiles a program. Addresses of helpers and of arrays in `maps` become part of the code, so `maps` has to live
/// as long as the code runs.
pub(crate) fn compile(
    checked: &Checked,
    helpers: &'static [Helper],
    maps: Option<&Maps>,
) -> Result<Code, JitError> {
    let isa = host()?;
    let mut builder_context = FunctionBuilderContext::new();
    let mut bytes = Vec::new();
    let mut starts = Vec::with_capacity(checked.functions.len());
    let mut fixups = Vec::new();
    for function in 0..checked.functions.len() {
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        starts.push(bytes.len());
        let failed = |reason: String| JitError::Codegen { function, reason };
        let mut context = Context::new();
        context.func.name = UserFuncName::user(0, function as u32);
        let program = function::Program { checked, helpers, maps };
        function::translate(&program, function, &mut context.func, &mut builder_context, &*isa);
        context.compile(&*isa, &mut ControlPlane::default()).map_err(|e| failed(e.inner.to_string()))?;
        let compiled = context.compiled_code().ok_or_else(|| failed("no code".to_owned()))?;
        for reloc in compiled.buffer.relocs() {
            let target = match &reloc.target {
                FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
                    let UserExternalName { index, .. } = context.func.params.user_named_funcs()[*name];
                    index as usize
                }
                other => return Err(failed(format!("unexpected relocation to {other:?}"))),
            };
            let at = bytes.len() + reloc.offset as usize;
            fixups.push(Fixup { at, kind: reloc.kind, addend: reloc.addend, function: target });
        }
        bytes.extend_from_slice(compiled.code_buffer());
    }
    for fixup in &fixups {
        apply(&mut bytes, fixup, starts[fixup.function])?;
    }
    Code::new(&bytes).map_err(JitError::Memory)
}

/// A code generator for this machine.
fn host() -> Result<OwnedTargetIsa, JitError> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let wanted = [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("unwind_info", "false"),
        ("enable_probestack", "false"),
        ("enable_verifier", verify),
    ];
    for (name, value) in wanted {
        flags.set(name, value).map_err(|e| JitError::Machine(e.to_string()))?;
    }
    let builder = cranelift_native::builder().map_err(|e| JitError::Machine(e.to_owned()))?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| JitError::Machine(e.to_string()))
}

/// Writes the distance to a function into a call of it. All functions are in one mapping, so it always fits.
fn apply(bytes: &mut [u8], fixup: &Fixup, target: usize) -> Result<(), JitError> {
    let failed = || JitError::Codegen {
        function: fixup.function,
        reason: format!("relocation {:?} cannot be applied", fixup.kind),
    };
    let distance = (target as i64).wrapping_add(fixup.addend).wrapping_sub(fixup.at as i64);
    let place = bytes.get_mut(fixup.at..fixup.at + 4).and_then(|p| p.first_chunk_mut()).ok_or_else(failed)?;
    match fixup.kind {
        Reloc::X86CallPCRel4 | Reloc::X86PCRel4 => {
            *place = i32::try_from(distance).map_err(|_| failed())?.to_le_bytes();
        }
        Reloc::Arm64Call => {
            // `bl` counts words in its lower 26 bits.
            let words = distance >> 2;
            if !(-(1 << 25)..1 << 25).contains(&words) {
                return Err(failed());
            }
            let insn = u32::from_le_bytes(*place) & !0x03ff_ffff | words as u32 & 0x03ff_ffff;
            *place = insn.to_le_bytes();
        }
        _ => return Err(failed()),
    }
    Ok(())
}
