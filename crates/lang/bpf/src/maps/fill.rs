//! Values for maps from a text, a line for each entry:
//!
//! ```text
//! # map    key           value
//! secret   0             0x0123456789abcdef
//! peers    hex:0a000001  hex:00112233445566778899aabbccddeeff
//! ```
//!
//! A number is in the machine's byte order, as C has it. Errors have no value: values may be secret.

use super::{Map, MapError, Maps, UpdateFlag};

/// Longest line that is read, bytes; the longest key and value as digits fit.
const MAX_LINE: usize = 1 << 18;

/// Reason why a text does not fill maps, and its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct FillError {
    /// The line, from 1.
    pub line: usize,
    /// The failure.
    #[source]
    pub reason: FillReason,
}

/// Reason why a line is no entry of a map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FillReason {
    /// It has another form.
    #[error("write MAP KEY VALUE")]
    Form,
    /// It is too long.
    #[error("it has more than {MAX_LINE} bytes")]
    TooLong,
    /// The program has no map of this name.
    #[error("the program has no such map; it has {0}")]
    NoMap(String),
    /// The key or value does not have the map's size.
    #[error(
        "the {what} of {map} has {size} bytes: write a number that fits, or hex: and {} digits",
        .size * 2
    )]
    Size {
        /// "key" or "value".
        what: &'static str,
        /// The map.
        map: String,
        /// Its size.
        size: u32,
    },
    /// The map does not take it.
    #[error("{map} does not take the entry: {source}")]
    Entry {
        /// The map.
        map: String,
        /// The failure.
        source: MapError,
    },
}

impl Maps {
    /// Sets the entries that a text has, and returns their number.
    ///
    /// # Errors
    /// A line is none of an entry of these maps. The entries before it are set.
    pub fn fill(&mut self, text: &str) -> Result<usize, FillError> {
        let mut set = 0;
        for (at, line) in text.lines().enumerate() {
            let located = |reason| FillError { line: at + 1, reason };
            if line.len() > MAX_LINE {
                return Err(located(FillReason::TooLong));
            }
            let line = line.split_once('#').map_or(line, |(entry, _comment)| entry);
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [] => continue,
                [map, key, value] => self.fill_entry(map, key, value).map_err(located)?,
                _ => return Err(located(FillReason::Form)),
            }
            set += 1;
        }
        Ok(set)
    }

    fn fill_entry(&mut self, name: &str, key: &str, value: &str) -> Result<(), FillReason> {
        let Some(map) = self.get_mut(name) else {
            let names: Vec<_> = self.iter().map(Map::name).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(FillReason::NoMap(names));
        };
        let (key_size, value_size) = (map.entry_key_size(), map.definition().value_size);
        let part = |what, text, size| {
            bytes(text, size as usize).ok_or_else(|| FillReason::Size { what, map: name.to_owned(), size })
        };
        let (key, value) = (part("key", key, key_size)?, part("value", value, value_size)?);
        let updated = map.update(&key, &value, UpdateFlag::Any);
        updated.map_err(|source| FillReason::Entry { map: name.to_owned(), source })
    }
}

/// Returns a number as this many bytes, or the bytes that digits say.
fn bytes(text: &str, size: usize) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("hex:") {
        let fits = digits.len() == size * 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let byte = |at: usize| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).ok();
        return if fits { (0..size).map(byte).collect() } else { None };
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u128::from_str_radix(digits, 16).ok()?,
        Some(_) => return None,
        None if text.starts_with('+') => return None,
        None => text.parse().ok()?,
    };
    let fits = size >= 16 || number >> (size * 8) == 0;
    let mut bytes = vec![0; size.max(16)];
    if cfg!(target_endian = "little") {
        bytes[..16].copy_from_slice(&number.to_le_bytes());
        bytes.truncate(size);
    } else {
        let at = bytes.len() - 16;
        bytes[at..].copy_from_slice(&number.to_be_bytes());
        bytes.drain(..bytes.len() - size);
    }
    fits.then_some(bytes)
}

/// Any text as values of four maps. Entry point for fuzzing.
///
/// # Panics
/// An error names a line that the text does not have, or a value is not the one that was set.
pub fn fuzz_fill(text: &str) {
    use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE};
    let map = |name: &str, map_type, key_size, value_size| crate::linked::Map {
        name: name.to_owned(),
        definition: MapDefinition { map_type, key_size, value_size, max_entries: 4, flags: 0 },
    };
    let declared = [
        map("a", TYPE_ARRAY, 4, 8),
        map("h", TYPE_HASH, 20, 1),
        map("l", TYPE_LPM_TRIE, 8, 4),
        map("c", TYPE_CLASSIFIER, 4, 4),
    ];
    let Ok(mut maps) = Maps::with_definitions(&declared, 1 << 20) else { return };
    match maps.fill(text) {
        Ok(set) => assert!(set <= text.lines().count()),
        Err(error) => assert!((1..=text.lines().count()).contains(&error.line), "{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linked::Map as Declared;
    use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_HASH};
    use proptest::prelude::*;

    fn maps() -> Maps {
        let map = |name: &str, map_type, key_size, value_size| Declared {
            name: name.to_owned(),
            definition: MapDefinition { map_type, key_size, value_size, max_entries: 2, flags: 0 },
        };
        let declared = [map("secret", TYPE_ARRAY, 4, 8), map("peers", TYPE_HASH, 4, 20)];
        Maps::with_definitions(&declared, 1 << 20).unwrap()
    }

    #[test]
    fn entries_are_numbers_or_digits() {
        let mut maps = maps();
        let text = "# keys\n\nsecret 1 0x0123456789abcdef # of today\npeers hex:0A000001 hex:\
                    000102030405060708090a0b0c0d0e0f10111213\npeers 7 300\n";
        assert_eq!(maps.fill(text), Ok(3));
        let value = |map: &str, key: [u8; 4]| maps.get(map).unwrap().lookup(&key).unwrap();
        assert_eq!(value("secret", 1_u32.to_ne_bytes()), 0x0123_4567_89ab_cdef_u64.to_ne_bytes());
        assert_eq!(value("secret", [0; 4]), [0; 8]);
        assert_eq!(value("peers", [10, 0, 0, 1]), std::array::from_fn::<u8, 20, _>(|n| n as u8));
        let mut long = [0; 20];
        long[..2].copy_from_slice(&[44, 1]);
        assert_eq!(value("peers", 7_u32.to_ne_bytes()), long);
    }

    #[test]
    fn errors_name_the_line_and_no_value() {
        for (text, why) in [
            ("secret 0 1\nsecret 0", "line 2: write MAP KEY VALUE"),
            ("sacred 0 77", "line 1: the program has no such map; it has secret, peers"),
            ("secret 0 0x77777777777777777", "the value of secret has 8 bytes: write a number that fits"),
            (
                "peers hex:0 77",
                "the key of peers has 4 bytes: write a number that fits, or hex: and 8 digits",
            ),
            ("peers hex:0a00000\u{e9} 77", "the key of peers"),
            ("secret +1 77", "the key of secret"),
            ("secret 0x+1 77", "the key of secret"),
            ("secret 2 77", "secret does not take the entry: the map is full"),
            ("peers 1 1\npeers 2 1\npeers 3 77", "line 3: peers does not take the entry"),
        ] {
            let error = maps().fill(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("77"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "([ahlc] (hex:)?[0-9a-f]{0,16} (hex:)?[0-9a-f+x]{0,16}\n?|.*)*",
        ) {
            fuzz_fill(&text);
        }
    }
}
