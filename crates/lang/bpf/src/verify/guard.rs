//! Assertions that PREVAIL 0.2.6 lacks.
//!
//! PREVAIL checks these additional assertions together with its own:
//!
//! * **Pointer compared with a number.** PREVAIL accepts `if ptr > number` and assumes that every
//!   pointer lies below 2^31. It therefore considers the branch dead that a real pointer takes, and
//!   checks nothing in it. We require two numbers or two pointers into the same region.
//! * **32-bit comparison of pointers.** It compares the lower halves, but PREVAIL treats it as a
//!   comparison of the whole. We require numbers.
//! * **Bits of pointers.** PREVAIL accepts `if ptr & ptr`, which reveals bits of an address. We require
//!   numbers.
//! * **Compare-and-exchange.** PREVAIL requires nothing of `r0`, which the instruction compares, and
//!   keeps its type, so the bits of a number would count as a pointer. We require a number.
//! * **Atomics on a spilled pointer.** After a compare-and-exchange PREVAIL treats the slot as a number
//!   even if no exchange happened, so a program could read the pointer as a number. We require that the
//!   bytes hold a number.

use std::collections::BTreeMap;

use prevail::cfg::graph::Cfg;
use prevail::cfg::label::Label;
use prevail::fwd_analyzer;
use prevail::ir::program::Program;
use prevail::ir::syntax::{
    AccessType, Assertion, Atomic, AtomicOp, Comparable, Condition, ConditionOp, Exit, Imm, Instruction, Jmp,
    Reg, TypeConstraint, Un, UnOp, ValidAccess, Value,
};
use prevail::platform::EbpfPlatform;
use prevail::spec::config::EbpfVerifierOptions;
use prevail::spec::type_descriptors::ProgramInfo;

/// The set of assertions that the analysis checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssertionSet {
    /// PREVAIL's and ours.
    All,
    /// PREVAIL's alone: tests use it to demonstrate gaps.
    #[cfg(test)]
    PrevailOnly,
}

/// A program with additional assertions.
pub(super) struct Guarded<'a> {
    program: &'a Program,
    /// PREVAIL's assertions and ours, for the instructions that have any of ours.
    assertions: BTreeMap<Label, Vec<Assertion>>,
}

impl<'a> Guarded<'a> {
    /// Returns `None` if PREVAIL does not emit the assertion that serves as the template of ours.
    pub(super) fn new(
        program: &'a Program,
        set: AssertionSet,
        platform: &dyn EbpfPlatform,
        info: &ProgramInfo,
        options: &EbpfVerifierOptions,
    ) -> Option<Self> {
        let number = NumberAssertion::new(platform, info, options)?;
        let mut assertions = BTreeMap::new();
        for label in program.labels().filter(|_| set == AssertionSet::All) {
            let ours = match program.instruction_at(label) {
                Instruction::Jmp(Jmp { cond: Some(cond), .. }) => number.comparison(cond),
                Instruction::Atomic(atomic) => number.atomic(atomic, label),
                _ => continue,
            };
            let mut all = program.assertions_at(label).to_vec();
            all.extend(ours);
            assertions.insert(label.clone(), all);
        }
        Some(Self { program, assertions })
    }
}

impl fwd_analyzer::Program for Guarded<'_> {
    fn cfg(&self) -> &Cfg {
        self.program.cfg()
    }

    fn instruction_at(&self, label: &Label) -> &Instruction {
        self.program.instruction_at(label)
    }

    fn assertions_at(&self, label: &Label) -> &[Assertion] {
        self.assertions.get(label).map_or_else(|| self.program.assertions_at(label), Vec::as_slice)
    }
}

/// A template for assertions that a register holds a number. PREVAIL does not export the types that its
/// assertions refer to, so we take an assertion about a number from it and replace the register.
struct NumberAssertion(TypeConstraint);

impl NumberAssertion {
    fn new(platform: &dyn EbpfPlatform, info: &ProgramInfo, options: &EbpfVerifierOptions) -> Option<Self> {
        let negate = Instruction::Un(Un { op: UnOp::NEG, dst: Reg { v: 0 }, is64: true });
        let exit = Instruction::Exit(Exit { stack_frame_prefix: "".into() });
        let template = vec![(Label::new(0), negate, None), (Label::new(1), exit, None)];
        let program = Program::from_sequence(&template, &mut info.clone(), platform, options).ok()?;
        program.assertions_at(&Label::new(0)).iter().find_map(|a| match a {
            Assertion::TypeConstraint(t) => Some(Self(t.clone())),
            _ => None,
        })
    }

    fn is_number(&self, reg: Reg) -> Assertion {
        let mut t = self.0.clone();
        t.reg = reg;
        Assertion::TypeConstraint(t)
    }

    fn comparison(&self, cond: &Condition) -> Vec<Assertion> {
        let Value::Reg(right) = cond.right else { return Vec::new() };
        if cond.is64 && cond.op != ConditionOp::SET {
            // PREVAIL makes this assertion in the other direction only. Both together require two numbers
            // or two pointers into the same region.
            vec![Assertion::Comparable(Comparable { r1: right, r2: cond.left, or_r2_is_number: false })]
        } else {
            vec![self.is_number(cond.left), self.is_number(right)]
        }
    }

    fn atomic(&self, atomic: &Atomic, label: &Label) -> Vec<Assertion> {
        let mut out = vec![Assertion::ValidAccess(ValidAccess {
            call_stack_depth: label.call_stack_depth(),
            reg: atomic.access.basereg,
            offset: atomic.access.offset,
            width: Value::Imm(Imm { v: atomic.access.width.bytes().unsigned_abs().into() }),
            or_null: false,
            access_type: AccessType::Read,
        })];
        if atomic.op == AtomicOp::CMPXCHG {
            out.push(self.is_number(Reg { v: 0 }));
        }
        out
    }
}
