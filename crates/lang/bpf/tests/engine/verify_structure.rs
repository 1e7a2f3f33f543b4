//! Refusals before any proof: encodings, control flow, maps, helpers and sizes. And the sizes that the proof
//! relies on.

use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_HASH, TYPE_LPM_TRIE};
use p4shield_abi::object::MAX_INSTRUCTIONS;
use p4shield_bpf::asm::assemble;
use p4shield_bpf::linked::{Entry, Map, Subprogram};
use p4shield_bpf::verify::{Limits, MAX_FRAMES, MAX_PACKET_BYTES, Reason, Refusal, check};
use p4shield_bpf::{Insn, Linked};

const EXIT: Insn = insn(0x95, 0, 0, 0, 0);
const SET_R0: Insn = insn(0xb7, 0, 0, 0, 1);

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

fn check_default(linked: &Linked) -> Result<(), Refusal> {
    check(linked, &Limits::default()).map(drop)
}

#[track_caller]
fn refused(linked: &Linked, reason: Reason) {
    let refusal = check_default(linked).expect_err("the verifier refuses the program");
    assert_eq!(refusal.reason(), Some(reason), "{refusal}");
    let Refusal::Program(finding) = &refusal else { panic!("{refusal}") };
    assert_eq!(finding.prevail, None, "PREVAIL was called: {refusal}");
}

/// Returns the instructions followed by `return 1`.
fn with(first: &[Insn]) -> Linked {
    Linked::from_insns([first, &[SET_R0, EXIT]].concat())
}

#[test]
fn unsupported_encodings_are_refused() {
    check_default(&with(&[])).expect("the rest of these programs is safe");
    let low = |src| insn(0x18, 2, src, 0, 0);
    let high = insn(0, 0, 0, 0, 0);
    let cases: [(&str, Vec<Insn>); 22] = [
        ("call by register", vec![insn(0x8d, 2, 0, 0, 0)]),
        ("call by register, the other encoding", vec![insn(0x8d, 0, 0, 0, 2)]),
        ("call of a kernel function", vec![insn(0x85, 0, 2, 0, 1)]),
        ("legacy packet load, absolute", vec![insn(0x30, 0, 0, 0, 0)]),
        ("legacy packet load, indirect", vec![insn(0x50, 0, 2, 0, 0)]),
        ("address of a map's value", vec![low(2), high]),
        ("address of a variable", vec![low(3), high]),
        ("address of code", vec![low(4), high]),
        ("map by index", vec![low(5), high]),
        ("map value by index", vec![low(6), high]),
        ("wide immediate without its second slot", vec![low(0)]),
        ("write to r10 by lddw", vec![insn(0x18, 10, 0, 0, 0), high]),
        ("write to r10 by mov", vec![insn(0xb7, 10, 0, 0, 0)]),
        ("write to r10 by a load", vec![insn(0x79, 10, 1, 16, 0)]),
        ("write to r10 by an exchange", vec![insn(0xdb, 10, 10, -8, 0xe1)]),
        ("register 11", vec![insn(0xb7, 11, 0, 0, 0)]),
        ("sign extension of an immediate", vec![insn(0xb7, 2, 0, 8, 0)]),
        ("32-bit sign extension of 32 bits", vec![insn(0xbc, 2, 1, 32, 0)]),
        ("signed load of eight bytes", vec![insn(0x99, 2, 1, 16, 0)]),
        ("atomic operation on one byte", vec![insn(0xd3, 1, 1, 16, 0)]),
        ("exchange that does not fetch", vec![insn(0xdb, 1, 1, 16, 0xe0)]),
        ("division with offset 2", vec![insn(0x37, 0, 0, 2, 1)]),
    ];
    for (name, first) in cases {
        let refusal = check_default(&with(&first)).expect_err(name);
        assert_eq!(refusal.reason(), Some(Reason::Instruction), "{name}: {refusal}");
    }
}

#[test]
fn invalid_control_flow_is_refused() {
    refused(&with(&[insn(0x05, 0, 0, 2, 0)]), Reason::ControlFlow);
    refused(&with(&[insn(0x05, 0, 0, -2, 0)]), Reason::ControlFlow);
    refused(&with(&[insn(0x06, 0, 0, 0, i32::MIN)]), Reason::ControlFlow);
    let into_wide = [insn(0x05, 0, 0, 1, 0), insn(0x18, 2, 0, 0, 0), insn(0, 0, 0, 0, 0)];
    refused(&with(&into_wide), Reason::ControlFlow);
    refused(&Linked::from_insns(vec![SET_R0]), Reason::ControlFlow);
    refused(&Linked::from_insns(vec![]), Reason::Size);
    // A call into the middle of a function, and functions with a gap.
    refused(&with(&[insn(0x85, 0, 1, 0, 0)]), Reason::ControlFlow);
    let mut gap = with(&[]);
    gap.subprograms = vec![Subprogram { name: "f".to_owned(), start: 0, end: 1 }];
    refused(&gap, Reason::ControlFlow);
}

#[test]
fn unknown_helpers_and_maps_are_refused() {
    for helper in [0, 4, 6, 12, 43, 999, 1003, i32::MAX] {
        refused(&with(&[insn(0x85, 0, 0, 0, helper)]), Reason::Helper);
    }
    refused(&with(&[insn(0x18, 1, 1, 0, 0), insn(0, 0, 0, 0, 0)]), Reason::Map);
}

#[test]
fn invalid_map_definitions_are_refused() {
    let check_map = |map_type, key_size, value_size, max_entries, flags| {
        let definition = MapDefinition { map_type, key_size, value_size, max_entries, flags };
        let maps = vec![Map { name: "m".to_owned(), definition }];
        check_default(&Linked { maps, ..with(&[]) })
    };
    check_map(TYPE_HASH, 4, 8, 1, 0).expect("is valid");
    let impossible = [
        (0, 4, 8, 1, 0),
        (3, 4, 8, 1, 0),
        (TYPE_ARRAY, 8, 8, 1, 0),
        (TYPE_LPM_TRIE, 4, 8, 1, 0),
        (TYPE_HASH, 0, 8, 1, 0),
        (TYPE_HASH, 513, 8, 1, 0),
        (TYPE_HASH, 4, 0, 1, 0),
        (TYPE_HASH, 4, u32::MAX, 1, 0),
        (TYPE_HASH, 4, 8, 0, 0),
        (TYPE_HASH, 4, 8, 1, 1),
    ];
    for (t, k, v, n, f) in impossible {
        let refusal = check_map(t, k, v, n, f).expect_err("is invalid");
        assert_eq!(refusal.reason(), Some(Reason::Map), "{refusal}");
    }
}

#[test]
fn entries_have_to_fit_their_maps() {
    let definition =
        MapDefinition { map_type: TYPE_HASH, key_size: 4, value_size: 8, max_entries: 1, flags: 0 };
    let with_entry = |map, key, value| Linked {
        maps: vec![Map { name: "m".to_owned(), definition }],
        entries: vec![Entry { map, key: vec![0; key], value: vec![0; value] }],
        ..with(&[])
    };
    check_default(&with_entry(0, 4, 8)).expect("fits");
    for (map, key, value) in [(1, 4, 8), (0, 3, 8), (0, 4, 9)] {
        refused(&with_entry(map, key, value), Reason::Map);
    }
}

#[test]
fn sizes_are_limited() {
    let long = Linked::from_insns([vec![SET_R0; MAX_INSTRUCTIONS], vec![EXIT]].concat());
    refused(&long, Reason::Size);
    let limits = Limits { instructions: 1, ..Limits::default() };
    assert_eq!(check(&with(&[]), &limits).expect_err("too long").reason(), Some(Reason::Size));
}

/// A chain of functions, each of which calls the next one `calls` times.
fn chain(functions: usize, calls: usize) -> Linked {
    let mut text = String::new();
    for f in 0..functions {
        text += &format!("f{f}:\n");
        if f + 1 < functions {
            text += &format!("call local f{}\n", f + 1).repeat(calls);
        }
        text += "mov r0, 1\nexit\n";
    }
    assemble(&text).expect("assembles")
}

#[test]
fn exponential_call_trees_are_refused_early() {
    check_default(&chain(3, 2)).expect("is small");
    // PREVAIL would make 10^7 copies.
    refused(&chain(MAX_FRAMES, 10), Reason::Size);
}

#[test]
fn deep_and_recursive_calls_are_refused() {
    check_default(&chain(MAX_FRAMES, 1)).expect("uses all frames");
    refused(&chain(MAX_FRAMES + 1, 1), Reason::CallDepth);
    let itself = assemble("call local f\nexit\nf: call local f\nexit").expect("assembles");
    refused(&itself, Reason::CallDepth);
    let mutual = "call local f\nexit\nf: call local g\nexit\ng: call local f\nexit";
    refused(&assemble(mutual).expect("assembles"), Reason::CallDepth);
}

/// The headroom counts: a program may not assume that the packet is shorter than `adjust_head` can make it.
#[test]
fn the_longest_packet_includes_the_head_room() {
    let with_value = |bytes: usize| {
        let text = format!(
            ".map m array 4 {bytes} 1
             mov r6, r1
             stw [r10-4], 0
             mov r2, r10
             add r2, -4
             lddw r1, map m
             call 1
             jeq r0, 0, out
             ldxdw r2, [r6+0]
             ldxdw r3, [r6+8]
             sub r3, r2
             jeq r3, 0, out
             add r0, r3
             ldxb r0, [r0-1]
         out: mov r0, 1
             exit"
        );
        check_default(&assemble(&text).expect("assembles"))
    };
    with_value(MAX_PACKET_BYTES).expect("is safe");
    let refusal = with_value(MAX_PACKET_BYTES - 1).expect_err("one byte too few");
    assert_eq!(refusal.reason(), Some(Reason::MapValueBounds), "{refusal}");
    with_value(MAX_HEADER_BYTES as usize).expect_err("without the headroom");
}

/// Valid opcodes, which pass the decoder.
const CODES: [u8; 32] = [
    0x07, 0x0f, 0x1f, 0x2f, 0x3f, 0x57, 0x67, 0x77, 0xb7, 0xbf, 0xbc, 0xdc, 0xd7, 0xc7, 0x84, 0x18, 0x61,
    0x79, 0x71, 0x81, 0x63, 0x7b, 0x72, 0xdb, 0xc3, 0x05, 0x15, 0x2d, 0x6e, 0x85, 0x95, 0x00,
];

/// Random slots, and random slots that resemble instructions, are accepted or refused without a panic.
/// `verify_soundness` runs accepted programs.
#[test]
fn random_bytes_are_accepted_or_refused() {
    let bytes = p4shield_need::extent(1 << 20, 1 << 24);
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mut left: usize = bytes;
    while left > 0 {
        let n = 1 + (next() >> 40) as usize % 16;
        let plausible = next() >> 61 == 0;
        let slot = |_| {
            let i = Insn::from_bytes(next().to_le_bytes());
            if !plausible {
                return i;
            }
            let code = CODES[usize::from(i.code) % CODES.len()];
            // Register operands and loads have no immediate, and immediates no register.
            let by_register = matches!(code & 7, 1 | 3) || code & 8 != 0 && !matches!(code, 0xdc | 0x18);
            let (src, imm) = if by_register { (i.src % 11, 0) } else { (0, i.imm % 64) };
            let off = if matches!(code & 7, 4 | 7) { 0 } else { i.off % 8 };
            Insn { code, dst: i.dst % 11, src, off, imm }
        };
        let slots: Vec<Insn> = (0..n).map(slot).chain([SET_R0, EXIT]).collect();
        let _ = check_default(&Linked::from_insns(slots));
        left = left.saturating_sub(n * 8);
    }
}
