//! Opcode constants of RFC 9669, section 3 to 5.
//!
//! An opcode byte is `class | source | code << 4` for arithmetic and jumps, and `class | size | mode` for
//! memory accesses.

/// Mask of the class bits.
pub const CLASS: u8 = 0x07;
/// Non-standard loads; only the wide immediate (`lddw`) is in use.
pub const LD: u8 = 0x00;
/// Loads into a register.
pub const LDX: u8 = 0x01;
/// Stores of an immediate.
pub const ST: u8 = 0x02;
/// Stores of a register, and atomics.
pub const STX: u8 = 0x03;
/// 32-bit arithmetic.
pub const ALU: u8 = 0x04;
/// 64-bit jumps.
pub const JMP: u8 = 0x05;
/// 32-bit jumps.
pub const JMP32: u8 = 0x06;
/// 64-bit arithmetic.
pub const ALU64: u8 = 0x07;

/// The second operand is the immediate.
pub const K: u8 = 0x00;
/// The second operand is the source register.
pub const X: u8 = 0x08;

/// Mask of the operation of arithmetic and jumps.
pub const CODE: u8 = 0xf0;
/// `dst += src`
pub const ADD: u8 = 0x00;
/// `dst -= src`
pub const SUB: u8 = 0x10;
/// `dst *= src`
pub const MUL: u8 = 0x20;
/// `dst /= src`, unsigned with offset 0 and signed with offset 1.
pub const DIV: u8 = 0x30;
/// `dst |= src`
pub const OR: u8 = 0x40;
/// `dst &= src`
pub const AND: u8 = 0x50;
/// `dst <<= src`
pub const LSH: u8 = 0x60;
/// `dst >>= src`, logical.
pub const RSH: u8 = 0x70;
/// `dst = -dst`
pub const NEG: u8 = 0x80;
/// `dst %= src`, unsigned with offset 0 and signed with offset 1.
pub const MOD: u8 = 0x90;
/// `dst ^= src`
pub const XOR: u8 = 0xa0;
/// `dst = src`, sign-extended from 8, 16 or 32 bits with that offset.
pub const MOV: u8 = 0xb0;
/// `dst >>= src`, arithmetic.
pub const ARSH: u8 = 0xc0;
/// Byte swaps; the immediate is the width.
pub const END: u8 = 0xd0;

/// Unconditional jump: by the offset in [`JMP`], by the immediate in [`JMP32`].
pub const JA: u8 = 0x00;
/// Jump if equal.
pub const JEQ: u8 = 0x10;
/// Jump if greater, unsigned.
pub const JGT: u8 = 0x20;
/// Jump if greater or equal, unsigned.
pub const JGE: u8 = 0x30;
/// Jump if a bit is set in both.
pub const JSET: u8 = 0x40;
/// Jump if not equal.
pub const JNE: u8 = 0x50;
/// Jump if greater, signed.
pub const JSGT: u8 = 0x60;
/// Jump if greater or equal, signed.
pub const JSGE: u8 = 0x70;
/// Call of a helper or of a local function.
pub const CALL: u8 = 0x80;
/// Return.
pub const EXIT: u8 = 0x90;
/// Jump if less, unsigned.
pub const JLT: u8 = 0xa0;
/// Jump if less or equal, unsigned.
pub const JLE: u8 = 0xb0;
/// Jump if less, signed.
pub const JSLT: u8 = 0xc0;
/// Jump if less or equal, signed.
pub const JSLE: u8 = 0xd0;

/// Mask of the size of memory instructions.
pub const SIZE: u8 = 0x18;
/// Four bytes.
pub const W: u8 = 0x00;
/// Two bytes.
pub const H: u8 = 0x08;
/// One byte.
pub const B: u8 = 0x10;
/// Eight bytes.
pub const DW: u8 = 0x18;

/// Mask of the mode of memory instructions.
pub const MODE: u8 = 0xe0;
/// The operand is a 64-bit immediate in two slots.
pub const IMM: u8 = 0x00;
/// Plain access.
pub const MEM: u8 = 0x60;
/// Sign-extending load.
pub const MEMSX: u8 = 0x80;
/// Atomic access; the immediate is the operation.
pub const ATOMIC: u8 = 0xc0;

/// Immediate bit of atomic operations: the source register receives the old value.
pub const FETCH: i32 = 0x01;
/// Atomic exchange.
pub const XCHG: i32 = 0xe0 | FETCH;
/// Atomic compare and exchange with `R0`.
pub const CMPXCHG: i32 = 0xf0 | FETCH;

/// Opcode of the first slot of `lddw`.
pub const LDDW: u8 = LD | IMM | DW;
/// Source "register" of an `lddw` whose immediate is the index of a map.
pub const PSEUDO_MAP: u8 = 1;
/// Source "register" of a call whose immediate is a distance in slots from the next instruction.
pub const PSEUDO_CALL: u8 = 1;
