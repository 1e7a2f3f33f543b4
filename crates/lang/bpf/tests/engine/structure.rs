//! The structural check: invalid instruction streams are refused with the instruction.

use p4shield_bpf::asm::assemble;
use p4shield_bpf::check::{CheckError, check};
use p4shield_bpf::insn::{DecodeError, decode};
use p4shield_bpf::linked::{Linked, Subprogram};
use p4shield_bpf::raw::RawProgram;
use p4shield_bpf::{EngineOptions, Insn, Verified, link};

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

const EXIT: Insn = Insn { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 };

fn refusal(insns: Vec<Insn>) -> CheckError {
    check(&Linked::from_insns(insns)).unwrap_err()
}

#[test]
fn undefined_fields_are_refused() {
    let cases = [
        insn(0x07, 11, 0, 0, 1),
        insn(0x0f, 0, 12, 0, 0),
        insn(0xb7, 10, 0, 0, 1),
        insn(0x07, 0, 1, 0, 1),
        insn(0x0f, 0, 1, 0, 5),
        insn(0x07, 0, 0, 1, 1),
        insn(0xbf, 0, 1, 5, 0),
        insn(0xbc, 0, 1, 32, 0),
        insn(0xb7, 0, 0, 8, 1),
        insn(0x37, 0, 0, 2, 1),
        insn(0x8f, 0, 0, 0, 0),
        insn(0x87, 0, 0, 0, 1),
        insn(0xd7, 0, 0, 0, 8),
        insn(0xdf, 0, 0, 0, 16),
        insn(0xe7, 0, 0, 0, 0),
        insn(0x99, 0, 1, 0, 0),
        insn(0x61, 0, 1, 0, 1),
        insn(0x62, 0, 1, 0, 1),
        insn(0x20, 0, 0, 0, 0),
        insn(0xd3, 0, 1, 0, 0),
        insn(0xdb, 1, 2, 0, 2),
        insn(0xdb, 1, 10, 0, 1),
        insn(0x8d, 0, 0, 0, 1),
        insn(0x85, 0, 2, 0, 1),
        insn(0x85, 0, 0, 1, 1),
        insn(0x95, 0, 0, 0, 1),
        insn(0x86, 0, 0, 0, 1),
        insn(0xe5, 0, 0, 0, 0),
        insn(0x05, 0, 0, 0, 1),
        insn(0x06, 0, 0, 1, 0),
    ];
    for case in cases {
        let e = refusal(vec![case, EXIT, EXIT]);
        assert!(matches!(e, CheckError::Decode { slot: 0, .. }), "{case:?}: {e}");
    }
}

#[test]
fn incomplete_wide_immediates_are_refused() {
    let lddw = insn(0x18, 0, 0, 0, 1);
    for insns in [
        vec![lddw],
        vec![lddw, EXIT],
        vec![lddw, insn(0, 0, 0, 1, 0), EXIT],
        vec![insn(0x18, 0, 3, 0, 0), insn(0, 0, 0, 0, 0), EXIT],
    ] {
        assert!(matches!(refusal(insns), CheckError::Decode { slot: 0, .. }));
    }
    assert_eq!(decode(&[lddw], 0), Err(DecodeError::HalfWide));
    assert_eq!(decode(&[], 0), Err(DecodeError::End));
    let into = vec![insn(0x05, 0, 0, 1, 0), lddw, insn(0, 0, 0, 0, 0), EXIT];
    assert!(matches!(refusal(into), CheckError::JumpIntoWide { slot: 0, target: 2, .. }));
}

#[test]
fn jumps_and_calls_out_of_functions_are_refused() {
    for off in [-2, 1, i16::MAX, i16::MIN] {
        let e = refusal(vec![insn(0x15, 0, 0, off, 0), EXIT]);
        assert!(matches!(e, CheckError::JumpOut { slot: 0, .. }), "{off}: {e}");
    }
    for imm in [i32::MAX, i32::MIN, 5] {
        assert!(matches!(refusal(vec![insn(0x06, 0, 0, 0, imm), EXIT]), CheckError::JumpOut { .. }));
        assert!(matches!(refusal(vec![insn(0x85, 0, 1, 0, imm), EXIT]), CheckError::CallNowhere { .. }));
    }
    assert!(matches!(refusal(vec![insn(0xb7, 0, 0, 0, 1)]), CheckError::RunsOff { slot: 0, .. }));
    assert!(matches!(refusal(vec![]), CheckError::Empty));
    assert!(matches!(refusal(vec![EXIT; 65_536]), CheckError::TooLong { .. }));
    let mut linked = assemble("call local f\nexit\nf: mov r0, 1\nexit").expect("right");
    linked.insns[2] = insn(0x05, 0, 0, -3, 0);
    assert!(matches!(check(&linked), Err(CheckError::JumpOut { slot: 2, target: 0, .. })));
}

#[test]
fn functions_have_to_cover_the_program() {
    let sub = |start, end| Subprogram { name: "f".to_owned(), start, end };
    let lists = [
        vec![],
        vec![sub(0, 1)],
        vec![sub(1, 2)],
        vec![sub(0, 3)],
        vec![sub(0, 2), sub(2, 2)],
        vec![sub(0, 1), sub(0, 2)],
    ];
    for subprograms in lists {
        let linked = Linked { insns: vec![EXIT; 2], subprograms, ..Linked::default() };
        assert!(matches!(check(&linked), Err(CheckError::Functions { .. })), "{:?}", linked.subprograms);
    }
}

#[test]
fn references_to_missing_maps_are_refused() {
    let linked = assemble("lddw r1, map 3\nexit").expect("an index needs no declaration");
    assert_eq!(check(&linked), Err(CheckError::NoSuchMap { slot: 0, map: 3, maps: 0 }));
}

#[test]
fn programs_end_at_a_chosen_slot() {
    let linked = assemble("mov r6, r1\nlddw r1, 5\nmov r0, 0\nexit").expect("right");
    for (slot, ends) in
        [(0, true), (1, true), (2, false), (3, true), (4, true), (5, false), (usize::MAX, false)]
    {
        let ended = linked.ending_at(slot);
        assert_eq!(ended.is_some(), ends, "{slot}");
        let Some(ended) = ended else { continue };
        assert_eq!(check(&ended), Ok(()));
        // SAFETY: the program accesses no memory.
        let verified = unsafe { Verified::assume(ended) };
        let mut program = RawProgram::load(&verified, &EngineOptions::default()).expect("sound");
        assert_eq!(program.run(&mut []), Ok(1), "{slot}");
    }
    let several = assemble("call local f\nexit\nf: mov r0, 1\nexit").expect("right");
    assert_eq!(several.ending_at(1), None);
}

#[test]
fn the_digest_covers_everything_relevant() {
    let base = assemble(".map a hash 4 4 4\nmov r0, 1\nexit").expect("right");
    let others = [
        ".map b hash 4 4 4\nmov r0, 1\nexit",
        ".map a hash 4 4 5\nmov r0, 1\nexit",
        ".map a hash 4 4 4\nmov r0, 2\nexit",
    ];
    for other in others {
        assert_ne!(assemble(other).expect("right").digest(), base.digest());
    }
    let mut renamed = base.clone();
    renamed.subprograms[0].name = "other".to_owned();
    assert_eq!(renamed.digest(), base.digest(), "names of functions are irrelevant");
    assert!(link(&[]).is_err());
}
