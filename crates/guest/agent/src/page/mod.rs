//! The pages that a user VM shares with its P4 VM, and how it reaches them.
//!
//! Where P4 VM and user VM are processes of one host, a page is a file. In a virtual machine it is the memory of an
//! ivshmem device, which needs no driver: `device` finds it in sysfs, `memory` maps it. `place` follows a page
//! that is made anew.

mod device;
mod measure;
mod memory;
mod place;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use device::{DeviceError, PciAddress};
pub use measure::{Measured, measure};
pub(crate) use memory::PageMemory;
/// Bytes of the pages, which are the sizes of the files or devices that hold them.
pub use p4shield_abi::page::{INFO_PAGE_SIZE, LOG_PAGE_SIZE};
pub(crate) use place::{Place, Use};

/// Where a page is. Written as a path, as `pci:0000:00:05.0`, or as `pci:auto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PagePlace {
    /// A file.
    File(PathBuf),
    /// The shared memory of the ivshmem device at this PCI address.
    Device(PciAddress),
    /// That of the one ivshmem device whose memory has the page's size. Info page and log page have different sizes.
    AnyDevice,
}

impl From<PathBuf> for PagePlace {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl FromStr for PagePlace {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("pci:") {
            None => Ok(Self::File(text.into())),
            Some("auto") => Ok(Self::AnyDevice),
            Some(address) => address.parse().map(Self::Device),
        }
    }
}

impl TryFrom<String> for PagePlace {
    type Error = DeviceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PagePlace> for String {
    fn from(place: PagePlace) -> Self {
        place.to_string()
    }
}

impl fmt::Display for PagePlace {
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
    fn places_read_back_as_they_are_written() {
        for text in ["/run/p4shield/info", "pci:auto", "pci:0000:00:05.0", "pci:0001:ff:1f.7"] {
            assert_eq!(text.parse::<PagePlace>().unwrap().to_string(), text);
        }
        assert!(matches!("./pci:auto".parse().unwrap(), PagePlace::File(_)));
        for text in ["pci:", "pci:00:05.0", "pci:0000:00:05", "pci:0000:00:../..", "pci:0000:00:05.8"] {
            assert!(text.parse::<PagePlace>().is_err(), "{text}");
        }
    }
}
