//! The hot path allocates nothing, as the allocator counts for the thread that runs the program.

use p4shield_testbed::allocations::{Counting, allocations};

use p4shield_abi::info::InfoStatus;
use p4shield_bpf::asm::assemble;
use p4shield_bpf::{EngineOptions, Meta, Packet, Program, Verified, VmInfo};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Inserts, finds and deletes entries of a hash and of an LPM trie, reads information and resizes the
/// packet.
const PROGRAM: &str = ".map h hash 4 8 64
    .map l lpm 8 4 64
    mov r6, r1
    ldxw r3, [r1+36]
    stxw [r10-4], r3
    stw [r10-8], 32
    stdw [r10-16], 1
    lddw r1, map h
    mov r2, r10
    add r2, -4
    mov r3, r10
    add r3, -16
    mov r4, 0
    call 2
    lddw r1, map l
    mov r2, r10
    add r2, -8
    mov r3, r10
    add r3, -16
    mov r4, 0
    call 2
    lddw r1, map l
    mov r2, r10
    add r2, -8
    call 1
    jeq r0, 0, out
    lddw r1, map h
    mov r2, r10
    add r2, -4
    call 3
    lddw r1, map l
    mov r2, r10
    add r2, -8
    call 3
    mov r1, r6
    mov r2, 3
    call 1000
    mov r1, r6
    mov r2, -8
    call 44
    mov r0, 1
out:
    exit";

#[test]
fn runs_allocate_nothing() {
    let linked = assemble(PROGRAM).expect("right");
    // SAFETY: the program only accesses its stack, and no pointer that a helper returned.
    let verified = unsafe { Verified::assume(linked) };
    let mut program = Program::load(&verified, &EngineOptions::default()).expect("loads");
    let mut packet = Packet::new(128, 128);
    let info = VmInfo::unknown(InfoStatus::Known);
    let before = allocations();
    assert!(before > 0, "loading allocates, so the counter counts");
    let mut resized = 0;
    for vm in 0..1000 {
        packet.reset(&[1; 64], 64);
        let result = program.run(&mut packet, &Meta { vm, ..Meta::default() }, &info);
        resized += usize::from(result.total == 72);
    }
    assert_eq!(allocations(), before);
    assert_eq!(resized, 1000, "every run reached the resize");
}
