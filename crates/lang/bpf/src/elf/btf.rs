//! Maps that are described by types: libbpf's `.maps` section, as today's tutorials write it.
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
//! A number stands in the type as the length of an array that a pointer points to. The types are in section `.BTF`,
//! which clang writes with `-g` (layout: Linux, `Documentation/bpf/btf.rst`).

use std::collections::BTreeMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use p4shield_abi::bytes::Reader;
use p4shield_abi::map::MapDefinition;

use super::{Elf, ObjectError, ObjectMap};
use crate::maps::MAX_MAPS;

/// libbpf's section.
pub(super) const SECTION: &str = ".maps";
const MAGIC: u16 = 0xeb9f;
/// How many typedefs, qualifiers and array dimensions are followed.
const MAX_DEPTH: u32 = 32;

/// What we need to know about a type.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Has a size of its own: integers, structs, unions, enums, floats.
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
    /// Another name or qualification of a type.
    Alias {
        of: u32,
    },
    Variable {
        of: u32,
    },
    /// Nothing that a map is described with.
    Other,
}

struct Type<'a> {
    name: u32,
    kind: Kind,
    /// Members of a struct: name, type and offset, twelve bytes each.
    members: &'a [u8],
}

struct Btf<'a> {
    types: Vec<Type<'a>>,
    strings: &'a [u8],
    /// Types of variables by their names.
    variables: BTreeMap<&'a [u8], u32>,
}

fn damaged() -> ObjectError {
    failed("section .BTF, which describes them, is damaged".to_owned())
}

fn failed(reason: String) -> ObjectError {
    ObjectError::Maps { section: SECTION.to_owned(), reason }
}

/// The maps of section `.maps`, by offset.
pub(super) fn maps(file: &Elf<'_>) -> Result<Vec<ObjectMap>, ObjectError> {
    let Some(section) = file.section_by_name(SECTION) else { return Ok(Vec::new()) };
    let Some(btf) = file.section_by_name(".BTF") else {
        return Err(failed("there is no section .BTF that describes them: compile with -g".to_owned()));
    };
    let btf = Btf::parse(btf.data()?).ok_or_else(damaged)?;
    let mut maps = Vec::new();
    for symbol in file.symbols().filter(|s| s.section_index() == Some(section.index())) {
        if symbol.kind() == SymbolKind::Section {
            continue;
        }
        if maps.len() == MAX_MAPS {
            return Err(failed(format!("more than {MAX_MAPS} maps")));
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
        // Type 0 is void.
        let mut types = vec![Type { name: 0, kind: Kind::Other, members: &[] }];
        while !rest.is_empty() {
            let (ty, tail) = Type::parse(rest)?;
            types.push(ty);
            rest = tail;
        }
        let mut this = Self { types, strings, variables: BTreeMap::new() };
        let variables = this.types.iter().filter_map(|t| match t.kind {
            Kind::Variable { of } => Some((this.name(t.name), of)),
            _ => None,
        });
        this.variables = variables.collect();
        Some(this)
    }

    fn name(&self, at: u32) -> &'a [u8] {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.split(|&b| b == 0).next().unwrap_or_default()
    }

    fn get(&self, id: u32) -> Option<&Type<'a>> {
        self.types.get(id as usize)
    }

    /// The type behind its other names and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<&Type<'a>> {
        for _ in 0..MAX_DEPTH {
            match self.get(id)?.kind {
                Kind::Alias { of } => id = of,
                _ => return self.get(id),
            }
        }
        None
    }

    /// Bytes of a type.
    fn size(&self, id: u32, depth: u32) -> Option<u32> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.resolve(id)?.kind {
            Kind::Sized { size } => Some(size),
            Kind::Pointer { .. } => Some(8),
            Kind::Array { of, len } => self.size(of, depth + 1)?.checked_mul(len),
            Kind::Alias { .. } | Kind::Variable { .. } | Kind::Other => None,
        }
    }

    /// `__type(name, T)`: bytes of what a member points to.
    fn pointee_size(&self, member: u32) -> Option<u32> {
        let Kind::Pointer { to } = self.resolve(member)?.kind else { return None };
        self.size(to, 0)
    }

    /// `__uint(name, n)`: the length of the array that a member points to.
    fn number(&self, member: u32) -> Option<u32> {
        let Kind::Pointer { to } = self.resolve(member)?.kind else { return None };
        let Kind::Array { len, .. } = self.resolve(to)?.kind else { return None };
        Some(len)
    }

    /// The map that the variable of this name describes.
    fn map(&self, name: &str) -> Result<MapDefinition, ObjectError> {
        let failed = |reason: &str| failed(format!("map {name}: {reason}"));
        let variable = self.variables.get(name.as_bytes()).copied();
        let described =
            variable.and_then(|of| self.resolve(of)).ok_or_else(|| failed("no type describes it"))?;
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
            let value = value.ok_or_else(|| failed("its type is not as __uint and __type write it"))?;
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

impl<'a> Type<'a> {
    /// A type and what follows it.
    fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<12>()?;
        let mut r = Reader::new(head);
        let (name, info, word) = (r.u32(), r.u32(), r.u32());
        let count = (info & 0xffff) as usize;
        let (kind, extra) = match info >> 24 & 0x1f {
            1 => (Kind::Sized { size: word }, 4),
            2 => (Kind::Pointer { to: word }, 0),
            3 => {
                let mut r = Reader::new(rest);
                let (of, _index, len) = (r.u32(), r.u32(), r.u32());
                (Kind::Array { of, len }, 12)
            }
            4 | 5 => (Kind::Sized { size: word }, count * 12),
            6 => (Kind::Sized { size: word }, count * 8),
            8..=11 | 18 => (Kind::Alias { of: word }, 0),
            7 | 12 => (Kind::Other, 0),
            13 => (Kind::Other, count * 8),
            14 => (Kind::Variable { of: word }, 4),
            15 => (Kind::Other, count * 12),
            16 => (Kind::Sized { size: word }, 0),
            17 => (Kind::Other, 4),
            19 => (Kind::Sized { size: word }, count * 12),
            _ => return None,
        };
        let (extra, rest) = rest.split_at_checked(extra)?;
        let members = if matches!(info >> 24 & 0x1f, 4 | 5) { extra } else { &[] };
        Some((Self { name, kind, members }, rest))
    }
}
