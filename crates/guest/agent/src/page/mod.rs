//! The pages that a user VM shares with its P4 VM.
//!
//! Between processes of one host, a page is a file. In a virtual machine it is the memory of an ivshmem
//! device, which needs no driver: `device` finds it in sysfs, and `memory` maps it. `watch` reopens a page
//! whose file was re-created.

mod device;
mod measure;
mod memory;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use device::{DeviceError, PciAddress};
pub use measure::{Measurement, measure};
pub(crate) use memory::PageMemory;
pub use p4shield_abi::info_page::INFO_PAGE_SIZE;
pub use p4shield_abi::log_page::LOG_PAGE_SIZE;
pub(crate) use watch::{PageUse, PageWatch};

/// Location of a page: a path, `pci:0000:00:05.0`, or `pci:auto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PageLocation {
    /// A file.
    File(PathBuf),
    /// The shared memory of the ivshmem device at this PCI address.
    Device(PciAddress),
    /// The shared memory of the only ivshmem device with the page's size. Info and log page differ in size.
    AnyDevice,
}

impl From<PathBuf> for PageLocation {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl FromStr for PageLocation {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("pci:") {
            None => Ok(Self::File(text.into())),
            Some("auto") => Ok(Self::AnyDevice),
            Some(address) => address.parse().map(Self::Device),
        }
    }
}

impl TryFrom<String> for PageLocation {
    type Error = DeviceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PageLocation> for String {
    fn from(location: PageLocation) -> Self {
        location.to_string()
    }
}

impl fmt::Display for PageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Device(address) => write!(f, "pci:{address}"),
            Self::AnyDevice => f.write_str("pci:auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_parsed_as_they_are_displayed() {
        for text in ["/run/p4shield/info", "pci:auto", "pci:0000:00:05.0", "pci:0001:ff:1f.7"] {
            assert_eq!(text.parse::<PageLocation>().unwrap().to_string(), text);
        }
        assert!(matches!("./pci:auto".parse().unwrap(), PageLocation::File(_)));
        for text in ["pci:", "pci:00:05.0", "pci:0000:00:05", "pci:0000:00:../..", "pci:0000:00:05.8"] {
            assert!(text.parse::<PageLocation>().is_err(), "{text}");
        }
    }
}
