//! The trace points of a program, and what its events mean ([`p4shield_abi::trace`]).
//!
//! The compiler writes the points as JSON to the object of a program that it compiles for tracing. Readers
//! take an object from outside: numbers and names that do not fit are left out.

use crate::decode::name as shown;
use p4shield_abi::trace::EVENT_WORDS;
use serde::{Deserialize, Serialize};

/// The kind of a trace point: an act of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PointKind {
    /// A run begins; its values say where ([`p4shield_abi::division`]) and for which port.
    Run,
    /// It enters a state of a parser.
    State,
    /// The parser has ended; its value is the error.
    Parsed,
    /// It enters a control.
    Control,
    /// It looks the values up in a table.
    Table,
    /// It runs an action of a table. The first value says whether an entry matched; the others are the
    /// parameters.
    Action,
    /// It calls an action directly.
    Call,
    /// It calls an extern function or method.
    Extern,
    /// It evaluated a condition; its value says whether it was true.
    Condition,
}

/// A trace point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracePoint {
    /// Its kind.
    pub kind: PointKind,
    /// The name of what it is about; of a condition its text.
    pub name: String,
    /// File and line.
    pub place: String,
    /// The values of its events, each in as many words as its width needs.
    pub values: Vec<PointValue>,
}

/// A value of a trace point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointValue {
    /// Its name.
    pub name: String,
    /// Its width in bits.
    pub width: u32,
    /// Names of the numbers from 0 on, if it is an enumeration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

impl PointValue {
    /// Returns the words of an event that the value takes.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.width.div_ceil(64) as usize
    }
}

/// An event, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// The act of the program.
    pub kind: PointKind,
    /// The name of what it is about.
    pub name: String,
    /// File and line.
    pub place: String,
    /// Names and values, hexadecimal with the digits of their width; enumerations by name.
    pub values: Vec<(String, String)>,
}

/// Returns the bytes for the object.
///
/// # Panics
/// Never: points are plain data.
#[must_use]
pub fn to_bytes(points: &[TracePoint]) -> Vec<u8> {
    serde_json::to_vec(points).expect("points are plain data")
}

/// Parses the points of an object.
///
/// # Errors
/// The bytes are no such JSON.
pub fn points(bytes: &[u8]) -> Result<Vec<TracePoint>, serde_json::Error> {
    serde_json::from_slice(bytes)
}

/// Returns what an event means; `None` if there is no such point. Values for which it had no room are left
/// out.
#[must_use]
pub fn event(points: &[TracePoint], words: &[u64; EVENT_WORDS]) -> Option<EventView> {
    let index = usize::try_from(words[0]).ok()?.checked_sub(1)?;
    let point = points.get(index)?;
    let mut rest = &words[1..];
    let mut values = Vec::new();
    for value in &point.values {
        let Some((own, left)) = rest.split_at_checked(value.words()) else { break };
        rest = left;
        values.push((shown(&value.name), text(value, own)));
    }
    Some(EventView { kind: point.kind, name: shown(&point.name), place: shown(&point.place), values })
}

fn text(value: &PointValue, words: &[u64]) -> String {
    let number = words.first().copied().unwrap_or_default();
    if let Some(name) = usize::try_from(number).ok().and_then(|n| value.names.get(n)) {
        return shown(name);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    crate::decode::little(&bytes, value.width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, width: u32) -> PointValue {
        PointValue { name: name.to_owned(), width, names: Vec::new() }
    }

    fn point(values: Vec<PointValue>) -> TracePoint {
        TracePoint { kind: PointKind::Table, name: "routes".into(), place: "r.p4:4".into(), values }
    }

    #[test]
    fn an_event_shows_values_in_their_width() {
        let points = [point(vec![value("a", 48), value("b", 128), value("c", 9)])];
        let view = event(&points, &[1, 0xabc, 2, 3, 0x1ff, 0, 0, 0]).unwrap();
        let values = ["0x000000000abc", "0x00000000000000030000000000000002", "0x1ff"];
        assert_eq!(view.values.iter().map(|(_, v)| v.as_str()).collect::<Vec<_>>(), values);
    }

    #[test]
    fn an_enumeration_shows_its_names() {
        let names = vec!["NoError".to_owned(), "PacketTooShort".to_owned()];
        let points = [point(vec![PointValue { names, ..value("error", 32) }])];
        let shown = |n| event(&points, &[1, n, 0, 0, 0, 0, 0, 0]).unwrap().values[0].1.clone();
        assert_eq!([shown(1), shown(7)], ["PacketTooShort", "0x00000007"]);
    }

    #[test]
    fn an_event_without_a_point_shows_nothing() {
        for number in [0, 2, u64::MAX] {
            assert_eq!(event(&[point(Vec::new())], &[number, 0, 0, 0, 0, 0, 0, 0]), None);
        }
    }

    #[test]
    fn a_value_without_room_is_left_out() {
        let points = [point(vec![value("a", 256), value("b", 256)])];
        assert_eq!(event(&points, &[1, 1, 0, 0, 0, 0, 0, 0]).unwrap().values.len(), 1);
        let points = [point(vec![value("a", u32::MAX)])];
        assert_eq!(event(&points, &[1, 1, 0, 0, 0, 0, 0, 0]).unwrap().values.len(), 0);
    }
}
