//! Decoding of raw slots to [`Op`]. It refuses encodings that RFC 9669 does not define, and non-zero fields
//! that RFC 9669 requires to be zero.

use super::{Alu, Atomic, Cond, Insn, Op, Reg, Source, Swap, Width, opcode as o};

/// Reason why a slot is not a valid instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The opcode does not exist, or is an unsupported optional one (legacy packet access, call by register).
    #[error("opcode {code:#04x} does not exist or is not supported")]
    Opcode {
        /// The opcode.
        code: u8,
    },
    /// The register does not exist.
    #[error("register r{number} does not exist")]
    Register {
        /// Number of the register.
        number: u8,
    },
    /// The instruction writes to R10. Only R0 to R9 are writable.
    #[error("r10, the frame pointer, is read-only")]
    FramePointer,
    /// A field holds a value that is undefined for this opcode.
    #[error("opcode {code:#04x} with {field} = {value} is undefined")]
    Field {
        /// The opcode.
        code: u8,
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: i64,
    },
    /// The second slot of a wide instruction is missing or not empty.
    #[error("the second slot of the 64-bit immediate is missing")]
    HalfWide,
    /// The position is after the last slot.
    #[error("the program ends before this position")]
    End,
}

/// Decodes the instruction at slot `at`.
///
/// # Errors
/// If slot `at` does not exist, or is not the start of an instruction that RFC 9669 defines. Call by
/// register, legacy packet access and pseudo sources other than map references and local calls are
/// refused.
pub fn decode(insns: &[Insn], at: usize) -> Result<Op, DecodeError> {
    let i = *insns.get(at).ok_or(DecodeError::End)?;
    match i.code & o::CLASS {
        o::LD => wide(i, insns.get(at + 1).copied()),
        o::LDX => load(i),
        o::ST => store(i),
        o::STX if i.code & o::MODE == o::ATOMIC => atomic(i),
        o::STX => store(i),
        o::ALU | o::ALU64 => alu(i),
        _ => jump(i),
    }
}

const fn bad_opcode(i: Insn) -> DecodeError {
    DecodeError::Opcode { code: i.code }
}

fn field(i: Insn, field: &'static str, value: impl Into<i64>) -> DecodeError {
    DecodeError::Field { code: i.code, field, value: value.into() }
}

fn zero(i: Insn, name: &'static str, value: impl Into<i64>) -> Result<(), DecodeError> {
    let value = value.into();
    if value == 0 { Ok(()) } else { Err(field(i, name, value)) }
}

fn reg(n: u8) -> Result<Reg, DecodeError> {
    Reg::new(n).ok_or(DecodeError::Register { number: n })
}

fn written(n: u8) -> Result<Reg, DecodeError> {
    match reg(n)? {
        Reg::FRAME => Err(DecodeError::FramePointer),
        r => Ok(r),
    }
}

/// Returns the operand that the source bit selects. The other operand has to be zero.
fn operand(i: Insn) -> Result<Source, DecodeError> {
    if i.code & o::X == o::X {
        zero(i, "imm", i.imm)?;
        Ok(Source::Reg(reg(i.src)?))
    } else {
        zero(i, "src", i.src)?;
        Ok(Source::Imm(i.imm))
    }
}

fn wide(i: Insn, second: Option<Insn>) -> Result<Op, DecodeError> {
    if !i.is_wide() {
        return Err(bad_opcode(i));
    }
    let dst = written(i.dst)?;
    zero(i, "off", i.off)?;
    let Some(Insn { code: 0, dst: 0, src: 0, off: 0, imm: high }) = second else {
        return Err(DecodeError::HalfWide);
    };
    match i.src {
        0 => Ok(Op::LoadImm { dst, value: u64::from(i.imm as u32) | u64::from(high as u32) << 32 }),
        o::PSEUDO_MAP => {
            zero(i, "next imm", high)?;
            let map = u32::try_from(i.imm).map_err(|_| field(i, "imm", i.imm))?;
            Ok(Op::LoadMap { dst, map })
        }
        src => Err(field(i, "src", src)),
    }
}

const fn width(code: u8) -> Width {
    match code & o::SIZE {
        o::W => Width::B4,
        o::H => Width::B2,
        o::B => Width::B1,
        _ => Width::B8,
    }
}

fn load(i: Insn) -> Result<Op, DecodeError> {
    let width = width(i.code);
    let signed = match i.code & o::MODE {
        o::MEM => false,
        o::MEMSX if width != Width::B8 => true,
        _ => return Err(bad_opcode(i)),
    };
    zero(i, "imm", i.imm)?;
    Ok(Op::Load { dst: written(i.dst)?, src: reg(i.src)?, off: i.off, width, signed })
}

fn store(i: Insn) -> Result<Op, DecodeError> {
    if i.code & o::MODE != o::MEM {
        return Err(bad_opcode(i));
    }
    let src = if i.code & o::CLASS == o::STX {
        zero(i, "imm", i.imm)?;
        Source::Reg(reg(i.src)?)
    } else {
        zero(i, "src", i.src)?;
        Source::Imm(i.imm)
    };
    Ok(Op::Store { dst: reg(i.dst)?, off: i.off, width: width(i.code), src })
}

fn atomic(i: Insn) -> Result<Op, DecodeError> {
    let wide = match width(i.code) {
        Width::B4 => false,
        Width::B8 => true,
        _ => return Err(bad_opcode(i)),
    };
    let (op, fetch) = match i.imm {
        o::XCHG => (Atomic::Xchg, true),
        o::CMPXCHG => (Atomic::CmpXchg, true),
        imm => {
            let fetch = imm & o::FETCH != 0;
            match u8::try_from(imm & !o::FETCH) {
                Ok(o::ADD) => (Atomic::Add, fetch),
                Ok(o::OR) => (Atomic::Or, fetch),
                Ok(o::AND) => (Atomic::And, fetch),
                Ok(o::XOR) => (Atomic::Xor, fetch),
                _ => return Err(field(i, "imm", imm)),
            }
        }
    };
    let src = if fetch && op != Atomic::CmpXchg { written(i.src)? } else { reg(i.src)? };
    Ok(Op::Atomic { op, wide, dst: reg(i.dst)?, src, off: i.off, fetch })
}

fn alu(i: Insn) -> Result<Op, DecodeError> {
    let wide = i.code & o::CLASS == o::ALU64;
    let dst = written(i.dst)?;
    let code = i.code & o::CODE;
    if code == o::END {
        return swap(i, wide, dst);
    }
    if code == o::NEG {
        if i.code & o::X == o::X {
            return Err(bad_opcode(i));
        }
        zero(i, "src", i.src)?;
        zero(i, "imm", i.imm)?;
        zero(i, "off", i.off)?;
        return Ok(Op::Alu { op: Alu::Neg, wide, dst, src: Source::Imm(0) });
    }
    let src = operand(i)?;
    let op = match (code, i.off) {
        (o::DIV, 0) => Alu::Div,
        (o::DIV, 1) => Alu::SDiv,
        (o::MOD, 0) => Alu::Mod,
        (o::MOD, 1) => Alu::SMod,
        (o::MOV, off) if off != 0 => return mov_sx(i, wide, dst, src),
        (code, off) => {
            let op = plain_alu(code).ok_or(bad_opcode(i))?;
            zero(i, "off", off)?;
            op
        }
    };
    Ok(Op::Alu { op, wide, dst, src })
}

const fn plain_alu(code: u8) -> Option<Alu> {
    Some(match code {
        o::ADD => Alu::Add,
        o::SUB => Alu::Sub,
        o::MUL => Alu::Mul,
        o::DIV => Alu::Div,
        o::MOD => Alu::Mod,
        o::OR => Alu::Or,
        o::AND => Alu::And,
        o::LSH => Alu::Lsh,
        o::RSH => Alu::Rsh,
        o::XOR => Alu::Xor,
        o::MOV => Alu::Mov,
        o::ARSH => Alu::Arsh,
        _ => return None,
    })
}

fn mov_sx(i: Insn, wide: bool, dst: Reg, src: Source) -> Result<Op, DecodeError> {
    let from = match i.off {
        8 => Width::B1,
        16 => Width::B2,
        32 if wide => Width::B4,
        off => return Err(field(i, "off", off)),
    };
    match src {
        Source::Reg(src) => Ok(Op::MovSx { wide, dst, src, from }),
        Source::Imm(_) => Err(field(i, "off", i.off)),
    }
}

fn swap(i: Insn, wide: bool, dst: Reg) -> Result<Op, DecodeError> {
    zero(i, "src", i.src)?;
    zero(i, "off", i.off)?;
    let kind = match (wide, i.code & o::X == o::X) {
        (false, false) => Swap::ToLe,
        (false, true) => Swap::ToBe,
        (true, false) => Swap::Always,
        (true, true) => return Err(bad_opcode(i)),
    };
    let width = match i.imm {
        16 => Width::B2,
        32 => Width::B4,
        64 => Width::B8,
        imm => return Err(field(i, "imm", imm)),
    };
    Ok(Op::Swap { kind, dst, width })
}

fn jump(i: Insn) -> Result<Op, DecodeError> {
    let wide = i.code & o::CLASS == o::JMP;
    match i.code & o::CODE {
        o::JA | o::CALL | o::EXIT if i.code & o::X == o::X => Err(bad_opcode(i)),
        o::JA => {
            zero(i, "dst", i.dst)?;
            zero(i, "src", i.src)?;
            if wide {
                zero(i, "imm", i.imm)?;
                Ok(Op::Jump { off: i.off.into() })
            } else {
                zero(i, "off", i.off)?;
                Ok(Op::Jump { off: i.imm })
            }
        }
        o::CALL if wide => call(i),
        o::EXIT if wide => {
            zero(i, "dst", i.dst)?;
            zero(i, "src", i.src)?;
            zero(i, "off", i.off)?;
            zero(i, "imm", i.imm)?;
            Ok(Op::Exit)
        }
        code => {
            let cond = condition(code).ok_or(bad_opcode(i))?;
            Ok(Op::Branch { cond, wide, dst: reg(i.dst)?, src: operand(i)?, off: i.off })
        }
    }
}

fn call(i: Insn) -> Result<Op, DecodeError> {
    zero(i, "dst", i.dst)?;
    zero(i, "off", i.off)?;
    match i.src {
        0 => Ok(Op::Call { helper: u32::try_from(i.imm).map_err(|_| field(i, "imm", i.imm))? }),
        o::PSEUDO_CALL => Ok(Op::CallLocal { off: i.imm }),
        src => Err(field(i, "src", src)),
    }
}

const fn condition(code: u8) -> Option<Cond> {
    Some(match code {
        o::JEQ => Cond::Eq,
        o::JNE => Cond::Ne,
        o::JSET => Cond::Set,
        o::JGT => Cond::Gt,
        o::JGE => Cond::Ge,
        o::JLT => Cond::Lt,
        o::JLE => Cond::Le,
        o::JSGT => Cond::Sgt,
        o::JSGE => Cond::Sge,
        o::JSLT => Cond::Slt,
        o::JSLE => Cond::Sle,
        _ => return None,
    })
}
