//! Encoding of the elements of registers, counters and meters.

use crate::Control;
use crate::model::{ArrayFacts, ArrayKind};
use crate::names::{self, NameError};
use crate::value::{self, ValueError};
use num_bigint::BigUint;
use p4shield_abi::meter::MeterCell;
use serde::{Deserialize, Serialize};

/// A rate and a burst of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Packets or bytes per 1000 seconds.
    pub per_1000_s: u64,
    /// Packets or bytes at once.
    pub burst: u64,
}

impl Rate {
    /// Returns the rate of this many packets or bytes in a period, of which a second has `periods_in_second`.
    /// Returns `None` if it is negative, or too great.
    #[must_use]
    pub fn of(rate: f64, periods_in_second: u32, burst: u64) -> Option<Self> {
        let per_1000_s = rate * f64::from(periods_in_second) * 1000.0;
        // Above this, a rate has no exact value.
        let valid = (0.0..=9e15).contains(&per_1000_s);
        valid.then_some(Self { per_1000_s: per_1000_s.round() as u64, burst })
    }
}

/// The reason why a text is no element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElementError {
    /// The name is unknown or ambiguous.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The value has no valid form.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The value does not fit.
    #[error("{value} does not fit the {width} bits of {name}")]
    TooWide {
        /// The value.
        value: String,
        /// The register's or counter's name.
        name: String,
        /// Its width in bits.
        width: u32,
    },
    /// There is no such element.
    #[error("{name} has no element {index}: its last one is {last}")]
    Index {
        /// The array's name.
        name: String,
        /// The index.
        index: u32,
        /// The last index.
        last: u32,
    },
    /// The cells are those of a table's entries.
    #[error("{name} is in the entries of {table}, which have no numbers: name an entry by its keys")]
    InEntries {
        /// The counter's or meter's name.
        name: String,
        /// The table.
        table: String,
    },
    /// The cells are an array.
    #[error("{0} is an array, whose elements have numbers and no keys")]
    Elements(String),
    /// The rates are not those of a meter (RFC 2698).
    #[error("{0} has one or two rates: the committed one, then the peak one, which is at least as great")]
    Rates(String),
}

impl Control {
    /// Returns the array with this name, of the kind that `is` accepts and `what` names.
    ///
    /// # Errors
    /// [`ElementError::Name`].
    pub fn array(
        &self,
        what: &'static str,
        name: &str,
        is: fn(ArrayKind) -> bool,
    ) -> Result<&ArrayFacts, ElementError> {
        let of_kind: Vec<_> = self.arrays.iter().filter(|a| is(a.kind)).collect();
        let at = names::find(what, name, false, of_kind.iter().map(|a| a.name.as_str()))?;
        Ok(of_kind[at])
    }
}

impl ArrayFacts {
    /// Returns the first element and the number of those that an index names: all without one.
    ///
    /// # Errors
    /// [`ElementError::Index`].
    pub fn span(&self, index: Option<u32>) -> Result<(u32, u32), ElementError> {
        let Some(index) = index else { return Ok((0, self.size)) };
        let (name, last) = (self.name.clone(), self.size.saturating_sub(1));
        if index < self.size { Ok((index, 1)) } else { Err(ElementError::Index { name, index, last }) }
    }

    /// Encodes the value of a register that is written as a text; one with a sign may be negative.
    ///
    /// # Errors
    /// [`ElementError`].
    pub fn register_text(&self, text: &str, size: usize) -> Result<Vec<u8>, ElementError> {
        let negative = text.strip_prefix('-').filter(|_| self.signed);
        let magnitude = value::value(&self.name, self.width, negative.unwrap_or(text))?;
        let range = BigUint::from(1u8) << self.width;
        match negative {
            Some(_) if magnitude > (&range >> 1) => Err(self.too_wide(text)),
            Some(_) if magnitude > BigUint::default() => self.register(&(range - magnitude), size),
            _ => self.register(&magnitude, size),
        }
    }

    /// Encodes a register's value in `size` bytes, those of its map's values.
    ///
    /// # Errors
    /// [`ElementError::TooWide`].
    pub fn register(&self, value: &BigUint, size: usize) -> Result<Vec<u8>, ElementError> {
        if value.bits() > u64::from(self.width) {
            return Err(self.too_wide(&value.to_string()));
        }
        let mut bytes = value.to_bytes_le();
        bytes.resize(size, 0);
        Ok(bytes)
    }

    /// Encodes a counter: packets (or added amounts), then bytes, if its elements have room for them.
    #[must_use]
    pub fn counter(packets: u64, bytes: u64, size: usize) -> Vec<u8> {
        let mut value = [packets.to_le_bytes(), bytes.to_le_bytes()].concat();
        value.resize(size, 0);
        value
    }

    fn too_wide(&self, value: &str) -> ElementError {
        ElementError::TooWide { value: value.to_owned(), name: self.name.clone(), width: self.width }
    }
}

/// Returns a meter with these rates, which starts with full buckets: the committed rate, then the peak rate,
/// which is the committed one if it is left out. Without rates, every packet is green.
#[must_use]
pub fn meter(rates: &[Rate]) -> MeterCell {
    let committed = rates.first().copied().unwrap_or_default();
    let peak = rates.get(1).copied().unwrap_or(committed);
    MeterCell {
        committed_rate: committed.per_1000_s,
        committed_burst: committed.burst,
        peak_rate: peak.per_1000_s,
        peak_burst: peak.burst,
        ..MeterCell::default()
    }
}

/// Encodes the rates of a meter. None reset it.
///
/// # Errors
/// [`ElementError::Rates`].
pub fn checked_meter(name: &str, rates: &[Rate]) -> Result<Vec<u8>, ElementError> {
    let ordered = rates.windows(2).all(|two| two[0].per_1000_s <= two[1].per_1000_s);
    if rates.len() > 2 || !ordered {
        return Err(ElementError::Rates(name.to_owned()));
    }
    Ok(meter(rates).encode().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(width: u32, signed: bool) -> ArrayFacts {
        let (name, map) = ("ingress.r".to_owned(), "r".to_owned());
        ArrayFacts { name, map, kind: ArrayKind::Register, width, signed, size: 4, metric: None }
    }

    #[test]
    fn registers_hold_what_fits_their_width() {
        let (plain, signed) = (register(9, false), register(9, true));
        assert_eq!(plain.register_text("511", 2), Ok(vec![0xff, 1]));
        assert_eq!(plain.register_text("0x1ff", 4), Ok(vec![0xff, 1, 0, 0]));
        assert_eq!(signed.register_text("-1", 2), Ok(vec![0xff, 1]));
        assert_eq!(signed.register_text("-256", 2), Ok(vec![0, 1]));
        assert_eq!(signed.register_text("-0", 2), Ok(vec![0, 0]));
        for (facts, text) in
            [(&plain, "512"), (&signed, "-257"), (&plain, "-1"), (&signed, "--1"), (&plain, "")]
        {
            assert!(facts.register_text(text, 2).is_err(), "{text}");
        }
    }

    #[test]
    fn an_index_names_one_element_and_none_all() {
        let facts = register(8, false);
        assert_eq!((facts.span(None), facts.span(Some(3))), (Ok((0, 4)), Ok((3, 1))));
        let error = facts.span(Some(4)).unwrap_err().to_string();
        assert_eq!(error, "ingress.r has no element 4: its last one is 3");
    }

    #[test]
    fn the_peak_rate_is_no_less_than_the_committed_one() {
        let rate = |per_1000_s| Rate { per_1000_s, burst: 1 };
        assert!(checked_meter("m", &[rate(2), rate(1)]).is_err());
        assert!(checked_meter("m", &[rate(1); 3]).is_err());
        let cell = MeterCell::decode(checked_meter("m", &[rate(1), rate(2)]).unwrap().first_chunk().unwrap());
        assert_eq!((cell.committed_rate, cell.peak_rate, cell.peak_burst), (1, 2, 1));
    }
}
