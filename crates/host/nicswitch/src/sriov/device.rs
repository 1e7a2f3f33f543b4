//! The device of a physical function, in sysfs.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use p4shield_links::Card;

use crate::NicError;

/// The devices of PCI buses, which are the same in each network namespace.
const DEVICES: &str = "/sys/bus/pci/devices";

/// A physical function's device.
#[derive(Debug)]
pub(super) struct Device<'a> {
    card: &'a str,
    address: &'a str,
    folder: PathBuf,
}

impl<'a> Device<'a> {
    pub(super) fn of(interface: &'a str, card: &'a Card) -> Result<Self, NicError> {
        Self::below(Path::new(DEVICES), interface, card)
    }

    fn below(devices: &Path, interface: &'a str, card: &'a Card) -> Result<Self, NicError> {
        let address = card.device.as_deref().unwrap_or_default();
        // It becomes a part of paths.
        let is_address = address.contains(':') && address.contains('.') && !address.contains("..");
        if !is_address || !address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.') {
            let reason = "it is no device of a PCI bus; name the interface of a physical function, see \
                          `p4shield host check`";
            return Err(NicError::Card { card: interface.to_owned(), reason: reason.to_owned() });
        }
        Ok(Self { card: interface, address, folder: devices.join(address) })
    }

    /// Returns its PCI address.
    pub(super) const fn name(&self) -> &str {
        self.address
    }

    /// Returns its folder in sysfs.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the file of the number of virtual functions.
    pub(super) fn count_file(&self) -> PathBuf {
        self.folder.join("sriov_numvfs")
    }

    /// Returns how many virtual functions it can have.
    pub(super) fn most(&self) -> Result<u32, NicError> {
        let file = self.folder.join("sriov_totalvfs");
        let text = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.refusal(
                    "it has no virtual functions: the card, its firmware's settings or its \
                                         driver are without SR-IOV",
                ));
            }
            text => text.map_err(|error| self.failure("read", &file, &error))?,
        };
        let most = text.trim().parse();
        most.map_err(|_| self.refusal(format_args!("{} has no number: {text:?}", file.display())))
    }

    /// Makes so many virtual functions; 0: removes them.
    pub(super) fn make(&self, count: u32) -> Result<(), NicError> {
        let file = self.count_file();
        std::fs::write(&file, count.to_string()).map_err(|error| self.failure("write", &file, &error))
    }

    pub(super) fn refusal(&self, reason: impl Display) -> NicError {
        NicError::Card { card: self.card.to_owned(), reason: reason.to_string() }
    }

    fn failure(&self, step: &str, file: &Path, error: &io::Error) -> NicError {
        let remedy = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => "; do it where /sys can be written, not in a container",
            io::ErrorKind::PermissionDenied => "; it takes root, and functions that no VM has",
            _ => "",
        };
        self.refusal(format_args!("cannot {step} {}: {error}{remedy}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(device: &str) -> Card {
        Card { device: Some(device.to_owned()), ..Card::default() }
    }

    #[test]
    fn the_files_of_a_device_are_read_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let card = card("0000:01:00.0");
        let device = Device::below(folder.path(), "eth0", &card).unwrap();
        let error = device.most().unwrap_err().to_string();
        assert!(error.contains("eth0") && error.contains("without SR-IOV"), "{error}");
        assert!(device.make(3).is_err());
        let at = |name: &str| folder.path().join("0000:01:00.0").join(name);
        std::fs::create_dir(at("")).unwrap();
        std::fs::write(at("sriov_totalvfs"), "7\n").unwrap();
        assert_eq!(device.most().unwrap(), 7);
        device.make(3).unwrap();
        assert_eq!(std::fs::read_to_string(at("sriov_numvfs")).unwrap(), "3");
        std::fs::write(at("sriov_totalvfs"), "seven").unwrap();
        assert!(device.most().unwrap_err().to_string().contains("seven"));
    }

    #[test]
    fn what_is_no_pci_address_is_no_path() {
        for bad in ["", "..", "virtio0", "../01:00.0", "0000:01:00.0/..", "01:00..0", "a b:c.d"] {
            let card = card(bad);
            assert!(Device::of("eth0", &card).is_err(), "{bad}");
        }
        assert!(Device::of("lo", &Card::default()).unwrap_err().to_string().contains("lo"));
    }
}
