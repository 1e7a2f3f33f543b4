//! What PREVAIL 0.2.6 leaves open, and how it is closed.
//!
//! Assertions of ours are checked by PREVAIL along with its own:
//!
//! * **Pointer against number.** `if ptr > number` is allowed, and PREVAIL thinks that every pointer lies below 2^31, so
//!   it takes the branch for dead that a real pointer takes, and judges nothing in it. We demand two numbers or two
//!   pointers into the same region, in both directions.
//! * **32-bit comparison of pointers.** It compares the lower halves, but is understood as a comparison of the whole.
//!   We demand numbers.
//! * **Bits of pointers.** `if ptr & ptr` is allowed and tells bits of an address. We demand numbers.
//! * **Compare-and-exchange.** Nothing is demanded of `r0`, which it compares, and `r0` keeps its type, so a pointer
//!   would turn into a number's bits and stay a pointer. We demand a number.
//! * **Atomics on a spilled pointer.** After a compare-and-exchange PREVAIL takes the slot for a number even if the
//!   exchange did not happen: the pointer could be read as a number. We demand that the bytes hold a number.

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

use super::prove::Rules;

/// A program with more to prove.
pub(super) struct Guarded<'a> {
    program: &'a Program,
    /// PREVAIL's assertions and ours, where we have any.
    assertions: BTreeMap<Label, Vec<Assertion>>,
}

impl<'a> Guarded<'a> {
    /// `None` if PREVAIL does not make the assertion that ours are made of.
    pub(super) fn new(
        program: &'a Program,
        rules: Rules,
        platform: &dyn EbpfPlatform,
        info: &ProgramInfo,
        options: &EbpfVerifierOptions,
    ) -> Option<Self> {
        let number = Number::new(platform, info, options)?;
        let mut assertions = BTreeMap::new();
        for label in program.labels().filter(|_| rules == Rules::All) {
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

/// Makes assertions. PREVAIL does not let others name the kinds of values that its assertions are about, so we have it
/// make one about a number, and change the register.
struct Number(TypeConstraint);

impl Number {
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
            // PREVAIL has the same the other way round; together: both numbers, or both of one region.
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
