//! Lists of all operations, for the assembler and for random tests.

use super::{Alu, Atomic, Cond};

impl Alu {
    /// All operations.
    pub const ALL: [Self; 15] = [
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::Div,
        Self::SDiv,
        Self::Or,
        Self::And,
        Self::Lsh,
        Self::Rsh,
        Self::Neg,
        Self::Mod,
        Self::SMod,
        Self::Xor,
        Self::Mov,
        Self::Arsh,
    ];
}

impl Cond {
    /// All conditions.
    pub const ALL: [Self; 11] = [
        Self::Eq,
        Self::Ne,
        Self::Set,
        Self::Gt,
        Self::Ge,
        Self::Lt,
        Self::Le,
        Self::Sgt,
        Self::Sge,
        Self::Slt,
        Self::Sle,
    ];
}

impl Atomic {
    /// All atomic operations.
    pub const ALL: [Self; 6] = [Self::Add, Self::Or, Self::And, Self::Xor, Self::Xchg, Self::CmpXchg];
}
