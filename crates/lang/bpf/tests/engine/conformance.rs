//! The public conformance suite (Alan-Jowett/bpf_conformance) on the interpreter and the JIT. The variable
//! `BPF_CONFORMANCE` names its `tests` folder. Of its 313 programs one uses the call by register, which is
//! optional in RFC 9669 and unsupported here.

#![allow(clippy::print_stdout, reason = "a skipped test prints the reason, a test the number of programs")]

use std::path::{Path, PathBuf};

use p4shield_bpf::asm::assemble;
use p4shield_bpf::raw::RawProgram;
use p4shield_bpf::{EngineOptions, Insn, Linked, Mode, Verified};

/// Programs that use an optional feature of RFC 9669.
const OPTIONAL: [&str; 1] = ["callx.data"];

/// The sections of one `.data` file.
#[derive(Default)]
struct Case {
    asm: String,
    raw: Vec<Insn>,
    mem: Vec<u8>,
    result: u64,
}

fn hex(text: &str) -> u64 {
    let digits = text.trim().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn parse(text: &str) -> Case {
    let mut case = Case::default();
    let mut section = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("-- ") {
            section = name.trim();
            continue;
        }
        let code = line.split('#').next().unwrap_or("").trim();
        match section {
            "asm" => case.asm += &format!("{line}\n"),
            _ if code.is_empty() => {}
            "raw" => case.raw.push(Insn::from_bytes(hex(code).to_le_bytes())),
            "mem" => case.mem.extend(code.split_whitespace().map(|b| hex(b) as u8)),
            "result" => case.result = hex(code),
            _ => {}
        }
    }
    case
}

fn run(case: &Case, mode: Mode) -> Result<u64, String> {
    let linked = assemble(&case.asm).map_err(|e| e.to_string())?;
    if !case.raw.is_empty() && linked.insns != case.raw {
        return Err("the assembled bytes differ from the suite's".to_owned());
    }
    let options = EngineOptions { mode, ..EngineOptions::default() };
    // SAFETY: the suite's programs only access their stack and their memory.
    let verified = unsafe { Verified::assume(linked) };
    let mut program = RawProgram::load(&verified, &options).map_err(|e| e.to_string())?;
    program.run(&mut case.mem.clone()).map_err(|e| e.to_string())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|e| e.expect("readable folder").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "data"));
    files.sort();
    files
}

fn suite(mode: Mode) {
    let Some(folder) = std::env::var_os("BPF_CONFORMANCE") else {
        p4shield_need::skip("bpf-conformance", "set BPF_CONFORMANCE to the tests folder of bpf_conformance");
        return;
    };
    let mut passed = 0;
    let mut failures = Vec::new();
    for file in files(Path::new(&folder)) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let case = parse(&std::fs::read_to_string(&file).expect("readable file"));
        match run(&case, mode) {
            Ok(r0) if r0 == case.result => passed += 1,
            _ if OPTIONAL.contains(&name.as_str()) => {}
            Ok(r0) => failures.push(format!("{name}: {r0:#x} instead of {:#x}", case.result)),
            Err(e) => failures.push(format!("{name}: {e}")),
        }
    }
    println!("{mode:?}: {passed} passed");
    assert!(failures.is_empty(), "{mode:?}: {passed} passed, failed:\n{}", failures.join("\n"));
    assert!(passed >= 312, "{mode:?}: only {passed} programs were found");
}

#[test]
fn interpreter_conforms() {
    suite(Mode::Interpreter);
}

#[test]
fn jit_conforms() {
    suite(Mode::Jit);
}

/// Raw programs need no assembler: keeps [`Linked`] in the public interface of these tests.
#[test]
fn raw_programs_run() {
    let exit = Insn { code: 0x95, ..Insn::default() };
    let mov = Insn { code: 0xb7, imm: 7, ..Insn::default() };
    // SAFETY: the program accesses no memory.
    let verified = unsafe { Verified::assume(Linked::from_insns(vec![mov, exit])) };
    for mode in [Mode::Interpreter, Mode::Jit] {
        let options = EngineOptions { mode, ..EngineOptions::default() };
        let mut program = RawProgram::load(&verified, &options).expect("a valid program");
        assert_eq!(program.run(&mut []), Ok(7));
    }
}
