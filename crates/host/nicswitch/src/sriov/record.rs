//! The record of what was made of a card, for other processes and for after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use rustix::fs::FlockOperation;

use crate::NicError;

/// The most bytes of a record: 4,096 ports of 15 letters have about 100,000.
const LONGEST: u64 = 1 << 20;
const DAMAGED: &str = ": it is damaged; delete it, and the virtual functions count as another program's";

/// The work done on a card: functions that were made, and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// How many virtual functions; 0: they were there.
    pub(super) made: u32,
    /// The ports by virtual function; empty for one that is no port any more.
    pub(super) ports: BTreeMap<u32, String>,
}

impl Record {
    /// Returns the names of ports.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.ports.values().filter(|name| !name.is_empty()).cloned().collect()
    }

    /// Makes these the ports. The functions of others are remembered.
    pub(super) fn replace(&mut self, ports: BTreeMap<u32, String>) {
        self.ports.values_mut().for_each(String::clear);
        self.ports.extend(ports);
    }

    /// A line per fact, in words.
    fn text(&self) -> String {
        let mut text = format!("made {}\n", self.made);
        for (number, name) in &self.ports {
            text.push_str(&if name.is_empty() {
                format!("closed {number}\n")
            } else {
                format!("port {number} {name}\n")
            });
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut record = Self::default();
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["made", count] => record.made = count.parse().ok()?,
                ["closed", number] => drop(record.ports.insert(number.parse().ok()?, String::new())),
                ["port", number, name] => drop(record.ports.insert(number.parse().ok()?, name.to_owned())),
                _ => return None,
            }
        }
        Some(record)
    }
}

/// The folder of records.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(super) const fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(super) fn exist(&self) -> bool {
        self.folder.exists()
    }

    pub(super) fn create(&self) -> Result<(), NicError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(self.failed(""))
    }

    /// Returns the cards that have a record, by the addresses of their devices.
    pub(super) fn cards(&self) -> Result<Vec<String>, NicError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(self.failed(""))?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<io::Result<Vec<_>>>().map_err(self.failed(""))?;
        Ok(names.into_iter().filter(|name| name.contains(':')).collect())
    }

    /// Waits until no other process changes a card, and keeps them out until the lock is dropped.
    pub(super) fn lock(&self) -> Result<File, NicError> {
        let folder = File::open(&self.folder).map_err(self.failed(""))?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive).map_err(|e| self.failed("")(e.into()))?;
        Ok(folder)
    }

    /// Returns a card's record; an empty one if there is none.
    pub(super) fn read(&self, card: &str) -> Result<Record, NicError> {
        let file = match File::open(self.folder.join(card)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Record::default()),
            file => file.map_err(self.failed(""))?,
        };
        let mut text = String::new();
        let read = file.take(LONGEST).read_to_string(&mut text);
        let damaged = || self.of(card).failed(DAMAGED)(ErrorKind::InvalidData.into());
        read.map_err(|_| damaged())?;
        Record::parse(&text).ok_or_else(damaged)
    }

    pub(super) fn write(&self, card: &str, record: &Record) -> Result<(), NicError> {
        // All of it or nothing, whenever the process ends.
        let new = self.folder.join("new");
        std::fs::write(&new, record.text())
            .and_then(|()| std::fs::rename(&new, self.folder.join(card)))
            .map_err(self.failed(""))
    }

    /// Removes a card's record, and the folder if it was the last one.
    pub(super) fn remove(&self, card: &str) -> Result<(), NicError> {
        let _ = std::fs::remove_file(self.folder.join("new"));
        match std::fs::remove_file(self.folder.join(card)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(self.failed("")(error)),
            _ => {}
        }
        match std::fs::remove_dir(&self.folder) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(self.failed("")(error)),
            _ => Ok(()),
        }
    }

    fn of(&self, card: &str) -> Self {
        Self { folder: self.folder.join(card) }
    }

    fn failed(&self, remedy: &'static str) -> impl FnOnce(io::Error) -> NicError {
        let folder = self.folder.clone();
        move |source| NicError::Folder { folder, remedy, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CARD: &str = "0000:01:00.0";

    #[test]
    fn a_record_outlives_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::at(folder.path().join("nic"));
        records.create().unwrap();
        let _lock = records.lock().unwrap();
        assert_eq!(records.read(CARD).unwrap(), Record::default());
        let mut record = Record { made: 4, ports: BTreeMap::from([(0, "ia".into()), (3, "a1".into())]) };
        records.write(CARD, &record).unwrap();
        record.replace(BTreeMap::from([(0, "ib".into())]));
        assert_eq!(record.names(), BTreeSet::from(["ib".to_owned()]));
        records.write(CARD, &record).unwrap();
        assert_eq!(records.read(CARD).unwrap(), record);
        assert_eq!(record.text(), "made 4\nport 0 ib\nclosed 3\n");
        records.remove(CARD).unwrap();
        assert!(!records.exist());
    }

    #[test]
    fn a_damaged_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::at(folder.path().to_owned());
        for text in [&b"made\n"[..], b"made -1\n", b"port 0\n", b"port x a\n", b"other\n", b"\xff"] {
            std::fs::write(folder.path().join(CARD), text).unwrap();
            let error = records.read(CARD).unwrap_err().to_string();
            assert!(error.contains(CARD) && error.contains("delete it"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_record_is_read_or_refused(text in "\\PC*|(made|port|closed)( [0-9a-z]{0,12}){0,3}\n") {
            let _ = Record::parse(&text);
        }
    }
}
