//! Application values for the tenant's programs, with names and expiry.

use std::collections::BTreeMap;
use std::time::Duration;

use p4shield_abi::info::{APP_VALUES, Snapshot, field};

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    value: u64,
    /// Expiry on the monotonic clock in nanoseconds; afterwards the value is unknown.
    until: Option<u64>,
}

/// All values, and the names of their slots.
#[derive(Debug)]
pub(super) struct Values {
    names: BTreeMap<String, u32>,
    slots: [Option<Value>; APP_VALUES],
}

/// The error for a key that names no slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key:?} is neither a slot number from 0 to {} nor a name in [names]", APP_VALUES - 1)]
pub(super) struct NoSuchSlot {
    key: String,
}

/// A value in the reply to `list`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ListedValue {
    /// Slot, 0 to 63.
    pub slot: u32,
    /// Name from the configuration, if the slot has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The value.
    pub value: u64,
    /// Milliseconds until the value becomes unknown; `None` without expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

impl Values {
    pub(super) const fn new(names: BTreeMap<String, u32>) -> Self {
        Self { names, slots: [None; APP_VALUES] }
    }

    fn slot(&self, key: &str) -> Result<usize, NoSuchSlot> {
        key.parse()
            .ok()
            .or_else(|| self.names.get(key).copied())
            .and_then(|slot: u32| usize::try_from(slot).ok())
            .filter(|slot| *slot < APP_VALUES)
            .ok_or_else(|| NoSuchSlot { key: key.chars().take(64).collect() })
    }

    pub(super) fn set(
        &mut self,
        now: u64,
        key: &str,
        value: u64,
        lasts: Option<Duration>,
    ) -> Result<(), NoSuchSlot> {
        let slot = self.slot(key)?;
        let until = lasts.map(|l| now.saturating_add(u64::try_from(l.as_nanos()).unwrap_or(u64::MAX)));
        self.slots[slot] = Some(Value { value, until });
        Ok(())
    }

    pub(super) fn unset(&mut self, key: &str) -> Result<(), NoSuchSlot> {
        let slot = self.slot(key)?;
        self.slots[slot] = None;
        Ok(())
    }

    /// Removes expired values, and copies the others to the snapshot.
    pub(super) fn collect(&mut self, now: u64, snapshot: &mut Snapshot) {
        for (field, slot) in (field::APP_BASE..).zip(&mut self.slots) {
            if slot.is_some_and(|v| v.until.is_some_and(|t| t <= now)) {
                *slot = None;
            }
            if let Some(v) = slot {
                snapshot.set(field, v.value);
            }
        }
    }

    pub(super) fn list(&self, now: u64) -> Vec<ListedValue> {
        let name_of = |slot| self.names.iter().find(|(_, s)| **s == slot).map(|(n, _)| n.clone());
        (0..)
            .zip(&self.slots)
            .filter_map(|(slot, v)| Some((slot, (*v)?)))
            .filter(|(_, v)| v.until.is_none_or(|t| t > now))
            .map(|(slot, v)| ListedValue {
                slot,
                name: name_of(slot),
                value: v.value,
                expires_in_ms: v.until.map(|t| (t - now) / 1_000_000),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values::new([("load".to_owned(), 3)].into())
    }

    #[test]
    fn keys_are_numbers_or_names() {
        let mut v = values();
        for bad in ["64", "-1", "no", "", "99999999999", "3 "] {
            assert!(v.set(0, bad, 1, None).is_err(), "{bad:?}");
        }
        v.set(0, "load", 7, None).unwrap();
        v.set(0, "63", 8, None).unwrap();
        let mut s = Snapshot::default();
        v.collect(0, &mut s);
        assert_eq!(s.get(field::APP_BASE + 3), Some(7));
        assert_eq!(s.get(field::APP_BASE + 63), Some(8));
        assert_eq!(s.get(field::APP_BASE), None);
        v.unset("3").unwrap();
        assert_eq!(v.list(0).len(), 1);
    }

    #[test]
    fn expired_values_are_unknown() {
        let mut v = values();
        v.set(1_000, "load", 7, Some(Duration::from_nanos(500))).unwrap();
        assert_eq!(v.list(1_499).len(), 1);
        assert_eq!(v.list(1_500), []);
        let mut s = Snapshot::default();
        v.collect(1_499, &mut s);
        assert_eq!(s.get(field::APP_BASE + 3), Some(7));
        let mut s = Snapshot::default();
        v.collect(1_500, &mut s);
        assert!(!s.is_known(field::APP_BASE + 3));
        v.set(u64::MAX, "0", 1, Some(Duration::MAX)).unwrap();
    }
}
