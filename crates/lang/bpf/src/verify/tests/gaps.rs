//! Unsafe programs that PREVAIL 0.2.6 accepts on its own. Each test shows that PREVAIL alone accepts the
//! program, that the program escapes in the checking interpreter, and that our verifier refuses it. When
//! a later PREVAIL closes a gap, the first assertion fails, and the guard can be removed.

use super::super::guard::AssertionSet;
use super::super::prove::{analyse, conclude};
use super::super::{Limits, Reason, check};
use crate::asm::assemble;
use crate::linked::{Linked, Verified};
use crate::program::{EngineOptions, Meta, Mode, Program};
use crate::{Packet, Stop, VmInfo};
use p4shield_abi::info::InfoStatus;

/// Writes to an address of the tenant's choice, in code that PREVAIL considers dead.
const EVIL: &str = "
    mov r0, 1
    exit
evil:
    lddw r0, 0x4141414141414141
    stdw [r0+0], 1
    mov r0, 1
    exit";

fn prevail_alone(linked: &Linked) -> Result<u32, super::super::Refusal> {
    analyse(linked, AssertionSet::PrevailOnly, |a| {
        assert!(!a.result.failed, "PREVAIL alone refuses this program: {:?}", a.result.find_first_error());
        Ok(0)
    })
}

/// Runs the program in the interpreter on an Ethernet frame of 14 bytes; returns why it was stopped.
fn run(linked: &Linked) -> Option<Stop> {
    // SAFETY: the interpreter checks every access.
    let trusted = unsafe { Verified::assume(linked.clone()) };
    let options = EngineOptions { mode: Mode::Interpreter, ..EngineOptions::default() };
    let mut program = Program::load(&trusted, &options).expect("loads");
    let mut packet = Packet::new(128, 256);
    packet.reset(&[0; 14], 14);
    program.run(&mut packet, &Meta::default(), &VmInfo::unknown(InfoStatus::Missing)).stopped
}

#[track_caller]
fn refused(linked: &Linked, reason: Reason) {
    let refusal = check(linked, &Limits::default()).expect_err("the verifier refuses the program");
    assert_eq!(refusal.reason(), Some(reason), "{refusal}");
}

/// The whole demonstration for a program that accesses foreign memory.
#[track_caller]
fn breaks_out(text: &str, reason: Reason) {
    let linked = assemble(&format!("{text}\n{EVIL}")).expect("assembles");
    prevail_alone(&linked).expect("PREVAIL alone accepts the program");
    let stop = run(&linked);
    assert!(matches!(stop, Some(Stop::Memory { .. })), "the program does not escape: {stop:?}");
    refused(&linked, reason);
}

#[test]
fn a_pointer_is_not_compared_with_a_number() {
    // PREVAIL assumes that every pointer lies below 2^31.
    for pointer in ["ldxdw r2, [r1+0]", "mov r2, r1", "mov r2, r10"] {
        for condition in ["jgt", "jge"] {
            let text = format!("{pointer}\n lddw r3, 0x80000000\n {condition} r2, r3, evil");
            breaks_out(&text, Reason::Comparison);
        }
    }
}

#[test]
fn pointers_are_not_compared_by_their_lower_halves() {
    let linked = assemble(
        "ldxdw r2, [r1+0]
         ldxdw r3, [r1+8]
         mov r4, r2
         add r4, 14
         jgt32 r4, r3, out
         ldxb r5, [r2+13]
     out: mov r0, 1
         exit",
    )
    .expect("assembles");
    // The program escapes only if the packet spans a multiple of 4 GiB, which a test cannot arrange.
    prevail_alone(&linked).expect("PREVAIL alone accepts the program");
    refused(&linked, Reason::PointerLeak);
}

#[test]
fn bits_of_addresses_are_not_revealed() {
    let text = "ldxdw r2, [r1+0]
         mov r3, r2
         mov r0, 0
         jset r2, r3, out
         mov r0, 1
     out: exit";
    let linked = assemble(text).expect("assembles");
    prevail_alone(&linked).expect("PREVAIL alone accepts the program");
    refused(&linked, Reason::PointerLeak);
}

#[test]
fn the_frame_pointer_is_not_overwritten() {
    let text = "lddw r10, 0x4141414141414141\n stdw [r10-8], 1";
    let linked = assemble(&format!("{text}\n mov r0, 1\n exit")).expect("assembles");
    prevail_alone(&linked).expect("PREVAIL alone accepts the program");
    refused(&linked, Reason::Instruction);
    let map = assemble(".map m array 4 8 1\n lddw r10, map m\n stdw [r10-8], 1\n mov r0, 1\n exit")
        .expect("assembles");
    prevail_alone(&map).expect("PREVAIL alone accepts the program");
    refused(&map, Reason::Instruction);
}

#[test]
fn byte_swaps_of_known_values_keep_their_sign() {
    for swap in ["be64", "bswap64"] {
        breaks_out(&format!("mov r2, 0x80\n {swap} r2\n jgt r2, 5, evil"), Reason::Type);
    }
}

#[test]
fn negative_constants_on_the_stack_keep_their_sign() {
    breaks_out("stdw [r10-8], -1\n ldxdw r2, [r10-8]\n jgt r2, 5, evil", Reason::Type);
    // Through another pointer, and in a function that is called.
    breaks_out("mov r3, r10\n stdw [r3-8], -1\n ldxdw r2, [r3-8]\n jgt r2, 5, evil", Reason::Type);
}

#[test]
fn values_assembled_on_the_stack_keep_their_sign() {
    breaks_out(
        "stw [r10-8], 0
         stw [r10-4], -1
         ldxdw r2, [r10-8]
         jgt r2, 5, evil",
        Reason::Unproven,
    );
}

#[test]
fn a_spilled_pointer_is_not_exchanged() {
    let text = "ldxdw r2, [r1+0]
         stxdw [r10-8], r2
         mov r0, 0
         mov r3, 1
         lock cmpxchg [r10-8], r3
         ldxdw r0, [r10-8]
         exit";
    let linked = assemble(text).expect("assembles");
    // The program returns the packet's address as a number.
    prevail_alone(&linked).expect("PREVAIL alone accepts the program");
    refused(&linked, Reason::Uninitialised);
}

#[test]
fn compare_and_exchange_compares_a_number() {
    let text = "mov r0, r1
         mov r3, 1
         stdw [r10-8], 0
         lock cmpxchg [r10-8], r3
         mov r0, 1
         exit";
    let linked = assemble(text).expect("assembles");
    prevail_alone(&linked).expect("PREVAIL alone accepts the program");
    refused(&linked, Reason::PointerLeak);
}

#[test]
fn a_function_reads_only_its_arguments() {
    // PREVAIL: r6 is 8 in the function. Engine: r6 is 0.
    let text = "mov r6, 8
         call local f
         mov r0, 1
         exit
     f:  mov r2, r10
         sub r2, r6
         stdw [r2+0], 1
         mov r0, 0
         exit";
    let linked = assemble(text).expect("assembles");
    prevail_alone(&linked).expect("PREVAIL alone accepts the program");
    refused(&linked, Reason::Uninitialised);
}

#[test]
fn an_unset_result_is_not_read() {
    let text = |result: &str| {
        assemble(&format!(
            "mov r0, 8
             mov r1, 0
             call local f
             mov r2, r10
             sub r2, r0
             stdw [r2-8], 1
             mov r0, 1
             exit
         f:  jeq r1, 0, out
             mov r0, 0
         out: {result}
             exit"
        ))
        .expect("assembles")
    };
    prevail_alone(&text("mov r3, 1")).expect("PREVAIL alone accepts the program");
    refused(&text("mov r3, 1"), Reason::Uninitialised);
    check(&text("mov r0, 0"), &Limits::default()).expect("is safe");
}

#[test]
fn a_function_without_a_result_can_be_called() {
    let text = "call local f
         mov r0, 1
         exit
     f:  stdw [r10-8], 1
         exit";
    check(&assemble(text).expect("assembles"), &Limits::default()).expect("is safe");
}

#[test]
fn an_unknown_error_is_a_refusal() {
    // PREVAIL panics on a negative value where it requires an unsigned one.
    let text = "stw [r10-8], 0
         stw [r10-4], -1
         ldxdw r2, [r10-8]
         mov r3, 1
         lsh r3, r2
         mov r0, 1
         exit";
    let linked = assemble(text).expect("assembles");
    refused(&linked, Reason::Unproven);
    let concluded =
        std::panic::catch_unwind(|| analyse(&linked, AssertionSet::All, |a| conclude(&linked, &a)));
    assert!(concluded.is_err(), "PREVAIL no longer panics on this program: find another one for this test");
}
