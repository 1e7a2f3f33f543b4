//! Ten classic bad programs, the one that P4rt-OVS's verifier accepts, and typical programs of tenants.
//!
//! `bad_programs/` has each bad program in C and in assembler. Each has a fixed twin that only adds the
//! missing check (`#ifdef FIXED`; lines marked `;fixed`, and `;bad` for those they replace) and is
//! accepted, so the refusal has no other cause.

use std::path::{Path, PathBuf};
use std::process::Command;

use p4shield_bpf::asm::assemble;
use p4shield_bpf::verify::{Limits, Reason, Refusal, Report, check};
use p4shield_bpf::{Linked, Object, link};

const PROGRAMS: [(&str, Reason); 11] = [
    ("unchecked_packet_access", Reason::PacketBounds),
    ("packet_offset_64", Reason::PacketBounds),
    ("stale_pointer", Reason::Uninitialised),
    ("null_map_value", Reason::Null),
    ("pointer_leak", Reason::PointerLeak),
    ("context_overwritten", Reason::ContextPointer),
    ("unknown_helper", Reason::Helper),
    ("endless_loop", Reason::Loop),
    ("stack_overrun", Reason::StackBounds),
    ("uninitialised_register", Reason::Uninitialised),
    ("p4rt_ovs", Reason::PacketBounds),
];

/// Programs that C cannot express: clang drops code that reads an uninitialised variable.
const NOT_IN_C: [&str; 1] = ["uninitialised_register"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_programs")
}

fn compile(source: &Path, flags: &[&str]) -> Linked {
    let name = format!("{}-{}.o", source.file_stem().expect("a file").to_string_lossy(), flags.concat());
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new("clang");
    command.args(["-O2", "-target", "bpf", "-mcpu=v3", "-c"]).args(flags).arg(source).arg("-o").arg(&output);
    assert!(command.status().expect("clang is installed").success(), "clang compiles {}", source.display());
    let object = Object::parse(&std::fs::read(&output).expect("clang wrote the object")).expect("an object");
    link(&[object]).expect("links")
}

fn text(name: &str, fixed: bool) -> Linked {
    let text = std::fs::read_to_string(folder().join(format!("{name}.asm"))).expect("is there");
    let without = if fixed { ";bad" } else { ";fixed" };
    let lines: Vec<&str> = text.lines().filter(|l| !l.ends_with(without)).collect();
    assemble(&lines.join("\n")).expect("assembles")
}

fn check_default(linked: &Linked) -> Result<Report, Refusal> {
    check(linked, &Limits::default())
}

#[track_caller]
fn refused(name: &str, linked: &Linked, reason: Reason) {
    let refusal = check_default(linked).expect_err(name);
    assert_eq!(refusal.reason(), Some(reason), "{name}: {refusal}");
    let Refusal::Program(finding) = refusal else { panic!("{name}") };
    assert!(finding.location.is_some(), "{name}: no location in {finding:?}");
    assert!(!finding.what.is_empty() && !finding.help.is_empty());
}

#[track_caller]
fn accepted(name: &str, linked: &Linked) {
    if let Err(refusal) = check_default(linked) {
        panic!("{name}: {refusal}");
    }
}

#[test]
fn bad_assembler_programs_are_refused_and_fixed_ones_accepted() {
    for (name, reason) in PROGRAMS {
        refused(name, &text(name, false), reason);
        accepted(name, &text(name, true));
    }
}

#[test]
fn bad_c_programs_are_refused_and_fixed_ones_accepted() {
    for (name, reason) in PROGRAMS.into_iter().filter(|(name, _)| !NOT_IN_C.contains(name)) {
        let source = folder().join(format!("{name}.c"));
        refused(name, &compile(&source, &[]), reason);
        accepted(name, &compile(&source, &["-DFIXED"]));
    }
}

#[test]
fn typical_programs_of_tenants_are_accepted() {
    let sources = std::fs::read_dir(folder().join("accepted")).expect("is there");
    let mut sources: Vec<PathBuf> = sources.map(|e| e.expect("reads").path()).collect();
    sources.sort();
    assert!(sources.len() >= 8, "{sources:?}");
    for source in sources {
        accepted(&source.display().to_string(), &compile(&source, &[]));
    }
}

#[test]
fn a_refusal_names_the_instruction_and_the_remedy() {
    let message = check_default(&text("null_map_value", false)).expect_err("refused").to_string();
    for part in [
        "instruction 10 `lock add [r2+0], r3`",
        "can be null",
        "compare the result of map_lookup_elem",
        "PREVAIL:",
    ] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn a_refusal_names_the_source_line() {
    use p4shield_abi::object::LineRecord;
    let mut linked = text("unchecked_packet_access", false);
    linked.lines.files = vec!["guard.p4".to_owned()];
    linked.lines.records = vec![
        LineRecord { instruction: 0, file: 0, line: 3, column: 1 },
        LineRecord { instruction: 5, file: 0, line: 17, column: 9 },
    ];
    let message = check_default(&linked).expect_err("refused").to_string();
    assert!(message.starts_with("guard.p4:17:9: instruction 5 "), "{message}");
}

/// The longest program that loads: it reads packet bytes, branches on them and keeps values on its stack.
#[test]
fn programs_of_8000_instructions_are_accepted() {
    let head =
        "mov r0, 1\n ldxdw r6, [r1+0]\n ldxdw r7, [r1+8]\n mov r2, r6\n add r2, 200\n jgt r2, r7, end\n";
    let mut text = head.to_owned();
    for i in 0..1332 {
        let (read, write, keep) = (i % 200, (i + 7) % 200, -8 * (1 + i % 8));
        text += &format!("ldxb r3, [r6+{read}]\n jeq r3, {}, a{i}\n add r3, {i}\n and r3, 255\n", i % 256);
        text += &format!("a{i}: stxdw [r10{keep}], r3\n stxb [r6+{write}], r3\n");
    }
    let linked = assemble(&(text + "end: exit")).expect("assembles");
    assert_eq!(linked.insns.len(), 7999);
    accepted("the longest program", &linked);
}
