//! OVSDB's notation of column values (RFC 7047, section 5.1), deserialised directly from text.
//!
//! A column's value is an atom, `["set", [atoms]]` or `["map", [[key, value], ...]]`; a set with one member
//! may be written as the atom. Unneeded values (other keys of a map, strings longer than [`MAX_TEXT`]) are
//! not copied.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// Longest text that is kept, in bytes; a longer text is read as none.
pub(crate) const MAX_TEXT: usize = 4096;
/// Most members of a set that are kept.
const MAX_SET: usize = 1 << 16;

/// A column of at most one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opt<T>(pub(crate) Option<T>);

impl<T> Default for Opt<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl Opt<String> {
    /// Returns the bytes of the text.
    pub(crate) fn weight(&self) -> usize {
        self.0.as_ref().map_or(0, String::len)
    }
}

/// The references of a column to other rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refs(pub(crate) Vec<Uuid>);

impl Refs {
    /// Returns the bytes of the references.
    pub(crate) fn weight(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

/// A column that is a map of texts: the entries whose keys are in `KEYS`, in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Texts<K: Keys>(Vec<Option<String>>, PhantomData<K>);

/// The keys of a map that are kept.
pub(crate) trait Keys {
    /// The keys.
    const KEYS: &'static [&'static str];
}

impl<K: Keys> Default for Texts<K> {
    fn default() -> Self {
        Self(vec![None; K::KEYS.len()], PhantomData)
    }
}

impl<K: Keys> Texts<K> {
    /// Returns the entry with this key, which must be one of [`Keys::KEYS`].
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let at = K::KEYS.iter().position(|k| *k == name)?;
        self.0.get(at)?.as_deref()
    }

    /// Returns the bytes of the texts.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().flatten().map(String::len).sum()
    }
}

/// The identifier of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Uuid(u128);

impl Uuid {
    fn parse(text: &str) -> Option<Self> {
        let dashes = [8, 13, 18, 23];
        let mut value = 0;
        for (at, byte) in text.bytes().enumerate() {
            match (dashes.contains(&at), char::from(byte).to_digit(16)) {
                (true, _) if byte == b'-' => {}
                (false, Some(digit)) => value = value << 4 | u128::from(digit),
                _ => return None,
            }
        }
        (text.len() == 36).then_some(Self(value))
    }
}

/// Deserialises a plain UUID, as in the key of a row.
impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Uuid;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a uuid")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Uuid, E> {
                Uuid::parse(text).ok_or_else(|| E::custom("invalid uuid"))
            }
        }
        from.deserialize_str(V)
    }
}

/// Conversion from an atom; `None` if the atom has another type.
trait Atom: Sized {
    fn text(_: &str) -> Option<Self> {
        None
    }
    fn integer(_: i64) -> Option<Self> {
        None
    }
    fn boolean(_: bool) -> Option<Self> {
        None
    }
}

impl Atom for String {
    fn text(text: &str) -> Option<Self> {
        (text.len() <= MAX_TEXT).then(|| text.to_owned())
    }
}

impl Atom for i64 {
    fn integer(n: i64) -> Option<Self> {
        Some(n)
    }
}

impl Atom for bool {
    fn boolean(b: bool) -> Option<Self> {
        Some(b)
    }
}

/// A value of another type than the column's (another version of the schema) is read as none.
impl<'de, T: Atom> Deserialize<'de> for Opt<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Atom> Visitor<'de> for V<T> {
            type Value = Opt<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an atom or a set")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Opt<T>, E> {
                Ok(Opt(T::text(text)))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Opt<T>, E> {
                Ok(Opt(T::integer(n)))
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<Opt<T>, E> {
                Ok(Opt(i64::try_from(n).ok().and_then(T::integer)))
            }
            fn visit_f64<E: Error>(self, _: f64) -> Result<Opt<T>, E> {
                Ok(Opt(None))
            }
            fn visit_bool<E: Error>(self, b: bool) -> Result<Opt<T>, E> {
                Ok(Opt(T::boolean(b)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Opt<T>, A::Error> {
                tagged(&mut seq, "set")?;
                let First(value) = seq.next_element()?.unwrap_or(First(Opt(None)));
                end(seq)?;
                Ok(value)
            }
        }
        from.deserialize_any(V(PhantomData))
    }
}

/// The first atom of a set.
struct First<T>(Opt<T>);

impl<'de, T: Atom> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Atom> Visitor<'de> for V<T> {
            type Value = First<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the members of a set")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<First<T>, A::Error> {
                let first = seq.next_element::<Opt<T>>()?.unwrap_or_default();
                end(seq)?;
                Ok(First(first))
            }
        }
        from.deserialize_seq(V(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Refs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Refs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"["uuid", TEXT] or ["set", [...]]"#)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Refs, A::Error> {
                let tag: Tag = seq.next_element()?.ok_or_else(|| A::Error::custom("an array is empty"))?;
                let refs = match tag {
                    Tag::Uuid => seq.next_element()?.map(|u: Uuid| vec![u]),
                    Tag::Set => seq.next_element()?.map(|Members(m)| m),
                    Tag::Map => None,
                };
                end(seq)?;
                refs.map(Refs).ok_or_else(|| A::Error::custom("expected a reference or a set of references"))
            }
        }
        from.deserialize_seq(V)
    }
}

/// The references in a set.
struct Members(Vec<Uuid>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a set of references")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some((tag, uuid)) = seq.next_element::<(Tag, Uuid)>()? {
                    if tag != Tag::Uuid || members.len() == MAX_SET {
                        return Err(A::Error::custom(
                            "a set has too many members, or members that are no references",
                        ));
                    }
                    members.push(uuid);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_seq(V)
    }
}

impl<'de, K: Keys> Deserialize<'de> for Texts<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V<K>(PhantomData<K>);
        impl<'de, K: Keys> Visitor<'de> for V<K> {
            type Value = Texts<K>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"["map", [...]]"#)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts<K>, A::Error> {
                tagged(&mut seq, "map")?;
                let Entries(texts) =
                    seq.next_element()?.ok_or_else(|| A::Error::custom("a map lacks its entries"))?;
                end(seq)?;
                Ok(texts)
            }
        }
        from.deserialize_seq(V(PhantomData))
    }
}

/// The entries of a map.
struct Entries<K: Keys>(Texts<K>);

impl<'de, K: Keys> Deserialize<'de> for Entries<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V<K>(PhantomData<K>);
        impl<'de, K: Keys> Visitor<'de> for V<K> {
            type Value = Entries<K>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the entries of a map")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Entries<K>, A::Error> {
                let mut texts = Texts::<K>::default();
                while let Some((Opt(key), Opt(value))) = seq.next_element::<(Opt<String>, Opt<String>)>()? {
                    if let Some(at) = key.and_then(|key| K::KEYS.iter().position(|k| *k == key)) {
                        texts.0[at] = value;
                    }
                }
                Ok(Entries(texts))
            }
        }
        from.deserialize_seq(V(PhantomData))
    }
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Tag {
    Uuid,
    Set,
    Map,
}

/// Reads the tag at the start of a value.
fn tagged<'de, A: SeqAccess<'de>>(seq: &mut A, tag: &'static str) -> Result<(), A::Error> {
    let expected = if tag == "set" { Tag::Set } else { Tag::Map };
    if seq.next_element::<Tag>()?.is_some_and(|t| t == expected) {
        Ok(())
    } else {
        Err(A::Error::custom(format_args!("expected a {tag}")))
    }
}

/// Reads and ignores the remaining elements.
fn end<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}
