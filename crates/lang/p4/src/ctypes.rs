//! The C types of values that a tenant's own functions take.
//!
//! A scalar of at most 64 bits is the smallest of `uint8_t` to `uint64_t` that can hold it
//! (`int8_t` to `int64_t`, sign-extended, for `int<W>`), in native byte order. A wider one is an
//! array of bytes in network byte order, padded with leading zero bits. A struct is a `struct` with
//! the same name and fields; a header has an additional last field `uint8_t ebpf_valid`. (p4c-ebpf
//! and p4c-ubpf use the same layout, so C code written for them works.) Fields have the offsets
//! that C assigns; the C compiler checks the assertions in [`Declarations`].

use crate::ast::{Composite, Direction};
use crate::hir::{ExternFn, Param};
use crate::types::{CompositeType, Type};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

/// The start of every generated C header.
const PRELUDE: &str = include_str!("../models/extern.h");
/// The field with a header's validity.
const VALID: &str = "ebpf_valid";
/// Maximum size of a type in bytes.
const MAX_SIZE: u32 = 2048;

/// A type in C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CType {
    /// An integer of 1, 2, 4 or 8 bytes with this width in bits.
    Integer { bytes: u8, width: u32, signed: bool },
    /// An array of bytes in network byte order with this width in bits.
    Bytes { bytes: u32, width: u32 },
    /// A struct, or a header with a byte for its validity.
    Struct(Rc<CStruct>),
}

/// A struct in C.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CStruct {
    name: String,
    /// The fields and their offsets.
    pub(crate) fields: Vec<(String, u32, CType)>,
    /// Offset of a header's validity.
    pub(crate) valid: Option<u32>,
    size: u32,
    align: u32,
}

impl CType {
    /// Returns the C type of a type; `None` for types that C functions cannot take.
    pub(crate) fn of(t: &Type) -> Option<Self> {
        if let Some(width) = t.scalar_width() {
            let signed = matches!(t.base(), Type::Int(_));
            return Some(match width {
                0 => return None,
                1..=64 => Self::Integer { bytes: width.div_ceil(8).next_power_of_two() as u8, width, signed },
                _ => Self::Bytes { bytes: width.div_ceil(8), width },
            });
        }
        match t.base() {
            Type::Composite(c) if c.kind != Composite::Union => {
                CStruct::of(c).filter(|s| s.size <= MAX_SIZE).map(|s| Self::Struct(Rc::new(s)))
            }
            _ => None,
        }
    }

    /// Returns the size of a value in bytes.
    pub(crate) fn size(&self) -> u32 {
        match self {
            Self::Integer { bytes, .. } => u32::from(*bytes),
            Self::Bytes { bytes, .. } => *bytes,
            Self::Struct(s) => s.size,
        }
    }

    fn align(&self) -> u32 {
        match self {
            Self::Integer { bytes, .. } => u32::from(*bytes),
            Self::Bytes { .. } => 1,
            Self::Struct(s) => s.align,
        }
    }

    /// Returns a declaration with this type.
    fn declare(&self, name: &str) -> String {
        match self {
            Self::Integer { bytes, signed, .. } => {
                format!("{}int{}_t {name}", if *signed { "" } else { "u" }, u32::from(*bytes) * 8)
            }
            Self::Bytes { bytes, .. } => format!("uint8_t {name}[{bytes}]"),
            Self::Struct(s) => format!("struct {} {name}", s.name),
        }
    }
}

impl CStruct {
    fn of(c: &CompositeType) -> Option<Self> {
        // C has no structs without fields.
        let empty = c.fields.is_empty() && c.kind != Composite::Header;
        if c.is_anonymous() || !c.args.is_empty() || empty {
            return None;
        }
        let (mut at, mut align, mut fields) = (0u32, 1, Vec::new());
        for (name, t) in &c.fields {
            let t = CType::of(t)?;
            at = at.next_multiple_of(t.align());
            align = align.max(t.align());
            fields.push((identifier(name), at, t.clone()));
            at = at.checked_add(t.size())?;
        }
        let valid = (c.kind == Composite::Header).then_some(at);
        at += u32::from(valid.is_some());
        Some(Self { name: identifier(&c.name), fields, valid, size: at.next_multiple_of(align), align })
    }
}

/// Returns a name as a C identifier: C's keywords get an underscore.
fn identifier(name: &str) -> String {
    let words = [
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
        "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return",
        "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void",
        "volatile", "while", VALID,
    ];
    if words.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

/// The C declarations of a program.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    /// Structs, each behind those that it contains.
    structs: Vec<Rc<CStruct>>,
    functions: BTreeMap<String, String>,
}

impl Declarations {
    /// Declares a function; parameters with `true` are pointers.
    pub(crate) fn function(&mut self, f: &ExternFn, params: &[(CType, bool)], result: Option<&CType>) {
        params.iter().for_each(|(t, _)| self.declare(t));
        let param = |(p, (t, pointer)): (&Param, &(CType, bool))| {
            let name = identifier(&p.name);
            let constant = if *pointer && !matches!(p.direction, Direction::Out | Direction::InOut) {
                "const "
            } else {
                ""
            };
            // C passes arrays as pointers anyway.
            let star = if *pointer && !matches!(t, CType::Bytes { .. }) { "*" } else { "" };
            format!("{constant}{}", t.declare(&format!("{star}{name}")))
        };
        let params: Vec<String> = f.params.iter().zip(params).map(param).collect();
        let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
        let declared = format!("{}({params})", f.name);
        let result =
            result.map_or_else(|| format!("void {declared};"), |t| format!("{};", t.declare(&declared)));
        self.functions.insert(f.name.to_string(), result);
    }

    fn declare(&mut self, t: &CType) {
        if let CType::Struct(s) = t
            && !self.structs.contains(s)
        {
            s.fields.iter().for_each(|(_, _, t)| self.declare(t));
            self.structs.push(s.clone());
        }
    }

    /// Returns the text of a C header; empty if the program calls none of the tenant's own functions.
    pub(crate) fn header(&self) -> String {
        if self.functions.is_empty() {
            return String::new();
        }
        let mut out = PRELUDE.to_owned();
        for s in &self.structs {
            let _ = writeln!(out, "\nstruct {} {{", s.name);
            for (name, _, t) in &s.fields {
                let _ = writeln!(out, "    {};", t.declare(name));
            }
            if s.valid.is_some() {
                let _ = writeln!(out, "    uint8_t {VALID}; /* whether the header is valid: 1 or 0 */");
            }
            let _ =
                writeln!(out, "}};\n_Static_assert(sizeof(struct {}) == {}, \"layout\");", s.name, s.size);
        }
        out.push_str("\n/* The program's functions, which you define. */\n#ifndef P4SHIELD_NO_PROTOTYPES\n");
        for f in self.functions.values() {
            let _ = writeln!(out, "{f}");
        }
        out.push_str("#endif\n");
        out
    }
}
