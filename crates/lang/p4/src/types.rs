//! Types after name resolution.
//!
//! A [`Type`] is cheap to clone. Declared types are equal if their declaration and type arguments
//! are equal: P4 treats two structs with the same fields as different types.

use crate::ast::{Composite, ObjectKind};
use crate::lexer::Name;
use num_bigint::BigInt;
use std::fmt;
use std::rc::Rc;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bit(u32),
    Int(u32),
    /// An integer of any size; exists only at compile time.
    InfInt,
    Varbit(u32),
    Bool,
    Text,
    Error,
    MatchKind,
    Void,
    Enum(Rc<EnumType>),
    Composite(Rc<CompositeType>),
    Stack(Rc<Self>, u32),
    Tuple(Rc<[Self]>),
    /// `list<T>`: any number of values, at compile time only.
    List(Rc<Self>),
    /// `type T name;`: the values of `T`, but a distinct type.
    New(Rc<NewType>),
    Extern(Rc<ExternRef>),
    /// A parser, control or package: by declaration, or by signature.
    Object(Rc<ObjectType>),
    /// A type parameter, by number.
    Var(u32, Name),
    /// The result of an error that has been reported; compatible with every type.
    Bad,
}

#[derive(Debug)]
pub(crate) struct EnumType {
    pub(crate) id: u32,
    pub(crate) name: Name,
    /// The underlying type of a serializable enum.
    pub(crate) repr: Option<Type>,
    /// Names and values; without an underlying type, values count from 0.
    pub(crate) members: Vec<(Name, BigInt)>,
}

#[derive(Debug)]
pub(crate) struct CompositeType {
    pub(crate) id: u32,
    pub(crate) name: Name,
    pub(crate) kind: Composite,
    pub(crate) args: Vec<Type>,
    pub(crate) fields: Vec<(Name, Type)>,
}

#[derive(Debug)]
pub(crate) struct NewType {
    pub(crate) id: u32,
    pub(crate) name: Name,
    pub(crate) target: Type,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExternRef {
    pub(crate) id: u32,
    pub(crate) name: Name,
    pub(crate) args: Vec<Type>,
}

/// A parser, control or package type with the types of its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ObjectType {
    pub(crate) kind: ObjectKind,
    pub(crate) name: Name,
    pub(crate) params: Vec<ObjectParam>,
}

/// A parameter of an object type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectParam {
    pub(crate) name: Name,
    pub(crate) direction: crate::ast::Direction,
    pub(crate) ty: Type,
    /// The argument may be omitted, or the whole parameter may be missing.
    pub(crate) optional: bool,
}

impl PartialEq for EnumType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for EnumType {}

impl PartialEq for CompositeType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.args == other.args
    }
}

impl Eq for CompositeType {}

impl PartialEq for NewType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for NewType {}

impl CompositeType {
    /// Whether it is the type of `{a = 1, b = 2}` without an expected type.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name.is_empty()
    }

    pub(crate) fn field(&self, name: &str) -> Option<(usize, &Type)> {
        self.fields.iter().enumerate().find(|(_, (n, _))| &**n == name).map(|(i, (_, t))| (i, t))
    }
}

impl Type {
    /// Returns the type whose operations and representation this type has.
    pub(crate) fn base(&self) -> &Self {
        match self {
            Self::New(n) => n.target.base(),
            other => other,
        }
    }

    pub(crate) fn is_bad(&self) -> bool {
        matches!(self, Self::Bad)
    }

    /// Returns width and signedness of `bit<W>` and `int<W>`.
    pub(crate) fn integer(&self) -> Option<(u32, bool)> {
        match self {
            Self::Bit(w) => Some((*w, false)),
            Self::Int(w) => Some((*w, true)),
            _ => None,
        }
    }

    /// Returns the declaration of a composite type of this kind.
    pub(crate) fn composite(&self, kind: Composite) -> Option<&Rc<CompositeType>> {
        match self {
            Self::Composite(c) if c.kind == kind => Some(c),
            _ => None,
        }
    }

    pub(crate) fn is_header(&self) -> bool {
        self.composite(Composite::Header).is_some()
    }

    pub(crate) fn is_union(&self) -> bool {
        self.composite(Composite::Union).is_some()
    }

    /// Tells an array of headers or unions from other types.
    pub(crate) fn is_stack(&self) -> bool {
        matches!(self.base(), Self::Stack(t, _) if t.is_header() || t.is_union())
    }

    /// Whether the type has values at run time.
    pub(crate) fn is_runtime(&self) -> bool {
        match self.base() {
            Self::InfInt
            | Self::Text
            | Self::Void
            | Self::MatchKind
            | Self::List(_)
            | Self::Extern(_)
            | Self::Object(_) => false,
            Self::Composite(c) if c.kind == Composite::Struct => c.fields.iter().all(|(_, t)| t.is_runtime()),
            Self::Tuple(ts) => ts.iter().all(Self::is_runtime),
            Self::Stack(t, _) => t.is_runtime(),
            _ => true,
        }
    }

    /// Returns the width in bits of a scalar type in registers; `None` if it is not scalar.
    pub(crate) fn scalar_width(&self) -> Option<u32> {
        match self.base() {
            Self::Bit(w) | Self::Int(w) => Some(*w),
            Self::Bool => Some(1),
            Self::Error => Some(32),
            Self::Enum(e) => Some(e.repr.as_ref().and_then(Self::scalar_width).unwrap_or(32)),
            _ => None,
        }
    }

    /// Returns the width in bits within a packet, without varbit fields; `None` if a packet cannot
    /// contain it.
    pub(crate) fn packed_width(&self) -> Option<u32> {
        match self.base() {
            Self::Bit(w) | Self::Int(w) => Some(*w),
            Self::Bool => Some(1),
            Self::Varbit(_) => Some(0),
            Self::Enum(e) => e.repr.as_ref()?.packed_width(),
            Self::Stack(t, n) if !t.is_header() && !t.is_union() => t.packed_width()?.checked_mul(*n),
            other => other.fields()?.into_iter().try_fold(0u32, |sum, t| sum.checked_add(t.packed_width()?)),
        }
    }

    /// Returns the types of the fields of a struct, header or tuple.
    pub(crate) fn fields(&self) -> Option<Vec<&Self>> {
        match self.base() {
            Self::Composite(c) if c.kind != Composite::Union => {
                Some(c.fields.iter().map(|(_, t)| t).collect())
            }
            Self::Tuple(ts) => Some(ts.iter().collect()),
            _ => None,
        }
    }

    /// Returns the types of the values in a list of `count` values that has this type.
    pub(crate) fn element_types(&self, count: usize) -> Vec<Self> {
        match self.base() {
            Self::Composite(c) => c.fields.iter().map(|(_, t)| t.clone()).collect(),
            Self::Tuple(ts) => ts.to_vec(),
            Self::Stack(t, n) => vec![(**t).clone(); *n as usize],
            Self::List(t) => vec![(**t).clone(); count],
            _ => Vec::new(),
        }
    }

    /// Returns the underlying type of a serializable enum.
    pub(crate) fn underlying(&self) -> Option<&Self> {
        if let Self::Enum(e) = self.base() { e.repr.as_ref() } else { None }
    }

    /// Returns the minimum and maximum size in bits within a packet; `None` if a packet cannot
    /// contain it.
    pub(crate) fn sizes(&self) -> Option<(u32, u32)> {
        if let Some(fields) = self.fields() {
            return fields.into_iter().try_fold((0u32, 0u32), |(a, b), t| {
                let (min, max) = t.sizes()?;
                Some((a.checked_add(min)?, b.checked_add(max)?))
            });
        }
        match self.base() {
            Self::Varbit(w) => Some((0, *w)),
            Self::Composite(union) => {
                let sizes: Vec<_> = union.fields.iter().map(|(_, t)| t.sizes()).collect::<Option<_>>()?;
                let (least, most) = (sizes.iter().map(|s| s.0).min(), sizes.iter().map(|s| s.1).max());
                Some((least.unwrap_or(0), most.unwrap_or(0)))
            }
            Self::Stack(t, n) => {
                let (min, max) = t.sizes()?;
                Some((min.checked_mul(*n)?, max.checked_mul(*n)?))
            }
            other => other.packed_width().map(|w| (w, w)),
        }
    }

    /// Replaces the type parameters that `f` maps.
    pub(crate) fn substitute(&self, f: &dyn Fn(u32) -> Option<Self>) -> Self {
        let all = |ts: &[Self]| ts.iter().map(|t| t.substitute(f)).collect::<Vec<_>>();
        match self {
            Self::Var(id, _) => f(*id).unwrap_or_else(|| self.clone()),
            Self::Stack(t, n) => Self::Stack(Rc::new(t.substitute(f)), *n),
            Self::Tuple(ts) => Self::Tuple(all(ts).into()),
            Self::List(t) => Self::List(Rc::new(t.substitute(f))),
            Self::Composite(c) if !c.args.is_empty() || c.is_anonymous() => {
                Self::Composite(Rc::new(CompositeType {
                    id: c.id,
                    name: c.name.clone(),
                    kind: c.kind,
                    args: all(&c.args),
                    fields: c.fields.iter().map(|(n, t)| (n.clone(), t.substitute(f))).collect(),
                }))
            }
            Self::Extern(e) => {
                Self::Extern(Rc::new(ExternRef { id: e.id, name: e.name.clone(), args: all(&e.args) }))
            }
            Self::Object(o) => Self::Object(Rc::new(ObjectType {
                kind: o.kind,
                name: o.name.clone(),
                params: o
                    .params
                    .iter()
                    .map(|p| ObjectParam { ty: p.ty.substitute(f), ..p.clone() })
                    .collect(),
            })),
            other => other.clone(),
        }
    }

    /// Returns the types that this one is built from.
    fn components(&self) -> Vec<&Self> {
        match self {
            Self::Stack(t, _) | Self::List(t) => vec![t],
            Self::Tuple(ts) => ts.iter().collect(),
            Self::Composite(c) if c.is_anonymous() => c.fields.iter().map(|(_, t)| t).collect(),
            Self::Composite(c) => c.args.iter().collect(),
            Self::Extern(e) => e.args.iter().collect(),
            Self::Object(o) => o.params.iter().map(|p| &p.ty).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the type or one of its components satisfies `f`.
    pub(crate) fn contains(&self, f: &dyn Fn(&Self) -> bool) -> bool {
        f(self) || self.components().into_iter().any(|t| t.contains(f))
    }

    /// Whether the type contains a type parameter.
    pub(crate) fn is_open(&self) -> bool {
        self.contains(&|t| matches!(t, Self::Var(..)))
    }
}

/// Prints type arguments in angle brackets; nothing if there are none.
pub(crate) fn arguments(args: &[Type]) -> String {
    let list: Vec<String> = args.iter().map(ToString::to_string).collect();
    if list.is_empty() { String::new() } else { format!("<{}>", list.join(", ")) }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bit(w) => write!(f, "bit<{w}>"),
            Self::Int(w) => write!(f, "int<{w}>"),
            Self::InfInt => f.write_str("int"),
            Self::Varbit(w) => write!(f, "varbit<{w}>"),
            Self::Bool => f.write_str("bool"),
            Self::Text => f.write_str("string"),
            Self::Error => f.write_str("error"),
            Self::MatchKind => f.write_str("match_kind"),
            Self::List(t) => write!(f, "list<{t}>"),
            Self::Void => f.write_str("void"),
            Self::Enum(e) => f.write_str(&e.name),
            Self::New(n) => f.write_str(&n.name),
            Self::Composite(c) if c.is_anonymous() => {
                let fields: Vec<String> = c.fields.iter().map(|(n, t)| format!("{t} {n}")).collect();
                write!(f, "struct {{ {} }}", fields.join("; "))
            }
            Self::Composite(c) => write!(f, "{}{}", c.name, arguments(&c.args)),
            Self::Stack(t, n) => write!(f, "{t}[{n}]"),
            Self::Tuple(ts) if ts.is_empty() => f.write_str("tuple<>"),
            Self::Tuple(ts) => write!(f, "tuple{}", arguments(ts)),
            Self::Extern(e) => write!(f, "{}{}", e.name, arguments(&e.args)),
            Self::Object(o) => f.write_str(&o.name),
            Self::Var(_, n) => f.write_str(n),
            Self::Bad => f.write_str("an unknown type"),
        }
    }
}
