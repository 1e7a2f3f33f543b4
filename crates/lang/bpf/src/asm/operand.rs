//! Operands: numbers, registers and memory operands.

use crate::insn::{Reg, Source};

/// Parses a number: decimal or hexadecimal, with or without a sign, signed or unsigned 64 bits.
pub(super) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let magnitude = match lower.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => lower.parse().ok()?,
    };
    Some(if negative { (magnitude as i64).wrapping_neg() } else { magnitude as i64 })
}

/// Parses an immediate of 32 bits, signed or unsigned.
pub(super) fn immediate(text: &str) -> Result<i32, String> {
    let n = number(text).ok_or_else(|| format!("{text} is neither a register nor a number"))?;
    i32::try_from(n)
        .or_else(|_| u32::try_from(n).map(|n| n as i32))
        .map_err(|_| format!("{text} does not fit into 32 bits"))
}

/// Parses a register: `%r3` or `r3`.
pub(super) fn register(text: &str) -> Result<Reg, String> {
    let digits = text.strip_prefix('%').unwrap_or(text).strip_prefix('r');
    digits
        .and_then(|d| d.parse().ok())
        .and_then(Reg::new)
        .ok_or_else(|| format!("{text} is not a register: use r0 to r10"))
}

/// Parses a register or an immediate.
pub(super) fn source(text: &str) -> Result<Source, String> {
    register(text).map(Source::Reg).or_else(|_| immediate(text).map(Source::Imm))
}

/// Parses a memory operand: `[r1]`, `[r1+8]` or `[r1-8]`.
pub(super) fn memory_operand(text: &str) -> Result<(Reg, i16), String> {
    let wrong = || format!("{text} is not a memory operand like [r1+8]");
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(wrong)?;
    let split = inner.find(['+', '-']).unwrap_or(inner.len());
    let (base, off) = inner.split_at(split);
    let off = if off.is_empty() { 0 } else { number(off).ok_or_else(wrong)? };
    let off = i16::try_from(off).map_err(|_| format!("the offset of {text} does not fit into 16 bits"))?;
    Ok((register(base.trim())?, off))
}
