//! Types in P4Info: `P4DataTypeSpec` for a use of a type, `P4TypeInfo` for the named types.

use super::annotations::AnnotationIndex;
use super::message::{FieldValue, Message};
use crate::ast::Composite;
use crate::types::{CompositeType, EnumType, NewType, Type};
use num_bigint::BigInt;
use std::collections::BTreeMap;

/// The fields of `P4TypeInfo`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NamedKind {
    Struct = 1,
    Header = 2,
    HeaderUnion = 3,
    Enum = 4,
    SerializableEnum = 6,
    New = 7,
}

impl NamedKind {
    const fn field(self) -> &'static str {
        match self {
            Self::Struct => "structs",
            Self::Header => "headers",
            Self::HeaderUnion => "header_unions",
            Self::Enum => "enums",
            Self::SerializableEnum => "serializable_enums",
            Self::New => "new_types",
        }
    }
}

/// The named types that a P4Info refers to so far.
pub(super) struct Types<'a> {
    annotation_index: &'a AnnotationIndex<'a>,
    errors: &'a [crate::lexer::Name],
    named: BTreeMap<(NamedKind, String), Message>,
    uses_errors: bool,
}

impl<'a> Types<'a> {
    pub(super) const fn new(
        annotation_index: &'a AnnotationIndex<'a>,
        errors: &'a [crate::lexer::Name],
    ) -> Self {
        Self { annotation_index, errors, named: BTreeMap::new(), uses_errors: false }
    }

    /// Builds `P4TypeInfo`, if there is a named type.
    pub(super) fn info(self) -> Option<Message> {
        (self.uses_errors || !self.named.is_empty()).then(|| self.all())
    }

    fn all(self) -> Message {
        let add = |m: Message, kinds: std::ops::RangeInclusive<u32>| {
            let of = self.named.iter().filter(|((k, _), _)| kinds.contains(&(*k as u32)));
            of.fold(m, |m, ((kind, name), spec)| {
                let entry = Message::default().text(1, "key", name).message(2, "value", spec.clone());
                m.message(*kind as u32, kind.field(), entry)
            })
        };
        let mut m = add(Message::default(), 1..=4);
        if self.uses_errors {
            let names = self.errors.iter().fold(Message::default(), |m, e| m.text(1, "members", e));
            m = m.message(5, "error", names);
        }
        add(m, 6..=7)
    }

    /// Returns the width of a value for the controller; 0 for text. Only the type's own translation
    /// counts, not that of its underlying type.
    pub(super) fn width(&self, t: &Type) -> u32 {
        if let Type::New(n) = t
            && let Some((_, bits)) = self.annotation_index.of_type(&n.name).translation()
        {
            return bits;
        }
        match t.base() {
            Type::Error => 0,
            Type::Enum(e) if e.repr.is_none() => 0,
            base => base.scalar_width().unwrap_or(0),
        }
    }

    /// Adds the field `type_name` if the type has a name, and records the type.
    pub(super) fn named(&mut self, m: Message, number: u32, name: &'static str, t: &Type) -> Message {
        self.spec(t);
        let type_name = match t {
            Type::New(n) => &n.name,
            Type::Enum(e) if e.repr.is_none() => &e.name,
            _ => return m,
        };
        m.message(number, name, Message::named(&self.name_of(type_name)))
    }

    fn name_of(&self, name: &str) -> String {
        self.annotation_index.of_type(name).full_name("", name)
    }

    /// Builds `P4DataTypeSpec`.
    pub(super) fn spec(&mut self, t: &Type) -> Message {
        let m = Message::default();
        match t {
            Type::Bit(_) | Type::Int(_) | Type::Varbit(_) => m.message(1, "bitstring", bitstring(t)),
            Type::Bool => m.message(2, "bool", Message::default()),
            Type::Composite(c) if !c.is_anonymous() => {
                let (number, field) = match c.kind {
                    Composite::Struct => (4, "struct"),
                    Composite::Header => (5, "header"),
                    Composite::Union => (6, "header_union"),
                };
                m.message(number, field, Message::named(&self.composite(c)))
            }
            Type::Stack(of, size) => self.stack(of, *size),
            Type::Enum(e) if e.repr.is_some() => {
                m.message(11, "serializable_enum", Message::named(&self.enumeration(e)))
            }
            Type::Enum(e) => m.message(9, "enum", Message::named(&self.enumeration(e))),
            Type::Tuple(_) | Type::Composite(_) => {
                let members = t.fields().into_iter().flatten().map(|t| self.spec(t));
                m.message(3, "tuple", Message::default().repeated(1, "members", members))
            }
            Type::Error => {
                self.uses_errors = true;
                m.message(10, "error", Message::default())
            }
            Type::New(n) => m.message(12, "new_type", Message::named(&self.new_type(n))),
            _ => m,
        }
    }

    fn stack(&mut self, of: &Type, size: u32) -> Message {
        let Type::Composite(c) = of else { return Message::default() };
        let name = Message::named(&self.composite(c));
        let (number, field, member) = match c.kind {
            Composite::Union => (8, "header_union_stack", "header_union"),
            _ => (7, "header_stack", "header"),
        };
        let stack = Message::default().message(1, member, name).number(2, "size", size);
        Message::default().message(number, field, stack)
    }

    /// Records a struct, header or union, and returns its name.
    fn composite(&mut self, c: &CompositeType) -> String {
        let kind = match c.kind {
            Composite::Struct => NamedKind::Struct,
            Composite::Header => NamedKind::Header,
            Composite::Union => NamedKind::HeaderUnion,
        };
        let name = c.args.iter().fold(self.name_of(&c.name), |n, a| {
            let plain = |ch: char| ch.is_alphanumeric() || ch == '_';
            n + "_" + &a.to_string().chars().filter(|ch| plain(*ch)).collect::<String>()
        });
        let key = (kind, name.clone());
        if self.named.contains_key(&key) {
            return name;
        }
        let mut members = Vec::new();
        if kind == NamedKind::Header {
            for f in self.flat(c) {
                let spec = bitstring(f.ty.base());
                members.push(Message::named(&f.name).message(2, "type_spec", spec));
            }
        } else {
            for (field, t) in &c.fields {
                let field = self.annotation_index.of_field(&c.name, field).full_name("", field);
                let m = Message::named(&field);
                members.push(match (kind, t) {
                    (NamedKind::HeaderUnion, Type::Composite(h)) => {
                        m.message(2, "header", Message::named(&self.composite(h)))
                    }
                    _ => m.message(2, "type_spec", self.spec(t)),
                });
            }
        }
        self.named.insert(key, Message::default().repeated(1, "members", members));
        name
    }

    /// Returns the fields of a header; fields of nested structs have dotted names.
    pub(super) fn flat(&self, c: &CompositeType) -> Vec<FlatField> {
        let mut out = Vec::new();
        for (field, ty) in &c.fields {
            let name = self.annotation_index.of_field(&c.name, field).full_name("", field);
            let owner = (c.name.clone(), field.clone());
            match ty {
                Type::Composite(inner) => {
                    let dotted = |f: FlatField| FlatField { name: format!("{name}.{}", f.name), ..f };
                    out.extend(self.flat(inner).into_iter().map(dotted));
                }
                _ => out.push(FlatField { name, owner, ty: ty.clone() }),
            }
        }
        out
    }

    fn enumeration(&mut self, e: &EnumType) -> String {
        let name = self.name_of(&e.name);
        let (kind, spec) = match &e.repr {
            Some(repr) => {
                let width = repr.scalar_width().unwrap_or(0);
                let member = |(name, value): &(crate::lexer::Name, BigInt)| {
                    let value = FieldValue::Bytes(bytes_of(&number(value, width), width));
                    Message::named(name).with(2, "value", value)
                };
                let underlying = Message::default().number(1, "bitwidth", width);
                let m = Message::default().message(1, "underlying_type", underlying);
                (NamedKind::SerializableEnum, m.repeated(2, "members", e.members.iter().map(member)))
            }
            None => {
                let members = e.members.iter().map(|(n, _)| Message::named(n));
                (NamedKind::Enum, Message::default().repeated(1, "members", members))
            }
        };
        self.named.insert((kind, name.clone()), spec);
        name
    }

    fn new_type(&mut self, n: &NewType) -> String {
        let name = self.name_of(&n.name);
        let annotations = self.annotation_index.of_type(&n.name);
        let m = match annotations.translation() {
            Some((uri, bits)) => {
                let m = Message::default().text(1, "uri", uri);
                let translated = match bits {
                    0 => m.message(3, "sdn_string", Message::default()),
                    bits => m.number(2, "sdn_bitwidth", bits),
                };
                Message::default().message(2, "translated_type", translated)
            }
            None => {
                let original = self.spec(n.target.base());
                Message::default().message(1, "original_type", original)
            }
        };
        let excluded = ["p4runtime_translation"];
        let m = annotations.add_structured(annotations.add_unstructured(m, 3, &excluded), 4, &excluded);
        self.named.insert((NamedKind::New, name.clone()), m);
        name
    }
}

/// Maximum depth of types within types.
const MAX_DEPTH: usize = 128;

/// Whether a type is nested too deeply to be described.
pub(super) fn is_too_deep(t: &Type) -> bool {
    fn deeper(t: &Type, levels: usize) -> bool {
        let Some(levels) = levels.checked_sub(1) else { return true };
        match t {
            Type::Stack(t, _) => deeper(t, levels),
            Type::New(n) => deeper(&n.target, levels),
            Type::Tuple(ts) => ts.iter().any(|t| deeper(t, levels)),
            Type::Composite(c) => c.fields.iter().any(|(_, t)| deeper(t, levels)),
            Type::Extern(e) => e.args.iter().any(|t| deeper(t, levels)),
            _ => false,
        }
    }
    deeper(t, MAX_DEPTH)
}

/// A field of a header without structs.
pub(super) struct FlatField {
    /// Dotted if it is within a struct.
    pub(super) name: String,
    /// The type that declares it, and its name there.
    pub(super) owner: (crate::lexer::Name, crate::lexer::Name),
    pub(super) ty: Type,
}

/// Builds `P4BitstringLikeTypeSpec`.
fn bitstring(t: &Type) -> Message {
    let (number, name, field, width) = match t {
        Type::Int(w) => (2, "int", "bitwidth", *w),
        Type::Varbit(w) => (3, "varbit", "max_bitwidth", *w),
        _ => (1, "bit", "bitwidth", t.scalar_width().unwrap_or(0)),
    };
    Message::default().message(number, name, Message::default().number(1, field, width))
}

/// Returns a number as `width` unsigned bits.
pub(super) fn number(n: &BigInt, width: u32) -> num_bigint::BigUint {
    crate::constant::wrap(n, width, false).to_biguint().unwrap_or_default()
}

/// Returns a number in network byte order, in as many bytes as `width` bits need.
pub(super) fn bytes_of(n: &num_bigint::BigUint, width: u32) -> Vec<u8> {
    let digits = n.to_bytes_be();
    let mut value = vec![0; (width.div_ceil(8) as usize).saturating_sub(digits.len())];
    value.extend(digits);
    value
}
