//! What a bundle contains, and its limits.

use std::collections::BTreeSet;

use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::info::FIELDS;
use p4shield_abi::{Direction, Verdict};
use serde::{Deserialize, Serialize};

use crate::error::Reason;
use crate::limits::{
    MAX_CHECKS, MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_MAP_NAME, MAX_NAME, MAX_OBJECT_COUNT, MAX_OBJECTS,
    MAX_P4INFO, MIN_HEADER_BYTES,
};

/// What a bundle contains. Its programs are all that the VM has: a direction without one has no program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The version: a P4 VM refuses a lower one than the highest that it has run for this VM.
    pub version: u64,
    /// The tenant that it is for.
    pub tenant: String,
    /// The VM that it is for; `None`: any VM of the tenant.
    pub vm: Option<String>,
    /// The least number of header bytes that the programs need of a packet.
    pub header_bytes: u32,
    /// By [`Direction`].
    pub programs: [Option<BundledProgram>; 2],
    /// What the programs have to decide before they replace others.
    pub checks: Vec<HealthCheck>,
}

/// The program of a direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundledProgram {
    /// eBPF objects; the first one holds the program.
    pub objects: Vec<Vec<u8>>,
    /// The program's P4Info.
    pub p4info: Option<Vec<u8>>,
    /// Entries that its tables begin with, besides constant ones.
    pub entries: Vec<Entry>,
}

/// An entry of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The map's symbol.
    pub map: String,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// A packet and the verdict that a program has to give on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Its name, for messages.
    pub name: String,
    /// [`Direction`] as a number.
    pub direction: u8,
    /// The packet, from its Ethernet header on. The program sees the first [`Contents::header_bytes`] of it.
    pub packet: Vec<u8>,
    /// Whether the program passes it.
    pub passes: bool,
    /// In-VM information that the program sees, by field; `None`: information is missing.
    pub information: Option<Vec<(u32, u64)>>,
}

impl HealthCheck {
    /// Returns the verdict that the check expects.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        if self.passes { Verdict::Pass } else { Verdict::Drop }
    }
}

impl Contents {
    /// Returns the program of a direction.
    #[must_use]
    pub const fn program(&self, direction: Direction) -> Option<&BundledProgram> {
        self.programs[direction as usize].as_ref()
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// The first limit that the contents exceed.
    pub fn check(&self) -> Result<(), Reason> {
        name("tenant", &self.tenant)?;
        self.vm.iter().try_for_each(|vm| name("VM", vm))?;
        let (least, most) = (u64::from(MIN_HEADER_BYTES), u64::from(MAX_HEADER_BYTES));
        range("header_bytes", u64::from(self.header_bytes), least, most)?;
        range("the version", self.version, 1, u64::MAX)?;
        if self.programs.iter().all(Option::is_none) {
            return Err(Reason::NoProgram);
        }
        self.programs.iter().flatten().try_for_each(BundledProgram::check)?;
        range("the number of checks", self.checks.len() as u64, 0, MAX_CHECKS as u64)?;
        let mut names = BTreeSet::new();
        for check in &self.checks {
            if !names.insert(check.name.as_str()) {
                return Err(Reason::DuplicateCheck(check.name.clone()));
            }
            self.check_of(check)?;
        }
        Ok(())
    }

    fn check_of(&self, check: &HealthCheck) -> Result<(), Reason> {
        name("check", &check.name)?;
        let least = u64::from(MIN_HEADER_BYTES);
        range(
            "the length of a check's packet",
            check.packet.len() as u64,
            least,
            u64::from(MAX_HEADER_BYTES),
        )?;
        range("the direction of a check", u64::from(check.direction), 0, 1)?;
        let direction = Direction::from_u8(check.direction).unwrap_or(Direction::Ingress);
        if self.program(direction).is_none() {
            let direction = direction.name();
            return Err(Reason::CheckWithoutProgram { check: check.name.clone(), direction });
        }
        let fields = check.information.as_deref().unwrap_or_default();
        range("the number of a check's fields", fields.len() as u64, 0, FIELDS as u64)?;
        match fields.iter().find(|(field, _)| *field as usize >= FIELDS) {
            Some(&(field, _)) => Err(Reason::Field { check: check.name.clone(), field }),
            None => Ok(()),
        }
    }
}

impl BundledProgram {
    fn check(&self) -> Result<(), Reason> {
        range("the number of objects", self.objects.len() as u64, 1, MAX_OBJECT_COUNT as u64)?;
        let bytes: usize = self.objects.iter().map(Vec::len).sum();
        range("the number of a program's bytes", bytes as u64, 1, MAX_OBJECTS as u64)?;
        let p4info = self.p4info.as_ref().map_or(0, Vec::len);
        range("the number of P4Info's bytes", p4info as u64, 0, MAX_P4INFO as u64)?;
        range("the number of entries", self.entries.len() as u64, 0, MAX_ENTRIES as u64)?;
        let mut seen = BTreeSet::new();
        for Entry { map, key, value } in &self.entries {
            range("the length of a map's name", map.len() as u64, 1, MAX_MAP_NAME as u64)?;
            range("the length of a key", key.len() as u64, 0, MAX_ENTRY_BYTES as u64)?;
            range("the length of a value", value.len() as u64, 0, MAX_ENTRY_BYTES as u64)?;
            if !seen.insert((map, key)) {
                return Err(Reason::DuplicateEntry { map: map.clone() });
            }
        }
        Ok(())
    }
}

/// Names become part of messages and logs.
fn name(what: &'static str, name: &str) -> Result<(), Reason> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    let name = name.chars().take(MAX_NAME).collect();
    Err(Reason::Name { what, name })
}

const fn range(what: &'static str, found: u64, least: u64, most: u64) -> Result<(), Reason> {
    if found < least || found > most {
        return Err(Reason::Range { what, found, least, most });
    }
    Ok(())
}
