//! Runs PREVAIL on a linked program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use prevail::cfg::label::Label;
use prevail::crab::ebpf_domain::{DomainContext, VerificationError};
use prevail::crab::var_registry::VariableRegistry;
use prevail::fwd_analyzer;
use prevail::ir::program::Program;
use prevail::ir::unmarshal::{UnmarshalError, unmarshal};
use prevail::result::{AnalysisResult, InvariantMapPair};
use prevail::spec::vm_isa::EbpfInst;

use super::explain::{RegisterType, register_in};
use super::guard::{AssertionSet, Guarded};
use super::location::Location;
use super::platform::{Platform, options};
use super::reason::Reason;
use super::refusal::Refusal;
use super::rewrite::{callers, rewrite, slot_of};
use crate::insn::Insn;
use crate::linked::Linked;

/// Proves that the program is safe. Returns the maximum number of iterations of a loop.
pub(super) fn prove(linked: &Linked) -> Result<u32, Refusal> {
    // PREVAIL works on its own data only, so a panic leaves no broken state behind.
    match catch_unwind(AssertUnwindSafe(|| analyse(linked, AssertionSet::All, |a| conclude(linked, &a)))) {
        Ok(result) => result,
        Err(panic) => Err(Refusal::of_prevail(None, &panic_text(&*panic), RegisterType::Unknown)),
    }
}

/// Result of the analysis of a program.
pub(super) struct Analysis<'a> {
    pub(super) result: &'a AnalysisResult,
    #[cfg(test)]
    pub(super) context: &'a DomainContext<'a>,
    pub(super) registry: std::cell::RefCell<VariableRegistry>,
}

/// Message for [`Analysis::contradiction`], in PREVAIL's words.
const CONTRADICTION: &str = "Unsigned value below zero";

impl Analysis<'_> {
    /// Returns the type of the register that an error refers to, at the instruction of the error.
    fn register_type(&self, error: &VerificationError) -> RegisterType {
        let pre = error.label.as_ref().and_then(|l| self.result.invariants.get(l)).map(|i| &i.pre);
        let (Some(register), Some(pre)) = (register_in(&error.message), pre) else {
            return RegisterType::Unknown;
        };
        let known = pre.to_set(&self.registry.borrow());
        let (one, several) = (format!("{register}.type="), format!("{register}.type in"));
        let Some(kind) = known.value().iter().find(|c| c.starts_with(&one) || c.starts_with(&several)) else {
            return RegisterType::Unknown;
        };
        match (kind.strip_prefix(&one), kind.contains("number")) {
            (Some("number"), _) => RegisterType::Number,
            (_, true) => RegisterType::Mixed,
            _ => RegisterType::Pointer,
        }
    }

    /// Returns a label where PREVAIL assumes a negative unsigned value, which is impossible: PREVAIL has
    /// assembled an eight-byte value from several stores on the stack with a wrong sign, and may treat
    /// reachable code after it as dead. Such a value is harmless until it is compared, so we check all
    /// values and not only those that PREVAIL draws conclusions from.
    fn contradiction(&self) -> Option<&Label> {
        let registry = self.registry.borrow();
        // Only a negative upper bound excludes every possible value. A negative lower bound alone follows
        // from the difference to another value, which PREVAIL knows less exactly.
        let negative = |constraint: &String| {
            let value = constraint.split_once("uvalue=").map_or("", |(_, value)| value);
            let upper = value.split_once(", ").map_or(value, |(_, upper)| upper);
            upper.starts_with('-')
        };
        let contradicts = |i: &InvariantMapPair| {
            !i.post.is_bottom() && i.post.to_set(&registry).value().iter().any(negative)
        };
        self.result.invariants.iter().find(|(_, i)| contradicts(i)).map(|(label, _)| label)
    }
}

/// Analyses the program and passes the result to `inspect`.
pub(super) fn analyse<T>(
    linked: &Linked,
    set: AssertionSet,
    inspect: impl FnOnce(Analysis<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let platform = Platform::new(&linked.maps);
    let options = options();
    let mut info = platform.program_info();
    let raw: Vec<EbpfInst> = linked.insns.iter().map(|i| raw(*i)).collect();
    let mut notes = Vec::new();
    let mut sequence =
        unmarshal(&raw, &mut notes, &info, &platform, &options).map_err(|e| malformed(linked, &e))?;
    if set == AssertionSet::All {
        sequence = rewrite(sequence, linked.insns.len(), platform.unknown_map());
    }
    let program = Program::from_sequence(&sequence, &mut info, &platform, &options)
        .map_err(|e| Refusal::of_prevail(None, &e.message, RegisterType::Unknown))?;
    let Some(guarded) = Guarded::new(&program, set, &platform, &info, &options) else {
        return Err(Refusal::of_prevail(
            None,
            "PREVAIL emitted no assertion to derive ours from",
            RegisterType::Unknown,
        ));
    };
    let context = DomainContext::new(&info, &program, &options, &platform);
    let mut registry = VariableRegistry::new();
    let result = fwd_analyzer::analyze(&guarded, &context, &mut registry);
    inspect(Analysis {
        result: &result,
        #[cfg(test)]
        context: &context,
        registry: registry.into(),
    })
}

const fn raw(i: Insn) -> EbpfInst {
    EbpfInst { opcode: i.code, dst_src: i.dst & 0x0f | i.src << 4, offset: i.off, imm: i.imm }
}

/// Returns the maximum number of iterations of a loop, or the first error.
pub(super) fn conclude(linked: &Linked, analysis: &Analysis<'_>) -> Result<u32, Refusal> {
    let result = analysis.result;
    if result.failed {
        let unnamed = || VerificationError::new("failed without naming an error".to_owned());
        let error = result.find_first_error().unwrap_or_else(unnamed);
        let location = error.label.as_ref().and_then(|l| location(linked, l));
        return Err(Refusal::of_prevail(location, &error.message, analysis.register_type(&error)));
    }
    if let Some(label) = analysis.contradiction() {
        return Err(Refusal::of_prevail(location(linked, label), CONTRADICTION, RegisterType::Unknown));
    }
    Ok(u32::try_from(result.max_loop_count).unwrap_or(u32::MAX))
}

/// Converts a label: `call/call/instruction`, or `instruction:target` for one edge of a branch.
fn location(linked: &Linked, label: &Label) -> Option<Location> {
    let slot = slot_of(label.from, linked.insns.len())?;
    let mut location = Location::new(linked, slot);
    location.called_from = callers(&label.stack_frame_prefix, linked.insns.len());
    Some(location)
}

fn malformed(linked: &Linked, error: &UnmarshalError) -> Refusal {
    let location = match error {
        UnmarshalError::InvalidInstruction { pc, .. } => Some(Location::new(linked, *pc)),
        UnmarshalError::ZeroLengthProgram | UnmarshalError::InvalidOptions(_) => None,
    };
    let mut refusal = Refusal::of_prevail(location, &error.to_string(), RegisterType::Unknown);
    if let Refusal::Program(finding) = &mut refusal {
        finding.reason = Reason::Instruction;
    }
    refusal
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a message"))
}
