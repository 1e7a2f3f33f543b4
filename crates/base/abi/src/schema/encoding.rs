//! The encoding of each part of a schema.

use super::{
    ActionSchema, Architecture, ArraySchema, DirectSchema, Element, FieldSchema, GroupSchema, KeyKind,
    KeySchema, MessageKind, MessageSchema, ParamSchema, TableSchema, Unit,
};
use alloc::string::String;
use alloc::vec::Vec;

/// A part of the encoding. Each takes at least four bytes, which bounds the elements of a list.
pub(super) trait Part: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(rest: &mut &[u8]) -> Option<Self>;
}

impl Part for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let (head, tail) = rest.split_first_chunk()?;
        *rest = tail;
        Some(Self::from_le_bytes(*head))
    }
}

impl Part for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(*self).put(out);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        match u32::take(rest)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// A string of bytes. `Vec<u8>` itself would be a list.
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u32).put(out);
    out.extend_from_slice(bytes);
}

fn take_bytes(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = u32::take(rest)? as usize;
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(head.into())
}

impl Part for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(take_bytes(rest)?).ok()
    }
}

impl Part for (Vec<u8>, Vec<u8>) {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(&self.0, out);
        put_bytes(&self.1, out);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        Some((take_bytes(rest)?, take_bytes(rest)?))
    }
}

impl<T: Part> Part for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|part| part.put(out));
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let count = u32::take(rest)?;
        (0..count).map(|_| T::take(rest)).collect()
    }
}

impl<T: Part> Part for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|part| part.put(out));
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        if bool::take(rest)? { T::take(rest).map(Some) } else { Some(None) }
    }
}

/// Encodes an enumeration as its number.
macro_rules! numbered {
    ($ty:ty: $($variant:ident),+) => {
        impl Part for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u32).put(out);
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                let number = u32::take(rest)?;
                [$(Self::$variant),+].into_iter().find(|v| *v as u32 == number)
            }
        }
    };
}

numbered!(Architecture: Ubpf, Ebpf, V1model);
numbered!(Unit: Packets, Bytes, Both);
numbered!(Element: Register, SignedRegister, Counter, Meter);
numbered!(KeyKind: Exact, Lpm, Ternary, Range, Optional);
numbered!(MessageKind: Digest, PacketIn, PacketOut);

/// Encodes the fields of a structure in this order.
macro_rules! fields {
    ($ty:ty: $($field:ident),+) => {
        impl Part for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: Part::take(rest)?),+ })
            }
        }
    };
}

fields!(ArraySchema: name, map, element, unit, width, metric);
fields!(DirectSchema: name, unit, offset, metric);
fields!(KeySchema: name, kind, width, offset);
fields!(GroupSchema: groups, members);
fields!(ActionSchema: name, params, default_only);
fields!(ParamSchema: name, width, offset);
fields!(MessageSchema: kind, name, fields);
fields!(FieldSchema: name, width);

impl Part for TableSchema {
    fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
        self.map.put(out);
        self.constant.put(out);
        self.default_map.put(out);
        self.groups.put(out);
        self.keys.put(out);
        self.key_size.put(out);
        self.actions.put(out);
        self.counter.put(out);
        self.meter.put(out);
        self.default_action.is_some().put(out);
        self.default_action.iter().for_each(|value| put_bytes(value, out));
        self.entries.put(out);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        Some(Self {
            name: Part::take(rest)?,
            map: Part::take(rest)?,
            constant: Part::take(rest)?,
            default_map: Part::take(rest)?,
            groups: Part::take(rest)?,
            keys: Part::take(rest)?,
            key_size: Part::take(rest)?,
            actions: Part::take(rest)?,
            counter: Part::take(rest)?,
            meter: Part::take(rest)?,
            default_action: if bool::take(rest)? { Some(take_bytes(rest)?) } else { None },
            entries: Part::take(rest)?,
        })
    }
}
