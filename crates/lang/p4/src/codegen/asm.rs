//! The assembly listing: code as text, with the source lines it comes from.

use super::MachineCode;
use super::insn::{self, Insn, Reloc};
use crate::ir::Function;
use crate::source::SourceMap;
use std::fmt::Write;

/// Prints the listing of a program.
pub(crate) fn listing(p: &MachineCode, f: &Function, sources: &SourceMap) -> String {
    let jumps = p.insns.iter().enumerate().filter(|(_, insn)| insn.jumps());
    let mut targets: Vec<usize> = jumps.map(|(i, insn)| insn.target(i)).collect();
    targets.sort_unstable();
    targets.dedup();
    let label = |i: usize| targets.binary_search(&i).ok();
    let mut out = String::from("p4_main:\n");
    let mut last = None;
    for (i, insn) in p.insns.iter().enumerate() {
        if let Some(n) = label(i) {
            let _ = writeln!(out, "L{n}:");
        }
        let (file, pos) = sources.locate(p.spans[i]);
        if last != Some((p.spans[i].file, pos.line)) {
            let text = sources.file(p.spans[i].file).line(pos.line).trim();
            let _ = writeln!(out, "    ; {file}:{}: {text}", pos.line);
            last = Some((p.spans[i].file, pos.line));
        }
        let to = label(insn.target(i));
        let _ = writeln!(out, "    {}", text(insn, to, f));
    }
    out
}

fn size(code: u8) -> &'static str {
    match code & 0x18 {
        0x10 => "u8",
        0x08 => "u16",
        0x00 => "u32",
        _ => "u64",
    }
}

fn memory(base: u8, offset: i32) -> String {
    if offset < 0 { format!("(r{base} - {})", -offset) } else { format!("(r{base} + {offset})") }
}

/// Prints one instruction in the notation of llvm-objdump.
fn text(i: &Insn, to: Option<usize>, f: &Function) -> String {
    let imm = (i.imm as u32).cast_signed();
    let label = to.map_or_else(String::new, |n| format!("L{n}"));
    match i.class() {
        insn::CLASS_LD => match &i.reloc {
            Reloc::Map(m) => format!("r{} = {} ll", i.dst, f.maps[m.0 as usize].name),
            _ => format!("r{} = {:#x} ll", i.dst, i.imm),
        },
        insn::CLASS_LDX => format!("r{} = *({} *){}", i.dst, size(i.code), memory(i.src, i.offset)),
        insn::CLASS_ST => format!("*({} *){} = {imm}", size(i.code), memory(i.dst, i.offset)),
        insn::CLASS_STX => format!("*({} *){} = r{}", size(i.code), memory(i.dst, i.offset), i.src),
        insn::CLASS_ALU | insn::CLASS_ALU64 => alu(i, imm),
        _ => jump(i, imm, &label),
    }
}

fn operand(i: &Insn, imm: i32, wide: bool) -> String {
    match (i.code & insn::X != 0, wide) {
        (true, true) => format!("r{}", i.src),
        (true, false) => format!("w{}", i.src),
        _ => imm.to_string(),
    }
}

fn alu(i: &Insn, imm: i32) -> String {
    let wide = i.class() == insn::CLASS_ALU64;
    let d = if wide { format!("r{}", i.dst) } else { format!("w{}", i.dst) };
    let s = operand(i, imm, wide);
    let op = match i.op() {
        insn::ADD => "+=",
        insn::SUB => "-=",
        insn::MUL => "*=",
        insn::DIV => "/=",
        insn::OR => "|=",
        insn::AND => "&=",
        insn::LSH => "<<=",
        insn::RSH => ">>=",
        insn::MOD => "%=",
        insn::XOR => "^=",
        insn::MOV => "=",
        insn::ARSH => "s>>=",
        _ => return format!("r{0} = be{imm} r{0}", i.dst),
    };
    format!("{d} {op} {s}")
}

fn jump(i: &Insn, imm: i32, label: &str) -> String {
    let wide = i.class() == insn::CLASS_JMP;
    let op = match i.op() {
        insn::JA => return format!("goto {label}"),
        insn::EXIT => return "exit".to_owned(),
        insn::CALL => {
            return match &i.reloc {
                Reloc::Function(n) => format!("call {n}"),
                _ => format!("call {imm}"),
            };
        }
        insn::JEQ => "==",
        insn::JGT => ">",
        insn::JGE => ">=",
        insn::JSET => "&",
        insn::JNE => "!=",
        insn::JSGT => "s>",
        insn::JSGE => "s>=",
        insn::JLT => "<",
        insn::JLE => "<=",
        insn::JSLT => "s<",
        _ => "s<=",
    };
    let d = if wide { format!("r{}", i.dst) } else { format!("w{}", i.dst) };
    format!("if {d} {op} {} goto {label}", operand(i, imm, wide))
}
