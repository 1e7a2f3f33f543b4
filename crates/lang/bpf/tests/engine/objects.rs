//! Parsing and linking of objects from clang and of hostile bytes; linked programs on both engines.

use crate::common::{Rng, fuzz_bytes};
use std::path::PathBuf;
use std::process::Command;

use p4shield_abi::Verdict;
use p4shield_abi::info::InfoStatus;
use p4shield_abi::map::MapDefinition;
use p4shield_bpf::maps::UpdateFlag;
use p4shield_bpf::{
    EngineOptions, LinkError, Linked, Meta, Mode, Object, ObjectError, Packet, Program, Verified, VmInfo,
    link,
};

/// Compiles C with the program's clang.
fn clang(name: &str, source: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (input, output) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.o")));
    std::fs::write(&input, source).expect("writable folder");
    let mut command = Command::new("clang");
    command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"]).arg(&input).arg("-o").arg(&output);
    let status = command.status().expect("clang is installed");
    assert!(status.success(), "clang compiles {name}");
    std::fs::read(&output).expect("clang wrote the object")
}

const PROGRAM: &str = include_str!("../objects/program.c");
const ALONE: &str = "struct d { unsigned t, k, v, n, f; };
    __attribute__((section(\"maps\"), used)) struct d m = {2, 4, 8, 4, 0};
    static void *(*lookup)(void *, void *) = (void *)1;
    __attribute__((noinline)) int twice(int a) { return 2 * a; }
    __attribute__((section(\"p4\"))) int f(unsigned *c) { int k = c[4]; return twice(k) + !lookup(&m, &k); }";
const EXTERN: &str = include_str!("../objects/extern.c");

fn object(name: &str, source: &str) -> Object {
    Object::parse(&clang(name, source)).expect("a valid object").named(name)
}

fn load(objects: &[Object], mode: Mode) -> Program {
    load_linked(link(objects).expect("they link"), mode)
}

fn load_linked(linked: Linked, mode: Mode) -> Program {
    // SAFETY: these programs check their bounds; other tests cover verification.
    let verified = unsafe { Verified::assume(linked) };
    Program::load(&verified, &EngineOptions { mode, ..EngineOptions::default() }).expect("it loads")
}

#[test]
fn a_program_and_a_c_extern_link_and_run() {
    let objects = [object("program", PROGRAM), object("extern", EXTERN)];
    for mode in [Mode::Interpreter, Mode::Jit] {
        let mut program = load(&objects, mode);
        let mut packet = Packet::new(128, 128);
        let info = VmInfo::unknown(InfoStatus::Missing);
        for (first, expected) in [(7, Verdict::Pass), (8, Verdict::Drop), (7, Verdict::Pass)] {
            packet.reset(&[first; 60], 60);
            let result = program.run(&mut packet, &Meta::default(), &info);
            assert_eq!(result.stopped, None, "{mode:?}");
            assert_eq!(result.verdict, expected, "{mode:?}");
            assert!(result.rewritten);
            assert_eq!(packet.bytes()[1], first + 1, "the extern's result was written");
        }
        let maps = program.maps().expect("it has maps");
        let count = |i: u32| maps.get("counts").and_then(|m| m.lookup(&i.to_ne_bytes()).ok());
        assert_eq!(count(7), Some(2u64.to_ne_bytes().to_vec()), "{mode:?}");
        assert_eq!(count(8), Some(1u64.to_ne_bytes().to_vec()), "{mode:?}");
        assert!(maps.get("shared").is_some());
    }
}

#[test]
fn unknown_and_duplicate_symbols_are_named() {
    let program = object("unknown", PROGRAM);
    let e = link(std::slice::from_ref(&program)).unwrap_err();
    assert!(matches!(&e, LinkError::Unknown { kind: "function", name, .. } if name == "add_one"), "{e}");
    let e = link(&[program.clone(), object("twice", EXTERN), object("thrice", EXTERN)]).unwrap_err();
    assert!(e.to_string().contains("twice and in thrice"), "{e}");
    let e = link(&[program.clone(), program.named("again")]).unwrap_err();
    assert!(matches!(e, LinkError::SeveralEntries { .. }), "{e}");
    assert!(matches!(link(&[object("only", EXTERN)]), Err(LinkError::NoEntry)));
    assert!(matches!(link(&[]), Err(LinkError::NoEntry)));
}

#[test]
fn global_variables_and_constants_are_refused_by_name() {
    let table = "static const int table[4] = {1, 2, 3, 4};
        __attribute__((section(\"p4\"))) int f(unsigned *c) { return table[c[4] & 3]; }";
    let e = Object::parse(&clang("rodata", table)).unwrap_err();
    assert!(matches!(&e, ObjectError::Data { data, .. } if data.starts_with(".rodata")), "{e}");
    let global = "int seen; __attribute__((section(\"p4\"))) int f(void *c) { return ++seen; }";
    let e = Object::parse(&clang("global", global)).unwrap_err();
    assert!(matches!(&e, ObjectError::Data { symbol, .. } if symbol == "seen"), "{e}");
}

#[test]
fn a_block_that_is_too_large_to_copy_is_refused() {
    // Bytes of the block, which a switch copies for each copy of a packet.
    for (size, accepted) in [(32 << 10, true), ((32 << 10) + 8, false)] {
        let source = ALONE.replace(
            "struct d m = {2, 4, 8, 4, 0}",
            &format!("struct d p4shield_division = {{2, 4, {size}, 1, 0}}"),
        );
        let parsed = Object::parse(&clang("block", &source.replace("&m", "&p4shield_division")));
        let why = parsed.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(parsed.is_ok(), accepted, "{size}: {why}");
        assert!(accepted || why.contains("32776 bytes, and 32768 are the most"), "{why}");
    }
}

#[test]
fn files_other_than_bpf_objects_are_refused() {
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
    let head = &own[..own.len().min(1 << 20)];
    assert!(Object::parse(head).is_err());
    assert!(Object::parse(b"").is_err());
    assert!(matches!(Object::parse(&vec![0; 17 << 20]), Err(ObjectError::TooLarge { .. })));
}

/// The sections that our compiler adds: version, initial entries and source lines.
fn sections() -> String {
    let version = p4shield_abi::context::PROGRAM_ABI_VERSION;
    include_str!("../objects/sections.c").replace("PROGRAM_ABI_VERSION", &version.to_string())
}

#[test]
fn entries_and_lines_from_our_compiler_are_read() {
    let linked =
        link(&[object("sections", &sections()), object("helper", "int twice(int x) { return 2 * x; }")]);
    let linked = linked.expect("they link");
    assert_eq!(linked.subprograms.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["p4_main", "twice"]);
    let entries: Vec<_> = linked.entries.iter().map(|e| (e.map, e.key.clone(), e.value.clone())).collect();
    let value = |n: u64| n.to_le_bytes().to_vec();
    assert_eq!(entries, [(1, vec![1, 2, 3], value(5)), (0, vec![1, 0, 0, 0], value(6))]);
    let line = |slot| linked.lines.find(slot).map(|l| (l.file, l.line, l.column));
    assert_eq!(line(0), Some(("a.p4", 10, 3)));
    assert_eq!(line(1), Some(("b.p4", 20, 5)));
    assert_eq!(line(linked.subprograms[1].start), None, "another object's function has no lines");
    let mut program = load_linked(linked, Mode::Jit);
    let result = program.run(&mut Packet::new(0, 64), &Meta::default(), &VmInfo::unknown(InfoStatus::Known));
    assert_eq!(result.stopped, None);
    let maps = program.maps().expect("two maps");
    assert_eq!(maps.get("set").map(|m| m.lookup(&[1, 2, 3])), Some(Ok(value(5))));
}

const TYPED: &str = include_str!("../objects/typed_maps.c");

#[test]
fn maps_described_by_btf_are_read() {
    let linked = link(&[object("typed", TYPED)]).expect("it links");
    let sizes = |d: &MapDefinition| (d.map_type, d.key_size, d.value_size, d.max_entries, d.flags);
    let mut maps: Vec<_> = linked.maps.iter().map(|m| (m.name.as_str(), sizes(&m.definition))).collect();
    maps.sort_unstable();
    assert_eq!(maps, [("flows", (1, 12, 8, 1024, 0)), ("routes", (11, 8, 4, 100, 1))]);
    for mode in [Mode::Interpreter, Mode::Jit] {
        let mut program = load_linked(linked.clone(), mode);
        let routes = program.maps_mut().and_then(|m| m.get_mut("routes")).expect("by name");
        let prefix = [8, 0, 0, 0, 10, 0, 0, 0];
        routes.update(&prefix, &[1, 0, 0, 0], UpdateFlag::Any).expect("room");
        let meta = |vm| Meta { vm, ..Meta::default() };
        let info = VmInfo::unknown(InfoStatus::Known);
        let mut judge = |vm| program.run(&mut Packet::new(0, 64), &meta(vm), &info).verdict;
        assert_eq!(judge(u32::from_be(0x0a01_0203)), Verdict::Pass, "{mode:?}: 10.1.2.3 is in 10.0.0.0/8");
        assert_eq!(judge(u32::from_be(0x0b01_0203)), Verdict::Drop, "{mode:?}");
    }
}

#[test]
fn unsupported_btf_maps_are_refused() {
    let refused = |from: &str, to: &str| {
        assert!(TYPED.contains(from), "{from}");
        Object::parse(&clang("typed_changed", &TYPED.replace(from, to))).unwrap_err().to_string()
    };
    assert!(refused("(*max_entries)[100]", "(*pinning)[1]").contains("field pinning"));
    assert!(refused("unsigned (*value);", "unsigned value;").contains("as __uint and __type"));
}

#[test]
fn other_versions_and_damaged_sections_are_refused() {
    let changed = |from: &str, to: &str| {
        assert!(sections().contains(from), "{from}");
        Object::parse(&clang("changed", &sections().replace(from, to))).unwrap_err().to_string()
    };
    let abi = format!("abi = {}", p4shield_abi::context::PROGRAM_ABI_VERSION);
    assert!(changed(&abi, "abi = 9").contains("version 9"));
    assert!(changed("{{20, 0,", "{{21, 0,").contains("refers to no map"));
    assert!(changed("{{20, 0,", "{{20, 1,").contains("header of the record is damaged"));
    assert!(changed("lines = {2,", "lines = {200000,").contains(".p4shield.lines"));
    assert!(changed("max_entries, flags;\n} table", "max_entries;\n} table").contains("map table"));
}

/// Random bytes, and real objects with a few changed bytes, which pass more checks. `P4SHIELD_EFFORT` sets
/// how many.
#[test]
fn hostile_objects_never_panic() {
    let budget = fuzz_bytes();
    let seeds = [clang("seed_program", PROGRAM), clang("seed_alone", ALONE), clang("seed_typed", TYPED)];
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let (mut spent, mut linked) = (0, 0);
    while spent < budget {
        let mut bytes = seeds[rng.below(3)].clone();
        if rng.below(20) == 0 {
            bytes = (0..rng.below(4096)).map(|_| rng.next() as u8).collect();
        }
        for _ in 0..=rng.below(8) {
            let at = rng.below(bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte = if rng.below(2) == 0 { rng.next() as u8 } else { *byte ^ 1 << rng.below(8) };
            }
        }
        spent += bytes.len();
        linked += usize::from(p4shield_bpf::fuzz::load_and_link(&bytes));
    }
    assert!(linked > 0, "some changes are harmless, so some objects link");
}
