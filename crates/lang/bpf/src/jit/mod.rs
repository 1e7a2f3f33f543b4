//! The JIT: compiles a checked program to machine code with Cranelift.
//!
//! Each function of the program becomes a Cranelift function. Registers become SSA variables, so moves
//! and most arithmetic on constants vanish. Memory accesses are plain loads and stores: **their safety
//! rests on the verifier's proof**. Other checks do not: control flow (the structural check), the number
//! of instructions ([`crate::budget`]), the depth of calls and the validity of map handles.

mod area;
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

pub use area::{CODE_AREA, CODE_STARTS, MAX_CODE, reserve_code_area};
pub(crate) use code::Code;

/// Alignment of functions: the maximum that constants in code may require.
const ALIGNMENT: usize = 64;

/// Reason why a program cannot be compiled. The program itself is not at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// Cranelift does not support this machine or one of our settings.
    #[error("the JIT does not support this machine: {0}")]
    Machine(String),
    /// Cranelift failed on one function.
    #[error("cannot compile function {function} of the program: {reason}")]
    Codegen {
        /// Index of the function.
        function: usize,
        /// Cranelift's message.
        reason: String,
    },
    /// The system provides no executable memory.
    #[error(
        "no executable memory: check whether a seccomp filter or MemoryDenyWriteExecute forbids mprotect"
    )]
    Memory(#[source] rustix::io::Errno),
}

/// A position in the code that needs the address of a function.
struct Fixup {
    at: usize,
    kind: Reloc,
    addend: i64,
    function: usize,
}

/// Compiles a program. The code contains addresses of helpers and of arrays in `maps`, so `maps` must
/// outlive the code.
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
        let program = function::ProgramParts { checked, helpers, maps };
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

/// Returns a code generator for this machine.
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

/// Writes the distance to a function into a call. All functions are in one mapping, so it always fits.
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
            // `bl` holds the distance in words in its lower 26 bits.
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
