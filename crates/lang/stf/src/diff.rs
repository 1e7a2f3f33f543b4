//! Comparison of a packet with the expected one, by header and field.

use std::fmt;

use crate::dissect::{self, Field};
use crate::pattern::{Mismatch, Pattern};

/// A difference between a packet and the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Output port.
    pub port: u32,
    /// Number of the packet on its port, from 1.
    pub number: usize,
    /// Description, one line per difference.
    pub lines: Vec<String>,
    expected: Vec<String>,
    got: Vec<u8>,
    wrong: Vec<usize>,
}

impl Difference {
    /// Describes how `got` differs from `pattern`.
    #[must_use]
    pub fn new(port: u32, number: usize, pattern: &Pattern, got: &[u8], mismatch: &Mismatch) -> Self {
        let expected = (0..pattern.len()).map(|i| pattern.byte(i)).collect();
        let (lines, wrong) = match mismatch {
            Mismatch::Short { expected, got } => {
                (vec![format!("the packet has {got} bytes, expected {expected}")], Vec::new())
            }
            Mismatch::Long { expected, got } => {
                let line = format!("the packet has {got} bytes, expected exactly {expected} (`$`)");
                (vec![line], Vec::new())
            }
            Mismatch::Bytes(wrong) => (field_lines(pattern, got, wrong), wrong.clone()),
        };
        Self { port, number, lines, expected, got: got.to_vec(), wrong }
    }
}

/// Returns a line for each field with a wrong byte, and for each wrong byte outside of fields.
fn field_lines(pattern: &Pattern, got: &[u8], wrong: &[usize]) -> Vec<String> {
    let fields = dissect::dissect(got);
    let mut lines = Vec::new();
    let mut rest = wrong.to_vec();
    for f in &fields {
        let bytes = f.bytes();
        if !rest.iter().any(|i| bytes.contains(i) && differs(pattern, got, f, *i)) {
            continue;
        }
        rest.retain(|i| !bytes.contains(i) || shared(&fields, *i));
        let want: String = bytes.clone().map(|i| pattern.byte(i)).collect();
        let have: String = bytes.clone().map(|i| format!("{:02x}", got[i])).collect();
        let place = if bytes.len() == 1 {
            format!("byte {}", bytes.start)
        } else {
            format!("bytes {}..{}", bytes.start, bytes.end)
        };
        lines.push(format!("{}: expected {want}, got {have} ({place})", f.name));
    }
    let covered = |i: &usize| fields.iter().any(|f| f.bytes().contains(i));
    for i in rest.iter().filter(|i| !covered(i)) {
        lines.push(format!("byte {i}: expected {}, got {:02x}", pattern.byte(*i), got[*i]));
    }
    lines
}

/// Returns whether several fields share a byte.
fn shared(fields: &[Field], i: usize) -> bool {
    fields.iter().filter(|f| f.bytes().contains(&i)).count() > 1
}

/// Returns whether the bits of a field in byte `i` differ.
fn differs(pattern: &Pattern, got: &[u8], f: &Field, i: usize) -> bool {
    let want = pattern.byte(i);
    let mask = f.mask(i);
    let nibbles = want.chars().zip([(got[i] >> 4, mask >> 4), (got[i] & 15, mask & 15)]);
    nibbles.into_iter().any(|(c, (have, mask))| c.to_digit(16).is_some_and(|d| d as u8 & mask != have & mask))
}

/// Formats bytes in groups of four.
#[must_use]
pub fn spaced(bytes: &[u8]) -> String {
    group(bytes.iter().map(|b| format!("{b:02x}")))
}

fn group(bytes: impl Iterator<Item = String>) -> String {
    let mut out = String::new();
    for (i, b) in bytes.enumerate() {
        if i > 0 && i.is_multiple_of(4) {
            out.push(' ');
        }
        out.push_str(&b);
    }
    out
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet {} on port {} differs from the expected packet", self.number, self.port)?;
        for line in &self.lines {
            write!(f, "\n  {line}")?;
        }
        write!(f, "\n  expected {}", group(self.expected.iter().cloned()))?;
        write!(f, "\n  got      {}", spaced(&self.got))?;
        if !self.wrong.is_empty() {
            let last = self.wrong.last().copied().unwrap_or(0);
            let marks = (0..=last).map(|i| if self.wrong.contains(&i) { "^^" } else { "  " }.to_owned());
            write!(f, "\n           {}", group(marks).trim_end())?;
        }
        Ok(())
    }
}
