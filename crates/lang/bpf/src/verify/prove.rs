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

use super::explain::{Held, register_in};
use super::guard::Guarded;
use super::platform::{Platform, options};
use super::refusal::{Place, Reason, Refusal};
use super::rewrite::{rewrite, slot_of};
use crate::insn::Insn;
use crate::linked::Linked;

/// Whose rules a program is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// PREVAIL's and ours.
    All,
    /// PREVAIL's alone: a test of a gap shows with it that there is one.
    #[cfg(test)]
    Prevail,
}

/// Proves that the program is safe, or says why not. The most rounds of any loop.
pub(super) fn prove(linked: &Linked) -> Result<u32, Refusal> {
    // PREVAIL works on its own data alone: after a panic nothing of ours is half done.
    match catch_unwind(AssertUnwindSafe(|| analyse(linked, Rules::All, |a| judge(linked, &a)))) {
        Ok(outcome) => outcome,
        Err(panic) => Err(Refusal::of_prevail(None, &panic_text(&*panic), Held::Nothing)),
    }
}

/// What came out of the analysis of a program, as long as it lasts.
pub(super) struct Analysis<'a> {
    pub(super) result: &'a AnalysisResult,
    #[cfg(test)]
    pub(super) context: &'a DomainContext<'a>,
    pub(super) registry: std::cell::RefCell<VariableRegistry>,
}

/// The message for [`Analysis::contradiction`], as if PREVAIL had noticed it.
const CONTRADICTION: &str = "Unsigned value below zero";

impl Analysis<'_> {
    /// What the register that an error is about holds where it happened.
    fn held(&self, error: &VerificationError) -> Held {
        let pre = error.label.as_ref().and_then(|l| self.result.invariants.get(l)).map(|i| &i.pre);
        let (Some(register), Some(pre)) = (register_in(&error.message), pre) else { return Held::Nothing };
        let known = pre.to_set(&self.registry.borrow());
        let (one, several) = (format!("{register}.type="), format!("{register}.type in"));
        let Some(kind) = known.value().iter().find(|c| c.starts_with(&one) || c.starts_with(&several)) else {
            return Held::Nothing;
        };
        match (kind.strip_prefix(&one), kind.contains("number")) {
            (Some("number"), _) => Held::Number,
            (_, true) => Held::Mixed,
            _ => Held::Pointer,
        }
    }

    /// Where PREVAIL holds that an unsigned value is below zero. That cannot be: it has put together an eight-byte value
    /// from several stores on the stack and got its sign wrong, so what it takes for impossible from there on may
    /// happen. Such values are not wrong until they are compared, so we look at all of them, and not only at the ones that
    /// something was concluded from.
    fn contradiction(&self) -> Option<&Label> {
        let registry = self.registry.borrow();
        // No lower bound at all is not a negative one.
        let negative = |c: &String| {
            c.contains("uvalue=-")
                || c.contains("uvalue=[-oo, -")
                || c.contains("uvalue=[-") && !c.contains("uvalue=[-oo")
        };
        let contradicts = |i: &InvariantMapPair| {
            !i.post.is_bottom() && i.post.to_set(&registry).value().iter().any(negative)
        };
        self.result.invariants.iter().find(|(_, i)| contradicts(i)).map(|(label, _)| label)
    }
}

/// Analyses the program, then asks `look`.
pub(super) fn analyse<T>(
    linked: &Linked,
    rules: Rules,
    look: impl FnOnce(Analysis<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let platform = Platform::new(&linked.maps);
    let options = options();
    let mut info = platform.program_info();
    let raw: Vec<EbpfInst> = linked.insns.iter().map(|i| raw(*i)).collect();
    let mut notes = Vec::new();
    let mut sequence =
        unmarshal(&raw, &mut notes, &info, &platform, &options).map_err(|e| malformed(linked, &e))?;
    if rules == Rules::All {
        sequence = rewrite(sequence, linked.insns.len(), platform.unknown_map());
    }
    let program = Program::from_sequence(&sequence, &mut info, &platform, &options)
        .map_err(|e| Refusal::of_prevail(None, &e.message, Held::Nothing))?;
    let Some(guarded) = Guarded::new(&program, rules, &platform, &info, &options) else {
        return Err(Refusal::of_prevail(None, "no assertion to derive others from", Held::Nothing));
    };
    let context = DomainContext::new(&info, &program, &options, &platform);
    let mut registry = VariableRegistry::new();
    let result = fwd_analyzer::analyze(&guarded, &context, &mut registry);
    look(Analysis {
        result: &result,
        #[cfg(test)]
        context: &context,
        registry: registry.into(),
    })
}

const fn raw(i: Insn) -> EbpfInst {
    EbpfInst { opcode: i.code, dst_src: i.dst & 0x0f | i.src << 4, offset: i.off, imm: i.imm }
}

/// The most rounds of any loop, or the first error.
pub(super) fn judge(linked: &Linked, analysis: &Analysis<'_>) -> Result<u32, Refusal> {
    let result = analysis.result;
    if result.failed {
        let unnamed = || VerificationError::new("failed without naming an error".to_owned());
        let error = result.find_first_error().unwrap_or_else(unnamed);
        let place = error.label.as_ref().and_then(|l| place(linked, l));
        return Err(Refusal::of_prevail(place, &error.message, analysis.held(&error)));
    }
    if let Some(label) = analysis.contradiction() {
        return Err(Refusal::of_prevail(place(linked, label), CONTRADICTION, Held::Nothing));
    }
    Ok(u32::try_from(result.max_loop_count).unwrap_or(u32::MAX))
}

/// A label is `call/call/instruction`, or `instruction:target` for one way out of a branch.
fn place(linked: &Linked, label: &Label) -> Option<Place> {
    let slot = slot_of(label.from, linked.insns.len())?;
    let mut place = Place::new(linked, slot);
    place.called_from = label
        .stack_frame_prefix
        .split('/')
        .filter_map(|s| s.parse().ok())
        .filter_map(|n| slot_of(n, linked.insns.len()))
        .collect();
    Some(place)
}

fn malformed(linked: &Linked, error: &UnmarshalError) -> Refusal {
    let place = match error {
        UnmarshalError::InvalidInstruction { pc, .. } => Some(Place::new(linked, *pc)),
        UnmarshalError::ZeroLengthProgram | UnmarshalError::InvalidOptions(_) => None,
    };
    let mut refusal = Refusal::of_prevail(place, &error.to_string(), Held::Nothing);
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
