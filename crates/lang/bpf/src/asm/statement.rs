//! Instructions: mnemonic and operands.

use super::operand::{immediate, memory_operand, number, register, source};
use crate::insn::{Alu, Atomic, Cond, Op, Source, Swap, Width};

/// JumpTarget of a jump or a call.
#[derive(Debug)]
pub(super) enum JumpTarget {
    Label(String),
    Distance(i64),
}

/// An instruction with an unresolved target.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) op: Op,
    pub(super) target: Option<JumpTarget>,
    /// `ja32`: the immediate holds the distance.
    pub(super) far: bool,
}

/// Parses an instruction. `maps` holds the names of the maps declared so far.
pub(super) fn parse(code: &str, maps: &[&str]) -> Result<Statement, String> {
    let (mnemonic, rest) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
    let operands: Vec<&str> = rest.split(',').map(str::trim).filter(|o| !o.is_empty()).collect();
    let plain = |op| Ok(Statement { op, target: None, far: false });
    match (mnemonic, operands.as_slice()) {
        ("exit", []) => plain(Op::Exit),
        ("ja" | "ja32", [to]) => {
            let target = Some(target(to));
            Ok(Statement { op: Op::Jump { off: 0 }, target, far: mnemonic == "ja32" })
        }
        ("call", [callee]) => call(callee),
        ("lddw", [dst, value]) => plain(lddw(dst, value, maps)?),
        ("lock", [first, src]) => plain(lock(first, src)?),
        (m, [dst]) if m.starts_with("neg") => plain(neg(m, dst)?),
        (m, [dst]) => plain(swap(m, dst)?),
        (m, [dst, src]) => plain(two(m, dst, src)?),
        (m, [dst, src, to]) => {
            let op = branch(m, dst, src)?;
            Ok(Statement { op, target: Some(target(to)), far: false })
        }
        _ => Err(unknown(code)),
    }
}

fn unknown(code: &str) -> String {
    format!("{code} is not an instruction with valid operands")
}

fn target(text: &str) -> JumpTarget {
    match number(text) {
        Some(off) => JumpTarget::Distance(off),
        None => JumpTarget::Label(text.to_owned()),
    }
}

/// Returns the mnemonic without the suffix `32`, and whether the operation has 64 bits.
fn split_width(mnemonic: &str) -> (&str, bool) {
    mnemonic.strip_suffix("32").map_or((mnemonic, true), |name| (name, false))
}

fn call(callee: &str) -> Result<Statement, String> {
    if let Some(name) = callee.strip_prefix("local ") {
        let op = Op::CallLocal { off: 0 };
        return Ok(Statement { op, target: Some(target(name.trim())), far: false });
    }
    let helper = number(callee).and_then(|n| u32::try_from(n).ok());
    let helper = helper.ok_or_else(|| format!("{callee} is neither a helper number nor local LABEL"))?;
    Ok(Statement { op: Op::Call { helper }, target: None, far: false })
}

fn lddw(dst: &str, value: &str, maps: &[&str]) -> Result<Op, String> {
    let dst = register(dst)?;
    if let Some(name) = value.strip_prefix("map ") {
        let name = name.trim();
        let index = maps.iter().position(|m| *m == name).or_else(|| name.parse().ok());
        let map =
            index.and_then(|i| u32::try_from(i).ok()).ok_or_else(|| format!("map {name} is not declared"))?;
        return Ok(Op::LoadMap { dst, map });
    }
    let value = number(value).ok_or_else(|| format!("{value} is not a number"))?;
    Ok(Op::LoadImm { dst, value: value as u64 })
}

/// Parses `lock [fetch] OPERATION[32] [MEMORY], SOURCE`.
fn lock(first: &str, src: &str) -> Result<Op, String> {
    let words: Vec<&str> = first.split_whitespace().collect();
    let (fetch, name, at) = match words.as_slice() {
        ["fetch", name, at] => (true, *name, *at),
        [name, at] => (false, *name, *at),
        _ => return Err(unknown(&format!("lock {first}"))),
    };
    let (name, wide) = split_width(name);
    let op = Atomic::ALL
        .into_iter()
        .find(|a| a.name() == name)
        .ok_or_else(|| unknown(&format!("lock {first}")))?;
    let fetch = fetch || matches!(op, Atomic::Xchg | Atomic::CmpXchg);
    let (dst, off) = memory_operand(at)?;
    Ok(Op::Atomic { op, wide, dst, src: register(src)?, off, fetch })
}

fn neg(mnemonic: &str, dst: &str) -> Result<Op, String> {
    match split_width(mnemonic) {
        ("neg", wide) => Ok(Op::Alu { op: Alu::Neg, wide, dst: register(dst)?, src: Source::Imm(0) }),
        _ => Err(unknown(mnemonic)),
    }
}

fn swap(mnemonic: &str, dst: &str) -> Result<Op, String> {
    let digits = mnemonic.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let kind = match &mnemonic[..mnemonic.len() - digits.len()] {
        "le" => Swap::ToLe,
        "be" => Swap::ToBe,
        "bswap" | "swap" => Swap::Always,
        _ => return Err(unknown(mnemonic)),
    };
    let width = match digits {
        "16" => Width::B2,
        "32" => Width::B4,
        "64" => Width::B8,
        _ => return Err(unknown(mnemonic)),
    };
    Ok(Op::Swap { kind, dst: register(dst)?, width })
}

fn two(mnemonic: &str, dst: &str, src: &str) -> Result<Op, String> {
    if let Some(widths) = mnemonic.strip_prefix("movsx") {
        let (from, wide) = match widths {
            "832" => (Width::B1, false),
            "1632" => (Width::B2, false),
            "864" => (Width::B1, true),
            "1664" => (Width::B2, true),
            "3264" => (Width::B4, true),
            _ => return Err(unknown(mnemonic)),
        };
        return Ok(Op::MovSx { wide, dst: register(dst)?, src: register(src)?, from });
    }
    if let Some(size) = mnemonic.strip_prefix("ldx") {
        let (size, signed) = match size.strip_prefix('s') {
            Some(size) => (size, true),
            None => (size, false),
        };
        let (src, off) = memory_operand(src)?;
        return Ok(Op::Load { dst: register(dst)?, src, off, width: width(size, mnemonic)?, signed });
    }
    if let Some(size) = mnemonic.strip_prefix("stx") {
        let (dst, off) = memory_operand(dst)?;
        return Ok(Op::Store { dst, off, width: width(size, mnemonic)?, src: Source::Reg(register(src)?) });
    }
    if let Some(size) = mnemonic.strip_prefix("st") {
        let (dst, off) = memory_operand(dst)?;
        return Ok(Op::Store { dst, off, width: width(size, mnemonic)?, src: Source::Imm(immediate(src)?) });
    }
    let (name, wide) = split_width(mnemonic);
    let op =
        Alu::ALL.into_iter().find(|a| a.name() == name && *a != Alu::Neg).ok_or_else(|| unknown(mnemonic))?;
    Ok(Op::Alu { op, wide, dst: register(dst)?, src: source(src)? })
}

fn width(size: &str, mnemonic: &str) -> Result<Width, String> {
    match size {
        "b" => Ok(Width::B1),
        "h" => Ok(Width::B2),
        "w" => Ok(Width::B4),
        "dw" => Ok(Width::B8),
        _ => Err(unknown(mnemonic)),
    }
}

fn branch(mnemonic: &str, dst: &str, src: &str) -> Result<Op, String> {
    let (name, wide) = split_width(mnemonic);
    let cond = Cond::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| unknown(mnemonic))?;
    Ok(Op::Branch { cond, wide, dst: register(dst)?, src: source(src)?, off: 0 })
}
