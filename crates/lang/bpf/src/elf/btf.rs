//! Maps in libbpf's `.maps` section, described by BTF types.
//!
//! ```c
//! struct {
//!     __uint(type, BPF_MAP_TYPE_HASH);
//!     __uint(max_entries, 1024);
//!     __type(key, __u32);
//!     __type(value, __u64);
//! } flows SEC(".maps");
//! ```
//!
//! The type encodes a number as the length of an array that a pointer points to. Section `.BTF` holds the
//! types; clang writes it with `-g` (layout: Linux, `Documentation/bpf/btf.rst`).

use std::collections::BTreeMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use p4shield_abi::bytes::Reader;
use p4shield_abi::map::MapDefinition;

use super::{Elf, ObjectError, ObjectMap};
use crate::maps::MAX_MAPS;

/// Name of libbpf's map section.
pub(super) const SECTION: &str = ".maps";
const MAGIC: u16 = 0xeb9f;
/// Maximum depth of typedefs, qualifiers and array dimensions.
const MAX_DEPTH: u32 = 32;

/// The relevant properties of a type.
#[derive(Clone, Copy, Debug)]
enum BtfKind {
    /// A type with a size of its own: integer, struct, union, enum or float.
    Sized {
        size: u32,
    },
    Pointer {
        to: u32,
    },
    Array {
        of: u32,
        len: u32,
    },
    /// A typedef or a qualified type.
    Alias {
        of: u32,
    },
    Variable {
        of: u32,
    },
    /// A type that does not occur in map descriptions.
    Other,
}

struct BtfType<'a> {
    name: u32,
    kind: BtfKind,
    /// Members of a struct: name, type and offset, twelve bytes each.
    members: &'a [u8],
}

struct Btf<'a> {
    types: Vec<BtfType<'a>>,
    strings: &'a [u8],
    /// BtfType IDs of variables by name.
    variables: BTreeMap<&'a [u8], u32>,
}

fn damaged() -> ObjectError {
    failed("section .BTF is damaged: compile again with -g".to_owned())
}

fn failed(reason: String) -> ObjectError {
    ObjectError::Maps { section: SECTION.to_owned(), reason }
}

/// Returns the maps of section `.maps`, sorted by offset.
pub(super) fn maps(file: &Elf<'_>) -> Result<Vec<ObjectMap>, ObjectError> {
    let Some(section) = file.section_by_name(SECTION) else { return Ok(Vec::new()) };
    let Some(btf) = file.section_by_name(".BTF") else {
        return Err(failed("there is no section .BTF: compile with -g".to_owned()));
    };
    let btf = Btf::parse(btf.data()?).ok_or_else(damaged)?;
    let mut maps = Vec::new();
    for symbol in file.symbols().filter(|s| s.section_index() == Some(section.index())) {
        if symbol.kind() == SymbolKind::Section {
            continue;
        }
        if maps.len() == MAX_MAPS {
            return Err(failed(format!("more than {MAX_MAPS} maps are not supported")));
        }
        let name = symbol.name()?.to_owned();
        let definition = btf.map(&name)?;
        maps.push(ObjectMap { name, definition, offset: symbol.address() });
    }
    maps.sort_by_key(|m| m.offset);
    Ok(maps)
}

impl<'a> Btf<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<2>()?;
        let mut header = Reader::new(rest);
        let [version, _flags] = header.array();
        let (length, types_at, types_len) = (header.u32(), header.u32(), header.u32());
        let (strings_at, strings_len) = (header.u32(), header.u32());
        if !header.ok() || u16::from_le_bytes(*magic) != MAGIC || version != 1 {
            return None;
        }
        let body = bytes.get(length as usize..)?;
        let part = |at: u32, len: u32| body.get(at as usize..)?.get(..len as usize);
        let (mut rest, strings) = (part(types_at, types_len)?, part(strings_at, strings_len)?);
        // BtfType 0 is void.
        let mut types = vec![BtfType { name: 0, kind: BtfKind::Other, members: &[] }];
        while !rest.is_empty() {
            let (ty, tail) = BtfType::parse(rest)?;
            types.push(ty);
            rest = tail;
        }
        let mut this = Self { types, strings, variables: BTreeMap::new() };
        let variables = this.types.iter().filter_map(|t| match t.kind {
            BtfKind::Variable { of } => Some((this.name(t.name), of)),
            _ => None,
        });
        this.variables = variables.collect();
        Some(this)
    }

    fn name(&self, at: u32) -> &'a [u8] {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.split(|&b| b == 0).next().unwrap_or_default()
    }

    fn get(&self, id: u32) -> Option<&BtfType<'a>> {
        self.types.get(id as usize)
    }

    /// Resolves typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<&BtfType<'a>> {
        for _ in 0..MAX_DEPTH {
            match self.get(id)?.kind {
                BtfKind::Alias { of } => id = of,
                _ => return self.get(id),
            }
        }
        None
    }

    /// Returns the size of a type in bytes.
    fn size(&self, id: u32, depth: u32) -> Option<u32> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.resolve(id)?.kind {
            BtfKind::Sized { size } => Some(size),
            BtfKind::Pointer { .. } => Some(8),
            BtfKind::Array { of, len } => self.size(of, depth + 1)?.checked_mul(len),
            BtfKind::Alias { .. } | BtfKind::Variable { .. } | BtfKind::Other => None,
        }
    }

    /// Returns the size of the type in `__type(name, T)`: the type that a member points to.
    fn pointee_size(&self, member: u32) -> Option<u32> {
        let BtfKind::Pointer { to } = self.resolve(member)?.kind else { return None };
        self.size(to, 0)
    }

    /// Returns the number in `__uint(name, n)`: the length of the array that a member points to.
    fn number(&self, member: u32) -> Option<u32> {
        let BtfKind::Pointer { to } = self.resolve(member)?.kind else { return None };
        let BtfKind::Array { len, .. } = self.resolve(to)?.kind else { return None };
        Some(len)
    }

    /// Returns the map that the variable with this name describes.
    fn map(&self, name: &str) -> Result<MapDefinition, ObjectError> {
        let failed = |reason: &str| failed(format!("map {name}: {reason}"));
        let variable = self.variables.get(name.as_bytes()).copied();
        let described = variable
            .and_then(|of| self.resolve(of))
            .ok_or_else(|| failed("section .BTF has no type for it"))?;
        let mut d = MapDefinition { map_type: 0, key_size: 0, value_size: 0, max_entries: 0, flags: 0 };
        for member in described.members.chunks_exact(12) {
            let mut r = Reader::new(member);
            let (field, ty) = (self.name(r.u32()), r.u32());
            let value = match field {
                b"type" | b"max_entries" | b"map_flags" | b"key_size" | b"value_size" => self.number(ty),
                b"key" | b"value" => self.pointee_size(ty),
                other => {
                    let other = String::from_utf8_lossy(other);
                    return Err(failed(&format!("field {other} is not supported")));
                }
            };
            let value = value.ok_or_else(|| failed("its type is not as __uint and __type define it"))?;
            match field {
                b"type" => d.map_type = value,
                b"max_entries" => d.max_entries = value,
                b"map_flags" => d.flags = value,
                b"key_size" | b"key" => d.key_size = value,
                _ => d.value_size = value,
            }
        }
        Ok(d)
    }
}

impl<'a> BtfType<'a> {
    /// Parses a type and returns the rest of the bytes.
    fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<12>()?;
        let mut r = Reader::new(head);
        let (name, info, word) = (r.u32(), r.u32(), r.u32());
        let count = (info & 0xffff) as usize;
        let (kind, extra) = match info >> 24 & 0x1f {
            1 => (BtfKind::Sized { size: word }, 4),
            2 => (BtfKind::Pointer { to: word }, 0),
            3 => {
                let mut r = Reader::new(rest);
                let (of, _index, len) = (r.u32(), r.u32(), r.u32());
                (BtfKind::Array { of, len }, 12)
            }
            4 | 5 => (BtfKind::Sized { size: word }, count * 12),
            6 => (BtfKind::Sized { size: word }, count * 8),
            8..=11 | 18 => (BtfKind::Alias { of: word }, 0),
            7 | 12 => (BtfKind::Other, 0),
            13 => (BtfKind::Other, count * 8),
            14 => (BtfKind::Variable { of: word }, 4),
            15 => (BtfKind::Other, count * 12),
            16 => (BtfKind::Sized { size: word }, 0),
            17 => (BtfKind::Other, 4),
            19 => (BtfKind::Sized { size: word }, count * 12),
            _ => return None,
        };
        let (extra, rest) = rest.split_at_checked(extra)?;
        let members = if matches!(info >> 24 & 0x1f, 4 | 5) { extra } else { &[] };
        Some((Self { name, kind, members }, rest))
    }
}
